//! The selection of objects that are eligible for garbage collection. Pure.

use caravan_state::Root;
use caravan_types::alloc::{Allocation, ClientStatus, DesiredStatus};
use caravan_types::command::Change;
use caravan_types::eval::Evaluation;
use caravan_types::job::{Job, JobStatus};
use caravan_types::node::{Node, NodeStatus};
use caravan_types::{AllocId, DeploymentId, EvalId, JobKey, Nanos, UnixNanos};
use std::collections::BTreeSet;

/// The maximum number of rows that one command removes, to bound its size.
const BATCH: usize = 2_048;

/// The minimum ages of ended objects; with all zero, every ended object is eligible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// The age of evaluations, with their allocations.
    pub evals: Nanos,
    /// The age of evaluations of stopped batch jobs, with their allocations.
    pub batch_evals: Nanos,
    /// The age of jobs, with all their objects.
    pub jobs: Nanos,
    /// The age of deployments.
    pub deployments: Nanos,
    /// The age of nodes that are down.
    pub nodes: Nanos,
}

/// Returns whether an object whose last change was at a time has the minimum age.
fn old(at: UnixNanos, age: Nanos, now: UnixNanos) -> bool {
    age <= Nanos::ZERO || at.plus(age) <= now
}

/// Returns changes that remove ended objects of the minimum age on which no other object depends.
pub(crate) fn collectable(root: &Root, ages: &Ages, now: UnixNanos) -> Vec<Change> {
    let jobs: BTreeSet<JobKey> =
        root.jobs().filter(|job| job_goes(root, job, ages.jobs, now)).map(|job| job.key()).collect();
    let with_job = |key: &JobKey| jobs.contains(key);
    let mut evals: BTreeSet<EvalId> = BTreeSet::new();
    let mut allocs: BTreeSet<AllocId> = BTreeSet::new();
    for eval in root.evals().filter(|eval| eval.status.is_terminal()) {
        let of_eval: Vec<_> = root.allocs_by_eval(&eval.id).collect();
        let key = eval.job_key();
        let age = age_of(root, eval, ages);
        let goes = with_job(&key) || age.is_some_and(|age| old(eval.modify_time, age, now));
        let alloc_goes = |alloc: &Allocation| {
            (with_job(&alloc.job_key()) || age.is_some_and(|age| old(alloc.modify_time, age, now)))
                && alloc_goes(root, alloc, &jobs)
        };
        let (gone, kept): (Vec<_>, Vec<_>) = of_eval.into_iter().partition(|alloc| alloc_goes(alloc));
        allocs.extend(gone.into_iter().map(|alloc| alloc.id.clone()));
        if goes && kept.is_empty() {
            evals.insert(eval.id.clone());
        }
    }
    // Allocations whose evaluation no longer exists.
    let orphans = root.allocs().filter(|alloc| root.eval(&alloc.eval_id).is_none());
    let orphans = orphans.filter(|a| old(a.modify_time, ages.evals, now) && alloc_goes(root, a, &jobs));
    allocs.extend(orphans.map(|alloc| alloc.id.clone()));

    let mut changes: Vec<Change> = Vec::new();
    let (evals, allocs): (Vec<_>, Vec<_>) = (evals.into_iter().collect(), allocs.into_iter().collect());
    changes.extend(
        allocs.chunks(BATCH).map(|part| Change::Collect { evals: Vec::new(), allocs: part.to_vec() }),
    );
    changes
        .extend(evals.chunks(BATCH).map(|part| Change::Collect { evals: part.to_vec(), allocs: Vec::new() }));
    changes.extend(jobs.iter().map(|key| Change::JobDeregister {
        key: key.clone(),
        purge: true,
        eval: None,
    }));
    let deployments: Vec<DeploymentId> = root
        .deployments()
        .filter(|row| row.status.is_terminal() && old(row.modify_time, ages.deployments, now))
        .filter(|row| !root.allocs_by_job(&row.job_key()).any(|a| row.holds(a) && !a.terminal()))
        .map(|row| row.id.clone())
        .collect();
    changes.extend(
        deployments.chunks(BATCH).map(|part| Change::DeploymentsCollect { deployments: part.to_vec() }),
    );
    let nodes = root.nodes().filter(|node| node_goes(root, node, ages.nodes, now));
    changes.extend(nodes.map(|node| Change::NodeDelete { node: node.id.clone(), evals: Vec::new() }));
    changes
}

