//! Changes of nodes: drain, eligibility, evaluation, removal, confirmation that a node is off
//! (docs/reference/http-api.md, section 3.3).

use super::check_uuid;
use crate::body::{bodies, optional, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_server::{DrainRequest, NodeUpdated};
use caravan_types::node::Eligibility;
use caravan_types::{Nanos, NodeId};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

bodies! {
    /// A drain to start or end.
    DrainBody("NodeUpdateDrainRequest") {
        drain_spec: Option<DrainSpecBody> = "DrainSpec";
        mark_eligible: bool = "MarkEligible";
        meta: BTreeMap<String, String> = "Meta";
    }

    /// The rules of a drain.
    DrainSpecBody("DrainSpec") {
        deadline: Nanos = "Deadline";
        ignore_system_jobs: bool = "IgnoreSystemJobs";
    }

    /// An operator's confirmation about a node's machine.
    FenceBody("NodeFenceRequest") {
        confirm_off: bool = "ConfirmOff";
    }

    /// The scheduling eligibility of a node.
    EligibilityBody("NodeUpdateEligibilityRequest") {
        eligibility: String = "Eligibility";
    }
}

/// Returns the id of the node that the path names.
fn named(call: &Call) -> Result<NodeId, ApiError> {
    let id = NodeId::new(call.star(0));
    check_uuid("node", id.as_str())?;
    Ok(id)
}

pub(crate) async fn drain(call: &Call) -> Result<Reply, ApiError> {
    // Old clients use the query instead of the body. Without a deadline their drain is immediate.
    let body: DrainBody = match call.query.flag("enable")? {
        Some(true) => DrainBody {
            drain_spec: Some(DrainSpecBody { deadline: Nanos::from_secs(-1), ..DrainSpecBody::default() }),
            ..DrainBody::default()
        },
        Some(false) => DrainBody::default(),
        None => required(&call.body)?,
    };
    let spec = body.drain_spec;
    let request = DrainRequest {
        deadline: spec.as_ref().map(|spec| spec.deadline),
        ignore_system_jobs: spec.is_some_and(|spec| spec.ignore_system_jobs),
        mark_eligible: body.mark_eligible,
        meta: body.meta,
        accessor: call.caller().identity(),
    };
    let done =
        call.server()?.nodes().drain(&named(call)?, request).await.map_err(|e| ApiError::of_change(&e))?;
    Ok(short(&done, done.index))
}

pub(crate) async fn eligibility(call: &Call) -> Result<Reply, ApiError> {
    let body: EligibilityBody = required(&call.body)?;
    let eligibility = match body.eligibility.as_str() {
        "eligible" => Eligibility::Eligible,
        "ineligible" => Eligibility::Ineligible,
        other => return Err(ApiError::internal(format!("invalid scheduling eligibility \"{other}\""))),
    };
    let done = call
        .server()?
        .nodes()
        .set_eligibility(&named(call)?, eligibility)
        .await
        .map_err(|e| ApiError::of_change(&e))?;
    // Nomad omits the node's index here.
    Ok(short(&done, 0))
}

pub(crate) async fn evaluate(call: &Call) -> Result<Reply, ApiError> {
    let _: EligibilityBody = optional(&call.body)?;
    let server = call.server()?;
    let id = named(call)?;
    let done = server.nodes().evaluate(&id).await.map_err(|e| ApiError::of_change(&e))?;
    let root = server.store().snapshot();
    let servers: Vec<Value> = server
        .addresses()
        .iter()
        .map(|address| {
            json!({"Datacenter": call.state.info.datacenter, "RPCAdvertiseAddr": address, "RPCMajorVersion": 0, "RPCMinorVersion": 0})
        })
        .collect();
    let eligibility = root.node(&id).map_or("", |n| n.scheduling_eligibility.as_str());
    Ok(long(
        &done,
        0,
        json!({
            "LeaderRPCAddr": server.cluster().leader_address(),
            "NumNodes": root.nodes().count(),
            "SchedulingEligibility": eligibility,
            "Servers": servers,
        }),
    ))
}

pub(crate) async fn purge(call: &Call) -> Result<Reply, ApiError> {
    let done = call.server()?.nodes().purge(&named(call)?).await.map_err(|e| ApiError::of_change(&e))?;
    let rest = json!({"LeaderRPCAddr": "", "NumNodes": 0, "SchedulingEligibility": "", "Servers": null});
    Ok(long(&done, done.index, rest))
}

/// Records an operator's confirmation that a node's machine is off. Only Caravan has this route.
pub(crate) async fn fence(call: &Call) -> Result<Reply, ApiError> {
    let body: FenceBody = required(&call.body)?;
    if !body.confirm_off {
        return Err(ApiError::bad_request(
            "ConfirmOff must be true: the volumes of the node are handed on at once, so it must be certain that its machine is off",
        ));
    }
    let caller = call.caller();
    let (accessor, name) = match (&caller.token, &caller.claims) {
        (Some(token), _) => (token.accessor_id.clone(), token.name.clone()),
        (None, Some(workload)) => {
            let claims = &workload.claims;
            (String::new(), format!("task {} of job {}", claims.task, claims.job_id))
        }
        (None, None) => Default::default(),
    };
    let done = call.server()?.nodes().fence(&named(call)?, accessor, name).await.map_err(|error| {
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ApiError::new(status, error.to_string())
    })?;
    Ok(short(&done, done.index))
}

/// Returns the answer to a change of drain or eligibility.
fn short(done: &NodeUpdated, node_index: u64) -> Reply {
    let evals = if done.evals.is_empty() { Value::Null } else { json!(done.evals) };
    let eval_index = if done.evals.is_empty() { 0 } else { done.index };
    Reply::value(json!({
        "EvalCreateIndex": eval_index,
        "EvalIDs": evals,
        "Index": done.index,
        "NodeModifyIndex": node_index,
    }))
    .index(done.index)
}

/// Returns the answer to a change, with the additional fields `rest`.
fn long(done: &NodeUpdated, node_index: u64, rest: Value) -> Reply {
    let Value::Object(rest) = rest else { return short(done, node_index) };
    let evals = if done.evals.is_empty() { Value::Null } else { json!(done.evals) };
    let mut value = json!({
        "EvalCreateIndex": if done.evals.is_empty() { 0 } else { done.index },
        "EvalIDs": evals,
        "Features": 0,
        "HeartbeatTTL": 0,
        "Index": done.index,
        "KnownLeader": false,
        "LastContact": 0,
        "NextToken": "",
        "NodeModifyIndex": node_index,
        "SignedIdentity": null,
    });
    for (key, member) in rest {
        value[key] = member;
    }
    Reply::value(value).index(done.index)
}
