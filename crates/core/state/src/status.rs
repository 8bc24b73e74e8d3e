//! The derived data of a job: its status and the counts of its allocations.

use crate::root::Root;
use crate::tx::Tx;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::{GroupSummary, Job, JobStatus, JobSummary, JobType};
use caravan_types::{EvalId, JobKey};
use std::collections::BTreeMap;

/// Returns the status of a job, derived from its records (docs/reference/http-api.md, section 6.4).
///
/// With `fresh`, this command wrote the specification. With `collected`, this command collected evaluations of the
/// job. A dead job without evaluations stays dead, because only collection removes them.
pub(crate) fn derive(root: &Root, job: &Job, fresh: bool, collected: bool) -> JobStatus {
    let template = job.is_template();
    if job.kind == JobType::System || template {
        return if job.stop { JobStatus::Dead } else { JobStatus::Running };
    }
    let key = job.key();
    if root.allocs_by_job(&key).any(|a| !a.terminal())
        || root.deployments_by_job(&key).any(|d| !d.status.is_terminal())
    {
        return JobStatus::Running;
    }
    let mut evals = root.evals_by_job(&key).peekable();
    let any = evals.peek().is_some();
    if evals.any(|e| !e.status.is_terminal()) {
        return JobStatus::Pending;
    }
    let removed = collected || (!fresh && job.status == JobStatus::Dead);
    if job.stop || any || removed { JobStatus::Dead } else { JobStatus::Pending }
}

/// Writes the new status of every touched job whose status changed.
pub(crate) fn refresh(tx: &mut Tx) {
    for key in std::mem::take(&mut tx.jobs) {
        let Some(job) = tx.root.jobs.get(&key).cloned() else { continue };
        let (fresh, collected) = (tx.registered.contains(&key), tx.collected.contains(&key));
        let status = derive(&tx.root, &job, fresh, collected);
        if status != job.status {
            tx.put_job(Job { status, ..(*job).clone() });
        }
    }
    tx.jobs.clear();
}

fn is_decided(eval: &Evaluation) -> bool {
    matches!(eval.status, EvalStatus::Complete | EvalStatus::Blocked | EvalStatus::Failed)
}

impl Root {
    /// Returns the desired but unplaced allocations of a job by group, from its newest evaluation. `None` without a
    /// completed evaluation.
    pub fn queued(&self, key: &JobKey) -> Option<BTreeMap<String, u32>> {
        let newest = self.evals_by_job(key).filter(|e| is_decided(e)).map(|e| e.modify_index).max()?;
        let mut queued = BTreeMap::new();
        for eval in self.evals_by_job(key).filter(|e| is_decided(e) && e.modify_index == newest) {
            for (group, n) in &eval.queued_allocations {
                let most = queued.entry(group.clone()).or_insert(0);
                *most = (*n).max(*most);
            }
        }
        Some(queued)
    }

    /// Returns whether an evaluation can be removed without loss: its job has ended, or its allocations have ended
    /// and none of them will be rescheduled.
    pub fn is_needless(&self, eval: &Evaluation) -> bool {
        let over = |job: &Job| job.stop || job.status == JobStatus::Dead;
        if self.job(&eval.job_key()).is_none_or(|job| over(job)) {
            return true;
        }
        let awaited = |id: &EvalId| self.eval(id).is_some_and(|next| !next.status.is_terminal());
        self.allocs_by_eval(&eval.id).all(|alloc| {
            alloc.terminal() && (!alloc.next_allocation.is_empty() || !awaited(&alloc.followup_eval_id))
        })
    }

    /// Whether an allocation belongs to this job and not to an earlier job of the same id.
    fn is_of(job: &Job, alloc: &Allocation) -> bool {
        alloc.job.as_ref().is_none_or(|ran| ran.create_index == job.create_index)
    }

    /// Returns the counts of a job's allocations by state, of its queued allocations and of its children. `None` if
    /// the job does not exist.
    pub fn job_summary(&self, key: &JobKey) -> Option<JobSummary> {
        let job = self.job(key)?;
        let empty = job.task_groups.iter().map(|g| (g.name.clone(), GroupSummary::default()));
        let mut summary: BTreeMap<String, GroupSummary> = empty.collect();
        let mut modify_index = job.modify_index;
        for alloc in self.allocs_by_job(key).filter(|a| Self::is_of(job, a)) {
            modify_index = modify_index.max(alloc.modify_index);
            let group = summary.entry(alloc.task_group.to_string()).or_default();
            *match alloc.client_status {
                ClientStatus::Pending => &mut group.starting,
                ClientStatus::Running => &mut group.running,
                ClientStatus::Complete => &mut group.complete,
                ClientStatus::Failed => &mut group.failed,
                ClientStatus::Lost => &mut group.lost,
                ClientStatus::Unknown => &mut group.unknown,
            } += 1;
        }
        for (group, n) in self.queued(key).unwrap_or_default() {
            summary.entry(group).or_default().queued = n;
        }
        let mut all = JobSummary {
            job_id: job.id.clone(),
            namespace: job.namespace.clone(),
            summary,
            create_index: job.create_index,
            ..Default::default()
        };
        for child in self.children(key) {
            modify_index = modify_index.max(child.modify_index);
            *match child.status {
                JobStatus::Pending => &mut all.children.pending,
                JobStatus::Running => &mut all.children.running,
                JobStatus::Dead => &mut all.children.dead,
            } += 1;
        }
        let evals = self.evals_by_job(key).filter(|e| is_decided(e)).map(|e| e.modify_index).max();
        all.modify_index = modify_index.max(evals.unwrap_or(0));
        Some(all)
    }
}
