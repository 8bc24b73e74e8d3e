//! The client, which sends requests and decodes answers or failures.

use crate::config::{Address, Config, Token};
use crate::error::Error;
use crate::query::{Meta, QueryOptions, Response};
use crate::retry::Retry;
use crate::transport::{self, Pool, Target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use caravan_api::{ErrorReason, JobProblem, REASON_HEADER};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::sync::Arc;

/// A client of one agent. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    pool: Pool,
    target: Arc<Target>,
}

/// The parameter that selects refusals of jobs as JSON.
pub(crate) const ASKS_FOR_PROBLEMS: (&str, &str) = ("caravan_problems", "true");

/// The refusal of a job, for a request with [`ASKS_FOR_PROBLEMS`].
#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    error: String,
    caravan_problems: Vec<JobProblem>,
}

impl Client {
    /// Creates a client with these settings. Sends nothing before the first call.
    pub fn new(config: Config) -> Self {
        let target = Target::new(config.address.clone(), config.tls.clone());
        let pool = transport::pool(Arc::clone(&target));
        Self { inner: Arc::new(Inner { config, pool, target }) }
    }

    /// Returns the client's settings.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Returns the agent's address.
    pub fn address(&self) -> &Address {
        &self.inner.config.address
    }

    /// Returns the target for connections outside the pool, such as websockets.
    pub(crate) fn target(&self) -> &Target {
        &self.inner.target
    }

    /// Returns the namespace of calls that do not name one.
    pub fn namespace(&self) -> &str {
        self.inner.config.namespace.as_deref().unwrap_or("default")
    }

