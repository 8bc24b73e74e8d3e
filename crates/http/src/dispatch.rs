//! From a request to its route. Paths are matched after decoding, because job ids may contain slashes
//! (`http-api` sections 1.1 and 3).

use crate::access;
use crate::call::Call;
use crate::error::ApiError;
use crate::query::{Query, cleaned, decode_percent};
use crate::relay::{self, ASKS, FromAgent, HOPS, MAX_HOPS};
use crate::reply::{Content, Reply, TEXT};
use crate::routes;
use crate::state::HttpState;
use axum::body::Body;
use caravan_server::Caller;
use http::header::{HeaderName, LOCATION, ORIGIN, VARY};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// Longest request body in bytes.
pub const MAX_BODY: usize = 16 * 1024 * 1024;

const ALLOW_ORIGIN: HeaderName = HeaderName::from_static("access-control-allow-origin");
const ALLOW_CREDENTIALS: HeaderName = HeaderName::from_static("access-control-allow-credentials");
const ALLOW_METHODS: HeaderName = HeaderName::from_static("access-control-allow-methods");

/// Answers a request.
pub(crate) async fn handle(state: HttpState, request: Request<Body>) -> Response<Body> {
    let shared = is_shared(request.uri().path());
    let asks_origin = request.headers().contains_key(ORIGIN);
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let mut response = if shared && request.method() == Method::OPTIONS {
        Reply::empty().status(StatusCode::NO_CONTENT).into_response(false)
    } else {
        match answer(state, request, query.clone()).await {
            Ok(Answer::Reply(reply)) => reply.into_response(query.pretty()),
            Ok(Answer::Relayed(response)) => return response,
            Err(error) => Reply::from(error).into_response(false),
        }
    };
    let headers = response.headers_mut();
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    if shared {
        headers.append(VARY, HeaderValue::from_static("Origin"));
        if asks_origin {
            headers.insert(ALLOW_ORIGIN, HeaderValue::from_static("*"));
            headers.insert(ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            headers.insert(ALLOW_METHODS, HeaderValue::from_static("HEAD,GET,PUT,POST"));
        }
    }
    response
}

/// Whether pages of other origins may call the route (`http-api` section 1.9).
fn is_shared(path: &str) -> bool {
    ["/v1/client/fs/", "/v1/client/stats", "/v1/client/allocation/", "/v1/vars", "/v1/var/"]
        .iter()
        .any(|p| path.starts_with(p))
}

enum Answer {
    Reply(Reply),
    /// Another agent's answer, headers and all.
    Relayed(Response<Body>),
}

async fn answer(state: HttpState, request: Request<Body>, query: Query) -> Result<Answer, ApiError> {
    let path = request.uri().path().to_owned();
    if let Some(mut clean) = cleaned(&path) {
        if let Some(query) = request.uri().query() {
            clean.push('?');
            clean.push_str(query);
        }
        let mut reply = Reply::empty().status(StatusCode::MOVED_PERMANENTLY);
        reply.headers.insert(LOCATION, HeaderValue::from_str(&clean).map_err(|_| ApiError::unknown_path())?);
        return Ok(Answer::Reply(reply));
    }
    let decoded = decode_percent(&path);
    let segments: Vec<String> = decoded.split('/').skip(1).map(str::to_owned).collect();
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let text = format!("the request body is larger than {} MiB", MAX_BODY / 1024 / 1024);
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        } else {
            ApiError::bad_request(format!("the request body could not be read: {error}"))
        }
    })?;
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
        body: body.to_bytes(),
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
    match (&call.state.server, &call.state.relay) {
        (Some(server), _) => call.caller = access::check(&call, server, &segments)?,
        // What came from a server was allowed there; the rest is asked for, unless a server answers anyway.
        (None, Some(channel)) if call.state.acl && !from_agent && answers_itself(&call, &segments) => {
            relay::authorized(&call, channel).await?;
        }
        _ => {}
    }
    if asks {
        return Ok(Answer::Reply(Reply::empty().status(StatusCode::NO_CONTENT)));
    }
    if let ["v1", "client", rest @ ..] = segments.as_slice() {
        return match routes::client::place(&call, rest)? {
            routes::client::Place::Here => routes::client::route(&call, rest).await.map(Answer::Reply),
            routes::client::Place::There(channel) => {
                relay::forward(&call, &channel).await.map(Answer::Relayed)
            }
        };
    }
    if call.state.server.is_none() && !is_local(&segments) {
        let channel = call.state.relay.as_ref().filter(|_| call.hops == 0);
        let channel = channel.ok_or_else(|| ApiError::internal("No cluster leader"))?;
        return relay::forward(&call, channel).await.map(Answer::Relayed);
    }
    route(&call, &segments).await.map(Answer::Reply)
}

