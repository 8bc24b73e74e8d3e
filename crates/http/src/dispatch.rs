//! Dispatches requests to their handlers. Paths are matched after decoding, because job ids may contain slashes
//! (docs/reference/http-api.md, sections 1.1 and 3).

use crate::access::{self, Found, Need};
use crate::cache::{Key, Ready};
use crate::call::Call;
use crate::compress::Coding;
use crate::error::ApiError;
use crate::query::{Query, cleaned};
use crate::relay::{self, ASKS, FromAgent, HOPS, MAX_HOPS};
use crate::reply::Reply;
use crate::routes;
use crate::state::HttpState;
use crate::task_api;
use arc_swap::ArcSwap;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use caravan_server::{Caller, Handle};
use http::header::{CONTENT_ENCODING, HeaderName, LOCATION, ORIGIN, VARY};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
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
    let shared = shared_methods(request.uri().path());
    let asks_origin = request.headers().contains_key(ORIGIN);
    let coding = Coding::accepted(request.headers());
    let told = tracing::enabled!(tracing::Level::DEBUG)
        .then(|| (request.method().clone(), request.uri().path().to_owned(), Instant::now()));
    let mut response = match shared {
        Some(methods) if request.method() == Method::OPTIONS => preflight(methods, request.headers()),
        _ => {
            // The future of the answer is on the heap, because most of its state is not needed while the request waits.
            let answered = Box::pin(answer(state, request)).await;
            let response = match answered {
                Ok(response) => response,
                Err(error) => Reply::from(error).into_response(false),
            };
            Box::pin(packed(response, coding)).await
        }
    };
    if let Some((method, path, begun)) = told {
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

/// Returns the methods with which pages of other origins may call a route; `None` forbids it
/// (docs/reference/http-api.md, section 1.9).
fn shared_methods(path: &str) -> Option<&'static [&'static str]> {
    const CLIENT: &[&str] = &["HEAD", "GET", "PUT", "POST"];
    let below = ["/v1/client/fs/", "/v1/client/allocation/"];
    let exactly =
        ["/v1/client/stats", "/v1/client/metadata", "/v1/client/identity", "/v1/client/identity/renew"];
    if below.iter().any(|prefix| path.starts_with(prefix)) || exactly.contains(&path) {
        return Some(CLIENT);
    }
    match path {
        "/v1/vars" => Some(&["HEAD", "GET"]),
        _ if path.starts_with("/v1/var/") => Some(&["HEAD", "GET", "PUT", "DELETE"]),
        _ => None,
    }
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

/// Compresses a complete answer; streams stay as they are.
async fn packed(mut response: Response<Body>, coding: Option<Coding>) -> Response<Body> {
    let length = HttpBody::size_hint(response.body()).exact().unwrap_or(0);
    let Some(coding) = coding.filter(|_| length > 0 && !response.headers().contains_key(CONTENT_ENCODING))
    else {
        return response;
    };
    let body = std::mem::take(response.body_mut());
    // A complete body cannot fail to be read.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    *response.body_mut() = match coding.pack(&body) {
        Ok(packed) => {
            response.headers_mut().insert(CONTENT_ENCODING, coding.name());
            Body::from(packed)
        }
        Err(error) => {
            tracing::debug!(%error, "an answer could not be packed");
            Body::from(body)
        }
    };
    response
}

