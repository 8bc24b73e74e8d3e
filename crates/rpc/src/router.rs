//! Which handler serves which method.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use futures::{FutureExt, TryStreamExt};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::RpcError;
use crate::channel::ItemStream;
use crate::codec::{decode_request, encode};
use crate::method::{Context, Method, PeerIdentity, StreamMethod};

type AnyBox = Box<dyn Any + Send>;
type Outcome<T> = BoxFuture<'static, Result<T, RpcError>>;

/// The methods of one agent. Made by [`Router::builder`], shared by all connections.
#[derive(Default)]
pub struct Router {
    unary: HashMap<&'static str, Box<dyn UnaryHandler>>,
    streams: HashMap<&'static str, Box<dyn StreamHandler>>,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.unary.keys().chain(self.streams.keys()).collect();
        names.sort();
        f.debug_tuple("Router").field(&names).finish()
    }
}

/// Collects handlers.
#[derive(Debug, Default)]
pub struct RouterBuilder(Router);

impl Router {
    /// An empty router to add to.
    pub fn builder() -> RouterBuilder {
        RouterBuilder::default()
    }

    fn find_unary(&self, name: &str) -> Result<&dyn UnaryHandler, RpcError> {
        self.unary.get(name).map(|handler| &**handler).ok_or_else(|| RpcError::unknown_method(name))
    }

    fn find_stream(&self, name: &str) -> Result<&dyn StreamHandler, RpcError> {
        self.streams.get(name).map(|handler| &**handler).ok_or_else(|| RpcError::unknown_method(name))
    }

    pub(crate) fn serves_stream(&self, name: &str) -> bool {
        self.streams.contains_key(name)
    }

    pub(crate) async fn call_local<M: Method>(
        &self,
        peer: PeerIdentity,
        request: M::Request,
    ) -> Result<M::Response, RpcError> {
        let answer = self.find_unary(M::NAME)?.local(peer, Box::new(request)).await?;
        answer.downcast().map(|answer| *answer).map_err(|_| mismatch(M::NAME))
    }

    pub(crate) async fn stream_local<M: StreamMethod>(
        &self,
        peer: PeerIdentity,
        request: M::Request,
    ) -> Result<ItemStream<M::Item>, RpcError> {
        let answer = self.find_stream(M::NAME)?.local(peer, Box::new(request)).await?;
        answer.downcast().map(|answer| *answer).map_err(|_| mismatch(M::NAME))
    }

    pub(crate) async fn call_bytes(
        &self,
        name: &str,
        peer: PeerIdentity,
        parent: &CancellationToken,
        request: Bytes,
    ) -> Result<Bytes, RpcError> {
        self.find_unary(name)?.bytes(peer, parent.child_token(), request).await
    }

    pub(crate) async fn stream_bytes(
        &self,
        name: &str,
        peer: PeerIdentity,
        parent: &CancellationToken,
        request: Bytes,
    ) -> Result<BoxStream<'static, Result<Bytes, RpcError>>, RpcError> {
        self.find_stream(name)?.bytes(peer, parent.child_token(), request).await
    }
}

impl RouterBuilder {
    /// Serves `M` with `handler`.
    ///
    /// # Panics
    /// If the method is served already: two handlers for one name are a defect.
    #[must_use]
    pub fn unary<M, F, Fut>(mut self, handler: F) -> Self
    where
        M: Method,
        F: Fn(Context, M::Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Response, RpcError>> + Send + 'static,
    {
        self.refuse_twice(M::NAME);
        self.0
            .unary
            .insert(M::NAME, Box::new(Unary::<M, F> { handler: Arc::new(handler), method: PhantomData }));
        self
    }

    /// Serves `M` with `handler`, which opens a stream. Dropping the stream ends the call.
    ///
    /// # Panics
    /// If the method is served already.
    #[must_use]
    pub fn stream<M, F, Fut, S>(mut self, handler: F) -> Self
    where
        M: StreamMethod,
        F: Fn(Context, M::Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S, RpcError>> + Send + 'static,
        S: Stream<Item = Result<M::Item, RpcError>> + Send + 'static,
    {
        self.refuse_twice(M::NAME);
        let handler = Streaming::<M, F> { handler: Arc::new(handler), method: PhantomData };
        self.0.streams.insert(M::NAME, Box::new(handler));
        self
    }

    /// Adds all methods of `other`.
    ///
    /// # Panics
    /// If both serve the same method.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for name in other.0.unary.keys().chain(other.0.streams.keys()) {
            self.refuse_twice(name);
        }
        self.0.unary.extend(other.0.unary);
        self.0.streams.extend(other.0.streams);
        self
    }

    /// The finished router.
    #[must_use]
    pub fn build(self) -> Arc<Router> {
        Arc::new(self.0)
    }

    fn refuse_twice(&self, name: &str) {
        let taken = self.0.unary.contains_key(name) || self.0.streams.contains_key(name);
        assert!(!taken, "the method {name:?} has two handlers");
    }
}

fn mismatch(name: &str) -> RpcError {
    RpcError::internal(format!("{name} is served with other types than it is called with"))
}

