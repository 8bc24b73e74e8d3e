//! A small server for requests of agents and tasks: HTTP with or without TLS, and the health
//! service of gRPC.

use anyhow::Result;
use bytes::Bytes;
use caravan_tls::{Acceptor, Protocol, ServerSettings, Stream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A received request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
}

/// A response of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers in addition to the length.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// A trailer after the body, over HTTP/2.
    pub trailers: Option<(&'static str, &'static str)>,
}

impl Answer {
    /// Returns a response with status 200 and a body.
    pub fn good(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into(), trailers: None }
    }

    /// Returns a response with a status and an empty body.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::good("") }
    }

    fn into_response(self) -> Response<BoxBody<Bytes, Infallible>> {
        let trailers = self.trailers.map(|(name, value)| {
            let pair = (HeaderName::from_static(name), HeaderValue::from_static(value));
            Ok(HeaderMap::from_iter([pair]))
        });
        let body = Full::new(Bytes::from(self.body)).with_trailers(ready(trailers)).boxed();
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        response.body(body).expect("tests answer with statuses and headers that there are")
    }
}

/// The files of a certificate and its key.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The path of the certificate.
    pub cert: &'a Path,
    /// The path of the key.
    pub key: &'a Path,
}

/// A server on a port of this machine, in a separate thread, until dropped.
pub struct WebServer {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    _stop: oneshot::Sender<()>,
}

impl fmt::Debug for WebServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebServer").field("port", &self.port).finish_non_exhaustive()
    }
}

type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;

/// The state that all connections share.
struct Served {
    acceptor: Option<Acceptor>,
    http2: bool,
    answer: Box<Handler>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl WebServer {
    /// Starts a server of HTTP, or of HTTPS with a certificate.
    ///
    /// # Errors
    /// Fails if there is no port, or the certificate is not valid.
    pub fn start(
        tls: Option<Pair<'_>>,
        answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::serve(tls, false, Box::new(answer))
    }

    /// Starts the health service of gRPC, over TLS with a certificate: every service is healthy. Clients that do not
    /// offer HTTP/2 in the TLS handshake are refused, as many servers do.
    ///
    /// # Errors
    /// As [`WebServer::start`].
    pub fn grpc_health(tls: Option<Pair<'_>>) -> Result<Self> {
        let answer = |asked: &Asked| Answer {
            status: if asked.path == "/grpc.health.v1.Health/Check" { 200 } else { 404 },
            headers: vec![("content-type", "application/grpc".to_owned())],
            // One uncompressed message of two bytes: field 1 (the status) is 1 (serving).
            body: vec![0, 0, 0, 0, 2, 8, 1],
            trailers: Some(("grpc-status", "0")),
        };
        Self::serve(tls, true, Box::new(answer))
    }

    fn serve(tls: Option<Pair<'_>>, http2: bool, answer: Box<Handler>) -> Result<Self> {
        let acceptor = tls.map(|Pair { cert, key }| {
            Acceptor::new(&ServerSettings {
                cert_file: cert.to_owned(),
                key_file: key.to_owned(),
                client_ca: None,
                protocol: Protocol::default(),
                http2,
            })
        });
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let served =
            Arc::new(Served { acceptor: acceptor.transpose()?, http2, answer, asked: asked.clone() });
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    // The sender of the stop signal was dropped.
                    _ = stopped => {}
                    () = accept(listener, served) => {}
                }
            });
        });
        Ok(Self { port, asked, _stop: stop })
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns all requests received until now.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }
}

async fn accept(listener: TcpListener, served: Arc<Served>) {
    while let Ok((stream, _)) = listener.accept().await {
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            let stream = match &served.acceptor {
                None => Stream::Plain(stream),
                // Clients that do not trust the certificate, or do not use TLS, are part of the tests.
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) if stream.is_tls() && (stream.is_http2() || !served.http2) => stream,
                    _ => return,
                },
            };
            talk(stream, served).await;
        });
    }
}

async fn talk(stream: Stream, served: Arc<Served>) {
    let (io, http2) = (TokioIo::new(stream), served.http2);
    let service = service_fn(move |request: Request<Incoming>| {
        let asked = Asked {
            method: request.method().to_string(),
            path: request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
            headers: request.headers().clone(),
        };
        let answer = (served.answer)(&asked).into_response();
        served.asked.lock().push(asked);
        ready(Ok::<_, Infallible>(answer))
    });
    // The client may have disconnected.
    if http2 {
        drop(
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(io, service)
                .await,
        );
    } else {
        drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).await);
    }
}
