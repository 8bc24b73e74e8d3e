//! Requests that another agent answers. Clients forward to servers, and servers to the node that holds an
//! allocation. A request travels as one RPC call whose answer is a stream.

use crate::call::Call;
use crate::dispatch;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::reply::Reply;
use crate::state::HttpState;
use bytes::Bytes;
use caravan_base::percent;
use caravan_messages::{HttpPart, HttpRequest};
use caravan_rpc::{Channel, PeerIdentity, RouterBuilder, RpcError, methods};
use futures::{Stream, StreamExt, future, stream};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::body::Body as HttpBody;
use std::sync::Arc;
use std::time::Duration;

/// The header with the number of agents that forwarded a request, which prevents loops.
pub(crate) const HOPS: HeaderName = HeaderName::from_static("x-caravan-hops");

/// The header with the milliseconds in which the other server may look for a leader and prove its own leadership.
pub(crate) const HOLD: HeaderName = HeaderName::from_static("x-caravan-hold");

/// The header with the milliseconds that the request has already waited.
pub(crate) const WAITED: HeaderName = HeaderName::from_static("x-caravan-waited");

/// The header that requests only a check of the right: `1` for an immediate answer, [`UNTIL_LOST`] for an answer
/// when the right ends.
pub(crate) const ASKS: HeaderName = HeaderName::from_static("x-caravan-asks");

/// The value of [`ASKS`] that waits for the end of a right.
pub(crate) const UNTIL_LOST: &str = "until-lost";

/// The pause before the agent asks an unreachable server again whether a right ended.
const ASK_PAUSE: Duration = Duration::from_secs(5);

/// A mark of requests that came from another agent, over an authenticated connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromAgent {
    /// Whether the agent is a server of this cluster.
    pub(crate) is_server: bool,
    /// Whether the agent is a server of another region.
    pub(crate) is_foreign: bool,
}

/// The maximum number of agents that forward a request: a client to a server, which forwards to a server of
/// another region, which forwards to its leader, which forwards to another client.
pub(crate) const MAX_HOPS: u8 = 4;

/// Headers that are forwarded to another agent.
static PASSED_ON: [HeaderName; 2] = [ACCEPT, CONTENT_TYPE];

/// Headers that a server needs for the check and the answer. Nodes receive none of them, because a server has
/// already checked the request. A compromised node could otherwise collect the tokens of its readers.
static FOR_SERVERS: [HeaderName; 3] =
    [AUTHORIZATION, HeaderName::from_static("x-nomad-token"), HeaderName::from_static("x-nomad-csi-secrets")];

/// The maximum size of a body that is collected before it is passed on, in bytes.
const MAX_COLLECTED: usize = 64 * 1024;

/// Query parameters that may hold a token.
const SECRET_PARAMETERS: [&str; 2] = ["token", "auth_token"];

/// Forwards a request: to a server if this agent has none, otherwise to a node.
pub(crate) async fn forward(call: &Call, channel: &Channel) -> Result<Response<Body>, ApiError> {
    Ok(send(call, channel, call.state.server.is_none(), Vec::new()).await?)
}

/// Forwards a request to a server.
pub(crate) async fn to_server(call: &Call, channel: &Channel) -> Result<Response<Body>, RpcError> {
    send(call, channel, true, Vec::new()).await
}

/// Forwards a request to the leader, which may spend at most `hold` on the proof that it still leads.
pub(crate) async fn to_leader(
    call: &Call,
    channel: &Channel,
    hold: Duration,
) -> Result<Response<Body>, RpcError> {
    let times = [(HOLD, hold), (WAITED, call.waited())];
    let times = times.map(|(name, time)| (name.to_string(), time.as_millis().to_string()));
    send(call, channel, true, times.into()).await
}

/// Returns the time in a header of another server.
pub(crate) fn millis(headers: &HeaderMap, name: &HeaderName) -> Option<Duration> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(Duration::from_millis(text.parse().ok()?))
}

