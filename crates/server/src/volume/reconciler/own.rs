//! Exclusive access to a volume: only one command, or the reconciler, makes calls about it at a time.

use caravan_types::VolumeKey;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Volumes with an owner; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Mutex<BTreeSet<VolumeKey>>,
    /// Volumes that commands released and that the reconciler has not yet processed.
    released: Mutex<BTreeSet<VolumeKey>>,
    /// For commands: an owner released a volume. Wakes all waiting commands.
    freed: Notify,
    /// For the single reconciler: a command released a volume. The notification is kept until the reconciler checks.
    left: Notify,
}

/// Exclusive access to a volume; released when dropped.
#[derive(Debug)]
pub(crate) struct Own {
    owners: Arc<Inner>,
    key: VolumeKey,
    by_command: bool,
}

impl Drop for Own {
    fn drop(&mut self) {
        lock(&self.owners.taken).remove(&self.key);
        if self.by_command {
            // The reconciler continues the command's unfinished work, and the work that it could not check meanwhile.
            lock(&self.owners.released).insert(self.key.clone());
            self.owners.left.notify_one();
        }
        self.owners.freed.notify_waiters();
    }
}

/// Each lock holder makes one complete change, so a panic leaves the data consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owners {
    fn take(&self, key: &VolumeKey, by_command: bool) -> Option<Own> {
        let fresh = lock(&self.0.taken).insert(key.clone());
        fresh.then(|| Own { owners: self.0.clone(), key: key.clone(), by_command })
    }

    /// Acquires the volume for the reconciler, unless a command owns it: then the reconciler is notified of its
    /// release.
    pub(super) fn for_reconciler(&self, key: &VolumeKey) -> Option<Own> {
        self.take(key, false)
    }

    /// Acquires the volume for a command; waits for at most the given time.
    pub(crate) async fn for_command(&self, key: &VolumeKey, patience: Duration) -> Option<Own> {
        let wait = async {
            loop {
                // The future counts from its creation, so no release is missed between check and wait.
                let freed = self.0.freed.notified();
                if let Some(own) = self.take(key, true) {
                    return own;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, wait).await.ok()
    }

    /// Waits until some command has released a volume.
    pub(super) async fn left(&self) {
        self.0.left.notified().await;
    }

    /// Returns the volumes that commands have released since the last call.
    pub(super) fn released(&self) -> BTreeSet<VolumeKey> {
        std::mem::take(&mut lock(&self.0.released))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_take_turns_and_the_reconciler_hears_of_each() {
        let (owners, key) = (Owners::default(), VolumeKey::new("default", "v"));
        let first = owners.for_command(&key, Duration::ZERO).await.unwrap();
        assert!(owners.for_reconciler(&key).is_none());
        assert!(owners.for_command(&key, Duration::from_millis(1)).await.is_none());
        let waiting = {
            let (owners, key) = (owners.clone(), key.clone());
            tokio::spawn(async move { owners.for_command(&key, Duration::from_secs(30)).await.is_some() })
        };
        drop(first);
        assert!(waiting.await.unwrap());
        owners.left().await;
        assert_eq!(owners.released(), BTreeSet::from([key.clone()]));
        let own = owners.for_reconciler(&key).unwrap();
        drop(own);
        assert!(owners.released().is_empty(), "its own turns do not wake it");
    }
}
