//! Jobs: the list, registration, validation, parsing (docs/reference/http-api.md, section 3.1).

use super::{convert, problems};
use crate::blocking;
use crate::body::{Elsewhere, bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Pager, Token, object};
use crate::reply::Reply;
use caravan_api::{self as api, Severity};
use caravan_hcl::job::ParseOptions;
use caravan_hcl::source::SourceId;
use caravan_server::{JobRegistered, JobSubmission, NsCap, Preserve, joined_warnings};
use caravan_state::{Root, Table};
use caravan_types::alloc::ClientStatus;
use caravan_types::command::JobSource;
use caravan_types::job::{Job, JobListStub};
use caravan_types::{JobId, JobKey, Namespace};
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

bodies! {
    /// A job to register.
    RegisterBody("JobRegisterRequest") {
        job: Option<api::Job> = "Job";
        submission: Option<Submission> = "Submission";
        enforce_index: bool = "EnforceIndex";
        job_modify_index: u64 = "JobModifyIndex";
        preserve_counts: bool = "PreserveCounts";
        preserve_resources: bool = "PreserveResources";
        eval_priority: i64 = "EvalPriority";
        region: String = "Region";
        namespace: Elsewhere = "Namespace";
    }

    /// The source text of a job.
    Submission("JobSubmission") {
        source: String = "Source";
        format: String = "Format";
        variable_flags: BTreeMap<String, String> = "VariableFlags";
        variables: String = "Variables";
    }

    /// A job to validate.
    ValidateBody("JobValidateRequest") {
        job: Option<api::Job> = "Job";
        region: String = "Region";
        namespace: Elsewhere = "Namespace";
    }

    /// A job file to parse.
    ParseBody("JobsParseRequest") {
        text: String = "JobHCL";
        variables: String = "Variables";
        canonicalize: bool = "Canonicalize";
    }
}

/// The keys by which lists of jobs can be sorted.
pub(crate) const KEYS: Keys<Job> = keys!(Job {
    "id" => |_, job| job.id.as_str(),
    "name" => |_, job| &job.name,
    "namespace" => |_, job| job.namespace.as_str(),
    "status" => |_, job| if job.stop { "stopped" } else { job.status.as_str() },
    "type" => |_, job| job.kind.as_str(),
    "priority" => |_, job| job.priority,
    "pool" => |_, job| &job.node_pool,
    "version" => |_, job| job.version,
    "running" => |root, job| running(root, job),
    "submit" => |_, job| job.submit_time,
    "create" => |_, job| job.create_index,
    "modify" => |_, job| job.modify_index,
});

