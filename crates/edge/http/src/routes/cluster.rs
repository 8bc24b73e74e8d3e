//! The servers of the cluster: members, the log's configuration, leadership, health
//! (docs/reference/cluster.md, sections 9 to 11).

use crate::body::{bodies, optional};
use crate::call::Call;
use crate::error::ApiError;
use crate::leader::{is_stale, no_leader};
use crate::reply::Reply;
use crate::typed::refused;
use caravan_members::{KeyringAnswer, Member, Status};
use caravan_server::{ClusterMember, Kind, ReplicationState, ServerError};
use caravan_types::Nanos;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

bodies! {
    /// A key of the gossip between servers.
    KeyBody("KeyringRequest") {
        key: String = "Key";
    }
}

/// Returns the membership of this agent's server.
fn table(call: &Call) -> Result<&caravan_members::Handle, ApiError> {
    let refused = || ApiError::new(StatusCode::NOT_IMPLEMENTED, "Invalid method");
    call.state.members.as_ref().ok_or_else(refused)
}

/// Returns the JSON of a member.
pub(super) fn member(member: &Member) -> Value {
    let protocol = member.protocol();
    json!({
        "Name": member.name,
        "Addr": member.addr.ip().to_string(),
        "Port": member.addr.port(),
        "Tags": member.tags,
        "Status": member.status.as_str(),
        "ProtocolMin": protocol.min,
        "ProtocolMax": protocol.max,
        "ProtocolCur": protocol.current,
        "DelegateMin": protocol.delegate_min,
        "DelegateMax": protocol.delegate_max,
        "DelegateCur": protocol.delegate_current,
    })
}

pub(crate) fn members(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let info = &call.state.info;
    let members: Vec<Value> = match &call.state.members {
        Some(table) => table.members().iter().map(member).collect(),
        None => Vec::new(),
    };
    Ok(Reply::value(json!({
        "ServerName": info.name,
        "ServerRegion": info.region,
        "ServerDC": info.datacenter,
        "Members": members,
    })))
}

pub(crate) fn regions(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    match &call.state.members {
        Some(table) => Reply::json(table.regions()),
        None => Reply::json([&call.state.info.region]),
    }
}

/// Returns the servers in the membership of the log. A stale read proves no leadership, so its answer names a leader
/// only with recent evidence.
fn recorded(call: &Call) -> Result<Vec<ClusterMember>, ApiError> {
    let cluster = call.server()?.cluster();
    let mut members = cluster.members();
    if is_stale(call) && !cluster.knows_leader() {
        members.iter_mut().for_each(|member| member.leader = false);
    }
    Ok(members)
}

pub(crate) fn leader(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let leader = recorded(call)?.into_iter().find(|member| member.leader);
    Reply::json(leader.map(|leader| leader.address).unwrap_or_default())
}

pub(crate) fn peers(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let mut addresses: Vec<String> = recorded(call)?.into_iter().map(|member| member.address).collect();
    addresses.sort();
    Reply::json(addresses)
}

pub(crate) async fn join(call: &Call) -> Result<Reply, ApiError> {
    let table = table(call)?;
    let addresses: Vec<String> =
        call.query.all("address").filter(|address| !address.is_empty()).map(str::to_owned).collect();
    if addresses.is_empty() {
        return Err(ApiError::bad_request("missing address to join"));
    }
    let result = table.join(&addresses).await;
    let failures = result.error().unwrap_or_default();
    // A join that reached a server is not an error: the member table delivers the other members.
    let (error, warning) =
        if result.joined == 0 { (failures, String::new()) } else { (String::new(), failures) };
    Ok(Reply::value(json!({
        "num_joined": result.joined,
        "error": error,
        "warning": warning,
    })))
}

