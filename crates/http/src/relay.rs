//! Requests that another agent answers: clients pass on to servers, servers to the node that holds an
//! allocation. They travel as one RPC call whose answer is a stream.

use crate::call::Call;
use crate::dispatch;
use crate::error::ApiError;
use crate::state::HttpState;
use axum::body::Body;
use bytes::Bytes;
use caravan_rpc::{Channel, RouterBuilder, RpcError, methods};
use caravan_types::wire::{HttpPart, HttpRequest};
use futures::{Stream, StreamExt, future, stream};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use std::sync::Arc;

/// Counts the agents that passed a request on, so that it cannot go in circles.
pub(crate) const HOPS: HeaderName = HeaderName::from_static("x-caravan-hops");

/// Asks only whether the request is allowed.
pub(crate) const ASKS: HeaderName = HeaderName::from_static("x-caravan-asks");

/// Marks requests that came from another agent, over a connection that proved who it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromAgent;

/// A client passes on to a server, which passes on to another client: nobody beyond that.
pub(crate) const MAX_HOPS: u8 = 2;

const PASSED_ON: [HeaderName; 5] = [
    ACCEPT,
    AUTHORIZATION,
    CONTENT_TYPE,
    HeaderName::from_static("x-nomad-token"),
    HeaderName::from_static("x-nomad-csi-secrets"),
];

/// Has another agent answer.
pub(crate) async fn forward(call: &Call, channel: &Channel) -> Result<Response<Body>, ApiError> {
    let mut headers: Vec<(String, String)> = PASSED_ON
        .iter()
        .filter_map(|name| Some((name.to_string(), call.headers.get(name)?.to_str().ok()?.to_owned())))
        .collect();
    headers.push((HOPS.to_string(), (call.hops + 1).to_string()));
    forward_with(call, channel, headers).await
}

/// Asks a server whether a request may be answered here.
pub(crate) async fn authorized(call: &Call, channel: &Channel) -> Result<(), ApiError> {
    let headers = vec![(HOPS.to_string(), (call.hops + 1).to_string()), (ASKS.to_string(), "1".to_owned())];
    let token = crate::access::secret(&call.headers);
    let headers = headers.into_iter().chain([("x-nomad-token".to_owned(), token)]).collect();
    let answer = forward_with(call, channel, headers).await?;
    if answer.status().is_success() {
        return Ok(());
    }
    let status = answer.status();
    let text = axum::body::to_bytes(answer.into_body(), 4096).await.unwrap_or_default();
    Err(ApiError::new(status, String::from_utf8_lossy(&text).into_owned()))
}

async fn forward_with(
    call: &Call,
    channel: &Channel,
    headers: Vec<(String, String)>,
) -> Result<Response<Body>, ApiError> {
    let request = HttpRequest {
        method: call.method.to_string(),
        uri: call.uri.clone(),
        headers,
        body: call.body.to_vec(),
    };
    let mut parts = channel.stream::<methods::Http>(request);
    let Some(first) = parts.next().await.transpose()? else {
        return Err(ApiError::internal("the other agent answered nothing"));
    };
    let HttpPart::Head { status, headers } = first else {
        return Err(ApiError::internal("the other agent began its answer in the middle"));
    };
    let stopping = call.state.stopping.clone();
    let body = parts.take_until(stopping.cancelled_owned()).filter_map(|part| {
        future::ready(match part {
            Ok(HttpPart::Body(chunk)) => Some(Ok(Bytes::from(chunk))),
            Ok(HttpPart::Head { .. }) => None,
            Err(error) => Some(Err(error)),
        })
    });
    let mut response = Response::new(Body::from_stream(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    extend(response.headers_mut(), headers);
    Ok(response)
}

/// Answers a request of another agent: the same routes, as a stream of one head and then chunks.
pub fn answer(
    state: Arc<HttpState>,
    request: HttpRequest,
) -> impl Stream<Item = Result<HttpPart, RpcError>> + Send {
    let open = async move {
        let response = match rebuilt(request) {
            Ok(request) => dispatch::handle(state, request).await,
            Err(error) => crate::reply::Reply::from(error).into_response(false),
        };
        let (parts, body) = response.into_parts();
        let headers = parts
            .headers
            .iter()
            .filter(|(name, _)| **name != TRANSFER_ENCODING)
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
            .collect();
        let head = HttpPart::Head { status: parts.status.as_u16(), headers };
        let chunks = body.into_data_stream().map(|chunk| match chunk {
            Ok(chunk) => Ok(HttpPart::Body(chunk.to_vec())),
            Err(error) => Err(RpcError::unavailable(format!("the answer broke off: {error}"))),
        });
        stream::once(future::ready(Ok(head))).chain(chunks)
    };
    stream::once(open).flatten()
}

fn rebuilt(request: HttpRequest) -> Result<Request<Body>, ApiError> {
    let malformed = |what: &str| ApiError::bad_request(format!("the {what} of the request is malformed"));
    let mut out = Request::new(Body::from(request.body));
    *out.method_mut() = request.method.parse().map_err(|_| malformed("method"))?;
    *out.uri_mut() = request.uri.parse().map_err(|_| malformed("path"))?;
    extend(out.headers_mut(), request.headers);
    out.extensions_mut().insert(FromAgent);
    Ok(out)
}

fn extend(headers: &mut HeaderMap, pairs: Vec<(String, String)>) {
    for (name, value) in pairs {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
            headers.append(name, value);
        }
    }
}

/// The RPC side: what an agent adds to its calls so that others can pass requests on to it.
pub fn rpc(state: HttpState) -> RouterBuilder {
    let state = Arc::new(state);
    let exec = crate::exec::rpc(state.clone());
    let builder = caravan_rpc::Router::builder().duplex::<methods::Exec, _, _, _>(exec);
    builder.stream::<methods::Http, _, _, _>(move |_, request| {
        let state = state.clone();
        async move { Ok(answer(state, request)) }
    })
}
