//! CSI plugins: the reports of nodes, and the row derived from them.

use crate::alloc::AllocListStub;
use crate::id::{AllocId, JobId, Namespace, NodeId, PluginId};
use crate::ser::is_default;
use crate::time::{Time, UnixNanos};
use crate::volume::Topology;
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plugin on one node (docs/reference/storage.md, section 3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 3.3")]
pub struct CsiInfo {
    #[serde(rename = "PluginID")]
    pub plugin_id: PluginId,
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    pub healthy: bool,
    pub health_description: String,
    pub update_time: Time,
    pub provider: String,
    pub provider_version: String,
    pub requires_controller_plugin: bool,
    pub requires_topologies: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_info: Option<CsiControllerInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_info: Option<CsiNodeInfo>,
}

impl CsiInfo {
    /// Returns whether both reports are the same except for their time.
    pub fn same(&self, other: &Self) -> bool {
        Self { update_time: Time(0), ..self.clone() } == Self { update_time: Time(0), ..other.clone() }
    }
}

/// The node service of a plugin on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 3.3")]
pub struct CsiNodeInfo {
    /// The plugin's own id of the node.
    #[serde(rename = "ID")]
    pub id: String,
    /// The limit of volumes on the node; `i64::MAX` without a limit.
    pub max_volumes: i64,
    pub accessible_topology: Option<Topology>,
    pub requires_node_stage_volume: bool,
    pub supports_stats: bool,
    pub supports_expand: bool,
    pub supports_condition: bool,
    /// Whether the plugin sets the group of a volume's files itself (CSI, `VOLUME_MOUNT_GROUP`).
    #[serde(skip_serializing_if = "is_default")]
    #[serde(rename = "CaravanSupportsMountGroup", alias = "SupportsMountGroup")]
    pub supports_mount_group: bool,
}

/// The controller service of a plugin on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 3.3")]
pub struct CsiControllerInfo {
    pub supports_create_delete: bool,
    pub supports_attach_detach: bool,
    pub supports_list_volumes: bool,
    pub supports_get_capacity: bool,
    pub supports_create_delete_snapshot: bool,
    pub supports_list_snapshots: bool,
    pub supports_clone: bool,
    pub supports_read_only_attach: bool,
    pub supports_expand: bool,
    pub supports_list_volumes_attached_nodes: bool,
    pub supports_condition: bool,
    pub supports_get: bool,
}

/// The reports of nodes about a plugin. Copies share the entries, so the cost of a change does not grow with the
/// number of nodes.
pub type Reports = OrdMap<NodeId, Arc<CsiInfo>>;

/// A plugin, derived from node reports and registered jobs; no command writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/storage.md, section 5.2")]
pub struct Plugin {
    #[serde(rename = "ID")]
    pub id: PluginId,
    pub provider: String,
    pub version: String,
    pub controller_required: bool,
    pub controllers: Reports,
    pub nodes: Reports,
    /// The allocations of the plugin, present only in responses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<AllocListStub>,
    pub controller_jobs: BTreeMap<Namespace, BTreeMap<JobId, PluginJob>>,
    pub node_jobs: BTreeMap<Namespace, BTreeMap<JobId, PluginJob>>,
    /// The mounts that ended tasks of the plugin left on nodes.
    #[serde(rename = "CaravanLeftMounts", skip_serializing_if = "BTreeMap::is_empty")]
    pub left_mounts: BTreeMap<NodeId, Vec<LeftMount>>,
    pub controllers_healthy: u32,
    pub controllers_expected: u32,
    pub nodes_healthy: u32,
    pub nodes_expected: u32,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
}

/// A mount of a plugin below its directories that stays on the node after the plugin's end. Something uses the mount,
/// or its content would be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LeftMount {
    /// The id of the plugin.
    #[serde(rename = "PluginID")]
    pub plugin_id: PluginId,
    /// The allocation whose socket directory contains the mount; empty below the root that all allocations share.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// The path on the node.
    pub path: String,
    /// The type of the file system.
    pub fs_type: String,
    /// The source of the mount, such as a device.
    pub source: String,
    /// The reason that the mount stays.
    pub reason: String,
}

/// A job that runs a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PluginJob {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The id of the job.
    #[serde(rename = "ID")]
    pub id: JobId,
    /// The number of allocations that should run the plugin.
    pub expected: u32,
}

/// A plugin in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "the fields are those of Plugin")]
pub struct PluginListStub {
    #[serde(rename = "ID")]
    pub id: PluginId,
    pub provider: String,
    pub controller_required: bool,
    pub controllers_healthy: u32,
    pub controllers_expected: u32,
    pub nodes_healthy: u32,
    pub nodes_expected: u32,
    pub create_index: u64,
    pub modify_index: u64,
}

impl Plugin {
    /// Returns the plugin as an element of a list.
    pub fn stub(&self) -> PluginListStub {
        PluginListStub {
            id: self.id.clone(),
            provider: self.provider.clone(),
            controller_required: self.controller_required,
            controllers_healthy: self.controllers_healthy,
            controllers_expected: self.controllers_expected,
            nodes_healthy: self.nodes_healthy,
            nodes_expected: self.nodes_expected,
            create_index: self.create_index,
            modify_index: self.modify_index,
        }
    }

    /// Returns whether no node reports the plugin, no job runs it, and no mount of it is left.
    pub fn is_empty(&self) -> bool {
        self.controllers.is_empty()
            && self.nodes.is_empty()
            && self.controllers_expected == 0
            && self.nodes_expected == 0
            && self.left_mounts.is_empty()
    }

    /// Returns whether the controllers attach and detach volumes, or `None` while no controller has reported.
    ///
    /// A plugin needs no attaching if its node service reports that it has no controller service.
    pub fn attaches(&self) -> Option<bool> {
        let reported =
            self.controllers.values().find_map(|c| c.healthy.then_some(c.controller_info).flatten());
        match reported {
            Some(info) => Some(info.supports_attach_detach),
            None if !self.controller_required && !self.nodes.is_empty() => Some(false),
            None => None,
        }
    }
}

/// The service of a plugin that a report is about: one of the two kinds of registration on a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PluginRole {
    /// The controller service, `csi-controller`.
    #[serde(rename = "csi-controller")]
    Controller,
    /// The node service, `csi-node`.
    #[serde(rename = "csi-node")]
    Node,
}

impl PluginRole {
    /// Returns the name of the kind in the registry.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "csi-controller",
            Self::Node => "csi-node",
        }
    }
}
