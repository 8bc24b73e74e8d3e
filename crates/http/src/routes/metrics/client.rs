//! Metrics of a client: the resources of its allocations, their usage, and the host's usage.

use super::{Figures, count, signed};
use crate::call::Call;
use crate::client_side::ClientSide;
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
    figures.measured("nomad.client.", client.meters().told(), &base);
    let settings = call.state.info.metrics;
    // Each sample takes a moment, so all are taken concurrently.
    let of_host = async { if settings.node { client.host_stats().await.ok() } else { None } };
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
    let (mut given, mut most) = (Amount::default(), 0_i64);
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
            given = given.plus(Amount::of_alloc(alloc));
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
    let left = Amount::capacity(node).minus(given);
    for (name, n) in [
        ("nomad.client.allocated.cpu", given.cpu),
        ("nomad.client.allocated.memory", given.memory),
        ("nomad.client.allocated.max_memory", most),
        ("nomad.client.allocated.disk", given.disk),
        ("nomad.client.unallocated.cpu", left.cpu),
        ("nomad.client.unallocated.memory", left.memory),
        ("nomad.client.unallocated.disk", left.disk),
    ] {
        figures.gauge(name, signed(n), labels);
    }
}

/// Returns the memory limit of an allocation's tasks, in MB.
fn most_memory(alloc: &Allocation) -> i64 {
    let tasks = alloc.allocated_resources.iter().flat_map(|given| given.tasks.values());
    tasks.fold(0, |sum: i64, task| sum.saturating_add(task.memory.memory_max_mb.max(task.memory.memory_mb)))
}

/// Returns the usage of the running allocations, in the shape of `AllocResourceUsage`.
async fn used_by(
    client: &dyn ClientSide,
    allocs: &[(Arc<Allocation>, ClientStatus)],
) -> Vec<(Arc<Allocation>, Value)> {
    let running = allocs.iter().filter(|(_, status)| *status == ClientStatus::Running);
    let looks: FuturesUnordered<_> = running
        .map(|(alloc, _)| async move {
            // An allocation that ended in the meantime has no usage.
            client.alloc_stats(&alloc.id, None).await.ok().map(|usage| (Arc::clone(alloc), usage))
        })
        .collect();
    let mut told: Vec<_> = looks.filter_map(std::future::ready).collect().await;
    told.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    told
}

fn of_tasks_of(figures: &mut Figures, alloc: &Allocation, usage: &Value, base: &Value) {
    let given = alloc.allocated_resources.as_deref();
    for (task, usage) in usage["Tasks"].as_object().into_iter().flatten() {
        let mut labels = base.clone();
        labels["alloc_id"] = json!(alloc.id);
        labels["job"] = json!(alloc.job_id);
        labels["task_group"] = json!(alloc.task_group);
        labels["task"] = json!(task);
        labels["namespace"] = json!(alloc.namespace);
        let (cpu, memory) = (&usage["ResourceUsage"]["CpuStats"], &usage["ResourceUsage"]["MemoryStats"]);
        for (name, value) in [
            ("cpu.system", &cpu["SystemMode"]),
            ("cpu.user", &cpu["UserMode"]),
            ("cpu.throttled_time", &cpu["ThrottledTime"]),
            ("cpu.throttled_periods", &cpu["ThrottledPeriods"]),
            ("cpu.total_percent", &cpu["Percent"]),
            ("cpu.total_ticks", &cpu["TotalTicks"]),
            ("memory.rss", &memory["RSS"]),
            ("memory.cache", &memory["Cache"]),
            ("memory.swap", &memory["Swap"]),
            ("memory.usage", &memory["Usage"]),
            ("memory.max_usage", &memory["MaxUsage"]),
            ("memory.kernel_usage", &memory["KernelUsage"]),
            ("memory.kernel_max_usage", &memory["KernelMaxUsage"]),
            ("memory.mapped_file", &memory["MappedFile"]),
        ] {
            figures.gauge(&format!("nomad.client.allocs.{name}"), value.as_f64().unwrap_or(0.0), &labels);
        }
        if let Some(given) = given.and_then(|given| given.tasks.get(task)) {
            let bytes = given.memory.memory_mb.saturating_mul(1 << 20);
            figures.gauge("nomad.client.allocs.cpu.allocated", signed(given.cpu.cpu_shares), &labels);
            figures.gauge("nomad.client.allocs.memory.allocated", signed(bytes), &labels);
        }
    }
}

/// Adds the host's figures from the shape of `HostStats`.
fn add_host(figures: &mut Figures, host: &Value, base: &Value) {
    let mut add = |name: &str, value: &Value, labels: &Value| {
        figures.gauge(&format!("nomad.client.{name}"), value.as_f64().unwrap_or(0.0), labels);
    };
    for (name, key) in [("total", "Total"), ("available", "Available"), ("used", "Used"), ("free", "Free")] {
        add(&format!("host.memory.{name}"), &host["Memory"][key], base);
    }
    add("uptime", &host["Uptime"], base);
    for cpu in host["CPU"].as_array().into_iter().flatten() {
        let mut labels = base.clone();
        labels["cpu"] = cpu["CPU"].clone();
        for (name, key) in [
            ("user", "User"),
            ("system", "System"),
            ("idle", "Idle"),
            ("total_percent", "TotalPercent"),
            ("total_ticks", "TotalTicks"),
        ] {
            add(&format!("host.cpu.{name}"), &cpu[key], &labels);
        }
    }
    for disk in host["DiskStats"].as_array().into_iter().flatten() {
        let mut labels = base.clone();
        labels["disk"] = disk["Device"].clone();
        for (name, key) in [
            ("size", "Size"),
            ("used", "Used"),
            ("available", "Available"),
            ("used_percent", "UsedPercent"),
            ("inodes_percent", "InodesUsedPercent"),
        ] {
            add(&format!("host.disk.{name}"), &disk[key], &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn usage_is_told_by_task() {
        let usage = json!({"Tasks": {"web": {"ResourceUsage": {
            "CpuStats": {"Percent": 12.5}, "MemoryStats": {"RSS": 4096},
        }}}});
        let alloc = Allocation { id: "a".into(), job_id: "j".into(), ..Allocation::default() };
        let mut figures = Figures::default();
        of_tasks_of(&mut figures, &alloc, &usage, &json!({"node_id": "n"}));
        let gauge =
            figures.gauges.iter().find(|g| g["Name"] == "nomad.client.allocs.cpu.total_percent").unwrap();
        assert_eq!((&gauge["Value"], &gauge["Labels"]["task"]), (&json!(12.5), &json!("web")));
        assert_eq!(gauge["Labels"]["node_id"], "n");
    }
}
