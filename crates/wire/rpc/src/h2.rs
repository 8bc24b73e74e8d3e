//! HTTP/2 over one connection, as the calling or the serving side, independent of the side that connected.

mod cork;
mod driver;

use self::cork::{Corked, Gate};
use self::driver::{Calls, Parts};
use crate::codec::BytesCodec;
use crate::error::innermost;
use crate::io::BoxIo;
use crate::method::Method as _;
use crate::methods::LogCall;
use crate::router::Kind;
use crate::stranger::{self, Answered, Counted, Guest, Stranger};
use crate::{Channel, Code, ItemStream, MAX_MESSAGE_BYTES, PeerIdentity, ReverseRegistry, Router, RpcError};
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tower_service::Service;

/// The time for calls in progress when this side stops.
const GRACE: Duration = Duration::from_secs(1);
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Maximum number of calls in progress per connection, blocking queries included.
const MAX_CALLS: u32 = 4096;
/// Flow control windows of a connection whose peer has not proved its identity. A later proof does not enlarge them.
const STRANGER_STREAM_WINDOW: u32 = 64 * 1024;
const STRANGER_CONNECTION_WINDOW: u32 = 256 * 1024;
/// Maximum number of calls that reach a server together with their cancellation, before the connection is closed.
const MAX_GIVEN_UP: usize = MAX_CALLS as usize;
const PREFIX: &str = "/caravan/";
/// The header with the id of the node to which a call is relayed.
const NODE: &str = "caravan-node";
/// The header with the kind of a relayed method, which the relaying server does not serve.
const KIND: &str = "caravan-kind";

/// The times within which a peer that no longer responds is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The interval at which a silent peer is pinged.
    pub interval: Duration,
    /// The time to wait for the response before the connection is closed.
    pub timeout: Duration,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(4), timeout: Duration::from_secs(4) }
    }
}

/// The calling side. Clones share the connection, which is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    send: SendRequest<Body>,
    closed: CancellationToken,
    driver: AbortHandle,
}

/// A request that was not passed to the connection, so the caller may send it over another one.
#[derive(Debug)]
pub(crate) struct NotSent;

impl Connection {
    pub(crate) async fn handshake(io: BoxIo, keep_alive: KeepAlive) -> Result<Self, RpcError> {
        let parts = Parts::default();
        let gate = Gate::default();
        let mut driver = parts.driver(gate.clone());
        let (send, dispatch) = hyper::client::conn::http2::Builder::new(parts)
            .timer(TokioTimer::new())
            .keep_alive_interval(keep_alive.interval)
            .keep_alive_timeout(keep_alive.timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(Corked::new(io, gate)))
            .await
            .map_err(|error| RpcError::unavailable(format!("HTTP/2 failed: {}", innermost(&error))))?;
        let closed = CancellationToken::new();
        let guard = closed.clone().drop_guard();
        let driver = tokio::spawn(async move {
            let _guard = guard;
            driver.add(Box::pin(async {
                if let Err(error) = dispatch.await {
                    tracing::debug!(%error, "an RPC connection ended");
                }
            }));
            // The handshake starts the part that reads and writes, before any call.
            let mut started = driver.started().into_iter();
            let connection = started.next();
            started.for_each(|part| driver.add(part));
            if let Some(mut connection) = connection {
                driver.drive(connection.as_mut()).await;
            }
            driver.finish().await;
        });
        Ok(Self { send, closed, driver: driver.abort_handle() })
    }

    /// Closes the connection for all holders; calls in progress fail.
    pub(crate) fn cut(&self) {
        self.driver.abort();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled() || self.send.is_closed()
    }

