//! Jobs with the facts that a status page shows (docs/reference/http-api.md, section 3.1).

use super::jobs;
use crate::blocking;
use crate::body::{bodies, optional};
use crate::call::Call;
use crate::error::ApiError;
use crate::page::{Pager, Token, object};
use crate::reply::Reply;
use caravan_server::NsCap;
use caravan_state::{Root, Table};
use caravan_types::alloc::Allocation;
use caravan_types::deployment::{Deployment, DeploymentState, DeploymentStatus};
use caravan_types::job::Job;
use caravan_types::{JobKey, Namespace};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

bodies! {
    /// The requested jobs.
    StatusesBody("JobStatusesRequest") {
        jobs: Vec<Named> = "Jobs";
        include_children: bool = "IncludeChildren";
    }

    /// A job by its name.
    Named("NamespacedID") {
        id: String = "ID";
        namespace: String = "Namespace";
    }
}

const TABLES: [Table; 3] = [Table::Jobs, Table::Allocs, Table::Deployments];

/// The form in which an answer contains the allocations of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocs {
    /// One object for each allocation, as in Nomad.
    Listed,
    /// The number of allocations by status. A job may have tens of thousands of allocations.
    Counted,
}

impl Allocs {
    fn read(text: &str) -> Result<Self, ApiError> {
        match text {
            "" => Ok(Self::Listed),
            "counts" => Ok(Self::Counted),
            _ => Err(ApiError::bad_request(format!("`allocs` must be \"counts\" or absent, not {text:?}"))),
        }
    }
}

pub(crate) async fn route(call: &Call) -> Result<Reply, ApiError> {
    let body = match call.is_get() {
        true => StatusesBody::default(),
        false => {
            call.put()?;
            optional(&call.body)?
        }
    };
    let with_children = call.query.flag("include_children")?.unwrap_or(body.include_children);
    let namespace = call.list_namespace();
    // The newest job is first unless the query reverses the order. An invalid filter expression has no
    // specific status code here.
    let uncoded = |error: ApiError| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.message);
    call.query.per_page()?;
    let allocs = Allocs::read(call.query.text("allocs"))?;
    Pager::check(&call.query, &jobs::KEYS)?;
    let pager = Pager::new(&call.query, &jobs::KEYS).map_err(uncoded)?;
    let pager = if pager.is_sorted() { pager } else { pager.reversed() };
    let named: Vec<JobKey> = body
        .jobs
        .iter()
        .map(|job| match job.namespace.as_str() {
            "" => jobs::key(call.namespace.clone(), &job.id),
            name => jobs::key(Namespace::new(name), &job.id),
        })
        .collect();
    let (mut meta, (rows, next)) = blocking::read(call, |reads| {
        let mut rows: Vec<&Arc<Job>> = if named.is_empty() {
            let prefix = call.query.text("prefix");
            listed(call, reads.snapshot(), namespace.as_ref(), prefix, with_children).collect()
        } else {
            let rows = named.iter().filter_map(|key| reads.snapshot().job(key));
            rows.filter(|job| call.may(&job.namespace, NsCap::ReadJob)).collect()
        };
        if !pager.is_sorted() {
            rows.sort_by_key(|job| (job.modify_index, job.key()));
        }
        let cut = pager.cut(
            reads.snapshot(),
            rows,
            |job| match pager.is_sorted() {
                true => jobs::own(job),
                false => Token::Modified(job.modify_index),
            },
            object,
        );
        let (rows, next) = cut.map_err(uncoded)?;
        let rows: Vec<Value> = rows.into_iter().map(|job| status(reads.snapshot(), job, allocs)).collect();
        Ok((reads.tables_index(&TABLES), (rows, next)))
    })
    .await?;
    meta.next = next;
    Ok(Reply::value(Value::Array(rows)).meta(meta))
}

/// Returns the jobs that the caller may read and a list shows. The children of periodic and parameterized jobs are
/// only shown on request.
pub(super) fn listed<'r>(
    call: &Call,
    root: &'r Root,
    namespace: Option<&Namespace>,
    prefix: &str,
    with_children: bool,
) -> impl Iterator<Item = &'r Arc<Job>> {
    let rows = root.jobs_with_prefix(namespace, prefix);
    rows.filter(move |job| with_children || job.parent_id.is_empty())
        .filter(|job| call.may(&job.namespace, NsCap::ReadJob))
}

