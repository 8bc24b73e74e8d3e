//! Questions about placements that change nothing: why something waits, and what would move where.

use super::jobs::Jobs;
use crate::core::Core;
use crate::error::ServerError;
use caravan_scheduler::{Consequences, Imagined, Params};
use caravan_types::command::{Change, Command};
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::Job;
use caravan_types::{EvalId, JobKey};

/// Looks at the job of an evaluation as if it were evaluated now: what is in the way of what is not placed, and
/// what would change it.
pub(crate) fn evaluation(core: &Core, id: &EvalId) -> Result<Vec<String>, ServerError> {
    let root = core.snapshot();
    let eval = root.eval(id).ok_or_else(|| ServerError::not_found("eval not found"))?;
    let again = Evaluation { status: EvalStatus::Pending, ..Evaluation::clone(eval) };
    let params = core.params(&root, &eval.job_key());
    let decision = caravan_scheduler::schedule(&root, &again, &params);
    let mut sentences = caravan_scheduler::explain_decision(&decision);
    sentences.extend(caravan_scheduler::describe(&decision));
    Ok(sentences)
}

/// What would move where if all this happened, with a job as it would be stored if one is given.
pub(crate) fn what_if(
    jobs: &Jobs,
    job: Option<Job>,
    imagined: &[String],
) -> Result<Consequences, ServerError> {
    let (mut root, now) = (jobs.core.snapshot(), jobs.core.now());
    let imagined: Result<Vec<Imagined>, String> = imagined.iter().map(|text| text.parse()).collect();
    let imagined = imagined.map_err(ServerError::refused)?;
    let mut also: Vec<JobKey> = Vec::new();
    if let Some(mut job) = job {
        jobs.localise(&mut job)?;
        job.stop = false;
        also.push(job.key());
        let change =
            Change::JobRegister { job: Box::new(job), expect_modify_index: None, eval: None, source: None };
        root = std::sync::Arc::new(root.apply(root.index() + 1, &Command { now, change }).0);
    }
    let params = Params::new(now, rand::random());
    caravan_scheduler::what_if(&root, &imagined, &also, &params).map_err(ServerError::refused)
}
