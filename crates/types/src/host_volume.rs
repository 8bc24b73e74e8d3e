//! Host volumes that users create on nodes, and the holds of groups on them (`storage` section 8).

use crate::alloc::AllocListStub;
use crate::id::{AllocId, HostVolumeId, JobId, Namespace, NodeId};
use crate::job::Constraint;
use crate::ser::{is_default, nil, null_default};
use crate::time::UnixNanos;
use crate::volume::Capability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a host volume stands. Derived from what its node reports, at the same moments for all servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostVolumeState {
    /// Made or registered; its node has not reported it yet.
    #[default]
    Pending,
    /// Its node reports it.
    Ready,
    /// Its node is down, or does not report it any more.
    Unavailable,
}

impl HostVolumeState {
    /// The word clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A directory of one node that groups can ask for by name. Stored as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of storage section 8.1")]
pub struct HostVolume {
    #[serde(deserialize_with = "null_default")]
    pub namespace: Namespace,
    #[serde(rename = "ID", deserialize_with = "null_default")]
    pub id: HostVolumeId,
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// Empty for registered ones.
    #[serde(rename = "PluginID", deserialize_with = "null_default")]
    pub plugin_id: String,
    #[serde(deserialize_with = "null_default")]
    pub node_pool: String,
    #[serde(rename = "NodeID", deserialize_with = "null_default")]
    pub node_id: NodeId,
    #[serde(with = "nil", skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_min_bytes: i64,
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_max_bytes: i64,
    #[serde(deserialize_with = "null_default")]
    pub capacity_bytes: i64,
    #[serde(with = "nil")]
    pub requested_capabilities: Vec<Capability>,
    #[serde(with = "nil", skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_default")]
    pub host_path: String,
    #[serde(deserialize_with = "null_default")]
    pub state: HostVolumeState,
    #[serde(deserialize_with = "null_default")]
    pub create_index: u64,
    #[serde(deserialize_with = "null_default")]
    pub create_time: UnixNanos,
    #[serde(deserialize_with = "null_default")]
    pub modify_index: u64,
    #[serde(deserialize_with = "null_default")]
    pub modify_time: UnixNanos,
    /// Filled when answering a read of one.
    #[serde(with = "nil", skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<AllocListStub>,
    /// The intent in progress; empty (and left out) when there is none.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub intent: HostVolumeIntent,
}

/// What the servers are about to have the node do with a host volume: written before the call, so that an
/// interrupted command is taken up again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostVolumeIntent {
    /// Nothing.
    #[default]
    None,
    /// The node is to make (or update) it.
    Create,
    /// The node is to delete it.
    Delete,
}

/// The host volume in lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of storage section 8.1")]
pub struct HostVolumeStub {
    pub namespace: Namespace,
    #[serde(rename = "ID")]
    pub id: HostVolumeId,
    pub name: String,
    #[serde(rename = "PluginID")]
    pub plugin_id: String,
    pub node_pool: String,
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    pub capacity_bytes: i64,
    pub state: HostVolumeState,
    pub create_index: u64,
    pub create_time: UnixNanos,
    pub modify_index: u64,
    pub modify_time: UnixNanos,
}

impl HostVolume {
    /// The element of a list.
    pub fn stub(&self) -> HostVolumeStub {
        HostVolumeStub {
            namespace: self.namespace.clone(),
            id: self.id.clone(),
            name: self.name.clone(),
            plugin_id: self.plugin_id.clone(),
            node_pool: self.node_pool.clone(),
            node_id: self.node_id.clone(),
            capacity_bytes: self.capacity_bytes,
            state: self.state,
            create_index: self.create_index,
            create_time: self.create_time,
            modify_index: self.modify_index,
            modify_time: self.modify_time,
        }
    }
}

/// A group's hold on a host volume: with `sticky`, its allocations come back to the volume that they had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of storage section 8.5")]
pub struct HostVolumeClaim {
    #[serde(rename = "ID")]
    pub id: String,
    pub namespace: Namespace,
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    pub task_group_name: String,
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// Id of the host volume.
    #[serde(rename = "VolumeID")]
    pub volume_id: HostVolumeId,
    pub volume_name: String,
    pub create_index: u64,
    pub modify_index: u64,
}
