//! From a request to its route. Paths are matched after decoding, because job ids may contain slashes
//! (`http-api` sections 1.1 and 3).

use crate::access;
use crate::cache::{Key, Ready};
use crate::call::Call;
use crate::compress::Coding;
use crate::error::ApiError;
use crate::query::{Query, cleaned, decode_percent};
use crate::relay::{self, ASKS, FromAgent, HOPS, MAX_HOPS};
use crate::reply::Reply;
use crate::routes;
use crate::state::HttpState;
use crate::task_api;
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
            // Most of what a route needs while it runs is not needed while a request waits for its turn.
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
        // What follows is no answer that could be kept or packed.
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
    // An agent that passed the request on may have said so already.
    if !headers.get_all(VARY).iter().any(|value| value == "Accept-Encoding") {
        headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    for (name, value) in &added.headers {
        headers.entry(name).or_insert_with(|| value.clone());
    }
    response
}

/// The methods with which pages of other origins may call a route, if they may (`http-api` section 1.9).
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

/// Answers a browser that asks whether it may ask.
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

/// Packs an answer that is there as a whole; streams go as they are.
async fn packed(mut response: Response<Body>, coding: Option<Coding>) -> Response<Body> {
    let length = HttpBody::size_hint(response.body()).exact().unwrap_or(0);
    let Some(coding) = coding.filter(|_| length > 0 && !response.headers().contains_key(CONTENT_ENCODING))
    else {
        return response;
    };
    let body = std::mem::take(response.body_mut());
    // What is there as a whole cannot fail to be read.
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
    let decoded = decode_percent(&path);
    let segments: Vec<String> = decoded.split('/').skip(1).map(str::to_owned).collect();
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let body = state.shared.bodies.read(&path, body).await?;
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    // Headers that agents write count only where an agent wrote them.
    let from_agent = parts.extensions.get::<FromAgent>().is_some();
    let asks = from_agent && parts.headers.contains_key(ASKS);
    let hops = parts
        .headers
        .get(HOPS)
        .filter(|_| from_agent)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse().ok());
    let mut call = Call {
        state,
        method: parts.method,
        uri: parts.uri.path_and_query().map_or(path, |uri| uri.as_str().to_owned()),
        segments,
        query,
        headers: parts.headers,
        body,
        hops: hops.unwrap_or(0),
        caller: Caller::unrestricted(),
    };
    if call.hops > MAX_HOPS {
        return Err(ApiError::internal("the request was passed on from agent to agent too often"));
    }
    let region = call.query.text("region");
    if !region.is_empty() && region != call.state.info.region {
        return Err(ApiError::internal("No path to region"));
    }
    let segments = call.segments.clone();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let pretty = call.query.pretty();
    match (&call.state.server, &call.state.relay) {
        // Who may not is told over the websocket, whose first message may hold the token.
        _ if !asks && routes::exec::target(&segments).is_some() => {}
        (Some(server), _) => call.caller = access::check(&call, server, &segments)?,
        // What came from a server was allowed there; the rest is asked for, unless a server answers anyway.
        (None, Some(channel)) if call.state.acl && !from_agent && answers_itself(&call, &segments) => {
            Box::pin(relay::authorized(&call, channel)).await?;
        }
        _ => {}
    }
    if asks {
        return Ok(Reply::empty().status(StatusCode::NO_CONTENT).into_response(false));
    }
    if let Some(target) = routes::exec::target(&segments) {
        call.only(&Method::GET)?;
        return routes::exec::upgrade(call, &target, upgrade).map(|reply| reply.into_response(false));
    }
    if let ["v1", "agent", rest @ ..] = segments.as_slice()
        && routes::monitor::is_mine(rest)
    {
        return match routes::monitor::place(&call)? {
            routes::client::Place::Here => {
                Box::pin(routes::monitor::route(&call, rest)).await.map(|reply| reply.into_response(pretty))
            }
            routes::client::Place::There(channel) => Box::pin(relay::forward(&call, &channel)).await,
        };
    }
    if let Some(rest) = of_node(&segments) {
        let rest = rest.as_slice();
        if let Some(client) = &call.state.client {
            client.ready().await;
        }
        return match routes::client::place(&call, rest)? {
            routes::client::Place::Here => {
                Box::pin(routes::client::route(&call, rest)).await.map(|reply| reply.into_response(pretty))
            }
            routes::client::Place::There(channel) => Box::pin(relay::forward(&call, &channel)).await,
        };
    }
    if call.state.server.is_none() && !is_local(&segments) && !names_servers(&call, &segments) {
        let channel = call.state.relay.as_ref().filter(|_| call.hops == 0);
        let channel = channel.ok_or_else(|| ApiError::internal("No cluster leader"))?;
        return Box::pin(relay::forward(&call, channel)).await;
    }
    match call.state.server.as_ref().filter(|_| is_kept(&call, &segments)) {
        Some(server) => Box::pin(kept(&call, server, &segments)).await,
        None => route(&call, &segments).await.map(|reply| reply.into_response(pretty)),
    }
}

