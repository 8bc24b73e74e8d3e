//! The calling side of RPC.

mod list;
mod remote;
mod targets;

pub use self::list::ServerList;
use self::remote::Remote;
pub use self::remote::{Calling, ConnectOptions, RetryPolicy};
pub use self::targets::Targets;
use crate::codec::{decode_response, encode};
use crate::h2::Connection;
use crate::{Code, DuplexMethod, Method, PeerIdentity, Router, RpcError, StreamMethod};
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A channel that calls the methods of another agent, or of this one. Cheap to clone.
///
/// Dropping the future or the stream of a call ends the call and drops its handler. The channel never resends a
/// request, because the first attempt may have been executed. Only connecting is retried.
#[derive(Clone)]
pub struct Channel(Arc<Inner>);

enum Inner {
    Local {
        router: Arc<Router>,
        peer: PeerIdentity,
    },
    /// A connection that another component opened; when it ends, the channel is closed permanently.
    Connection {
        connection: Connection,
        peer: PeerIdentity,
    },
    Remote(Box<Remote>),
    /// A node that is connected to another server, which relays the calls.
    Via {
        server: Channel,
        node: String,
    },
}

/// A connection for the calls of a channel.
struct Lane<'a> {
    connection: Connection,
    /// The node to which the other side relays the calls.
    node: Option<&'a str>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Inner::Local { peer, .. } => write!(f, "Channel(local, as {peer})"),
            Inner::Connection { peer, .. } => write!(f, "Channel(connection of {peer})"),
            Inner::Remote(remote) => write!(f, "Channel({})", remote.targets()),
            Inner::Via { server, node } => write!(f, "Channel(node {node} through {server:?})"),
        }
    }
}

impl Channel {
    /// Creates a channel that calls `router` in this process, as `peer`. Values are passed without encoding.
    pub fn local(router: Arc<Router>, peer: PeerIdentity) -> Self {
        Self(Arc::new(Inner::Local { router, peer }))
    }

    /// Creates a channel to any reachable server in `options`. Connects at the first call, and again after the
    /// connection was lost.
    pub fn connect(options: ConnectOptions) -> Self {
        Self(Arc::new(Inner::Remote(Box::new(Remote::new(options)))))
    }

    /// Creates a channel to a node that is connected to another server. Only a server that has proved its
    /// membership in the cluster may call nodes through another server.
    pub fn via(server: Self, node: impl Into<String>) -> Self {
        Self(Arc::new(Inner::Via { server, node: node.into() }))
    }

    pub(crate) fn over(connection: Connection, peer: PeerIdentity) -> Self {
        Self(Arc::new(Inner::Connection { connection, peer }))
    }

    /// Returns whether all further calls must fail. A channel created by [`Self::connect`] never closes.
    pub fn is_closed(&self) -> bool {
        matches!(&*self.0, Inner::Connection { connection, .. } if connection.is_closed())
    }

    /// Lets later calls use another server than the last call, if the list has another. For callers that
    /// need a response before the keep-alive detects that a server no longer responds. Calls in progress
    /// keep their connection.
    pub fn leave_server(&self) {
        if let Inner::Remote(remote) = &*self.0 {
            remote.leave();
        }
    }

    /// Waits until the channel has a connection for a call. An error means that a call would not be sent.
    ///
    /// # Errors
    /// The reason that the other side is not reached.
    pub async fn ready(&self) -> Result<(), RpcError> {
        match &*self.0 {
            Inner::Local { .. } => Ok(()),
            _ => self.lane().await.map(drop),
        }
    }

    /// Calls `M` and waits for the response, for at most `deadline`.
    ///
    /// # Errors
    /// The handler's error; [`Code::Unavailable`] if the other side cannot be reached or disconnects;
    /// [`Code::Deadline`].
    pub async fn call<M: Method>(
        &self,
        request: M::Request,
        deadline: Option<Duration>,
    ) -> Result<M::Response, RpcError> {
        let call = async {
            if let Inner::Local { router, peer } = &*self.0 {
                return router.call_local::<M>(peer.clone(), request).await;
            }
            let request = encode(M::NAME, &request)?;
            let answer = self.call_bytes(M::NAME, request).await?;
            decode_response(M::NAME, &answer)
        };
        within(deadline, M::NAME, call).await
    }

    /// Calls `M`, which responds with a stream. The call is sent when the stream is first polled; if sending fails,
    /// the error is the stream's first item. The stream ends after an error.
    pub fn stream<M: StreamMethod>(&self, request: M::Request) -> ItemStream<M::Item> {
        let channel = self.clone();
        let open = async move {
            if let Inner::Local { router, peer } = &*channel.0 {
                return Ok(router.stream_local::<M>(peer.clone(), request).await?.boxed());
            }
            let request = encode(M::NAME, &request)?;
            let items = channel.stream_bytes(M::NAME, request).await?;
            Ok(items.and_then(|item| std::future::ready(decode_response(M::NAME, &item))).boxed())
        };
        ItemStream::new(stream::once(open).try_flatten())
    }

