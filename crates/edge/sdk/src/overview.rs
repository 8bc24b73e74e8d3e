//! Caravan's own routes below `/v1/caravan/`: the overview, the storage map, the usage of nodes, the facts of the web
//! page (docs/design/web-page.md).

use crate::client::Client;
use crate::cluster::Member;
use crate::error::Error;
use crate::jobs::WhatIf;
use crate::query::{QueryOptions, Response, path};
use caravan_types::host_volume::{HostVolumeState, HostVolumeStub};
use caravan_types::plugin::PluginListStub;
use caravan_types::volume::VolumeExplain;
use caravan_types::{HostVolumeId, Namespace, NodeId, PluginId, UnixNanos};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Caravan's own routes, from [`Client::caravan`].
#[derive(Clone, Copy, Debug)]
pub struct Caravan<'a>(pub(crate) &'a Client);

/// Counts by state, and the objects that need attention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Overview {
    /// Jobs that lists show, without children; stopped ones count as `stopped`. Counts are `None` if the caller may
    /// not read such objects in any namespace of the request.
    pub jobs: Option<BTreeMap<String, u64>>,
    /// Allocations, by client status.
    pub allocations: Option<BTreeMap<String, u64>>,
    /// Evaluations, by status.
    pub evaluations: Option<BTreeMap<String, u64>>,
    /// Nodes, with `draining` and `ineligible` besides their statuses.
    pub nodes: Option<BTreeMap<String, u64>>,
    /// Plugins: `healthy` and `unhealthy`.
    pub plugins: Option<BTreeMap<String, u64>>,
    /// Volumes, by phase.
    pub volumes: Option<BTreeMap<String, u64>>,
    /// Claims that have not ended, by phase.
    pub claims: Option<BTreeMap<String, u64>>,
    /// The objects that need attention: failures first, then the longest wait.
    pub attention: Vec<AttentionItem>,
    /// The number of objects that the list leaves out.
    pub omitted: u64,
    /// The rights that the caller lacks; their objects are missing.
    pub denied: Vec<String>,
}

/// An object that needs attention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AttentionItem {
    /// `Job`, `Deployment`, `Node`, `Plugin` or `Volume`.
    pub kind: String,
    /// The id of the object.
    #[serde(rename = "ID")]
    pub id: String,
    /// The name to show.
    pub name: String,
    /// The namespace; empty for objects without one.
    pub namespace: String,
    /// `failed`, `waiting` or `notice`.
    pub severity: String,
    /// The reason for the attention, in one sentence.
    pub reason: String,
    /// The time at which the trouble began; 0 if it is unknown.
    pub since: UnixNanos,
    /// The evaluation, deployment or allocation that shows more; empty without one.
    #[serde(rename = "DetailID")]
    pub detail_id: String,
}

/// Plugins, volumes, and the claims on them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StorageMap {
    /// The plugins.
    pub plugins: Vec<PluginListStub>,
    /// The volumes of this page, with their claims.
    pub volumes: Vec<VolumeExplain>,
    /// The volumes of all pages with the worst trouble, if the request selects them with `worst=<number>` and the
    /// page does not have all volumes.
    pub worst: Option<Worst>,
    /// The numbers of each plugin's volumes by need, and its calls in progress.
    pub facts: BTreeMap<PluginId, PluginFacts>,
    /// Host volumes that users created.
    pub host_volumes: Vec<HostVolumeStub>,
    /// The number of host volumes that the answer leaves out.
    pub omitted_host_volumes: u64,
    /// The groups that hold a host volume, by its id.
    pub holders: BTreeMap<String, Vec<HostVolumeHolder>>,
    /// The volumes of the nodes' configurations.
    pub static_volumes: Vec<StaticVolume>,
    /// The number of volumes of the nodes' configurations that the answer leaves out.
    pub omitted_static_volumes: u64,
    /// The jobs that wait for a claim on a volume of the answer.
    pub blocked: Vec<BlockedJob>,
    /// The names of the nodes that the answer names.
    pub nodes: BTreeMap<NodeId, String>,
    /// The number of volumes that the caller may list but not read.
    pub hidden: u64,
    /// The rights that the caller lacks; their objects are missing.
    pub denied: Vec<String>,
}

/// A page of the ranked list: the worst trouble first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Worst {
    /// The volumes, with their claims.
    pub volumes: Vec<VolumeExplain>,
    /// The place of each volume, which `worst_token` takes.
    pub places: Vec<String>,
    /// The number of volumes before this page.
    pub before: u64,
    /// The number of volumes on all pages.
    pub listed: u64,
    /// The place at which the next page begins; empty on the last page.
    pub next: String,
    /// The numbers of the volumes in the list.
    pub facts: BTreeMap<PluginId, PluginFacts>,
    /// The jobs that wait for a claim on one of the volumes.
    pub blocked: Vec<BlockedJob>,
}

