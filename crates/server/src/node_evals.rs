//! Which evaluations follow from a change of a node. Pure.

use crate::core::new_id;
use caravan_state::Root;
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::{Job, JobType};
use caravan_types::{JobKey, NodeId, UnixNanos};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An evaluation of a job.
pub(crate) fn evaluation(job: &Job, trigger: Trigger, now: UnixNanos) -> Evaluation {
    Evaluation {
        id: new_id().into(),
        namespace: job.namespace.clone(),
        priority: job.priority,
        kind: job.kind.as_str().to_owned(),
        triggered_by: trigger,
        job_id: job.id.clone(),
        job_modify_index: job.job_modify_index,
        status: EvalStatus::Pending,
        create_time: now,
        modify_time: now,
        ..Default::default()
    }
}

/// Evaluations of the jobs with live allocations on the node, and of all system jobs.
pub(crate) fn for_node(root: &Root, node: &NodeId, trigger: Trigger, now: UnixNanos) -> Vec<Evaluation> {
    let with_allocs = root.allocs_by_node(node).filter(|a| !a.terminal()).map(|a| a.job_key());
    let system =
        root.jobs().filter(|job| job.kind == JobType::System && !job.is_stopped()).map(|job| job.key());
    let keys: BTreeSet<JobKey> = with_allocs.chain(system).collect();
    keys.iter()
        .filter_map(|key| root.job(key))
        .map(|job: &Arc<Job>| Evaluation { node_id: node.clone(), ..evaluation(job, trigger, now) })
        .collect()
}

/// Evaluations that follow from what clients report: failed allocations and those that come back from
/// being unknown are looked at again, once per job.
pub(crate) fn for_updates(
    root: &Root,
    updates: &[caravan_types::alloc::AllocUpdate],
    now: UnixNanos,
) -> Vec<Evaluation> {
    use caravan_types::alloc::ClientStatus;
    let keys: BTreeSet<JobKey> = updates
        .iter()
        .filter(|u| u.client_status == ClientStatus::Failed)
        .filter_map(|u| root.alloc(&u.alloc_id))
        .filter(|a| !a.client_terminal() && !a.server_terminal())
        .map(|a| a.job_key())
        .collect();
    let back: BTreeSet<JobKey> = updates
        .iter()
        .filter(|u| u.client_status == ClientStatus::Running)
        .filter_map(|u| root.alloc(&u.alloc_id))
        .filter(|a| a.client_status == ClientStatus::Unknown)
        .map(|a| a.job_key())
        .filter(|key| !keys.contains(key))
        .collect();
    let failed = keys.iter().map(|key| (key, Trigger::AllocFailure));
    failed
        .chain(back.iter().map(|key| (key, Trigger::Reconnect)))
        .filter_map(|(key, trigger)| Some((root.job(key)?, trigger)))
        .filter(|(job, _)| !job.is_stopped())
        .map(|(job, trigger)| evaluation(job, trigger, now))
        .collect()
}
