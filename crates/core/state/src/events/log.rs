//! The newest events, for readers that follow them.

use super::coalesce::Pending;
use super::weight::Weights;
use super::{Event, events};
use crate::changes::ChangeSet;
use crate::root::{Root, Snapshot};
use crate::rows::AllocRows;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// The default limit of the kept events, in bytes.
pub const EVENT_BUFFER_BYTES: usize = 8 << 20;
/// The number of indexes that a reader receives who specifies no index, if the log keeps more.
pub const EVENT_BUFFER: usize = 100;

/// The limit of the kept events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventLimit {
    /// The memory of the rows and of the values that they refer to, each value counted once. The events of the newest
    /// command are kept even if they alone exceed the limit.
    Bytes(usize),
    /// The number of indexes, of any size: the reference's `event_buffer_size`.
    Indexes(usize),
}

impl Default for EventLimit {
    fn default() -> Self {
        Self::Bytes(EVENT_BUFFER_BYTES)
    }
}

/// The events of one command.
#[derive(Clone, Debug)]
pub struct EventBatch {
    /// The index of the command.
    pub index: u64,
    /// The events of the command, at least one.
    pub events: Vec<Event>,
}

#[derive(Debug)]
struct Ring {
    limit: EventLimit,
    batches: VecDeque<Arc<EventBatch>>,
    weights: Weights,
    /// The number of batches dropped from the front since the beginning.
    dropped: u64,
    /// The position of the first batch after the newest replacement of the whole state.
    restored: u64,
    /// The state of each [`CoalescedReader`], by the reader's number.
    coalesced: BTreeMap<u64, Merged>,
    next_reader: u64,
}

impl Ring {
    fn end(&self) -> u64 {
        self.dropped + self.batches.len() as u64
    }

    fn is_over(&self) -> bool {
        match self.limit {
            EventLimit::Bytes(bytes) => self.weights.total() > bytes,
            EventLimit::Indexes(indexes) => self.batches.len() > indexes.max(1),
        }
    }

    /// Drops the oldest batches until the limit holds. Readers of the newest rows keep the events that they have not
    /// received.
    fn shrink(&mut self) {
        while self.batches.len() > 1 && self.is_over() {
            let Some(batch) = self.batches.pop_front() else { return };
            self.weights.remove(&batch.events);
            for reader in self.coalesced.values_mut().filter(|reader| reader.next == self.dropped) {
                reader.merge(&batch);
            }
            self.dropped += 1;
        }
    }

    /// Returns the batches from a position on.
    fn from(&self, next: u64) -> Result<impl Iterator<Item = &Arc<EventBatch>>, EventsMissed> {
        let missed = if next < self.restored { EventsMissed::Replaced } else { EventsMissed::Behind };
        let at = next.checked_sub(self.dropped).and_then(|at| usize::try_from(at).ok()).ok_or(missed)?;
        Ok(self.batches.iter().skip(at))
    }

    /// Returns the position of the first kept batch with at least this index.
    fn position(&self, index: u64) -> u64 {
        let older = match (index, self.limit) {
            (0, EventLimit::Bytes(_)) => self.batches.len().saturating_sub(EVENT_BUFFER),
            _ => self.batches.partition_point(|batch| batch.index < index),
        };
        self.dropped + older as u64
    }
}

/// The newest events. A reader that falls behind the kept batches receives an error; a [`CoalescedReader`] never
/// does.
#[derive(Debug)]
pub struct EventLog {
    ring: Mutex<Ring>,
    end: watch::Sender<u64>,
}

impl EventLog {
    pub(crate) fn new(limit: EventLimit) -> Arc<Self> {
        Arc::new(Self {
            ring: Mutex::new(Ring {
                limit,
                batches: VecDeque::new(),
                weights: Weights::default(),
                dropped: 0,
                restored: 0,
                coalesced: BTreeMap::new(),
                next_reader: 0,
            }),
            end: watch::Sender::new(0),
        })
    }

    pub(crate) fn push(&self, set: &ChangeSet, before: &Root, after: &Snapshot, allocs: &AllocRows) {
        let events = events(set, before, after, allocs);
        if events.is_empty() {
            return;
        }
        let end = {
            let mut ring = self.lock();
            ring.weights.add(&events);
            ring.batches.push_back(Arc::new(EventBatch { index: set.index, events }));
            ring.shrink();
            ring.end()
        };
        self.end.send_replace(end);
    }

    /// Clears the log after the whole state was replaced. The events belong to another history, and readers must
    /// start again.
    pub(crate) fn reset(&self) {
        let end = {
            let mut ring = self.lock();
            // The position is one after the last batch, so that a reader at the end also receives the error.
            ring.dropped = ring.end() + 1;
            ring.restored = ring.dropped;
            ring.batches.clear();
            ring.weights = Weights::default();
            for reader in ring.coalesced.values_mut() {
                reader.pending = Pending::default();
            }
            ring.end()
        };
        self.end.send_replace(end);
    }

    /// Sets the limit of the kept events.
    pub fn limit(&self, limit: EventLimit) {
        let mut ring = self.lock();
        ring.limit = limit;
        ring.shrink();
    }

