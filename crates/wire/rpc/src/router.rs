//! The mapping from methods to handlers.

mod handlers;

use self::handlers::{Duplex, DuplexHandler, StreamHandler, Streaming, Unary, UnaryHandler, mismatch};
use crate::RpcError;
use crate::channel::ItemStream;
use crate::method::{Context, DuplexMethod, Method, PeerIdentity, StreamMethod};
use bytes::Bytes;
use futures::stream::Stream;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The methods of one agent. Created by [`Router::builder`], shared by all connections.
#[derive(Default)]
pub struct Router {
    unary: HashMap<&'static str, Box<dyn UnaryHandler>>,
    streams: HashMap<&'static str, Box<dyn StreamHandler>>,
    duplex: HashMap<&'static str, Box<dyn DuplexHandler>>,
}

/// The kind of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unary,
    Stream,
    Duplex,
}

impl Kind {
    /// Returns the name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Stream => "stream",
            Self::Duplex => "duplex",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Unary, Self::Stream, Self::Duplex].into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.names().collect();
        names.sort_unstable();
        f.debug_tuple("Router").field(&names).finish()
    }
}

/// A router without all its handlers.
#[derive(Debug, Default)]
pub struct RouterBuilder(Router);

impl Router {
    /// Returns a builder without methods.
    pub fn builder() -> RouterBuilder {
        RouterBuilder::default()
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.unary.keys().chain(self.streams.keys()).chain(self.duplex.keys()).copied()
    }

    fn find_unary(&self, name: &str) -> Result<&dyn UnaryHandler, RpcError> {
        self.unary.get(name).map(|handler| &**handler).ok_or_else(|| RpcError::unknown_method(name))
    }

    fn find_stream(&self, name: &str) -> Result<&dyn StreamHandler, RpcError> {
        self.streams.get(name).map(|handler| &**handler).ok_or_else(|| RpcError::unknown_method(name))
    }

    fn find_duplex(&self, name: &str) -> Result<&dyn DuplexHandler, RpcError> {
        self.duplex.get(name).map(|handler| &**handler).ok_or_else(|| RpcError::unknown_method(name))
    }

    pub(crate) fn kind(&self, name: &str) -> Kind {
        if self.streams.contains_key(name) {
            Kind::Stream
        } else if self.duplex.contains_key(name) {
            Kind::Duplex
        } else {
            Kind::Unary
        }
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

    pub(crate) async fn duplex_local<M: DuplexMethod>(
        &self,
        peer: PeerIdentity,
        request: M::Request,
        input: ItemStream<M::Input>,
    ) -> Result<ItemStream<M::Output>, RpcError> {
        let answer = self.find_duplex(M::NAME)?.local(peer, Box::new(request), Box::new(input)).await?;
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
    ) -> Result<ItemStream<Bytes>, RpcError> {
        self.find_stream(name)?.bytes(peer, parent.child_token(), request).await
    }

    pub(crate) async fn duplex_bytes(
        &self,
        name: &str,
        peer: PeerIdentity,
        parent: &CancellationToken,
        request: Bytes,
        input: ItemStream<Bytes>,
    ) -> Result<ItemStream<Bytes>, RpcError> {
        self.find_duplex(name)?.bytes(peer, parent.child_token(), request, input).await
    }
}

impl RouterBuilder {
    /// Serves `M` with `handler`.
    ///
    /// # Panics
    /// If `M` is already served, because two handlers for one name are a defect.
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
    /// If `M` is already served.
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

    /// Serves `M` with `handler`, which receives the caller's messages as a stream and opens one for the responses.
    /// Dropping the stream of responses ends the call.
    ///
    /// # Panics
    /// If `M` is already served.
    #[must_use]
    pub fn duplex<M, F, Fut, S>(mut self, handler: F) -> Self
    where
        M: DuplexMethod,
        F: Fn(Context, M::Request, ItemStream<M::Input>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S, RpcError>> + Send + 'static,
        S: Stream<Item = Result<M::Output, RpcError>> + Send + 'static,
    {
        self.refuse_twice(M::NAME);
        let handler = Duplex::<M, F> { handler: Arc::new(handler), method: PhantomData };
        self.0.duplex.insert(M::NAME, Box::new(handler));
        self
    }

    /// Adds all methods of `other`.
    ///
    /// # Panics
    /// If both serve the same method.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        for name in other.0.names() {
            self.refuse_twice(name);
        }
        self.0.unary.extend(other.0.unary);
        self.0.streams.extend(other.0.streams);
        self.0.duplex.extend(other.0.duplex);
        self
    }

    /// Returns the finished router.
    #[must_use]
    pub fn build(self) -> Arc<Router> {
        Arc::new(self.0)
    }

    fn refuse_twice(&self, name: &str) {
        let taken = self.0.names().any(|taken| taken == name);
        assert!(!taken, "the method {name:?} has two handlers");
    }
}
