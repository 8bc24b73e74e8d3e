//! Rules for networks and ports of a group and its tasks.

use super::{joined, one_of};
use caravan_types::job::{Network, TaskGroup};
use std::collections::{BTreeMap, HashMap};

/// Checks that labels are unique in the group, and static ports unique in a host network.
pub(super) fn check(group: &TaskGroup, errors: &mut Vec<String>) {
    let mut found = Vec::new();
    let mut labels: HashMap<&str, String> = HashMap::new();
    let mut statics: BTreeMap<(&str, i64), String> = BTreeMap::new();
    let owners = group.networks.iter().map(|network| (network, "taskgroup network".to_owned()));
    let of_tasks = group.tasks.iter().flat_map(|task| {
        task.resources.networks.iter().map(move |network| (network, format!("task {}", task.name)))
    });
    for (network, owner) in owners.chain(of_tasks) {
        mode(network, &mut found);
        let host = matches!(network.mode.as_str(), "" | "host");
        for port in network.reserved_ports.iter().chain(&network.dynamic_ports) {
            let name = format!("{owner}:{}", port.label);
            if port.label.is_empty() {
                found.push("Port label can not be empty".into());
            } else if let Some(other) = labels.insert(&port.label, name) {
                found.push(format!("Port label {} already in use by {other}", port.label));
            }
            if port.to < -1 || port.to > 65_535 {
                found.push(format!(
                    "Port \"{}\" cannot be mapped to a port ({}): it must be from -1 to 65535",
                    port.label, port.to
                ));
            }
            if port.ignore_collision && !host {
                found.push(format!(
                    "Port \"{}\" cannot ignore collisions: that is for host networks only",
                    port.label
                ));
            }
        }
        for port in &network.reserved_ports {
            if port.value < 1 || port.value > 65_535 {
                found.push(format!("Port \"{}\" has an invalid static port {}", port.label, port.value));
            } else if !port.ignore_collision {
                let name = format!("{owner}:{}", port.label);
                if let Some(other) = statics.insert((&port.host_network, port.value), name) {
                    found.push(format!("Static port {} already reserved by {other}", port.value));
                }
            }
        }
    }
    if !found.is_empty() {
        errors.push(format!("Task group network validation failed: {}", joined(&found)));
    }
}

fn mode(network: &Network, errors: &mut Vec<String>) {
    match network.mode.as_str() {
        "" | "host" | "bridge" | "none" => {}
        mode if mode.starts_with("cni/") && mode.len() > 4 => {}
        other => errors.push(one_of("Invalid network mode", other, &["host", "bridge", "none", "cni/NAME"])),
    }
    if !network.hostname.is_empty() && !network.hostname.contains("${") && !is_domain(&network.hostname) {
        errors.push(format!("Hostname is not a valid DNS name: \"{}\"", network.hostname));
    }
}

/// Returns whether a text is a DNS name: labels of letters, digits and dashes, at most 253 characters together.
fn is_domain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Returns whether a text is one label of a DNS name (RFC 1123): at most 63 letters, digits and dashes, no dash at an
/// end.
pub(super) fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}
