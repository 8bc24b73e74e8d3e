//! A small server of the test's own, for what agents and tasks fetch and ask: HTTP with or without TLS, and the health
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
use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers beside the length.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// After the body, over HTTP/2.
    pub trailers: Option<(&'static str, &'static str)>,
}

impl Answer {
    /// 200 with a body.
    pub fn good(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into(), trailers: None }
    }

    /// A status and nothing else.
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

/// Files of a certificate and its key.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The certificate.
    pub cert: &'a Path,
    /// Its key.
    pub key: &'a Path,
}

/// A server on a port of this machine, on a thread of its own, until dropped.
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

/// What all connections share.
struct Served {
    acceptor: Option<Acceptor>,
    http2: bool,
    answer: Box<Handler>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl WebServer {
    /// Answers over HTTP, or HTTPS with a certificate.
    ///
    /// # Errors
    /// If there is no port, or the certificate cannot be used.
    pub fn start(
        tls: Option<Pair<'_>>,
        answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::serve(tls, false, Box::new(answer))
    }

    /// Answers the health service of gRPC, over TLS with a certificate: everything serves. Who does not ask for HTTP/2
    /// while shaking hands is refused, as many servers do.
    ///
    /// # Errors
    /// As [`WebServer::start`].
    pub fn grpc_health(tls: Option<Pair<'_>>) -> Result<Self> {
        let answer = |asked: &Asked| Answer {
            status: if asked.path == "/grpc.health.v1.Health/Check" { 200 } else { 404 },
            headers: vec![("content-type", "application/grpc".to_owned())],
            // One message, not compressed, of two bytes: field 1 (the status) is 1 (it serves).
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
                    // Its other end was dropped.
                    _ = stopped => {}
                    () = accept(listener, served) => {}
                }
            });
        });
        Ok(Self { port, asked, _stop: stop })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// All that was asked until now.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(listener: TcpListener, served: Arc<Served>) {
    while let Ok((stream, _)) = listener.accept().await {
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            let stream = match &served.acceptor {
                None => Stream::Plain(stream),
                // Who does not trust us, or does not speak TLS, is part of the story.
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
        served.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        ready(Ok::<_, Infallible>(answer))
    });
    // The other side may have gone with what it wanted.
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