async fn answer(state: Arc<HttpState>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
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
    if names_nothing(&path) {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        return Ok(redirect(&format!("{path}/{query}"), request.method()).into_response(false));
    }
    let decoded = caravan_base::percent::decode(&path);
    let segments: Vec<String> = decoded.split('/').skip(1).map(str::to_owned).collect();
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let body = state.shared.bodies.read(&path, body).await?;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    let line = match access::find_line(&parts.method, &words) {
        Found::Line(line) => line,
        Found::Method => return Err(ApiError::method()),
        Found::Nothing => return Err(ApiError::unknown_path()),
    };
    // Headers of agents are honored only if an agent sent the request.
    let from_agent = parts.extensions.get::<FromAgent>().is_some();
    let asks = parts.headers.get(ASKS).filter(|_| from_agent).cloned();
    let hops = parts
        .headers
        .get(HOPS)
        .filter(|_| from_agent)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok());
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
        caller: ArcSwap::from_pointee(Caller::unrestricted()),
    };
    if call.hops > MAX_HOPS {
        return Err(ApiError::internal("the request was passed on from agent to agent too often"));
    }
    let region = call.query.text("region");
    if !region.is_empty() && region != call.state.info.region {
        return Err(ApiError::internal("No path to region"));
    }
    let is_exec = matches!(line.to, To::Exec);
    match (&call.state.server, &call.state.relay) {
        // The refusal is sent over the websocket, whose first message may hold the token.
        _ if asks.is_none() && is_exec => {}
        (Some(server), _) => call.caller.store(Arc::new(access::check(&call, server)?)),
        // The server that forwarded the request has checked it. Otherwise the agent asks a server, unless a server
        // answers anyway.
        (None, Some(channel)) if call.state.acl && !from_agent && answers_itself(&call) => {
            Box::pin(relay::authorized(&call, channel)).await?;
        }
        _ => {}
    }
    if let Need::Refused(status, text) = line.need {
        return Err(ApiError::new(status, text));
    }
    match asks {
        None => {}
        Some(how) if how == relay::UNTIL_LOST => return Box::pin(relay::hold(call)).await,
        Some(_) => return Ok(Reply::empty().status(StatusCode::NO_CONTENT).into_response(false)),
    }
    if is_exec {
        call.only(&Method::GET)?;
        return routes::exec::upgrade(call, upgrade).map(|reply| reply.into_response(false));
    }
    let call = Arc::new(call);
    let response = Box::pin(placed(&call)).await?;
    // An agent without a server checks only its own callers: a forwarded request is checked by the agent that sent it.
    let judges = call.state.server.is_some() || (!from_agent && answers_itself(&call));
    Ok(if judges { relay::guarded(response, call) } else { response })
}

/// Answers a request at the agent where it belongs.
async fn placed(call: &Call) -> Result<Response<Body>, ApiError> {
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    let segments = segments.as_slice();
    let pretty = call.query.pretty();
    if let To::Monitor = call.line.to {
        return match routes::monitor::place(call)? {
            routes::client::Place::Here => {
                let reply = Box::pin(routes::monitor::route(call, &segments[2..])).await;
                reply.map(|reply| reply.into_response(pretty))
            }
            routes::client::Place::There(channel) => Box::pin(relay::forward(call, &channel)).await,
        };
    }
    if let To::Client = call.line.to {
        let rest = of_node(segments);
        let rest = rest.as_slice();
        if let Some(client) = &call.state.client {
            client.ready().await;
        }
        return match routes::client::place(call, rest)? {
            routes::client::Place::Here => {
                Box::pin(routes::client::route(call, rest)).await.map(|reply| reply.into_response(pretty))
            }
            routes::client::Place::There(channel) => Box::pin(relay::forward(call, &channel)).await,
        };
    }
    if call.state.server.is_none() && !is_local(segments) && !names_servers(call, segments) {
        let channel = call.state.relay.as_ref().filter(|_| call.hops == 0);
        let channel = channel.ok_or_else(ApiError::no_leader)?;
        return Box::pin(relay::forward(call, channel)).await;
    }
    match call.state.server.as_ref().filter(|_| is_kept(call, segments)) {
        Some(server) => Box::pin(kept(call, server, segments)).await,
        None => route(call, segments).await.map(|reply| reply.into_response(pretty)),
    }
}

/// Returns whether the answer may be cached: lists that are read without blocking.
fn is_kept(call: &Call, segments: &[&str]) -> bool {
    let is_list = matches!(
        segments,
        ["v1", "jobs" | "allocations" | "nodes" | "evaluations" | "deployments" | "volumes" | "services"]
            | ["v1", "jobs", "statuses"]
    );
    is_list && call.is_get() && call.query.get("index").is_none()
}

