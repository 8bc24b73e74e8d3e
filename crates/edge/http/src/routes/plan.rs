//! Dry runs of registrations (docs/reference/http-api.md, section 5.6).

use super::{convert, jobs, problems};
use crate::access;
use crate::body::{Elsewhere, bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::jobdiff;
use crate::reply::Reply;
use caravan_api::{self as api, JobPath, Severity};
use caravan_server::{Level, NsCap, Preserve, Problem, ProblemCode};
use caravan_types::UnixNanos;
use serde_json::json;

bodies! {
    /// A job to plan.
    PlanBody("JobPlanRequest") {
        job: Option<api::Job> = "Job";
        diff: bool = "Diff";
        preserve_counts: bool = "PreserveCounts";
        preserve_resources: bool = "PreserveResources";
        region: String = "Region";
        namespace: Elsewhere = "Namespace";
    }
}

/// The warning of a dry run whose difference the caller may not see.
const HIDDEN: &str = "the difference is not shown: it needs read-job in the job's namespace";

pub(crate) async fn plan(call: &Call) -> Result<Reply, ApiError> {
    let body: PlanBody = required(&call.body)?;
    let job = jobs::specified(body.job, call, &body.region)?;
    if job.id.as_ref() != Some(&call.star(0)) {
        return Err(ApiError::bad_request("Job ID does not match"));
    }
    let server = call.server()?;
    let caller = call.caller();
    let preserve = Preserve { counts: body.preserve_counts, resources: body.preserve_resources };
    let admitted = match server.jobs().admit(&caller, convert::draft(job), preserve) {
        Ok(admitted) => admitted,
        Err(error) => return problems::refused(call, ApiError::of_change(&error)),
    };
    let imagined: Vec<String> = call.query.all("what-if").map(str::to_owned).collect();
    let consequences = match imagined.is_empty() {
        true => None,
        // The answer describes nodes and all jobs on them.
        false if !caller.node(Level::Read) => return Err(access::denied()),
        false => {
            let asked = server.jobs().what_if(caller.clone(), Some(&admitted), &imagined).await;
            Some(asked.map_err(|e| ApiError::of_change(&e))?)
        }
    };
    let explains = call.query.flag("explain")?.unwrap_or(false);
    let reads = call.may(&admitted.job().namespace, NsCap::ReadJob);
    let mut planned = server.jobs().plan(admitted);
    if let Some(annotations) = &mut planned.annotations {
        // Preempted allocations may belong to any namespace.
        annotations.preempted_allocs.retain(|alloc| call.may(&alloc.namespace, NsCap::ReadJob));
    }
    let updates = planned.annotations.as_ref().map(|a| &a.desired_tg_updates);
    let diff = match &planned.planned {
        // The difference shows the stored job.
        Some(job) if body.diff && reads => Some(jobdiff::job(planned.current.as_deref(), job, updates)),
        _ => None,
    };
    // The first evaluation belongs to the dry run; clients expect only the evaluations that follow from it.
    let created: Vec<_> = planned.created_evals.iter().skip(1).collect();
    if body.diff && !reads && planned.current.is_some() {
        planned.warnings.push(Problem::new(ProblemCode::Hidden, JobPath::root(), HIDDEN));
    }
    let warnings = caravan_server::joined_warnings(&planned.warnings.texts());
    let mut answer = json!({
        "Annotations": planned.annotations,
        "FailedTGAllocs": some(&planned.failed, planned.failed.is_empty()),
        "JobModifyIndex": planned.job_modify_index,
        "CreatedEvals": some(&created, created.is_empty()),
        "Diff": diff,
        "NextPeriodicLaunch": planned.next_periodic_launch.map(UnixNanos::to_time),
        "Warnings": warnings,
        "Index": planned.job_modify_index,
    });
    problems::attach(call, &mut answer, planned.warnings.to_api(Severity::Warning));
    // Only on request: clients may reject unknown keys.
    if explains {
        answer["CaravanReasons"] = json!(planned.reasons);
        answer["CaravanPlacements"] = json!(planned.placements);
    }
    if let Some(consequences) = consequences {
        answer["CaravanWhatIf"] = json!(consequences);
    }
    Reply::json(answer).map(|reply| reply.index(planned.job_modify_index))
}

fn some<T>(value: T, empty: bool) -> Option<T> {
    (!empty).then_some(value)
}
