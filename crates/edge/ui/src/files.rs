//! The built files, with their types, their entity tags and their packed forms.

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{LazyLock, OnceLock};

/// The paths and the contents, written by the build of the page.
static STORED: &[(&str, &[u8])] = include!("../dist/files.rs");

/// The name of the page itself.
const PAGE: &str = "index.html";
/// The element of the page after which the base element is inserted.
const CHARSET: &str = "<meta charset=\"utf-8\" />";

/// A built file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) content_type: &'static str,
    pub(crate) content: &'static [u8],
    pub(crate) tag: HeaderValue,
    packed: OnceLock<Bytes>,
}

/// The built files by their paths below `/ui/`, without the page itself. The page is served under every other path.
pub(crate) static FILES: LazyLock<BTreeMap<&'static str, File>> = LazyLock::new(|| {
    let files = STORED.iter().filter(|(path, _)| *path != PAGE);
    files
        .map(|(path, content)| {
            let file = File { content_type: kind(path), content, tag: tag(content), packed: OnceLock::new() };
            (*path, file)
        })
        .collect()
});

impl File {
    /// Returns the content in gzip. The first call packs the content, later calls return the same bytes.
    pub(crate) fn packed(&self) -> Bytes {
        let pack = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            // Writing into memory cannot fail.
            let _ = encoder.write_all(self.content);
            encoder.finish().unwrap_or_default().into()
        };
        self.packed.get_or_init(pack).clone()
    }
}

/// Returns the entity tag of a content. The tag is weak, because packed and plain forms share it.
pub(crate) fn tag(content: &[u8]) -> HeaderValue {
    let digest = Sha256::digest(content);
    let digits: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&format!("W/\"{digits}\"")).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns the page for an address with this number of slashes below `/ui/`.
pub(crate) fn page(slashes: usize) -> String {
    let stored = STORED.iter().find(|(path, _)| *path == PAGE).map(|(_, content)| *content);
    let text = String::from_utf8_lossy(stored.unwrap_or_default());
    let base = if slashes == 0 { "./".to_owned() } else { "../".repeat(slashes) };
    text.replacen(CHARSET, &format!("{CHARSET}\n    <base href=\"{base}\" />"), 1)
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
