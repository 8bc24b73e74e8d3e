//! The body of requests and responses: whole, or a stream of chunks.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

type AnyError = Box<dyn Error + Send + Sync>;

/// A body whose chunks are read once.
#[derive(Debug)]
pub(crate) struct Body(UnsyncBoxBody<Bytes, AnyError>);

impl Body {
    /// Wraps any body.
    pub(crate) fn new<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<AnyError>,
    {
        Self(body.map_err(Into::into).boxed_unsync())
    }

    /// Returns a body without content.
    pub(crate) fn empty() -> Self {
        Self::new(Empty::new())
    }

    /// Returns a body that sends the chunks of a stream. An error ends the connection.
    pub(crate) fn from_stream<S, C, E>(chunks: S) -> Self
    where
        S: Stream<Item = Result<C, E>> + Send + 'static,
        C: Into<Bytes>,
        E: Into<AnyError>,
    {
        Self::new(StreamBody::new(chunks.map(|chunk| chunk.map(|data| Frame::data(data.into())))))
    }

    /// Returns the chunks.
    pub(crate) fn into_data_stream(self) -> BodyDataStream<Self> {
        BodyDataStream::new(self)
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(content: T) -> Self {
        Self::new(Full::new(content.into()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