fn status(root: &Root, job: &Job, desired: Allocs) -> Value {
    let key = job.key();
    let own =
        |alloc: &&Arc<Allocation>| alloc.job.as_ref().is_none_or(|ran| ran.create_index == job.create_index);
    let rows = root.allocs_by_job(&key).filter(own);
    let (mut allocs, mut counts) = (Vec::new(), None);
    match desired {
        Allocs::Listed => allocs = rows.map(|alloc| of_alloc(alloc)).collect(),
        Allocs::Counted => counts = Some(counted(rows)),
    }
    let is_parent = job.is_template();
    let children =
        is_parent.then(|| root.children(&key).map(|child| child.status.as_str()).collect::<Vec<_>>());
    let newest = root.deployments_by_job(&key).max_by_key(|row| row.create_index);
    let count: u64 = job.task_groups.iter().map(|group| u64::from(group.count)).sum();
    let mut out = json!({
        "ID": job.id,
        "Namespace": job.namespace,
        "Name": job.name,
        "Type": job.kind,
        "NodePool": job.node_pool,
        "Datacenters": job.datacenters,
        "Priority": job.priority,
        "Version": job.version,
        "SubmitTime": job.submit_time,
        "ModifyIndex": job.modify_index,
        "Allocs": if allocs.is_empty() { Value::Null } else { Value::Array(allocs) },
        "GroupCountSum": count,
        "ChildStatuses": children.filter(|statuses| !statuses.is_empty()),
        "ParentID": job.parent_id,
        "LatestDeployment": newest.map(|row| of_deployment(row)),
        "Stop": job.stop,
        "IsPack": job.meta.keys().any(|key| key == "pack.name"),
        "Status": job.status,
    });
    if let Some(counts) = counts {
        out["CaravanAllocs"] = json!(counts);
    }
    out
}

/// Counts allocations by status.
fn counted<'r>(rows: impl Iterator<Item = &'r Arc<Allocation>>) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row.client_status.as_str()).or_default() += 1;
    }
    counts
}

fn of_alloc(alloc: &Allocation) -> Value {
    let health = alloc.deployment_status.as_ref();
    let paused = alloc.task_states.values().any(|state| {
        serde_json::to_value(state).is_ok_and(|state| state["Paused"].as_str().is_some_and(|p| !p.is_empty()))
    });
    json!({
        "ID": alloc.id,
        "Group": alloc.task_group,
        "ClientStatus": alloc.client_status,
        "NodeID": alloc.node_id,
        "DeploymentStatus": {
            "Canary": health.is_some_and(|health| health.canary),
            "Healthy": health.and_then(|health| health.healthy),
        },
        "JobVersion": alloc.job.as_ref().map_or(0, |job| job.version),
        "FollowupEvalID": alloc.followup_eval_id,
        "HasPausedTask": paused,
    })
}

fn of_deployment(row: &Deployment) -> Value {
    let active = !row.status.is_terminal();
    let waits = |group: &DeploymentState| group.desired_canaries > 0 && !group.promoted;
    json!({
        "ID": row.id,
        "IsActive": active,
        "JobVersion": row.job_version,
        "Status": row.status,
        "StatusDescription": row.status_description,
        "AllAutoPromote": !row.task_groups.is_empty() && row.task_groups.values().all(|group| group.auto_promote),
        "RequiresPromotion": row.status == DeploymentStatus::Running && row.task_groups.values().any(waits),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_that_waits_for_its_promotion_says_so() {
        let state = DeploymentState { desired_canaries: 1, ..DeploymentState::default() };
        let mut row = Deployment { task_groups: [("g".to_owned(), state)].into(), ..Deployment::default() };
        assert_eq!(of_deployment(&row)["RequiresPromotion"], json!(true));
        assert_eq!(of_deployment(&row)["IsActive"], json!(true));
        row.status = DeploymentStatus::Successful;
        assert_eq!(of_deployment(&row)["RequiresPromotion"], json!(false));
    }
}