    /// Calls `M` and sends the items of `input` to it. The rules of [`Self::stream`] apply; the handler's
    /// `input` ends when this `input` ends.
    pub fn duplex<M: DuplexMethod>(
        &self,
        request: M::Request,
        input: impl Stream<Item = M::Input> + Send + 'static,
    ) -> ItemStream<M::Output> {
        let channel = self.clone();
        let open = async move {
            if let Inner::Local { router, peer } = &*channel.0 {
                let input = ItemStream::new(input.map(Ok));
                return Ok(router.duplex_local::<M>(peer.clone(), request, input).await?.boxed());
            }
            let first = encode(M::NAME, &request)?;
            // An item that cannot be encoded ends the input, because an input stream cannot carry errors.
            let input = input
                .map(|item| encode(M::NAME, &item))
                .inspect_err(|error| tracing::error!(method = M::NAME, %error, "an input cannot be encoded"))
                .take_while(|item| std::future::ready(item.is_ok()))
                .filter_map(|item| std::future::ready(item.ok()));
            let input = stream::once(std::future::ready(first)).chain(input);
            let items = channel.duplex_bytes(M::NAME, input).await?;
            Ok(items.and_then(|item| std::future::ready(decode_response(M::NAME, &item))).boxed())
        };
        ItemStream::new(stream::once(open).try_flatten())
    }

    /// Calls a method by its name, with an encoded request.
    pub(crate) async fn call_bytes(&self, name: &str, request: Bytes) -> Result<Bytes, RpcError> {
        if let Inner::Local { router, peer } = &*self.0 {
            return router.call_bytes(name, peer.clone(), &CancellationToken::new(), request).await;
        }
        let lane = self.lane().await?;
        lane.connection.call(name, lane.node, request).await
    }

    /// Calls a method with a stream of responses by its name, with an encoded request.
    pub(crate) async fn stream_bytes(
        &self,
        name: &str,
        request: Bytes,
    ) -> Result<ItemStream<Bytes>, RpcError> {
        if let Inner::Local { router, peer } = &*self.0 {
            return router.stream_bytes(name, peer.clone(), &CancellationToken::new(), request).await;
        }
        let lane = self.lane().await?;
        Ok(ItemStream(Some(lane.connection.stream(name, lane.node, request).await?)))
    }

    /// Calls a method with streams in both directions by its name. The first message of `input` is the request.
    pub(crate) async fn duplex_bytes(
        &self,
        name: &str,
        input: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<ItemStream<Bytes>, RpcError> {
        if let Inner::Local { router, peer } = &*self.0 {
            let mut input = Box::pin(input);
            let missing = || RpcError::new(Code::Invalid, format!("{name} was called without a request"));
            let first = input.next().await.ok_or_else(missing)?;
            let input = ItemStream::new(input.map(Ok));
            return router.duplex_bytes(name, peer.clone(), &CancellationToken::new(), first, input).await;
        }
        let lane = self.lane().await?;
        Ok(ItemStream(Some(lane.connection.duplex(name, lane.node, input).await?)))
    }

    /// Returns a connection that can take a request.
    async fn lane(&self) -> Result<Lane<'_>, RpcError> {
        match &*self.0 {
            Inner::Via { server, node } => {
                let connection = server.connection().await?;
                Ok(Lane { connection, node: Some(node) })
            }
            _ => Ok(Lane { connection: self.connection().await?, node: None }),
        }
    }

    async fn connection(&self) -> Result<Connection, RpcError> {
        match &*self.0 {
            Inner::Remote(remote) => remote.connection().await,
            Inner::Connection { connection, peer } => match connection.ready().await {
                Ok(()) => Ok(connection.clone()),
                Err(_) => Err(RpcError::unavailable(format!("the connection of {peer} has ended"))),
            },
            Inner::Local { .. } | Inner::Via { .. } => {
                Err(RpcError::internal("the channel has no connection of its own"))
            }
        }
    }
}

async fn within<T>(
    deadline: Option<Duration>,
    name: &str,
    call: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    let Some(deadline) = deadline else { return call.await };
    tokio::time::timeout(deadline, call).await.unwrap_or_else(|_| {
        Err(RpcError::new(Code::Deadline, format!("{name} did not answer within {deadline:?}")))
    })
}

/// The responses of a [`StreamMethod`] or a [`DuplexMethod`], or the inputs of the latter. The stream ends
/// after an error; dropping the responses ends the call.
pub struct ItemStream<T>(Option<BoxStream<'static, Result<T, RpcError>>>);

impl<T> fmt::Debug for ItemStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "ItemStream(open)" } else { "ItemStream(ended)" })
    }
}

impl<T> ItemStream<T> {
    pub(crate) fn new(items: impl Stream<Item = Result<T, RpcError>> + Send + 'static) -> Self {
        Self(Some(Box::pin(items)))
    }
}

impl<T> Stream for ItemStream<T> {
    type Item = Result<T, RpcError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(items) = &mut self.0 else { return Poll::Ready(None) };
        let item = items.poll_next_unpin(cx);
        if matches!(item, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        item
    }
}
