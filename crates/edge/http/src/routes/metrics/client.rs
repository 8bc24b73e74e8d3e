//! Metrics of a client: the resources of its allocations, their usage, and the host's usage.

use super::{Figures, count, signed, whole};
use crate::call::Call;
use crate::client_side::ClientSide;
use crate::host::{self, HostStats};
use crate::usage::{self, AllocUsage};
use caravan_types::alloc::{Allocation, Amount, ClientStatus};
use caravan_types::node::Node;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) async fn add(figures: &mut Figures, call: &Call, client: &dyn ClientSide) {
    // The servers' row of the node has the server-side facts, such as eligibility.
    let known = call.state.server.as_ref().map(|server| server.store().snapshot());
    let own = client.node();
    let node = known.as_ref().and_then(|root| root.node(&own.id).map(Arc::clone)).unwrap_or(own);
    let allocs = client.allocs();
    let base = labels(&node);
    let mut with_status = base.clone();
    with_status["node_status"] = json!(node.status);
    with_status["node_scheduling_eligibility"] = json!(node.scheduling_eligibility);
    of_allocs(figures, &node, &allocs, &with_status);
    figures.measured("nomad.client.", client.meters().readings(), &base);
    let settings = call.state.info.metrics;
    // Each sample takes a moment, so all are taken concurrently.
    let of_host = async { if settings.node { host::measure(client).await.ok() } else { None } };
    let of_tasks = async { if settings.allocations { used_by(client, &allocs).await } else { Vec::new() } };
    let (host, tasks) = futures::join!(of_host, of_tasks);
    if let Some(host) = host {
        add_host(figures, &host, &base);
    }
    for (alloc, usage) in tasks {
        of_tasks_of(figures, &alloc, &usage, &base);
    }
}

fn labels(node: &Node) -> Value {
    let class = if node.node_class.is_empty() { "none" } else { node.node_class.as_str() };
    json!({
        "node_id": node.id,
        "datacenter": node.datacenter,
        "node_class": class,
        "node_pool": node.node_pool,
    })
}

fn of_allocs(figures: &mut Figures, node: &Node, allocs: &[(Arc<Allocation>, ClientStatus)], labels: &Value) {
    let live: BTreeSet<_> = allocs
        .iter()
        .filter(|(_, status)| !status.is_terminal())
        .map(|(alloc, _)| alloc.id.clone())
        .collect();
    let (mut pending, mut running, mut terminal, mut blocked, mut migrating) = (0, 0, 0, 0, 0);
    let (mut supplied, mut most) = (Amount::default(), 0_i64);
    for (alloc, status) in allocs {
        let before = &alloc.previous_allocation;
        let migrates = alloc.group().and_then(|g| g.ephemeral_disk.as_ref()).is_some_and(|disk| disk.migrate);
        match status {
            ClientStatus::Pending if live.contains(before) => blocked += 1,
            ClientStatus::Pending if migrates && !before.is_empty() => migrating += 1,
            ClientStatus::Pending => pending += 1,
            ClientStatus::Running => running += 1,
            _ => terminal += 1,
        }
        if !status.is_terminal() {
            supplied = supplied.plus(Amount::of_alloc(alloc));
            most = most.saturating_add(most_memory(alloc));
        }
    }
    for (name, n) in [
        ("nomad.client.allocations.pending", pending),
        ("nomad.client.allocations.running", running),
        ("nomad.client.allocations.terminal", terminal),
        ("nomad.client.allocations.blocked", blocked),
        ("nomad.client.allocations.migrating", migrating),
        ("nomad.client.allocations.known", allocs.len()),
    ] {
        figures.gauge(name, count(n), labels);
    }
    let left = Amount::capacity(node).minus(supplied);
    for (name, n) in [
        ("nomad.client.allocated.cpu", supplied.cpu),
        ("nomad.client.allocated.memory", supplied.memory),
        ("nomad.client.allocated.max_memory", most),
        ("nomad.client.allocated.disk", supplied.disk),
        ("nomad.client.unallocated.cpu", left.cpu),
        ("nomad.client.unallocated.memory", left.memory),
        ("nomad.client.unallocated.disk", left.disk),
    ] {
        figures.gauge(name, signed(n), labels);
    }
}

