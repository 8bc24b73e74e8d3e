//! Registering, planning, stopping and evaluating jobs.

use super::admit::{AdmittedJob, JobDraft, Preserve};
use super::explain::Questions;
use super::fault::JobFault;
use crate::acl::Caller;
use crate::admission::Problems;
use crate::core::{Core, new_id};
use crate::error::ServerError;
use crate::node_evals::evaluation;
use crate::periodic;
use crate::runtime;
use caravan_scheduler::Params;
use caravan_types::command::{Change, JobSource};
use caravan_types::eval::{AllocMetric, EvalStatus, Evaluation, Trigger};
use caravan_types::job::Job;
use caravan_types::plan::PlanAnnotations;
use caravan_types::{EvalId, JobKey, UnixNanos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A job to register.
#[derive(Clone, Debug, Default)]
pub struct JobSubmission {
    /// The submitted job, not checked.
    pub draft: JobDraft,
    /// The required `JobModifyIndex` of the job; 0 requires a new job; `None` requires nothing.
    pub enforce_index: Option<u64>,
    /// Settings of the registered job that the submission keeps.
    pub preserve: Preserve,
    /// Priority of the evaluation; the job's priority if absent.
    pub eval_priority: Option<i64>,
    /// The text of the submitted specification.
    pub source: Option<JobSource>,
    /// The submitter; `None` for the servers themselves, which register only jobs that were submitted before.
    pub caller: Option<Arc<Caller>>,
}

/// The result of a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRegistered {
    /// Id of the evaluation.
    pub eval_id: EvalId,
    /// Index of the evaluation.
    pub eval_create_index: u64,
    /// `JobModifyIndex` of the job.
    pub job_modify_index: u64,
    /// The warnings about the job.
    pub warnings: Problems,
    /// Index of the change.
    pub index: u64,
}

/// The consequences of a registration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPlanned {
    /// Planned changes of counts, by group.
    pub annotations: Option<PlanAnnotations>,
    /// Allocations that could not be placed.
    pub failed: BTreeMap<String, AllocMetric>,
    /// The current `JobModifyIndex` of the job; 0 if it is new.
    pub job_modify_index: u64,
    /// Evaluations that the registration would create.
    pub created_evals: Vec<Evaluation>,
    /// The warnings about the job.
    pub warnings: Problems,
    /// The current job, for the difference.
    pub current: Option<std::sync::Arc<Job>>,
    /// The job as it would be stored, with all defaults, for the difference.
    pub planned: Option<std::sync::Arc<Job>>,
    /// The next launch, if the job is periodic.
    pub next_periodic_launch: Option<UnixNanos>,
    /// Index of the state that the plan used.
    pub index: u64,
    /// Sentences about the reasons for missing placements, and the changes that would permit them.
    pub reasons: Vec<String>,
    /// Sentences on the nodes that were evaluated, filtered and scored for the placements.
    pub placements: Vec<String>,
}

/// The service for requests about jobs.
#[derive(Clone, Debug)]
pub struct Jobs {
    pub(crate) core: Core,
    pub(crate) region: String,
    pub(crate) questions: Questions,
}

impl Jobs {
    /// Registers a job.
    ///
    /// # Errors
    /// With all problems of the job in one text.
    pub async fn register(&self, submission: JobSubmission) -> Result<JobRegistered, ServerError> {
        let JobSubmission { draft, enforce_index, preserve, eval_priority, source, caller } = submission;
        let (root, now) = (self.core.snapshot(), self.core.now());
        let admitted = self.admit_at(&root, caller.as_deref(), draft, preserve)?;
        let (mut job, _, warnings) = admitted.into_parts();
        if let Some(caller) = &caller {
            job.nomad_token_id =
                caller.token.as_ref().map(|token| token.accessor_id.clone()).unwrap_or_default();
        }
        job.stop = false;
        job.submit_time = now;
        // A parent job has nothing to place.
        let mut eval = (!job.is_template()).then(|| evaluation(&job, Trigger::JobRegister, now));
        if let (Some(eval), Some(priority)) = (&mut eval, eval_priority.filter(|p| *p > 0)) {
            eval.priority = priority;
        }
        let eval_id = eval.as_ref().map(|eval| eval.id.clone()).unwrap_or_default();
        let job = Box::new(job);
        let register = Change::JobRegister { job, expect_modify_index: enforce_index, eval, source };
        let outcome = self.core.commit_known(register).await?;
        let index = outcome.index;
        Ok(JobRegistered {
            eval_create_index: if eval_id.is_empty() { 0 } else { index },
            eval_id,
            // The current state may already contain a later registration.
            job_modify_index: outcome.job_modify_index.unwrap_or(index),
            warnings,
            index,
        })
    }

