//! Routes that the node answers: files, logs, figures and signals of allocations, figures of the host
//! (docs/reference/http-api.md, sections 3.4 and 4).

use crate::access::{Asks, Object};
use crate::body::{bodies, optional, required};
use crate::call::Call;
use crate::client_side::{ClientSide, Content, LogKind, Origin, Range};
use crate::error::ApiError;
use crate::frames;
use crate::query::go_bool;
use crate::reply::{JSON, Reply, TEXT};
use axum::body::Body;
use bytes::Bytes;
use caravan_rpc::Channel;
use caravan_types::{AllocId, NodeId};
use futures::{StreamExt, future, stream};
use http::{Method, StatusCode};
use serde_json::json;
use std::collections::BTreeMap;

/// The answer if the files of an allocation cannot be removed on demand.
pub(crate) const NOT_COLLECTED: &str = "No such allocation on client, or allocation not eligible for GC";

/// The agent to which a request goes.
pub(crate) enum Destination {
    /// This agent.
    Here,
    /// The agent at the other end of the channel.
    There(Channel),
}

/// Returns where a request belongs: the node that holds the allocation, or the named node.
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
            Object::Garbage => ApiError::internal(NOT_COLLECTED),
            _ => unknown(),
        });
    }
    let channel = server.node_channel(&node).map_err(|_| ApiError::not_found("No path to node"))?;
    Ok(Destination::There(channel))
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
        Asks::Log => log_kind(call).map(drop),
    }
}

