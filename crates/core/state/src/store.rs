//! The store that publishes the newest root.

use crate::changes::ChangeSet;
use crate::events::{EventLimit, EventLog};
use crate::root::{Root, Snapshot};
use crate::snapshot::{self, SnapshotError};
use crate::watch::{Registry, WatchBuilder};
use crate::work::NodeWork;
use arc_swap::ArcSwap;
use caravan_types::command::{Command, Outcome};
use caravan_types::{NodeId, UnixNanos};
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// The number of change sets that a subscriber may lag behind before it must read the whole state again.
const FEED_CAPACITY: usize = 1024;

/// The holder of the newest root, with one writer and any number of readers that never wait.
pub struct Store {
    root: ArcSwap<Root>,
    writer: Mutex<()>,
    registry: Arc<Registry>,
    index: watch::Sender<u64>,
    feed: broadcast::Sender<Arc<ChangeSet>>,
    events: Arc<EventLog>,
    /// The number of replacements of the whole state since the start.
    restores: watch::Sender<u64>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("index", &self.root.load().index()).finish_non_exhaustive()
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new(Root::default())
    }
}

impl Store {
    /// Returns a store that begins with this root.
    pub fn new(root: Root) -> Self {
        Self::with_events(root, EventLimit::default())
    }

    /// Returns a store as [`Store::new`], with the limit of the kept events.
    pub fn with_events(root: Root, limit: EventLimit) -> Self {
        Self {
            events: EventLog::new(limit),
            index: watch::Sender::new(root.index()),
            root: ArcSwap::from_pointee(root),
            writer: Mutex::new(()),
            registry: Arc::default(),
            feed: broadcast::Sender::new(FEED_CAPACITY),
            restores: watch::Sender::new(0),
        }
    }

    /// Returns the newest root.
    pub fn snapshot(&self) -> Snapshot {
        self.root.load_full()
    }

    /// Returns the number of replacements of the whole state since the start. A waiting query ends when the number
    /// changes, because indexes of single rows may have decreased.
    pub fn restores(&self) -> u64 {
        *self.restores.borrow()
    }

    /// Waits until the whole state was replaced after [`Store::restores`] returned `before`. Cancel safe.
    pub async fn replaced(&self, before: u64) {
        let mut restores = self.restores.subscribe();
        // `self` owns the sender, so the wait can only end by success.
        let _ = restores.wait_for(|now| *now != before).await;
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writer.lock()
    }

    /// Applies the command of an index of the log, publishes the result, and wakes the waiters. The outcome has the
    /// index of the state.
    ///
    /// Only the log calls this function, in the order of the indexes.
    pub fn apply(&self, log_index: u64, command: &Command) -> Outcome {
        let _writer = self.lock();
        let before = self.root.load_full();
        let (root, outcome, changes, allocs) = before.apply_with_rows(before.index_of(log_index), command);
        let index = root.index();
        let after = Arc::new(root);
        self.root.store(after.clone());
        if changes.is_restore() {
            self.restores.send_modify(|count| *count += 1);
            self.events.reset();
            self.registry.wake_all();
        } else {
            self.registry.wake(&changes, &before, &after, &allocs);
            self.events.push(&changes, &before, &after, &allocs);
        }
        self.index.send_replace(index);
        // An error only means that there is no receiver.
        let _ = self.feed.send(Arc::new(changes));
        outcome
    }

    /// Replaces the whole state by an encoded snapshot and wakes all waiters. The index may decrease.
    pub fn restore(&self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.replace(snapshot::decode(bytes)?);
        Ok(())
    }

    /// Replaces the whole state and wakes all waiters.
    pub fn replace(&self, root: Root) {
        let _writer = self.lock();
        let index = root.index();
        self.root.store(Arc::new(root));
        self.restores.send_modify(|count| *count += 1);
        self.events.reset();
        self.registry.wake_all();
        self.index.send_replace(index);
        let set = ChangeSet { index, now: UnixNanos(0), kind: ChangeSet::RESTORE, changes: Vec::new() };
        let _ = self.feed.send(Arc::new(set));
    }

    /// Returns the newest events.
    pub fn events(&self) -> &Arc<EventLog> {
        &self.events
    }

    /// Returns a builder of a watch. The caller adds the topics, starts the watch, then reads.
    pub fn watch(&self) -> WatchBuilder {
        WatchBuilder::new(self.registry.clone())
    }

    /// Follows the allocations of a node from now on. The caller reads them after this call, so that no change is
    /// missed.
    pub fn follow_node(&self, node: NodeId) -> NodeWork {
        self.registry.follow(node)
    }

    /// Waits until the state contains the command of an index, and returns such a state. Cancel safe.
    pub async fn wait_for_index(&self, index: u64) -> Snapshot {
        let mut seen = self.index.subscribe();
        // `self` owns the sender, so the wait can only end by success.
        let _ = seen.wait_for(|now| *now >= index).await;
        self.snapshot()
    }

    /// Returns all changes from now on. A receiver that lags gets [`broadcast::error::RecvError::Lagged`], and a
    /// restore sends a set of kind [`ChangeSet::RESTORE`]. In both cases, the receiver reads the whole state again.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<ChangeSet>> {
        self.feed.subscribe()
    }

    /// Returns all changes as [`Store::subscribe`], with one signal for both reasons to read the whole state again.
    pub fn feed(&self) -> Feed {
        Feed(self.feed.subscribe())
    }

    #[cfg(test)]
    pub(crate) fn nobody_watches(&self) -> bool {
        self.registry.is_empty()
    }
}

/// An item of a [`Feed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedItem {
    /// A command was applied.
    Changes(Arc<ChangeSet>),
    /// Changes were missed or the whole state was replaced. The receiver reads the whole state again from a snapshot.
    Resync,
}

/// A subscription to all changes.
#[derive(Debug)]
pub struct Feed(broadcast::Receiver<Arc<ChangeSet>>);

impl Feed {
    /// Returns the next item, or `None` after the store is dropped. Cancel safe.
    pub async fn next(&mut self) -> Option<FeedItem> {
        match self.0.recv().await {
            Ok(set) if set.is_restore() => Some(FeedItem::Resync),
            Ok(set) => Some(FeedItem::Changes(set)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(FeedItem::Resync),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