/// The numbers of a plugin's volumes by need, and its calls in progress. The numbers include the volumes that the
/// request selects without its page; only the numbers of a ranked list obey the filter expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PluginFacts {
    /// Volumes with a failed step.
    pub failed: u64,
    /// Volumes with a claim that waits.
    pub waiting: u64,
    /// Volumes with a claim that waits for the end of a fence.
    pub fencing: u64,
    /// Volumes between two states.
    pub changing: u64,
    /// All other volumes.
    pub rest: u64,
    /// The number of the servers' calls in progress.
    pub calls: u64,
    /// The lanes with a call in progress or a call that waits.
    pub lanes: Vec<Lane>,
    /// The nodes with a part of the plugin that is not healthy.
    pub sick: Vec<NodeId>,
    /// The numbers of volumes by need below each node, for a ranked list; an empty id for volumes on no node.
    pub homes: BTreeMap<NodeId, Needs>,
    /// The number of nodes that `homes` leaves out.
    pub omitted_homes: u64,
}

/// The numbers of volumes by need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Needs {
    /// Volumes with a failed step.
    pub failed: u64,
    /// Volumes with a claim that waits.
    pub waiting: u64,
    /// Volumes with a claim that waits for the end of a fence.
    pub fencing: u64,
    /// Volumes between two states.
    pub changing: u64,
    /// All other volumes.
    pub rest: u64,
}

/// The use of a lane: calls of one kind from the servers to one plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Lane {
    /// `attach`, `detach`, `grow`, or `manage`, which creates and deletes.
    pub lane: String,
    /// The number of calls in progress.
    pub running: u64,
    /// The number of calls that wait for the end of a running one.
    pub waiting: u64,
    /// The most calls that run at the same time.
    pub limit: u64,
}

/// A group that holds a host volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeHolder {
    /// The id of the job.
    #[serde(rename = "JobID")]
    pub job_id: String,
    /// The name of the group within its job.
    pub task_group: String,
    /// The allocation of the group; empty while the group keeps its place without one.
    #[serde(rename = "AllocID")]
    pub alloc_id: String,
}

/// A host volume that users created, or a volume of a node's configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeRow {
    /// The namespace; empty for a volume of a node's configuration.
    pub namespace: Namespace,
    /// The id; empty for a volume of a node's configuration.
    #[serde(rename = "ID")]
    pub id: HostVolumeId,
    /// The name by which jobs request the volume.
    pub name: String,
    /// The plugin that created the volume; empty for a volume of a node's configuration.
    #[serde(rename = "PluginID")]
    pub plugin_id: String,
    /// The pool of the node.
    pub node_pool: String,
    /// The node that has the volume.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The name of the node; empty for a caller who may not read nodes.
    pub node_name: String,
    /// The capacity in bytes; 0 if it is unknown.
    pub capacity_bytes: i64,
    /// The state; always `ready` for a volume of a node's configuration.
    pub state: HostVolumeState,
    /// Whether the volume comes from its node's configuration.
    pub configured: bool,
    /// Whether groups may only read a volume of a node's configuration.
    pub read_only: bool,
    /// The groups that hold the volume; empty for a caller who may not read jobs.
    pub holders: Vec<HostVolumeHolder>,
    /// The index at which the volume was created.
    pub create_index: u64,
    /// The time at which the volume was created.
    pub create_time: UnixNanos,
    /// The index of the last change.
    pub modify_index: u64,
    /// The time of the last change.
    pub modify_time: UnixNanos,
}

/// A job whose evaluation waits until a claim on a volume is released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BlockedJob {
    /// The id of the CSI volume, within the namespace.
    #[serde(rename = "VolumeID")]
    pub volume_id: String,
    /// The namespace of the volume and of the job.
    pub namespace: String,
    /// The id of the waiting job.
    #[serde(rename = "JobID")]
    pub job_id: String,
    /// The evaluation that waits.
    #[serde(rename = "EvalID")]
    pub eval_id: String,
    /// The time at which the evaluation was created.
    pub since: UnixNanos,
}

/// A volume of a node's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StaticVolume {
    /// The name by which jobs request the volume.
    pub name: String,
    /// The node whose configuration has the volume.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// Whether jobs may only read.
    pub read_only: bool,
}

