//! Listening: connections in, requests to their routes, an end in order.

use crate::dispatch;
use crate::state::HttpState;
use crate::transport::TOO_MANY;
use axum::body::Body;
use caravan_rpc::{Entry, Gate, Ticket};
use caravan_tls::{Acceptor, Stream};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long requests may take to end once the agent stops.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a connection may take to say what it wants, the pause after its last answer included. Longer than
/// clients keep connections that they do not use.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// Most bytes of a request's line and headers.
const MOST_HEADERS: usize = 128 * 1024;

/// How long after a failed accept the next one is tried: what failed is most often the number of open files.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a peer on a TLS port may be silent before the kernel asks whether it is there (docs/reference/http-api.md, section 1.1).
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// What a client is told that speaks HTTP where TLS is spoken.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Where requests come from.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A TCP port for HTTP over TLS.
    Tls {
        /// The port.
        listener: TcpListener,
        /// What to show, and whom to let in.
        acceptor: Acceptor,
        /// How long the handshake may take; zero for as long as it likes.
        patience: Duration,
    },
    /// A unix socket; whoever made it removes it.
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

/// Answers requests until cancelled. Blocking queries then answer at once, streams end, and what still
/// runs after a few seconds is dropped.
///
/// # Errors
/// If the listener fails for good.
pub async fn serve(
    listener: impl Into<Listener>,
    mut state: HttpState,
    cancel: CancellationToken,
) -> io::Result<()> {
    // Either the agent as a whole stops, or only its listening.
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
    if tokio::time::timeout(PATIENCE, server.tasks.wait()).await.is_err() {
        tracing::warn!("requests were still running when the agent stopped");
    }
    Ok(())
}

/// Whether the listener itself is sound.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, OutOfMemory};
    // EMFILE and ENFILE have no kind of their own.
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
        // An answer is written at once, however small.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small answers may be delayed");
        }
        if let Some((stream, ticket)) = self.enter(stream, from) {
            self.connection(stream, ticket);
        }
    }

    fn tls(&self, stream: TcpStream, from: SocketAddr, acceptor: &Acceptor, patience: Duration) {
        if let Err(error) = stream.set_nodelay(true).and_then(|()| keep_alive(&stream)) {
            tracing::debug!(%error, "a connection is not watched");
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
                Ok(Ok(stream)) => talk(state, stop, stream, ticket).await,
                Ok(Err(error)) => tracing::debug!(%from, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%from, "a TLS handshake took too long"),
            }
        });
    }

    /// Counts a connection in, unless its address has too many.
    fn enter(&self, stream: TcpStream, from: SocketAddr) -> Option<(TcpStream, Option<Ticket>)> {
        match self.gate.enter(from.ip().to_canonical(), Instant::now()) {
            Entry::In(ticket) => Some((stream, ticket)),
            Entry::Out { answered: false } => None,
            Entry::Out { answered: true } => {
                tracing::debug!(%from, "an address has too many connections");
                self.tasks.spawn(say(stream, TOO_MANY));
                None
            }
        }
    }

    fn connection<S>(&self, stream: S, ticket: Option<Ticket>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.tasks.spawn(talk(self.state.clone(), self.stop.clone(), stream, ticket));
    }
}

/// Answers requests of a connection until it ends.
async fn talk<S>(state: Arc<HttpState>, stop: CancellationToken, stream: S, ticket: Option<Ticket>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _ticket = ticket;
    let service = service_fn(move |request| answer(state.clone(), detached(request)));
    let connection = http1::Builder::new()
        // Scripts look for headers as the reference writes them.
        .title_case_headers(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
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

/// Has the kernel ask a silent peer whether it is there.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    Ok(sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE)?)
}

/// A request that shares no memory with the buffer that it was read into. Otherwise that buffer is kept for as long as
/// a blocking query waits, and a second one made to notice that the client goes away: 8 KiB for each of thousands.
fn detached<B>(mut request: Request<B>) -> Request<B> {
    let waits = request.uri().query().is_some_and(|query| query.contains("index="));
    if !waits {
        return request;
    }
    // What was read once can be read again; otherwise it stays as it is.
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

/// Tells a connection why it is closed, if it listens.
async fn say(mut stream: TcpStream, words: &'static [u8]) {
    let told = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        // Bytes that nobody read would make the answer vanish with the connection.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // Nobody waits for it: the connection goes in any case.
    let _ = tokio::time::timeout(PAUSE, told).await;
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
