//! Connections to an engine: one for each request, so that the engine may restart in between. The buffers are small,
//! because each running container has a connection for its output.

use bollard::BollardRequest;
use bollard::errors::Error;
use caravan_tls::Connector;
use futures::FutureExt;
use http::header::HOST;
use http::{HeaderValue, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Bytes of the buffer for answers.
const READ_BUFFER: usize = 16 << 10;
/// The host of requests over a socket of this machine, which engines do not read.
const LOCAL_HOST: &str = "localhost";

/// The address on which an engine listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// A socket of this machine.
    Unix(PathBuf),
    /// A port of a host, without encryption.
    Tcp {
        /// The name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A port of a host, over TLS.
    Tls {
        /// The name or address, which the engine's certificate must have.
        host: String,
        /// The port.
        port: u16,
        /// The certificates.
        connector: Connector,
    },
}

impl Address {
    /// Sends one request over a new connection.
    async fn send(self: Arc<Self>, mut request: BollardRequest) -> Result<Response<Incoming>, Error> {
        let host = match &*self {
            Self::Unix(_) => LOCAL_HOST.to_owned(),
            Self::Tcp { host, port } | Self::Tls { host, port, .. } => format!("{host}:{port}"),
        };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri = path.parse().map_err(|_| invalid("the path of a request"))?;
        *request.uri_mut() = uri;
        let host = HeaderValue::from_str(&host).map_err(|_| invalid("the name of the engine's host"))?;
        request.headers_mut().insert(HOST, host);
        match &*self {
            Self::Unix(path) => exchange(UnixStream::connect(path).await?, request).await,
            Self::Tcp { host, port } => {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                let stream = TcpStream::connect((bare, *port)).await?;
                stream.set_nodelay(true)?;
                exchange(stream, request).await
            }
            Self::Tls { host, port, connector } => {
                exchange(connector.dial(host, *port).await?, request).await
            }
        }
    }
}

fn invalid(what: &str) -> Error {
    Error::IOError { err: io::Error::new(io::ErrorKind::InvalidInput, format!("{what} cannot be sent")) }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: BollardRequest,
) -> Result<Response<Incoming>, Error> {
    let mut builder = http1::Builder::new();
    builder.read_buf_exact_size(Some(READ_BUFFER));
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // Ends with the answer, or when its reader is dropped.
    let mut connection = tokio::spawn(async move {
        let ended = connection.with_upgrades().await;
        if let Err(error) = &ended {
            tracing::trace!(%error, "a connection to the engine failed");
        }
        ended
    });
    let mut sent = pin!(sender.send_request(request));
    let error = tokio::select! {
        biased;
        answer = &mut sent => match answer {
            Ok(response) => return Ok(response),
            Err(error) => error,
        },
        // A request that is queued at the moment when the connection ends may be neither sent nor canceled. Its
        // sender keeps the queue, and would wait forever.
        ended = &mut connection => {
            return match (sent.now_or_never(), ended) {
                (Some(Ok(response)), _) => Ok(response),
                (_, Ok(Err(reason))) => Err(reason.into()),
                (Some(Err(error)), _) => Err(error.into()),
                (None, _) => Err(closed()),
            };
        }
    };
    // An engine that refuses a certificate may close the connection before the request is sent. The request is then only
    // canceled, and the connection has the reason.
    drop(sender);
    let ended = if error.is_canceled() { connection.await } else { Ok(Ok(())) };
    Err(if let Ok(Err(reason)) = ended { reason } else { error }.into())
}

fn closed() -> Error {
    Error::IOError { err: io::Error::new(io::ErrorKind::UnexpectedEof, "the engine closed the connection") }
}

/// Returns the function that sends the requests of a client.
pub(crate) fn transport(
    address: Address,
) -> impl Fn(BollardRequest) -> futures::future::BoxFuture<'static, Result<Response<Incoming>, Error>>
+ Send
+ Sync
+ 'static {
    let address = Arc::new(address);
    move |request| Box::pin(Arc::clone(&address).send(request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::io::ReadBuf;

    /// A stream that accepts all writes, and whose reads fail like those of a refused TLS client.
    struct Refused;

    impl AsyncRead for Refused {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "certificate required")))
        }
    }

    impl AsyncWrite for Refused {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The task of the connection may fail before or after the request is queued.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn the_reason_of_a_refused_connection_is_reported() {
        for _ in 0..2_000 {
            let request = BollardRequest::new(bollard::body_full(bytes::Bytes::new()));
            let error = exchange(Refused, request).await.unwrap_err();
            let words = crate::engine::text(&error);
            assert!(words.contains("certificate required"), "{words}: {error:?}");
        }
    }
}
