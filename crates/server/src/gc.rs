//! What an explicit `system gc` collects. Pure.

use caravan_state::Root;
use caravan_types::alloc::Allocation;
use caravan_types::command::Change;
use caravan_types::job::JobStatus;
use caravan_types::{AllocId, EvalId, JobKey};
use std::collections::BTreeSet;

/// Changes that remove everything that is over and that nothing holds on to.
pub(crate) fn collectable(root: &Root) -> Vec<Change> {
    let allocs: BTreeSet<AllocId> = root
        .allocs()
        .filter(|a| a.client_terminal() && a.terminal() && unneeded(root, a))
        .map(|a| a.id.clone())
        .collect();
    let evals: Vec<EvalId> = root
        .evals()
        .filter(|e| e.status.is_terminal())
        .filter(|e| root.allocs_by_eval(&e.id).all(|a| allocs.contains(&a.id)))
        .map(|e| e.id.clone())
        .collect();
    let dead: Vec<JobKey> = root
        .jobs()
        .filter(|j| j.is_stopped() && j.status == JobStatus::Dead)
        .filter(|j| root.allocs_by_job(&j.key()).all(|a| allocs.contains(&a.id)))
        .map(|j| j.key())
        .collect();
    let mut changes = Vec::new();
    if !evals.is_empty() || !allocs.is_empty() {
        changes.push(Change::Collect { evals, allocs: allocs.into_iter().collect() });
    }
    changes.extend(dead.into_iter().map(|key| Change::JobDeregister { key, purge: true, eval: None }));
    changes
}

/// Whether neither a claim nor a running batch job still needs to know of the allocation.
fn unneeded(root: &Root, alloc: &Allocation) -> bool {
    let claimed = root.claims_by_alloc(&alloc.id).any(|c| c.phase.holds());
    // Completed batch work must be remembered, or it would run again.
    let batch = root.job(&alloc.job_key()).is_some_and(|j| j.kind.is_batch() && !j.is_stopped());
    !claimed && !batch
}
