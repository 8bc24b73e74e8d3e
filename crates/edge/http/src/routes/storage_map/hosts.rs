//! Host volumes of users and of nodes' configurations as one list, with the groups that hold them.

use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Token, object, page};
use crate::reply::Reply;
use caravan_server::{Level, NsCap};
use caravan_state::{Root, Table};
use caravan_types::host_volume::{HostVolume, HostVolumeState, HostVolumeStub};
use caravan_types::node::{HostVolumeInfo, Node};
use caravan_types::{AllocId, JobId, NodeId};
use serde::Serialize;
use std::sync::Arc;

/// The tables whose changes end a wait.
const TABLES: [Table; 3] = [Table::HostVolumes, Table::Nodes, Table::Allocs];
/// The most holders of a host volume that an answer lists.
const MAX_HOLDERS: usize = 10;

/// The keys by which the list can be sorted. `trouble` begins with volumes that are not ready.
pub(crate) const KEYS: Keys<Row> = keys!(Row {
    "name" => |_, row| &row.stub.name,
    "namespace" => |_, row| row.stub.namespace.as_str(),
    "node" => |_, row| &row.node_name,
    "plugin" => |_, row| &row.stub.plugin_id,
    "state" => |_, row| row.stub.state.as_str(),
    "trouble" => |_, row| row.stub.state == HostVolumeState::Ready,
    "configured" => |_, row| row.configured,
    "capacity" => |_, row| row.stub.capacity_bytes,
});

/// A host volume.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Row {
    #[serde(flatten)]
    stub: HostVolumeStub,
    /// The name of the node; empty for a caller who may not read nodes.
    node_name: String,
    /// Whether the volume comes from its node's configuration. Such a volume has no id, namespace and plugin.
    configured: bool,
    /// Whether groups may only read a configured volume.
    read_only: bool,
    /// The groups that hold the volume; empty for a caller who may not read jobs.
    holders: Vec<Holder>,
}

impl Row {
    /// Returns the position in the list.
    fn place(&self) -> Token<'_> {
        let own = if self.configured { self.stub.node_id.as_str() } else { self.stub.id.as_str() };
        Token::Claim(self.stub.namespace.as_str(), &self.stub.name, own)
    }
}

/// A group that holds a host volume.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Holder {
    #[serde(rename = "JobID")]
    job_id: JobId,
    task_group: String,
    /// The allocation of the group; empty while the group keeps its place without one.
    #[serde(rename = "AllocID")]
    alloc_id: AllocId,
}

/// A volume of a node's configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StaticVolume {
    name: String,
    #[serde(rename = "NodeID")]
    pub(super) node_id: NodeId,
    read_only: bool,
}

/// Lists the host volumes that the caller may read. `node` selects nodes whose id begins with a text or whose name
/// contains it, `trouble=true` the volumes that are not ready.
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    let namespace = call.list_namespace();
    let with_trouble_only = call.query.flag("trouble")?.unwrap_or(false);
    let (plugin, node) = (call.query.text("plugin_id"), call.query.text("node").to_lowercase());
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let (root, sees_nodes) = (reads.snapshot(), call.caller().acl.node(Level::Read));
        let name_of = |node: &Node| if sees_nodes { node.name.to_string() } else { String::new() };
        let is_on = |id: &NodeId| {
            let name = || root.node(id).is_some_and(|found| name_of(found).to_lowercase().contains(&node));
            node.is_empty() || id.as_str().starts_with(&node) || name()
        };
        let is_in = |row: &HostVolume| namespace.as_ref().is_none_or(|only| row.namespace == *only);
        let made = root
            .host_volumes()
            .filter(|row| {
                is_in(row) && call.may(&row.namespace, NsCap::HostVolumeRead) && is_on(&row.node_id)
            })
            .filter(|row| plugin.is_empty() || row.plugin_id == *plugin)
            .filter(|row| !with_trouble_only || row.state != HostVolumeState::Ready)
            .map(|row| Row {
                node_name: root.node(&row.node_id).map(|node| name_of(node)).unwrap_or_default(),
                configured: false,
                read_only: false,
                holders: match call.may(&row.namespace, NsCap::ReadJob) {
                    true => holders(root, row),
                    false => Vec::new(),
                },
                stub: row.stub(),
            });
        let has_fixed = sees_nodes && plugin.is_empty() && !with_trouble_only;
        let fixed =
            configured(root).filter(|(node, _)| has_fixed && is_on(&node.id)).map(|(node, info)| Row {
                stub: HostVolumeStub {
                    name: info.name.clone(),
                    node_id: node.id.clone(),
                    node_pool: node.node_pool.to_string(),
                    state: HostVolumeState::Ready,
                    ..HostVolumeStub::default()
                },
                node_name: node.name.to_string(),
                configured: true,
                read_only: info.read_only,
                holders: Vec::new(),
            });
        let rows: Vec<Arc<Row>> = made.chain(fixed).map(Arc::new).collect();
        let (rows, next) =
            page(&call.query, &KEYS, root, rows.iter().collect(), |row| row.place(), |row| object(&***row))?;
        let rows: Vec<Row> = rows.into_iter().map(|row| Row::clone(row)).collect();
        Ok((reads.tables_index(&TABLES), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::parsed(rows)?.meta(meta))
}

/// Returns the groups that hold a host volume: those with an allocation first.
pub(super) fn holders(root: &Root, volume: &HostVolume) -> Vec<Holder> {
    let mut out: Vec<Holder> = root
        .host_volume_users(volume)
        .map(|alloc| Holder {
            job_id: alloc.job_id.clone(),
            task_group: alloc.task_group.to_string(),
            alloc_id: alloc.id.clone(),
        })
        .collect();
    for claim in root.host_claims_of(&volume.id) {
        let is_claim = |row: &Holder| row.job_id == claim.job_id && row.task_group == claim.task_group_name;
        if !out.iter().any(is_claim) {
            out.push(Holder {
                job_id: claim.job_id.clone(),
                task_group: claim.task_group_name.clone(),
                alloc_id: AllocId::default(),
            });
        }
    }
    out.truncate(MAX_HOLDERS);
    out
}

/// Returns the volumes of the nodes' configurations.
fn configured(root: &Root) -> impl Iterator<Item = (&Arc<Node>, &HostVolumeInfo)> {
    let all = root.nodes().flat_map(|node| node.host_volumes.values().map(move |info| (node, info)));
    all.filter(|(_, info)| info.id.is_empty())
}

/// Returns at most some volumes of the nodes' configurations, and the number of the others.
pub(super) fn static_volumes(root: &Root, most: usize) -> (Vec<StaticVolume>, usize) {
    let mut all = configured(root).map(|(node, info)| StaticVolume {
        name: info.name.clone(),
        node_id: node.id.clone(),
        read_only: info.read_only,
    });
    let rows: Vec<_> = all.by_ref().take(most).collect();
    (rows, all.count())
}
