//! HTTP requests to servers of other parties: job files, artifacts, identity providers, checks of services.
//!
//! Each request has a separate connection. The caller sets the accepted certificates, the maximum number of
//! redirects, and the time for which a server may be silent. A redirect from HTTPS to HTTP is never
//! followed, and headers for one host are never sent to another.

mod error;
mod redirect;
mod reply;

pub use error::FetchError;
pub use redirect::resolve;
pub use reply::Reply;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use caravan_tls::{ClientSettings, Connector, Stream};
use http::header::{AUTHORIZATION, HOST, HeaderName, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// The name of the program in requests.
const AGENT: &str = concat!("caravan/", env!("CARGO_PKG_VERSION"));

/// The limits of a request.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The certificates that a server with TLS may have.
    pub tls: ClientSettings,
    /// The maximum number of redirects. With 0, a redirect is the reply.
    pub max_redirects: usize,
    /// The timeout of the connection, of the head of the response, and of each part of the body.
    pub timeout: Duration,
}

/// A message to a server.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The method of the request.
    pub method: Method,
    /// Headers for the host of the first URL only. `Host` and `User-Agent` have defaults.
    pub headers: HeaderMap,
    /// The body, which is sent to the first URL only. A message with a body is not redirected.
    pub body: Bytes,
}

/// Sends a message to a URL, follows redirects, and returns the reply when its head has been received.
///
/// # Errors
/// Fails if a URL is not `http` or `https`, a server cannot be reached or is silent, or redirects are refused.
pub async fn fetch(first: &Uri, message: &Message, policy: &Policy) -> Result<Reply, FetchError> {
    let mut url = first.clone();
    let own_host = first.authority().map(|authority| without_login(authority.as_str()).to_owned());
    for followed in 0.. {
        let authority = url.authority().ok_or(FetchError::NoHost)?.as_str().to_owned();
        let same_host = own_host.as_deref() == Some(without_login(&authority));
        let request = request(&url, &authority, message, same_host)?;
        let reply = open(&url, request, policy).await?;
        let is_final = policy.max_redirects == 0 || !message.body.is_empty();
        if is_final || !reply.status().is_redirection() {
            return Ok(reply);
        }
        if followed == policy.max_redirects {
            break;
        }
        let target = reply.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let target = target.ok_or(FetchError::NoTarget { status: reply.status() })?;
        url = resolve(&url, target)?;
    }
    Err(FetchError::TooManyRedirects { max: policy.max_redirects })
}

/// Sends a request over an open connection, and returns the reply when its head has been received. The caller limits
/// the time.
///
/// # Errors
/// Fails if the connection breaks, or the server does not speak HTTP/1.1.
pub async fn exchange(stream: Stream, request: Request<Full<Bytes>>) -> Result<Reply, FetchError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection's task is aborted when the set is dropped with the reply.
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    let response = sender.send_request(request).await?;
    Ok(Reply::new(response, tasks))
}

/// Connects to the server of a URL and sends the request.
async fn open(url: &Uri, request: Request<Full<Bytes>>, policy: &Policy) -> Result<Reply, FetchError> {
    let host = url.host().ok_or(FetchError::NoHost)?;
    let (encrypted, usual) = match url.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err(FetchError::Scheme { url: url.clone() }),
    };
    let port = url.port_u16().unwrap_or(usual);
    let silent = || FetchError::Silent { address: format!("{host}:{port}") };
    let stream = timeout(policy.timeout, connect(host, port, encrypted.then_some(&policy.tls)));
    let stream = stream.await.map_err(|_| silent())??;
    let reply = timeout(policy.timeout, exchange(stream, request)).await.map_err(|_| silent())??;
    Ok(reply.with_timeout(policy.timeout, format!("{host}:{port}")))
}

/// Opens a connection to the first address of a host that accepts a connection.
async fn connect(host: &str, port: u16, tls: Option<&ClientSettings>) -> Result<Stream, FetchError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let unknown = || FetchError::Lookup { host: bare.to_owned() };
    let connector = tls.map(Connector::new).transpose()?;
    let mut failed = unknown();
    for address in lookup_host((bare, port)).await.map_err(|_| unknown())? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let Some(connector) = connector else { return Ok(Stream::Plain(stream)) };
                let encrypted = connector.connect(host, stream).await;
                return encrypted.map_err(|source| FetchError::Handshake { address, source });
            }
            Err(source) => failed = FetchError::Connect { address, source },
        }
    }
    Err(failed)
}

/// Returns the request for one server of a chain.
fn request(
    url: &Uri,
    authority: &str,
    message: &Message,
    same_host: bool,
) -> Result<Request<Full<Bytes>>, FetchError> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(message.method.clone()).uri(path);
    let has = |name: &HeaderName| same_host && message.headers.contains_key(name);
    if !has(&HOST) {
        request = request.header(HOST, without_login(authority));
    }
    if !has(&USER_AGENT) {
        request = request.header(USER_AGENT, HeaderValue::from_static(AGENT));
    }
    // RFC 7617. The login of a URL belongs to the host of that URL.
    if let Some((login, _)) = authority.rsplit_once('@')
        && !has(&AUTHORIZATION)
    {
        request = request.header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(login)));
    }
    for (name, value) in message.headers.iter().filter(|_| same_host) {
        request = request.header(name, value);
    }
    request.body(Full::new(message.body.clone())).map_err(|source| FetchError::Message { source })
}

/// Returns an authority without the login before `@`.
fn without_login(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

#[cfg(test)]
mod tests;
