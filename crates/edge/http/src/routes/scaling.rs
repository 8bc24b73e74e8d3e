//! Counts of groups and scaling policies (docs/reference/http-api.md, sections 3.1, 3.7 and 5.1).

use super::jobs;
use crate::blocking;
use crate::body::{bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Meta, Next, Reply};
use caravan_server::{NsCap, ScaleRequest};
use caravan_state::{Reads, Table};
use caravan_types::alloc::ClientStatus;
use caravan_types::job::Job;
use caravan_types::scaling::{self, ScalingPolicy};
use http::Method;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

bodies! {
    /// A count to set, or an event to record.
    ScaleBody("ScalingRequest") {
        count: Option<i64> = "Count";
        target: BTreeMap<String, String> = "Target";
        message: String = "Message";
        error: bool = "Error";
        meta: Option<Map<String, Value>> = "Meta";
        job_modify_index: u64 = "JobModifyIndex";
    }
}

pub(crate) async fn scale(call: &Call) -> Result<Reply, ApiError> {
    let key = jobs::named(call);
    let body: ScaleBody = required(&call.body)?;
    let request = ScaleRequest {
        group: body.target.get("Group").cloned().unwrap_or_default(),
        count: body.count,
        message: body.message,
        error: body.error,
        meta: body.meta.map_or(Value::Null, Value::Object),
        job_modify_index: body.job_modify_index,
    };
    let done =
        call.server()?.jobs().scale(&call.caller(), key, request).await.map_err(|e| ApiError::coded(&e))?;
    let mut value = jobs::registration(&done);
    value["KnownLeader"] = json!(true);
    Ok(Reply::value(value).index(done.index))
}

/// Returns the desired and actual counts of each group, and its scaling events.
pub(crate) async fn status(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let key = jobs::named(call);
    let (meta, value) = blocking::read(call, |reads| match reads.job(&key) {
        Some(job) => Ok(counted(reads, job)),
        None => {
            let index = reads.part_index(&[Table::Jobs]);
            let meta = Meta { index, known_leader: true, next: Next::default() };
            Err(ApiError::not_found("job not found").with_meta(meta))
        }
    })
    .await?;
    Ok(Reply::value(value).meta(meta))
}

fn counted(reads: &Reads<'_>, job: &Job) -> (u64, Value) {
    let key = job.key();
    let events = reads.scaling_events(&key);
    let mut index = job.modify_index;
    let mut groups = Map::new();
    for group in &job.task_groups {
        let (mut placed, mut running, mut healthy, mut unhealthy) = (0, 0, 0, 0);
        let own = |create: Option<u64>| create.is_none_or(|create| create == job.create_index);
        let allocs = reads.allocs_by_job(&key).filter(|alloc| alloc.task_group == group.name);
        for alloc in allocs.filter(|alloc| own(alloc.job.as_ref().map(|job| job.create_index))) {
            index = index.max(alloc.modify_index);
            if alloc.terminal() {
                continue;
            }
            placed += 1;
            running += i32::from(alloc.client_status == ClientStatus::Running);
            match alloc.deployment_status.as_ref().and_then(|status| status.healthy) {
                Some(true) => healthy += 1,
                Some(false) => unhealthy += 1,
                None => {}
            }
        }
        let of_group = events.and_then(|all| all.get(&group.name));
        index = of_group.into_iter().flatten().map(|event| event.create_index).fold(index, u64::max);
        groups.insert(
            group.name.clone(),
            json!({
                "Desired": group.count,
                "Placed": placed,
                "Running": running,
                "Healthy": healthy,
                "Unhealthy": unhealthy,
                "Events": of_group,
            }),
        );
    }
    let value = json!({
        "JobID": job.id,
        "Namespace": job.namespace,
        "JobCreateIndex": job.create_index,
        "JobModifyIndex": job.job_modify_index,
        "JobStopped": job.stop,
        "TaskGroups": groups,
    });
    (index, value)
}

pub(crate) async fn policies(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.list_namespace();
    let (of_job, kind) = (call.query.text("job"), call.query.text("type"));
    let prefix = call.query.text("prefix");
    let (meta, stubs) = blocking::read(call, |reads| {
        let jobs = reads.snapshot().jobs_with_prefix(namespace.as_ref(), of_job);
        let jobs = jobs.filter(|job| (of_job.is_empty() || job.id == *of_job) && seen(call, job));
        let stubs: Vec<Value> = jobs
            .flat_map(|job| scaling::policies(job))
            .filter(|policy| policy.id.starts_with(prefix))
            // A prefix selects the type: `vertical` matches both vertical types.
            .filter(|policy| policy.kind.starts_with(kind))
            .map(stub)
            .collect();
        Ok((reads.table_index(Table::ScalingPolicies), stubs))
    })
    .await?;
    Ok(Reply::value(Value::Array(stubs)).meta(meta))
}

/// Returns whether the caller may see the policies of a job.
fn seen(call: &Call, job: &Job) -> bool {
    let caps = [NsCap::ReadJob, NsCap::ReadScalingPolicy, NsCap::ListScalingPolicies];
    call.caller().acl.namespace_any(job.namespace.as_str(), &caps)
}

fn stub(policy: &ScalingPolicy) -> Value {
    json!({
        "ID": policy.id,
        "Enabled": policy.enabled,
        "Type": policy.kind,
        "Target": policy.target,
        "CreateIndex": policy.create_index,
        "ModifyIndex": policy.modify_index,
    })
}

pub(crate) async fn policy(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = &call.star(0);
    let (meta, policy) = blocking::read(call, |reads| {
        let mut all =
            reads.snapshot().jobs().filter(|job| seen(call, job)).flat_map(|job| scaling::policies(job));
        match all.find(|policy| policy.id == *id) {
            Some(policy) => Ok((policy.modify_index.max(1), policy.clone())),
            None => {
                let index = reads.table_index(Table::ScalingPolicies);
                let meta = Meta { index, known_leader: true, next: Next::default() };
                Err(ApiError::not_found("policy not found").with_meta(meta))
            }
        }
    })
    .await?;
    Ok(Reply::json(policy)?.meta(meta))
}
