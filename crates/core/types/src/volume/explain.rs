//! What `volume explain` answers: where a volume and each of its claims stand, and why.

use super::{
    AccessMode, AttachmentMode, Capacity, ClaimMode, ClaimPhase, ClaimTransition, ConfirmedOff, VolumePhase,
    VolumeTransition, VolumeUsage,
};
use crate::id::{AllocId, JobId, Namespace, NodeId, PluginId, VolumeId};
use crate::ser::nil;
use crate::time::{Nanos, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A call to a plugin that has not been answered yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CallInFlight {
    /// Name of the CSI call.
    pub call: String,
    /// The node that makes it; empty while the controller is being chosen.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The allocation that it is made for; empty when it is about the volume itself.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// When it began.
    pub since: UnixNanos,
    /// For how long, when this was answered.
    pub running_for: Nanos,
}

/// Where a volume stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeExplain {
    /// Id.
    #[serde(rename = "ID")]
    pub id: VolumeId,
    /// Namespace.
    pub namespace: Namespace,
    /// Plugin.
    #[serde(rename = "PluginID")]
    pub plugin_id: PluginId,
    /// The plugin's id of the volume.
    #[serde(rename = "ExternalID")]
    pub external_id: String,
    /// Phase.
    pub phase: VolumePhase,
    /// One sentence: what is going on, or what is being waited for.
    pub summary: String,
    /// Calls that are under way for it.
    #[serde(with = "nil")]
    pub calls: Vec<CallInFlight>,
    /// Failed tries of the intent in progress.
    pub tries: u32,
    /// The plugin's words of the last failure.
    pub last_error: String,
    /// When the intent is tried again; 0 = nothing is planned.
    pub next_try: UnixNanos,
    /// Capacity.
    pub capacity: Capacity,
    /// Fill and condition, by node.
    pub usage: BTreeMap<NodeId, VolumeUsage>,
    /// The claims on the volume; claims that hold it come first.
    #[serde(with = "nil")]
    pub claims: Vec<ClaimExplain>,
    /// What happened to it last, oldest first.
    #[serde(with = "nil")]
    pub history: Vec<VolumeTransition>,
}

/// Where a claim stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClaimExplain {
    /// Allocation.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// Its job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// Its group.
    pub task_group: String,
    /// Node.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The plugin's id of the node.
    #[serde(rename = "ExternalNodeID")]
    pub external_node_id: String,
    /// Reads or writes.
    pub mode: ClaimMode,
    /// Access mode.
    pub access_mode: AccessMode,
    /// Attachment mode.
    pub attachment_mode: AttachmentMode,
    /// Phase.
    pub phase: ClaimPhase,
    /// Since when.
    pub since: UnixNanos,
    /// What it waits for, in one sentence; empty when it does not wait.
    pub waits_for: String,
    /// The allocation whose claim must end first; empty when none is in the way.
    pub holder: AllocId,
    /// Failed tries of the step in progress.
    pub tries: u32,
    /// The plugin's words of the last failure.
    pub last_error: String,
    /// When the step is expected to be tried again; 0 = nothing is planned.
    pub next_try: UnixNanos,
    /// When its fence is expected to end, by the wall clock; 0 = it is not fenced.
    pub fence_until: UnixNanos,
    /// How long the servers still wait for the lease of its node, as they measure it; 0 = they do not.
    pub fence_left: Nanos,
    /// The operator who confirmed that the node is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_off: Option<ConfirmedOff>,
    /// What happened to it last, oldest first.
    #[serde(with = "nil")]
    pub history: Vec<ClaimTransition>,
}
