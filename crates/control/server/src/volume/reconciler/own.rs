//! The right to make calls about a volume: for one command or the reconciler at a time.

use crate::runtime;
use caravan_base::{KeyedGuard, KeyedLock};
use caravan_types::VolumeKey;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The locks of volumes; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    locks: KeyedLock<VolumeKey>,
    notices: Arc<Notices>,
}

#[derive(Debug, Default)]
struct Notices {
    /// Volumes that commands released and that the reconciler has not checked yet.
    released: Mutex<BTreeSet<VolumeKey>>,
    /// The wake-up of the reconciler, the only waiter. A notification is kept until the reconciler waits.
    left: Notify,
}

/// Exclusive access to a volume; released when dropped.
#[derive(Debug)]
pub(crate) struct Own {
    // Fields are dropped in this order: the reconciler is woken when the lock is free.
    _guard: KeyedGuard<VolumeKey>,
    _notice: Option<Notice>,
}

/// A guard that reports a volume to the reconciler when dropped. The command may have left a step open, and the
/// reconciler could not check the volume meanwhile.
#[derive(Debug)]
struct Notice {
    notices: Arc<Notices>,
    key: VolumeKey,
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.notices.released().insert(self.key.clone());
        self.notices.left.notify_one();
    }
}

impl Notices {
    fn released(&self) -> parking_lot::MutexGuard<'_, BTreeSet<VolumeKey>> {
        self.released.lock()
    }
}

impl Owners {
    /// Returns the right for the reconciler, unless a command has the right or waits for it. The end of the command
    /// wakes the reconciler.
    pub(super) fn for_reconciler(&self, key: &VolumeKey) -> Option<Own> {
        self.locks.try_lock(key).map(|guard| Own { _guard: guard, _notice: None })
    }

    /// Waits for the right for a command, but not longer than `timeout`.
    pub(crate) async fn for_command(&self, key: &VolumeKey, timeout: Duration) -> Option<Own> {
        // A wait that ends without the right may also have kept the reconciler out.
        let notice = Notice { notices: self.notices.clone(), key: key.clone() };
        let guard = runtime::timeout(timeout, self.locks.lock(key)).await.ok()?;
        Some(Own { _guard: guard, _notice: Some(notice) })
    }

    /// Waits until a command has released a volume.
    pub(super) async fn left(&self) {
        self.notices.left.notified().await;
    }

    /// Returns the volumes that commands have released since the last call.
    pub(super) fn released(&self) -> BTreeSet<VolumeKey> {
        std::mem::take(&mut self.notices.released())
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

    /// The command may have been the next owner of the lock when the reconciler requested the lock.
    #[tokio::test]
    async fn a_command_that_gives_up_wakes_the_reconciler() {
        let (owners, key) = (Owners::default(), VolumeKey::new("default", "v"));
        let own = owners.for_reconciler(&key).unwrap();
        assert!(owners.for_command(&key, Duration::from_millis(1)).await.is_none());
        owners.left().await;
        assert_eq!(owners.released(), BTreeSet::from([key.clone()]));
        drop(own);
        assert!(owners.for_reconciler(&key).is_some());
    }
}
