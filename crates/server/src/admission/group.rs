//! Rules for groups.

use super::{constraints, joined, service, task, unheeded, volume};
use caravan_types::Nanos;
use caravan_types::job::{DisconnectStrategy, Job, JobType, Network, RestartMode, RestartPolicy, TaskGroup};
use std::collections::{BTreeMap, HashSet};

pub(super) fn check(job: &Job, group: &TaskGroup) -> (Vec<String>, Vec<String>) {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    if group.tasks.is_empty() {
        errors.push("Missing tasks for task group".into());
    } else if !group.tasks.iter().any(caravan_types::job::Task::is_main) {
        errors.push("Task group must have at least one main task: one without a lifecycle block".into());
    }
    if job.kind == JobType::System && group.count > 1 {
        errors.push(format!(
            "Job task group {} has count {}. Count cannot exceed 1 with system scheduler",
            group.name, group.count
        ));
    }
    if group.tasks.iter().filter(|t| t.leader).count() > 1 {
        errors.push("Only one task may be marked as leader".into());
    }
    if group.max_run_duration.is_some() && !job.kind.is_batch() {
        errors.push("max_run_duration may only be set on batch and sysbatch jobs".into());
    }
    constraints(&group.constraints, true, &mut errors);
    match &group.restart_policy {
        Some(policy) => restart(policy, &mut errors),
        None => errors.push(format!("Task Group {} should have a restart policy", group.name)),
    }
    if let Some(block) = &group.disconnect {
        disconnect(job, block, &mut errors);
    }
    match group.ephemeral_disk {
        Some(disk) if disk.size_mb < 10 => {
            errors.push(format!("minimum DiskMB value is 10; got {}", disk.size_mb));
        }
        Some(_) => {}
        None => errors.push(format!("Task Group {} should have an ephemeral disk object", group.name)),
    }
    networks(&group.networks, &mut errors);
    volume::requests(job, group, &mut errors);
    service::check(&format!("group \"{}\"", group.name), None, &group.services, &mut errors, &mut warnings);
    warnings.extend(unheeded::of_group(job, group));
    let mut names = HashSet::new();
    for (index, task) in group.tasks.iter().enumerate() {
        if task.name.is_empty() {
            errors.push(format!("Task {} missing name", index + 1));
        } else if !names.insert(&task.name) {
            errors.push(format!("Task {} redefines '{}' from an earlier task", index + 1, task.name));
        }
        let (found, more) = task::check(job, group, task);
        if !found.is_empty() {
            errors.push(format!("Task {} validation failed: {}", task.name, joined(&found)));
        }
        warnings.extend(more);
    }
    (errors, warnings)
}

pub(super) fn restart(policy: &RestartPolicy, errors: &mut Vec<String>) {
    if policy.attempts == 0 && policy.mode != RestartMode::Fail {
        errors.push("Restart policy \"delay\" with 0 attempts is ambiguous: use mode \"fail\"".into());
        return;
    }
    if policy.attempts == 0 {
        return;
    }
    if policy.interval < Nanos::from_secs(5) {
        errors.push(format!("Interval can not be less than 5s (got {})", policy.interval));
    }
    if policy.delay.0.saturating_mul(i64::from(policy.attempts)) > policy.interval.0 {
        errors.push(format!(
            "Nomad can't restart the TaskGroup {} times in an interval of {} with a delay of {}",
            policy.attempts, policy.interval, policy.delay
        ));
    }
}

/// Rules for `disconnect` blocks (`jobspec` section 6).
fn disconnect(job: &Job, block: &DisconnectStrategy, errors: &mut Vec<String>) {
    if block.lost_after < Nanos::ZERO || block.stop_on_client_after.is_some_and(|span| span < Nanos::ZERO) {
        errors.push("disconnect: durations cannot be negative".into());
    }
    if block.stop_on_client_after.is_some() {
        if block.lost_after > Nanos::ZERO {
            errors.push("disconnect: lost_after and stop_on_client_after exclude each other".into());
        }
        if job.kind.is_system() {
            errors.push("disconnect: stop_on_client_after is for service and batch jobs only".into());
        }
    }
    let known = ["", "best_score", "keep_original", "keep_replacement", "longest_running"];
    if !known.contains(&block.reconcile.as_str()) {
        errors.push(format!(
            "disconnect: reconcile is \"{}\", but must be one of {}",
            block.reconcile,
            known[1..].join(", ")
        ));
    }
}

fn networks(networks: &[Network], errors: &mut Vec<String>) {
    let mut labels: HashSet<&str> = HashSet::new();
    let mut statics: BTreeMap<(&str, i64), &str> = BTreeMap::new();
    for network in networks {
        if !matches!(network.mode.as_str(), "" | "host") {
            errors.push(format!("network mode \"{}\" is not supported yet: use \"host\"", network.mode));
        }
        for port in network.reserved_ports.iter().chain(&network.dynamic_ports) {
            if port.label.is_empty() {
                errors.push("Port label can not be empty".into());
            } else if !labels.insert(&port.label) {
                errors.push(format!("Port label {} already in use", port.label));
            }
            if port.to < -1 || port.to > 65_535 {
                errors.push(format!(
                    "Port \"{}\" cannot be mapped to a port ({}) greater than 65535",
                    port.label, port.to
                ));
            }
        }
        for port in network.reserved_ports.iter().filter(|p| !p.ignore_collision) {
            if port.value < 1 || port.value > 65_535 {
                errors.push(format!("Port \"{}\" has an invalid static port {}", port.label, port.value));
            }
            if let Some(other) = statics.insert((&port.host_network, port.value), &port.label) {
                errors.push(format!("Static port {} already reserved by {other}", port.value));
            }
        }
    }
}
