//! Routes that the node answers: files, logs, figures and signals of allocations, figures of the host
//! (docs/reference/http-api.md, sections 3.4 and 4).

use crate::body::{bodies, optional, required};
use crate::call::Call;
use crate::client_side::{ClientSide, Content, LogKind, Origin, Range};
use crate::dispatch::OfClient;
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
pub(crate) fn place(call: &Call, of: OfClient) -> Result<Destination, ApiError> {
    let target = match of {
        OfClient::List
        | OfClient::Stat
        | OfClient::Cat
        | OfClient::ReadAt
        | OfClient::Stream
        | OfClient::Logs => {
            let alloc = AllocId::new(call.star(0));
            if !alloc.is_empty() {
                asked(call, of)?;
            }
            Target::Alloc(alloc)
        }
        OfClient::Stats
        | OfClient::Checks
        | OfClient::Snapshot
        | OfClient::Restart
        | OfClient::Signal
        | OfClient::Pause
        | OfClient::Collect => Target::Alloc(AllocId::new(call.star(0))),
        OfClient::HostStats
        | OfClient::CollectAll
        | OfClient::Metadata
        | OfClient::Identity
        | OfClient::RenewIdentity => Target::Node(node_named(call, of)),
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
        return Err(match of {
            OfClient::Collect => ApiError::internal(NOT_COLLECTED),
            _ => unknown(),
        });
    }
    let channel = server.node_channel(&node).map_err(|_| ApiError::not_found("No path to node"))?;
    Ok(Destination::There(channel))
}

/// Checks the required parameters of a file request before the allocation is located.
fn asked(call: &Call, of: OfClient) -> Result<(), ApiError> {
    let no_name = "must provide a file name";
    match of {
        OfClient::Stat | OfClient::Stream if call.query.text("path").is_empty() => {
            Err(ApiError::bad_request(no_name))
        }
        // These two routes send the refusal as content.
        OfClient::Cat | OfClient::ReadAt if call.query.text("path").is_empty() => {
            Err(ApiError::new(StatusCode::OK, no_name))
        }
        OfClient::Logs => log_kind(call).map(drop),
        _ => Ok(()),
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
fn node_named(call: &Call, of: OfClient) -> NodeId {
    let named = call.query.text("node_id");
    if named.is_empty()
        && matches!(of, OfClient::Metadata | OfClient::RenewIdentity)
        && let Ok(body) = optional::<MetadataBody>(&call.body)
    {
        return body.node_id.as_str().into();
    }
    named.into()
}

/// Answers in this agent; the caller has checked with [`place`] that it belongs here.
pub(crate) async fn route(call: &Call, of: OfClient) -> Result<Reply, ApiError> {
    let client = call.state.client.as_deref().ok_or_else(|| ApiError::not_found("No path to node"))?;
    let named = |task: &str| (!task.is_empty()).then(|| task.to_owned());
    let alloc = AllocId::new(call.star(0));
    match of {
        OfClient::HostStats => Ok(Reply::value(client.host_stats().await?)),
        OfClient::CollectAll => {
            client.collect_all().await?;
            Ok(Reply::empty())
        }
        OfClient::Metadata if call.is_put() => {
            let body: MetadataBody = required(&call.body)?;
            Ok(Reply::value(client.change_metadata(body.meta).await?))
        }
        OfClient::Metadata => {
            call.only(&Method::GET)?;
            Ok(Reply::value(client.metadata().await?))
        }
        OfClient::Identity => {
            call.only(&Method::GET)?;
            Ok(Reply::value(json!({"Claims": client.identity().await?})))
        }
        OfClient::RenewIdentity => {
            call.put()?;
            client.renew_identity().await?;
            Ok(Reply::value(json!({})))
        }
        OfClient::Snapshot => {
            let archive = client.snapshot(&alloc).await?;
            Ok(Reply::raw("application/x-tar", Body::from_stream(archive)))
        }
        OfClient::Checks => Ok(Reply::value(client.checks(&alloc).await?)),
        OfClient::Collect => {
            client.collect(&alloc).await?;
            Ok(Reply::empty())
        }
        // Task schedules are not implemented, as in Nomad's community edition.
        OfClient::Pause => Err(ApiError::internal("Enterprise only")),
        OfClient::Stats => {
            let task = named(call.query.text("task"));
            Ok(Reply::value(client.alloc_stats(&alloc, task.as_deref()).await?))
        }
        OfClient::Restart => {
            let body: RestartBody = optional(&call.body)?;
            let task = named(&body.task);
            client.restart(&alloc, task.as_deref(), body.all).await?;
            Ok(done())
        }
        OfClient::Signal => {
            call.put()?;
            let body: SignalBody = optional(&call.body)?;
            let task = named(&body.task);
            client.signal(&alloc, task.as_deref(), &body.signal).await?;
            Ok(done())
        }
        OfClient::List
        | OfClient::Stat
        | OfClient::Cat
        | OfClient::ReadAt
        | OfClient::Stream
        | OfClient::Logs => files(call, client, of, &alloc).await,
    }
}

fn done() -> Reply {
    Reply::value(json!({"Index": 0}))
}

async fn files(
    call: &Call,
    client: &dyn ClientSide,
    of: OfClient,
    alloc: &AllocId,
) -> Result<Reply, ApiError> {
    let path = call.query.text("path");
    match of {
        OfClient::List => {
            let path = if path.is_empty() { "/" } else { path };
            Reply::json(client.list(alloc, path).await?)
        }
        OfClient::Stat => Reply::json(client.stat(alloc, path).await?),
        OfClient::Cat => Ok(content(client.read(alloc, path, 0, None).await).await),
        OfClient::ReadAt => {
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
            Ok(content(client.read(alloc, path, offset, limit).await).await)
        }
        OfClient::Stream => {
            let range = range(call, true)?;
            let frames = client.stream(alloc, path, range).await?;
            Ok(Reply::raw(TEXT, frames::framed(frames, call.state.stopping.clone())))
        }
        OfClient::Logs => logs(call, client, alloc).await,
        _ => Err(ApiError::unknown_path()),
    }
}

async fn logs(call: &Call, client: &dyn ClientSide, alloc: &AllocId) -> Result<Reply, ApiError> {
    let task = call.query.text("task");
    let kind = log_kind(call)?;
    let range = range(call, false)?;
    let plain = boolean(call, "plain", false)?;
    let frames = client.logs(alloc, task, kind, range).await?;
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
