//! Streams of the changes of one node's allocations by the servers, one by one.
//!
//! With many allocations on a node and thousands of nodes, a change must not cause a scan of a node's allocations.

use crate::watch::Registry;
use caravan_types::alloc::Allocation;
use caravan_types::{AllocId, NodeId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// The changes since the last call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// The allocations that the servers wrote or removed, possibly with duplicates.
    Some(Vec<AllocId>),
    /// The whole state was replaced.
    All,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::Some(Vec::new())
    }
}

/// The pending changes of one follower.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    arrivals: Mutex<Arrivals>,
    notify: Notify,
}

impl Inbox {
    /// Locks the pending changes. A panic of a lock holder leaves only complete entries.
    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock()
    }

    fn put(&self, id: &AllocId) {
        if let Arrivals::Some(ids) = &mut *self.lock() {
            ids.push(id.clone());
        }
        self.notify.notify_one();
    }

    fn put_all(&self) {
        *self.lock() = Arrivals::All;
        self.notify.notify_one();
    }
}

/// The followers of each node.
#[derive(Debug, Default)]
pub(crate) struct Followers(HashMap<NodeId, Vec<Arc<Inbox>>>);

impl Followers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, node: &NodeId) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        self.0.entry(node.clone()).or_default().push(inbox.clone());
        inbox
    }

    pub(crate) fn remove(&mut self, node: &NodeId, inbox: &Arc<Inbox>) {
        if let Some(all) = self.0.get_mut(node) {
            all.retain(|other| !Arc::ptr_eq(other, inbox));
            if all.is_empty() {
                self.0.remove(node);
            }
        }
    }

    fn list(&self, node: &NodeId) -> impl Iterator<Item = &Arc<Inbox>> {
        self.0.get(node).into_iter().flatten()
    }

    /// Notifies followers of an allocation that the servers changed. Clients have their own changes already.
    pub(crate) fn tell(&self, id: &AllocId, old: Option<&Arc<Allocation>>, new: Option<&Arc<Allocation>>) {
        let row = match (old, new) {
            (Some(old), Some(new)) if old.alloc_modify_index == new.alloc_modify_index => None,
            (_, Some(row)) | (Some(row), None) => Some(row),
            (None, None) => None,
        };
        row.into_iter().flat_map(|row| self.list(&row.node_id)).for_each(|inbox| inbox.put(id));
    }

    pub(crate) fn tell_all(&self) {
        self.0.values().flatten().for_each(|inbox| inbox.put_all());
    }
}

/// A follower of the allocations of a node, until dropped.
#[derive(Debug)]
pub struct NodeWork {
    registry: Arc<Registry>,
    node: NodeId,
    inbox: Arc<Inbox>,
}

impl NodeWork {
    pub(crate) fn new(registry: Arc<Registry>, node: NodeId, inbox: Arc<Inbox>) -> Self {
        Self { registry, node, inbox }
    }

    /// Waits for a change since the beginning or since the last call. A snapshot that is taken afterwards contains
    /// it. Cancel safe.
    pub async fn next(&mut self) -> Arrivals {
        loop {
            let arrivals = std::mem::take(&mut *self.inbox.lock());
            if arrivals != Arrivals::default() {
                return arrivals;
            }
            self.inbox.notify.notified().await;
        }
    }
}

impl Drop for NodeWork {
    fn drop(&mut self) {
        self.registry.unfollow(&self.node, &self.inbox);
    }
}
