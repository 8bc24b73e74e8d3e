//! The newest events, for readers that follow them.

use super::{Event, events};
use crate::changes::ChangeSet;
use crate::root::{Root, Snapshot};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// The events of one command.
#[derive(Clone, Debug)]
pub struct EventBatch {
    /// Index of the command.
    pub index: u64,
    /// Events, at least one.
    pub events: Vec<Event>,
}

#[derive(Debug, Default)]
struct Ring {
    batches: VecDeque<Arc<EventBatch>>,
    /// Number of batches dropped from the front since the beginning.
    dropped: u64,
}

impl Ring {
    fn end(&self) -> u64 {
        self.dropped + self.batches.len() as u64
    }
}

/// The newest events. A reader that falls behind the kept batches receives an error.
#[derive(Debug)]
pub struct EventLog {
    capacity: AtomicUsize,
    ring: Mutex<Ring>,
    end: watch::Sender<u64>,
}

impl EventLog {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity: AtomicUsize::new(capacity.max(1)),
            ring: Mutex::default(),
            end: watch::Sender::new(0),
        })
    }

    pub(crate) fn push(&self, set: &ChangeSet, before: &Root, after: &Snapshot) {
        let events = events(set, before, after);
        if events.is_empty() {
            return;
        }
        let end = {
            let mut ring = self.lock();
            while ring.batches.len() >= self.capacity.load(Ordering::Relaxed) {
                ring.batches.pop_front();
                ring.dropped += 1;
            }
            ring.batches.push_back(Arc::new(EventBatch { index: set.index, events }));
            ring.end()
        };
        self.end.send_replace(end);
    }

    /// Clears the log after the whole state was replaced: the events belong to another history, and readers must start
    /// again.
    pub(crate) fn reset(&self) {
        let end = {
            let mut ring = self.lock();
            // One more than the number of batches, so that a reader at the end also receives the error.
            ring.dropped = ring.end() + 1;
            ring.batches.clear();
            ring.end()
        };
        self.end.send_replace(end);
    }

    /// Sets the number of kept indexes, at least one.
    pub fn remember(&self, indexes: usize) {
        self.capacity.store(indexes.max(1), Ordering::Relaxed);
    }

    /// Returns a reader that starts at the first kept batch with at least this index.
    pub fn follow(self: &Arc<Self>, index: u64) -> EventReader {
        let ring = self.lock();
        let older = ring.batches.iter().take_while(|batch| batch.index < index).count() as u64;
        EventReader { log: self.clone(), next: ring.dropped + older, end: self.end.subscribe() }
    }

    /// A panic of a lock holder leaves only complete entries.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

/// The reader was too slow, or the state was replaced: it missed events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events were missed: the reader fell behind what is remembered")]
pub struct EventsMissed;

/// A position in the log.
#[derive(Debug)]
pub struct EventReader {
    log: Arc<EventLog>,
    next: u64,
    end: watch::Receiver<u64>,
}

impl EventReader {
    /// Returns the next batch. Cancel safe.
    ///
    /// # Errors
    /// If batches were dropped that this reader has not received; it cannot continue.
    pub async fn next(&mut self) -> Result<Arc<EventBatch>, EventsMissed> {
        loop {
            self.end.borrow_and_update();
            {
                let ring = self.log.lock();
                let Some(at) = self.next.checked_sub(ring.dropped) else { return Err(EventsMissed) };
                let at = usize::try_from(at).map_err(|_| EventsMissed)?;
                if let Some(batch) = ring.batches.get(at) {
                    self.next += 1;
                    return Ok(batch.clone());
                }
            }
            // The sender lives in the log, which this reader holds.
            let _ = self.end.changed().await;
        }
    }
}
