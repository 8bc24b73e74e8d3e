//! Which evaluations follow from a change of a node.

use crate::core::{Core, new_id};
use crate::error::ServerError;
use caravan_state::Root;
use caravan_types::command::{Change, NodeChange, Refusal};
use caravan_types::eval::{EvalStatus, Evaluation, Trigger};
use caravan_types::job::Job;
use caravan_types::{EvalId, JobKey, NodeId, UnixNanos};
use std::collections::BTreeSet;

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

/// Evaluations of all jobs that the node concerns.
pub(crate) fn for_node(root: &Root, node: &NodeId, trigger: Trigger, now: UnixNanos) -> Vec<Evaluation> {
    let jobs = root.jobs_of_node(node);
    let jobs = jobs.iter().filter_map(|key| root.job(key));
    jobs.map(|job| Evaluation { node_id: node.clone(), ..evaluation(job, trigger, now) }).collect()
}

/// What became of a change of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUpdated {
    /// Index of the change.
    pub index: u64,
    /// Evaluations that follow from it.
    pub evals: Vec<EvalId>,
}

/// Makes a change of a node that all jobs that it concerns must hear of. It is decided anew as long as others come to
/// be concerned meanwhile; none: there is nothing to change any more.
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
