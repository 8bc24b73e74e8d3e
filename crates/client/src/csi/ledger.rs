//! The ledger: which claim is mounted how far on this node (design sections 4.2 and 4.3). Pure.
//!
//! An entry is written before the first step and struck after the servers took the proof of the last one, so
//! the users of a stage are derived from the entries and never counted.

use caravan_types::PluginId;
use caravan_types::volume::{AttachmentMode, ClaimId, MountProof, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// How far a claim got on this node. The order is the order of life; each of the first two is an intent whose
/// outcome is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum MountPhase {
    /// Staging is about to begin or under way.
    #[default]
    Staging,
    /// Staged (or no stage is needed); publishing is about to begin or under way.
    Publishing,
    /// Published, with proof.
    Mounted,
    /// Unpublishing is about to begin or under way.
    Unpublishing,
    /// Nothing is published for the allocation.
    Unpublished,
    /// Nothing is staged, or others use the stage; the servers have not taken the proof yet.
    Unstaged,
}

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
    /// The mount that was made.
    pub(crate) proof: Option<MountProof>,
}

/// What stages are shared by: plugin root, volume and use, all by value.
pub(crate) type StageKey = (PathBuf, ClaimVolume, Usage);
type ClaimVolume = caravan_types::VolumeKey;

impl ClaimEntry {
    /// The stage that it uses.
    pub(crate) fn stage(&self) -> StageKey {
        (self.host_root.clone(), self.claim.volume.clone(), self.usage)
    }
    /// Whether it keeps its stage from being ended.
    pub(crate) fn holds_stage(&self) -> bool {
        self.stages && self.phase < MountPhase::Unstaged
    }
    /// Whether the stage is known to have been made for it.
    pub(crate) fn is_staged(&self) -> bool {
        self.stages && matches!(self.phase, MountPhase::Publishing | MountPhase::Mounted)
    }
    /// Staging directory below a root (`storage` section 3.5).
    pub(crate) fn staging_path(&self, root: &Path) -> PathBuf {
        let volume = &self.claim.volume;
        root.join("staging")
            .join(volume.namespace.as_str())
            .join(volume.id.as_str())
            .join(usage_name(self.usage))
    }
    /// Publish target below a root.
    pub(crate) fn target_path(&self, root: &Path) -> PathBuf {
        root.join("per-alloc")
            .join(self.claim.alloc.as_str())
            .join(self.claim.volume.id.as_str())
            .join(usage_name(self.usage))
    }
    /// Refuses ids that would leave the plugin root.
    pub(crate) fn check_paths(&self) -> Result<(), String> {
        let volume = &self.claim.volume;
        for (what, id) in [
            ("volume id", volume.id.as_str()),
            ("namespace", volume.namespace.as_str()),
            ("allocation id", self.claim.alloc.as_str()),
        ] {
            let mut parts = Path::new(id).components();
            let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(one)), None) if one == id);
            if !plain || id.contains('\0') {
                return Err(format!("the {what} {id:?} cannot be part of a path"));
            }
        }
        Ok(())
    }
}

/// `rw-file-system-single-node-writer` and the like.
pub(crate) fn usage_name(usage: Usage) -> String {
    let mode = if usage.read_only { "ro" } else { "rw" };
    format!("{mode}-{}-{}", usage.attachment_mode, usage.access_mode)
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
    /// Other claims that keep the stage of this one.
    pub(crate) fn other_stage_users<'a>(
        &'a self,
        entry: &'a ClaimEntry,
    ) -> impl Iterator<Item = &'a ClaimEntry> {
        let stage = entry.stage();
        self.entries.values().filter(move |e| e.claim != entry.claim && e.holds_stage() && e.stage() == stage)
    }
    /// Whether ending this claim may end its stage.
    pub(crate) fn is_last_user(&self, entry: &ClaimEntry) -> bool {
        self.other_stage_users(entry).next().is_none()
    }
    /// Whether another claim proves that the stage is there.
    pub(crate) fn staged_by_another(&self, entry: &ClaimEntry) -> bool {
        self.other_stage_users(entry).any(ClaimEntry::is_staged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::VolumeKey;
    use caravan_types::volume::AccessMode;
    use proptest::prelude::*;

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
    fn paths_are_those_of_the_reference() {
        let e = entry("a1", MountPhase::Mounted);
        let root = Path::new("/local/csi");
        let usage = "rw-file-system-multi-node-multi-writer";
        assert_eq!(e.staging_path(root), Path::new("/local/csi/staging/default/data").join(usage));
        assert_eq!(e.target_path(root), Path::new("/local/csi/per-alloc/a1/data").join(usage));
    }

    #[test]
    fn ids_that_leave_the_root_are_refused() {
        for id in ["..", ".", "a/b", "", "/etc"] {
            let mut e = entry("a1", MountPhase::Staging);
            e.claim.volume.id = id.into();
            assert!(e.check_paths().is_err(), "{id:?}");
        }
        let mut e = entry("a1", MountPhase::Staging);
        e.claim.volume.id = "data[0]".into();
        e.check_paths().unwrap();
    }

    #[test]
    fn equal_uses_share_a_stage_and_other_uses_do_not() {
        let a = entry("a", MountPhase::Mounted);
        let mut b = entry("b", MountPhase::Mounted);
        let ledger = Ledger::new([a.clone(), b.clone()]);
        assert!(!ledger.is_last_user(&a) && ledger.staged_by_another(&a));
        b.usage.read_only = true;
        let ledger = Ledger::new([a.clone(), b]);
        assert!(ledger.is_last_user(&a) && !ledger.staged_by_another(&a));
    }

    const PHASES: [MountPhase; 6] = [
        MountPhase::Staging,
        MountPhase::Publishing,
        MountPhase::Mounted,
        MountPhase::Unpublishing,
        MountPhase::Unpublished,
        MountPhase::Unstaged,
    ];

    proptest! {
        /// However claims come and go, a stage is ended by exactly the last one that holds it.
        #[test]
        fn only_the_last_user_ends_the_stage(phases in prop::collection::vec(0usize..6, 1..6)) {
            let entries: Vec<_> =
                phases.iter().enumerate().map(|(n, p)| entry(&n.to_string(), PHASES[*p])).collect();
            let mut ledger = Ledger::new(entries);
            let mut left = ledger.entries().filter(|e| e.holds_stage()).count();
            for claim in ledger.entries().map(|e| e.claim.clone()).collect::<Vec<_>>() {
                let e = ledger.get(&claim).unwrap().clone();
                if !e.holds_stage() {
                    continue;
                }
                prop_assert_eq!(ledger.is_last_user(&e), left == 1);
                ledger.put(ClaimEntry { phase: MountPhase::Unstaged, ..e });
                left -= 1;
            }
        }
    }
}
