//! The deployment of a job's version during reconciliation (docs/reference/http-api.md, section 6.3): whether one
//! exists, whether it is active, and the contents of a new one.

use crate::view::View;
use caravan_types::DeploymentId;
use caravan_types::alloc::Allocation;
use caravan_types::deployment::{Deployment, DeploymentState, DeploymentStatus, Verdict, description};
use caravan_types::eval::Evaluation;
use caravan_types::job::{Job, TaskGroup, UpdateStrategy};
use caravan_types::{JobKey, Nanos};

/// The deployment of the current version.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    deployment: Option<Deployment>,
    /// Whether the deployment does not exist in the state yet.
    fresh: bool,
    /// Whether the plan writes the deployment.
    changed: bool,
    /// Whether the version was rolled out successfully before.
    done: bool,
    /// The deployments that end with the plan.
    pub ended: Vec<Verdict>,
}

/// Ends the active deployments of a stopped or deregistered job.
pub(crate) fn end_all<V: View>(view: &V, key: &JobKey) -> Vec<Verdict> {
    let active = view.deployments_by_job(key).filter(|row| !row.status.is_terminal());
    active.map(|row| cancelled(row, description::JOB_STOPPED)).collect()
}

fn cancelled(row: &Deployment, why: &str) -> Verdict {
    Verdict { id: row.id.clone(), status: DeploymentStatus::Cancelled, description: why.to_owned() }
}

impl Rollout {
    /// Returns the deployment of the newest version, and ends the deployments of other versions. `id` is for a new
    /// deployment.
    pub fn new<V: View>(view: &V, job: &Job, eval: &Evaluation, id: DeploymentId) -> Self {
        let mut rollout = Self::default();
        let mut newest: Option<&Deployment> = None;
        let key = job.key();
        for row in view.deployments_by_job(&key) {
            let same = row.job_create_index == job.create_index && row.job_version == job.version;
            if same {
                newest = newest.into_iter().chain([row.as_ref()]).max_by_key(|row| row.create_index);
            } else if !row.status.is_terminal() {
                rollout.ended.push(cancelled(row, description::NEWER_JOB));
            }
        }
        match newest {
            Some(row) if matches!(row.status, DeploymentStatus::Successful | DeploymentStatus::Cancelled) => {
                rollout.done = true;
            }
            Some(row) => {
                rollout.deployment = Some(row.clone());
                return rollout;
            }
            None => {}
        }
        rollout.fresh = true;
        rollout.deployment = Some(Deployment {
            id,
            namespace: job.namespace.clone(),
            job_id: job.id.clone(),
            job_version: job.version,
            job_modify_index: job.modify_index,
            job_spec_modify_index: job.job_modify_index,
            job_create_index: job.create_index,
            eval_priority: eval.priority,
            ..Deployment::default()
        });
        rollout
    }

    fn existing(&self) -> Option<&Deployment> {
        self.deployment.as_ref().filter(|_| !self.fresh)
    }

    /// Returns whether the deployment failed. In this case, no more allocations of this version are placed for it.
    pub fn is_failed(&self) -> bool {
        self.existing().is_some_and(|row| row.status == DeploymentStatus::Failed)
    }

    /// Returns whether the deployment is paused, pending, blocked or initializing.
    pub fn is_paused(&self) -> bool {
        use DeploymentStatus::{Blocked, Initializing, Paused, Pending};
        self.existing().is_some_and(|row| matches!(row.status, Paused | Pending | Blocked | Initializing))
    }

    /// Returns whether the version was rolled out completely before.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the state of a group, even if this pass added the group.
    pub fn group(&self, name: &str) -> Option<&DeploymentState> {
        self.deployment.as_ref()?.task_groups.get(name)
    }

    /// Returns the deployment's id, if placements of a group belong to it.
    pub fn id_for(&self, group: &str) -> Option<&DeploymentId> {
        let row = self.deployment.as_ref().filter(|row| !row.status.is_terminal())?;
        row.task_groups.contains_key(group).then_some(&row.id)
    }

    /// Returns whether an allocation belongs to the deployment.
    pub fn holds(&self, alloc: &Allocation) -> bool {
        self.existing().is_some_and(|row| row.holds(alloc))
    }

    /// Returns whether the deployment prevents the rescheduling of a failed allocation. An active deployment prevents
    /// it until the allocation is marked for rescheduling. A failed deployment always prevents it.
    pub fn holds_back(&self, alloc: &Allocation) -> bool {
        self.holds(alloc) && (self.is_failed() || alloc.desired_transition.reschedule != Some(true))
    }

    /// Adds a group, unless the deployment contains it.
    pub fn begin(&mut self, group: &TaskGroup, strategy: &UpdateStrategy, total: u32, canaries: u32) {
        let Some(row) = self.deployment.as_mut().filter(|row| !row.status.is_terminal()) else { return };
        if row.task_groups.contains_key(&group.name) {
            return;
        }
        self.changed = true;
        let state = DeploymentState {
            auto_revert: strategy.auto_revert,
            auto_promote: strategy.auto_promote,
            progress_deadline: strategy.progress_deadline.max(Nanos::ZERO),
            desired_canaries: canaries,
            desired_total: total,
            ..DeploymentState::default()
        };
        row.task_groups.insert(group.name.clone(), state);
    }

    /// Returns whether the deployment does not exist in the state yet.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Sets the desired total of a group.
    pub fn expect(&mut self, group: &str, total: u32) {
        if let Some(state) = self.deployment.as_mut().and_then(|row| row.task_groups.get_mut(group))
            && state.desired_total != total
        {
            state.desired_total = total;
            self.changed = true;
        }
    }

    /// Returns the deployment to write, if the plan changes it, and the deployment id for the evaluation.
    pub fn finish(self) -> (Option<Deployment>, DeploymentId) {
        let Some(mut row) = self.deployment.filter(|row| !row.task_groups.is_empty()) else {
            return (None, DeploymentId::default());
        };
        let id = row.id.clone();
        if self.fresh {
            row.beginning().clone_into(&mut row.status_description);
        }
        (self.changed.then_some(row), id)
    }
}
