//! The status of the replication, for operators.

use caravan_messages::region::ReplicatedKind;
use caravan_types::UnixNanos;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of the replication of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplicationState {
    /// No update has arrived in this leader term yet.
    #[default]
    Starting,
    /// The region follows the rows.
    Following,
    /// The last attempt failed, for this reason; the leader retries.
    Failed(String),
}

/// The status of the replication of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Whether updates arrive, in the current leader term.
    pub state: ReplicationState,
    /// The number of replicated rows that the region has.
    pub rows: usize,
    /// The index of the authoritative region up to which its rows were written.
    pub index: u64,
    /// The time of the last update.
    pub updated: Option<UnixNanos>,
    /// The number of updates in this leader term.
    successes: u64,
}

/// The status of all kinds, as the leader of the region measures it; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusBook(Arc<Mutex<BTreeMap<ReplicatedKind, ReplicationStatus>>>);

impl StatusBook {
    /// Drops the status of an earlier term.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    pub(super) fn begin(&self, kind: ReplicatedKind) {
        self.0.lock().insert(kind, ReplicationStatus::default());
    }

    pub(super) fn succeeded(&self, kind: ReplicatedKind, index: u64, rows: usize, now: UnixNanos) {
        let mut book = self.0.lock();
        let status = book.entry(kind).or_default();
        let successes = status.successes + 1;
        let state = ReplicationState::Following;
        *status = ReplicationStatus { state, rows, index, updated: Some(now), successes };
    }

    /// Records a failure. Returns whether the reason is new, so that it is logged once.
    pub(super) fn failed(&self, kind: ReplicatedKind, reason: &str) -> bool {
        let mut book = self.0.lock();
        let status = book.entry(kind).or_default();
        let state = ReplicationState::Failed(reason.to_owned());
        let is_new = status.state != state;
        status.state = state;
        is_new
    }

    pub(super) fn successes(&self, kind: ReplicatedKind) -> u64 {
        self.0.lock().get(&kind).map_or(0, |status| status.successes)
    }

    /// Returns the status of each kind that this server replicates; empty on servers that do not lead, and in the
    /// authoritative region.
    pub(crate) fn now(&self) -> BTreeMap<ReplicatedKind, ReplicationStatus> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_new_once() {
        let (book, kind) = (StatusBook::default(), ReplicatedKind::Tokens);
        book.begin(kind);
        assert!(
            book.failed(kind, "no path") && !book.failed(kind, "no path") && book.failed(kind, "refused")
        );
        book.succeeded(kind, 7, 3, UnixNanos(5));
        let now = &book.now()[&kind];
        assert_eq!((now.rows, now.index, now.updated), (3, 7, Some(UnixNanos(5))));
        assert_eq!(now.state, ReplicationState::Following);
        assert!(book.failed(kind, "refused"));
        assert_eq!(book.now()[&kind].rows, 3);
        assert_eq!(book.successes(kind), 1);
    }
}
