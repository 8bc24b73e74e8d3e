//! Downloads of files that users name by URL, such as a job file. The request carries none of the agent's settings,
//! in particular no token.

use bytes::Bytes;
use caravan_fetch::{Message, Policy};
use caravan_tls::ClientSettings;
use http::Uri;
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
        /// The reason why the URL is invalid.
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

/// Downloads a file of at most `limit` bytes over HTTP, with or without TLS. A server with TLS must have a
/// certificate of the public authorities that the host trusts (`SSL_CERT_FILE`, `SSL_CERT_DIR`). A redirect from
/// `https` to `http` is refused.
///
/// # Errors
/// Fails if the URL is invalid, the server cannot be reached or refuses, or the file is too large.
pub async fn fetch(url: &str, limit: usize) -> Result<Bytes, FetchError> {
    let at: Uri = url.parse().map_err(|error: http::uri::InvalidUri| FetchError::Url {
        url: url.to_owned(),
        reason: error.to_string(),
    })?;
    let policy = Policy { tls: ClientSettings::default(), max_redirects: MAX_REDIRECTS, timeout: TIMEOUT };
    let download = async {
        let reply = caravan_fetch::fetch(&at, &Message::default(), &policy).await?;
        match reply.status() {
            status if status.is_success() => Ok(Ok(reply.body(limit).await?)),
            status => Ok(Err(status.as_u16())),
        }
    };
    match download.await {
        Ok(Ok(file)) => Ok(file),
        Ok(Err(code)) => Err(FetchError::Status { url: at, code }),
        Err(error) => Err(failure(at, error)),
    }
}

fn failure(url: Uri, error: caravan_fetch::FetchError) -> FetchError {
    use caravan_fetch::FetchError as Cause;
    match error {
        Cause::Scheme { url } => FetchError::Scheme { url },
        Cause::TooLarge { limit } => FetchError::Size { url, limit },
        Cause::TooManyRedirects { .. } => FetchError::Redirects { url },
        Cause::Silent { .. } => {
            FetchError::Broken { url, reason: format!("it takes longer than {}s", TIMEOUT.as_secs()) }
        }
        error => FetchError::Broken { url, reason: innermost(&error) },
    }
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
        let reported = |url: String| async move { fetch(&url, 5).await.unwrap_err().to_string() };
        for (path, words) in [
            ("/jobs/web.hcl?v=1", "is larger than 5 bytes"),
            ("/nothing", "answers with status 404"),
            ("/circle", "redirected more than 5 times"),
            ("/other.hcl", "only http:// and https:// are supported"),
        ] {
            let text = reported(format!("{at}{path}")).await;
            assert!(text.contains(words), "{text}");
        }
        assert!(reported(at.replace("http:", "https:")).await.contains("does not speak TLS"));
        assert!(reported("http://127.0.0.1:1/a.hcl".into()).await.contains("refused"));
        assert!(reported("http://a b".into()).await.contains("is no URL"));
    }
}