/// Returns the requested log stream; the request must name the task too.
fn log_kind(call: &Call) -> Result<LogKind, ApiError> {
    if call.query.text("task").is_empty() {
        return Err(ApiError::bad_request("must provide task name"));
    }
    match call.query.text("type") {
        "stdout" => Ok(LogKind::Stdout),
        "stderr" => Ok(LogKind::Stderr),
        _ => Err(ApiError::bad_request("must provide log type (stdout/stderr)")),
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

/// Returns the allocation that the path names.
fn alloc(call: &Call) -> AllocId {
    AllocId::new(call.star(0))
}

/// Returns the client of this agent; [`place`] has checked that the request belongs here.
fn client(call: &Call) -> Result<&dyn ClientSide, ApiError> {
    call.state.client.as_deref().ok_or_else(|| ApiError::not_found("No path to node"))
}

fn named(task: &str) -> Option<&str> {
    (!task.is_empty()).then_some(task)
}

fn done() -> Reply {
    Reply::value(json!({"Index": 0}))
}

pub(crate) async fn host_stats(call: &Call) -> Result<Reply, ApiError> {
    Ok(Reply::value(client(call)?.host_stats().await?))
}

/// Removes the files of all ended allocations of the node.
pub(crate) async fn collect_all(call: &Call) -> Result<Reply, ApiError> {
    client(call)?.collect_all().await?;
    Ok(Reply::empty())
}

/// Answers with the metadata of the node, or changes them.
pub(crate) async fn metadata(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    if call.is_put() {
        let body: MetadataBody = required(&call.body)?;
        return Ok(Reply::value(client.change_metadata(body.meta).await?));
    }
    call.only(&Method::GET)?;
    Ok(Reply::value(client.metadata().await?))
}

pub(crate) async fn identity(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    call.only(&Method::GET)?;
    Ok(Reply::value(json!({"Claims": client.identity().await?})))
}

pub(crate) async fn renew_identity(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    call.put()?;
    client.renew_identity().await?;
    Ok(Reply::value(json!({})))
}

pub(crate) async fn snapshot(call: &Call) -> Result<Reply, ApiError> {
    let archive = client(call)?.snapshot(&alloc(call)).await?;
    Ok(Reply::raw("application/x-tar", Body::from_stream(archive)))
}

pub(crate) async fn checks(call: &Call) -> Result<Reply, ApiError> {
    Ok(Reply::value(client(call)?.checks(&alloc(call)).await?))
}

/// Removes the files of an ended allocation.
pub(crate) async fn collect(call: &Call) -> Result<Reply, ApiError> {
    client(call)?.collect(&alloc(call)).await?;
    Ok(Reply::empty())
}

/// Refuses task schedules, which are not implemented, as in Nomad's community edition.
pub(crate) fn pause(call: &Call) -> Result<Reply, ApiError> {
    client(call)?;
    Err(ApiError::internal("Enterprise only"))
}

pub(crate) async fn stats(call: &Call) -> Result<Reply, ApiError> {
    let task = named(call.query.text("task"));
    Ok(Reply::value(client(call)?.alloc_stats(&alloc(call), task).await?))
}

pub(crate) async fn restart(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    let body: RestartBody = optional(&call.body)?;
    client.restart(&alloc(call), named(&body.task), body.all).await?;
    Ok(done())
}

pub(crate) async fn signal(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    call.put()?;
    let body: SignalBody = optional(&call.body)?;
    client.signal(&alloc(call), named(&body.task), &body.signal).await?;
    Ok(done())
}

/// Lists the files of a directory.
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    let path = call.query.text("path");
    let path = if path.is_empty() { "/" } else { path };
    Reply::json(client(call)?.list(&alloc(call), path).await?)
}

/// Answers with the metadata of a file.
pub(crate) async fn stat(call: &Call) -> Result<Reply, ApiError> {
    Reply::json(client(call)?.stat(&alloc(call), call.query.text("path")).await?)
}

/// Answers with the content of a file.
pub(crate) async fn cat(call: &Call) -> Result<Reply, ApiError> {
    let opened = client(call)?.read(&alloc(call), call.query.text("path"), 0, None).await;
    Ok(content(opened).await)
}

/// Answers with a part of a file.
pub(crate) async fn read_at(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    let number = |name: &str| {
        let text = call.query.text(name);
        text.parse::<i64>().map_err(|_| {
            ApiError::bad_request(format!(
                "error parsing {name}: strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))
        })
    };
    let offset = number("offset")?;
    let limit = match call.query.text("limit") {
        "" => None,
        _ => u64::try_from(number("limit")?).ok().filter(|limit| *limit > 0),
    };
    Ok(content(client.read(&alloc(call), call.query.text("path"), offset, limit).await).await)
}

/// Streams a file, and what is appended to it.
pub(crate) async fn stream_file(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    let range = range(call, true)?;
    let frames = client.stream(&alloc(call), call.query.text("path"), range).await?;
    Ok(Reply::raw(TEXT, frames::framed(frames, call.state.stopping.clone())))
}

/// Streams the log of a task.
pub(crate) async fn logs(call: &Call) -> Result<Reply, ApiError> {
    let client = client(call)?;
    let task = call.query.text("task");
    let kind = log_kind(call)?;
    let range = range(call, false)?;
    let plain = boolean(call, "plain", false)?;
    let frames = client.logs(&alloc(call), task, kind, range).await?;
    let stopping = call.state.stopping.clone();
    Ok(if plain {
        Reply::raw("text/plain", frames::plain(frames, stopping))
    } else {
        Reply::raw(JSON, frames::framed(frames, stopping))
    })
}

fn boolean(call: &Call, name: &str, otherwise: bool) -> Result<bool, ApiError> {
    match call.query.text(name) {
        "" => Ok(otherwise),
        text => go_bool(text).ok_or_else(|| {
            ApiError::bad_request(format!(
                "failed to parse {name} field to boolean: strconv.ParseBool: parsing \"{text}\": invalid syntax"
            ))
        }),
    }
}

fn range(call: &Call, follow: bool) -> Result<Range, ApiError> {
    let follow = boolean(call, "follow", follow)?;
    let offset = match call.query.text("offset") {
        "" => 0,
        text => text.parse::<i64>().map_err(|_| {
            ApiError::bad_request(format!(
                "error parsing offset: strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))
        })?,
    };
    let origin = match call.query.text("origin") {
        "" | "start" => Origin::Start,
        "end" => Origin::End,
        _ => return Err(ApiError::bad_request("origin must be start or end")),
    };
    Ok(Range { offset: u64::try_from(offset).unwrap_or(0), origin, follow })
}

/// Answers with content, and with headers that keep browsers from interpreting it. A refusal is sent as content with
/// status 200, as clients of these two routes expect.
async fn content(opened: Result<Content, crate::ClientSideError>) -> Reply {
    let mut chunks = match opened {
        Ok(chunks) => chunks,
        Err(error) => return refusal(&error),
    };
    let first = match chunks.next().await.transpose() {
        Ok(first) => first.unwrap_or_default(),
        Err(error) => return refusal(&error),
    };
    let content_type = sniffed(&first);
    let body = Body::from_stream(stream::once(future::ready(Ok(first))).chain(chunks));
    Reply::raw(content_type, body)
        .header("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
        .header("x-content-type-options", "nosniff")
        .header("x-xss-protection", "1; mode=block")
}

/// Answers with a refusal. If the allocation is missing, the refusal has an error status.
fn refusal(error: &crate::ClientSideError) -> Reply {
    let status = match error.status {
        StatusCode::NOT_FOUND if error.message.starts_with("Unknown allocation") => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    };
    Reply::raw(TEXT, error.message.clone()).status(status)
}

/// Returns the media type: text or binary. HTML counts as text, so that browsers do not render it.
fn sniffed(first: &Bytes) -> &'static str {
    let head = &first[..first.len().min(512)];
    let binary = head.iter().any(|b| *b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b));
    if binary { "application/octet-stream" } else { TEXT }
}
