//! The allocations that a command wrote.

use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use std::collections::BTreeMap;
use std::sync::Arc;

type Row = Option<Arc<Allocation>>;

/// The rows of the allocations that a command wrote or removed, before and after the command. A plan places hundreds
/// of allocations, and each search in a large table waits for memory.
#[derive(Debug, Default)]
pub(crate) struct AllocRows(BTreeMap<AllocId, (Row, Row)>);

impl AllocRows {
    /// Records a change of a row. The row before the command is the old row of the first change.
    pub(crate) fn record(&mut self, id: &AllocId, old: Row, new: Row) {
        self.0.entry(id.clone()).or_insert((old, None)).1 = new;
    }

    /// Returns the rows before and after the command.
    pub(crate) fn get(&self, id: &AllocId) -> (Option<&Arc<Allocation>>, Option<&Arc<Allocation>>) {
        self.0.get(id).map_or((None, None), |(old, new)| (old.as_ref(), new.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_before_is_that_of_the_first_change() {
        let row = |name: &str| Some(Arc::new(Allocation { name: name.into(), ..Allocation::default() }));
        let id = AllocId::new("a");
        let mut rows = AllocRows::default();
        rows.record(&id, row("first"), row("second"));
        rows.record(&id, row("second"), row("third"));
        assert_eq!(rows.get(&id), (row("first").as_ref(), row("third").as_ref()));
        rows.record(&id, row("third"), None);
        assert_eq!(rows.get(&id), (row("first").as_ref(), None));
        assert_eq!(rows.get(&AllocId::new("b")), (None, None));
    }
}