/// The usage of all nodes as columns; the same position in each of them is the same node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeColumns {
    /// The UUIDs of the nodes.
    #[serde(rename = "ID")]
    pub id: Vec<String>,
    /// The names of the nodes.
    pub name: Vec<String>,
    /// The datacenters of the nodes.
    pub datacenter: Vec<String>,
    /// The node pools of the nodes.
    pub node_pool: Vec<String>,
    /// The classes of the nodes.
    pub node_class: Vec<String>,
    /// The statuses of the nodes.
    pub status: Vec<String>,
    /// Whether each node drains.
    pub draining: Vec<bool>,
    /// Whether the scheduler may place allocations on each node.
    pub eligible: Vec<bool>,
    /// The versions of the agents.
    pub version: Vec<String>,
    /// The values of the key of metadata that the parameter `meta` names; empty for nodes without it.
    pub meta: Option<Vec<String>>,
    /// The keys of metadata of all nodes, at most 200.
    pub meta_keys: Vec<String>,
    /// MHz that allocations may have.
    #[serde(rename = "CPU")]
    pub cpu: Vec<i64>,
    /// MHz that allocations have.
    #[serde(rename = "CPUUsed")]
    pub cpu_used: Vec<i64>,
    /// MB that allocations may have.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: Vec<i64>,
    /// MB that allocations have.
    #[serde(rename = "MemoryMBUsed")]
    pub memory_mb_used: Vec<i64>,
    /// MB of disk that allocations may have.
    #[serde(rename = "DiskMB")]
    pub disk_mb: Vec<i64>,
    /// MB of disk that allocations have.
    #[serde(rename = "DiskMBUsed")]
    pub disk_mb_used: Vec<i64>,
    /// The number of allocations that have not ended.
    pub allocations: Vec<u32>,
    /// The number of allocations by client status, also of ended ones that are kept.
    pub states: Vec<BTreeMap<String, u32>>,
    /// The number of all nodes, also of those without a row in an answer about changes.
    pub total: u64,
}

/// The servers in the member table of a server, and the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServerList {
    /// The RPC address of the leader; empty without a leader.
    pub leader: String,
    /// The servers of all regions.
    pub members: Vec<Member>,
}

/// The state of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PluginExplain {
    /// The id of the plugin.
    #[serde(rename = "ID")]
    pub id: String,
    /// The health of the plugin, in one sentence.
    pub summary: String,
    /// The reasons why parts of the plugin are not healthy, and the mounts that the plugin left on nodes.
    pub reasons: Vec<String>,
    /// Volumes by phase.
    pub volumes: BTreeMap<String, u64>,
    /// The servers' calls in progress, oldest first.
    pub calls: Vec<PluginCall>,
    /// The number of calls that the list omits.
    pub omitted: u64,
    /// The use of each lane of calls.
    pub lanes: Vec<Lane>,
}

/// A call of the servers to a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PluginCall {
    /// The name of the CSI call.
    pub call: String,
    /// The node through which the servers call the plugin; empty while the node is being chosen.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    /// The volume; empty for a call about no volume, and for a volume that the caller may not read.
    #[serde(rename = "VolumeID")]
    pub volume_id: String,
    /// The namespace of the volume.
    pub namespace: String,
    /// The time at which the call began.
    pub since: UnixNanos,
}

/// The state of a host volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeExplain {
    /// The id of the volume.
    #[serde(rename = "ID")]
    pub id: String,
    /// The name by which jobs request the volume.
    pub name: String,
    /// The namespace of the volume.
    pub namespace: String,
    /// The node of the volume.
    #[serde(rename = "NodeID")]
    pub node_id: String,
    /// The name of the node.
    pub node_name: String,
    /// `pending`, `ready` or `unavailable`.
    pub state: String,
    /// The state of the volume, in one sentence.
    pub summary: String,
    /// The allocations that use the volume; empty for a caller who may not read jobs.
    pub users: Vec<HostVolumeUser>,
}

/// An allocation that uses a host volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeUser {
    /// The id of the allocation.
    #[serde(rename = "AllocID")]
    pub alloc_id: String,
    /// The id of the job.
    #[serde(rename = "JobID")]
    pub job_id: String,
    /// The group of the allocation.
    pub task_group: String,
    /// The status of the allocation.
    pub client_status: String,
}

