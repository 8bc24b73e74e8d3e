//! One job and its parts. Ids may contain slashes, so the last segments decide.

use super::allocs;
use super::jobs::{self, registered, registration};
use crate::blocking;
use crate::body::{bodies, optional};
use crate::call::Call;
use crate::error::ApiError;
use crate::jobdiff;
use crate::order::{Keys, keys};
use crate::page::{Pager, Token, object};
use crate::reply::{Meta, Next, Reply};
use caravan_state::{Root, Table};
use caravan_types::JobKey;
use caravan_types::job::Job;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;

bodies! {
    /// An evaluation of a job to create.
    EvaluateBody("JobEvaluateRequest") {
        job_id: String = "JobID";
        options: EvalOptions = "EvalOptions";
    }

    /// The options of the evaluation.
    EvalOptions("EvalOptions") {
        force_reschedule: bool = "ForceReschedule";
    }
}

/// Creates an evaluation of the job that the path names.
pub(crate) async fn evaluate(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let body: EvaluateBody = optional(&call.body)?;
    if !body.job_id.is_empty() && body.job_id != key.id.as_str() {
        return Err(ApiError::bad_request("Job ID does not match"));
    }
    let server = call.server()?;
    let done = match body.options.force_reschedule {
        true => Box::pin(server.jobs().force_reschedule(key)).await,
        false => Box::pin(server.jobs().evaluate(key)).await,
    };
    let done = done.map_err(|e| ApiError::of_change(&e))?;
    Ok(registered(&done))
}

/// Returns the error of a read that found nothing.
fn missing(root: &Root, table: Table, text: &str) -> ApiError {
    let meta = Meta { index: root.table_index(table), known_leader: true, next: Next::default() };
    ApiError::not_found(text).with_meta(meta)
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let key = jobs::named(call);
    let (meta, job) = blocking::read(call, |reads| {
        let job = reads.job(&key).ok_or_else(|| missing(reads.snapshot(), Table::Jobs, "job not found"))?;
        Ok((job.modify_index, job.clone()))
    })
    .await?;
    Ok(Reply::json(&*job)?.meta(meta))
}

/// Registers the job in the body, which the path names too.
pub(crate) async fn register(call: &Call) -> Result<Reply, ApiError> {
    jobs::register_as(call, Some(&call.star(0))).await
}

pub(crate) async fn deregister(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let flag = |name: &str| call.query.flag(name);
    flag("global")?;
    let no_delay = flag("no_shutdown_delay")?.unwrap_or(false);
    let purge = flag("purge")?.unwrap_or(false);
    let priority = match call.query.text("eval_priority") {
        "" => None,
        text => match text.parse::<i64>() {
            Ok(0) => None,
            Ok(n) if (1..=100).contains(&n) => Some(n),
            Ok(_) => {
                return Err(ApiError::bad_request("Eval priority must be between 1 and 100 inclusively"));
            }
            Err(_) => {
                return Err(ApiError::internal(format!(
                    "Failed to parse value of \"eval_priority\" ({text}) as an int: strconv.Atoi: parsing \"{text}\": invalid syntax"
                )));
            }
        },
    };
    let server = call.server()?;
    if no_delay {
        server.jobs().skip_shutdown_delay(&key).await.map_err(|e| ApiError::of_change(&e))?;
    }
    let done = server.jobs().deregister(key, purge, priority).await.map_err(|e| ApiError::of_change(&e))?;
    let mut value = registration(&done);
    if let Some(answer) = value.as_object_mut() {
        // A deregistration has no warnings.
        answer.remove("Warnings");
    }
    value["VolumeEvalID"] = json!("");
    value["VolumeEvalIndex"] = json!(0);
    Ok(Reply::value(value).index(done.index))
}

pub(crate) async fn allocations(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let all = call.query.flag("all")?.unwrap_or(false);
    let (meta, stubs) = blocking::read(call, |reads| {
        // Allocations of an earlier job with the same id are omitted unless requested.
        let born = reads.job(&key).map(|job| job.create_index);
        let own = |create_index: Option<u64>| {
            all || born.is_none() || create_index.is_none_or(|at| Some(at) == born)
        };
        let mut rows: Vec<_> = reads
            .allocs_by_job(&key)
            .filter(|alloc| own(alloc.job.as_ref().map(|job| job.create_index)))
            .collect();
        rows.sort_by_key(|alloc| alloc.create_index);
        Ok((reads.part_index(&[Table::Allocs]), allocs::stubs(rows, true, false)))
    })
    .await?;
    Ok(Reply::json(stubs)?.meta(meta))
}

pub(crate) async fn evaluations(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let (meta, evals) = blocking::read(call, |reads| {
        let mut evals: Vec<_> = reads.evals_by_job(&key).map(super::evals::shown).collect();
        evals.sort_by_key(|eval| std::cmp::Reverse(eval.create_index));
        Ok((reads.part_index(&[Table::Evals]), evals))
    })
    .await?;
    Ok(Reply::json(evals)?.meta(meta))
}

