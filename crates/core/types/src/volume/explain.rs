//! The response to `volume explain`: the state of a volume and of its claims, with the reasons of waits.

use super::{
    AccessMode, AttachmentMode, Capacity, ClaimMode, ClaimPhase, ClaimTransition, ConfirmedOff, VolumePhase,
    VolumeTransition, VolumeUsage,
};
use crate::id::{AllocId, JobId, Namespace, NodeId, PluginId, VolumeId};
use crate::ser::nil;
use crate::time::{Nanos, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A call to a plugin without a response yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CallInFlight {
    /// The name of the CSI call.
    pub call: String,
    /// The node that makes the call; empty while no controller is selected.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The allocation of the call; empty for calls about the volume itself.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// The start of the call.
    pub since: UnixNanos,
    /// The duration of the call up to the response.
    pub running_for: Nanos,
}

/// The state of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeExplain {
    /// The id of the volume.
    #[serde(rename = "ID")]
    pub id: VolumeId,
    /// The namespace of the volume.
    pub namespace: Namespace,
    /// The id of the plugin.
    #[serde(rename = "PluginID")]
    pub plugin_id: PluginId,
    /// The plugin's id of the volume.
    #[serde(rename = "ExternalID")]
    pub external_id: String,
    /// The phase of the volume.
    pub phase: VolumePhase,
    /// The step in progress or the reason of the wait, one sentence.
    pub summary: String,
    /// The calls under way for the volume.
    #[serde(with = "nil")]
    pub calls: Vec<CallInFlight>,
    /// The number of failed attempts of the intent in progress.
    pub tries: u32,
    /// The plugin's message of the last failure.
    pub last_error: String,
    /// The time at which the intent is retried; 0 means that no retry is planned.
    pub next_try: UnixNanos,
    /// The requested, the accepted and the actual size.
    pub capacity: Capacity,
    /// The used share and the condition of the volume, by node.
    pub usage: BTreeMap<NodeId, VolumeUsage>,
    /// The claims on the volume; claims that hold it come first.
    #[serde(with = "nil")]
    pub claims: Vec<ClaimExplain>,
    /// The last events of the volume, oldest first.
    #[serde(with = "nil")]
    pub history: Vec<VolumeTransition>,
}

/// The state of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClaimExplain {
    /// The UUID of the allocation.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// The job of the allocation.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// The group of the allocation.
    pub task_group: String,
    /// The node of the allocation.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The plugin's id of the node.
    #[serde(rename = "ExternalNodeID")]
    pub external_node_id: String,
    /// Whether the allocation writes to the volume.
    pub mode: ClaimMode,
    /// The access mode that the group requests.
    pub access_mode: AccessMode,
    /// The attachment mode that the group requests.
    pub attachment_mode: AttachmentMode,
    /// The phase of the claim.
    pub phase: ClaimPhase,
    /// The time at which the claim entered its phase.
    pub since: UnixNanos,
    /// The reason of the wait, one sentence; empty if the claim does not wait.
    pub waits_for: String,
    /// The allocation whose claim must end first; empty if no claim prevents progress.
    pub holder: AllocId,
    /// The number of failed attempts of the step in progress.
    pub tries: u32,
    /// The plugin's message of the last failure.
    pub last_error: String,
    /// The expected time of the next attempt; 0 means that no attempt is planned.
    pub next_try: UnixNanos,
    /// The expected end of the fence, by the wall clock; 0 means that the claim is not fenced.
    pub fence_until: UnixNanos,
    /// The remaining wait of the servers for the node's lease, as they measure it; 0 means that they do not wait.
    pub fence_left: Nanos,
    /// The operator who confirmed that the node is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_off: Option<ConfirmedOff>,
    /// The last events of the claim, oldest first.
    #[serde(with = "nil")]
    pub history: Vec<ClaimTransition>,
}
