//! The format of the output of scripts.

use caravan_scheduler::Consequences;
use caravan_state::Root;
use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use caravan_types::plan::Decision;
use std::collections::BTreeMap;

pub(super) fn decision(root: &Root, decision: &Decision, names: &BTreeMap<AllocId, String>) -> String {
    let mut lines = Vec::new();
    let plan = &decision.plan;
    let name = |id: &AllocId| {
        let known = root.alloc(id).map(|alloc| alloc.name.clone()).or_else(|| names.get(id).cloned());
        known.unwrap_or_else(|| id.to_string())
    };
    for stop in plan.stops.values().flatten() {
        let Some(alloc) = root.alloc(&stop.alloc_id) else { continue };
        let (name, node) = (&alloc.name, &alloc.node_name);
        let by = names.get(&stop.preempted_by);
        lines.push(match by {
            Some(by) => format!("evict {name} on {node} for {by}"),
            None => format!("stop {name} on {node}: {}", stop.description),
        });
    }
    for alloc in plan.placements.values().flatten() {
        let what = if root.alloc(&alloc.id).is_some() { "keep" } else { "place" };
        lines.push(format!("{what} {} on {}{}", alloc.name, alloc.node_name, assigned(alloc)));
    }
    for claim in &plan.claims {
        lines.push(format!("claim {} by {}", claim.id.volume.id, name(&claim.id.alloc)));
    }
    for (group, count) in decision.eval.queued_allocations.iter().filter(|(_, count)| **count > 0) {
        lines.push(format!("wait {group}: {count}"));
    }
    lines.sort();
    lines.extend(caravan_scheduler::explain_decision(decision).into_iter().map(|why| format!("why {why}")));
    if lines.is_empty() {
        lines.push("nothing to do".to_owned());
    }
    lines.into_iter().map(|line| format!("  {line}\n")).collect()
}

/// Returns the facts that distinguish an allocation from others of its group.
fn assigned(alloc: &Allocation) -> String {
    let Some(supplied) = &alloc.allocated_resources else { return String::new() };
    let mut text = String::new();
    for port in &supplied.shared.ports {
        text.push_str(&format!(" {}={}", port.label, port.value));
    }
    for task in supplied.tasks.values() {
        if !task.cpu.reserved_cores.is_empty() {
            let cores: Vec<String> = task.cpu.reserved_cores.iter().map(u16::to_string).collect();
            text.push_str(&format!(" cores={}", cores.join(",")));
        }
        for device in &task.devices {
            text.push_str(&format!(" {}={}", device.kind, device.device_ids.join(",")));
        }
    }
    text
}

pub(super) fn consequences(found: &Consequences) -> String {
    let moves = found.moves.iter().map(ToString::to_string);
    let placed = found.placed.iter().map(|(name, node)| format!("place {name} on {node}"));
    let why = found.reasons.iter().map(|why| format!("why {why}"));
    let lines: Vec<String> = moves.chain(placed).chain(why).map(|line| format!("  {line}\n")).collect();
    if lines.is_empty() { "  nothing moves\n".to_owned() } else { lines.concat() }
}

/// Lists all desired allocations by node.
pub(super) fn summary(root: &Root) -> String {
    let mut text = String::new();
    for node in root.nodes() {
        let mut names: Vec<String> = root
            .allocs_by_node(&node.id)
            .filter(|alloc| !alloc.terminal())
            .map(|alloc| alloc.name.clone())
            .collect();
        names.sort();
        let state = node.away().map(|away| format!(" ({away})")).unwrap_or_default();
        let names = if names.is_empty() { "-".to_owned() } else { names.join(" ") };
        text.push_str(&format!("  {}{state}: {names}\n", node.name));
    }
    text
}
