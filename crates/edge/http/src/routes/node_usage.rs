//! The usage of all nodes as columns: a short answer for many nodes.

use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_state::{Root, Table};
use caravan_types::node::{Eligibility, Node};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most keys of metadata in an answer, from which users choose. Of more keys, the first ones in byte order are
/// listed.
const MAX_META_KEYS: usize = 200;

/// The columns; the same position in each of them is the same node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Columns {
    #[serde(rename = "ID")]
    id: Vec<String>,
    name: Vec<String>,
    datacenter: Vec<String>,
    node_pool: Vec<String>,
    node_class: Vec<String>,
    status: Vec<&'static str>,
    draining: Vec<bool>,
    eligible: Vec<bool>,
    /// The versions of the agents.
    version: Vec<String>,
    /// The values of the key of metadata that the parameter `meta` names; empty for nodes without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<Vec<String>>,
    /// The keys of metadata of all nodes, at most [`MAX_META_KEYS`].
    meta_keys: BTreeSet<String>,
    /// MHz that allocations may have.
    #[serde(rename = "CPU")]
    cpu: Vec<i64>,
    /// MHz that allocations have.
    #[serde(rename = "CPUUsed")]
    cpu_used: Vec<i64>,
    /// MB that allocations may have.
    #[serde(rename = "MemoryMB")]
    memory: Vec<i64>,
    /// MB that allocations have.
    #[serde(rename = "MemoryMBUsed")]
    memory_used: Vec<i64>,
    /// MB of disk that allocations may have.
    #[serde(rename = "DiskMB")]
    disk: Vec<i64>,
    /// MB of disk that allocations have.
    #[serde(rename = "DiskMBUsed")]
    disk_used: Vec<i64>,
    /// The number of allocations that have not ended.
    allocations: Vec<u32>,
    /// The number of allocations by client status, also of ended ones that are kept.
    states: Vec<BTreeMap<&'static str, u32>>,
    /// The number of all nodes.
    total: usize,
}

/// Returns the columns; with `since=<index>`, only those of nodes that changed after that index, or that had an
/// allocation that changed. `meta=<key>` adds the values of a key of the nodes' metadata. The sums include
/// allocations that the caller may not read: the right to nodes includes the free resources of nodes.
pub(crate) async fn columns(call: &Call) -> Result<Reply, ApiError> {
    let since = since(call)?;
    let meta = Some(call.query.text("meta")).filter(|key| !key.is_empty());
    let (meta, columns) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let mut out = Columns { meta: meta.map(|_| Vec::new()), ..Columns::default() };
        let mut keys = BTreeSet::new();
        for node in root.nodes() {
            out.total += 1;
            keys.extend(node.meta.keys().map(String::as_str));
            while keys.len() > MAX_META_KEYS {
                keys.pop_last();
            }
            if since.is_none_or(|index| has_changed(root, node, index)) {
                out.add(root, node, meta);
            }
        }
        out.meta_keys = keys.into_iter().map(str::to_owned).collect();
        Ok((reads.tables_index(&[Table::Nodes, Table::Allocs]), out))
    })
    .await?;
    Ok(Reply::parsed(columns)?.meta(meta))
}

/// Reads the parameter `since`.
fn since(call: &Call) -> Result<Option<u64>, ApiError> {
    match call.query.text("since") {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("`since` is {text:?}; expected an index of the state"))
        }),
    }
}

/// Returns whether a node, or an allocation on the node, changed after an index.
fn has_changed(root: &Root, node: &Node, index: u64) -> bool {
    node.modify_index > index || root.allocs_by_node(&node.id).any(|alloc| alloc.modify_index > index)
}

impl Columns {
    fn add(&mut self, root: &Root, node: &Node, meta: Option<&str>) {
        let (mut cpu, mut memory, mut disk, mut number) = (0_i64, 0_i64, 0_i64, 0_u32);
        let mut states = BTreeMap::<&'static str, u32>::new();
        for alloc in root.allocs_by_node(&node.id) {
            let state = states.entry(alloc.client_status.as_str()).or_default();
            *state = state.saturating_add(1);
            if alloc.client_status.is_terminal() {
                continue;
            }
            number = number.saturating_add(1);
            disk = disk.saturating_add(
                alloc.allocated_resources.as_ref().map_or(0, |resources| resources.shared.disk_mb),
            );
            for task in alloc.allocated_resources.iter().flat_map(|resources| resources.tasks.values()) {
                cpu = cpu.saturating_add(task.cpu.cpu_shares);
                memory = memory.saturating_add(task.memory.memory_mb);
            }
        }
        let (has, kept) = (&node.node_resources, &node.reserved_resources);
        self.id.push(node.id.to_string());
        self.name.push(node.name.to_string());
        self.datacenter.push(node.datacenter.clone());
        self.node_pool.push(node.node_pool.clone());
        self.node_class.push(node.node_class.clone());
        self.status.push(node.status.as_str());
        self.draining.push(node.drain_strategy.is_some());
        self.eligible.push(node.scheduling_eligibility == Eligibility::Eligible);
        self.version.push(node.version().to_owned());
        if let (Some(values), Some(key)) = (&mut self.meta, meta) {
            values.push(node.meta.get(key).cloned().unwrap_or_default());
        }
        self.cpu.push(has.cpu.cpu_shares.saturating_sub(kept.cpu.cpu_shares));
        self.cpu_used.push(cpu);
        self.memory.push(has.memory.memory_mb.saturating_sub(kept.memory.memory_mb));
        self.memory_used.push(memory);
        self.disk.push(has.disk.disk_mb.saturating_sub(kept.disk.disk_mb));
        self.disk_used.push(disk);
        self.allocations.push(number);
        self.states.push(states);
    }
}
