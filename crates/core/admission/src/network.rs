//! Rules for networks and ports of a group and its tasks.

use super::one_of;
use super::problem::{Findings, ProblemCode as Code};
use caravan_api::JobPath;
use caravan_types::job::{Network, TaskGroup};
use std::collections::{BTreeMap, HashMap};

/// Checks that labels are unique in the group, and static ports unique in a host network.
pub(super) fn check(group: &TaskGroup, errors: &mut Findings) {
    let mut found = Findings::at(errors.path.clone());
    let mut labels: HashMap<&str, String> = HashMap::new();
    let mut statics: BTreeMap<(&str, i64), String> = BTreeMap::new();
    let own = group.networks.iter().enumerate().map(|(at, network)| {
        (network, "taskgroup network".to_owned(), errors.path.clone().field("Networks").index(at))
    });
    let of_tasks = group.tasks.iter().enumerate().flat_map(|(task_at, task)| {
        let path = errors.path.clone().field("Tasks").index(task_at).field("Resources.Networks");
        let networks = task.resources.networks.iter().enumerate();
        networks.map(move |(at, network)| (network, format!("task {}", task.name), path.clone().index(at)))
    });
    for (network, owner, path) in own.chain(of_tasks) {
        mode(network, &path, &mut found);
        let host = matches!(network.mode.as_str(), "" | "host");
        let numbered = |list: &'static str, at: usize| path.clone().field(list).index(at);
        let reserved = network.reserved_ports.iter().enumerate();
        let reserved = reserved.map(|(at, port)| (port, numbered("ReservedPorts", at)));
        let dynamic = network.dynamic_ports.iter().enumerate();
        for (port, at) in
            reserved.clone().chain(dynamic.map(|(at, port)| (port, numbered("DynamicPorts", at))))
        {
            let name = format!("{owner}:{}", port.label);
            if port.label.is_empty() {
                found.add_at(Code::Missing, at.clone().field("Label"), "Port label can not be empty");
            } else if let Some(other) = labels.insert(&port.label, name) {
                let text = format!("Port label {} already in use by {other}", port.label);
                found.add_at(Code::Duplicate, at.clone().field("Label"), text);
            }
            if port.to < -1 || port.to > 65_535 {
                let code = if port.to < -1 { Code::BelowMinimum } else { Code::AboveMaximum };
                let text = format!(
                    "Port \"{}\" cannot be mapped to a port ({}): it must be from -1 to 65535",
                    port.label, port.to
                );
                found.add_at(code, at.clone().field("To"), text);
            }
            if port.ignore_collision && !host {
                let text = format!(
                    "Port \"{}\" cannot ignore collisions: that is for host networks only",
                    port.label
                );
                found.add_at(Code::Conflict, at.field("IgnoreCollision"), text);
            }
        }
        for (port, at) in reserved {
            if port.value < 1 || port.value > 65_535 {
                let code = if port.value < 1 { Code::BelowMinimum } else { Code::AboveMaximum };
                let text = format!("Port \"{}\" has an invalid static port {}", port.label, port.value);
                found.add_at(code, at.field("Value"), text);
            } else if !port.ignore_collision {
                let name = format!("{owner}:{}", port.label);
                if let Some(other) = statics.insert((&port.host_network, port.value), name) {
                    let text = format!("Static port {} already reserved by {other}", port.value);
                    found.add_at(Code::Duplicate, at.field("Value"), text);
                }
            }
        }
    }
    errors.nest("Task group network validation failed: ", found);
}

fn mode(network: &Network, path: &JobPath, errors: &mut Findings) {
    match network.mode.as_str() {
        "" | "host" | "bridge" | "none" => {}
        mode if mode.starts_with("cni/") && mode.len() > 4 => {}
        other => {
            let text = one_of("Invalid network mode", other, &["host", "bridge", "none", "cni/NAME"]);
            errors.add_at(Code::UnknownWord, path.clone().field("Mode"), text);
        }
    }
    if !network.hostname.is_empty()
        && !network.hostname.contains("${")
        && !Network::is_hostname(&network.hostname)
    {
        let text = format!("Hostname is not a valid DNS name: \"{}\"", network.hostname);
        errors.add_at(Code::InvalidName, path.clone().field("Hostname"), text);
    }
}
