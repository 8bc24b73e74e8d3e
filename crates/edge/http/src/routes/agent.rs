//! The agent's own status and configuration (docs/reference/http-api.md, sections 3.7 and 5.7).

use super::cluster;
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_rpc::ServerList;
use caravan_types::Nanos;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use std::thread::available_parallelism;

pub(crate) fn own(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    Ok(Reply::value(json!({
        "config": call.state.info.config.now(),
        "member": member(call),
        "stats": stats(call),
    })))
}

pub(crate) fn health(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    Ok(parts(call))
}

pub(crate) fn servers(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    if let Some(targets) = &call.state.servers {
        return Reply::json(sorted(targets.list()));
    }
    // For an agent without a server, a server answers. A server without a client has no list of servers.
    if call.state.client.is_none() && call.hops == 0 {
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "Invalid method"));
    }
    Reply::json(sorted(call.server()?.addresses()))
}

/// Sorts addresses of servers. The order in which an agent tries them changes with time and has no meaning for
/// clients.
fn sorted(mut addresses: Vec<String>) -> Vec<String> {
    addresses.sort_unstable();
    addresses
}

/// Returns this server as a member of its cluster; empty on agents without a server.
fn member(call: &Call) -> Value {
    let own = call.state.members.as_ref().and_then(caravan_members::Handle::own);
    own.map_or_else(
        || {
            json!({
                "Name": "",
                "Addr": "",
                "Port": 0,
                "Tags": null,
                "Status": "none",
                "ProtocolMin": 1,
                "ProtocolMax": 5,
                "ProtocolCur": 2,
                "DelegateMin": 2,
                "DelegateMax": 5,
                "DelegateCur": 4,
            })
        },
        |own| cluster::member(&own),
    )
}

fn stats(call: &Call) -> Value {
    let info = &call.state.info;
    let mut groups = Map::new();
    cluster::stats(call, &mut groups);
    if let Some(of_client) = &call.state.client {
        let own = || call.state.server.as_ref().map(|server| server.addresses());
        let servers = call.state.servers.as_ref().map(ServerList::list).or_else(own);
        let mut reported = json!({
            "node_id": of_client.node_id(),
            "known_servers": sorted(servers.unwrap_or_default()).join(","),
            "num_allocations": of_client.alloc_ids().len().to_string(),
        });
        if let Some((ago, ttl)) = of_client.last_heartbeat() {
            reported["last_heartbeat"] = json!(Nanos::from_std(ago).to_string());
            reported["heartbeat_ttl"] = json!(Nanos::from_std(ttl).to_string());
        }
        groups.insert("client".into(), reported);
    }
    let runtime = tokio::runtime::Handle::current().metrics();
    groups.insert(
        "runtime".into(),
        json!({
            "version": info.version,
            "arch": caravan_client::go_arch(std::env::consts::ARCH),
            "kernel.name": std::env::consts::OS,
            "cpu_count": available_parallelism().map_or(1, usize::from).to_string(),
            "max_procs": runtime.num_workers().to_string(),
            // Tasks of the runtime are the closest equivalent.
            "goroutines": runtime.num_alive_tasks().to_string(),
        }),
    );
    Value::Object(groups)
}

/// Returns the health of the requested roles (both if none is requested) that this agent has; 500 if one is
/// unhealthy.
fn parts(call: &Call) -> Reply {
    let asked: Vec<&str> = call.query.all("type").collect();
    let wants = |part: &str| asked.is_empty() || asked.contains(&part);
    let reported = |result: Result<(), String>| match result {
        Ok(()) => json!({"ok": true, "message": "ok"}),
        Err(reason) => json!({"ok": false, "message": reason}),
    };
    let mut parts = Map::new();
    if call.state.client.is_some() && wants("client") {
        let is_alone = call.state.servers.as_ref().is_some_and(|servers| servers.list().is_empty());
        let result = if is_alone { Err("no known servers".to_owned()) } else { Ok(()) };
        parts.insert("client".into(), reported(result));
    }
    if let Some(server) = call.state.server.as_ref().filter(|_| wants("server")) {
        let leader = if server.cluster().knows_leader() { Ok(()) } else { Err("no leader".to_owned()) };
        parts.insert("server".into(), reported(leader));
    }
    let ok = parts.values().all(|part| part["ok"] == json!(true));
    let status = if ok { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    Reply::value(Value::Object(parts)).status(status)
}
