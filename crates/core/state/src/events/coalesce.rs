//! Events for a reader of the newest row of each object, without each change.

use super::{Event, EventBatch, EventRow};
use std::collections::{BTreeMap, HashMap};

/// The largest number of events in a batch of [`Pending::take`]. A plan can place 10,000 allocations at one index.
const MAX_EVENTS: usize = 256;

/// The object of an event: topic, namespace and id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventObject {
    topic: &'static str,
    namespace: String,
    id: String,
}

impl EventRow {
    /// Returns the object to which the row belongs. Two events of the same object replace each other.
    pub fn object(&self) -> EventObject {
        let id = match self {
            // The key of host volumes is empty.
            Self::HostVolume(row) => row.id.to_string(),
            row => row.key(),
        };
        EventObject { topic: self.topic(), namespace: self.namespace().to_owned(), id }
    }
}

/// The newest event of each object that changed, in the order of the indexes.
///
/// For example, a node's row changes at the indexes 4, 6 and 9, and a job is deleted at 8. The job's event of index 8
/// comes first, then the node's event of index 9. The events of 4 and 6 are dropped.
#[derive(Debug, Default)]
pub struct Pending {
    /// The events by the order in which they arrived.
    events: BTreeMap<u64, (u64, Event)>,
    places: HashMap<EventObject, u64>,
    next: u64,
}

impl Pending {
    /// Adds an event, which replaces the pending event of its object. Events arrive in the order of their indexes.
    pub fn add(&mut self, index: u64, event: &Event) {
        if let Some(replaced) = self.places.insert(event.row.object(), self.next) {
            self.events.remove(&replaced);
        }
        self.events.insert(self.next, (index, event.clone()));
        self.next += 1;
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Removes the pending events and returns them, in the order of their indexes. A batch has events of one index.
    pub fn take(&mut self) -> Vec<EventBatch> {
        self.places = HashMap::new();
        let mut out: Vec<EventBatch> = Vec::new();
        for (index, event) in std::mem::take(&mut self.events).into_values() {
            match out.last_mut() {
                Some(last) if last.index == index && last.events.len() < MAX_EVENTS => {
                    last.events.push(event);
                }
                _ => out.push(EventBatch { index, events: vec![event] }),
            }
        }
        out
    }
}
