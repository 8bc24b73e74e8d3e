//! Who may make calls about a volume: one at a time, a command or the reconciler.

use caravan_types::VolumeKey;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Volumes that somebody is at work on; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Mutex<BTreeSet<VolumeKey>>,
    /// Let go of by commands, not yet seen by the reconciler.
    released: Mutex<BTreeSet<VolumeKey>>,
    /// For commands: somebody let go. Wakes all that wait.
    freed: Notify,
    /// For the reconciler, which is only one: a command let go. Remembered until it looks.
    left: Notify,
}

/// The right to make calls about a volume; given back when dropped.
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
            // What the command left open, and what could not be looked at meanwhile.
            lock(&self.owners.released).insert(self.key.clone());
            self.owners.left.notify_one();
        }
        self.owners.freed.notify_waiters();
    }
}

/// Each holder makes one whole change, so a panic leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owners {
    fn take(&self, key: &VolumeKey, by_command: bool) -> Option<Own> {
        let fresh = lock(&self.0.taken).insert(key.clone());
        fresh.then(|| Own { owners: self.0.clone(), key: key.clone(), by_command })
    }

    /// The right for the reconciler, unless a command has it: then it hears when that lets go.
    pub(super) fn for_reconciler(&self, key: &VolumeKey) -> Option<Own> {
        self.take(key, false)
    }

    /// The right for a command, which waits for it for as long as it has patience.
    pub(crate) async fn for_command(&self, key: &VolumeKey, patience: Duration) -> Option<Own> {
        let wait = async {
            loop {
                // Counts from its creation on, so that no release falls between look and wait.
                let freed = self.0.freed.notified();
                if let Some(own) = self.take(key, true) {
                    return own;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, wait).await.ok()
    }

    /// Ends once some command has let go.
    pub(super) async fn left(&self) {
        self.0.left.notified().await;
    }

    /// Volumes that commands have let go of since the last call.
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
