//! The evaluations that follow from a change of a node.

use crate::core::{Core, new_id};
use crate::error::ServerError;
use caravan_state::Root;
use caravan_types::alloc::{AllocUpdate, Allocation, ClientStatus, event};
use caravan_types::command::{Change, NodeChange, Refusal};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::Job;
use caravan_types::{EvalId, JobKey, NodeId, UnixNanos};
use std::collections::BTreeMap;

/// Returns an evaluation of a job.
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

/// Returns evaluations of all jobs that the node concerns.
pub(crate) fn for_node(root: &Root, node: &NodeId, trigger: Trigger, now: UnixNanos) -> Vec<Evaluation> {
    let jobs = root.jobs_of_node(node);
    let jobs = jobs.iter().filter_map(|key| root.job(key));
    jobs.map(|job| Evaluation { node_id: node.clone(), ..evaluation(job, trigger, now) }).collect()
}

/// The result of a change of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUpdated {
    /// The index of the change.
    pub index: u64,
    /// The evaluations that the change creates.
    pub evals: Vec<EvalId>,
}

/// Commits a change of a node with evaluations of all jobs that the node concerns. If the node concerns more jobs
/// meanwhile, the change is computed again. Returns `None` if no change is needed any more.
pub(crate) async fn commit(
    core: &Core,
    node: &NodeId,
    trigger: Trigger,
    change: impl Fn(&Root, Vec<Evaluation>) -> Option<NodeChange>,
) -> Result<Option<NodeUpdated>, ServerError> {
    loop {
        let root = core.snapshot();
        let evals = for_node(&root, node, trigger, core.now());
        let ids = evals.iter().map(|eval| eval.id.clone()).collect();
        let Some(change) = change(&root, evals) else { return Ok(None) };
        let whole = Change::NodeWhole { node: node.clone(), change: Box::new(change) };
        let outcome = core.propose(whole).await?;
        match outcome.refused {
            None => return Ok(Some(NodeUpdated { index: outcome.index, evals: ids })),
            Some(Refusal::Changed { .. }) => drop(core.store.wait_for_index(outcome.index).await),
            Some(refusal) => return Err(refusal.into()),
        }
    }
}

/// Returns the evaluations that follow from clients' reports. A job gets one evaluation if one of its allocations
/// failed or is no longer unknown. It also gets one if it runs until it is stopped, and its node stopped an
/// allocation.
///
/// The last case follows a restore: the snapshot has a job that was stopped later, and the node reports the
/// allocations as stopped. A task that exits creates no evaluation. Without restarts in its group, the job would be
/// placed many times a second.
pub(crate) fn for_updates(root: &Root, updates: &[AllocUpdate], now: UnixNanos) -> Vec<Evaluation> {
    let trigger = |update: &AllocUpdate| {
        let alloc = root.alloc(&update.alloc_id)?;
        let job = root.job(&alloc.job_key()).filter(|job| !job.is_stopped())?;
        let ends = !alloc.client_terminal() && !alloc.server_terminal();
        let trigger = match update.client_status {
            ClientStatus::Failed if ends => Trigger::AllocFailure,
            ClientStatus::Complete if ends && !job.kind.is_batch() && is_killed(alloc, update) => {
                Trigger::AllocStop
            }
            ClientStatus::Running if alloc.client_status == ClientStatus::Unknown => Trigger::Reconnect,
            _ => return None,
        };
        Some((alloc.job_key(), trigger))
    };
    let mut triggers: BTreeMap<JobKey, Trigger> = BTreeMap::new();
    for (key, trigger) in updates.iter().filter_map(trigger) {
        let first = triggers.entry(key).or_insert(trigger);
        // A failure decides whether the next attempt waits.
        if trigger == Trigger::AllocFailure {
            *first = trigger;
        }
    }
    triggers.iter().filter_map(|(key, trigger)| Some(evaluation(root.job(key)?, *trigger, now))).collect()
}

/// Returns whether the node killed all main tasks of the allocation.
fn is_killed(alloc: &Allocation, update: &AllocUpdate) -> bool {
    let Some(group) = alloc.group() else { return false };
    let is_killed = |task: &str| {
        let state = update.task_states.get(task);
        state.is_some_and(|state| state.events.iter().any(|found| found.kind.as_str() == event::KILLED))
    };
    group.tasks.iter().filter(|task| task.is_main()).all(|task| is_killed(&task.name))
}