async fn send(
    call: &Call,
    channel: &Channel,
    to_server: bool,
    more: Vec<(String, String)>,
) -> Result<Response<Body>, RpcError> {
    let names = PASSED_ON.iter().chain(FOR_SERVERS.iter().filter(|_| to_server));
    let mut headers: Vec<(String, String)> = names
        .filter_map(|name| Some((name.to_string(), call.headers.get(name)?.to_str().ok()?.to_owned())))
        .collect();
    headers.push((HOPS.to_string(), (call.hops + 1).to_string()));
    headers.extend(more);
    let uri = if to_server { call.uri.clone() } else { without_secrets(&call.uri) };
    forward_with(call, channel, uri, headers).await
}

/// Returns the path and query without the parameters that may hold a token.
fn without_secrets(uri: &str) -> String {
    let Some((path, query)) = uri.split_once('?') else { return uri.to_owned() };
    let is_secret = |part: &str| {
        let name = percent::decode_form(part.split('=').next().unwrap_or_default());
        SECRET_PARAMETERS.iter().any(|secret| name.eq_ignore_ascii_case(secret))
    };
    let kept: Vec<&str> = query.split('&').filter(|part| !is_secret(part)).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

/// Asks a server whether this agent may answer a request.
pub(crate) async fn authorized(call: &Call, channel: &Channel) -> Result<(), ApiError> {
    ask(call, channel, "1").await
}

async fn ask(call: &Call, channel: &Channel, how: &str) -> Result<(), ApiError> {
    let headers = vec![(HOPS.to_string(), (call.hops + 1).to_string()), (ASKS.to_string(), how.to_owned())];
    let token = crate::access::secret(&call.headers);
    let headers = headers.into_iter().chain([("x-nomad-token".to_owned(), token)]).collect();
    let answer = forward_with(call, channel, call.uri.clone(), headers).await?;
    if answer.status().is_success() {
        return Ok(());
    }
    let status = answer.status();
    let text = Limited::new(answer.into_body(), 4096).collect().await;
    let text = text.map(Collected::to_bytes).unwrap_or_default();
    Err(ApiError::new(status, String::from_utf8_lossy(&text).into_owned()))
}

/// Waits until a right ends, and then answers another agent with the refusal.
pub(crate) async fn hold(call: Arc<Call>) -> Result<Response<Body>, ApiError> {
    let Some(server) = &call.state.server else { return Err(ApiError::no_leader()) };
    tokio::select! {
        error = crate::access::lost(&call, server) => Err(error),
        () = call.state.stopping.cancelled() => {
            Ok(Reply::empty().status(StatusCode::NO_CONTENT).into_response(false))
        }
    }
}

/// Waits until the caller of a request may no longer receive its answer. Returns the refusal. Never returns if no
/// right is needed.
pub(crate) async fn lost(call: &Call) -> ApiError {
    match (&call.state.server, &call.state.relay) {
        (Some(server), _) => crate::access::lost(call, server).await,
        (None, Some(channel)) if call.state.acl => loop {
            match ask(call, channel, UNTIL_LOST).await {
                Err(error) if matches!(error.status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) => {
                    return error;
                }
                // No server can check the right at the moment; an allowed answer continues.
                Ok(()) | Err(_) => tokio::time::sleep(ASK_PAUSE).await,
            }
        },
        _ => std::future::pending().await,
    }
}

/// Ends an answer that is a stream when its caller may no longer receive it.
pub(crate) fn guarded(response: Response<Body>, call: Arc<Call>) -> Response<Body> {
    if HttpBody::size_hint(response.body()).exact().is_some() {
        return response;
    }
    let ended = async move {
        let error = lost(&call).await;
        tracing::debug!(uri = call.line.path, %error, "a stream ends: its caller no longer has the right");
    };
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(ended))))
}