/// Returns the memory limit of an allocation's tasks, in MB.
fn most_memory(alloc: &Allocation) -> i64 {
    let tasks = alloc.allocated_resources.iter().flat_map(|supplied| supplied.tasks.values());
    tasks.fold(0, |sum: i64, task| sum.saturating_add(task.memory.memory_max_mb.max(task.memory.memory_mb)))
}

/// Returns the usage of the running allocations.
async fn used_by(
    client: &dyn ClientSide,
    allocs: &[(Arc<Allocation>, ClientStatus)],
) -> Vec<(Arc<Allocation>, AllocUsage)> {
    let running = allocs.iter().filter(|(_, status)| *status == ClientStatus::Running);
    let looks: FuturesUnordered<_> = running
        .map(|(alloc, _)| async move {
            // An allocation that ended in the meantime has no usage.
            usage::measure(client, &alloc.id, None).await.ok().map(|usage| (Arc::clone(alloc), usage))
        })
        .collect();
    let mut usages: Vec<_> = looks.filter_map(std::future::ready).collect().await;
    usages.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    usages
}

fn of_tasks_of(figures: &mut Figures, alloc: &Allocation, usage: &AllocUsage, base: &Value) {
    let supplied = alloc.allocated_resources.as_deref();
    for (task, usage) in &usage.tasks {
        let mut labels = base.clone();
        labels["alloc_id"] = json!(alloc.id);
        labels["job"] = json!(alloc.job_id);
        labels["task_group"] = json!(alloc.task_group);
        labels["task"] = json!(task);
        labels["namespace"] = json!(alloc.namespace);
        let (cpu, memory) = (&usage.resource_usage.cpu_stats, &usage.resource_usage.memory_stats);
        for (name, value) in [
            ("cpu.system", cpu.system_mode),
            ("cpu.user", cpu.user_mode),
            ("cpu.throttled_time", whole(cpu.throttled_time)),
            ("cpu.throttled_periods", whole(cpu.throttled_periods)),
            ("cpu.total_percent", cpu.percent),
            ("cpu.total_ticks", cpu.total_ticks),
            ("memory.rss", whole(memory.rss)),
            ("memory.cache", whole(memory.cache)),
            ("memory.swap", whole(memory.swap)),
            ("memory.usage", whole(memory.usage)),
            ("memory.max_usage", whole(memory.max_usage)),
            ("memory.kernel_usage", whole(memory.kernel_usage)),
            ("memory.kernel_max_usage", whole(memory.kernel_max_usage)),
            ("memory.mapped_file", whole(memory.mapped_file)),
        ] {
            figures.gauge(&format!("nomad.client.allocs.{name}"), value, &labels);
        }
        let pressure = &usage.pressure;
        for (resource, stall) in [("cpu", pressure.cpu), ("memory", pressure.memory), ("io", pressure.io)] {
            // A kernel that does not measure the pressure has no gauge, not a gauge of 0.
            let Some(stall) = stall else { continue };
            for (name, value) in [("some", stall.some_avg10), ("full", stall.full_avg10)] {
                figures.gauge(&format!("caravan.client.allocs.{resource}.pressure_{name}"), value, &labels);
            }
        }
        if let Some(supplied) = supplied.and_then(|supplied| supplied.tasks.get(task)) {
            let bytes = supplied.memory.memory_mb.saturating_mul(1 << 20);
            figures.gauge("nomad.client.allocs.cpu.allocated", signed(supplied.cpu.cpu_shares), &labels);
            figures.gauge("nomad.client.allocs.memory.allocated", signed(bytes), &labels);
        }
    }
}