/// Whether an agent without a server answers the request itself.
fn answers_itself(call: &Call, segments: &[&str]) -> bool {
    match segments {
        ["v1", "client", rest @ ..] => {
            routes::client::place(call, rest).is_ok_and(|place| matches!(place, routes::client::Place::Here))
        }
        ["v1", ..] => is_local(segments),
        _ => false,
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

async fn route(call: &Call, segments: &[&str]) -> Result<Reply, ApiError> {
    match segments {
        [""] => Ok(to_ui(call)),
        ["ui", ..] => Ok(Reply::raw(
            "text/html; charset=utf-8",
            "<!doctype html><title>Caravan</title><p>There is no web page yet.\n",
        )),
        ["v1", "jobs"] => routes::jobs::route(call).await,
        ["v1", "jobs", "parse"] => routes::jobs::parse(call),
        ["v1", "validate", "job"] => routes::jobs::validate(call),
        ["v1", "job", rest @ ..] if !rest.is_empty() => routes::job::route(call, &rest.join("/")).await,
        ["v1", "allocations"] => routes::allocs::list(call).await,
        ["v1", "allocation", rest @ ..] if !rest.is_empty() => routes::allocs::route(call, rest).await,
        ["v1", "evaluations"] => routes::evals::list(call).await,
        ["v1", "evaluations", "count"] => routes::evals::count(call).await,
        ["v1", "evaluation", rest @ ..] if !rest.is_empty() => routes::evals::route(call, rest).await,
        ["v1", "deployments"] => routes::deployments::list(call).await,
        ["v1", "deployment", rest @ ..] if !rest.is_empty() => routes::deployments::route(call, rest).await,
        ["v1", "nodes"] => routes::nodes::list(call).await,
        ["v1", "node", rest @ ..] if !rest.is_empty() => routes::nodes::route(call, rest).await,
        ["v1", "volumes"] => routes::volumes::route(call).await,
        ["v1", "volumes", "external"] => routes::volumes::external(call).await,
        ["v1", "volumes", "snapshot"] => routes::snapshots::route(call).await,
        ["v1", "volumes", "claims"] => routes::host_volumes::claims(call).await,
        ["v1", "volumes", "claim", id] => routes::host_volumes::delete_claim(call, id).await,
        ["v1", "volume", "host", rest @ ..] => routes::host_volumes::route(call, rest).await,
        ["v1", "volume", "csi", rest @ ..] if !rest.is_empty() => {
            routes::volume::route(call, &rest.join("/")).await
        }
        ["v1", "plugins"] => routes::plugins::list(call).await,
        ["v1", "plugin", "csi", id] => routes::plugins::get(call, id).await,
        ["v1", "vars"] => routes::vars::list(call).await,
        ["v1", "var", rest @ ..] => routes::vars::route(call, &rest.join("/")).await,
        ["v1", "search"] => routes::search::route(call).await,
        ["v1", "agent", rest @ ..] => routes::agent::route(call, rest),
        ["v1", rest @ ..] => routes::system::route(call, rest).await,
        [".well-known", name] => routes::operator::well_known(call, name).await,
        _ => Err(ApiError::unknown_path()),
    }
}

/// `GET /` leads to the page, query string and all.
fn to_ui(call: &Call) -> Reply {
    let query = call.uri.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    let target = format!("/ui/{query}");
    let mut reply = Reply::raw("text/html; charset=utf-8", "<a href=\"/ui/\">Temporary Redirect</a>.\n\n")
        .status(StatusCode::TEMPORARY_REDIRECT);
    match HeaderValue::from_str(&target) {
        Ok(target) => {
            reply.headers.insert(LOCATION, target);
        }
        Err(_) => reply.content = Content::Raw(TEXT, Body::empty()),
    }
    reply
}
