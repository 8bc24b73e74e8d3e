//! Why claims wait. Not replicated: the reasons are derived at every look.

use caravan_types::volume::ClaimId;
use caravan_types::{AllocId, VolumeKey};
use caravan_volumes::wait::{Wait, WaitReason};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

type Reasons = BTreeMap<VolumeKey, BTreeMap<AllocId, Wait>>;

/// The reasons of all waiting claims; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    reasons: Arc<Mutex<Reasons>>,
    changed: Arc<Notify>,
}

impl Waits {
    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.reasons.lock()
    }

    /// Returns why the claim waits, if it does.
    pub(crate) fn get(&self, id: &ClaimId) -> Option<Wait> {
        self.reasons().get(&id.volume)?.get(&id.alloc).cloned()
    }

    /// Counts the claims that wait, by [`WaitReason::code`]; every code is there.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<&'static str, usize> =
            WaitReason::CODES.iter().map(|code| (*code, 0)).collect();
        for wait in self.reasons().values().flat_map(BTreeMap::values) {
            *counts.entry(wait.reason.code()).or_default() += 1;
        }
        counts
    }

    /// Ends when some reason changed after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        // The future counts from its creation, polled or not (tokio, Notify::notify_waiters).
        self.changed.clone().notified_owned()
    }

    /// Records what the claim waits for; none when it does not wait any more.
    pub(super) fn set(&self, id: &ClaimId, wait: Option<Wait>) {
        {
            let mut reasons = self.reasons();
            let of_volume = reasons.get(&id.volume);
            if of_volume.and_then(|r| r.get(&id.alloc)) == wait.as_ref() {
                return;
            }
            match wait {
                Some(wait) => {
                    tracing::debug!(volume = %id.volume, alloc = %id.alloc, reason = %wait, "claim waits");
                    let of_volume = reasons.entry(id.volume.clone()).or_default();
                    of_volume.insert(id.alloc.clone(), wait);
                }
                None => {
                    if let Some(of_volume) = reasons.get_mut(&id.volume) {
                        of_volume.remove(&id.alloc);
                    }
                }
            }
        }
        self.changed.notify_waiters();
    }

    /// Removes the reasons of the volume's claims that are not in `held`.
    pub(super) fn keep(&self, volume: &VolumeKey, held: &BTreeSet<AllocId>) {
        let mut reasons = self.reasons();
        let Some(of_volume) = reasons.get_mut(volume) else { return };
        let before = of_volume.len();
        of_volume.retain(|alloc, _| held.contains(alloc));
        let fewer = of_volume.len() < before;
        if of_volume.is_empty() {
            reasons.remove(volume);
        }
        drop(reasons);
        if fewer {
            self.changed.notify_waiters();
        }
    }

    /// Returns the volumes with reasons.
    pub(super) fn volumes(&self) -> Vec<VolumeKey> {
        self.reasons().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(volume: &str, alloc: &str) -> ClaimId {
        ClaimId { volume: VolumeKey::new("default", volume), alloc: alloc.into() }
    }

    #[test]
    fn nothing_is_kept_of_claims_that_are_over() {
        let waits = Waits::default();
        let (this, that) = (Wait::from(WaitReason::VolumeCreating), Wait::from(WaitReason::VolumeGone));
        waits.set(&id("v", "a"), Some(this));
        waits.set(&id("v", "b"), Some(that.clone()));
        waits.keep(&id("v", "a").volume, &BTreeSet::from(["b".into()]));
        assert_eq!(waits.get(&id("v", "a")), None);
        assert_eq!(waits.get(&id("v", "b")), Some(that));
        waits.keep(&id("v", "a").volume, &BTreeSet::new());
        assert!(waits.volumes().is_empty());
    }

    #[test]
    fn waits_are_counted_by_reason() {
        let waits = Waits::default();
        assert!(waits.counts().values().all(|n| *n == 0));
        for (volume, alloc, reason) in [
            ("v", "a", WaitReason::VolumeCreating),
            ("v", "b", WaitReason::NodeSilent { node: "n1".into() }),
            ("w", "c", WaitReason::NodeSilent { node: "n2".into() }),
        ] {
            waits.set(&id(volume, alloc), Some(reason.into()));
        }
        let counts = waits.counts();
        assert_eq!((counts["volume_creating"], counts["node_silent"], counts["retry"]), (1, 2, 0));
        waits.set(&id("v", "b"), None);
        assert_eq!(waits.counts()["node_silent"], 1);
    }
}
