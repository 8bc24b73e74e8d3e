//! The right to work on a host volume: for one command or the resumption of intents at a time.

use crate::runtime;
use caravan_base::{KeyedGuard, KeyedLock};
use caravan_types::HostVolumeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The locks of host volumes; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    locks: KeyedLock<HostVolumeId>,
    /// The wake-up of the resumption of intents, the only waiter. A notification is kept until the resumption waits.
    left: Arc<Notify>,
}

/// Exclusive access to a volume; released when dropped.
#[derive(Debug)]
pub(super) struct Own {
    // Fields are dropped in this order: the resumption of intents is woken when the lock is free.
    _guard: KeyedGuard<HostVolumeId>,
    _notice: Notice,
}

#[derive(Debug)]
struct Notice(Arc<Notify>);

impl Drop for Notice {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Busy {
    /// Returns the right unless a command has the right or waits for it, or an intent is being resumed.
    pub(super) fn take(&self, id: &HostVolumeId) -> Option<Own> {
        let guard = self.locks.try_lock(id)?;
        Some(Own { _guard: guard, _notice: Notice(self.left.clone()) })
    }

    /// Waits for the right for a command, but not longer than `timeout`.
    pub(super) async fn for_command(&self, id: &HostVolumeId, timeout: Duration) -> Option<Own> {
        // A wait that ends without the right may also have kept others out.
        let notice = Notice(self.left.clone());
        let guard = runtime::timeout(timeout, self.locks.lock(id)).await.ok()?;
        Some(Own { _guard: guard, _notice: notice })
    }

    /// Waits until a right has been released.
    pub(super) async fn left(&self) {
        self.left.notified().await;
    }
}
