//! The ledger: the mount progress of each claim on this node (docs/design/volumes.md). Pure.
//!
//! An entry is written before the first step, and removed after the servers have accepted the proof of the last one.
//! The users of a stage are therefore derived from the entries and never counted.

use caravan_types::volume::{AttachmentMode, ClaimId, MountProof, Usage};
use caravan_types::{AllocId, JobId, PluginId};
pub(crate) use caravan_volumes::node::{Entry, MountPhase, Reach};
use caravan_volumes::paths::{PathError, VolumePaths, for_use};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A claim on this node, with everything that unmounting needs; it never contains secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimEntry {
    /// Volume and allocation of the claim.
    pub(crate) claim: ClaimId,
    /// Generation of the claim, set by the servers.
    pub(crate) generation: u32,
    /// Alias of the volume in the group.
    pub(crate) alias: String,
    /// Id of the node plugin.
    pub(crate) plugin: PluginId,
    /// The plugin's id of the volume.
    pub(crate) external_id: String,
    /// Access mode, attachment mode and read-only flag of the use.
    pub(crate) usage: Usage,
    /// Plugin root on the host when the claim was granted.
    pub(crate) host_root: PathBuf,
    /// Plugin root as the plugin saw it at that time.
    pub(crate) plugin_root: PathBuf,
    /// Whether the plugin has the capability `STAGE_UNSTAGE_VOLUME`.
    pub(crate) stages: bool,
    /// The current phase of the mount.
    pub(crate) phase: MountPhase,
    /// The index at which the servers attached the volume. An entry with a lower index whose claim has ended is stale.
    pub(crate) granted_at: u64,
    /// The proof of the last mount; `None` before the first one.
    pub(crate) proof: Option<MountProof>,
    /// The term of the node's lease under which the claim was granted; `None` if its use does not end with the lease.
    pub(crate) lease_term: Option<u64>,
    /// Whether owner and mode were set at the volume's root, which happens once and not at each restart.
    pub(crate) owned: bool,
    /// Whether the mount broke and is being mounted again, until all tasks that use it have the new mount.
    pub(crate) renewing: bool,
    /// The volume mount group that was passed to the plugin; empty if none.
    pub(crate) mount_group: String,
    /// Job of the allocation, for messages.
    pub(crate) job: JobId,
    /// Progress of NodeStageVolume; `None` in entries of earlier releases.
    pub(crate) stage_reach: Option<Reach>,
    /// Whether the mount of a stage that succeeded has ended.
    pub(crate) stage_lost: bool,
    /// Progress of NodePublishVolume; `None` in entries of earlier releases.
    pub(crate) publish_reach: Option<Reach>,
    /// The plugin process that mounted last ([`super::steps`]); empty if unknown.
    pub(crate) made_by: String,
    /// The mounted file system, if it is on a block device: device number and root of the mount.
    pub(crate) file_system: Option<(u32, u32, PathBuf)>,
}

/// The key by which claims share a stage: plugin root, volume and use.
pub(crate) type StageKey = (PathBuf, ClaimVolume, Usage);
type ClaimVolume = caravan_types::VolumeKey;

impl ClaimEntry {
    /// Returns the key of the entry's stage.
    pub(crate) fn stage(&self) -> StageKey {
        (self.host_root.clone(), self.claim.volume.clone(), self.usage)
    }
    /// Returns the part of the entry that decisions depend on.
    pub(crate) fn node(&self) -> Entry {
        let (stage, publish) = (self.stage_reach, self.publish_reach);
        let entry = Entry::restored(self.phase, self.stages, stage, publish, self.renewing);
        Entry { stage_lost: self.stage_lost, ..entry }
    }
    /// Applies the changes of a decision.
    pub(crate) fn set(&mut self, entry: Entry) {
        (self.phase, self.renewing) = (entry.phase, entry.renewing);
        (self.stage_reach, self.publish_reach) = (Some(entry.stage), Some(entry.publish));
        self.stage_lost = entry.stage_lost;
    }
    /// Returns the paths on the host. Fails for ids that would lead out of the plugin root.
    pub(crate) fn on_host(&self) -> Result<VolumePaths, PathError> {
        for_use(&self.host_root, &self.claim.volume, &self.usage, &self.claim.alloc)
    }
    /// Returns the same paths as the plugin sees them.
    pub(crate) fn in_plugin(&self) -> Result<VolumePaths, PathError> {
        for_use(&self.plugin_root, &self.claim.volume, &self.usage, &self.claim.alloc)
    }
}

/// Returns whether the volume is published as a block device.
pub(crate) fn is_device(usage: Usage) -> bool {
    usage.attachment_mode == AttachmentMode::BlockDevice
}