/// Whether the answer may be asked for again before anything changes: lists, read without waiting.
fn is_kept(call: &Call, segments: &[&str]) -> bool {
    let is_list = matches!(
        segments,
        ["v1", "jobs" | "allocations" | "nodes" | "evaluations" | "deployments" | "volumes" | "services"]
            | ["v1", "jobs", "statuses"]
    );
    is_list && call.is_get() && call.query.get("index").is_none()
}

/// The answer that was given before, or a new one.
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

/// Whether a path is that of a route about one object, without a slash and a name behind.
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

/// Leads to the path as it should have been.
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

/// Whether an agent without a server answers the request itself.
fn answers_itself(call: &Call, segments: &[&str]) -> bool {
    let here = |place: Result<routes::client::Place, ApiError>| {
        place.is_ok_and(|place| matches!(place, routes::client::Place::Here))
    };
    if let Some(rest) = of_node(segments) {
        return here(routes::client::place(call, &rest));
    }
    match segments {
        ["v1", "agent", rest @ ..] if routes::monitor::is_mine(rest) => here(routes::monitor::place(call)),
        ["v1", ..] => is_local(segments) || names_servers(call, segments),
        _ => false,
    }
}

/// Whether the route is about the servers that this agent speaks to, which it knows itself.
fn names_servers(call: &Call, segments: &[&str]) -> bool {
    call.state.servers.is_some() && segments == ["v1", "agent", "servers"]
}

/// The rest of a path that the node answers.
fn of_node<'a>(segments: &[&'a str]) -> Option<Vec<&'a str>> {
    match segments {
        ["v1", "client", rest @ ..] => Some(rest.to_vec()),
        ["v1", "allocation", id, "checks"] => Some(vec!["allocation", id, "checks"]),
        _ => None,
    }
}

/// Whether every agent answers the route itself.
fn is_local(segments: &[&str]) -> bool {
    match segments {
        ["v1", "agent", rest @ ..] => *rest != ["members"] && *rest != ["servers"],
        ["v1", "metrics"] | ["v1", "jobs", "parse"] => true,
        ["v1", ..] | [".well-known", ..] => false,
        _ => true,
    }
}

