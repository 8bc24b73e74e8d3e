//! Questions about placements, which change nothing: the reason of a wait, and the consequences of a change.

use super::admit::AdmittedJob;
use super::fault::{EvalFault, JobFault};
use super::jobs::Jobs;
use crate::acl::{Caller, NsCap};
use crate::core::Core;
use crate::error::ServerError;
use crate::runtime;
use caravan_scheduler::{Bounds, Consequences, Imagined, Params};
use caravan_types::command::{Change, Command};
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::Job;
use caravan_types::{EvalId, JobKey, Namespace};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Schedules the job of an evaluation with the current state. Returns the reasons for missing placements, and the
/// changes that would permit them.
pub(crate) fn evaluation(core: &Core, id: &EvalId) -> Result<Vec<String>, EvalFault> {
    let root = core.snapshot();
    let eval = root.eval(id).ok_or(EvalFault::NotFound)?;
    let again = Evaluation { status: EvalStatus::Pending, ..Evaluation::clone(eval) };
    let params = core.params(&root, &eval.job_key());
    let decision = caravan_scheduler::schedule(&root, &again, &params);
    let mut sentences = caravan_scheduler::explain_decision(&decision);
    sentences.extend(caravan_scheduler::describe(&decision));
    Ok(sentences)
}

/// Maximum number of jobs that one question about consequences evaluates.
const MAX_JOBS: usize = 500;
/// Maximum number of concurrent questions about consequences: each schedules every job of a node.
const MAX_QUESTIONS: usize = 2;

/// The permits for concurrent questions about consequences; clones share the permits.
#[derive(Clone, Debug)]
pub(crate) struct Questions(Arc<Semaphore>);

impl Default for Questions {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_QUESTIONS)))
    }
}

/// Returns the placements that would change if all these events happened, with the registration of `job`, if present.
/// Lines about jobs that the caller may not read are omitted and counted.
///
/// # Errors
/// If a text cannot be parsed, a node does not exist, or too many of these questions are in progress.
pub(crate) async fn what_if(
    jobs: &Jobs,
    caller: Arc<Caller>,
    job: Option<&AdmittedJob>,
    imagined: &[String],
) -> Result<Consequences, ServerError> {
    let imagined: Result<Vec<Imagined>, String> = imagined.iter().map(|text| text.parse()).collect();
    let imagined = imagined.map_err(|reason| JobFault::WhatIf { reason })?;
    let Ok(permit) = jobs.questions.0.clone().try_acquire_owned() else {
        return Err(JobFault::ManyQuestions(MAX_QUESTIONS).into());
    };
    let (jobs, job) = (jobs.clone(), job.map(|admitted| admitted.job().clone()));
    let answer = runtime::spawn_blocking(move || {
        let answer = consequences(&jobs, &caller, job, &imagined);
        drop(permit);
        answer
    });
    Ok(answer.await.map_err(|error| JobFault::QuestionFailed(Arc::new(error)))??)
}

fn consequences(
    jobs: &Jobs,
    caller: &Caller,
    job: Option<Job>,
    imagined: &[Imagined],
) -> Result<Consequences, JobFault> {
    let (mut root, now) = (jobs.core.snapshot(), jobs.core.now());
    let mut also: Vec<JobKey> = Vec::new();
    if let Some(mut job) = job {
        job.stop = false;
        also.push(job.key());
        let change =
            Change::JobRegister { job: Box::new(job), expect_modify_index: None, eval: None, source: None };
        root = Arc::new(root.apply(root.index() + 1, &Command { now, change }).0);
    }
    let params = Params::new(now, runtime::random());
    let reads = |namespace: &Namespace| caller.may(namespace.as_str(), NsCap::ReadJob);
    let bounds = Bounds { reads: &reads, jobs: MAX_JOBS };
    caravan_scheduler::what_if(&root, imagined, &also, &params, bounds)
        .map_err(|reason| JobFault::WhatIf { reason })
}
