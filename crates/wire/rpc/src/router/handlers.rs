//! Type-erased handlers, called with values of this process or with bytes.

use crate::RpcError;
use crate::channel::ItemStream;
use crate::codec::{decode_request, encode};
use crate::method::{Context, DuplexMethod, Method, PeerIdentity, StreamMethod};
use bytes::Bytes;
use caravan_types::packed::Packed;
use futures::future::BoxFuture;
use futures::stream::{Stream, StreamExt};
use futures::{FutureExt, TryStreamExt};
use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(super) type AnyBox = Box<dyn Any + Send>;
pub(super) type Outcome<T> = BoxFuture<'static, Result<T, RpcError>>;

pub(super) fn mismatch(name: &str) -> RpcError {
    RpcError::internal(format!("{name} is served with other types than it is called with"))
}

fn panicked(name: &str) -> RpcError {
    tracing::error!(method = name, "an RPC handler panicked");
    RpcError::internal(format!("the handler of {name} panicked"))
}

/// A type-erased handler: called with values of this process, or with bytes.
pub(super) trait UnaryHandler: Send + Sync {
    fn local(&self, peer: PeerIdentity, request: AnyBox) -> Outcome<AnyBox>;
    fn bytes(&self, peer: PeerIdentity, cancel: CancellationToken, request: Bytes) -> Outcome<Bytes>;
}

pub(super) trait StreamHandler: Send + Sync {
    /// Returns a box that contains an `ItemStream` of the method's item type.
    fn local(&self, peer: PeerIdentity, request: AnyBox) -> Outcome<AnyBox>;
    fn bytes(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: Bytes,
    ) -> Outcome<ItemStream<Bytes>>;
}

pub(super) trait DuplexHandler: Send + Sync {
    /// Calls the handler with `input`, a box that contains an `ItemStream` of the method's input type.
    /// Returns an `ItemStream` of its output type.
    fn local(&self, peer: PeerIdentity, request: AnyBox, input: AnyBox) -> Outcome<AnyBox>;
    fn bytes(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: Bytes,
        input: ItemStream<Bytes>,
    ) -> Outcome<ItemStream<Bytes>>;
}

pub(super) struct Unary<M, F> {
    pub(super) handler: Arc<F>,
    pub(super) method: PhantomData<fn() -> M>,
}

impl<M, F, Fut> Unary<M, F>
where
    M: Method,
    F: Fn(Context, M::Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<M::Response, RpcError>> + Send + 'static,
{
    /// Runs the handler. Dropping the future drops the handler's and cancels its token.
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

pub(super) struct Streaming<M, F> {
    pub(super) handler: Arc<F>,
    pub(super) method: PhantomData<fn() -> M>,
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
        let cx = Context { peer, cancel };
        Box::pin(guard(M::NAME, cx, move |cx| async move { handler(cx, request).await }))
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
    ) -> Outcome<ItemStream<Bytes>> {
        match decode_request::<M::Request>(M::NAME, &request) {
            Ok(request) => {
                let open = self.open(peer, cancel, request);
                Box::pin(open.map(|outcome| Ok(encode_items(M::NAME, outcome?))))
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// The handler of a method with streams in both directions.
pub(super) struct Duplex<M, F> {
    pub(super) handler: Arc<F>,
    pub(super) method: PhantomData<fn() -> M>,
}

impl<M, F, Fut, S> Duplex<M, F>
where
    M: DuplexMethod,
    F: Fn(Context, M::Request, ItemStream<M::Input>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, RpcError>> + Send + 'static,
    S: Stream<Item = Result<M::Output, RpcError>> + Send + 'static,
{
    fn open(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: M::Request,
        input: ItemStream<M::Input>,
    ) -> Outcome<ItemStream<M::Output>> {
        let handler = Arc::clone(&self.handler);
        let cx = Context { peer, cancel };
        Box::pin(guard(M::NAME, cx, move |cx| async move { handler(cx, request, input).await }))
    }
}

impl<M, F, Fut, S> DuplexHandler for Duplex<M, F>
where
    M: DuplexMethod,
    F: Fn(Context, M::Request, ItemStream<M::Input>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S, RpcError>> + Send + 'static,
    S: Stream<Item = Result<M::Output, RpcError>> + Send + 'static,
{
    fn local(&self, peer: PeerIdentity, request: AnyBox, input: AnyBox) -> Outcome<AnyBox> {
        let (Ok(request), Ok(input)) =
            (request.downcast::<M::Request>(), input.downcast::<ItemStream<M::Input>>())
        else {
            return Box::pin(std::future::ready(Err(mismatch(M::NAME))));
        };
        let open = self.open(peer, CancellationToken::new(), *request, *input);
        Box::pin(open.map(|outcome| outcome.map(|items| Box::new(items) as AnyBox)))
    }

    fn bytes(
        &self,
        peer: PeerIdentity,
        cancel: CancellationToken,
        request: Bytes,
        input: ItemStream<Bytes>,
    ) -> Outcome<ItemStream<Bytes>> {
        match decode_request::<M::Request>(M::NAME, &request) {
            Ok(request) => {
                let input = input.and_then(|item| std::future::ready(decode_request(M::NAME, &item)));
                let open = self.open(peer, cancel, request, ItemStream::new(input));
                Box::pin(open.map(|outcome| Ok(encode_items(M::NAME, outcome?))))
            }
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

fn encode_items<T: Packed + Send + 'static>(name: &'static str, items: ItemStream<T>) -> ItemStream<Bytes> {
    ItemStream::new(items.and_then(move |item| std::future::ready(encode(name, &item))))
}

/// Opens a handler's stream; converts its panics to errors and cancels its token at the end.
async fn guard<T, S, Fut>(
    name: &'static str,
    cx: Context,
    open: impl FnOnce(Context) -> Fut,
) -> Result<ItemStream<T>, RpcError>
where
    T: 'static,
    S: Stream<Item = Result<T, RpcError>> + Send + 'static,
    Fut: Future<Output = Result<S, RpcError>>,
{
    let guard = cx.cancel.clone().drop_guard();
    // Call the handler inside the future, so that a panic in the call itself is caught too.
    let open = async move { open(cx).await };
    let items = AssertUnwindSafe(open).catch_unwind().await.unwrap_or_else(|_| Err(panicked(name)))?;
    let items =
        AssertUnwindSafe(items).catch_unwind().map(move |item| item.unwrap_or_else(|_| Err(panicked(name))));
    Ok(ItemStream::new(Guarded { items: Box::pin(items), _guard: guard }))
}

/// A stream whose end, by any cause, cancels the token of its call. It ends after an error.
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
