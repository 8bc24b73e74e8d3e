//! The decision about the next step of a deployment. Pure.

use caravan_scheduler::can_reschedule;
use caravan_state::Root;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::deployment::{Deployment, DeploymentState, DeploymentStatus, description};
use caravan_types::job::Job;
use caravan_types::{AllocId, Nanos, UnixNanos};
use std::sync::Arc;

/// The next step of a deployment; the default changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Step {
    /// The final status of the deployment, and its description.
    pub(crate) end: Option<(DeploymentStatus, String)>,
    /// The version to which the job reverts when the deployment ends.
    pub(crate) revert: Option<Arc<Job>>,
    /// Whether the canaries are promoted.
    pub(crate) promote: bool,
    /// Failed allocations that may be rescheduled.
    pub(crate) reschedule: Vec<AllocId>,
    /// Whether to create an evaluation of the job, so that the next allocations may be updated.
    pub(crate) evaluate: bool,
    /// The time of the next check, if nothing changes before.
    pub(crate) again: Option<UnixNanos>,
}

/// Decides about one deployment.
pub(crate) fn decide(root: &Root, row: &Deployment, now: UnixNanos) -> Step {
    if row.status != DeploymentStatus::Running {
        return Step::default();
    }
    let key = row.job_key();
    let allocs: Vec<&Arc<Allocation>> = root.allocs_by_job(&key).filter(|a| row.holds(a)).collect();
    if is_complete(root, row) {
        let end = (DeploymentStatus::Successful, description::SUCCESSFUL.to_owned());
        return Step { end: Some(end), ..Step::default() };
    }
    let mut step = Step::default();
    for alloc in allocs.iter().filter(|a| a.health() == Some(false) && !a.server_terminal()) {
        let Some(group) = row.task_groups.get(alloc.task_group.as_str()) else { continue };
        match fate(group, alloc) {
            Fate::Wait => {}
            Fate::TryAgain => step.reschedule.push(alloc.id.clone()),
            Fate::Fail => return failed(root, row, description::UNHEALTHY, group.auto_revert),
        }
    }
    let late = |group: &&DeploymentState| deadline(group).is_some_and(|by| by <= now);
    let mut late = row.task_groups.values().filter(late).peekable();
    if late.peek().is_some() {
        return failed(root, row, description::NO_PROGRESS, late.any(|group| group.auto_revert));
    }
    step.again = row.task_groups.values().filter_map(deadline).min();
    let looked = root.evals_by_job(&key).map(|eval| eval.create_index).max().unwrap_or(0);
    let news = |alloc: &&&Arc<Allocation>| {
        alloc.deployment_status.as_ref().is_some_and(|s| s.healthy == Some(true) && s.modify_index > looked)
    };
    step.promote = row.needs_promotion() && row.promotes_itself() && canaries_are_well(root, row);
    step.evaluate = step.promote || !step.reschedule.is_empty() || allocs.iter().any(|a| news(&a));
    step
}

/// The consequence of an unhealthy allocation.
enum Fate {
    Wait,
    TryAgain,
    Fail,
}

fn fate(group: &DeploymentState, alloc: &Allocation) -> Fate {
    if group.progress_deadline <= Nanos::ZERO {
        return Fate::Fail;
    }
    // The allocation is replaced already, or still runs and may recover until the deadline.
    if alloc.client_status != ClientStatus::Failed || !alloc.next_allocation.is_empty() {
        return Fate::Wait;
    }
    match (can_reschedule(alloc), alloc.desired_transition.reschedule) {
        (false, _) => Fate::Fail,
        (true, Some(true)) => Fate::Wait,
        (true, _) => Fate::TryAgain,
    }
}

/// Returns the progress deadline of a group; `None` if no progress is expected at this moment.
fn deadline(group: &DeploymentState) -> Option<UnixNanos> {
    let enough = if group.is_canarying() { group.desired_canaries } else { group.desired_total };
    let waits = group.progress_deadline > Nanos::ZERO
        && !group.require_progress_by.is_zero()
        && group.healthy_allocs < enough;
    waits.then(|| group.require_progress_by.to_unix())
}

/// Whether the desired number of allocations is healthy, and no allocation of an earlier version remains.
fn is_complete(root: &Root, row: &Deployment) -> bool {
    let done = |group: &DeploymentState| !group.is_canarying() && group.healthy_allocs >= group.desired_total;
    if row.task_groups.is_empty() || !row.task_groups.values().all(done) {
        return false;
    }
    let older = |alloc: &Arc<Allocation>| {
        let newest = alloc
            .job
            .as_ref()
            .is_some_and(|job| job.version == row.job_version && job.create_index == row.job_create_index);
        !alloc.terminal() && alloc.client_status != ClientStatus::Unknown && !newest
    };
    let mut allocs =
        root.allocs_by_job(&row.job_key()).filter(|a| row.task_groups.contains_key(a.task_group.as_str()));
    !allocs.any(older)
}

/// Returns whether every group has its desired number of healthy canaries.
fn canaries_are_well(root: &Root, row: &Deployment) -> bool {
    let well = |id: &&AllocId| root.alloc(id).is_some_and(|a| a.health() == Some(true) && !a.terminal());
    row.task_groups.values().filter(|group| group.is_canarying()).all(|group| {
        let ready = group.placed_canaries.iter().filter(well).count();
        u32::try_from(ready).is_ok_and(|ready| ready >= group.desired_canaries)
    })
}

/// Returns the end of a failed deployment. `reverts` states that a failed group requests a revert to the last stable
/// version.
pub(crate) fn failed(root: &Root, row: &Deployment, why: &str, reverts: bool) -> Step {
    let (text, revert) = match reverts {
        false => (why.to_owned(), None),
        true => match target(root, row) {
            None => (format!("{why} - no stable job version to auto revert to"), None),
            Some((job, true)) => (
                format!(
                    "{why} - not rolling back to stable job version {} as current job has same specification",
                    job.version
                ),
                None,
            ),
            Some((job, false)) => (format!("{why} - rolling back to job version {}", job.version), Some(job)),
        },
    };
    Step { end: Some((DeploymentStatus::Failed, text)), revert, evaluate: true, ..Step::default() }
}

/// Returns the newest stable version before the failed version, and whether both versions have the same
/// specification. Returns `None` once the job has a newer version.
fn target(root: &Root, row: &Deployment) -> Option<(Arc<Job>, bool)> {
    let key = row.job_key();
    let current = root.job(&key).filter(|job| job.version == row.job_version)?;
    let stable = root.job_versions(&key).find(|job| job.stable && job.version < row.job_version)?;
    Some((stable.clone(), stable.same_spec(current)))
}

#[cfg(test)]
mod tests;
