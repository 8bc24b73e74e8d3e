//! Caravan's own routes below `/v1/caravan/`: the overview, the storage map, the usage of nodes, the facts of the web page
//! (docs/design/web-page.md).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response};
use caravan_types::host_volume::HostVolumeStub;
use caravan_types::plugin::PluginListStub;
use caravan_types::volume::VolumeExplain;
use caravan_types::{NodeId, UnixNanos};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Caravan's own routes, from [`Client::caravan`].
#[derive(Clone, Copy, Debug)]
pub struct Caravan<'a>(&'a Client);

/// Counts by state, and the objects that need attention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Overview {
    /// Jobs; stopped ones count as `stopped`.
    pub jobs: BTreeMap<String, u64>,
    /// Allocations.
    pub allocations: BTreeMap<String, u64>,
    /// Evaluations.
    pub evaluations: BTreeMap<String, u64>,
    /// Nodes, with `draining` and `ineligible` besides their statuses.
    pub nodes: BTreeMap<String, u64>,
    /// Plugins: `healthy` and `unhealthy`.
    pub plugins: BTreeMap<String, u64>,
    /// Volumes, by phase.
    pub volumes: BTreeMap<String, u64>,
    /// Claims that have not ended, by phase.
    pub claims: BTreeMap<String, u64>,
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
    /// One sentence.
    pub reason: String,
    /// When the trouble began; 0 if that is not known.
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
    /// Host volumes that users created.
    pub host_volumes: Vec<HostVolumeStub>,
    /// The names of the nodes that the answer names.
    pub nodes: BTreeMap<NodeId, String>,
    /// The number of volumes that the caller may list but not read.
    pub hidden: u64,
    /// The rights that the caller lacks; their objects are missing.
    pub denied: Vec<String>,
}

/// The usage of all nodes as columns; the same position in each of them is the same node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeColumns {
    /// Ids.
    #[serde(rename = "ID")]
    pub id: Vec<String>,
    /// Names.
    pub name: Vec<String>,
    /// Datacenters.
    pub datacenter: Vec<String>,
    /// Node pools.
    pub node_pool: Vec<String>,
    /// Classes.
    pub node_class: Vec<String>,
    /// Statuses.
    pub status: Vec<String>,
    /// Whether the node drains.
    pub draining: Vec<bool>,
    /// Whether the scheduler may place on the node.
    pub eligible: Vec<bool>,
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
    /// The number of allocations that have not ended.
    pub allocations: Vec<u32>,
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

    /// Returns the storage map, in pages of volumes. The parameter `trouble=true` selects volumes that wait, failed or are
    /// in transition.
    pub async fn storage(&self, query: &QueryOptions) -> Result<Response<StorageMap>, Error> {
        self.0.get("/v1/caravan/storage", query).await
    }

    /// Returns the usage of all nodes.
    pub async fn node_usage(&self, query: &QueryOptions) -> Result<Response<NodeColumns>, Error> {
        self.0.get("/v1/caravan/nodes/usage", query).await
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
        assert_eq!((overview.jobs["running"], overview.omitted), (2, 1));
        assert_eq!((overview.attention[0].id.as_str(), overview.attention[0].since), ("web", UnixNanos(5)));
        let text = r#"{"Volumes": [{"ID": "data", "Claims": null}], "Nodes": {"n": "one"}, "Hidden": 3}"#;
        let map: StorageMap = serde_json::from_str(text).unwrap();
        assert_eq!((map.volumes[0].id.as_str(), map.hidden, map.nodes.len()), ("data", 3, 1));
        let columns: NodeColumns = serde_json::from_str(r#"{"ID": ["n"], "CPUUsed": [4]}"#).unwrap();
        assert_eq!((columns.id.len(), columns.cpu_used[0]), (1, 4));
    }
}