pub(crate) async fn force_leave(call: &Call) -> Result<Reply, ApiError> {
    let table = table(call)?;
    let node = call.query.text("node");
    if node.is_empty() {
        return Err(ApiError::bad_request("missing node to force leave"));
    }
    let prune = call.query.flag("prune").map_err(|error| ApiError::bad_request(error.message))?;
    let prune = prune.unwrap_or(false);
    // An unknown name is no error, as in Nomad.
    table.force_leave(node, prune).await.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(Reply::empty())
}

/// Lists, installs, uses or removes a key of the gossip, on all servers.
pub(crate) async fn keyring(call: &Call) -> Result<Reply, ApiError> {
    let table = table(call)?;
    let body: KeyBody = optional(&call.body)?;
    let answer = match call.segments.last().map(String::as_str) {
        Some("install") => table.keyring_install(&body.key).await,
        Some("use") => table.keyring_use(&body.key).await,
        Some("remove") => table.keyring_remove(&body.key).await,
        _ => table.keyring_list().await,
    };
    if !answer.is_complete() {
        return Err(incomplete(&answer));
    }
    Ok(Reply::value(json!({
        "Messages": BTreeMap::<String, String>::new(),
        "Keys": answer.keys,
        "NumNodes": answer.nodes,
    })))
}

fn incomplete(answer: &KeyringAnswer) -> ApiError {
    let reasons: Vec<String> =
        answer.errors.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    ApiError::internal(format!(
        "{}/{} nodes reported failure: {}",
        answer.errors.len(),
        answer.nodes,
        reasons.join("; ")
    ))
}

/// Returns the text of a UUID; empty for the nil UUID of a log that does not name its servers.
fn id(id: Uuid) -> String {
    if id.is_nil() { String::new() } else { id.to_string() }
}

pub(crate) fn raft(call: &Call) -> Result<Reply, ApiError> {
    // This route refuses with an empty body.
    if !call.is_get() {
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, ""));
    }
    let server = |member: ClusterMember| {
        json!({
            "ID": id(member.id),
            "RaftProtocol": if member.name.is_some() { "3" } else { "unknown" },
            "Node": member.name.unwrap_or_else(|| "(unknown)".to_owned()),
            "Address": member.address,
            "Leader": member.leader,
            "Voter": member.voter,
        })
    };
    let servers: Vec<Value> = recorded(call)?.into_iter().map(server).collect();
    Ok(Reply::value(json!({"Index": 0, "Servers": servers})))
}

pub(crate) async fn remove_peer(call: &Call) -> Result<Reply, ApiError> {
    if !call.query.text("address").is_empty() {
        return Err(ApiError::bad_request(
            "Removing a peer by address is not supported in the current raft protocol version",
        ));
    }
    let id = call.query.text("id");
    if id.is_empty() {
        return Err(ApiError::bad_request("Must specify the peer's ID to remove"));
    }
    call.server()?.cluster().remove(id).await.map_err(|error| refused(&error))?;
    Ok(Reply::empty())
}

pub(crate) async fn transfer(call: &Call) -> Result<Reply, ApiError> {
    let (id, address) = (call.query.text("id"), call.query.text("address"));
    if call.query.all("id").count() > 1 || call.query.all("address").count() > 1 {
        return Err(ApiError::bad_request("must provide id or address only once"));
    }
    match (id, address) {
        ("", "") => return Err(ApiError::bad_request("must provide id or address")),
        (_, "") | ("", _) => {}
        _ => return Err(ApiError::bad_request("must provide either id or address")),
    }
    if !id.is_empty() && id.len() != 36 {
        return Err(ApiError::bad_request("id must be a uuid: uuid string is wrong length"));
    }
    let chosen = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let cluster = call.server()?.cluster();
    if !cluster.knows_leader() {
        return Err(no_leader(call));
    }
    let done =
        cluster.transfer(chosen(id), chosen(address)).await.map_err(|error| transfer_failed(call, &error))?;
    let side = |(id, address): &(Uuid, String)| json!({"ID": id.to_string(), "Address": address});
    Ok(Reply::value(match done {
        Some(done) => json!({"From": side(&done.from), "To": side(&done.to), "Noop": false}),
        None => {
            let info = &call.state.info;
            let leader = cluster.leader_address().unwrap_or_else(|| info.rpc_addr.clone());
            let own = json!({"ID": info.server_id, "Address": leader});
            json!({"From": own, "To": own, "Noop": true})
        }
    }))
}

