//! Fetches files over HTTP.

use super::source::{DigestKind, Source};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use caravan_tls::{Checked, ClientSettings, Connector, Stream};
use http::header::{AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use sha2::digest::DynDigest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::SeekFrom;
use std::time::Duration;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Timeout for a response, and between two parts of a body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the whole download (docs/reference/jobspec.md, section 11.3).
const WHOLE: Duration = Duration::from_secs(30 * 60);
/// The most bytes of a download.
const MAX_DOWNLOAD_BYTES: u64 = 100_000_000_000;
/// The most redirects.
const HOPS: usize = 10;

fn words(error: &dyn std::error::Error) -> String {
    caravan_sys::describe(error)
}

/// Fetches a source into a file, checks its digest, and rewinds the file.
pub(super) async fn fetch(
    source: &Source,
    headers: &BTreeMap<String, String>,
    insecure: bool,
    into: File,
) -> Result<File, String> {
    let into = tokio::fs::File::from_std(into);
    // Boxed because the future is large: it handles several servers in sequence.
    let done = timeout(WHOLE, Box::pin(download(source, headers, insecure, into))).await;
    done.map_err(|_| "it takes longer than 30 minutes".to_owned())?
}

async fn download(
    source: &Source,
    headers: &BTreeMap<String, String>,
    insecure: bool,
    mut into: tokio::fs::File,
) -> Result<File, String> {
    let mut digest: Option<Box<dyn DynDigest + Send>> = source.checksum.as_ref().map(|sum| match sum.kind {
        DigestKind::Md5 => Box::new(md5::Md5::default()) as Box<dyn DynDigest + Send>,
        DigestKind::Sha1 => Box::new(sha1::Sha1::default()),
        DigestKind::Sha256 => Box::new(sha2::Sha256::default()),
        DigestKind::Sha512 => Box::new(sha2::Sha512::default()),
    });
    let mut url = source.url.clone();
    let first_host = url.authority().map(|authority| host_of(authority.as_str()).to_owned());
    for _ in 0..HOPS {
        let authority = url.authority().ok_or("the URL names no host")?.as_str().to_owned();
        // Headers for one server are not sent to another.
        let same = first_host.as_deref() == Some(host_of(&authority));
        let none = BTreeMap::new();
        let request = request(&url, &authority, if same { headers } else { &none })?;
        let encrypted = url.scheme_str() == Some("https");
        let address = host_of(&authority);
        let port = if encrypted { 443 } else { 80 };
        let address = if has_port(address) { address.to_owned() } else { format!("{address}:{port}") };
        let stream = timeout(TIMEOUT, connect(&address, encrypted, insecure)).await;
        let stream = stream.map_err(|_| format!("{address} does not answer"))??;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| words(&e))?;
        // The connection task is aborted when this set is dropped.
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection);
        let answer = timeout(TIMEOUT, sender.send_request(request)).await;
        let answer = answer.map_err(|_| format!("{address} does not answer"))?.map_err(|e| words(&e))?;
        let status = answer.status();
        if status.is_redirection() {
            let to = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let to = to.ok_or_else(|| format!("the server answers {status} and does not say where to go"))?;
            url = resolved(&url, to)?;
            continue;
        }
        if !status.is_success() {
            return Err(format!("bad response code: {}", status.as_u16()));
        }
        let mut body = answer.into_body();
        let mut length = 0u64;
        loop {
            let frame = timeout(TIMEOUT, body.frame()).await;
            let Some(frame) = frame.map_err(|_| format!("{address} sends nothing any more"))? else { break };
            let Ok(data) = frame.map_err(|error| words(&error))?.into_data() else { continue };
            length += data.len() as u64;
            if length > MAX_DOWNLOAD_BYTES {
                return Err("it is larger than 100 GB".to_owned());
            }
            if let Some(digest) = &mut digest {
                digest.update(&data);
            }
            into.write_all(&data).await.map_err(|error| format!("it cannot be kept: {error}"))?;
        }
        into.flush().await.map_err(|error| format!("it cannot be kept: {error}"))?;
        if let (Some(wanted), Some(digest)) = (&source.checksum, digest) {
            let found: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            if found != wanted.hex {
                return Err(format!("checksums do not match: expected {}, got {found}", wanted.hex));
            }
        }
        into.seek(SeekFrom::Start(0)).await.map_err(|error| error.to_string())?;
        return Ok(into.into_std().await);
    }
    Err(format!("more than {HOPS} servers send us on to another"))
}

