//! Inspection of an agent: its log, its host, its process (docs/reference/http-api.md, section 3.7).

use super::client::Destination;
use super::interfaces;
use crate::call::Call;
use crate::error::ApiError;
use crate::frames::{self, Frame};
use crate::log_source::{LogLevel, Notation};
use crate::reply::{JSON, Reply};
use bytes::Bytes;
use caravan_types::NodeId;
use futures::StreamExt;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Maximum length of a piece of the log in one frame, in bytes.
const FRAME: usize = 1024;

/// The value of `server_id` that stands for the leader.
const LEADER: &str = "leader";

/// Variables of the agent's environment that never hold secrets.
const SHOWN: [&str; 8] = ["HOME", "LANG", "PATH", "PWD", "SHELL", "TERM", "TZ", "USER"];

/// Returns the agent that the request names: `node_id` for a node, `server_id` for a server. `unknown` is the status
/// of the refusal of an unknown server.
pub(crate) fn place(call: &Call, unknown: StatusCode) -> Result<Destination, ApiError> {
    call.only(&Method::GET)?;
    let (node, server) = (call.query.text("node_id"), call.query.text("server_id"));
    if !node.is_empty() && !server.is_empty() {
        return Err(ApiError::bad_request("Cannot target node and client simultaneously"));
    }
    let relay = || {
        let relay = call.state.relay.clone().filter(|_| call.hops == 0);
        relay.map(Destination::There).ok_or_else(|| ApiError::not_found("No path to node"))
    };
    if !node.is_empty() {
        let id = NodeId::new(node);
        if call.state.client.as_deref().is_some_and(|client| client.node_id() == id) {
            return Ok(Destination::Here);
        }
        let Some(own) = &call.state.server else { return relay() };
        if own.store().snapshot().node(&id).is_none() {
            return Err(ApiError::not_found(format!("Unknown node {id}")));
        }
        return Ok(Destination::Node(id));
    }
    if server.is_empty() {
        return Ok(Destination::Here);
    }
    let Some(own) = &call.state.server else { return relay() };
    let info = &call.state.info;
    let names = [info.name.clone(), format!("{}.{}", info.name, info.region), info.server_id.clone()];
    if names.iter().any(|name| name == server) || (server == LEADER && own.is_leader()) {
        return Ok(Destination::Here);
    }
    if server == LEADER {
        return Ok(Destination::Leader);
    }
    let other = own.cluster().named(server).map(Destination::Server);
    other.ok_or_else(|| ApiError::new(unknown, format!("unknown Nomad server {server}")))
}

/// Streams the log.
pub(crate) fn log(call: &Call) -> Result<Reply, ApiError> {
    let level = match call.query.text("log_level") {
        "" => LogLevel::Info,
        text => LogLevel::parse(text)
            .ok_or_else(|| ApiError::bad_request(format!("Unknown log level: {text}")))?,
    };
    let flag = |name: &str| {
        call.query.flag(name).map(|flag| flag.unwrap_or(false)).map_err(|_| {
            ApiError::bad_request(format!(
                "Unable to parse {name}: strconv.ParseBool: parsing \"{}\": invalid syntax",
                call.query.text(name)
            ))
        })
    };
    let notation = Notation { json: flag("log_json")?, location: flag("log_include_location")? };
    let plain = flag("plain")?;
    let logs =
        call.state.logs.as_ref().ok_or_else(|| ApiError::internal("this agent keeps no log to follow"))?;
    let mut offset = 0_u64;
    let pieces = logs.follow(level).flat_map(move |record| {
        let mut line = Bytes::from(record.line(notation));
        let mut pieces = Vec::new();
        while !line.is_empty() {
            let data = line.split_to(line.len().min(FRAME));
            offset += data.len() as u64;
            pieces.push(Ok(Frame { data, offset, file_event: "log", ..Frame::default() }));
        }
        futures::stream::iter(pieces)
    });
    let (pieces, stopping) = (pieces.boxed(), call.state.stopping.clone());
    Ok(if plain {
        Reply::raw("text/plain", frames::plain(pieces, stopping))
    } else {
        Reply::raw(JSON, frames::framed(pieces, stopping))
    })
}

/// Returns the facts about the host.
pub(crate) fn host(call: &Call) -> Result<Reply, ApiError> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let word = |path: &str| read(path).trim().to_owned();
    let environment: BTreeMap<String, String> =
        SHOWN.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    let disks: Map<String, Value> = crate::disks::all()
        .into_iter()
        .map(|disk| {
            let mib = |bytes: u64| bytes / 1024 / 1024;
            (disk.mountpoint, json!({"DiskMB": mib(disk.size), "UsedMB": mib(disk.used)}))
        })
        .collect();
    let networks: Vec<Value> = caravan_client::host_addresses()
        .into_iter()
        .map(|(address, prefix)| interfaces::described(address, prefix))
        .collect();
    let os = format!(
        "{} {} {} {} {}",
        std::env::consts::ARCH,
        word("/proc/sys/kernel/hostname"),
        word("/proc/sys/kernel/osrelease"),
        word("/proc/sys/kernel/ostype"),
        word("/proc/sys/kernel/version"),
    );
    let data = json!({
        "OS": os,
        "Network": networks,
        "ResolvConf": read("/etc/resolv.conf"),
        "Hosts": read("/etc/hosts"),
        "Environment": environment,
        "Disk": disks,
    });
    let named = call.query.text("node_id").to_owned() + call.query.text("server_id");
    if named.is_empty() {
        return Ok(Reply::value(data));
    }
    Ok(Reply::value(json!({"AgentID": named, "HostData": data})))
}
