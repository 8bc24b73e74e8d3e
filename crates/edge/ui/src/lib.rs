//! The web page below `/ui/`: its built files, and the answers to requests for them.
//!
//! The files are built from the folder `ui` of the repository by `cargo xtask ui` and checked in, so that a build of
//! the program needs no Node. The page works below any prefix of a proxy: the agent writes a `<base>` element that
//! names the root of the page relative to the address of the request.

mod files;
mod policy;
mod settings;

pub use policy::{Policy, PolicyError};
pub use settings::{Label, Settings};

use bytes::Bytes;
use files::{FILES, File};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderName, REFERRER_POLICY};
use http::header::{CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// The page for agents whose configuration switches the page off.
const OFF: &str = "<!doctype html>\n<html lang=\"en\"><title>Caravan</title>\
    <p>The web page is switched off in the configuration of this agent (<code>ui { enabled = false }</code>).</html>\n";

/// A request for a file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The path below `/ui/` as received: percent-encoded, without the query.
    pub path: &'r str,
    /// The header `If-None-Match`; empty if absent.
    pub if_none_match: &'r str,
    /// Whether the client accepts gzip.
    pub gzip: bool,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The type of the content.
    pub content_type: &'static str,
    /// The headers besides the type.
    pub headers: HeaderMap,
    /// The content.
    pub body: Bytes,
}

impl Answer {
    fn new(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type, headers: HeaderMap::new(), body: body.into() }
    }
}

/// Answers a request for the page or one of its files. An unknown path is an address within the page, except below
/// `assets/`: there, a page of another version detects that its files no longer exist.
pub fn answer(settings: &Settings, request: &Request<'_>) -> Answer {
    if !settings.enabled {
        return Answer::new(HTML, OFF);
    }
    let mut answer = match FILES.get(request.path) {
        Some(file) => stored(request.path, file, request),
        None if request.path.starts_with("assets/") => {
            let mut answer = Answer::new(TEXT, "The web page has no such file.\n");
            answer.status = StatusCode::NOT_FOUND;
            answer
        }
        None => page(request),
    };
    let headers = &mut answer.headers;
    headers.insert(CONTENT_SECURITY_POLICY, settings.policy.header().clone());
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    answer
}

/// Returns the answer with a stored file. Names below `assets/` contain a hash, so their content never changes.
fn stored(path: &str, file: &'static File, request: &Request<'_>) -> Answer {
    let mut answer = match request.gzip {
        true => {
            let mut answer = Answer::new(file.content_type, file.packed());
            answer.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            answer
        }
        false => Answer::new(file.content_type, file.content),
    };
    let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    answer.headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    tagged(answer, &file.tag, request)
}

/// Returns the answer with the page, whose base depends on the depth of the address.
fn page(request: &Request<'_>) -> Answer {
    let text = files::page(request.path.matches('/').count());
    let tag = files::tag(text.as_bytes());
    let mut answer = Answer::new(HTML, text);
    answer.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    tagged(answer, &tag, request)
}

/// Adds the entity tag, and drops the content if the client has it already.
fn tagged(mut answer: Answer, tag: &HeaderValue, request: &Request<'_>) -> Answer {
    let known = request.if_none_match.split(',').map(str::trim);
    if known.into_iter().any(|known| known.as_bytes() == tag.as_bytes()) {
        answer.status = StatusCode::NOT_MODIFIED;
        answer.body = Bytes::new();
        answer.headers.remove(CONTENT_ENCODING);
    }
    answer.headers.insert(ETAG, tag.clone());
    answer
}

#[cfg(test)]
mod tests;