/// Returns the number of allocations of a job that run.
fn running(root: &Root, job: &Job) -> usize {
    root.allocs_by_job(&job.key()).filter(|alloc| alloc.client_status == ClientStatus::Running).count()
}

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.list_namespace();
    let prefix = call.query.text("prefix");
    let with_meta = call.query.flag("meta")?.unwrap_or(false);
    let tables = [Table::Jobs, Table::JobSummaries];
    let pager = Pager::new(&call.query, &KEYS)?;
    let (mut meta, (stubs, next)) = blocking::read(call, |reads| {
        let rows = reads.snapshot().jobs_with_prefix(namespace.as_ref(), prefix);
        let rows = rows.filter(|job| call.may(&job.namespace, NsCap::ListJobs)).collect();
        let (rows, next) = pager.cut(reads.snapshot(), rows, own, object)?;
        let stubs: Vec<JobListStub> =
            rows.into_iter().map(|job| stub(reads.snapshot(), job, with_meta)).collect();
        Ok((reads.tables_index(&tables), (stubs, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(stubs)?.meta(meta))
}

/// Returns the place of a job in lists.
pub(crate) fn own<'r>(job: &&'r Arc<Job>) -> Token<'r> {
    Token::Key(job.namespace.as_str(), job.id.as_str())
}

pub(crate) fn stub(root: &Root, job: &Job, with_meta: bool) -> JobListStub {
    JobListStub {
        id: job.id.clone(),
        parent_id: job.parent_id.clone(),
        name: job.name.clone(),
        namespace: job.namespace.clone(),
        datacenters: job.datacenters.clone(),
        node_pool: job.node_pool.clone(),
        multiregion: job.multiregion.clone(),
        kind: job.kind,
        priority: job.priority,
        periodic: job.periodic.is_some(),
        parameterized_job: job.dispatch_rule().is_some(),
        stop: job.stop,
        status: job.status,
        status_description: job.status_description.clone(),
        job_summary: root.job_summary(&job.key()),
        create_index: job.create_index,
        modify_index: job.modify_index,
        job_modify_index: job.job_modify_index,
        submit_time: job.submit_time,
        meta: (with_meta && !job.meta.is_empty()).then(|| job.meta.clone()),
    }
}

/// Registers a job; a name in the path must match the job's id.
pub(crate) async fn register(call: &Call) -> Result<Reply, ApiError> {
    register_as(call, None).await
}

/// Registers the job in the body; a path may name that job too.
pub(super) async fn register_as(call: &Call, id: Option<&str>) -> Result<Reply, ApiError> {
    let body: RegisterBody = required(&call.body)?;
    let job = specified(body.job, call, &body.region)?;
    if let Some(id) = id
        && job.id.as_deref() != Some(id)
    {
        return Err(ApiError::bad_request("Job ID does not match name"));
    }
    let source = body.submission.map(|s| JobSource {
        source: s.source,
        format: s.format,
        variable_flags: s.variable_flags,
        variables: s.variables,
    });
    let submission = JobSubmission {
        draft: convert::draft(job),
        enforce_index: body.enforce_index.then_some(body.job_modify_index),
        preserve: Preserve { counts: body.preserve_counts, resources: body.preserve_resources },
        eval_priority: (body.eval_priority != 0).then_some(body.eval_priority),
        source,
        caller: Some(call.caller()),
    };
    let done = match call.server()?.jobs().register(submission).await {
        Ok(done) => done,
        Err(error) => return problems::refused(call, ApiError::of_change(&error)),
    };
    let mut answer = registration(&done);
    problems::attach(call, &mut answer, done.warnings.to_api(Severity::Warning));
    Ok(Reply::value(answer).index(done.index))
}

/// Returns the job of a body, with the request's namespace and the effective region.
pub(crate) fn specified(job: Option<api::Job>, call: &Call, region: &str) -> Result<api::Job, ApiError> {
    let job = job.ok_or_else(|| ApiError::bad_request("Job must be specified"))?;
    if job.id.as_deref().unwrap_or_default().is_empty() {
        return Err(ApiError::bad_request("Job ID hasn't been provided"));
    }
    placed(job, call, region)
}

/// Returns a job with the request's namespace and the effective region.
fn placed(mut job: api::Job, call: &Call, region: &str) -> Result<api::Job, ApiError> {
    if let Some(text) = &job.payload {
        super::children::payload(text)?;
    }
    let first = |texts: [&str; 3], otherwise: &str| {
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or(otherwise).to_owned()
    };
    let own = job.region.clone().unwrap_or_default();
    // A job with several regions is registered in its first region.
    let of_several = job.multiregion.iter().flat_map(|several| several.regions.iter().flatten()).next();
    let own = match own.as_str() {
        "" | "global" => of_several.map(|region| region.name.clone()).unwrap_or_default(),
        _ => own,
    };
    let here = &call.state.info.region;
    job.region = Some(first([region, call.query.text("region"), &own], here));
    job.namespace = Some(call.namespace.to_string());
    Ok(job)
}

/// Returns the answer to a change that creates an evaluation of a job.
pub(crate) fn registered(done: &JobRegistered) -> Reply {
    Reply::value(registration(done)).index(done.index)
}

pub(crate) fn registration(done: &JobRegistered) -> Value {
    json!({
        "EvalID": done.eval_id,
        "EvalCreateIndex": done.eval_create_index,
        "JobModifyIndex": done.job_modify_index,
        "Warnings": joined_warnings(&done.warnings.texts()),
        "Index": done.index,
        "LastContact": 0,
        "KnownLeader": false,
        "NextToken": "",
    })
}

/// Validates a job. Its errors are data of the answer, and the request succeeds.
pub(crate) fn validate(call: &Call) -> Result<Reply, ApiError> {
    call.put()?;
    let body: ValidateBody = required(&call.body)?;
    // A job without an id is reported among the errors, not refused.
    let job = body.job.ok_or_else(|| ApiError::bad_request("Job must be specified"))?;
    let job = placed(job, call, &body.region)?;
    let verdict = call.server()?.jobs().validate(convert::draft(job));
    let text = if verdict.errors.is_empty() { String::new() } else { verdict.refusal() };
    let mut answer = json!({
        "DriverConfigValidated": true,
        "Error": text,
        "ValidationErrors": if verdict.errors.is_empty() { None } else { Some(verdict.errors.texts()) },
        "Warnings": verdict.warning(),
    });
    problems::attach(call, &mut answer, verdict.to_api());
    Reply::json(answer)
}

/// Parses a job file. Functions that read files are disabled, because they would read the agent's files.
pub(crate) fn parse(call: &Call) -> Result<Reply, ApiError> {
    call.put()?;
    let body: ParseBody = required(&call.body)?;
    if body.text.is_empty() {
        return Err(ApiError::bad_request("Job spec is empty"));
    }
    let mut options = ParseOptions::default();
    if !body.variables.is_empty() {
        options.var_files.push(caravan_hcl::Source::new("input.hcl", &body.variables));
    }
    let source = caravan_hcl::Source::new("input.hcl", &body.text);
    let mut job = match caravan_hcl::job::parse(&source, &options) {
        Ok((job, _warnings)) => job,
        Err(errors) => {
            let variables = errors.items.iter().any(|d| d.span.is_some_and(|s| s.source != SourceId(0)));
            let syntax = errors.items.iter().all(|d| d.code.starts_with("E01"));
            let which = if variables && syntax { "unable to parse var content: " } else { "" };
            let error = ApiError::bad_request(format!("Failed to parse job: {which}{errors}"));
            return problems::unparsed(call, error, &errors);
        }
    };
    if body.canonicalize {
        api::canonicalize(&mut job);
    }
    Reply::parsed(job)
}

/// Returns the key of a job.
pub(crate) fn key(namespace: Namespace, id: &str) -> JobKey {
    JobKey { namespace, id: JobId::new(id) }
}

/// Returns the key of the job that the path of a request names.
pub(super) fn named(call: &Call) -> JobKey {
    key(call.namespace.clone(), &call.star(0))
}
