//! Host volumes that users create on nodes, and the holds of groups on them (docs/reference/storage.md, section 8).

use crate::alloc::AllocListStub;
use crate::id::{AllocId, HostVolumeId, JobId, Namespace, NodeId};
use crate::job::Constraint;
use crate::node::{Node, NodeStatus};
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
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 8.1")]
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
    /// The plugin's words of the last failure, while an intent is in progress.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub last_error: String,
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
    /// The plugin that makes a volume whose file names none: the one that every client has.
    pub const DEFAULT_PLUGIN: &'static str = "mkdir";

    /// The attribute by which a node tells that it has a plugin.
    pub fn plugin_attribute(plugin: &str) -> String {
        format!("plugins.host_volume.{plugin}.version")
    }

    /// Whether allocations may begin to use it.
    pub fn is_usable(&self) -> bool {
        self.state == HostVolumeState::Ready && self.intent != HostVolumeIntent::Delete
    }

    /// What state follows from its node's row; `None` when there is no such node.
    ///
    /// Volumes that no node has reported yet stay pending, whatever becomes of the node.
    pub fn state_on(&self, node: Option<&Node>) -> HostVolumeState {
        let up = node.filter(|node| node.status == NodeStatus::Ready);
        let offered = up.and_then(|node| node.host_volumes.get(&self.name));
        match self.state {
            _ if offered.is_some_and(|info| info.id == self.id.as_str()) => HostVolumeState::Ready,
            HostVolumeState::Pending => HostVolumeState::Pending,
            HostVolumeState::Ready | HostVolumeState::Unavailable => HostVolumeState::Unavailable,
        }
    }

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
    /// Id of the host volume.
    #[serde(rename = "VolumeID")]
    pub volume_id: HostVolumeId,
    pub volume_name: String,
    pub create_index: u64,
    pub modify_index: u64,
}

/// A host volume as users describe it, in files and requests. The servers check the words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeSpec {
    /// Namespace.
    #[serde(deserialize_with = "null_default")]
    pub namespace: String,
    /// For updates.
    #[serde(rename = "ID", deserialize_with = "null_default")]
    pub id: String,
    /// What jobs call it.
    #[serde(deserialize_with = "null_default")]
    pub name: String,
    /// Plugin that makes it.
    #[serde(rename = "PluginID", deserialize_with = "null_default")]
    pub plugin_id: String,
    /// Node pool to choose a node from.
    #[serde(deserialize_with = "null_default")]
    pub node_pool: String,
    /// Node, when it is chosen.
    #[serde(rename = "NodeID", deserialize_with = "null_default")]
    pub node_id: String,
    /// Conditions on the node.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub constraints: Vec<Constraint>,
    /// Least capacity, bytes.
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_min_bytes: i64,
    /// Most capacity, bytes.
    #[serde(deserialize_with = "null_default")]
    pub requested_capacity_max_bytes: i64,
    /// Capacity, bytes; when registering.
    #[serde(deserialize_with = "null_default")]
    pub capacity_bytes: i64,
    /// How it may be used.
    #[serde(deserialize_with = "null_default")]
    pub requested_capabilities: Vec<HostCapability>,
    /// For the plugin.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_default")]
    pub parameters: BTreeMap<String, String>,
    /// Where it is; when registering.
    #[serde(deserialize_with = "null_default")]
    pub host_path: String,
}

/// A pair of modes of a host volume, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostCapability {
    /// `file-system` or `block-device`.
    #[serde(deserialize_with = "null_default")]
    pub attachment_mode: String,
    /// Who may use it.
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
        // A static volume of the same name is another one.
        let mut other = node.clone();
        other.host_volumes.insert("data".into(), HostVolumeInfo::default());
        assert_eq!(row.state_on(Some(&other)), HostVolumeState::Unavailable);
        // The last volume of a node vanishes, the node goes down, the node is removed (docs/design/rough-edges.md, 43, 44).
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
