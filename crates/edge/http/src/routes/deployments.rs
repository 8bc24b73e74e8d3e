//! Deployments (docs/reference/http-api.md, sections 3.2 and 5.5).

use super::{allocs, check_prefix, check_uuid};
use crate::blocking;
use crate::body::{bodies, optional, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::order::{Keys, keys};
use crate::page::{Pager, Token, object};
use crate::reply::{Meta, Next, Reply};
use caravan_server::{DeploymentRequest, NsCap};
use caravan_state::Table;
use caravan_types::deployment::Deployment;
use caravan_types::{AllocId, DeploymentId, JobKey};
use http::Method;
use serde_json::json;
use std::sync::Arc;

/// The keys by which the list of deployments can be sorted.
pub(crate) const KEYS: Keys<Deployment> = keys!(Deployment {
    "id" => |_, row| row.id.as_str(),
    "namespace" => |_, row| row.namespace.as_str(),
    "job" => |_, row| row.job_id.as_str(),
    "version" => |_, row| row.job_version,
    "status" => |_, row| row.status.as_str(),
    "create" => |_, row| row.create_index,
    "modify" => |_, row| row.modify_index,
});

pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let namespace = call.list_namespace();
    let prefix = call.query.text("prefix");
    check_prefix("deployment", prefix)?;
    let pager = Pager::new(&call.query, &KEYS)?;
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let here = |row: &&Arc<Deployment>| {
            namespace.as_ref().is_none_or(|ns| row.namespace == *ns)
                && call.may(&row.namespace, NsCap::ReadJob)
        };
        let (rows, next) = match prefix {
            "" => pager.take(
                reads.snapshot(),
                reads.snapshot().deployments_by_age(pager.start_by_age(), pager.reverse).filter(here),
                |row| Token::Created(row.create_index, row.id.as_str()),
                object,
            )?,
            prefix => pager.cut(
                reads.snapshot(),
                reads.snapshot().deployments_with_prefix(prefix).filter(here).collect(),
                |row| Token::Id(row.id.as_str()),
                object,
            )?,
        };
        let rows: Vec<_> = rows.into_iter().cloned().collect();
        Ok((reads.table_index(Table::Deployments), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::json(rows)?.meta(meta))
}

bodies! {
    /// A change of a deployment; each route reads its own fields.
    ChangeBody("DeploymentUpdateRequest") {
        id: String = "DeploymentID";
        pause: bool = "Pause";
        all: bool = "All";
        groups: Vec<String> = "Groups";
        healthy: Vec<String> = "HealthyAllocationIDs";
        unhealthy: Vec<String> = "UnhealthyAllocationIDs";
    }
}

pub(crate) async fn fail(call: &Call) -> Result<Reply, ApiError> {
    let body: ChangeBody = optional(&call.body)?;
    change(call, &body.id, DeploymentRequest::Fail).await
}

pub(crate) async fn pause(call: &Call) -> Result<Reply, ApiError> {
    let body = named(call)?;
    change(call, &body.id, DeploymentRequest::Pause(body.pause)).await
}

pub(crate) async fn promote(call: &Call) -> Result<Reply, ApiError> {
    let body = named(call)?;
    change(call, &body.id, DeploymentRequest::Promote((!body.all).then_some(body.groups))).await
}

pub(crate) async fn unblock(call: &Call) -> Result<Reply, ApiError> {
    change(call, &named(call)?.id, DeploymentRequest::Unblock).await
}

/// Records the health of allocations.
pub(crate) async fn set_health(call: &Call) -> Result<Reply, ApiError> {
    let body = named(call)?;
    let ids = |ids: &[String]| ids.iter().map(AllocId::new).collect();
    let request = DeploymentRequest::Health { healthy: ids(&body.healthy), unhealthy: ids(&body.unhealthy) };
    change(call, &body.id, request).await
}

/// Reads a body that must name the deployment.
fn named(call: &Call) -> Result<ChangeBody, ApiError> {
    let body: ChangeBody = required(&call.body)?;
    match body.id.is_empty() {
        true => Err(ApiError::bad_request("DeploymentID must be specified")),
        false => Ok(body),
    }
}

/// Changes the deployment that the path names; `in_body` is the id in the body, empty if absent.
async fn change(call: &Call, in_body: &str, request: DeploymentRequest) -> Result<Reply, ApiError> {
    let id = DeploymentId::new(call.star(0));
    if !in_body.is_empty() && in_body != id.as_str() {
        return Err(ApiError::bad_request("Deployment ID does not match"));
    }
    check_uuid("deployment", id.as_str())?;
    let done =
        call.server()?.deployments().change(&id, request).await.map_err(|e| ApiError::of_change(&e))?;
    let value = json!({
        "EvalID": done.eval_id,
        "EvalCreateIndex": done.eval_create_index,
        "DeploymentModifyIndex": done.deployment_modify_index,
        "RevertedJobVersion": done.reverted_job_version,
        "Index": done.index,
    });
    Ok(Reply::value(value).index(done.index))
}

pub(crate) async fn get(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = DeploymentId::new(call.star(0));
    check_uuid("deployment", id.as_str())?;
    let (meta, row) = blocking::read(call, |reads| match reads.deployment(&id) {
        Some(row) => Ok((row.modify_index, row.clone())),
        None => {
            let index = reads.part_index(&[Table::Deployments]);
            let meta = Meta { index, known_leader: true, next: Next::default() };
            Err(ApiError::not_found("deployment not found").with_meta(meta))
        }
    })
    .await?;
    Ok(Reply::json(&*row)?.meta(meta))
}

pub(crate) async fn allocations(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let id = DeploymentId::new(call.star(0));
    check_uuid("deployment", id.as_str())?;
    let (meta, stubs) = blocking::read(call, |reads| {
        let key = reads
            .snapshot()
            .deployment(&id)
            .map(|row| JobKey::new(row.namespace.clone(), row.job_id.clone()));
        let of_job = key.iter().flat_map(|key| reads.snapshot().allocs_by_job(key));
        let mut rows: Vec<_> = of_job.filter(|alloc| alloc.deployment_id == id).collect();
        rows.sort_by_key(|alloc| alloc.create_index);
        Ok((reads.table_index(Table::Allocs), allocs::stubs(rows, true, false)))
    })
    .await?;
    Ok(Reply::json(stubs)?.meta(meta))
}