pub(crate) async fn deployments(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let all = call.query.flag("all")?.unwrap_or(false);
    let (meta, rows) = blocking::read(call, |reads| {
        let born = reads.job(&key).map(|job| job.create_index);
        let own = |at: u64| all || born.is_none_or(|born| born == at);
        let mut rows: Vec<_> =
            reads.deployments_by_job(&key).filter(|row| own(row.job_create_index)).cloned().collect();
        rows.sort_by_key(|row| row.create_index);
        Ok((reads.part_index(&[Table::Deployments]), rows))
    })
    .await?;
    Ok(Reply::json(rows)?.meta(meta))
}

/// Returns the newest deployment; `null` without one.
pub(crate) async fn deployment(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let (meta, row) = blocking::read(call, |reads| {
        let row = reads.deployments_by_job(&key).max_by_key(|row| row.create_index).cloned();
        let index = row.as_ref().map_or(reads.part_index(&[Table::Deployments]), |row| row.modify_index);
        Ok((index, row))
    })
    .await?;
    Ok(Reply::json(row)?.meta(meta))
}

pub(crate) async fn summary(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let (meta, summary) = blocking::read(call, |reads| {
        let summary = reads.job_summary(&key);
        let summary =
            summary.ok_or_else(|| missing(reads.snapshot(), Table::JobSummaries, "job not found"))?;
        Ok((summary.modify_index, summary))
    })
    .await?;
    Ok(Reply::json(summary)?.meta(meta))
}

pub(crate) async fn versions(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let diffs = call.query.flag("diffs")?.unwrap_or(false);
    let (mut meta, (versions, shown, next)) = blocking::read(call, |reads| {
        let versions: Vec<_> = reads.job_versions(&key).collect();
        let Some(newest) = versions.iter().map(|job| job.modify_index).max() else {
            return Err(missing(reads.snapshot(), Table::JobVersions, "job versions not found"));
        };
        let mut pager = Pager::new(&call.query, &VERSION_KEYS)?;
        // The newest version is always first.
        pager.reverse = true;
        let token = |job: &&Arc<Job>| Token::Modified(job.version);
        let (shown, next) = pager.cut(reads.snapshot(), versions.clone(), token, object)?;
        let owned = |rows: Vec<&Arc<Job>>| -> Vec<Arc<Job>> { rows.into_iter().cloned().collect() };
        Ok((newest, (owned(versions), owned(shown), next)))
    })
    .await?;
    meta.next = next;
    let base = base_version(call, &key, &versions)?;
    let diffs: Option<Vec<Value>> = diffs.then(|| match base {
        Some(base) => shown.iter().map(|job| jobdiff::job(Some(&base), job, None)).collect(),
        None => {
            let pairs =
                versions.windows(2).filter(|pair| shown.iter().any(|job| job.version == pair[0].version));
            pairs.map(|pair| jobdiff::job(Some(&pair[1]), &pair[0], None)).collect()
        }
    });
    let body = json!({"Versions": shown, "Diffs": diffs});
    Ok(Reply::value(meta.merge_into(body)).meta(meta))
}

/// Versions have one order, the newest first, so that each version is next to its difference.
const VERSION_KEYS: Keys<Job> = keys!(Job {});

/// Returns the version with which all versions are compared, if the query names one.
fn base_version(call: &Call, key: &JobKey, versions: &[Arc<Job>]) -> Result<Option<Arc<Job>>, ApiError> {
    let (tag, version) = (call.query.text("diff_tag"), call.query.text("diff_version"));
    let found = match (tag, version) {
        ("", "") => return Ok(None),
        ("", text) => {
            let version: u64 = text
                .parse()
                .map_err(|_| ApiError::bad_request(format!("Invalid diff_version \"{text}\"")))?;
            versions.iter().find(|job| job.version == version)
        }
        (tag, _) => versions.iter().find(|job| job.version_tag.as_ref().is_some_and(|own| own.name == tag)),
    };
    let missing = || match tag {
        "" => format!("job \"{}\" version {version} not found", key.id),
        tag => format!("tag \"{tag}\" not found on job \"{}\"", key.id),
    };
    found.cloned().map(Some).ok_or_else(|| ApiError::internal(missing()))
}

pub(crate) async fn submission(call: &Call) -> Result<Reply, ApiError> {
    let key = &jobs::named(call);
    let version: u64 = call
        .query
        .text("version")
        .parse()
        .map_err(|_| ApiError::bad_request("Unable to parse job submission version parameter"))?;
    let (meta, body) = blocking::read(call, |reads| {
        let found = reads.submission(key, version).zip(reads.job_version(key, version));
        let Some((source, job)) = found else {
            let meta = Meta { index: 0, known_leader: true, next: Next::default() };
            return Err(ApiError::not_found("job source not found").with_meta(meta));
        };
        let flags = Some(&source.variable_flags).filter(|flags| !flags.is_empty());
        let body = json!({
            "Source": source.source,
            "Format": source.format,
            "VariableFlags": flags,
            "Variables": source.variables,
            "Namespace": key.namespace,
            "JobID": key.id,
            "Version": version,
            "JobModifyIndex": job.job_modify_index,
        });
        Ok((reads.part_index(&[Table::Submissions]), body))
    })
    .await?;
    Ok(Reply::value(body).meta(meta))
}
