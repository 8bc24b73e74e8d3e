//! Dispatch of requests to their handlers. Paths are matched after decoding, because job ids may contain slashes
//! (docs/reference/http-api.md, sections 1.1 and 3).

use crate::access::{self, BodyLimit, Line, Need, Place, To};
use crate::cache::{Key, Ready};
use crate::call::Call;
use crate::client_side;
use crate::compress::Coding;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::leader::{self, Patience};
use crate::query::{Query, cleaned};
use crate::region;
use crate::relay::{self, ASKS, FromAgent, HOPS, MAX_HOPS};
use crate::reply::Reply;
use crate::routes;
use crate::routes::client::Destination;
use crate::state::HttpState;
use crate::task_api;
use arc_swap::ArcSwap;
use bytes::Bytes;
use caravan_api::ErrorReason;
use caravan_server::{Caller, Handle, LeaderPlace};
use futures::FutureExt as _;
use http::header::{CONTENT_ENCODING, HeaderName, LOCATION, ORIGIN, VARY};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

const HTML: &str = "text/html; charset=utf-8";

const ALLOW_ORIGIN: HeaderName = HeaderName::from_static("access-control-allow-origin");
const ALLOW_CREDENTIALS: HeaderName = HeaderName::from_static("access-control-allow-credentials");
const ALLOW_METHODS: HeaderName = HeaderName::from_static("access-control-allow-methods");
const ALLOW_HEADERS: HeaderName = HeaderName::from_static("access-control-allow-headers");
const REQUEST_METHOD: HeaderName = HeaderName::from_static("access-control-request-method");
const REQUEST_HEADERS: HeaderName = HeaderName::from_static("access-control-request-headers");