fn panicked(name: &str) -> RpcError {
    tracing::error!(method = name, "an RPC handler panicked");
    RpcError::internal(format!("the handler of {name} panicked"))
}

/// A handler with its types forgotten: values of this process, or bytes.
trait UnaryHandler: Send + Sync {
    fn local(&self, peer: PeerIdentity, request: AnyBox) -> Outcome<AnyBox>;
    fn bytes(&self, peer: PeerIdentity, cancel: CancellationToken, request: Bytes) -> Outcome<Bytes>;
}

trait StreamHandler: Send + Sync {
    /// The box holds an `ItemStream` of the method's item type.
    fn local(&self, peer: PeerIdentity, request: AnyBox) -> Outcome<AnyBox>;
    fn bytes(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: Bytes,
    ) -> Outcome<BoxStream<'static, Result<Bytes, RpcError>>>;
}

struct Unary<M, F> {
    handler: Arc<F>,
    method: PhantomData<fn() -> M>,
}

impl<M, F, Fut> Unary<M, F>
where
    M: Method,
    F: Fn(Context, M::Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<M::Response, RpcError>> + Send + 'static,
{
    /// Runs the handler. Nothing of it runs after the future is dropped, and its token is
    /// cancelled then.
    fn run(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: M::Request,
    ) -> Outcome<M::Response> {
        let handler = Arc::clone(&self.handler);
        Box::pin(async move {
            let _guard = cancel.clone().drop_guard();
            let run = async move { handler(Context { peer, cancel }, request).await };
            AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|_| Err(panicked(M::NAME)))
        })
    }
}

impl<M, F, Fut> UnaryHandler for Unary<M, F>
where
    M: Method,
    F: Fn(Context, M::Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<M::Response, RpcError>> + Send + 'static,
{
    fn local(&self, peer: PeerIdentity, request: AnyBox) -> Outcome<AnyBox> {
        let Ok(request) = request.downcast::<M::Request>() else {
            return Box::pin(std::future::ready(Err(mismatch(M::NAME))));
        };
        let run = self.run(peer, CancellationToken::new(), *request);
        Box::pin(run.map(|outcome| outcome.map(|answer| Box::new(answer) as AnyBox)))
    }

    fn bytes(&self, peer: PeerIdentity, cancel: CancellationToken, request: Bytes) -> Outcome<Bytes> {
        match decode_request::<M::Request>(M::NAME, &request) {
            Ok(request) => {
                let run = self.run(peer, cancel, request);
                Box::pin(run.map(|outcome| encode(M::NAME, &outcome?)))
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

struct Streaming<M, F> {
    handler: Arc<F>,
    method: PhantomData<fn() -> M>,
}

impl<M, F, Fut, S> Streaming<M, F>
where
    M: StreamMethod,
    F: Fn(Context, M::Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, RpcError>> + Send + 'static,
    S: Stream<Item = Result<M::Item, RpcError>> + Send + 'static,
{
    fn open(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: M::Request,
    ) -> Outcome<ItemStream<M::Item>> {
        let handler = Arc::clone(&self.handler);
        Box::pin(async move {
            let guard = cancel.clone().drop_guard();
            let open = async move { handler(Context { peer, cancel }, request).await };
            let items = AssertUnwindSafe(open).catch_unwind().await;
            let items = items.unwrap_or_else(|_| Err(panicked(M::NAME)))?;
            let items = AssertUnwindSafe(items)
                .catch_unwind()
                .map(|item| item.unwrap_or_else(|_| Err(panicked(M::NAME))));
            Ok(ItemStream::new(Guarded { items: Box::pin(items), _guard: guard }))
        })
    }
}

impl<M, F, Fut, S> StreamHandler for Streaming<M, F>
where
    M: StreamMethod,
    F: Fn(Context, M::Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, RpcError>> + Send + 'static,
    S: Stream<Item = Result<M::Item, RpcError>> + Send + 'static,
{
    fn local(&self, peer: PeerIdentity, request: AnyBox) -> Outcome<AnyBox> {
        let Ok(request) = request.downcast::<M::Request>() else {
            return Box::pin(std::future::ready(Err(mismatch(M::NAME))));
        };
        let open = self.open(peer, CancellationToken::new(), *request);
        Box::pin(open.map(|outcome| outcome.map(|items| Box::new(items) as AnyBox)))
    }

    fn bytes(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: Bytes,
    ) -> Outcome<BoxStream<'static, Result<Bytes, RpcError>>> {
        match decode_request::<M::Request>(M::NAME, &request) {
            Ok(request) => {
                let open = self.open(peer, cancel, request);
                Box::pin(open.map(|outcome| {
                    let items = outcome?.and_then(|item| std::future::ready(encode(M::NAME, &item)));
                    Ok(items.boxed())
                }))
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// A stream whose end, by whatever cause, cancels the token of its call. It ends after an error.
struct Guarded<S> {
    items: Pin<Box<S>>,
    _guard: DropGuard,
}

impl<S: Stream> Stream for Guarded<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<S::Item>> {
        self.items.as_mut().poll_next(cx)
    }
}