impl Client {
    /// Returns Caravan's own routes.
    pub fn caravan(&self) -> Caravan<'_> {
        Caravan(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Caravan<'_> {
    /// Returns the overview of a namespace, or of all namespaces (`*`).
    pub async fn overview(&self, query: &QueryOptions) -> Result<Response<Overview>, Error> {
        self.0.get("/v1/caravan/overview", query).await
    }

    /// Returns the storage map, in pages of volumes. The parameter `trouble=true` selects volumes that wait, failed
    /// or are in transition. The parameter `rank=failed,waiting,fencing,changing` selects volumes by need, and
    /// `worst=<number>` adds the volumes of all pages with the worst trouble.
    pub async fn storage(&self, query: &QueryOptions) -> Result<Response<StorageMap>, Error> {
        self.0.get("/v1/caravan/storage", query).await
    }

    /// Returns the host volumes of users and of the nodes' configurations, in pages. Parameters besides those of
    /// lists: `node` (the beginning of an id, or a part of a name), `plugin_id`, and `trouble=true` for volumes that
    /// are not ready.
    pub async fn host_volumes(&self, query: &QueryOptions) -> Result<Response<Vec<HostVolumeRow>>, Error> {
        self.0.get("/v1/caravan/host-volumes", query).await
    }

    /// Returns the usage of all nodes. The parameter `meta=<key>` adds the values of a key of the nodes' metadata.
    pub async fn node_usage(&self, query: &QueryOptions) -> Result<Response<NodeColumns>, Error> {
        self.0.get("/v1/caravan/nodes/usage", query).await
    }

    /// Returns the servers in the member table of a server, and the leader. With `follow=true`, the route streams
    /// each change as a line.
    pub async fn servers(&self, query: &QueryOptions) -> Result<Response<ServerList>, Error> {
        self.0.get("/v1/caravan/servers", query).await
    }

    /// Returns the consequences if these events happened: `<id, its beginning, or name of a node>:drain`, or `down`,
    /// `ineligible`, `up`.
    pub async fn what_if(&self, events: &[&str], query: &QueryOptions) -> Result<Response<WhatIf>, Error> {
        let query = events.iter().fold(query.clone(), |query, event| query.param("node", *event));
        self.0.get("/v1/caravan/what-if", &query).await
    }

    /// Explains a plugin.
    pub async fn explain_plugin(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<PluginExplain>, Error> {
        self.0.get(&path("/v1/plugin/csi/{}/explain", &[id]), query).await
    }

    /// Explains a host volume.
    pub async fn explain_host_volume(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<HostVolumeExplain>, Error> {
        self.0.get(&path("/v1/volume/host/{}/explain", &[id]), query).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_are_read() {
        let text = r#"{"Jobs": {"running": 2}, "Attention": [{"Kind": "Job", "ID": "web", "Name": "web",
            "Namespace": "team", "Severity": "waiting", "Reason": "no node", "Since": 5, "DetailID": "e"}],
            "Omitted": 1, "Denied": ["node:read"]}"#;
        let overview: Overview = serde_json::from_str(text).unwrap();
        let jobs = overview.jobs.unwrap();
        assert_eq!((jobs["running"], overview.nodes, overview.omitted), (2, None, 1));
        assert_eq!((overview.attention[0].id.as_str(), overview.attention[0].since), ("web", UnixNanos(5)));
        let text = r#"{"Volumes": [{"ID": "data", "Claims": null}], "Nodes": {"n": "one"}, "Hidden": 3}"#;
        let map: StorageMap = serde_json::from_str(text).unwrap();
        assert_eq!((map.volumes[0].id.as_str(), map.hidden, map.nodes.len()), ("data", 3, 1));
        let text = r#"{"Moves": [{"Name": "web.g[0]", "From": "a", "To": ""}], "Placed": [["x", "b"]], "Skipped": 2}"#;
        let found: WhatIf = serde_json::from_str(text).unwrap();
        assert_eq!((found.moves[0].to.as_str(), found.placed[0].1.as_str(), found.skipped), ("", "b", 2));
        let text = r#"{"ID": "p", "Calls": [{"Call": "CreateVolume", "Since": 7}], "Volumes": {"ready": 3}}"#;
        let plugin: PluginExplain = serde_json::from_str(text).unwrap();
        assert_eq!((plugin.calls[0].since, plugin.volumes["ready"]), (UnixNanos(7), 3));
        let text = r#"{"ID": "v", "State": "ready", "Users": [{"AllocID": "a"}]}"#;
        let volume: HostVolumeExplain = serde_json::from_str(text).unwrap();
        assert_eq!((volume.state.as_str(), volume.users.len()), ("ready", 1));
        let columns: NodeColumns = serde_json::from_str(r#"{"ID": ["n"], "CPUUsed": [4]}"#).unwrap();
        assert_eq!((columns.id.len(), columns.cpu_used[0]), (1, 4));
    }
}