    /// Waits until the connection has ended.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.closed.clone().cancelled_owned()
    }

    pub(crate) async fn ready(&self) -> Result<(), NotSent> {
        self.send.clone().ready().await.map_err(|_| NotSent)
    }

    /// Calls a method with one response; with `node`, the other side relays the call to that node.
    pub(crate) async fn call(
        &self,
        name: &str,
        node: Option<&str>,
        request: Bytes,
    ) -> Result<Bytes, RpcError> {
        let request = addressed(tonic::Request::new(request), node, Kind::Unary)?;
        let answer = self.grpc().unary(request, path(name)?, BytesCodec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| RpcError::from_status(&status))
    }

    pub(crate) async fn stream(
        &self,
        name: &str,
        node: Option<&str>,
        request: Bytes,
    ) -> Result<BoxStream<'static, Result<Bytes, RpcError>>, RpcError> {
        let request = addressed(tonic::Request::new(request), node, Kind::Stream)?;
        let answer = self.grpc().server_streaming(request, path(name)?, BytesCodec).await;
        let items = answer.map_err(|status| RpcError::from_status(&status))?.into_inner();
        Ok(items.map_err(|status| RpcError::from_status(&status)).boxed())
    }

    /// Sends `input` as messages and returns the received messages. An error in `input` ends it.
    pub(crate) async fn duplex(
        &self,
        name: &str,
        node: Option<&str>,
        input: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<BoxStream<'static, Result<Bytes, RpcError>>, RpcError> {
        let request = addressed(tonic::Request::new(input), node, Kind::Duplex)?;
        let answer = self.grpc().streaming(request, path(name)?, BytesCodec).await;
        let items = answer.map_err(|status| RpcError::from_status(&status))?.into_inner();
        Ok(items.map_err(|status| RpcError::from_status(&status)).boxed())
    }

    fn grpc(&self) -> tonic::client::Grpc<Sender> {
        tonic::client::Grpc::with_origin(Sender(self.send.clone()), http::Uri::from_static("http://caravan"))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// Adds the headers by which the other side relays a call to a node.
fn addressed<T>(
    mut request: tonic::Request<T>,
    node: Option<&str>,
    kind: Kind,
) -> Result<tonic::Request<T>, RpcError> {
    let Some(node) = node else { return Ok(request) };
    let id = MetadataValue::try_from(node)
        .map_err(|_| RpcError::new(Code::Invalid, format!("{node:?} cannot be the id of a node")))?;
    request.metadata_mut().insert(NODE, id);
    request.metadata_mut().insert(KIND, MetadataValue::from_static(kind.as_str()));
    Ok(request)
}

fn path(name: &str) -> Result<PathAndQuery, RpcError> {
    PathAndQuery::try_from(format!("{PREFIX}{name}"))
        .map_err(|error| RpcError::internal(format!("{name:?} cannot be the name of a method: {error}")))
}

/// Adapts hyper's sender to tonic's interface.
#[derive(Debug)]
struct Sender(SendRequest<Body>);

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// The targets of the calls on a connection.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// The methods of this agent.
    pub(crate) router: Arc<Router>,
    /// The clients that other servers may call through this server; `None` on clients.
    pub(crate) nodes: Option<ReverseRegistry>,
}

