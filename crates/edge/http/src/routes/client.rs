//! Routes that the node answers: usage, checks, restarts and signals of allocations, usage, metadata and identity of
//! the node (docs/reference/http-api.md, section 3.4). The routes of files and logs are in `routes::files`.

use super::files;
use crate::access::{Asks, Object};
use crate::body::{bodies, optional, required};
use crate::call::Call;
use crate::client_side::ClientSide;
use crate::error::{ApiError, ClientCall};
use crate::reply::Reply;
use crate::{host, usage};
use caravan_client::Metadata;
use caravan_rpc::Channel;
use caravan_types::identity::Claims;
use caravan_types::{AllocId, NodeId};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// The agent to which a request goes.
pub(crate) enum Destination {
    /// This agent.
    Here,
    /// The agent at the other end of the channel.
    There(Channel),
    /// A node, to which the server has a connection or expects one.
    Node(NodeId),
    /// Another server of the region.
    Server(Channel),
    /// The server that leads, which is another one.
    Leader,
}

/// Returns the agent to which a request goes: the node that holds the allocation, or the named node.
pub(crate) fn place(call: &Call, object: Object) -> Result<Destination, ApiError> {
    let target = match object {
        Object::Alloc | Object::Garbage => Target::Alloc(alloc(call)),
        Object::Files(asks) => {
            let alloc = alloc(call);
            if !alloc.is_empty() {
                check(call, asks)?;
            }
            Target::Alloc(alloc)
        }
        Object::Node | Object::NodeOfBody => Target::Node(node_named(call, object)),
    };
    let client = call.state.client.as_deref();
    if target.is_at(client) {
        return Ok(Destination::Here);
    }
    let unknown = || target.unknown();
    let Some(server) = &call.state.server else {
        // Only external requests are forwarded to a server; a server that forwarded the request here has searched
        // already.
        let relay = call.state.relay.clone().filter(|_| call.hops == 0);
        return relay.map(Destination::There).ok_or_else(unknown);
    };
    let root = server.store().snapshot();
    let node = match &target {
        Target::Alloc(id) => root.alloc(id).map(|alloc| alloc.node_id.clone()),
        Target::Node(id) => root.node(id).map(|node| node.id.clone()),
    };
    let node = node.ok_or_else(unknown)?;
    if client.is_some_and(|client| client.node_id() == node) {
        // This agent is the node, and its client no longer has the allocation.
        return Err(match object {
            Object::Garbage => ApiError::not_collected(),
            _ => unknown(),
        });
    }
    Ok(Destination::Node(node))
}

/// Checks the required parameters of a file request before the allocation is located.
fn check(call: &Call, asks: Asks) -> Result<(), ApiError> {
    let no_name = "must provide a file name";
    match asks {
        Asks::Path if call.query.text("path").is_empty() => Err(ApiError::bad_request(no_name)),
        Asks::PathAsContent if call.query.text("path").is_empty() => {
            Err(ApiError::new(StatusCode::OK, no_name))
        }
        Asks::Path | Asks::PathAsContent => Ok(()),
        Asks::Log => files::log_kind(call).map(drop),
    }
}

enum Target {
    Alloc(AllocId),
    /// The named node; an empty id means the agent that receives the request.
    Node(NodeId),
}

impl Target {
    fn is_at(&self, client: Option<&dyn ClientSide>) -> bool {
        client.is_some_and(|client| match self {
            Self::Alloc(id) => client.has_alloc(id),
            Self::Node(id) => id.is_empty() || client.node_id() == *id,
        })
    }
    fn unknown(&self) -> ApiError {
        match self {
            Self::Alloc(id) if id.is_empty() => ApiError::bad_request("must provide a valid alloc id"),
            Self::Alloc(id) => ApiError::not_found(format!("Unknown allocation \"{id}\"")),
            Self::Node(id) if id.is_empty() => {
                ApiError::bad_request("No local Node and node_id not provided")
            }
            Self::Node(id) => ApiError::not_found(format!("Unknown node {id}")),
        }
    }
}

bodies! {
    /// Tasks to restart.
    RestartBody("AllocRestartRequest") {
        task: String = "TaskName";
        all: bool = "AllTasks";
    }

    /// Metadata of a node to change.
    MetadataBody("NodeMetaApplyRequest") {
        node_id: String = "NodeID";
        meta: BTreeMap<String, Option<String>> = "Meta";
    }

    /// A signal to send.
    SignalBody("AllocSignalRequest") {
        task: String = "Task";
        signal: String = "Signal";
    }
}

