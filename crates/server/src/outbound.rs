//! HTTP and HTTPS requests to servers of other parties.

use caravan_base::percent;
use caravan_tls::{ClientSettings, Connector, Stream};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// Maximum size of a response in bytes.
const LARGEST: usize = 1 << 20;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of redirects.
const HOPS: usize = 5;

/// A request. `Debug` shows no secret.
pub(crate) struct Asking<'a> {
    /// The URL of the request.
    pub(crate) url: &'a str,
    /// Authorities (PEM) that sign the server's certificate; without any, the host's trust store applies.
    pub(crate) authorities: &'a [String],
    /// The credentials of this agent; they are never sent to another server.
    pub(crate) authorization: Option<String>,
    /// The form to post; without one, the request is a GET.
    pub(crate) form: Option<String>,
}

impl<'a> Asking<'a> {
    /// Returns a GET request.
    pub(crate) fn of(url: &'a str, authorities: &'a [String]) -> Self {
        Self { url, authorities, authorization: None, form: None }
    }

    /// Whether only this server may see the content of the request.
    fn is_private(&self) -> bool {
        self.authorization.is_some() || self.form.is_some()
    }
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The response of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub(crate) status: StatusCode,
    body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }
}

/// Sends a request and reads the whole response. Redirects are followed only if the request contains no secret. The
/// error is a reason without the address.
pub(crate) async fn ask(asking: &Asking<'_>) -> Result<Answer, String> {
    let answer = async {
        let mut at: Uri =
            asking.url.parse().map_err(|error: hyper::http::uri::InvalidUri| error.to_string())?;
        for _ in 0..HOPS {
            let response = send(&at, asking).await?;
            if response.status().is_redirection() && !asking.is_private() {
                at = elsewhere(&at, response.headers())?;
                continue;
            }
            let status = response.status();
            let body = Limited::new(response.into_body(), LARGEST).collect().await;
            return Ok(Answer { status, body: body.map_err(|error| error.to_string())?.to_bytes() });
        }
        Err(format!("more than {HOPS} servers send us on to another"))
    };
    tokio::time::timeout(TIMEOUT, answer).await.map_err(|_| "there is no answer".to_owned())?
}

/// Returns the target of a redirect. A redirect from HTTPS to HTTP is refused.
fn elsewhere(from: &Uri, headers: &HeaderMap) -> Result<Uri, String> {
    let to = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let to: Uri =
        to.and_then(|to| to.parse().ok()).ok_or("the server sends us on and does not say where to")?;
    let mut parts = to.into_parts();
    if parts.scheme.is_none() {
        parts.scheme = from.scheme().cloned();
    }
    if parts.authority.is_none() {
        parts.authority = from.authority().cloned();
    }
    if from.scheme_str() == Some("https") && parts.scheme != from.scheme().cloned() {
        return Err("the server sends us on to a place that is not encrypted".to_owned());
    }
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

/// Opens a connection; clients know the texts of its errors.
async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = lookup_host((bare, port)).await;
    let addresses = addresses.map_err(|_| format!("dial tcp: lookup {bare}: no such host"))?;
    let mut failed = format!("dial tcp: lookup {bare}: no such host");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                failed = format!("dial tcp {address}: connect: connection refused");
            }
            Err(error) => failed = format!("dial tcp {address}: connect: {error}"),
        }
    }
    Err(failed)
}

async fn send(uri: &Uri, asking: &Asking<'_>) -> Result<Response<Incoming>, String> {
    let host = uri.host().ok_or("the URL names no host")?;
    let stream = match uri.scheme_str() {
        Some("http") => Stream::Plain(dial(host, uri.port_u16().unwrap_or(80)).await?),
        Some("https") => {
            let settings =
                ClientSettings { ca_pem: asking.authorities.to_vec(), ..ClientSettings::default() };
            let connector = Connector::new(&settings).map_err(|error| error.to_string())?;
            let stream = dial(host, uri.port_u16().unwrap_or(443)).await?;
            connector.connect(host, stream).await.map_err(|error| error.to_string())?
        }
        _ => return Err("it is no http:// or https:// URL".to_owned()),
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // The connection task ends when the response has been read.
    tokio::spawn(async move { drop(connection.await) });
    let authority = match uri.port_u16() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let mut request = Request::builder()
        .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
        .method(if asking.form.is_some() { "POST" } else { "GET" })
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("caravan/", env!("CARGO_PKG_VERSION")));
    if let Some(authorization) = &asking.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    if asking.form.is_some() {
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    let body = Full::new(Bytes::from(asking.form.clone().unwrap_or_default()));
    let request = request.body(body).map_err(|error| error.to_string())?;
    sender.send_request(request).await.map_err(|error| error.to_string())
}

/// Encodes the fields of a form or of a query, in the order of their names.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let mut fields: Vec<_> = fields.to_vec();
    fields.sort_by_key(|(name, _)| *name);
    let pairs: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}={}", percent::encode_form(name), percent::encode_form(value)))
        .collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_ordered_and_escaped() {
        assert_eq!(form(&[("b", "x y&z"), ("a", "ü/1")]), "a=%C3%BC%2F1&b=x+y%26z");
    }

    #[test]
    fn secrets_are_not_sent_on() {
        let asking = Asking { form: Some("code=hunter2".into()), ..Asking::of("https://x", &[]) };
        assert!(asking.is_private() && !format!("{asking:?}").contains("hunter2"));
        assert!(!Asking::of("https://x", &[]).is_private());
    }
}