    /// Reads a route. `path` begins with `/v1/` and is escaped.
    ///
    /// An empty body decodes as `null`, so `Option` distinguishes an empty answer.
    ///
    /// # Errors
    /// Returns [`Error::Status`] for a status other than 2xx, otherwise the failure of the connection or of decoding.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &QueryOptions,
    ) -> Result<Response<T>, Error> {
        let mut tried = 0;
        loop {
            let answer = self.call(Method::GET, path, query, &[], Bytes::new()).await;
            let pause = self.inner.config.retry.pause(tried);
            match (answer, pause) {
                (Err(error), Some(pause)) if Retry::is_passing(&error) => tokio::time::sleep(pause).await,
                (answer, _) => return answer,
            }
            tried += 1;
        }
    }

    /// Sends a PUT request with a JSON body.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn put<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &QueryOptions,
        body: &B,
    ) -> Result<Response<T>, Error> {
        let body =
            serde_json::to_vec(body).map_err(|source| Error::Encode { path: path.to_owned(), source })?;
        self.call(Method::PUT, path, query, &[], body.into()).await
    }

    /// Sends a DELETE request.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &QueryOptions,
    ) -> Result<Response<T>, Error> {
        self.call(Method::DELETE, path, query, &[], Bytes::new()).await
    }

    /// Sends a DELETE request whose JSON body names the objects.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn delete_with<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        query: &QueryOptions,
        body: &B,
    ) -> Result<Response<T>, Error> {
        let body =
            serde_json::to_vec(body).map_err(|source| Error::Encode { path: path.to_owned(), source })?;
        self.call(Method::DELETE, path, query, &[], body.into()).await
    }

    /// Sends bytes to a route and returns the bytes of the answer.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        query: &QueryOptions,
        body: Bytes,
    ) -> Result<Bytes, Error> {
        let answer = self.send(method, path, query, &[], body).await?;
        self.collect(path, answer.into_body()).await
    }

    /// Sends a request with the additional `headers`, and returns the status and the body of any answer.
    ///
    /// # Errors
    /// Returns the failure of the connection; an HTTP status is not an error here.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, Token)],
        body: Bytes,
    ) -> Result<(u16, Bytes), Error> {
        let (path, supplied) = path.split_once('?').unwrap_or((path, ""));
        let mut query = QueryOptions::new();
        for pair in supplied.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            query = query.param(name, value);
        }
        let request = self.request(method, path, &query, headers, body)?;
        let answer = self.inner.pool.request(request).await.map_err(|source| self.failed(source))?;
        let code = answer.status().as_u16();
        Ok((code, self.collect(path, answer.into_body()).await?))
    }

    /// Sends a request with additional headers and decodes the answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &QueryOptions,
        headers: &[(&str, Token)],
        body: Bytes,
    ) -> Result<Response<T>, Error> {
        let answer = self.send(method, path, query, headers, body).await?;
        let meta = Meta::read(answer.headers());
        let body = self.collect(path, answer.into_body()).await?;
        let text: &[u8] = if body.iter().all(u8::is_ascii_whitespace) { b"null" } else { &body };
        let value =
            serde_json::from_slice(text).map_err(|source| Error::Decode { path: path.to_owned(), source })?;
        Ok(Response { value, meta })
    }

    /// Sends a request and returns the answer; its body is not read yet.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &QueryOptions,
        headers: &[(&str, Token)],
        body: Bytes,
    ) -> Result<http::Response<Incoming>, Error> {
        let request = self.request(method, path, query, headers, body)?;
        let answer = self.inner.pool.request(request).await.map_err(|source| self.failed(source))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let reason = answer.headers().get(REASON_HEADER).and_then(|name| name.to_str().ok());
        let reason = reason.and_then(ErrorReason::from_name);
        let body = self.collect(path, answer.into_body()).await?;
        let refusal = serde_json::from_slice::<Refusal>(&body).ok();
        let (text, problems) = match refusal {
            Some(refusal) => (refusal.error, refusal.caravan_problems),
            None => (String::from_utf8_lossy(&body).into_owned(), Vec::new()),
        };
        let mut body = text.trim_end().to_owned();
        if body.is_empty() && code == 404 {
            // For an unknown object the agent's body has a sentence; for an unknown path the body is empty.
            body = format!("the agent has no {path}");
        }
        Err(Error::Status { code, body, reason, problems })
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        query: &QueryOptions,
        headers: &[(&str, Token)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let config = &self.inner.config;
        let authority = match &config.address {
            Address::Tcp { host, port } | Address::Tls { host, port } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            Address::Tcp { host, port } | Address::Tls { host, port } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let query = query.encode(config.region.as_deref(), config.namespace.as_deref());
        let separator = if query.is_empty() { "" } else { "?" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{authority}{path}{separator}{query}"))
            .header(HOST, authority)
            .header(USER_AGENT, concat!("caravan/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &config.token {
            request = request.header("X-Nomad-Token", token.expose());
        }
        if let Some(auth) = &config.http_auth {
            request = request.header(AUTHORIZATION, format!("Basic {}", BASE64.encode(auth.expose())));
        }
        for (name, value) in headers {
            request = request.header(*name, value.expose());
        }
        request.body(Full::new(body)).map_err(|source| Error::Request { path: path.to_owned(), source })
    }

    async fn collect(&self, path: &str, body: Incoming) -> Result<Bytes, Error> {
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(source) => Err(self.broken(path, source)),
        }
    }

    pub(crate) fn broken(&self, path: &str, source: hyper::Error) -> Error {
        Error::Broken { address: self.address().clone(), path: path.to_owned(), source }
    }

    fn failed(&self, source: hyper_util::client::legacy::Error) -> Error {
        let address = self.address().clone();
        let io = io_error(&source);
        let absent = io
            .is_some_and(|e| matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound));
        if source.is_connect() && absent {
            return Error::NoAgent { address, source };
        }
        let reason = io.map_or_else(|| deepest(&source), transport::describe);
        Error::Unreachable { address, reason, source }
    }
}

/// Returns the operating system's error inside a chain of causes.
fn io_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    std::iter::successors(Some(error), |e| e.source()).find_map(|e| e.downcast_ref())
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |e| e.source()).last().map_or_else(String::new, ToString::to_string)
}
