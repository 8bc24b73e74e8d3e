//! The agent's own status and configuration (docs/reference/http-api.md, sections 3.7 and 5.7).

use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
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

pub(crate) fn members(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let info = &call.state.info;
    Ok(Reply::value(json!({
        "ServerName": info.name,
        "ServerRegion": info.region,
        "ServerDC": info.datacenter,
        "Members": [member(call)],
    })))
}

pub(crate) fn servers(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    if let Some(targets) = &call.state.servers {
        return Reply::json(targets.list());
    }
    // For an agent without a server, a server answers. A server without a client has no list of servers.
    if call.state.client.is_none() && call.hops == 0 {
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "Invalid method"));
    }
    Reply::json(call.server()?.addresses())
}

/// Returns this server as a member of its cluster; empty on agents without a server.
fn member(call: &Call) -> Value {
    let info = &call.state.info;
    let (addr, port) = info.rpc_addr.rsplit_once(':').unwrap_or_default();
    let server = call.state.server.is_some();
    let tags = json!({
        "id": info.server_id,
        "role": "nomad",
        "region": info.region,
        "dc": info.datacenter,
        "vsn": "1",
        "raft_vsn": "3",
        "build": info.version,
        "revision": "",
        "port": port,
        "rpc_addr": addr,
        "bootstrap": "1",
        "expect": "1",
    });
    json!({
        "Name": if server { format!("{}.{}", info.name, info.region) } else { String::new() },
        "Addr": addr,
        "Port": port.parse::<u16>().unwrap_or(0),
        "Tags": if server { tags } else { Value::Null },
        "Status": if server { "alive" } else { "none" },
        "ProtocolMin": 1,
        "ProtocolMax": 5,
        "ProtocolCur": 2,
        "DelegateMin": 2,
        "DelegateMax": 5,
        "DelegateCur": 4,
    })
}

fn stats(call: &Call) -> Value {
    let info = &call.state.info;
    let mut groups = Map::new();
    if let Some(server) = &call.state.server {
        let metrics = server.log_metrics();
        groups.insert(
            "nomad".into(),
            json!({
                "server": "true",
                "leader": metrics.is_leader.to_string(),
                "leader_addr": info.rpc_addr,
                "bootstrap": "true",
                "known_regions": "1",
            }),
        );
        groups.insert(
            "raft".into(),
            json!({
                "state": if metrics.is_leader { "Leader" } else { "Follower" },
                "term": metrics.term.to_string(),
                "last_log_index": metrics.last_log_index.to_string(),
                "applied_index": metrics.applied_index.to_string(),
                "commit_index": metrics.applied_index.to_string(),
                "last_snapshot_index": metrics.snapshot_index.unwrap_or(0).to_string(),
                "last_log_term": metrics.term.to_string(),
                "last_snapshot_term": if metrics.snapshot_index.is_some() { metrics.term } else { 0 }.to_string(),
                "last_contact": "0",
                "fsm_pending": metrics.last_log_index.saturating_sub(metrics.applied_index).to_string(),
                "latest_configuration": format!("[{{Suffrage:Voter ID:{} Address:{}}}]", info.server_id, info.rpc_addr),
                "latest_configuration_index": "0",
                "logstore_backend": if info.dev { "memory" } else { "redb" },
                "protocol_version": "3",
                "protocol_version_min": "0",
                "protocol_version_max": "3",
                "snapshot_version_min": "0",
                "snapshot_version_max": "1",
                "num_peers": "0",
            }),
        );
        // Caravan has no gossip: one member, and empty queues.
        let mut serf = Map::new();
        serf.extend(
            ["members", "member_time", "event_time", "query_time"].map(|key| (key.to_owned(), json!("1"))),
        );
        let none = [
            "failed",
            "left",
            "health_score",
            "coordinate_resets",
            "intent_queue",
            "event_queue",
            "query_queue",
        ];
        serf.extend(none.map(|key| (key.to_owned(), json!("0"))));
        serf.insert("encrypted".into(), json!("false"));
        groups.insert("serf".into(), Value::Object(serf));
    }
    if let Some(of_client) = &call.state.client {
        let servers = call.state.server.as_ref().map(|server| server.addresses().join(","));
        let mut reported = json!({
            "node_id": of_client.node_id(),
            "known_servers": servers.unwrap_or_default(),
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
            "arch": std::env::consts::ARCH,
            "kernel.name": std::env::consts::OS,
            "cpu_count": available_parallelism().map_or(1, usize::from).to_string(),
            "max_procs": runtime.num_workers().to_string(),
            // Tasks of the runtime are the closest equivalent.
            "goroutines": runtime.num_alive_tasks().to_string(),
        }),
    );
    Value::Object(groups)
}

/// Returns the health of the requested roles (both if none is requested) that this agent has; 500 if one is unhealthy.
fn parts(call: &Call) -> Reply {
    let asked: Vec<&str> = call.query.all("type").collect();
    let wants = |part: &str| asked.is_empty() || asked.contains(&part);
    let reported = |result: Result<(), String>| match result {
        Ok(()) => json!({"ok": true, "message": "ok"}),
        Err(reason) => json!({"ok": false, "message": reason}),
    };
    let mut parts = Map::new();
    if call.state.client.is_some() && wants("client") {
        parts.insert("client".into(), reported(Ok(())));
    }
    if let Some(server) = call.state.server.as_ref().filter(|_| wants("server")) {
        let leader = if server.is_leader() { Ok(()) } else { Err("no leader".to_owned()) };
        parts.insert("server".into(), reported(leader));
    }
    let ok = parts.values().all(|part| part["ok"] == json!(true));
    let status = if ok { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    Reply::value(Value::Object(parts)).status(status)
}