/// Returns the minimum age of an evaluation; `None` if it is kept as long as its job.
fn age_of(root: &Root, eval: &Evaluation, ages: &Ages) -> Option<Nanos> {
    match root.job(&eval.job_key()) {
        // Keep the results of a batch job, because the scheduler would run it again without them.
        Some(job) if job.kind.is_batch() => job.is_stopped().then_some(ages.batch_evals),
        _ => Some(ages.evals),
    }
}

/// Returns whether a job has ended permanently, with all its objects.
fn job_goes(root: &Root, job: &Job, age: Nanos, now: UnixNanos) -> bool {
    let template = job.periodic.is_some() || (job.parameterized_job.is_some() && !job.dispatched);
    let done = job.is_stopped() || (job.kind.is_batch() && !template);
    let key = job.key();
    done && job.status == JobStatus::Dead
        && old(job.submit_time, age, now)
        && root.evals_by_job(&key).all(|e| e.status.is_terminal() && old(e.modify_time, age, now))
        && root
            .allocs_by_job(&key)
            .all(|a| a.client_terminal() && old(a.modify_time, age, now) && !is_claimed(root, a))
        && root.deployments_by_job(&key).all(|d| d.status.is_terminal())
}

fn is_claimed(root: &Root, alloc: &Allocation) -> bool {
    root.claims_by_alloc(&alloc.id).any(|claim| claim.phase.holds())
}

/// Whether the successor of an allocation has not started: it may still take over the data of its sticky disk.
fn is_awaited(root: &Root, alloc: &Allocation) -> bool {
    let next = root.alloc(&alloc.next_allocation);
    next.is_some_and(|next| !next.terminal() && next.client_status == ClientStatus::Pending)
}

/// Returns whether an allocation is no longer needed. `jobs` are removed as a whole.
fn alloc_goes(root: &Root, alloc: &Allocation, jobs: &BTreeSet<JobKey>) -> bool {
    if !alloc.client_terminal() || is_claimed(root, alloc) || is_awaited(root, alloc) {
        return false;
    }
    let key = alloc.job_key();
    let Some(job) = root.job(&key).filter(|_| !jobs.contains(&key)) else { return true };
    if job.is_stopped() {
        return true;
    }
    let same = alloc.job.as_ref().is_none_or(|ran| ran.create_index == job.create_index);
    if job.kind.is_batch() && same {
        return false;
    }
    // A failed allocation without a successor prevents another placement, or will be rescheduled.
    let keeps = alloc.client_status == ClientStatus::Failed
        && alloc.desired_status == DesiredStatus::Run
        && alloc.next_allocation.is_empty();
    !(keeps && same)
}

/// Returns whether a node has been down for the minimum age, and no allocation, claim or host volume keeps its row.
fn node_goes(root: &Root, node: &Node, age: Nanos, now: UnixNanos) -> bool {
    let since = UnixNanos(node.status_updated_at.saturating_mul(1_000_000_000));
    node.status == NodeStatus::Down
        && old(since, age, now)
        && root.allocs_by_node(&node.id).all(|alloc| alloc.client_terminal())
        && !root.claims_by_node(&node.id).any(|claim| claim.phase.holds())
        && root.host_volumes_by_node(&node.id).next().is_none_or(|_| node.gc_volumes_on_node_gc)
}

#[cfg(test)]
mod tests;