/// Connects to a server. A TLS server must have a certificate from an authority that the host trusts, unless the job
/// skips verification.
async fn connect(address: &str, encrypted: bool, insecure: bool) -> Result<Stream, String> {
    let failed = |error: std::io::Error| format!("{address} cannot be reached: {error}");
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    if !encrypted {
        return Ok(Stream::Plain(stream));
    }
    let checked = if insecure { Checked::Nothing } else { Checked::Host };
    let settings = ClientSettings { checked, ..ClientSettings::default() };
    let connector = Connector::new(&settings).map_err(|error| error.to_string())?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    connector.connect(host, stream).await.map_err(failed)
}

fn request(
    url: &Uri,
    authority: &str,
    headers: &BTreeMap<String, String>,
) -> Result<Request<Empty<Bytes>>, String> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::builder().method(Method::GET).uri(path);
    let has =
        |wanted: &http::HeaderName| headers.keys().any(|name| name.eq_ignore_ascii_case(wanted.as_str()));
    if !has(&HOST) {
        request = request.header(HOST, host_of(authority));
    }
    if !has(&USER_AGENT) {
        request = request.header(USER_AGENT, concat!("caravan/", env!("CARGO_PKG_VERSION")));
    }
    if let Some((login, _)) = authority.rsplit_once('@')
        && !has(&AUTHORIZATION)
    {
        request = request.header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(login)));
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(Empty::new()).map_err(|_| "a header of the artifact cannot be sent".to_owned())
}

/// Returns an authority without user information.
fn host_of(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty())
}

/// Resolves the target of a redirect.
fn resolved(from: &Uri, to: &str) -> Result<Uri, String> {
    let wrong = || "the server sends us on to something that is no URL".to_owned();
    let authority = from.authority().ok_or_else(wrong)?.as_str();
    let scheme = from.scheme_str().ok_or_else(wrong)?;
    let whole = if to.contains("://") {
        to.to_owned()
    } else if let Some(rest) = to.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let parent = from.path().rsplit_once('/').map_or("", |(parent, _)| parent);
        format!("{scheme}://{authority}{parent}/{to}")
    };
    let whole = whole.split('#').next().unwrap_or_default();
    let url: Uri = whole.parse().map_err(|_| wrong())?;
    match url.scheme_str() {
        Some("http") if scheme == "https" => {
            Err("the server sends us on to a place that is not encrypted".to_owned())
        }
        Some("http" | "https") => Ok(url),
        Some(scheme) => Err(format!("the server sends us on to {scheme}, which is not supported yet")),
        None => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_found_by_where_they_are_from() {
        let from: Uri = "http://u:p@h:81/a/b?x=1".parse().unwrap();
        for (to, wanted) in [
            ("http://g/x", "http://g/x"),
            ("/x?y", "http://u:p@h:81/x?y"),
            ("x", "http://u:p@h:81/a/x"),
            ("//g/x#y", "http://g/x"),
        ] {
            assert_eq!(resolved(&from, to).unwrap(), wanted);
        }
        assert_eq!(resolved(&from, "https://g/x").unwrap(), "https://g/x");
        let from: Uri = "https://h/a".parse().unwrap();
        assert_eq!(resolved(&from, "/x").unwrap(), "https://h/x");
        assert!(resolved(&from, "http://h/x").unwrap_err().contains("not encrypted"));
        assert!(resolved(&from, "ftp://h/x").unwrap_err().contains("ftp"));
        assert!(has_port("h:80") && has_port("[::1]:80") && !has_port("h") && !has_port("[::1]"));
    }

    #[test]
    fn who_logs_in_is_told_in_a_header() {
        let url: Uri = "http://u:p@h/a".parse().unwrap();
        let made = request(&url, "u:p@h", &BTreeMap::from([("X-A".into(), "b".into())])).unwrap();
        assert_eq!(made.headers()[HOST], "h");
        assert_eq!(made.headers()[AUTHORIZATION], "Basic dTpw");
        assert_eq!(made.headers()["x-a"], "b");
        assert!(request(&url, "h", &BTreeMap::from([("X".into(), "a\nb".into())])).is_err());
    }
}