fn transfer_failed(call: &Call, error: &ServerError) -> ApiError {
    match (error, error.kind()) {
        (ServerError::Membership(fault), Kind::BadRequest | Kind::Refused) => {
            ApiError::bad_request(fault.to_string())
        }
        (_, Kind::NotLeader) => no_leader(call),
        _ => refused(error),
    }
}

pub(crate) fn health(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let server = call.server()?;
    let (health, info) = (server.cluster().health(), &call.state.info);
    let mut servers: Vec<Value> = health.servers.iter().map(server_health).collect();
    if servers.is_empty() {
        // The term is too young for a measurement, so only this server is listed.
        let metrics = server.log_metrics();
        servers.push(json!({
            "LastContact": "0s",
            "ID": info.server_id,
            "Name": format!("{}.{}", info.name, info.region),
            "Address": server.cluster().leader_address().unwrap_or_else(|| info.rpc_addr.clone()),
            "SerfStatus": Status::Alive.as_str(),
            "Version": info.version,
            "Leader": metrics.is_leader,
            "LastTerm": metrics.term,
            "LastIndex": metrics.last_log_index,
            "Healthy": metrics.is_leader,
            "Voter": true,
            "StableSince": call.state.started.to_time(),
        }));
    }
    let healthy = servers.iter().all(|server| server["Healthy"] == json!(true));
    let find = |key: &'static str| servers.iter().filter(move |server| server[key] == json!(true));
    let leader = find("Leader").map(|server| server["ID"].clone()).next().unwrap_or_else(|| json!(""));
    let voters: Vec<Value> = find("Voter").map(|server| server["ID"].clone()).collect();
    let reply = Reply::value(json!({
        "Healthy": healthy,
        "FailureTolerance": health.failure_tolerance(),
        "Leader": leader,
        "Voters": voters,
        "Servers": servers,
        "CaravanFeatureLevel": server.store().snapshot().level(),
    }));
    Ok(if healthy { reply } else { reply.status(StatusCode::TOO_MANY_REQUESTS) })
}

fn server_health(server: &caravan_server::ServerHealth) -> Value {
    // Rounded to seconds, as in Nomad.
    let second = 1_000_000_000;
    let stable = caravan_types::UnixNanos(server.stable_since.0 / second * second);
    let mut shown = json!({
        "LastContact": server.last_contact.unwrap_or(Nanos::ZERO).to_string(),
        "ID": id(server.id),
        "Name": server.name,
        "Address": server.address,
        "SerfStatus": server.member_status,
        "Version": server.version,
        "Leader": server.leader,
        "LastTerm": server.last_term,
        "LastIndex": server.last_index,
        "Healthy": server.healthy,
        "Voter": server.voter,
        "StableSince": stable.to_time(),
    });
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("CaravanClockSkew".into(), json!(server.clock_skew.to_string()));
        shown.insert("CaravanFeatureLevel".into(), json!(server.level));
    }
    shown
}

/// Adds the group of `agent/self` about the replication from the authoritative region, on the leader of another
/// region.
fn replication(server: &caravan_server::Handle, groups: &mut Map<String, Value>) {
    let kinds = server.cluster().replication();
    if kinds.is_empty() {
        return;
    }
    let mut group = Map::new();
    group.insert("authoritative_region".to_owned(), json!(server.cluster().authoritative_region()));
    for (kind, status) in kinds {
        let (state, error) = match status.state {
            ReplicationState::Starting => ("starting", String::new()),
            ReplicationState::Following => ("following", String::new()),
            ReplicationState::Failed(reason) => ("failed", reason),
        };
        let updated = status.updated.map_or_else(|| "never".to_owned(), |at| at.to_time().to_string());
        for (name, value) in [
            ("state", state.to_owned()),
            ("error", error),
            ("rows", status.rows.to_string()),
            ("index", status.index.to_string()),
            ("updated", updated),
        ] {
            group.insert(format!("{kind}_{name}"), json!(value));
        }
    }
    groups.insert("replication".into(), Value::Object(group));
}

