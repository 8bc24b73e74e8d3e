//! Downloads of files that users name by URL, such as a job file. The request carries none of the agent's settings, in
//! particular no token.

use crate::config::{Address, Tls};
use crate::transport::{self, Target};
use bytes::Bytes;
use http::header::{HOST, LOCATION, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use std::time::Duration;

/// The most redirects that a download follows.
const MAX_REDIRECTS: usize = 5;
/// The timeout for one server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The error of a download.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The text is not a valid URL.
    #[error("{url:?} is no URL: {reason}")]
    Url {
        /// The URL as received.
        url: String,
        /// What makes the URL invalid.
        reason: String,
    },
    /// The URL's scheme is not `http` or `https`.
    #[error(
        "{url} cannot be fetched: only http:// and https:// are supported; fetch the file with another program and give it as -, for standard input"
    )]
    Scheme {
        /// The requested URL, or the target of a redirect.
        url: Uri,
    },
    /// The server could not be reached, or the connection broke.
    #[error("{url} cannot be fetched: {reason}")]
    Broken {
        /// The requested URL.
        url: Uri,
        /// The failure, innermost cause first.
        reason: String,
    },
    /// The server answered with a status other than success.
    #[error("{url} cannot be fetched: the server answers with status {code}")]
    Status {
        /// The requested URL.
        url: Uri,
        /// The HTTP status.
        code: u16,
    },
    /// The file is larger than the limit.
    #[error("{url} is larger than {limit} bytes")]
    Size {
        /// The requested URL.
        url: Uri,
        /// The limit in bytes.
        limit: usize,
    },
    /// The servers redirect more often than the download follows.
    #[error("{url} cannot be fetched: redirected more than {MAX_REDIRECTS} times")]
    Redirects {
        /// The first URL of the chain.
        url: Uri,
    },
}

/// Downloads a file of at most `limit` bytes over HTTP, with or without TLS. A server with TLS must have a certificate
/// of the public authorities that the host trusts (`SSL_CERT_FILE`, `SSL_CERT_DIR`). A redirect from `https` to `http`
/// is refused.
///
/// # Errors
/// Fails if the URL is invalid, the server cannot be reached or refuses, or the file is too large.
pub async fn fetch(url: &str, limit: usize) -> Result<Bytes, FetchError> {
    let bad = |reason: String| FetchError::Url { url: url.to_owned(), reason };
    let first: Uri = url.parse().map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
    let mut at = first.clone();
    for _ in 0..=MAX_REDIRECTS {
        let answer = match tokio::time::timeout(TIMEOUT, once(&at, limit)).await {
            Ok(answer) => answer?,
            Err(_) => {
                let reason = format!("it takes longer than {}s", TIMEOUT.as_secs());
                return Err(FetchError::Broken { url: at, reason });
            }
        };
        match answer {
            Answer::File(bytes) => return Ok(bytes),
            Answer::Elsewhere(to) => {
                let next = resolved(&at, &to).ok_or_else(|| bad(format!("sent on to {to:?}")))?;
                if at.scheme_str() == Some("https") && next.scheme_str() == Some("http") {
                    let reason = format!("the server sends us on to {next}, which is not encrypted");
                    return Err(FetchError::Broken { url: at, reason });
                }
                at = next;
            }
        }
    }
    Err(FetchError::Redirects { url: first })
}

enum Answer {
    File(Bytes),
    Elsewhere(String),
}

async fn once(url: &Uri, limit: usize) -> Result<Answer, FetchError> {
    let tls = match url.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(FetchError::Scheme { url: url.clone() }),
    };
    let broken = |reason: String| FetchError::Broken { url: url.clone(), reason };
    let host = url.host().ok_or_else(|| broken("the host is missing".to_owned()))?;
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let address = match tls {
        true => Address::Tls { host: name, port: url.port_u16().unwrap_or(443) },
        false => Address::Tcp { host: name, port: url.port_u16().unwrap_or(80) },
    };
    let authority = match url.port_u16() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let request = Request::get(url.clone())
        .header(HOST, authority)
        .header(USER_AGENT, concat!("caravan/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::new()))
        .map_err(|error| broken(error.to_string()))?;
    let answer = transport::pool(Target::new(address, Tls::default()))
        .request(request)
        .await
        .map_err(|e| broken(innermost(&e)))?;
    let status = answer.status();
    if status.is_redirection()
        && let Some(to) = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok())
    {
        return Ok(Answer::Elsewhere(to.to_owned()));
    }
    if !status.is_success() {
        return Err(FetchError::Status { url: url.clone(), code: status.as_u16() });
    }
    match Limited::new(answer.into_body(), limit).collect().await {
        Ok(body) => Ok(Answer::File(body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::Size { url: url.clone(), limit }),
        Err(error) => Err(broken(innermost(&*error))),
    }
}

/// Resolves a `Location` header against the URL that returned it.
fn resolved(from: &Uri, to: &str) -> Option<Uri> {
    if to.contains("://") {
        return to.parse().ok();
    }
    let path = match to.strip_prefix('/') {
        Some(_) => to.to_owned(),
        // A relative path replaces the last segment of the URL's path.
        None => format!("{}/{to}", from.path().rsplit_once('/').map_or("", |(directory, _)| directory)),
    };
    Uri::builder()
        .scheme(from.scheme_str()?)
        .authority(from.authority()?.as_str())
        .path_and_query(path)
        .build()
        .ok()
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Starts a server that answers each connection by its path.
    async fn server(answer: fn(&str) -> String) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                let mut piece = [0; 512];
                // A TLS client hello (first byte 0x16) is answered with plain HTTP.
                while !head.ends_with(b"\r\n\r\n") && head.first() != Some(&0x16) {
                    match stream.read(&mut piece).await {
                        Ok(n) if n > 0 => head.extend_from_slice(&piece[..n]),
                        _ => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                assert!(!head.to_ascii_lowercase().contains("token"), "{head}");
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let _ = stream.write_all(answer(&path).as_bytes()).await;
            }
        });
        address
    }

    fn site(path: &str) -> String {
        let found = |text: &str| {
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}", text.len())
        };
        let elsewhere = |to: &str| {
            format!("HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
        };
        match path {
            "/jobs/web.hcl?v=1" => found("job \"web\" {}"),
            "/jobs/old.hcl" => elsewhere("web.hcl?v=1"),
            "/old.hcl" => elsewhere("/jobs/old.hcl"),
            "/other.hcl" => elsewhere("ftp://example.com/x"),
            "/circle" => elsewhere("/circle"),
            _ => "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_owned(),
        }
    }

    #[tokio::test]
    async fn files_come_from_where_they_are() {
        let at = server(site).await;
        for path in ["/jobs/web.hcl?v=1", "/jobs/old.hcl", "/old.hcl"] {
            assert_eq!(fetch(&format!("{at}{path}"), 100).await.unwrap(), "job \"web\" {}", "{path}");
        }
        let said = |url: String| async move { fetch(&url, 5).await.unwrap_err().to_string() };
        for (path, words) in [
            ("/jobs/web.hcl?v=1", "is larger than 5 bytes"),
            ("/nothing", "answers with status 404"),
            ("/circle", "redirected more than 5 times"),
            ("/other.hcl", "only http:// and https:// are supported"),
        ] {
            let text = said(format!("{at}{path}")).await;
            assert!(text.contains(words), "{text}");
        }
        assert!(said(at.replace("http:", "https:")).await.contains("does not speak TLS"));
        assert!(said("http://127.0.0.1:1/a.hcl".into()).await.contains("refused"));
        assert!(said("http://a b".into()).await.contains("is no URL"));
    }
}