/// Returns the cached answer or a new one.
async fn kept(call: &Call, server: &Handle, segments: &[&str]) -> Result<Response<Body>, ApiError> {
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
            let response = route(call, segments).await?.into_response(call.query.pretty());
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

/// Returns whether a path is the route of a single object, without a slash and name after it.
fn names_nothing(path: &str) -> bool {
    const OBJECTS: [&str; 20] = [
        "job",
        "allocation",
        "evaluation",
        "deployment",
        "node",
        "node/pool",
        "volume/csi",
        "volume/host",
        "volumes/claim",
        "plugin/csi",
        "var",
        "service",
        "scaling/policy",
        "acl/policy",
        "client/fs",
        "client/allocation",
        "agent/pprof",
        "agent/keyring",
        "operator/raft",
        "operator/keyring",
    ];
    path == "/ui" || path.strip_prefix("/v1/").is_some_and(|path| OBJECTS.contains(&path))
}

/// Redirects to the cleaned path.
fn redirect(to: &str, method: &Method) -> Reply {
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

/// Returns whether an agent without a server answers the request itself.
fn answers_itself(call: &Call) -> bool {
    let segments: Vec<&str> = call.segments.iter().map(String::as_str).collect();
    let here = |place: Result<routes::client::Place, ApiError>| {
        place.is_ok_and(|place| matches!(place, routes::client::Place::Here))
    };
    match call.line.to {
        To::Client => here(routes::client::place(call, &of_node(&segments))),
        To::Monitor => here(routes::monitor::place(call)),
        _ => segments.first() == Some(&"v1") && (is_local(&segments) || names_servers(call, &segments)),
    }
}

/// Returns whether the route is about the servers that this agent uses, which the agent knows itself.
fn names_servers(call: &Call, segments: &[&str]) -> bool {
    call.state.servers.is_some() && segments == ["v1", "agent", "servers"]
}

/// Returns the part of a path that the node answers.
fn of_node<'a>(segments: &[&'a str]) -> Vec<&'a str> {
    match segments {
        ["v1", "client", rest @ ..] => rest.to_vec(),
        ["v1", rest @ ..] => rest.to_vec(),
        _ => Vec::new(),
    }
}

/// Returns whether every agent answers the route itself.
fn is_local(segments: &[&str]) -> bool {
    match segments {
        ["v1", "agent", rest @ ..] => *rest != ["members"] && *rest != ["servers"],
        ["v1", "metrics"] | ["v1", "jobs", "parse"] => true,
        ["v1", ..] | [".well-known", ..] => false,
        _ => true,
    }
}

/// The handlers of the routes. The table (`access::table`) assigns requests to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// No handler, for lines that refuse.
    Nowhere,
    Root,
    Page,
    WellKnown,
    Metrics,
    Jobs,
    ParseJob,
    Statuses,
    Validate,
    Job(OfJob),
    Allocs,
    AllocServices,
    Alloc,
    Evals,
    EvalCount,
    Eval,
    Deployments,
    Deployment,
    Nodes,
    Node,
    /// The node answers.
    Client,
    /// The answer is a websocket.
    Exec,
    Volumes,
    ExternalVolumes,
    Snapshots,
    HostClaims,
    HostClaim,
    HostVolume,
    Volume(OfVolume),
    Plugins,
    Plugin,
    Vars,
    Var,
    Services,
    Service,
    Registration,
    Scaling,
    Search,
    FuzzySearch,
    Events,
    System,
    Acl,
    Agent,
    /// The agent that the query names answers.
    Monitor,
    Enterprise,
}

/// The parts of a job. A job id may hold slashes, so the end of a path selects the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfJob {
    Itself,
    Plan,
    Evaluate,
    Tag,
    Revert,
    Stable,
    Dispatch,
    DispatchPayload,
    Force,
    Scale,
    Allocations,
    Evaluations,
    Deployments,
    Deployment,
    Summary,
    Versions,
    Submission,
    Actions,
    Services,
}

/// The parts of a CSI volume, selected by the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfVolume {
    Itself,
    Create,
    Delete,
    Detach,
    Explain,
}

