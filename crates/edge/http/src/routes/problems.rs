//! Problems of a job as data, beside the text that clients of Nomad know (docs/design/http-api.md).

use crate::body::{Elsewhere, bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_api::{self as api, JobProblem};
use serde_json::{Value, json};

/// Key of answers.
pub(super) const KEY: &str = "CaravanProblems";
/// Parameter of requests whose refusals are JSON.
const ASKS: &str = "caravan_problems";

bodies! {
    /// The job of any body that has one.
    Submitted("JobRegisterRequest") {
        job: Option<api::Job> = "Job";
        namespace: Elsewhere = "Namespace";
    }
}

/// Adds problems to an answer that is an object; an answer without problems has no such key.
pub(super) fn attach(call: &Call, answer: &mut Value, problems: Vec<JobProblem>) {
    if !problems.is_empty() {
        answer[KEY] = json!(as_written(call, problems));
    }
}

/// Answers a refusal of a job: as JSON if the request asks for that, else as the text alone.
pub(super) fn refused(call: &Call, mut error: ApiError) -> Result<Reply, ApiError> {
    if error.problems.is_empty() || call.query.flag(ASKS).ok().flatten() != Some(true) {
        return Err(error);
    }
    let problems = as_written(call, std::mem::take(&mut error.problems));
    let answer = Reply::json(json!({ "Error": error.message, KEY: problems }))?;
    Ok(answer.status(error.status))
}

/// Returns problems with the paths that their settings have in the request.
fn as_written(call: &Call, mut problems: Vec<JobProblem>) -> Vec<JobProblem> {
    let submitted = required::<Submitted>(&call.body).ok().and_then(|body| body.job);
    if let Some(job) = submitted.and_then(|job| serde_json::to_value(job).ok()) {
        for problem in &mut problems {
            problem.path = problem.path.written_in(&job);
        }
    }
    problems
}
