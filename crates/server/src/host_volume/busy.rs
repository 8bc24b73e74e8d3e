//! Exclusive access to a host volume: only one command, or the resumption of intents, works on it at a time.

use caravan_types::HostVolumeId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Volumes with an owner; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Mutex<BTreeSet<HostVolumeId>>,
    /// Wakes waiting commands.
    freed: Notify,
    /// For the service that resumes intents: the notification is kept until it checks.
    left: Notify,
}

/// Exclusive access to a volume; released when dropped.
#[derive(Debug)]
pub(super) struct Own {
    owners: Arc<Inner>,
    id: HostVolumeId,
}

impl Drop for Own {
    fn drop(&mut self) {
        lock(&self.owners).remove(&self.id);
        self.owners.freed.notify_waiters();
        self.owners.left.notify_one();
    }
}

/// Each lock holder makes one complete change, so a panic leaves the data consistent.
fn lock(inner: &Inner) -> MutexGuard<'_, BTreeSet<HostVolumeId>> {
    inner.taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Busy {
    /// Acquires the volume, unless it has an owner.
    pub(super) fn take(&self, id: &HostVolumeId) -> Option<Own> {
        lock(&self.0).insert(id.clone()).then(|| Own { owners: self.0.clone(), id: id.clone() })
    }

    /// Acquires the volume for a command; waits for at most the given time.
    pub(super) async fn for_command(&self, id: &HostVolumeId, patience: Duration) -> Option<Own> {
        let wait = async {
            loop {
                // The future counts from its creation, so no release is missed between check and wait.
                let freed = self.0.freed.notified();
                if let Some(own) = self.take(id) {
                    return own;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, wait).await.ok()
    }

    /// Waits until an owner has released a volume.
    pub(super) async fn left(&self) {
        self.0.left.notified().await;
    }
}
