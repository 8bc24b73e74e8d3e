//! Who is at work on a host volume: one at a time, a command or what takes intents up.

use caravan_types::HostVolumeId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Volumes that somebody is at work on; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Mutex<BTreeSet<HostVolumeId>>,
    /// Wakes commands that wait.
    freed: Notify,
    /// For the one that takes intents up: remembered until it looks.
    left: Notify,
}

/// The right to work on a volume; given back when dropped.
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

/// Each holder makes one whole change, so a panic leaves nothing half done.
fn lock(inner: &Inner) -> MutexGuard<'_, BTreeSet<HostVolumeId>> {
    inner.taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Busy {
    /// The right, unless somebody has it.
    pub(super) fn take(&self, id: &HostVolumeId) -> Option<Own> {
        lock(&self.0).insert(id.clone()).then(|| Own { owners: self.0.clone(), id: id.clone() })
    }

    /// The right for a command, which waits for it for as long as it has patience.
    pub(super) async fn for_command(&self, id: &HostVolumeId, patience: Duration) -> Option<Own> {
        let wait = async {
            loop {
                // Counts from its creation on, so that no release falls between look and wait.
                let freed = self.0.freed.notified();
                if let Some(own) = self.take(id) {
                    return own;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, wait).await.ok()
    }

    /// Ends once somebody has let go.
    pub(super) async fn left(&self) {
        self.0.left.notified().await;
    }
}
