//! The reasons why claims wait. They are not replicated, because every check of a volume derives them.

#[cfg(test)]
use crate::volume::calls::LAG;
use caravan_types::volume::ClaimId;
use caravan_types::{AllocId, VolumeKey};
use caravan_volumes::wait::{Wait, WaitReason};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{Notify, broadcast};

type Reasons = BTreeMap<VolumeKey, BTreeMap<AllocId, Wait>>;

/// The reasons of all waiting claims; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    reasons: Arc<Mutex<Reasons>>,
    changed: Arc<Notify>,
    /// The channel that reports the volumes whose reasons change, or whose calls begin or end.
    volumes: broadcast::Sender<VolumeKey>,
}

#[cfg(test)]
impl Default for Waits {
    fn default() -> Self {
        Self::new(broadcast::Sender::new(LAG))
    }
}

/// The volumes whose reasons or calls change, from [`Waits::follow`].
#[derive(Debug)]
pub(crate) struct WaitChanges {
    waits: Waits,
    volumes: broadcast::Receiver<VolumeKey>,
}

impl WaitChanges {
    /// Waits for a change of reasons or calls and returns its volume; after a lag, all volumes with reasons. Cancel
    /// safe.
    pub(crate) async fn next(&mut self) -> Vec<VolumeKey> {
        match self.volumes.recv().await {
            Ok(volume) => vec![volume],
            Err(broadcast::error::RecvError::Lagged(_)) => self.waits.volumes(),
            // The sender lives in `self.waits`.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Waits {
    /// Creates an empty record; `volumes` is the channel that reports the volumes whose calls begin and end.
    pub(crate) fn new(volumes: broadcast::Sender<VolumeKey>) -> Self {
        Self { reasons: Arc::default(), changed: Arc::default(), volumes }
    }

    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.reasons.lock()
    }

    /// Returns the reason why the claim waits, if the claim waits.
    pub(crate) fn get(&self, id: &ClaimId) -> Option<Wait> {
        self.reasons().get(&id.volume)?.get(&id.alloc).cloned()
    }

    /// Counts the claims that wait, by [`WaitReason::code`]; every code is present.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts: BTreeMap<&'static str, usize> =
            WaitReason::CODES.iter().map(|code| (*code, 0)).collect();
        for wait in self.reasons().values().flat_map(BTreeMap::values) {
            *counts.entry(wait.reason.code()).or_default() += 1;
        }
        counts
    }

    /// Returns a future that completes when a reason changes after this call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        // The future counts from its creation, polled or not (tokio, Notify::notify_waiters).
        self.changed.clone().notified_owned()
    }

    /// Returns the volumes whose reasons or calls change after this call.
    pub(crate) fn follow(&self) -> WaitChanges {
        WaitChanges { waits: self.clone(), volumes: self.subscribe() }
    }

    /// Returns the volumes whose reasons or calls change after this call, with the error of a lag.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<VolumeKey> {
        self.volumes.subscribe()
    }

    /// Returns the reasons of a volume's claims.
    pub(crate) fn list(&self, volume: &VolumeKey) -> BTreeMap<AllocId, Wait> {
        self.reasons().get(volume).cloned().unwrap_or_default()
    }

    /// Reports that the reasons of a volume changed.
    fn report(&self, volume: &VolumeKey) {
        self.changed.notify_waiters();
        if self.volumes.receiver_count() > 0 {
            // The last receiver may have been dropped.
            let _ = self.volumes.send(volume.clone());
        }
    }

    /// Records the reason why the claim waits; `None` removes the reason.
    pub(crate) fn set(&self, id: &ClaimId, wait: Option<Wait>) {
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
        self.report(&id.volume);
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
            self.report(volume);
        }
    }

    /// Returns the volumes with reasons.
    pub(crate) fn volumes(&self) -> Vec<VolumeKey> {
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

    #[tokio::test]
    async fn the_volumes_of_changed_reasons_are_reported() {
        let waits = Waits::default();
        waits.set(&id("early", "a"), Some(WaitReason::VolumeGone.into()));
        let mut changes = waits.follow();
        waits.set(&id("v", "a"), Some(WaitReason::VolumeGone.into()));
        assert_eq!(changes.next().await, [id("v", "a").volume]);
        // The same reason again is no change; the removal of a reason is a change.
        waits.set(&id("v", "a"), Some(WaitReason::VolumeGone.into()));
        waits.set(&id("v", "a"), Some(WaitReason::VolumeCreating.into()));
        waits.keep(&id("v", "a").volume, &BTreeSet::new());
        assert_eq!(changes.next().await, [id("v", "a").volume]);
        assert_eq!(changes.next().await, [id("v", "a").volume]);
        for round in 0..=LAG {
            let reason = if round % 2 == 0 { WaitReason::VolumeGone } else { WaitReason::VolumeCreating };
            waits.set(&id("w", "b"), Some(reason.into()));
        }
        assert_eq!(changes.next().await, [id("early", "a").volume, id("w", "b").volume]);
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