    /// Returns what would happen if a job were registered.
    pub fn plan(&self, admitted: AdmittedJob) -> JobPlanned {
        let (mut job, current, warnings) = admitted.into_parts();
        let (root, now) = (self.core.snapshot(), self.core.now());
        let key = job.key();
        job.stop = false;
        job.submit_time = now;
        let mut eval = evaluation(&job, Trigger::JobRegister, now);
        eval.annotate_plan = true;
        // A parent job places nothing itself; plan one of its children instead.
        let placing =
            job.is_template().then(|| Job { periodic: None, parameterized_job: None, ..job.clone() });
        let imagine = |job: Job| {
            let change = Change::JobRegister {
                job: Box::new(job),
                expect_modify_index: None,
                eval: Some(eval.clone()),
                source: None,
            };
            root.apply(root.index() + 1, &caravan_types::command::Command { now, change }).0
        };
        let imagined = imagine(job);
        let planned = imagined.job(&key).cloned();
        let imagined = placing.map_or(imagined, imagine);
        let eval = imagined.eval(&eval.id).map_or(eval, |e| (**e).clone());
        let decision = caravan_scheduler::schedule(&imagined, &eval, &Params::new(now, runtime::random()));
        let reasons = caravan_scheduler::explain_decision(&decision);
        let placements = caravan_scheduler::describe(&decision);
        let mut created_evals = vec![decision.eval.clone()];
        // Follow-ups with a creation index are in the state already.
        let new = decision.follow_ups.into_iter().filter(|eval| eval.create_index == 0);
        // The evaluations are not stored, so they have no job index and no snapshot index.
        created_evals.extend(new.map(|eval| Evaluation { job_modify_index: 0, snapshot_index: 0, ..eval }));
        let mut annotations = decision.plan.annotations;
        if let (Some(annotations), true) =
            (&mut annotations, imagined.job(&key).is_some_and(|j| j.kind.is_system()))
        {
            // For a system job, clients expect updates to be counted as placements as well.
            for updates in annotations.desired_tg_updates.values_mut() {
                updates.place += updates.in_place_update + updates.destructive_update;
            }
        }
        JobPlanned {
            annotations,
            failed: decision.eval.failed_tg_allocs,
            job_modify_index: current.as_ref().map_or(0, |job| job.job_modify_index),
            created_evals,
            warnings,
            next_periodic_launch: planned.as_ref().and_then(|job| periodic::next_launch(job, now)),
            current,
            planned,
            index: root.index(),
            reasons,
            placements,
        }
    }

    /// Stops a job, or removes it. A job that does not exist is no error.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn deregister(
        &self,
        key: JobKey,
        purge: bool,
        eval_priority: Option<i64>,
    ) -> Result<JobRegistered, ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        let Some(job) = root.job(&key) else {
            // Stopping a job that does not exist is no error (docs/reference/http-api.md, section 3.1).
            return Ok(JobRegistered::default());
        };
        let mut eval = (!job.is_template()).then(|| evaluation(job, Trigger::JobDeregister, now));
        if let (Some(eval), Some(priority)) = (&mut eval, eval_priority.filter(|p| *p > 0)) {
            eval.priority = priority;
        }
        let eval_id = eval.as_ref().map(|eval| eval.id.clone()).unwrap_or_default();
        let index = self.core.commit(Change::JobDeregister { key, purge, eval }).await?;
        Ok(JobRegistered {
            eval_create_index: if eval_id.is_empty() { 0 } else { index },
            eval_id,
            job_modify_index: index,
            warnings: Problems::default(),
            index,
        })
    }

    /// Creates an evaluation for a job.
    ///
    /// # Errors
    /// If there is no such job.
    pub async fn evaluate(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        let job = root.job(&key).ok_or(JobFault::NotFound)?;
        if job.is_template() {
            let parameterized = job.dispatch_rule().is_some();
            return Err(if parameterized { JobFault::Parameterized } else { JobFault::Periodic }.into());
        }
        let eval = Evaluation {
            id: new_id().into(),
            status: EvalStatus::Pending,
            ..evaluation(job, Trigger::JobRegister, now)
        };
        let eval_id = eval.id.clone();
        let job_modify_index = job.modify_index;
        let index = self.core.commit(Change::Evals { evals: vec![eval] }).await?;
        Ok(JobRegistered {
            eval_id,
            eval_create_index: index,
            job_modify_index,
            warnings: Problems::default(),
            index,
        })
    }

    /// Returns the consequences of changes of nodes (`node=<id>:down`, or `drain`, `ineligible`, `up`), and of the
    /// registration of this job. Jobs that the caller may not read are omitted.
    ///
    /// # Errors
    /// If a text cannot be parsed, a node does not exist, or too many of these requests are in progress.
    pub async fn what_if(
        &self,
        caller: Arc<Caller>,
        job: Option<&AdmittedJob>,
        imagined: &[String],
    ) -> Result<caravan_scheduler::Consequences, ServerError> {
        super::explain::what_if(self, caller, job, imagined).await
    }

    /// Stops and replaces an allocation. `no_shutdown_delay` skips the shutdown delay of its tasks; `reschedule`
    /// treats the allocation as failed. Returns the evaluation and its index.
    ///
    /// # Errors
    /// If the allocation does not exist.
    pub async fn stop_alloc(
        &self,
        id: caravan_types::AllocId,
        no_shutdown_delay: bool,
        reschedule: bool,
    ) -> Result<(EvalId, u64), ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        let alloc = root.alloc(&id).ok_or(JobFault::NoAlloc)?;
        let job =
            root.job(&alloc.job_key()).cloned().or_else(|| alloc.job.clone()).ok_or(JobFault::NotFound)?;
        let eval = evaluation(&job, Trigger::AllocStop, now);
        let eval_id = eval.id.clone();
        let transition = caravan_types::alloc::DesiredTransition {
            migrate: Some(true),
            no_shutdown_delay: Some(no_shutdown_delay),
            reschedule: Some(reschedule),
            ..Default::default()
        };
        let change =
            Change::AllocTransitions { transitions: BTreeMap::from([(id, transition)]), evals: vec![eval] };
        let index = self.core.commit(change).await?;
        Ok((eval_id, index))
    }
}
