//! Downloads over HTTP.

use super::source::{DigestKind, Source};
use caravan_fetch::{FetchError, Message, Policy};
use caravan_sys::describe;
use caravan_tls::{Checked, ClientSettings};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::digest::DynDigest;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::SeekFrom;
use std::time::Duration;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::timeout;

/// Timeout for a response, and between two parts of a body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the whole download (docs/reference/jobspec.md, section 11.3).
const WHOLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The most bytes of a download.
const MAX_DOWNLOAD_BYTES: u64 = 100_000_000_000;
const MAX_REDIRECTS: usize = 10;

/// Fetches a source into a file, checks its digest, and rewinds the file. A TLS server must have a certificate from an
/// authority that the host trusts, unless `insecure` is set.
pub(super) async fn fetch(
    source: &Source,
    headers: &BTreeMap<String, String>,
    insecure: bool,
    into: File,
) -> Result<File, String> {
    let message = Message { headers: parsed(headers)?, ..Message::default() };
    let checked = if insecure { Checked::Nothing } else { Checked::Host };
    let policy = Policy {
        tls: ClientSettings { checked, ..ClientSettings::default() },
        max_redirects: MAX_REDIRECTS,
        timeout: TIMEOUT,
    };
    let into = tokio::fs::File::from_std(into);
    // Boxed because the future is large: it handles several servers in sequence.
    let done = timeout(WHOLE_TIMEOUT, Box::pin(download(source, &message, &policy, into))).await;
    done.map_err(|_| "it takes longer than 30 minutes".to_owned())?
}

fn parsed(headers: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let header = |(name, value): (&String, &String)| {
        Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?))
    };
    let headers: Option<HeaderMap> = headers.iter().map(header).collect();
    headers.ok_or_else(|| "a header of the artifact cannot be sent".to_owned())
}

async fn download(
    source: &Source,
    message: &Message,
    policy: &Policy,
    mut into: tokio::fs::File,
) -> Result<File, String> {
    let mut digest: Option<Box<dyn DynDigest + Send>> = source.checksum.as_ref().map(|sum| match sum.kind {
        DigestKind::Md5 => Box::new(md5::Md5::default()) as Box<dyn DynDigest + Send>,
        DigestKind::Sha1 => Box::new(sha1::Sha1::default()),
        DigestKind::Sha256 => Box::new(sha2::Sha256::default()),
        DigestKind::Sha512 => Box::new(sha2::Sha512::default()),
    });
    let failed = |error: FetchError| describe(&error);
    let unwritable = |error: std::io::Error| format!("it cannot be kept: {error}");
    let mut reply = caravan_fetch::fetch(&source.url, message, policy).await.map_err(failed)?;
    if !reply.status().is_success() {
        return Err(format!("bad response code: {}", reply.status().as_u16()));
    }
    let mut length = 0u64;
    while let Some(data) = reply.chunk().await.map_err(failed)? {
        length += data.len() as u64;
        if length > MAX_DOWNLOAD_BYTES {
            return Err("it is larger than 100 GB".to_owned());
        }
        if let Some(digest) = &mut digest {
            digest.update(&data);
        }
        into.write_all(&data).await.map_err(unwritable)?;
    }
    into.flush().await.map_err(unwritable)?;
    if let (Some(expected), Some(digest)) = (&source.checksum, digest) {
        let found: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found != expected.hex {
            return Err(format!("checksums do not match: expected {}, got {found}", expected.hex));
        }
    }
    into.seek(SeekFrom::Start(0)).await.map_err(|error| error.to_string())?;
    Ok(into.into_std().await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_headers_are_refused() {
        let parse = |name: &str, value: &str| parsed(&BTreeMap::from([(name.into(), value.into())]));
        assert_eq!(parse("X-A", "b").unwrap()["x-a"], "b");
        assert!(parse("X", "a\nb").is_err() && parse("a b", "c").is_err());
    }
}