/// Answers a request.
pub(crate) async fn handle(state: Arc<HttpState>, request: Request<Body>) -> Response<Body> {
    let (begun, shared_state) = (Instant::now(), state.shared.clone());
    let added = state.transport.clone();
    let decoded = caravan_base::percent::decode(request.uri().path());
    let segments: Vec<String> = decoded.split('/').skip(1).map(str::to_owned).collect();
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let first = access::find_path(&words);
    let shared = first.map(|line| line.shared).filter(|methods| !methods.is_empty());
    let asks_origin = request.headers().contains_key(ORIGIN);
    let coding = Coding::accepted(request.headers());
    let logged = tracing::enabled!(tracing::Level::DEBUG)
        .then(|| (request.method().clone(), request.uri().path().to_owned(), Instant::now()));
    let mut response = match shared {
        Some(methods) if request.method() == Method::OPTIONS => preflight(methods, request.headers()),
        _ => {
            // The future of the answer is on the heap, because most of its state is not needed while the request
            // waits.
            let answered = Box::pin(answer(state, request, segments, first)).await;
            let response = match answered {
                Ok(response) => response,
                Err(error) => Reply::from(error).into_response(false),
            };
            Box::pin(packed(response, coding)).await
        }
    };
    if let Some((method, path, begun)) = logged {
        let (status, duration) = (response.status().as_u16(), begun.elapsed());
        tracing::debug!(%method, path, status, ?duration, "request complete");
    }
    shared_state.requests.note(begun.elapsed());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // This answer cannot be cached or compressed.
        return response;
    }
    let headers = response.headers_mut();
    if shared.is_some() {
        if asks_origin {
            headers.insert(ALLOW_ORIGIN, HeaderValue::from_static("*"));
            headers.insert(ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    // The agent that answered a forwarded request may have set this header already.
    if !headers.get_all(VARY).iter().any(|value| value == "Accept-Encoding") {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    for (name, value) in &added.headers {
        headers.entry(name).or_insert_with(|| value.clone());
    }
    response
}

/// Answers a CORS preflight request.
fn preflight(methods: &[&str], asked: &HeaderMap) -> Response<Body> {
    let mut response = Reply::empty().status(StatusCode::NO_CONTENT).into_response(false);
    let headers = response.headers_mut();
    for name in ["Access-Control-Request-Method", "Access-Control-Request-Headers"] {
        headers.append(VARY, HeaderValue::from_static(name));
    }
    let method = asked.get(REQUEST_METHOD);
    if let Some(method) = method.filter(|m| m.to_str().is_ok_and(|m| methods.contains(&m))) {
        headers.insert(ALLOW_METHODS, method.clone());
        if let Some(names) = asked.get(REQUEST_HEADERS) {
            headers.insert(ALLOW_HEADERS, names.clone());
        }
    }
    response
}

/// Compresses a complete answer. Streams are not compressed.
async fn packed(mut response: Response<Body>, coding: Option<Coding>) -> Response<Body> {
    let length = HttpBody::size_hint(response.body()).exact().unwrap_or(0);
    let Some(coding) = coding.filter(|_| length > 0 && !response.headers().contains_key(CONTENT_ENCODING))
    else {
        return response;
    };
    let body = std::mem::replace(response.body_mut(), Body::empty());
    // A complete body cannot fail to be read.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    *response.body_mut() = match coding.pack(&body) {
        Ok(packed) => {
            response.headers_mut().insert(CONTENT_ENCODING, coding.name());
            Body::from(packed)
        }
        Err(error) => {
            tracing::debug!(%error, "a response could not be compressed");
            Body::from(body)
        }
    };
    response
}

/// Answers a request. `first` is the first line of the table whose path matches.
async fn answer(
    state: Arc<HttpState>,
    request: Request<Body>,
    segments: Vec<String>,
    first: Option<&'static Line>,
) -> Result<Response<Body>, ApiError> {
    if state.for_tasks {
        task_api::check(&state, request.headers())?;
    }
    let path = request.uri().path().to_owned();
    if let Some(mut clean) = cleaned(&path) {
        if let Some(query) = request.uri().query() {
            clean.push('?');
            clean.push_str(query);
        }
        return Ok(redirect(&clean, request.method()).into_response(false));
    }
    if first.is_some_and(|line| matches!(line.to, To::Slash)) {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        return Ok(redirect(&format!("{path}/{query}"), request.method()).into_response(false));
    }
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let line = first.and_then(|first| access::find_method(first, &parts.method));
    let body = state.shared.bodies.read(line.map_or(BodyLimit::Usual, |line| line.body), body).await?;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let Some(line) = line else {
        return Err(if first.is_some() { ApiError::method() } else { ApiError::unknown_path() });
    };
    // Headers of agents are honored only if an agent sent the request.
    let sender = parts.extensions.get::<FromAgent>().copied();
    let from_agent = sender.is_some();
    let asks = parts.headers.get(ASKS).filter(|_| from_agent).cloned();
    let hops = parts
        .headers
        .get(HOPS)
        .filter(|_| from_agent)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok());
    let is_from_server = sender.is_some_and(|sender| sender.is_server);
    let waited = relay::millis(&parts.headers, &relay::WAITED).filter(|_| is_from_server);
    let call = Call {
        state,
        method: parts.method,
        uri: parts.uri.path_and_query().map_or(path, |uri| uri.as_str().to_owned()),
        namespace: access::namespace(line.need, &query, &body),
        line,
        segments,
        query,
        headers: parts.headers,
        body,
        hops: hops.unwrap_or(0),
        arrived: tokio::time::Instant::now(),
        waited_before: waited.unwrap_or_default(),
        caller: ArcSwap::from_pointee(Caller::unrestricted()),
    };
    let call = Arc::new(call);
    if call.hops > MAX_HOPS {
        return Err(ApiError::internal("the request was passed on from agent to agent too often"));
    }
    // A session is passed on to another region after the websocket is open.
    if let Some(region) = region::other(&call).filter(|_| call.line.place != Place::Websocket) {
        return match sender {
            Some(FromAgent { is_foreign: true, .. }) => Err(region::crossed(&region)),
            _ => Box::pin(region::pass_on(&call, &region)).await,
        };
    }
    let request = Admitted { sender, asks, upgrade: Mutex::new(upgrade) };
    let mut patience = Patience::begin(&call, is_from_server);
    loop {
        match Box::pin(once(&call, &request, patience)).await {
            Answered::Done(result) => return result,
            // No server executed the request, so it is sent to the next leader, which may first need an election.
            Answered::LeaderLost { again, held } => {
                if held {
                    patience.renew(&call);
                }
                if patience.is_over() {
                    return Err(leader::no_leader(&call));
                }
                again.wait(patience).await;
            }
        }
    }
}

/// The facts about a request that are not part of its content.
struct Admitted {
    /// The agent that forwarded the request.
    sender: Option<FromAgent>,
    /// The header by which another agent requests only a check of the right, if the request has it.
    asks: Option<HeaderValue>,
    upgrade: Mutex<Option<OnUpgrade>>,
}

/// The result of one attempt to answer a request.
enum Answered {
    Done(Result<Response<Body>, ApiError>),
    /// The leader was lost before it did anything, or while it `held` a query.
    LeaderLost {
        again: leader::Again,
        held: bool,
    },
}

impl From<ApiError> for Answered {
    fn from(error: ApiError) -> Self {
        Self::Done(Err(error))
    }
}

/// Answers a request, or passes it on to the leader.
async fn once(call: &Arc<Call>, request: &Admitted, patience: Patience) -> Answered {
    let is_forwarded = request.sender.is_some_and(|sender| sender.is_server);
    let mut is_current = false;
    // The watch starts before the leader is found, so that no change after that is missed.
    let change = call.state.server.as_ref().map(|server| server.cluster().leader_change().boxed());
    if let (Some(server), Place::Server, None) = (&call.state.server, call.line.place, &request.asks)
        && !matches!(call.line.need, Need::Refused(..))
    {
        match Box::pin(leader::find(call, server, is_forwarded, patience)).await {
            Ok(leader::Found::Here) => {}
            Ok(leader::Found::Current) => is_current = true,
            Ok(leader::Found::There { channel, moved }) => {
                return match Box::pin(leader::pass_on(call, &channel, patience, moved)).await {
                    leader::Passed::Answer(result) => Answered::Done(result),
                    leader::Passed::LeaderLost { held } => {
                        Answered::LeaderLost { again: leader::Again::after(call, change), held }
                    }
                };
            }
            Err(error) => return error.into(),
        }
    }
    let here = Box::pin(here(call, request, is_current, patience));
    let (result, is_undone) = caravan_server::attempt(patience.until(), here).await;
    match result {
        Err(error) if error.reason == Some(ErrorReason::NoLeader) => {
            let repeats = call.is_get() || is_undone && leader::repeats(call);
            match (repeats, is_forwarded) {
                (true, false) => {
                    Answered::LeaderLost { again: leader::Again::after(call, change), held: error.held }
                }
                // The server that passed the request on sends it to the next leader.
                (true, true) => error.into(),
                (false, _) => ApiError { reason: None, ..error }.into(),
            }
        }
        other => Answered::Done(other),
    }
}

/// Answers a request at this agent, or forwards it to a node. `is_current` is set at a follower whose state contains
/// everything that was acknowledged before the request.
async fn here(
    call: &Arc<Call>,
    request: &Admitted,
    is_current: bool,
    patience: Patience,
) -> Result<Response<Body>, ApiError> {
    let (line, from_agent, asks) = (call.line, request.sender.is_some(), &request.asks);
    match (&call.state.server, &call.state.relay) {
        // The refusal is sent over the websocket, whose first message may hold the token.
        _ if asks.is_none() && line.place == Place::Websocket => {}
        (Some(server), _) => {
            let caller = leader::surely(server, || access::check(call, server)).await?;
            call.caller.store(Arc::new(caller));
        }
        // The server that forwarded the request has checked it. Otherwise the agent asks a server, unless a server
        // answers anyway.
        (None, Some(channel)) if call.state.acl && !from_agent && answers_itself(call) => {
            Box::pin(relay::authorized(call, channel)).await?;
        }
        _ => {}
    }
    if let Need::Refused(status, text) = line.need {
        return Err(ApiError::new(status, text));
    }
    match asks {
        None => {}
        Some(how) if how == relay::UNTIL_LOST => return Box::pin(relay::hold(call.clone())).await,
        Some(_) => return Ok(Reply::empty().status(StatusCode::NO_CONTENT).into_response(false)),
    }
    if let To::Session(parse) = line.to {
        call.only(&Method::GET)?;
        let upgrade = request.upgrade.lock().take();
        return routes::exec::upgrade(call.clone(), parse, upgrade).map(|reply| reply.into_response(false));
    }
    let response = Box::pin(placed(call, is_current, patience)).await?;
    // An agent without a server checks only its own callers: a forwarded request is checked by the agent that sent
    // it.
    let judges = call.state.server.is_some() || (!from_agent && answers_itself(call));
    Ok(if judges { relay::guarded(response, call.clone()) } else { response })
}

/// Answers a request at the agent that its line of the table names.
async fn placed(call: &Call, is_current: bool, patience: Patience) -> Result<Response<Body>, ApiError> {
    let server = call.state.server.as_ref();
    let destination = match call.line.place {
        Place::Node(object) => {
            if let Some(client) = &call.state.client {
                client_side::ready(client.as_ref()).await;
            }
            leader::surely_at(server, || routes::client::place(call, object)).await?
        }
        Place::Named(unknown) => leader::surely_at(server, || routes::monitor::place(call, unknown)).await?,
        _ if call.state.server.is_some() || is_local(call) => Destination::Here,
        _ => {
            let channel = call.state.relay.clone().filter(|_| call.hops == 0);
            Destination::There(channel.ok_or_else(ApiError::no_leader)?)
        }
    };
    let destination = match (destination, &call.state.server) {
        (Destination::Node(node), Some(server)) => {
            Destination::There(server.node_channel(&node).await.map_err(ApiError::no_path)?)
        }
        (Destination::Leader, Some(server)) => {
            match server.cluster().place(false, false, patience.until()).await {
                Ok(LeaderPlace::Here) => Destination::Here,
                Ok(LeaderPlace::There(channel)) => Destination::Server(channel),
                Err(_) => return Err(leader::no_leader(call)),
            }
        }
        (destination, _) => destination,
    };
    let response = match (destination, call.state.server.as_ref().filter(|_| is_cached(call))) {
        // Only an agent with a server has such a destination.
        (Destination::Node(_), _) => return Err(ApiError::not_found("No path to node")),
        (Destination::Leader, _) => return Err(leader::no_leader(call)),
        (Destination::Server(channel), _) => return Ok(Box::pin(relay::to_server(call, &channel)).await?),
        (Destination::There(channel), _) => return Box::pin(relay::forward(call, &channel)).await,
        (Destination::Here, Some(server)) => Box::pin(cached(call, server)).await?,
        (Destination::Here, None) => run(call).await?.into_response(call.query.pretty()),
    };
    Ok(leader::described(response, call.state.server.as_ref(), is_current, leader::is_stale(call)))
}

/// Calls the handler of a request's line. The future of a handler is on the heap: a waiting request then occupies the
/// memory of its own route, not of the largest one.
async fn run(call: &Call) -> Result<Reply, ApiError> {
    match call.line.to {
        To::Handler(handler) => handler(call).await,
        // The requests of these lines were answered before.
        To::Nowhere | To::Slash | To::Session(_) => Err(ApiError::unknown_path()),
    }
}

/// Returns whether the answer may come from memory: lists that are read without blocking.
fn is_cached(call: &Call) -> bool {
    call.line.cached && call.is_get() && call.query.get("index").is_none()
}

/// Returns the cached answer or a new one.
async fn cached(call: &Call, server: &Handle) -> Result<Response<Body>, ApiError> {
    let (root, now) = (server.store().snapshot(), Instant::now());
    let credentials = ["x-nomad-token", "authorization"];
    let credentials = credentials.iter().flat_map(|name| call.headers.get_all(*name));
    let key = Key {
        uri: call.uri.clone(),
        coding: Coding::accepted(&call.headers),
        credentials: credentials.map(|value| Bytes::copy_from_slice(value.as_bytes())).collect(),
        is_leader: server.is_leader(),
    };
    let ready = match call.state.shared.answers.get(&root, &key, now) {
        Some(ready) => ready,
        None => {
            let response = run(call).await?.into_response(call.query.pretty());
            let (parts, body) = packed(response, key.coding).await.into_parts();
            let body = body
                .collect()
                .await
                .map_err(|error| ApiError::internal(format!("the answer cannot be made: {error}")))?;
            let ready = Ready { status: parts.status, headers: parts.headers, body: body.to_bytes() };
            call.state.shared.answers.put(&root, key, now, ready.clone());
            ready
        }
    };
    let mut response = Response::new(Body::from(ready.body));
    *response.status_mut() = ready.status;
    *response.headers_mut() = ready.headers;
    Ok(response)
}

/// Redirects to another path.
pub(crate) fn redirect(to: &str, method: &Method) -> Reply {
    let mut reply = match *method {
        Method::GET | Method::HEAD => {
            let text =
                to.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&#34;");
            Reply::raw(HTML, format!("<a href=\"{text}\">Temporary Redirect</a>.\n\n"))
        }
        _ => Reply::empty(),
    };
    match HeaderValue::from_str(to) {
        Ok(to) => {
            reply.headers.insert(LOCATION, to);
            reply.status(StatusCode::TEMPORARY_REDIRECT)
        }
        Err(_) => Reply::from(ApiError::unknown_path()),
    }
}

/// Returns whether an agent without a server answers the request itself, and so checks the right at a server.
fn answers_itself(call: &Call) -> bool {
    match call.line.place {
        Place::Node(object) => matches!(routes::client::place(call, object), Ok(Destination::Here)),
        Place::Named(unknown) => matches!(routes::monitor::place(call, unknown), Ok(Destination::Here)),
        Place::Page => false,
        _ => is_local(call),
    }
}

/// Returns whether this agent answers the route without a server.
fn is_local(call: &Call) -> bool {
    match call.line.place {
        Place::Agent | Place::Page => true,
        Place::AnyServer => call.state.server.is_some(),
        Place::ServerList => call.state.servers.is_some(),
        Place::Server | Place::Node(_) | Place::Named(_) | Place::Websocket => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Content;

    #[test]
    fn a_target_does_not_become_part_of_the_page() {
        let Content::Raw(_, _) = redirect("/v1/\"><b>", &Method::GET).content else {
            panic!("a page was expected");
        };
        assert!(matches!(redirect("/v1/jobs", &Method::PUT).content, Content::Empty));
    }
}
