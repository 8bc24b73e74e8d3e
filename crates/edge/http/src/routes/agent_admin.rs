//! Operators' routes of one agent: members, workers (docs/reference/http-api.md, section 3.7).

use crate::body::{bodies, required};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::Reply;
use caravan_server::{Handle, Scheduler, Workers, WorkersError};
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// The default RPC port of servers.
const RPC_PORT: u16 = 4647;
/// The answer to invalid settings of the workers.
const INVALID: &str = "Invalid request";

bodies! {
    /// The number of workers and the evaluation types that they process. The name of the server is repeated without
    /// effect.
    WorkersBody("agentSchedulerWorkerConfig") {
        number: i64 = "num_schedulers";
        enabled: Vec<String> = "enabled_schedulers";
    }
}

pub(crate) fn reload(call: &Call) -> Result<Reply, ApiError> {
    match &call.state.reload {
        Some(agent) => agent.reload().map_err(ApiError::internal)?,
        None => return Err(ApiError::internal("this agent cannot read its configuration again")),
    }
    Ok(Reply::empty())
}

pub(crate) async fn set_servers(call: &Call) -> Result<Reply, ApiError> {
    if call.state.client.is_none() {
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "Invalid method"));
    }
    let desired: Vec<&str> = call.query.all("address").collect();
    if desired.is_empty() {
        return Err(ApiError::bad_request("missing server address"));
    }
    if let Some(server) = &call.state.server {
        let same = |address: &&str| server.addresses().iter().any(|own| own == address);
        if desired.iter().all(same) {
            return Ok(Reply::empty());
        }
    }
    let Some(targets) = &call.state.servers else {
        return Err(ApiError::internal("the client of an agent that is a server speaks to that server only"));
    };
    let desired: Vec<String> = desired.into_iter().map(with_port).collect();
    if let Some(bad) = desired.iter().find(|address| address.starts_with(':') || address.contains('/')) {
        return Err(ApiError::bad_request(format!("{bad:?} is not the address of a server, host:port")));
    }
    targets.replace(&desired).await.map_err(|error| ApiError::bad_request(error.message))?;
    Ok(Reply::empty())
}

/// Returns an address with the default port if it has none.
fn with_port(address: &str) -> String {
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok()
    });
    if has_port { address.to_owned() } else { format!("{address}:{RPC_PORT}") }
}

fn own_name(call: &Call) -> String {
    format!("{}.{}", call.state.info.name, call.state.info.region)
}

/// Returns the server of this agent, for routes about its workers.
fn scheduling(call: &Call) -> Result<&Handle, ApiError> {
    call.state.server.as_ref().ok_or_else(|| ApiError::bad_request("Server only endpoint"))
}

fn names(workers: &Workers) -> Vec<&'static str> {
    workers.enabled().iter().map(|scheduler| scheduler.as_str()).collect()
}

pub(crate) fn schedulers(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let server = scheduling(call)?;
    let paused = server.store().snapshot().scheduler_config().pause_eval_broker;
    let id = &call.state.info.server_id;
    let settings = server.scheduling().workers();
    let worker = |n: usize| {
        json!({
            // A worker has no separate id: its id is derived from the server's id.
            "id": format!("{}{n:012x}", id.get(..24).unwrap_or("00000000-0000-0000-0000-")),
            "enabled_schedulers": names(&settings),
            "started": call.state.started.to_time(),
            "status": if paused { "Paused" } else { "Started" },
            "workload_status": if paused { "Paused" } else { "WaitingToDequeue" },
        })
    };
    let workers: Vec<Value> = (0..settings.number()).map(worker).collect();
    Ok(Reply::value(json!({"server_id": own_name(call), "schedulers": workers})))
}

pub(crate) fn workers(call: &Call) -> Result<Reply, ApiError> {
    let server = scheduling(call)?;
    if !call.is_get() {
        call.put()?;
        let body: WorkersBody = required(&call.body)
            .map_err(|error| ApiError::bad_request(format!("{INVALID}: {}", error.message)))?;
        server.scheduling().set_workers(settings(&body)?);
    }
    let settings = server.scheduling().workers();
    Ok(Reply::value(json!({
        "server_id": own_name(call),
        "enabled_schedulers": names(&settings),
        "num_schedulers": settings.number(),
    })))
}

fn settings(body: &WorkersBody) -> Result<Workers, ApiError> {
    let invalid = || ApiError::bad_request(INVALID);
    let number = usize::try_from(body.number).map_err(|_| invalid())?;
    let enabled: Result<Vec<Scheduler>, _> = body.enabled.iter().map(|name| name.parse()).collect();
    Workers::new(number, enabled.map_err(|_| invalid())?).map_err(|error| match error {
        WorkersError::NoCore => invalid(),
        // Only Caravan has this limit, so clients expect no specific answer for it.
        WorkersError::TooMany => ApiError::bad_request(error.to_string()),
    })
}