/// All claims on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    entries: BTreeMap<ClaimId, ClaimEntry>,
}

impl Ledger {
    /// Creates a ledger with these entries.
    pub(crate) fn new(entries: impl IntoIterator<Item = ClaimEntry>) -> Self {
        Self { entries: entries.into_iter().map(|e| (e.claim.clone(), e)).collect() }
    }
    /// Returns the entry of a claim.
    pub(crate) fn get(&self, claim: &ClaimId) -> Option<&ClaimEntry> {
        self.entries.get(claim)
    }
    /// Adds or replaces an entry.
    pub(crate) fn put(&mut self, entry: ClaimEntry) {
        self.entries.insert(entry.claim.clone(), entry);
    }
    /// Removes an entry.
    pub(crate) fn remove(&mut self, claim: &ClaimId) {
        self.entries.remove(claim);
    }
    /// Returns all entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ClaimEntry> {
        self.entries.values()
    }
    /// Returns the entries of other claims on the same stage.
    pub(crate) fn others_on_stage<'a>(
        &'a self,
        entry: &'a ClaimEntry,
    ) -> impl Iterator<Item = &'a ClaimEntry> {
        let stage = entry.stage();
        self.entries.values().filter(move |e| e.claim != entry.claim && e.stages && e.stage() == stage)
    }
    /// Returns whether another claim has the volume mounted on this node, or is about to mount it.
    pub(crate) fn used_by_another(&self, entry: &ClaimEntry) -> bool {
        self.entries
            .values()
            .filter(|e| e.claim.volume == entry.claim.volume && e.claim != entry.claim)
            .any(|e| e.node().is_called())
    }
    /// Returns whether remains exist of a claim that ended on the servers before this claim was attached. `beside` are
    /// the allocations whose claims are active as well. The remains must be removed before the next mount.
    pub(crate) fn is_stale_beside(&self, claim: &ClaimId, attached_at: u64, beside: &[AllocId]) -> bool {
        self.entries
            .values()
            .filter(|e| e.claim.volume == claim.volume && e.claim != *claim)
            .filter(|e| e.phase > MountPhase::Granted && e.phase < MountPhase::Unstaged)
            .any(|e| e.granted_at < attached_at && !beside.contains(&e.claim.alloc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::VolumeKey;
    use caravan_types::volume::AccessMode;

    fn entry(alloc: &str, phase: MountPhase) -> ClaimEntry {
        ClaimEntry {
            claim: ClaimId { volume: VolumeKey::new("default", "data"), alloc: alloc.into() },
            usage: Usage {
                read_only: false,
                attachment_mode: AttachmentMode::FileSystem,
                access_mode: AccessMode::MultiNodeMultiWriter,
            },
            host_root: "/var/csi/node/p".into(),
            stages: true,
            phase,
            ..Default::default()
        }
    }

    #[test]
    fn equal_uses_share_a_stage_and_other_uses_do_not() {
        let a = entry("a", MountPhase::Mounted);
        let mut b = entry("b", MountPhase::Mounted);
        assert_eq!(Ledger::new([a.clone(), b.clone()]).others_on_stage(&a).count(), 1);
        b.usage.read_only = true;
        assert_eq!(Ledger::new([a.clone(), b]).others_on_stage(&a).count(), 0);
    }

    #[test]
    fn an_entry_of_an_earlier_release_is_read() {
        let mut old = serde_json::to_value(entry("a", MountPhase::Mounted)).unwrap();
        for field in ["job", "stage_reach", "publish_reach", "made_by", "file_system"] {
            old.as_object_mut().unwrap().remove(field).unwrap();
        }
        let read: ClaimEntry = serde_json::from_value(old).unwrap();
        assert_eq!((read.node().stage, read.node().publish), (Reach::Made, Reach::Made));
    }

    #[test]
    fn what_an_earlier_attachment_left_is_stale_and_what_holds_is_not() {
        let old = ClaimEntry { granted_at: 5, ..entry("a", MountPhase::Mounted) };
        let (new, later) = (entry("b", MountPhase::Granted).claim, 9);
        let ledger = Ledger::new([old.clone()]);
        assert!(ledger.is_stale_beside(&new, later, &[]));
        assert!(!ledger.is_stale_beside(&new, later, &["a".into()]), "its claim holds");
        assert!(!ledger.is_stale_beside(&new, 4, &[]), "it came after this one");
        assert!(!ledger.is_stale_beside(&old.claim, later, &[]), "it is itself");
        let ended = ClaimEntry { phase: MountPhase::Unstaged, ..old };
        assert!(!Ledger::new([ended]).is_stale_beside(&new, later, &[]));
    }
}