/// Serves calls of `peer` until the connection ends or `cancel`. `stranger` is set if the peer has not proved its
/// identity.
pub(crate) async fn serve(
    io: BoxIo,
    served: Served,
    peer: PeerIdentity,
    stranger: Option<Stranger>,
    keep_alive: KeepAlive,
    cancel: CancellationToken,
) -> Result<(), hyper::Error> {
    // Cancelled together with the connection, so that tasks started by handlers are notified.
    let calls = cancel.child_token();
    let _guard = calls.clone().drop_guard();
    let (stream_window, connection_window) = match stranger {
        Some(_) => (STRANGER_STREAM_WINDOW, STRANGER_CONNECTION_WINDOW),
        None => (STREAM_WINDOW, CONNECTION_WINDOW),
    };
    // The default of 20 is a protection from strangers. Many callers of a server may drop their calls at
    // the same time.
    let most_given_up = stranger.is_none().then_some(MAX_GIVEN_UP);
    let executor = Calls::default();
    let gate = Gate::default();
    let mut driver = executor.driver(gate.clone());
    let marks = executor.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        // Calls with messages of the log have a separate connection, and wait for the log without computing.
        marks.mark(stranger.is_none() && request.uri().path().strip_prefix(PREFIX) == Some(LogCall::NAME));
        let (served, peer, calls) = (served.clone(), peer.clone(), calls.clone());
        let guest = stranger.as_ref().map_or(Ok(None), Stranger::call);
        async move { Ok::<_, Infallible>(admitted(served, peer, guest, calls, request).await) }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(executor);
    if let Some(most) = most_given_up {
        builder.max_pending_accept_reset_streams(most);
    }
    let connection = builder
        .timer(TokioTimer::new())
        // The caller pings an idle connection. The ping of this side detects a vanished caller, so it waits
        // a little longer.
        .keep_alive_interval(keep_alive.interval * 3 / 2)
        .keep_alive_timeout(keep_alive.timeout)
        .initial_stream_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .max_concurrent_streams(MAX_CALLS)
        .serve_connection(TokioIo::new(Corked::new(io, gate)), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = driver.drive(connection.as_mut()) => return ended,
        () = cancel.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::time::timeout(GRACE, driver.drive(connection)).await.unwrap_or(Ok(()))
}

/// Dispatches a request within the limits of its sender.
async fn admitted(
    served: Served,
    peer: PeerIdentity,
    guest: Result<Option<Guest>, RpcError>,
    calls: CancellationToken,
    request: http::Request<Incoming>,
) -> http::Response<Body> {
    let guest = match guest {
        Ok(guest) => guest.map(Arc::new),
        Err(error) => return error.into_status().into_http(),
    };
    let most = if guest.is_some() { stranger::MAX_MESSAGE_BYTES } else { MAX_MESSAGE_BYTES };
    let request = request.map(|body| Counted { body, guest: guest.clone() });
    let response = match node_of(&request) {
        None => dispatch(served.router, peer, most, calls, request).await,
        Some(node) => match served.way_to(&peer, &node) {
            Ok(channel) => pass_on(channel, request).await,
            Err(error) => error.into_status().into_http(),
        },
    };
    match guest {
        None => response,
        Some(guest) => response.map(|body| Body::new(Answered { body, _guest: guest })),
    }
}

/// Returns the node to which a call is relayed.
fn node_of<T>(request: &http::Request<T>) -> Option<String> {
    Some(request.headers().get(NODE)?.to_str().unwrap_or_default().to_owned())
}

impl Served {
    /// Returns the channel to a node for a call of another server.
    fn way_to(&self, peer: &PeerIdentity, node: &str) -> Result<Channel, RpcError> {
        match &self.nodes {
            Some(nodes) if peer.is_member() => nodes.get(node),
            _ => {
                Err(RpcError::new(Code::Permission, format!("{peer} may not call nodes through this agent")))
            }
        }
    }
}

/// Relays a call to a node, message by message.
async fn pass_on(channel: Channel, request: http::Request<Counted>) -> http::Response<Body> {
    let name = request.uri().path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    let kind = request.headers().get(KIND).and_then(|kind| Kind::parse(kind.to_str().ok()?));
    let (name, channel) = (&name, &channel);
    let mut grpc = tonic::server::Grpc::new(BytesCodec)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    match kind.unwrap_or(Kind::Unary) {
        Kind::Unary => {
            let call = tower::service_fn(|request: tonic::Request<Bytes>| async move {
                let answer = channel.call_bytes(name, request.into_inner()).await;
                answer.map(tonic::Response::new).map_err(RpcError::into_status)
            });
            grpc.unary(call, request).await
        }
        Kind::Stream => {
            let open = tower::service_fn(|request: tonic::Request<Bytes>| async move {
                answer(channel.stream_bytes(name, request.into_inner()).await)
            });
            grpc.server_streaming(open, request).await
        }
        Kind::Duplex => {
            let open = tower::service_fn(|request: tonic::Request<tonic::Streaming<Bytes>>| async move {
                // An error in the input ends the input.
                let input = request.into_inner().take_while(|item| std::future::ready(item.is_ok()));
                let input = input.filter_map(|item| std::future::ready(item.ok()));
                answer(channel.duplex_bytes(name, input).await)
            });
            grpc.streaming(open, request).await
        }
    }
}

async fn dispatch(
    router: Arc<Router>,
    peer: PeerIdentity,
    most: usize,
    calls: CancellationToken,
    request: http::Request<Counted>,
) -> http::Response<Body> {
    let name = request.uri().path().strip_prefix(PREFIX).unwrap_or_default().to_owned();
    let mut grpc = tonic::server::Grpc::new(BytesCodec)
        .max_decoding_message_size(most)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    match router.kind(&name) {
        Kind::Unary => {
            let call = tower::service_fn(|request: tonic::Request<Bytes>| {
                let (router, peer, name, calls) = (&router, peer.clone(), &name, &calls);
                async move {
                    let answer = router.call_bytes(name, peer, calls, request.into_inner()).await;
                    answer.map(tonic::Response::new).map_err(RpcError::into_status)
                }
            });
            grpc.unary(call, request).await
        }
        Kind::Stream => {
            let open = tower::service_fn(|request: tonic::Request<Bytes>| {
                let (router, peer, name, calls) = (&router, peer.clone(), &name, &calls);
                async move { answer(router.stream_bytes(name, peer, calls, request.into_inner()).await) }
            });
            grpc.server_streaming(open, request).await
        }
        Kind::Duplex => {
            let open = tower::service_fn(|request: tonic::Request<tonic::Streaming<Bytes>>| {
                let (router, peer, name, calls) = (&router, peer.clone(), &name, &calls);
                async move {
                    let mut input = request.into_inner();
                    // The caller's first message is the request.
                    let first = input.message().await?.ok_or_else(|| {
                        RpcError::new(Code::Invalid, format!("{name} was called without a request"))
                            .into_status()
                    })?;
                    let input = ItemStream::new(input.map_err(|status| RpcError::from_status(&status)));
                    answer(router.duplex_bytes(name, peer, calls, first, input).await)
                }
            });
            grpc.streaming(open, request).await
        }
    }
}

fn answer(
    items: Result<ItemStream<Bytes>, RpcError>,
) -> Result<tonic::Response<impl Stream<Item = Result<Bytes, tonic::Status>>>, tonic::Status> {
    let items = items.map_err(RpcError::into_status)?;
    Ok(tonic::Response::new(items.map_err(RpcError::into_status)))
}
