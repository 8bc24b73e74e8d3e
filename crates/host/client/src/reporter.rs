//! Status reports of allocations to the servers. The first report is sent immediately; later ones are batched while a
//! call is in flight. No report is lost while the servers cannot be reached.

use crate::clock::Backoff;
use crate::servers::Servers;
use crate::state::Identity;
use caravan_messages::AllocStatus;
use caravan_types::AllocId;
use caravan_types::alloc::AllocUpdate;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The newest unsent update of each allocation. Clones share the updates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporter {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    unsent: Mutex<BTreeMap<AllocId, AllocUpdate>>,
    ready: Notify,
}

impl Reporter {
    /// Queues an update; it replaces an older one of the same allocation.
    pub(crate) fn push(&self, update: AllocUpdate) {
        self.lock().insert(update.alloc_id.clone(), update);
        self.inner.ready.notify_one();
    }

    /// Drops the update of an allocation that the servers have deleted.
    pub(crate) fn remove(&self, alloc: &AllocId) {
        self.lock().remove(alloc);
    }

    /// Sends updates while the returned future is polled.
    pub(crate) async fn run(&self, servers: Arc<dyn Servers>, identity: Arc<Identity>) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
        loop {
            let batch = std::mem::take(&mut *self.lock());
            if batch.is_empty() {
                self.inner.ready.notified().await;
                continue;
            }
            let request = AllocStatus {
                node_id: identity.node_id.clone(),
                secret: identity.proof(),
                updates: batch.values().cloned().collect(),
            };
            match servers.alloc_status(request).await {
                Ok(_) => backoff.reset(),
                Err(error) => {
                    identity.refused(&error);
                    tracing::debug!(%error, updates = batch.len(), "status updates cannot be sent; retrying");
                    self.give_back(batch);
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        }
    }

    fn give_back(&self, batch: BTreeMap<AllocId, AllocUpdate>) {
        let mut unsent = self.lock();
        for (alloc, update) in batch {
            // An update that was queued meanwhile is newer.
            unsent.entry(alloc).or_insert(update);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AllocId, AllocUpdate>> {
        self.inner.unsent.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::ClientStatus;

    fn update(alloc: &str, client_status: ClientStatus) -> AllocUpdate {
        AllocUpdate { alloc_id: alloc.into(), client_status, ..Default::default() }
    }

    #[test]
    fn what_failed_to_go_never_overwrites_what_is_newer() {
        let reporter = Reporter::default();
        reporter.push(update("a", ClientStatus::Pending));
        let batch = std::mem::take(&mut *reporter.lock());
        reporter.push(update("a", ClientStatus::Running));
        reporter.give_back(batch);
        assert_eq!(reporter.lock()[&AllocId::new("a")].client_status, ClientStatus::Running);
    }
}