/// Returns the groups of `agent/self` about the server.
pub(super) fn stats(call: &Call, groups: &mut Map<String, Value>) {
    let Some(server) = &call.state.server else { return };
    let (info, metrics, cluster) = (&call.state.info, server.log_metrics(), server.cluster());
    let members = cluster.members();
    let (knows_leader, leads) = (cluster.knows_leader(), metrics.is_leader && cluster.knows_leader());
    let leader = members.iter().find(|member| member.leader && knows_leader);
    let table = call.state.members.as_ref();
    let own = table.and_then(caravan_members::Handle::own);
    let expect = own.map_or(1, |own| own.server_tags().expect);
    let regions = table.map_or(1, |table| table.regions().len());
    groups.insert(
        "nomad".into(),
        json!({
            "server": "true",
            "leader": leads.to_string(),
            "leader_addr": leader.map(|leader| leader.address.clone()).unwrap_or_default(),
            "bootstrap": (expect == 1).to_string(),
            "known_regions": regions.to_string(),
        }),
    );
    let configuration: Vec<String> = members
        .iter()
        .map(|member| {
            let suffrage = if member.voter { "Voter" } else { "Nonvoter" };
            format!("{{Suffrage:{suffrage} ID:{} Address:{}}}", id(member.id), member.address)
        })
        .collect();
    let state = match (leads, knows_leader) {
        (true, _) => "Leader",
        (false, true) => "Follower",
        (false, false) => "Candidate",
    };
    let contact = match cluster.last_contact() {
        _ if leads => "0".to_owned(),
        Some(age) => Nanos::from_std(age).to_string(),
        None => "never".to_owned(),
    };
    groups.insert(
        "raft".into(),
        json!({
            "state": state,
            "term": metrics.term.to_string(),
            "last_log_index": metrics.last_log_index.to_string(),
            "last_log_term": metrics.last_log_term.to_string(),
            "applied_index": metrics.applied_index.to_string(),
            "commit_index": metrics.committed_index.max(metrics.applied_index).to_string(),
            "last_snapshot_index": metrics.snapshot_index.unwrap_or(0).to_string(),
            "last_snapshot_term": if metrics.snapshot_index.is_some() { metrics.term } else { 0 }.to_string(),
            "last_contact": contact,
            "fsm_pending": metrics.last_log_index.saturating_sub(metrics.applied_index).to_string(),
            "latest_configuration": format!("[{}]", configuration.join(" ")),
            "latest_configuration_index": "0",
            "logstore_backend": if info.dev { "memory" } else { "wal" },
            "protocol_version": "3",
            "protocol_version_min": "0",
            "protocol_version_max": "3",
            "snapshot_version_min": "0",
            "snapshot_version_max": "1",
            "num_peers": members.len().saturating_sub(1).to_string(),
        }),
    );
    replication(server, groups);
    let Some(stats) = table.map(caravan_members::Handle::stats) else { return };
    let mut serf = Map::new();
    for (key, value) in [
        ("members", stats.members.to_string()),
        ("failed", stats.failed.to_string()),
        ("left", stats.left.to_string()),
        ("encrypted", stats.encrypted.to_string()),
        ("member_time", stats.changes.to_string()),
    ] {
        serf.insert(key.to_owned(), json!(value));
    }
    // Members exchange no events and no queries.
    for key in ["event_time", "query_time"] {
        serf.insert(key.to_owned(), json!("1"));
    }
    for key in ["health_score", "coordinate_resets", "intent_queue", "event_queue", "query_queue"] {
        serf.insert(key.to_owned(), json!("0"));
    }
    groups.insert("serf".into(), Value::Object(serf));
}
