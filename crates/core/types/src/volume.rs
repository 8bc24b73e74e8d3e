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

/// The topology from which a volume or node can be reached: key and value segments (CSI, `Topology`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Topology {
    /// The segments, such as `zone` with its value.
    #[serde(with = "nil")]
    pub segments: BTreeMap<String, String>,
}

/// The topologies from which a new volume must and should be reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TopologyRequest {
    /// The volume must be reachable from at least one of these.
    #[serde(with = "nil")]
    pub required: Vec<Topology>,
    /// Preferred topologies, the most preferred first.
    #[serde(with = "nil")]
    pub preferred: Vec<Topology>,
}

/// The phase in the life of a volume, apart from its claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumePhase {
    /// The volume is requested; the plugin's CreateVolume is intended or under way.
    Creating,
    /// Allocations may use the volume.
    #[default]
    Ready,
    /// Allocations may use the volume, and the plugin's ControllerExpandVolume is intended or under way.
    Expanding,
    /// The plugin's DeleteVolume is intended or under way: no new claims.
    Deleting,
}

/// The size of a volume as four numbers, in bytes; 0 = unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capacity {
    /// The smallest requested capacity.
    #[serde(rename = "wanted_min")]
    pub requested_min: i64,
    /// The largest requested capacity.
    #[serde(rename = "wanted_max")]
    pub requested_max: i64,
    /// The capacity that the controller plugin reported.
    pub accepted: i64,
    /// The size that the node measured.
    pub actual: i64,
}

/// A CSI volume as the servers store it. Facts of its plugin and its claims are in other rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Volume {
    /// The namespace of the volume.
    pub namespace: Namespace,
    /// The id, unique in the namespace.
    pub id: VolumeId,
    /// The name that the plugin received with CreateVolume.
    pub name: String,
    /// The plugin's id of the volume; empty while it is being created.
    pub external_id: String,
    /// The id of the plugin.
    pub plugin_id: PluginId,
    /// The plugin's name when the volume was written.
    pub provider: String,
    /// The plugin's version when the volume was written.
    pub provider_version: String,
    /// The requested, the accepted and the actual size.
    pub capacity: Capacity,
    /// The `volume_context` that the plugin returned and receives with each call.
    pub context: BTreeMap<String, String>,
    /// The parameters that the plugin received with CreateVolume.
    pub parameters: BTreeMap<String, String>,
    /// Secrets that only the plugin's calls use.
    pub secrets: SealedSecrets,
    /// The topologies from which the volume can be reached.
    pub topologies: Vec<Topology>,
    /// The topologies that the user requested; absent without a request.
    pub requested_topologies: Option<TopologyRequest>,
    /// The pairs of access mode and attachment mode in which the volume may be used.
    pub requested_capabilities: Vec<Capability>,
    /// The options with which the file system is mounted.
    pub mount_options: Option<MountOptions>,
    /// The volume from which this one was cloned, as the user named it.
    pub clone_id: String,
    /// The plugin's id of the volume from which this one is cloned; empty if `clone_id` is that id.
    pub clone_external_id: String,
    /// The snapshot from which the volume was created.
    pub snapshot_id: String,
    /// The phase of the volume.
    pub phase: VolumePhase,
    /// The number of failed attempts of the intent in progress.
    pub tries: u32,
    /// The error that the plugin returned last.
    pub last_error: String,
    /// The time at which the intent is retried.
    pub next_try: UnixNanos,
    /// The size in bytes to which nodes must expand their mounts (NodeExpandVolume); 0 = the plugin never
    /// required it. A claim owes this while it is mounted and its `expanded_to` is less.
    pub node_expand_to: i64,
    /// The plugin expands the volume only while it is unused: the intent waits until the last claim ends.
    pub expand_offline: bool,
    /// Secrets that are looked up in variables at each call: name of the secret to `path#key`.
    pub secrets_from: BTreeMap<String, String>,
    /// Other volumes may stand for the same storage if all of them set this and none is for writing.
    pub shared_storage: bool,
    /// The last changes of phase, oldest first, at most [`Volume::MAX_HISTORY`].
    pub history: Vec<VolumeTransition>,
    /// The Raft index at which the volume was created.
    pub create_index: u64,
    /// The Raft index of the last change.
    pub modify_index: u64,
    /// The time of the creation.
    pub create_time: UnixNanos,
    /// The time of the last change.
    pub modify_time: UnixNanos,
}

/// A change of phase or a failure of a volume, for `explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeTransition {
    /// The time of the change or failure.
    pub at: UnixNanos,
    /// The phase that the volume entered, or in which a step failed.
    pub phase: VolumePhase,
    /// The error that the plugin returned, or a remark; often empty.
    pub note: String,
}

impl VolumePhase {
    /// Returns the name of the phase for output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Expanding => "expanding",
            Self::Deleting => "deleting",
        }
    }
    /// Returns whether allocations may use the volume. They may while it is being expanded.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Ready | Self::Expanding)
    }
}

impl Volume {
    /// The number of transitions that are kept.
    pub const MAX_HISTORY: usize = 24;

    /// Adds an entry to the history, and drops the oldest entry beyond the limit.
    pub fn note(&mut self, at: UnixNanos, phase: VolumePhase, note: impl Into<String>) {
        self.history.push(VolumeTransition { at, phase, note: note.into() });
        let surplus = self.history.len().saturating_sub(Self::MAX_HISTORY);
        self.history.drain(..surplus);
    }

    /// Returns the namespace and the id.
    pub fn key(&self) -> VolumeKey {
        VolumeKey { namespace: self.namespace.clone(), id: self.id.clone() }
    }
    /// Returns the external id of the volume's storage, or `None` until the plugin has returned one.
    pub fn storage(&self) -> Option<&str> {
        match self.external_id.as_str() {
            "" if self.phase.is_usable() => Some(self.id.as_str()),
            "" => None,
            id => Some(id),
        }
    }
    /// Returns whether other volumes may stand for the same storage: this one permits it, is usable, and is
    /// read-only.
    pub fn shares_storage(&self) -> bool {
        self.shared_storage && self.phase.is_usable() && self.is_read_only()
    }
    /// Returns whether all access modes of the volume are read-only.
    pub fn is_read_only(&self) -> bool {
        !self.requested_capabilities.is_empty()
            && self.requested_capabilities.iter().all(|capability| !capability.access_mode.can_write())
    }
    /// Returns the id by which the plugin identifies the volume.
    pub fn remote_id(&self) -> &str {
        if self.external_id.is_empty() { self.id.as_str() } else { &self.external_id }
    }
}
