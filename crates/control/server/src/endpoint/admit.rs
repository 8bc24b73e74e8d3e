//! Admission of a job that is registered or planned. A job is checked once, and the job that was checked is the job
//! that is stored: no other code creates an [`AdmittedJob`].

use super::approve;
use super::jobs::Jobs;
use crate::acl::Caller;
use crate::admission::{self, Problem, ProblemCode, Problems, Verdict};
use crate::core::new_id;
use crate::error::ServerError;
use caravan_api::{JobPath, Misfits};
use caravan_state::Root;
use caravan_types::job::Job;
use std::sync::Arc;

/// A job that a client submitted: defaults filled in, not checked.
#[derive(Clone, Debug, Default)]
pub struct JobDraft {
    /// The job as the submitted JSON describes it, before admission.
    pub job: Job,
    /// Settings that did not convert: reasons to refuse the job.
    pub misfits: Misfits,
}

impl From<Job> for JobDraft {
    fn from(job: Job) -> Self {
        Self { job, misfits: Misfits::default() }
    }
}

/// Settings of the registered job that a new version keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Whether groups that exist already keep their counts.
    pub counts: bool,
    /// Whether tasks that exist already keep their resources.
    pub resources: bool,
}

/// A checked job, in the form that would be stored.
#[derive(Clone, Debug)]
pub struct AdmittedJob {
    job: Job,
    current: Option<Arc<Job>>,
    warnings: Problems,
}

impl AdmittedJob {
    /// Returns the job in the form that would be stored.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Returns the job, the version that is registered now, and the warnings.
    pub(super) fn into_parts(self) -> (Job, Option<Arc<Job>>, Problems) {
        (self.job, self.current, self.warnings)
    }
}

impl Jobs {
    /// Checks a job that a caller would register, for [`Jobs::plan`] and [`Jobs::what_if`].
    ///
    /// # Errors
    /// With all problems of the job in one text.
    pub fn admit(
        &self,
        caller: &Caller,
        draft: JobDraft,
        preserve: Preserve,
    ) -> Result<AdmittedJob, ServerError> {
        self.admit_at(&self.core.snapshot(), Some(caller), draft, preserve)
    }

    /// Admits a job for a caller; `None` stands for the servers themselves, whose jobs were submitted before.
    ///
    /// # Errors
    /// All problems of the job, or a right that the caller lacks.
    pub(crate) fn admit_at(
        &self,
        root: &Root,
        caller: Option<&Caller>,
        draft: JobDraft,
        preserve: Preserve,
    ) -> Result<AdmittedJob, ServerError> {
        let JobDraft { mut job, misfits } = draft;
        self.localise(&mut job)?;
        let current = root.job(&job.key()).cloned();
        if let Some(current) = &current {
            keep(&mut job, current, preserve);
        }
        if let Some(caller) = caller {
            approve::job(caller, root, &mut job)?;
        }
        let Verdict { mut errors, warnings } = admission::check_all(&job, misfits);
        errors.append(admission::homes(root, &job));
        errors.append(admission::against(root, &job));
        if !errors.is_empty() {
            return Err(ServerError::Job(errors));
        }
        admission::keep_origin(current.as_deref(), &mut job);
        admission::update(current.as_deref(), &job)?;
        Ok(AdmittedJob { job, current, warnings })
    }

    /// Checks a job without storing it.
    pub fn validate(&self, draft: JobDraft) -> Verdict {
        let JobDraft { mut job, misfits } = draft;
        match self.localise(&mut job) {
            Ok(()) => {
                let mut verdict = admission::check_all(&job, misfits);
                verdict.errors.append(admission::homes(&self.core.snapshot(), &job));
                verdict
            }
            Err(problem) => Verdict { errors: problem.into(), warnings: Problems::default() },
        }
    }

    /// Fills in the settings that only the servers have (docs/reference/jobspec.md, sections 4.1 and 7). These are
    /// the region, and the default namespace, node pool and datacenters. The region `global` means the region of this
    /// server.
    fn localise(&self, job: &mut Job) -> Result<(), Problem> {
        if job.datacenters.is_empty() {
            job.datacenters = vec!["*".into()];
        }
        admission::localised(&self.core.snapshot(), job);
        admission::imply(job);
        if job.region.is_empty() || job.region == "global" {
            job.region.clone_from(&self.region);
        }
        if job.region != self.region {
            let path = JobPath::root().field("Region");
            return Err(Problem::new(ProblemCode::Nonexistent, path, "No path to region"));
        }
        caravan_types::scaling::complete(job, new_id);
        Ok(())
    }
}

/// Restores the current counts and resources of groups and tasks that exist already, as `preserve` requests.
fn keep(job: &mut Job, current: &Job, preserve: Preserve) {
    for group in &mut job.task_groups {
        let Some(before) = current.group(&group.name) else { continue };
        if preserve.counts {
            group.count = before.count;
        }
        for task in group.tasks.iter_mut().filter(|_| preserve.resources) {
            if let Some(before) = before.task(&task.name) {
                task.resources.clone_from(&before.resources);
            }
        }
    }
}
