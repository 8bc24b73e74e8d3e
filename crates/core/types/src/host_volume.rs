//! Host volumes that users create on nodes, and the claims of groups on them (docs/reference/storage.md, section 8).

use crate::alloc::AllocListStub;
use crate::id::{AllocId, HostVolumeId, JobId, Namespace, NodeId};
use crate::job::Constraint;
use crate::node::{Node, NodeStatus};
use crate::ser::{is_default, nil, null_default};
use crate::time::UnixNanos;
use crate::volume::Capability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a host volume. It is derived from the report of its node when a command is applied,
/// so all servers derive the same state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostVolumeState {
    /// The volume is created or registered; its node has not reported it yet.
    #[default]
    Pending,
    /// Its node reports the volume.
    Ready,
    /// Its node is not ready, or does not report the volume any more.
    Unavailable,
}

impl HostVolumeState {
    /// Returns the name of the state in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A directory of one node that groups can request by name. Stored in the form of the HTTP API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 8.1")]
pub struct HostVolume {
    #[serde(deserialize_with = "null_default")]
    pub namespace: Namespace,
    #[serde(rename = "ID", deserialize_with = "null_default")]
    pub id: HostVolumeId,
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// The plugin that created the volume; empty for a registered volume.
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
    /// The allocations that use the volume; present only in the response to a read of one volume.
    #[serde(with = "nil", skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<AllocListStub>,
    /// The intent in progress. Without one, the field is left out of the JSON.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub intent: HostVolumeIntent,
    /// The error that the plugin returned last, while an intent is in progress.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub last_error: String,
}

/// The step that the servers request from the node of a host volume. It is written before the call, so that an
/// interrupted step is retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostVolumeIntent {
    /// No step is in progress.
    #[default]
    None,
    /// The node is to create or update the volume.
    Create,
    /// The node is to delete the volume.
    Delete,
}

/// A host volume as an element of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 8.1")]
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
    /// The plugin that creates a volume whose specification names no plugin. Every client has it.
    pub const DEFAULT_PLUGIN: &'static str = "mkdir";

    /// Returns the name of the node attribute that reports a plugin.
    pub fn plugin_attribute(plugin: &str) -> String {
        format!("plugins.host_volume.{plugin}.version")
    }

    /// Returns whether new allocations may use the volume.
    pub fn is_usable(&self) -> bool {
        self.state == HostVolumeState::Ready && self.intent != HostVolumeIntent::Delete
    }

    /// Returns the state that follows from the row of its node; `None` means that the node does not exist.
    ///
    /// A volume that no node has reported yet stays pending, even if its node goes down.
    pub fn state_on(&self, node: Option<&Node>) -> HostVolumeState {
        let up = node.filter(|node| node.status == NodeStatus::Ready);
        let offered = up.and_then(|node| node.host_volumes.get(&self.name));
        match self.state {
            _ if offered.is_some_and(|info| info.id == self.id.as_str()) => HostVolumeState::Ready,
            HostVolumeState::Pending => HostVolumeState::Pending,
            HostVolumeState::Ready | HostVolumeState::Unavailable => HostVolumeState::Unavailable,
        }
    }

    /// Returns the volume as an element of a list.
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

/// A group's claim on a host volume. With `sticky`, replacements of an allocation use the same volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 8.5")]
pub struct HostVolumeClaim {
    #[serde(rename = "ID")]
    pub id: String,
    pub namespace: Namespace,
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    pub task_group_name: String,
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// The id of the claimed host volume.
    #[serde(rename = "VolumeID")]
    pub volume_id: HostVolumeId,
    pub volume_name: String,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A host volume as users specify it, in files and requests. Modes are text here; the servers validate them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeSpec {
    /// The namespace of the volume.
    #[serde(deserialize_with = "null_default")]
    pub namespace: String,
    /// The id of the volume to update; empty for a new volume.
    #[serde(rename = "ID", deserialize_with = "null_default")]
    pub id: String,
    /// The name by which jobs request the volume.
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// The plugin that creates the volume.
    #[serde(rename = "PluginID", deserialize_with = "null_default")]
    pub plugin_id: String,
    /// The node pool from which the servers choose a node.
    #[serde(deserialize_with = "null_default")]
    pub node_pool: String,
    /// The node of the volume; empty to let the servers choose.
    #[serde(rename = "NodeID", deserialize_with = "null_default")]
    pub node_id: String,
    /// The constraints that a node must satisfy to be chosen.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub constraints: Vec<Constraint>,
    /// The smallest acceptable capacity, in bytes.
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_min_bytes: i64,
    /// The largest acceptable capacity, in bytes.
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_max_bytes: i64,
    /// The capacity of a volume to register, in bytes.
    #[serde(deserialize_with = "null_default")]
    pub capacity_bytes: i64,
    /// The pairs of attachment mode and access mode that the volume must support.
    #[serde(deserialize_with = "null_default")]
    pub requested_capabilities: Vec<HostCapability>,
    /// Parameters that are passed to the plugin.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub parameters: BTreeMap<String, String>,
    /// The path on the node of a volume to register.
    #[serde(deserialize_with = "null_default")]
    pub host_path: String,
}

/// An attachment mode and an access mode of a host volume, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostCapability {
    /// `file-system` or `block-device`.
    #[serde(deserialize_with = "null_default")]
    pub attachment_mode: String,
    /// The access mode, such as `single-node-writer`.
    #[serde(deserialize_with = "null_default")]
    pub access_mode: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::HostVolumeInfo;

    #[test]
    fn the_state_follows_from_the_node() {
        let mut row = HostVolume { id: "v1".into(), name: "data".into(), ..HostVolume::default() };
        let info = HostVolumeInfo { name: "data".into(), id: "v1".into(), ..HostVolumeInfo::default() };
        let mut node = Node { status: NodeStatus::Ready, ..Node::default() };
        assert_eq!(row.state_on(Some(&node)), HostVolumeState::Pending);
        node.host_volumes.insert("data".into(), info);
        row.state = row.state_on(Some(&node));
        assert_eq!(row.state, HostVolumeState::Ready);
        // A configured volume of the same name is a different volume.
        let mut other = node.clone();
        other.host_volumes.insert("data".into(), HostVolumeInfo::default());
        assert_eq!(row.state_on(Some(&other)), HostVolumeState::Unavailable);
        // The last volume of a node vanishes, the node goes down, the node is removed (docs/design/rough-edges.md,
        // 43, 44).
        node.host_volumes.clear();
        assert_eq!(row.state_on(Some(&node)), HostVolumeState::Unavailable);
        node.status = NodeStatus::Down;
        assert_eq!(row.state_on(Some(&node)), HostVolumeState::Unavailable);
        assert_eq!(row.state_on(None), HostVolumeState::Unavailable);
    }

    #[test]
    fn specifications_of_clients_may_hold_nulls() {
        let spec: HostVolumeSpec = serde_json::from_str(
            r#"{"Name":"a","Constraints":null,"Parameters":null,"RequestedCapabilities":null}"#,
        )
        .unwrap();
        assert_eq!(spec.name, "a");
    }
}