    /// Returns the bytes that the kept events hold, and their number of indexes.
    pub fn kept(&self) -> (usize, usize) {
        let ring = self.lock();
        (ring.weights.total(), ring.batches.len())
    }

    /// Returns a reader that starts at the first kept batch with at least this index.
    pub fn follow(self: &Arc<Self>, index: u64) -> EventReader {
        let ring = self.lock();
        EventReader { log: self.clone(), next: ring.position(index), end: self.end.subscribe() }
    }

    /// Returns a reader as [`EventLog::follow`] does, for the newest event of each object among the events that a
    /// function selects.
    pub fn follow_coalesced(
        self: &Arc<Self>,
        index: u64,
        takes: impl Fn(&Event) -> bool + Send + Sync + 'static,
    ) -> CoalescedReader {
        let takes: Takes = Arc::new(takes);
        let mut ring = self.lock();
        let number = ring.next_reader;
        ring.next_reader += 1;
        let next = ring.position(index);
        ring.coalesced.insert(number, Merged { next, pending: Pending::default(), takes: takes.clone() });
        let mut end = self.end.subscribe();
        if next < ring.end() {
            end.mark_changed();
        } else {
            end.mark_unchanged();
        }
        CoalescedReader { log: self.clone(), number, takes, end }
    }

    /// Locks the kept events. A panic of a lock holder leaves only complete entries.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

/// The reason that a reader cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventsMissed {
    /// The reader was too slow.
    #[error("events were missed: the reader fell behind what is remembered")]
    Behind,
    /// A snapshot replaced the whole state, without an event for each object.
    #[error("events were missed: the whole state was replaced")]
    Replaced,
}

/// A reader's position in the log.
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
    /// If batches were dropped that this reader has not received. The reader cannot continue.
    pub async fn next(&mut self) -> Result<Arc<EventBatch>, EventsMissed> {
        loop {
            self.end.borrow_and_update();
            if let Some(batch) = self.log.lock().from(self.next)?.next() {
                self.next += 1;
                return Ok(batch.clone());
            }
            // The log, which this reader holds, owns the sender.
            let _ = self.end.changed().await;
        }
    }
}

type Takes = Arc<dyn Fn(&Event) -> bool + Send + Sync>;

/// The part of a [`CoalescedReader`] that is in the log.
struct Merged {
    /// The position of the first batch that the reader has not received.
    next: u64,
    /// The events of batches that were dropped before the reader received them.
    pending: Pending,
    takes: Takes,
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged").field("next", &self.next).field("pending", &self.pending.len()).finish()
    }
}

impl Merged {
    fn merge(&mut self, batch: &EventBatch) {
        for event in batch.events.iter().filter(|event| (self.takes)(event)) {
            self.pending.add(batch.index, event);
        }
        self.next += 1;
    }
}

/// A position in the log of a reader of the newest event of each object.
///
/// The reader takes batches from the log when it is ready. If the log drops a batch earlier, its events become
/// pending events of the reader. Therefore a reader of any pace keeps at most one event for each object and misses no
/// object.
pub struct CoalescedReader {
    log: Arc<EventLog>,
    number: u64,
    takes: Takes,
    end: watch::Receiver<u64>,
}

impl fmt::Debug for CoalescedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoalescedReader").field("number", &self.number).finish_non_exhaustive()
    }
}

impl CoalescedReader {
    /// Waits until a command caused events after the newest call of [`CoalescedReader::take`]. Cancel safe.
    pub async fn changed(&mut self) {
        // The log, which this reader holds, owns the sender.
        let _ = self.end.changed().await;
    }

    /// Lets the next call of [`CoalescedReader::changed`] return immediately.
    pub fn again(&mut self) {
        self.end.mark_changed();
    }

    /// Returns the newest event of each object that changed since the previous call, in the order of the indexes.
    ///
    /// # Errors
    /// If a snapshot replaced the whole state. The reader cannot continue.
    pub fn take(&mut self) -> Result<Vec<EventBatch>, EventsMissed> {
        self.end.borrow_and_update();
        let (mut pending, batches) = {
            let mut ring = self.log.lock();
            let end = ring.end();
            let Some(next) = ring.coalesced.get(&self.number).map(|reader| reader.next) else {
                return Err(EventsMissed::Replaced);
            };
            let batches: Vec<_> = ring.from(next)?.cloned().collect();
            let Some(reader) = ring.coalesced.get_mut(&self.number) else {
                return Err(EventsMissed::Replaced);
            };
            reader.next = end;
            (std::mem::take(&mut reader.pending), batches)
        };
        // The writer does not wait for the merging.
        for batch in &batches {
            for event in batch.events.iter().filter(|event| (self.takes)(event)) {
                pending.add(batch.index, event);
            }
        }
        Ok(pending.take())
    }
}

impl Drop for CoalescedReader {
    fn drop(&mut self) {
        // The rows are freed without the lock.
        let removed = self.log.lock().coalesced.remove(&self.number);
        drop(removed);
    }
}
