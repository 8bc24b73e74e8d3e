//! Status of the servers, their chores, and the objects that are always there
//! (`http-api` sections 3.7 and 5.8).

use super::volume_metrics;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Meta, Reply};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) async fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    let get = || call.only(&Method::GET);
    match rest {
        ["status", "leader"] => {
            get()?;
            let leads = call.server()?.is_leader();
            Reply::json(if leads { call.state.info.rpc_addr.as_str() } else { "" })
        }
        ["status", "peers"] => {
            get()?;
            Reply::json(call.server()?.addresses())
        }
        ["regions"] => {
            get()?;
            Reply::json([&call.state.info.region])
        }
        ["system", "gc"] => {
            call.only(&Method::PUT)?;
            call.server()?.collect_garbage().await.map_err(|e| ApiError::of_change(&e))?;
            Ok(Reply::empty())
        }
        // Summaries are derived whenever they are asked for: they are never out of step.
        ["system", "reconcile", "summaries"] => {
            call.only(&Method::PUT)?;
            call.server()?.barrier().await.map_err(|e| ApiError::of_change(&e))?;
            Ok(Reply::empty())
        }
        ["operator", "raft", "configuration"] => {
            get()?;
            raft(call)
        }
        ["namespaces"] => {
            get()?;
            let shown = "default".starts_with(call.query.text("prefix"));
            Ok(Reply::value(Value::Array(shown.then(namespace).into_iter().collect())).meta(always_there()))
        }
        ["namespace", name] if call.is_get() => match *name {
            "default" => Ok(Reply::value(namespace()).meta(always_there())),
            _ => Err(ApiError::not_found("Namespace not found").with_meta(always_there())),
        },
        ["metrics"] => {
            get()?;
            metrics(call)
        }
        _ => Err(ApiError::unknown_path()),
    }
}

fn always_there() -> Meta {
    Meta { index: 1, known_leader: true, next_token: String::new() }
}

/// The one namespace; others cannot be made yet.
fn namespace() -> Value {
    json!({
        "Name": "default",
        "Description": "Default shared namespace",
        "Quota": "",
        "Capabilities": null,
        "NodePoolConfiguration": null,
        "VaultConfiguration": null,
        "ConsulConfiguration": null,
        "Meta": null,
        "Hash": "",
        "RequiredExtraClaims": null,
        "OptionalExtraClaims": null,
        "CreateIndex": 1,
        "ModifyIndex": 1,
    })
}

fn raft(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let info = &call.state.info;
    Ok(Reply::value(json!({
        "Index": 0,
        "Servers": [{
            "ID": info.server_id,
            "Node": format!("{}.{}", info.name, info.region),
            "Address": info.rpc_addr,
            "Leader": server.is_leader(),
            "Voter": true,
            "RaftProtocol": "3",
        }],
    })))
}

/// The figures that are derived from the state, and what calls to storage plugins took since the start.
fn metrics(call: &Call) -> Result<Reply, ApiError> {
    if call.query.text("format") == "prometheus" {
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Prometheus is not enabled"));
    }
    let mut gauges: BTreeMap<&str, usize> = BTreeMap::new();
    if let Some(server) = &call.state.server {
        let depth = server.broker_depth();
        gauges.insert("nomad.nomad.broker.total_ready", depth.ready);
        gauges.insert("nomad.nomad.broker.total_unacked", depth.in_flight);
        gauges.insert("nomad.nomad.broker.total_waiting", depth.delayed);
        gauges.insert("nomad.nomad.blocked_evals.total_blocked", depth.blocked);
        let root = server.store().snapshot();
        gauges.insert("nomad.state.nodes", root.nodes().count());
        gauges.insert("nomad.state.jobs", root.jobs().count());
        gauges.insert("nomad.state.allocations", root.allocs().count());
    }
    if let Some(client) = &call.state.client {
        gauges.insert("nomad.client.allocations.known", client.alloc_count());
    }
    let mut gauges: Vec<Value> =
        gauges.iter().map(|(name, n)| json!({"Name": name, "Value": as_float(*n), "Labels": {}})).collect();
    let (mut counters, mut samples) = (Vec::new(), Vec::new());
    if let Some(server) = &call.state.server {
        let volumes = volume_metrics::shape(&server.volume_figures());
        gauges.extend(volumes.gauges);
        counters = volumes.counters;
        samples = volumes.samples;
    }
    Ok(Reply::value(json!({
        "Timestamp": "",
        "Gauges": gauges,
        "Points": [],
        "Counters": counters,
        "Samples": samples,
    })))
}

/// Counts of rows are far below what a float holds exactly.
fn as_float(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}