/// Each route's future is on the heap: a request that waits then holds what its own route needs, and not what the
/// largest one would.
async fn route(call: &Call, segments: &[&str]) -> Result<Reply, ApiError> {
    match segments {
        [""] => Ok(to_ui(call)),
        ["ui", ..] => Ok(Reply::raw(
            "text/html; charset=utf-8",
            "<!doctype html><title>Caravan</title><p>There is no web page yet.\n",
        )),
        ["v1", "metrics"] => Box::pin(routes::metrics::route(call)).await,
        ["v1", "jobs"] => Box::pin(routes::jobs::route(call)).await,
        ["v1", "jobs", "parse"] => routes::jobs::parse(call),
        ["v1", "jobs", "statuses"] => Box::pin(routes::statuses::route(call)).await,
        ["v1", "scaling", rest @ ..] => Box::pin(routes::scaling::policies(call, rest)).await,
        ["v1", "validate", "job"] => routes::jobs::validate(call),
        ["v1", "job", rest @ .., "services"] if !rest.is_empty() => {
            Box::pin(routes::services::of_job(call, &rest.join("/"))).await
        }
        ["v1", "job", rest @ ..] if !rest.is_empty() => {
            Box::pin(routes::job::route(call, &rest.join("/"))).await
        }
        ["v1", "allocations"] => Box::pin(routes::allocs::list(call)).await,
        ["v1", "allocation", id, "services"] => Box::pin(routes::services::of_alloc(call, id)).await,
        ["v1", "allocation", rest @ ..] if !rest.is_empty() => {
            Box::pin(routes::allocs::route(call, rest)).await
        }
        ["v1", "evaluations"] => Box::pin(routes::evals::list(call)).await,
        ["v1", "evaluations", "count"] => Box::pin(routes::evals::count(call)).await,
        ["v1", "evaluation", rest @ ..] if !rest.is_empty() => {
            Box::pin(routes::evals::route(call, rest)).await
        }
        ["v1", "deployments"] => Box::pin(routes::deployments::list(call)).await,
        ["v1", "deployment", rest @ ..] if !rest.is_empty() => {
            Box::pin(routes::deployments::route(call, rest)).await
        }
        ["v1", "nodes"] => Box::pin(routes::nodes::list(call)).await,
        ["v1", "node", rest @ ..] if !rest.is_empty() => Box::pin(routes::nodes::route(call, rest)).await,
        ["v1", "volumes"] => Box::pin(routes::volumes::route(call)).await,
        ["v1", "volumes", "external"] => Box::pin(routes::volumes::external(call)).await,
        ["v1", "volumes", "snapshot"] => Box::pin(routes::snapshots::route(call)).await,
        ["v1", "volumes", "claims"] => Box::pin(routes::host_volumes::claims(call)).await,
        ["v1", "volumes", "claim", id @ ..] if !id.is_empty() => {
            Box::pin(routes::host_volumes::delete_claim(call, &id.join("/"))).await
        }
        ["v1", "volume", "host", rest @ ..] => Box::pin(routes::host_volumes::route(call, rest)).await,
        ["v1", "volume", "csi", rest @ ..] if !rest.is_empty() => {
            Box::pin(routes::volume::route(call, &rest.join("/"))).await
        }
        ["v1", "plugins"] => Box::pin(routes::plugins::list(call)).await,
        ["v1", "plugin", "csi", id @ ..] if !id.is_empty() => {
            Box::pin(routes::plugins::get(call, &id.join("/"))).await
        }
        ["v1", "vars"] => Box::pin(routes::vars::list(call)).await,
        ["v1", "var", rest @ ..] => Box::pin(routes::vars::route(call, &rest.join("/"))).await,
        ["v1", "event", "stream"] => routes::event::stream(call),
        ["v1", "services"] => Box::pin(routes::services::list(call)).await,
        ["v1", "service", name] => Box::pin(routes::services::get(call, name)).await,
        ["v1", "service", name, id] => Box::pin(routes::services::delete(call, name, id)).await,
        ["v1", "service", _, _, _, ..] => Err(ApiError::bad_request("invalid URI")),
        ["v1", "search", "fuzzy"] => Box::pin(routes::fuzzy::route(call)).await,
        ["v1", "search"] => Box::pin(routes::search::route(call)).await,
        ["v1", "agent", rest @ ..] => routes::agent::route(call, rest),
        ["v1", rest @ ..] => Box::pin(routes::system::route(call, rest)).await,
        [".well-known", name] => Box::pin(routes::operator::well_known(call, name)).await,
        _ => Err(ApiError::unknown_path()),
    }
}

/// `GET /` leads to the page, query string and all.
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
