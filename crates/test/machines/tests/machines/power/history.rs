//! The changes that a schedule requested, with their places in the log of the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An object that a schedule changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Object {
    /// A variable, by its number.
    Variable(usize),
    /// A job.
    Job(usize),
    /// A volume.
    Volume(usize),
}

/// A value of an object; absent if the object does not exist.
pub(super) type Value = Option<u64>;

/// A request for a change. Places are lengths of the log in bytes.
#[derive(Clone, Copy, Debug)]
struct Change {
    object: Object,
    value: Value,
    begin: u64,
    /// The place of the acknowledgement. Absent if the request failed: the change may have happened.
    acknowledged: Option<u64>,
}

/// All changes, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct History(Vec<Change>);

/// The allowed values of each object after a power cut.
pub(super) type Allowed = BTreeMap<Object, BTreeSet<Value>>;

impl History {
    /// Records a change: the request was sent at `begin`, and a successful response had arrived at `acknowledged`.
    pub(super) fn record(&mut self, object: Object, value: Value, begin: u64, acknowledged: Option<u64>) {
        self.0.push(Change { object, value, begin, acknowledged });
    }

    /// Returns the places of all acknowledgements.
    pub(super) fn acknowledgements(&self) -> Vec<u64> {
        self.0.iter().filter_map(|change| change.acknowledged).collect()
    }

    /// Returns the allowed values if the log ends at a place. These are the value of the last change that was
    /// acknowledged before, and the values of later changes that had begun.
    pub(super) fn at(&self, place: u64) -> Allowed {
        let mut allowed = Allowed::new();
        for change in &self.0 {
            let values = allowed.entry(change.object).or_insert_with(|| BTreeSet::from([None]));
            if change.acknowledged.is_some_and(|at| at <= place) {
                values.clear();
            }
            if change.begin <= place {
                values.insert(change.value);
            }
        }
        allowed
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Change { object, value, begin, acknowledged } in &self.0 {
            writeln!(f, "{object:?} = {value:?}, requested at {begin}, acknowledged at {acknowledged:?}")?;
        }
        Ok(())
    }
}

#[test]
fn allowed_values_follow_the_acknowledgements() {
    let x = Object::Variable(0);
    let mut history = History::default();
    history.record(x, Some(1), 10, Some(20));
    history.record(x, Some(2), 30, None);
    history.record(x, None, 40, Some(50));
    let at = |place| history.at(place).remove(&x).unwrap();
    assert_eq!(at(5), BTreeSet::from([None]));
    assert_eq!(at(15), BTreeSet::from([None, Some(1)]));
    assert_eq!(at(20), BTreeSet::from([Some(1)]));
    assert_eq!(at(35), BTreeSet::from([Some(1), Some(2)]));
    assert_eq!(at(45), BTreeSet::from([None, Some(1), Some(2)]));
    assert_eq!(at(50), BTreeSet::from([None]));
}
