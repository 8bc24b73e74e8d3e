//! The deployment of a job's version, as far as reconciling goes (docs/reference/http-api.md, section 6.3): whether there is one,
//! whether it goes on, and what a new one looks like.

use crate::view::View;
use caravan_types::DeploymentId;
use caravan_types::alloc::Allocation;
use caravan_types::deployment::{Deployment, DeploymentState, DeploymentStatus, Verdict, description};
use caravan_types::eval::Evaluation;
use caravan_types::job::{Job, TaskGroup, UpdateStrategy};
use caravan_types::{JobKey, Nanos};

/// The deployment of the version in hand.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    deployment: Option<Deployment>,
    /// It does not exist yet.
    fresh: bool,
    /// The plan writes it.
    changed: bool,
    /// The version was rolled out before, and well.
    done: bool,
    /// Deployments that end with the plan.
    pub ended: Vec<Verdict>,
}

/// Ends what goes on of a job that is stopped or gone.
pub(crate) fn end_all<V: View>(view: &V, key: &JobKey) -> Vec<Verdict> {
    let active = view.deployments_by_job(key).filter(|row| !row.status.is_terminal());
    active.map(|row| cancelled(row, description::JOB_STOPPED)).collect()
}

fn cancelled(row: &Deployment, why: &str) -> Verdict {
    Verdict { id: row.id.clone(), status: DeploymentStatus::Cancelled, description: why.to_owned() }
}

impl Rollout {
    /// Finds the deployment of the newest version; those of others end. `id` is for a new one.
    pub fn of<V: View>(view: &V, job: &Job, eval: &Evaluation, id: DeploymentId) -> Self {
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

    /// Whether it failed: then nothing more of this version is placed for its sake.
    pub fn is_failed(&self) -> bool {
        self.existing().is_some_and(|row| row.status == DeploymentStatus::Failed)
    }

    /// Whether somebody holds it.
    pub fn is_paused(&self) -> bool {
        use DeploymentStatus::{Blocked, Initializing, Paused, Pending};
        self.existing().is_some_and(|row| matches!(row.status, Paused | Pending | Blocked | Initializing))
    }

    /// Whether the version was rolled out to its end before.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// What is known of a group; of one that was added in this very pass as well.
    pub fn group(&self, name: &str) -> Option<&DeploymentState> {
        self.deployment.as_ref()?.task_groups.get(name)
    }

    /// Its id, if what is placed of a group belongs to it.
    pub fn id_for(&self, group: &str) -> Option<&DeploymentId> {
        let row = self.deployment.as_ref().filter(|row| !row.status.is_terminal())?;
        row.task_groups.contains_key(group).then_some(&row.id)
    }

    /// Whether an allocation belongs to it.
    pub fn holds(&self, alloc: &Allocation) -> bool {
        self.existing().is_some_and(|row| row.holds(alloc))
    }

    /// Whether a failed allocation waits for the word of its deployment, which goes on, or had it: a failed
    /// deployment does not try again.
    pub fn holds_back(&self, alloc: &Allocation) -> bool {
        self.holds(alloc) && (self.is_failed() || alloc.desired_transition.reschedule != Some(true))
    }

    /// Adds a group, unless the deployment knows it.
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

    /// Whether it does not exist yet.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Changes how many allocations a group needs in all.
    pub fn expect(&mut self, group: &str, total: u32) {
        if let Some(state) = self.deployment.as_mut().and_then(|row| row.task_groups.get_mut(group))
            && state.desired_total != total
        {
            state.desired_total = total;
            self.changed = true;
        }
    }

    /// The deployment as the plan writes it, if it does, and the one that the evaluation belongs to.
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
