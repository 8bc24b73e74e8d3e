//! The usage of all nodes as columns: a short answer for many nodes.

use crate::blocking;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_state::{Root, Table};
use caravan_types::node::{Eligibility, Node};
use serde::Serialize;

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
    /// The number of allocations that have not ended.
    allocations: Vec<u32>,
}

/// Answers with the columns. The sums include allocations that the caller may not read: the right to nodes includes the
/// free resources of nodes.
pub(crate) async fn columns(call: &Call) -> Result<Reply, ApiError> {
    let (meta, columns) = blocking::read(call, |reads| {
        let root = reads.snapshot();
        let mut out = Columns::default();
        for node in root.nodes() {
            out.add(root, node);
        }
        Ok((reads.tables_index(&[Table::Nodes, Table::Allocs]), out))
    })
    .await?;
    Ok(Reply::parsed(columns)?.meta(meta))
}

impl Columns {
    fn add(&mut self, root: &Root, node: &Node) {
        let (mut cpu, mut memory, mut number) = (0_i64, 0_i64, 0_u32);
        for alloc in root.allocs_by_node(&node.id).filter(|alloc| !alloc.client_status.is_terminal()) {
            number = number.saturating_add(1);
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
        self.cpu.push(has.cpu.cpu_shares.saturating_sub(kept.cpu.cpu_shares));
        self.cpu_used.push(cpu);
        self.memory.push(has.memory.memory_mb.saturating_sub(kept.memory.memory_mb));
        self.memory_used.push(memory);
        self.allocations.push(number);
    }
}
