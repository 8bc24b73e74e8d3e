//! The ledger: which claim is mounted how far on this node (design sections 4.2 and 4.3). Pure.
//!
//! An entry is written before the first step and struck after the servers took the proof of the last one, so
//! the users of a stage are derived from the entries and never counted.

use caravan_types::volume::{AttachmentMode, ClaimId, MountProof, Usage};
use caravan_types::{AllocId, JobId, PluginId};
pub(crate) use caravan_volumes::node::{Entry, MountPhase, Reach};
use caravan_volumes::paths::{PathError, VolumePaths, for_use};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A claim on this node. Holds everything that its end needs; secrets are never in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClaimEntry {
    /// Volume and allocation.
    pub(crate) claim: ClaimId,
    /// Generation of the claim.
    pub(crate) generation: u32,
    /// Alias in the group.
    pub(crate) alias: String,
    /// Plugin.
    pub(crate) plugin: PluginId,
    /// The plugin's id of the volume.
    pub(crate) external_id: String,
    /// How it is used.
    pub(crate) usage: Usage,
    /// Plugin root on the host when the claim began.
    pub(crate) host_root: PathBuf,
    /// Plugin root as the plugin saw it then.
    pub(crate) plugin_root: PathBuf,
    /// Whether the plugin stages.
    pub(crate) stages: bool,
    /// How far it got.
    pub(crate) phase: MountPhase,
    /// Index at which the servers attached it: what was attached earlier and does not hold any more is stale.
    pub(crate) granted_at: u64,
    /// The mount that was made.
    pub(crate) proof: Option<MountProof>,
    /// The term of the node's lease under which it was granted, if it ends with that.
    pub(crate) lease_term: Option<u64>,
    /// Owner and mode were set at the volume's root, if any were asked for: done once, not at each restart.
    pub(crate) owned: bool,
    /// It broke and is being mounted anew, until those who use it have the new mount.
    pub(crate) renewing: bool,
    /// The group that the plugin was told; empty if none.
    pub(crate) mount_group: String,
    /// Job of the allocation, for messages.
    pub(crate) job: JobId,
    /// How far NodeStageVolume got; none in entries of earlier releases.
    pub(crate) stage_reach: Option<Reach>,
    /// How far NodePublishVolume got; none in entries of earlier releases.
    pub(crate) publish_reach: Option<Reach>,
    /// The process of the plugin that mounted last ([`super::steps`]); empty if not known.
    pub(crate) made_by: String,
    /// The file system that was mounted, if it lies on a block device: device number and root of the mount.
    pub(crate) file_system: Option<(u32, u32, PathBuf)>,
}

/// What stages are shared by: plugin root, volume and use, all by value.
pub(crate) type StageKey = (PathBuf, ClaimVolume, Usage);
type ClaimVolume = caravan_types::VolumeKey;

impl ClaimEntry {
    /// The stage that it uses.
    pub(crate) fn stage(&self) -> StageKey {
        (self.host_root.clone(), self.claim.volume.clone(), self.usage)
    }
    /// What decisions are made of.
    pub(crate) fn node(&self) -> Entry {
        Entry::restored(self.phase, self.stages, self.stage_reach, self.publish_reach, self.renewing)
    }
    /// Takes over what a decision changed.
    pub(crate) fn set(&mut self, entry: Entry) {
        (self.phase, self.renewing) = (entry.phase, entry.renewing);
        (self.stage_reach, self.publish_reach) = (Some(entry.stage), Some(entry.publish));
    }
    /// The places on the host. Fails for ids that would lead out of the plugin root.
    pub(crate) fn on_host(&self) -> Result<VolumePaths, PathError> {
        for_use(&self.host_root, &self.claim.volume, &self.usage, &self.claim.alloc)
    }
    /// The same places as the plugin sees them.
    pub(crate) fn in_plugin(&self) -> Result<VolumePaths, PathError> {
        for_use(&self.plugin_root, &self.claim.volume, &self.usage, &self.claim.alloc)
    }
}

/// Whether what is published is a device.
pub(crate) fn is_device(usage: Usage) -> bool {
    usage.attachment_mode == AttachmentMode::BlockDevice
}

/// All claims on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    entries: BTreeMap<ClaimId, ClaimEntry>,
}

impl Ledger {
    /// The ledger with these entries.
    pub(crate) fn new(entries: impl IntoIterator<Item = ClaimEntry>) -> Self {
        Self { entries: entries.into_iter().map(|e| (e.claim.clone(), e)).collect() }
    }
    /// The entry of a claim.
    pub(crate) fn get(&self, claim: &ClaimId) -> Option<&ClaimEntry> {
        self.entries.get(claim)
    }
    /// Writes an entry.
    pub(crate) fn put(&mut self, entry: ClaimEntry) {
        self.entries.insert(entry.claim.clone(), entry);
    }
    /// Strikes an entry.
    pub(crate) fn remove(&mut self, claim: &ClaimId) {
        self.entries.remove(claim);
    }
    /// All entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &ClaimEntry> {
        self.entries.values()
    }
    /// The entries of other claims on the same stage.
    pub(crate) fn others_on_stage<'a>(
        &'a self,
        entry: &'a ClaimEntry,
    ) -> impl Iterator<Item = &'a ClaimEntry> {
        let stage = entry.stage();
        self.entries.values().filter(move |e| e.claim != entry.claim && e.stages && e.stage() == stage)
    }
    /// Whether another claim has the volume mounted here, or is about to.
    pub(crate) fn used_by_another(&self, entry: &ClaimEntry) -> bool {
        self.entries
            .values()
            .filter(|e| e.claim.volume == entry.claim.volume && e.claim != entry.claim)
            .any(|e| e.node().is_called())
    }
    /// Whether something on the volume is left of a claim that ended for the servers before this one was attached:
    /// `beside` are the allocations whose claims hold as well. It must be gone before the next mount.
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
