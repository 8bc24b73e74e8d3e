//! The listener, which accepts connections, dispatches requests, and shuts down in order.

use crate::dispatch;
use crate::http_body::Body;
use crate::state::HttpState;
use crate::transport::TOO_MANY;
use caravan_rpc::{Entry, Gate, Ticket};
use caravan_tls::{Acceptor, Stream};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The time in which requests may end once the agent stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for the head of a request, including the pause after the previous answer. It is longer than
/// clients keep idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum bytes of a request's line and headers.
const MAX_HEADER_BYTES: usize = 128 * 1024;

/// The idle time after which an HTTP/2 peer receives a ping, and the timeout of the reply.
const PING: Duration = Duration::from_secs(60);

/// Maximum number of concurrent requests of one HTTP/2 connection. A tab of the web page needs fewer than ten.
const MAX_STREAMS: u32 = 256;

/// The pause after a failed accept; the usual cause is the limit of open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The idle time after which the kernel probes a peer on a TLS port (docs/reference/http-api.md, section 1.1).
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The answer to plain HTTP on a TLS port.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// The socket of a listener.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A TCP port for HTTP over TLS.
    Tls {
        /// The TCP port.
        listener: TcpListener,
        /// The certificate to present and the clients to accept.
        acceptor: Acceptor,
        /// The timeout of the handshake; zero means none.
        patience: Duration,
    },
    /// A Unix socket. Its creator removes its file.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// Answers requests until cancelled. Then blocking queries return immediately, streams end, and requests that still
/// run after a few seconds are dropped.
///
/// # Errors
/// Fails if the listener has a permanent failure.
pub async fn serve(
    listener: impl Into<Listener>,
    mut state: HttpState,
    cancel: CancellationToken,
) -> io::Result<()> {
    // Either the whole agent stops, or only this listener.
    let stopping = state.stopping.child_token();
    state.stopping = stopping.clone();
    let gate = Gate::new(state.transport.connections_per_client, Instant::now());
    let server = Server { state: Arc::new(state), stop: cancel.clone(), tasks: TaskTracker::new(), gate };
    let listener = listener.into();
    let accepting = async {
        loop {
            let accepted = match &listener {
                Listener::Tcp(listener) => listener.accept().await.map(|(s, a)| server.tcp(s, a)),
                Listener::Tls { listener, acceptor, patience } => {
                    listener.accept().await.map(|(s, a)| server.tls(s, a, acceptor, *patience))
                }
                Listener::Unix(listener) => listener.accept().await.map(|(s, _)| server.connection(s, None)),
            };
            match accepted {
                Ok(()) => {}
                Err(error) if is_passing(&error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    };
    tokio::select! {
        failed = accepting => return failed,
        () = cancel.cancelled() => {}
    }
    stopping.cancel();
    server.tasks.close();
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, server.tasks.wait()).await.is_err() {
        tracing::warn!("requests were still running when the listener stopped");
    }
    Ok(())
}

/// Returns whether the error leaves the listener usable.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, OutOfMemory};
    // EMFILE and ENFILE have no `ErrorKind`.
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | OutOfMemory
    ) || matches!(error.raw_os_error(), Some(23 | 24))
}

struct Server {
    state: Arc<HttpState>,
    stop: CancellationToken,
    tasks: TaskTracker,
    gate: Arc<Gate>,
}

