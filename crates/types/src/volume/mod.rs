//! CSI volumes, their claims, and the JSON of both (`storage` sections 0, 5 and 10).

mod claim;
mod mode;
mod view;

pub use claim::{Claim, ClaimId, ClaimMode, ClaimPhase, LegacyClaimState, MountProof, Usage};
pub use mode::{AccessMode, AttachmentMode, Capability};
pub use view::{CsiVolume, CsiVolumeStub, VolumeExternalStub, VolumeRequestBody};

use crate::id::{Namespace, PluginId, VolumeId, VolumeKey};
use crate::job::MountOptions;
use crate::ser::{Secrets, nil};
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
    /// The plugin's DeleteVolume is intended or under way: no new claims.
    Deleting,
}

/// Capacity as three numbers, in bytes; 0 = unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    pub secrets: Secrets,
    /// Where it can be reached.
    pub topologies: Vec<Topology>,
    /// Where it should be reachable.
    pub requested_topologies: Option<TopologyRequest>,
    /// Ways in which it may be used.
    pub requested_capabilities: Vec<Capability>,
    /// How its file system is mounted.
    pub mount_options: Option<MountOptions>,
    /// Volume it was cloned from.
    pub clone_id: String,
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
    /// Index of its creation.
    pub create_index: u64,
    /// Index of its last change.
    pub modify_index: u64,
    /// When created.
    pub create_time: UnixNanos,
    /// When last changed.
    pub modify_time: UnixNanos,
}

impl Volume {
    /// Namespace and id.
    pub fn key(&self) -> VolumeKey {
        VolumeKey { namespace: self.namespace.clone(), id: self.id.clone() }
    }
    /// The id that the plugin knows.
    pub fn remote_id(&self) -> &str {
        if self.external_id.is_empty() { self.id.as_str() } else { &self.external_id }
    }
}
