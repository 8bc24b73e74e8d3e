//! CSI volumes, their claims, and the JSON of both (docs/reference/storage.md, sections 0, 5 and 10).

mod claim;
mod explain;
mod mode;
mod snapshot;
mod usage;
mod view;

pub use claim::{
    AttachCalls, Claim, ClaimId, ClaimMode, ClaimPhase, ClaimTransition, ConfirmedOff, LegacyClaimState,
    MountProof, Usage,
};
pub use explain::{CallInFlight, ClaimExplain, VolumeExplain};
pub use mode::{AccessMode, AttachmentMode, Capability};
pub use snapshot::CsiSnapshot;
pub use usage::{VolumeCondition, VolumeUsage};
pub use view::{CsiVolume, CsiVolumeStub, VolumeExternalStub, VolumeRequestBody};

use crate::id::{Namespace, PluginId, VolumeId, VolumeKey};
use crate::job::MountOptions;
use crate::sealed::SealedSecrets;
use crate::ser::nil;
use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where something can be reached: key and value segments (CSI, `Topology`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Topology {
    /// Segments.
    #[serde(with = "nil")]
    pub segments: BTreeMap<String, String>,
}

/// Where a new volume must and should be reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TopologyRequest {
    /// One of these at least.
    #[serde(with = "nil")]
    pub required: Vec<Topology>,
    /// In this order of preference.
    #[serde(with = "nil")]
    pub preferred: Vec<Topology>,
}

/// Where a volume's own life stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumePhase {
    /// Asked for; the plugin's CreateVolume is intended or under way.
    Creating,
    /// Usable.
    #[default]
    Ready,
    /// Usable, and the plugin's ControllerExpandVolume is intended or under way.
    Expanding,
    /// The plugin's DeleteVolume is intended or under way: no new claims.
    Deleting,
}

/// Capacity as three numbers, in bytes; 0 = unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capacity {
    /// Least asked for.
    pub wanted_min: i64,
    /// Most asked for.
    pub wanted_max: i64,
    /// What the controller said it made.
    pub accepted: i64,
    /// What the node saw.
    pub actual: i64,
}

/// A CSI volume as the servers keep it. Plugin facts and claims are looked up, not stored here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// Namespace.
    pub namespace: Namespace,
    /// Id.
    pub id: VolumeId,
    /// Name given to the plugin on creation.
    pub name: String,
    /// The plugin's id of the volume; empty while it is being created.
    pub external_id: String,
    /// Plugin.
    pub plugin_id: PluginId,
    /// The plugin's name as it was when the volume was written.
    pub provider: String,
    /// Its version then.
    pub provider_version: String,
    /// Capacity.
    pub capacity: Capacity,
    /// What the plugin wants to hear with each call.
    pub context: BTreeMap<String, String>,
    /// What the plugin was told on creation.
    pub parameters: BTreeMap<String, String>,
    /// For the plugin's calls only.
    pub secrets: SealedSecrets,
    /// Where it can be reached.
    pub topologies: Vec<Topology>,
    /// Where it should be reachable.
    pub requested_topologies: Option<TopologyRequest>,
    /// Ways in which it may be used.
    pub requested_capabilities: Vec<Capability>,
    /// How its file system is mounted.
    pub mount_options: Option<MountOptions>,
    /// Volume it was cloned from, as the user named it.
    pub clone_id: String,
    /// The plugin's id of the volume it is cloned from; empty when `clone_id` is that already.
    pub clone_external_id: String,
    /// Snapshot it was made from.
    pub snapshot_id: String,
    /// Its own life.
    pub phase: VolumePhase,
    /// Failed tries of the intent in progress.
    pub tries: u32,
    /// The plugin's words of the last failure.
    pub last_error: String,
    /// When the intent is tried again.
    pub next_try: UnixNanos,
    /// Bytes to which nodes must grow what they mount of it (NodeExpandVolume); 0 = never asked for by
    /// the plugin. A claim owes this while it is mounted and its `expanded_to` is less.
    pub node_expand_to: i64,
    /// The plugin grows it only while nobody uses it: the intent waits for its last claim to end.
    pub expand_offline: bool,
    /// Secrets that are looked up in variables at each call: name of the secret to `path#key`.
    pub secrets_from: BTreeMap<String, String>,
    /// Other volumes may stand for the same storage, as long as all of them say so and none is for writing.
    pub shared_storage: bool,
    /// The last changes of phase, oldest first, at most [`Volume::MAX_HISTORY`].
    pub history: Vec<VolumeTransition>,
    /// Index of its creation.
    pub create_index: u64,
    /// Index of its last change.
    pub modify_index: u64,
    /// When created.
    pub create_time: UnixNanos,
    /// When last changed.
    pub modify_time: UnixNanos,
}

/// Something that happened to a volume, for `explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeTransition {
    /// When.
    pub at: UnixNanos,
    /// The phase that it came to, or in which it failed.
    pub phase: VolumePhase,
    /// The failure in the plugin's words, or what there is to say; often empty.
    pub note: String,
}

impl VolumePhase {
    /// The word shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Expanding => "expanding",
            Self::Deleting => "deleting",
        }
    }
    /// Whether allocations may use it: growing a volume does not keep anybody from it.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Ready | Self::Expanding)
    }
}

impl Volume {
    /// Most transitions kept.
    pub const MAX_HISTORY: usize = 24;

    /// Notes something, dropping the oldest beyond the limit.
    pub fn note(&mut self, at: UnixNanos, phase: VolumePhase, note: impl Into<String>) {
        self.history.push(VolumeTransition { at, phase, note: note.into() });
        let surplus = self.history.len().saturating_sub(Self::MAX_HISTORY);
        self.history.drain(..surplus);
    }

    /// Namespace and id.
    pub fn key(&self) -> VolumeKey {
        VolumeKey { namespace: self.namespace.clone(), id: self.id.clone() }
    }
    /// The plugin's id of the storage that the volume stands for; none while the plugin has not answered with one.
    pub fn storage(&self) -> Option<&str> {
        match self.external_id.as_str() {
            "" if self.phase.is_usable() => Some(self.id.as_str()),
            "" => None,
            id => Some(id),
        }
    }
    /// Whether its storage may be another volume's as well: it says so, is there, and is for reading only.
    pub fn shares_storage(&self) -> bool {
        self.shared_storage && self.phase.is_usable() && self.is_read_only()
    }
    /// Whether all modes that it was registered with only read.
    pub fn is_read_only(&self) -> bool {
        !self.requested_capabilities.is_empty()
            && self.requested_capabilities.iter().all(|capability| !capability.access_mode.can_write())
    }
    /// The id that the plugin knows.
    pub fn remote_id(&self) -> &str {
        if self.external_id.is_empty() { self.id.as_str() } else { &self.external_id }
    }
}