impl Server {
    fn tcp(&self, stream: TcpStream, from: SocketAddr) {
        // Small answers are sent immediately too.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set; small responses may be delayed");
        }
        if let Some((stream, ticket)) = self.enter(stream, from) {
            self.connection(stream, ticket);
        }
    }

    fn tls(&self, stream: TcpStream, from: SocketAddr, acceptor: &Acceptor, patience: Duration) {
        if let Err(error) = stream.set_nodelay(true).and_then(|()| keep_alive(&stream)) {
            tracing::debug!(%error, "TCP_NODELAY or keepalive could not be set");
        }
        let Some((stream, ticket)) = self.enter(stream, from) else { return };
        let (acceptor, state, stop) = (acceptor.clone(), self.state.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let shaking = async {
                match patience {
                    Duration::ZERO => Ok(acceptor.accept(stream).await),
                    patience => tokio::time::timeout(patience, acceptor.accept(stream)).await,
                }
            };
            let shaken = tokio::select! {
                shaken = shaking => shaken,
                () = stop.cancelled() => return,
            };
            match shaken {
                Ok(Ok(Stream::Plain(stream))) => say(stream, NOT_TLS).await,
                Ok(Ok(stream)) => {
                    let protocol = if stream.is_http2() { Protocol::Http2 } else { Protocol::Http1 };
                    talk(state, stop, stream, protocol, ticket).await
                }
                Ok(Err(error)) => tracing::debug!(%from, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%from, "a TLS handshake timed out"),
            }
        });
    }

    /// Counts a connection, unless its address has too many.
    fn enter(&self, stream: TcpStream, from: SocketAddr) -> Option<(TcpStream, Option<Ticket>)> {
        match self.gate.enter(from.ip().to_canonical(), Instant::now()) {
            Entry::In(ticket) => Some((stream, ticket)),
            Entry::Out { answered: false } => None,
            Entry::Out { answered: true } => {
                tracing::debug!(%from, "a connection was refused: its address has too many");
                self.tasks.spawn(say(stream, TOO_MANY));
                None
            }
        }
    }

    fn connection<S>(&self, stream: S, ticket: Option<Ticket>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (state, stop) = (self.state.clone(), self.stop.clone());
        self.tasks.spawn(talk(state, stop, stream, Protocol::Http1, ticket));
    }
}

/// The protocol of a connection. Only the TLS handshake can agree on HTTP/2 (ALPN): a connection without TLS is
/// HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Answers the requests of a connection until the connection ends.
async fn talk<S>(
    state: Arc<HttpState>,
    stop: CancellationToken,
    stream: S,
    protocol: Protocol,
    ticket: Option<Ticket>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _ticket = ticket;
    let service = service_fn(move |request| answer(state.clone(), detached(request)));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // Some scripts match header names in Nomad's spelling.
        .title_case_headers(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEADER_BYTES).unwrap_or(u32::MAX));
    let builder = match protocol {
        Protocol::Http1 => builder.http1_only(),
        Protocol::Http2 => builder.http2_only(),
    };
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection ended");
    }
}

/// Enables keepalive probes to an idle peer.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    Ok(sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE)?)
}

/// Returns a request that shares no memory with its read buffer. Otherwise a waiting blocking query would keep that
/// buffer, and a second buffer that detects a disconnect: 8 KiB for each of thousands of queries.
fn detached<B>(mut request: Request<B>) -> Request<B> {
    let waits = request.uri().query().is_some_and(|query| query.contains("index="));
    if !waits {
        return request;
    }
    // A parsed value parses again. A value that does not parse is kept.
    if let Ok(uri) = request.uri().to_string().parse() {
        *request.uri_mut() = uri;
    }
    for value in request.headers_mut().values_mut() {
        if let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) {
            copy.set_sensitive(value.is_sensitive());
            *value = copy;
        }
    }
    request
}

async fn answer(state: Arc<HttpState>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    Ok(dispatch::handle(state, request.map(Body::new)).await)
}

/// Sends the reason why a connection is closed, if the peer reads.
async fn say(mut stream: TcpStream, words: &'static [u8]) {
    let reported = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        // Unread bytes would make the kernel reset the connection and discard the answer.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // The result does not matter: the connection is closed in any case.
    let _ = tokio::time::timeout(PAUSE, reported).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_waits_is_the_same_request() {
        let request =
            Request::get("/v1/job/a%2Fb?index=7&wait=5s").header("X-Nomad-Token", "t").header("x-own", "é");
        let request = detached(request.body(()).unwrap());
        assert_eq!(request.uri(), "/v1/job/a%2Fb?index=7&wait=5s");
        assert_eq!(request.headers()["x-nomad-token"], "t");
        assert_eq!(request.headers()["x-own"].as_bytes(), "é".as_bytes());
    }
}