/// Calls the handler of a request's line. Each handler's future is on the heap: a waiting request then occupies the
/// memory of its own route, not of the largest one.
async fn route(call: &Call, segments: &[&str]) -> Result<Reply, ApiError> {
    let stars = call.line.stars(segments);
    let star = |at: usize| stars.get(at).map(String::as_str).unwrap_or_default();
    let rest = |skipped: usize| segments.get(skipped..).unwrap_or_default();
    match call.line.to {
        To::Nowhere | To::Client | To::Exec | To::Monitor => Err(ApiError::unknown_path()),
        To::Root => Ok(to_ui(call)),
        To::Page => Ok(Reply::raw(
            "text/html; charset=utf-8",
            "<!doctype html><title>Caravan</title><p>There is no web page yet.\n",
        )),
        To::WellKnown => Box::pin(routes::operator::well_known(call, star(0))).await,
        To::Metrics => Box::pin(routes::metrics::route(call)).await,
        To::Jobs => Box::pin(routes::jobs::route(call)).await,
        To::ParseJob => routes::jobs::parse(call),
        To::Statuses => Box::pin(routes::statuses::route(call)).await,
        To::Validate => routes::jobs::validate(call),
        To::Job(of) => Box::pin(routes::job::route(call, of, &stars)).await,
        To::Allocs => Box::pin(routes::allocs::list(call)).await,
        To::AllocServices => Box::pin(routes::services::of_alloc(call, star(0))).await,
        To::Alloc => Box::pin(routes::allocs::route(call, rest(2))).await,
        To::Evals => Box::pin(routes::evals::list(call)).await,
        To::EvalCount => Box::pin(routes::evals::count(call)).await,
        To::Eval => Box::pin(routes::evals::route(call, rest(2))).await,
        To::Deployments => Box::pin(routes::deployments::list(call)).await,
        To::Deployment => Box::pin(routes::deployments::route(call, rest(2))).await,
        To::Nodes => Box::pin(routes::nodes::list(call)).await,
        To::Node => Box::pin(routes::nodes::route(call, rest(2))).await,
        To::Volumes => Box::pin(routes::volumes::route(call)).await,
        To::ExternalVolumes => Box::pin(routes::volumes::external(call)).await,
        To::Snapshots => Box::pin(routes::snapshots::route(call)).await,
        To::HostClaims => Box::pin(routes::host_volumes::claims(call)).await,
        To::HostClaim => Box::pin(routes::host_volumes::delete_claim(call, star(0))).await,
        To::HostVolume => Box::pin(routes::host_volumes::route(call, rest(3))).await,
        To::Volume(of) => Box::pin(routes::volume::route(call, of, star(0))).await,
        To::Plugins => Box::pin(routes::plugins::list(call)).await,
        To::Plugin => Box::pin(routes::plugins::get(call, star(0))).await,
        To::Vars => Box::pin(routes::vars::list(call)).await,
        To::Var => Box::pin(routes::vars::route(call, star(0))).await,
        To::Services => Box::pin(routes::services::list(call)).await,
        To::Service => Box::pin(routes::services::get(call, star(0))).await,
        To::Registration => Box::pin(routes::services::delete(call, star(0), star(1))).await,
        To::Scaling => Box::pin(routes::scaling::policies(call, rest(2))).await,
        To::Search => Box::pin(routes::search::route(call)).await,
        To::FuzzySearch => Box::pin(routes::fuzzy::route(call)).await,
        To::Events => routes::event::stream(call),
        To::System | To::Acl => Box::pin(routes::system::route(call, rest(1))).await,
        To::Agent => routes::agent::route(call, rest(2)),
        To::Enterprise => Err(routes::system::enterprise()),
    }
}

/// Redirects `GET /` to the user interface, with the query string.
fn to_ui(call: &Call) -> Reply {
    let query = call.uri.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    redirect(&format!("/ui/{query}"), &call.method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Content;

    #[test]
    fn pages_of_other_origins_may_call_what_shows_logs_and_variables() {
        for path in ["/v1/client/fs/logs/x", "/v1/client/metadata", "/v1/vars", "/v1/var/a/b"] {
            assert!(shared_methods(path).is_some(), "{path}");
        }
        for path in ["/v1/client/gc", "/v1/jobs", "/v1/varsity", "/v1/client/statsx"] {
            assert!(shared_methods(path).is_none(), "{path}");
        }
    }

    #[test]
    fn a_target_does_not_become_part_of_the_page() {
        let Content::Raw(_, _) = redirect("/v1/\"><b>", &Method::GET).content else {
            panic!("a page was expected");
        };
        assert!(matches!(redirect("/v1/jobs", &Method::PUT).content, Content::Empty));
    }
}
