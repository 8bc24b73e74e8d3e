//! Wait reasons of claims, for user requests. Not replicated: each check derives them again.

use caravan_types::volume::ClaimId;
use caravan_types::{AllocId, VolumeKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

type Reasons = BTreeMap<VolumeKey, BTreeMap<AllocId, String>>;

/// The reasons of all waiting claims; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    reasons: Arc<Mutex<Reasons>>,
    changed: Arc<Notify>,
}

impl Waits {
    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why the claim waits, if it does.
    pub(crate) fn reason(&self, id: &ClaimId) -> Option<String> {
        self.reasons().get(&id.volume)?.get(&id.alloc).cloned()
    }

    /// Waits until some reason has changed after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        // The future counts from its creation, polled or not (tokio, Notify::notify_waiters).
        self.changed.clone().notified_owned()
    }

    /// Sets the wait reason of a claim; `None` removes it.
    pub(super) fn set(&self, id: &ClaimId, reason: Option<&str>) {
        {
            let mut reasons = self.reasons();
            let of_volume = reasons.get(&id.volume);
            if of_volume.and_then(|r| r.get(&id.alloc)).map(String::as_str) == reason {
                return;
            }
            match reason {
                Some(text) => {
                    tracing::debug!(volume = %id.volume, alloc = %id.alloc, reason = text, "claim waits");
                    let of_volume = reasons.entry(id.volume.clone()).or_default();
                    of_volume.insert(id.alloc.clone(), text.to_owned());
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
        waits.set(&id("v", "a"), Some("this"));
        waits.set(&id("v", "b"), Some("that"));
        waits.keep(&id("v", "a").volume, &BTreeSet::from(["b".into()]));
        assert_eq!(waits.reason(&id("v", "a")), None);
        assert_eq!(waits.reason(&id("v", "b")).as_deref(), Some("that"));
        waits.keep(&id("v", "a").volume, &BTreeSet::new());
        assert!(waits.volumes().is_empty());
    }
}