async fn forward_with(
    call: &Call,
    channel: &Channel,
    uri: String,
    headers: Vec<(String, String)>,
) -> Result<Response<Body>, RpcError> {
    let request = HttpRequest { method: call.method.to_string(), uri, headers, body: call.body.to_vec() };
    let mut parts = channel.stream::<methods::Http>(request);
    let Some(first) = parts.next().await.transpose()? else {
        return Err(RpcError::internal("the other agent answered nothing"));
    };
    let HttpPart::Head { status, headers } = first else {
        return Err(RpcError::internal("the other agent began its answer in the middle"));
    };
    let stopping = call.state.stopping.clone();
    let body = parts.take_until(stopping.cancelled_owned()).filter_map(|part| {
        future::ready(match part {
            Ok(HttpPart::Body(chunk)) => Some(Ok(Bytes::from(chunk))),
            Ok(HttpPart::Head { .. }) => None,
            Err(error) => Some(Err(error)),
        })
    });
    let length = headers.iter().find(|(name, _)| *name == CONTENT_LENGTH.as_str());
    let length = length.and_then(|(_, value)| value.parse::<usize>().ok());
    let body = match length {
        Some(length) if length <= MAX_COLLECTED => Body::from(collected(Box::pin(body), length).await?),
        _ => Body::from_stream(body),
    };
    let is_whole = HttpBody::size_hint(&body).exact().is_some();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    extend(response.headers_mut(), headers);
    if is_whole {
        // The length of the body replaces the header. Some answers must not have it (RFC 9110, section 8.6).
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    Ok(response)
}

/// Returns a short body whole, which is one packet for the caller instead of several.
async fn collected(
    mut chunks: impl Stream<Item = Result<Bytes, RpcError>> + Unpin,
    length: usize,
) -> Result<Bytes, RpcError> {
    let mut whole = Bytes::new();
    // The loop reads up to the end of the call. Otherwise the call would be cancelled at the other agent.
    while let Some(chunk) = chunks.next().await.transpose()? {
        whole = if whole.is_empty() { chunk } else { Bytes::from([whole, chunk].concat()) };
    }
    if whole.len() != length {
        return Err(RpcError::unavailable("the other agent's answer broke off"));
    }
    Ok(whole)
}

/// Answers a request of another agent through the same routes, as a stream of one head and then chunks.
pub fn answer(
    state: Arc<HttpState>,
    peer: &PeerIdentity,
    request: HttpRequest,
) -> impl Stream<Item = Result<HttpPart, RpcError>> + Send + use<> {
    let is_server = peer.is_member();
    let is_foreign = !is_server && matches!(peer, PeerIdentity::Server(_));
    let sender = FromAgent { is_server, is_foreign };
    let open = async move {
        let response = match rebuilt(request, sender) {
            Ok(request) => dispatch::handle(state, request).await,
            Err(error) => crate::reply::Reply::from(error).into_response(false),
        };
        let (parts, body) = response.into_parts();
        let headers = parts
            .headers
            .iter()
            .filter(|(name, _)| **name != TRANSFER_ENCODING)
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        // A body of a known size keeps its size, as in the answer of an agent that answers the request itself.
        let length =
            HttpBody::size_hint(&body).exact().filter(|_| !parts.headers.contains_key(CONTENT_LENGTH));
        let length = length.map(|length| (CONTENT_LENGTH.to_string(), length.to_string()));
        let headers = Iterator::chain(headers, length).collect();
        let head = HttpPart::Head { status: parts.status.as_u16(), headers };
        let chunks = body.into_data_stream().map(|chunk| match chunk {
            Ok(chunk) => Ok(HttpPart::Body(chunk.to_vec())),
            Err(error) => Err(RpcError::unavailable(format!("the answer broke off: {error}"))),
        });
        stream::once(future::ready(Ok(head))).chain(chunks)
    };
    stream::once(open).flatten()
}

fn rebuilt(request: HttpRequest, sender: FromAgent) -> Result<Request<Body>, ApiError> {
    let malformed = |what: &str| ApiError::bad_request(format!("the {what} of the request is malformed"));
    let mut out = Request::new(Body::from(request.body));
    *out.method_mut() = request.method.parse().map_err(|_| malformed("method"))?;
    *out.uri_mut() = request.uri.parse().map_err(|_| malformed("path"))?;
    extend(out.headers_mut(), request.headers);
    out.extensions_mut().insert(sender);
    Ok(out)
}

fn extend(headers: &mut HeaderMap, pairs: Vec<(String, String)>) {
    for (name, value) in pairs {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
            headers.append(name, value);
        }
    }
}

/// Returns the RPC routes by which other agents forward requests to this agent.
pub fn rpc(state: HttpState) -> RouterBuilder {
    let state = Arc::new(state);
    let exec = crate::exec::rpc(state.clone());
    let builder = caravan_rpc::Router::builder().duplex::<methods::Exec, _, _, _>(exec);
    builder.stream::<methods::Http, _, _, _>(move |context, request| {
        let state = state.clone();
        async move { Ok(answer(state, &context.peer, request)) }
    })
}