/// Adds the host's figures.
fn add_host(figures: &mut Figures, host: &HostStats, base: &Value) {
    let mut add = |name: &str, value: f64, labels: &Value| {
        figures.gauge(&format!("nomad.client.{name}"), value, labels);
    };
    for (name, bytes) in [
        ("total", host.memory.total),
        ("available", host.memory.available),
        ("used", host.memory.used),
        ("free", host.memory.free),
    ] {
        add(&format!("host.memory.{name}"), whole(bytes), base);
    }
    add("uptime", whole(host.uptime), base);
    for cpu in &host.cpus {
        let mut labels = base.clone();
        labels["cpu"] = json!(cpu.name);
        for (name, value) in [
            ("user", cpu.user),
            ("system", cpu.system),
            ("idle", cpu.idle),
            ("total_percent", cpu.total_percent),
            ("total_ticks", cpu.total_ticks),
        ] {
            add(&format!("host.cpu.{name}"), value, &labels);
        }
    }
    for disk in &host.disk_stats {
        let mut labels = base.clone();
        labels["disk"] = json!(disk.device);
        for (name, value) in [
            ("size", whole(disk.size)),
            ("used", whole(disk.used)),
            ("available", whole(disk.available)),
            ("used_percent", disk.used_percent),
            ("inodes_percent", disk.inodes_used_percent),
        ] {
            add(&format!("host.disk.{name}"), value, &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::Disk;
    use crate::host::{HostCpu, HostMemory};
    use crate::usage::{CpuStats, MemoryStats, ResourceUsage, TaskUsage};
    use caravan_types::node::NodeStatus;

    #[test]
    fn allocations_are_counted_by_what_they_wait_for() {
        let alloc = |id: &str, before: &str| {
            Arc::new(Allocation {
                id: id.into(),
                previous_allocation: before.into(),
                ..Allocation::default()
            })
        };
        let allocs = [
            (alloc("a", ""), ClientStatus::Running),
            (alloc("b", "a"), ClientStatus::Pending),
            (alloc("c", "gone"), ClientStatus::Pending),
            (alloc("d", ""), ClientStatus::Complete),
        ];
        let node = Node { status: NodeStatus::Ready, ..Node::default() };
        let mut figures = Figures::default();
        of_allocs(&mut figures, &node, &allocs, &json!({}));
        let value = |name: &str| {
            let name = format!("nomad.client.allocations.{name}");
            figures.gauges.iter().find(|gauge| gauge["Name"] == *name).unwrap()["Value"].clone()
        };
        for (name, n) in
            [("running", 1.0), ("blocked", 1.0), ("pending", 1.0), ("terminal", 1.0), ("known", 4.0)]
        {
            assert_eq!(value(name), n, "{name}");
        }
    }

    #[test]
    fn usage_is_reported_by_task() {
        let resource_usage = ResourceUsage {
            cpu_stats: CpuStats { percent: 12.5, ..CpuStats::default() },
            memory_stats: MemoryStats { rss: 4096, ..MemoryStats::default() },
            ..ResourceUsage::default()
        };
        let task = TaskUsage { resource_usage, ..TaskUsage::default() };
        let usage = AllocUsage { tasks: [("web".to_owned(), task)].into(), ..AllocUsage::default() };
        let alloc = Allocation { id: "a".into(), job_id: "j".into(), ..Allocation::default() };
        let mut figures = Figures::default();
        of_tasks_of(&mut figures, &alloc, &usage, &json!({"node_id": "n"}));
        for (name, value) in [("cpu.total_percent", 12.5), ("memory.rss", 4096.0), ("memory.swap", 0.0)] {
            let name = format!("nomad.client.allocs.{name}");
            let gauge = figures.gauges.iter().find(|gauge| gauge["Name"] == *name).unwrap();
            assert_eq!((&gauge["Value"], &gauge["Labels"]["task"]), (&json!(value), &json!("web")), "{name}");
            assert_eq!(gauge["Labels"]["node_id"], "n");
        }
    }

    #[test]
    fn usage_of_the_host_is_reported_by_cpu_and_disk() {
        let host = HostStats {
            memory: HostMemory { used: 7, ..HostMemory::default() },
            cpus: vec![HostCpu { name: "cpu0".into(), idle: 70.0, ..HostCpu::default() }],
            disk_stats: vec![Disk { device: "/dev/vda".into(), used_percent: 25.0, ..Disk::default() }],
            uptime: 12,
            ..HostStats::default()
        };
        let mut figures = Figures::default();
        add_host(&mut figures, &host, &json!({"node_id": "n"}));
        for (name, value, labels) in [
            ("host.memory.used", 7.0, json!({"node_id": "n"})),
            ("uptime", 12.0, json!({"node_id": "n"})),
            ("host.cpu.idle", 70.0, json!({"node_id": "n", "cpu": "cpu0"})),
            ("host.disk.used_percent", 25.0, json!({"node_id": "n", "disk": "/dev/vda"})),
        ] {
            let name = format!("nomad.client.{name}");
            let gauge = figures.gauges.iter().find(|gauge| gauge["Name"] == *name).unwrap();
            assert_eq!((&gauge["Value"], &gauge["Labels"]), (&json!(value), &labels), "{name}");
        }
    }
}