/// Returns the node that a request names in its query or body; empty means the agent that receives the request.
fn node_named(call: &Call, object: Object) -> NodeId {
    let named = call.query.text("node_id");
    if named.is_empty()
        && object == Object::NodeOfBody
        && let Ok(body) = optional::<MetadataBody>(&call.body)
    {
        return body.node_id.as_str().into();
    }
    named.into()
}

/// The metadata of a node.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeMetadata {
    meta: BTreeMap<String, String>,
    /// Changes made at run time; `null` hides a configured key.
    dynamic: BTreeMap<String, Option<String>>,
    #[serde(rename = "Static")]
    fixed: BTreeMap<String, String>,
}

impl From<Metadata> for NodeMetadata {
    fn from(Metadata { meta, dynamic, fixed }: Metadata) -> Self {
        Self { meta, dynamic, fixed }
    }
}

/// The identity of a node.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeIdentity {
    claims: Claims,
}

/// Returns the allocation that the path names.
pub(super) fn alloc(call: &Call) -> AllocId {
    AllocId::new(call.star(0))
}

/// Returns the client of this agent; [`place`] has checked that the request belongs here.
pub(super) fn client(call: &Call) -> Result<&dyn ClientSide, ApiError> {
    call.state.client.as_deref().ok_or_else(|| ApiError::not_found("No path to node"))
}

fn named(task: &str) -> Option<&str> {
    (!task.is_empty()).then_some(task)
}

fn done() -> Reply {
    Reply::value(json!({"Index": 0}))
}

pub(crate) async fn host_stats(call: &Call) -> Result<Reply, ApiError> {
    Reply::json(host::measure(client(call)?).await?)
}

/// Removes the files of all ended allocations of the node.
pub(crate) async fn collect_all(call: &Call) -> Result<Reply, ApiError> {
    client(call)?.collect_all().await?;
    Ok(Reply::empty())
}

/// Returns or changes the metadata of the node.
pub(crate) async fn metadata(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    if call.is_put() {
        let body: MetadataBody = required(&call.body)?;
        return Reply::json(NodeMetadata::from(client.change_metadata(body.meta).await?));
    }
    call.only(&Method::GET)?;
    Reply::json(NodeMetadata::from(client.metadata()))
}

pub(crate) async fn identity(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    call.only(&Method::GET)?;
    Reply::json(NodeIdentity { claims: client.identity_claims().await? })
}

pub(crate) async fn renew_identity(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    call.put()?;
    client.renew_identity().await?;
    Ok(Reply::value(json!({})))
}

pub(crate) fn checks(call: &Call) -> Result<Reply, ApiError> {
    Reply::json(client(call)?.checks(&alloc(call))?)
}

/// Removes the files of an ended allocation.
pub(crate) async fn collect(call: &Call) -> Result<Reply, ApiError> {
    match client(call)?.collect(&alloc(call)).await? {
        true => Ok(Reply::empty()),
        false => Err(ApiError::not_collected()),
    }
}

/// Refuses task schedules, as the community edition of Nomad does (docs/gaps.md).
pub(crate) fn pause(call: &Call) -> Result<Reply, ApiError> {
    client(call)?;
    Err(ApiError::internal("Enterprise only"))
}

pub(crate) async fn stats(call: &Call) -> Result<Reply, ApiError> {
    let task = named(call.query.text("task"));
    let measured = usage::measure(client(call)?, &alloc(call), task).await;
    Reply::json(measured.map_err(|error| ApiError::of_client(ClientCall::Stats, &error))?)
}

pub(crate) fn restart(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    let body: RestartBody = optional(&call.body)?;
    let restarted = client.restart(&alloc(call), named(&body.task), body.all);
    restarted.map_err(|error| ApiError::of_client(ClientCall::Restart, &error))?;
    Ok(done())
}

pub(crate) async fn signal(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    call.put()?;
    let body: SignalBody = optional(&call.body)?;
    let sent = client.signal(&alloc(call), named(&body.task), &body.signal).await;
    sent.map_err(|error| ApiError::of_client(ClientCall::Signal, &error))?;
    Ok(done())
}
