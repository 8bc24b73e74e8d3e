//! Metrics of a server: its queues, the log, jobs and volumes.

use super::{Figures, count, signed, volumes, whole};
use caravan_server::Handle;
use caravan_state::Root;
use caravan_types::JobKey;
use caravan_types::job::JobStatus;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) fn add(figures: &mut Figures, server: &Handle) {
    let root = server.store().snapshot();
    of_queues(figures, server, &root);
    of_log(figures, server);
    of_jobs(figures, &root);
    volumes::add(figures, &server.volumes().figures());
    figures.measured("nomad.nomad.", server.meters().readings(), &json!({}));
}

fn of_queues(figures: &mut Figures, server: &Handle, root: &Root) {
    let none = json!({});
    let queues = server.scheduling().queues();
    let (mut ready, mut unacked) = (0, 0);
    for (kind, (waiting, with_workers)) in &queues.kinds {
        (ready, unacked) = (ready + waiting, unacked + with_workers);
        figures.gauge(&format!("nomad.nomad.broker.{kind}_ready"), count(*waiting), &none);
        figures.gauge(&format!("nomad.nomad.broker.{kind}_unacked"), count(*with_workers), &none);
    }
    for (name, n) in [
        ("nomad.nomad.broker.total_ready", ready),
        ("nomad.nomad.broker.total_unacked", unacked),
        ("nomad.nomad.broker.total_pending", queues.behind),
        ("nomad.nomad.broker.total_waiting", queues.delayed),
        ("nomad.nomad.broker.total_cancelable", queues.moot),
        ("nomad.nomad.blocked_evals.total_blocked", queues.blocked.len()),
        ("nomad.nomad.blocked_evals.total_escaped", queues.escaped),
        ("nomad.nomad.plan.queue_depth", queues.plans),
        ("nomad.nomad.heartbeat.active", queues.heartbeats),
    ] {
        figures.gauge(name, count(n), &none);
    }
    for key in &queues.blocked {
        let (cpu, memory) = waits_for(root, key);
        let labels = json!({"job": key.id, "namespace": key.namespace});
        figures.gauge("nomad.nomad.blocked_evals.job.cpu", signed(cpu), &labels);
        figures.gauge("nomad.nomad.blocked_evals.job.memory", signed(memory), &labels);
    }
}

/// Returns the MHz and MB that the queued allocations of a job request.
fn waits_for(root: &Root, key: &JobKey) -> (i64, i64) {
    let (Some(job), Some(summary)) = (root.job(key), root.job_summary(key)) else { return (0, 0) };
    let of_group = job.task_groups.iter().map(|group| {
        let queued = summary.summary.get(&group.name).map_or(0, |counts| counts.queued);
        let queued = i64::from(queued);
        let (cpu, memory) = group.tasks.iter().fold((0_i64, 0_i64), |(cpu, memory), task| {
            (cpu.saturating_add(task.resources.cpu), memory.saturating_add(task.resources.memory_mb))
        });
        (cpu.saturating_mul(queued), memory.saturating_mul(queued))
    });
    of_group.fold((0, 0), |sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)))
}

fn of_log(figures: &mut Figures, server: &Handle) {
    let none = json!({});
    let log = server.log_metrics();
    figures.gauge("nomad.raft.appliedIndex", whole(log.applied_index), &none);
    figures.gauge("nomad.raft.lastIndex", whole(log.last_log_index), &none);
    figures.gauge("nomad.raft.term", whole(log.term), &none);
    figures.gauge("nomad.raft.isLeader", if log.is_leader { 1.0 } else { 0.0 }, &none);
    // Only the leader measures the servers. A leader without a quorum may be one of several.
    if log.is_leader {
        let (cluster, health) = (server.cluster(), server.cluster().health());
        let is_healthy = cluster.knows_leader() && health.servers.iter().all(|server| server.healthy);
        figures.gauge("nomad.nomad.autopilot.healthy", if is_healthy { 1.0 } else { 0.0 }, &none);
        figures.gauge("nomad.nomad.autopilot.failure_tolerance", count(health.failure_tolerance()), &none);
        let contact = cluster.last_contact().unwrap_or_default().as_millis();
        figures.gauge(
            "nomad.raft.leader.lastContact",
            whole(u64::try_from(contact).unwrap_or(u64::MAX)),
            &none,
        );
    }
}

fn of_jobs(figures: &mut Figures, root: &Root) {
    let none = json!({});
    figures.gauge("nomad.state.latestIndex", whole(root.index()), &none);
    figures.gauge("nomad.state.nodes", count(root.nodes().count()), &none);
    figures.gauge("nomad.state.jobs", count(root.jobs().count()), &none);
    figures.gauge("nomad.state.allocations", count(root.allocs().count()), &none);
    let names =
        ["nomad.nomad.job_status.pending", "nomad.nomad.job_status.running", "nomad.nomad.job_status.dead"];
    let mut statuses: BTreeMap<&str, usize> = names.map(|name| (name, 0)).into();
    for job in root.jobs() {
        let name = match job.status {
            JobStatus::Pending => names[0],
            JobStatus::Running => names[1],
            JobStatus::Dead => names[2],
        };
        *statuses.entry(name).or_default() += 1;
        let Some(summary) = root.job_summary(&job.key()) else { continue };
        for (group, counts) in &summary.summary {
            let mut labels = json!({"job": job.id, "task_group": group, "namespace": job.namespace, "exported_job": job.id});
            of_parent(&mut labels, job.parent_id.as_str(), job.dispatched);
            for (name, n) in [
                ("queued", counts.queued),
                ("complete", counts.complete),
                ("failed", counts.failed),
                ("running", counts.running),
                ("starting", counts.starting),
                ("lost", counts.lost),
                ("unknown", counts.unknown),
            ] {
                let name = format!("nomad.nomad.job_summary.{name}");
                figures.gauge(&name, whole(u64::from(n)), &labels);
            }
        }
    }
    for (name, n) in statuses {
        figures.gauge(name, count(n), &none);
    }
}

/// Labels child jobs with their parent, so that graphs can aggregate them.
fn of_parent(labels: &mut Value, parent: &str, dispatched: bool) {
    let id = labels["job"].as_str().unwrap_or_default();
    let Some((_, child)) = id.split_once(parent).filter(|_| !parent.is_empty()) else { return };
    let child = child.rsplit('/').next().unwrap_or_default().to_owned();
    let child = child.strip_prefix(if dispatched { "dispatch-" } else { "periodic-" }).unwrap_or(&child);
    labels[if dispatched { "dispatch_id" } else { "periodic_id" }] = json!(child);
    labels["parent_id"] = json!(parent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_name_their_parent() {
        let mut labels = json!({"job": "backup/periodic-1795252800"});
        of_parent(&mut labels, "backup", false);
        assert_eq!(labels["periodic_id"], "1795252800");
        let mut labels = json!({"job": "encode/dispatch-1795252800-0a1b2c3d"});
        of_parent(&mut labels, "encode", true);
        assert_eq!(
            (&labels["dispatch_id"], &labels["parent_id"]),
            (&json!("1795252800-0a1b2c3d"), &json!("encode"))
        );
        let mut labels = json!({"job": "web"});
        of_parent(&mut labels, "", false);
        assert_eq!(labels, json!({"job": "web"}));
    }
}
