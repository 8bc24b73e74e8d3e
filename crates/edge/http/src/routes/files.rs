//! The files and logs of allocations, at the node that has them (docs/reference/http-api.md, sections 3.4 and 4.1).

use super::client::{alloc, client};
use crate::call::Call;
use crate::error::ApiError;
use crate::frames;
use crate::http_body::Body;
use crate::query::go_bool;
use crate::reply::{JSON, Reply, TEXT};
use bytes::Bytes;
use caravan_client::fs::{AllocFs, FileInfo, FsError, LogKind, LogPlace, LogStart, Origin};
use caravan_types::Time;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::io::ReaderStream;

/// The size of the pieces in which a file is sent, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// The media type of a path that is not a readable file.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// A file of an allocation, in the shape of `AllocFileInfo`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FileShape {
    name: String,
    is_dir: bool,
    size: u64,
    file_mode: String,
    mod_time: Time,
    /// The media type; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'static str>,
}

impl From<FileInfo> for FileShape {
    fn from(file: FileInfo) -> Self {
        Self {
            name: file.name,
            is_dir: file.is_dir,
            size: file.size,
            file_mode: file.mode,
            mod_time: file.modified,
            content_type: file.content_type,
        }
    }
}

/// The range of a file to stream.
struct Range {
    /// The distance from the origin in bytes.
    offset: u64,
    /// The reference point of the offset.
    origin: Origin,
    /// Whether to wait for more content at the end.
    follow: bool,
}

/// Raw content of a file.
type Pieces = BoxStream<'static, Result<Bytes, ApiError>>;

/// Returns the files of the allocation that the path names.
fn files(call: &Call) -> Result<AllocFs, ApiError> {
    Ok(client(call)?.fs(&alloc(call))?)
}

/// Runs a file operation on the pool of blocking threads.
async fn blocking<T: Send + 'static>(
    fs: AllocFs,
    operation: impl FnOnce(&AllocFs) -> Result<T, FsError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(move || operation(&fs)).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(ApiError::internal(format!("looking at the files failed: {error}"))),
    }
}

/// Returns the requested log stream; the request must name the task too.
pub(super) fn log_kind(call: &Call) -> Result<LogKind, ApiError> {
    if call.query.text("task").is_empty() {
        return Err(ApiError::bad_request("must provide task name"));
    }
    match call.query.text("type") {
        "stdout" => Ok(LogKind::Stdout),
        "stderr" => Ok(LogKind::Stderr),
        _ => Err(ApiError::bad_request("must provide log type (stdout/stderr)")),
    }
}

/// Lists the files of a directory.
pub(crate) async fn list(call: &Call) -> Result<Reply, ApiError> {
    let path = match call.query.text("path") {
        "" => "/".to_owned(),
        path => path.to_owned(),
    };
    let listed = blocking(files(call)?, move |fs| fs.ls(&path)).await?;
    Reply::json(listed.into_iter().map(FileShape::from).collect::<Vec<_>>())
}

/// Returns the metadata of a file.
pub(crate) async fn stat(call: &Call) -> Result<Reply, ApiError> {
    let path = call.query.text("path").to_owned();
    let mut file = FileShape::from(blocking(files(call)?, move |fs| fs.stat(&path)).await?);
    file.content_type.get_or_insert(UNKNOWN_TYPE);
    Reply::json(file)
}

/// Returns the content of a file.
pub(crate) async fn cat(call: &Call) -> Result<Reply, ApiError> {
    Ok(content(pieces(files(call)?, call.query.text("path"), 0, None).await).await)
}

/// Returns a part of a file.
pub(crate) async fn read_at(call: &Call) -> Result<Reply, ApiError> {
    let number = |name: &str| {
        let text = call.query.text(name);
        text.parse::<i64>().map_err(|_| {
            ApiError::bad_request(format!(
                "error parsing {name}: strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))
        })
    };
    let offset = number("offset")?;
    let limit = match call.query.text("limit") {
        "" => None,
        _ => u64::try_from(number("limit")?).ok().filter(|limit| *limit > 0),
    };
    Ok(content(pieces(files(call)?, call.query.text("path"), offset, limit).await).await)
}

/// Streams a file and the content that is appended later.
pub(crate) async fn stream_file(call: &Call) -> Result<Reply, ApiError> {
    let Range { offset, origin, follow } = range(call, true)?;
    let opened = files(call)?.stream(call.query.text("path"), offset, origin, follow);
    let frames = frames::of_client(opened.map_err(|error| ApiError::of_stream(&error))?);
    Ok(Reply::raw(TEXT, frames::framed(frames, call.state.stopping.clone())))
}

/// Streams the log of a task.
pub(crate) async fn logs(call: &Call) -> Result<Reply, ApiError> {
    let kind = log_kind(call)?;
    let Range { offset, origin, follow } = range(call, false)?;
    let plain = boolean(call, "plain", false)?;
    let whole_lines = boolean(call, "whole_lines", false)?;
    let (start, whole_lines) = match call.query.text("position") {
        "" => (LogStart::Offset(offset, origin), whole_lines),
        // The reader has the beginning of the line.
        text => (LogStart::After(place(text)?), false),
    };
    let opened = files(call)?.logs(call.query.text("task"), kind, start, follow);
    let (frames, stopping) = (frames::of_client(opened?), call.state.stopping.clone());
    let frames = if whole_lines { frames::whole_lines(frames) } else { frames };
    Ok(if plain {
        Reply::raw("text/plain", frames::plain(frames, stopping))
    } else {
        Reply::raw(JSON, frames::framed(frames, stopping))
    })
}

/// Returns the allocation's data and the local directories of its tasks as a tar archive.
pub(crate) async fn snapshot(call: &Call) -> Result<Reply, ApiError> {
    let pieces = ReceiverStream::new(files(call)?.snapshot()?);
    let pieces = pieces.map(|piece| piece.map_err(ApiError::from));
    Ok(Reply::raw("application/x-tar", Body::from_stream(pieces)))
}

/// Parses the place in a log at which an earlier stream ended.
pub(super) fn place(text: &str) -> Result<LogPlace, ApiError> {
    LogPlace::parse(text).ok_or_else(|| {
        ApiError::bad_request(format!(
            "the position in the log is {text:?}; expected the number of a file and a position in it, such as 3.1200"
        ))
    })
}

fn boolean(call: &Call, name: &str, otherwise: bool) -> Result<bool, ApiError> {
    match call.query.text(name) {
        "" => Ok(otherwise),
        text => go_bool(text).ok_or_else(|| {
            ApiError::bad_request(format!(
                "failed to parse {name} field to boolean: strconv.ParseBool: parsing \"{text}\": invalid syntax"
            ))
        }),
    }
}

fn range(call: &Call, follow: bool) -> Result<Range, ApiError> {
    let follow = boolean(call, "follow", follow)?;
    let offset = match call.query.text("offset") {
        "" => 0,
        text => text.parse::<i64>().map_err(|_| {
            ApiError::bad_request(format!(
                "error parsing offset: strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))
        })?,
    };
    let origin = match call.query.text("origin") {
        "" | "start" => Origin::Start,
        "end" => Origin::End,
        _ => return Err(ApiError::bad_request("origin must be start or end")),
    };
    Ok(Range { offset: u64::try_from(offset).unwrap_or(0), origin, follow })
}

/// Opens a file to read at most `limit` bytes from `offset`.
async fn pieces(fs: AllocFs, path: &str, offset: i64, limit: Option<u64>) -> Result<Pieces, ApiError> {
    let (path, on_host) = (path.to_owned(), fs.on_host(path));
    let from = u64::try_from(offset);
    // A file that cannot be opened is reported before the stream starts.
    let file = blocking(fs, move |fs| fs.read_from(&path, from.unwrap_or(0))).await?;
    if offset < 0 {
        let on_host = on_host.display();
        let text = format!("can't seek to offset {offset}: seek {on_host}: invalid argument");
        return Err(ApiError::internal(text));
    }
    let file = tokio::fs::File::from_std(file).take(limit.unwrap_or(u64::MAX));
    let pieces = ReaderStream::with_capacity(file, PIECE_BYTES);
    Ok(pieces.map(|piece| piece.map_err(|error| ApiError::internal(error.to_string()))).boxed())
}

/// Returns the answer with content, and with headers that keep browsers from interpreting it. A refusal is sent as
/// content with status 200, as clients of these two routes expect.
async fn content(opened: Result<Pieces, ApiError>) -> Reply {
    let refusal = |error: ApiError| Reply::raw(TEXT, error.message);
    let mut pieces = match opened {
        Ok(pieces) => pieces,
        Err(error) => return refusal(error),
    };
    let first = match pieces.next().await.transpose() {
        Ok(first) => first.unwrap_or_default(),
        Err(error) => return refusal(error),
    };
    let content_type = sniffed(&first);
    let body = Body::from_stream(stream::once(future::ready(Ok(first))).chain(pieces));
    Reply::raw(content_type, body)
        .header("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
        .header("x-content-type-options", "nosniff")
        .header("x-xss-protection", "1; mode=block")
}

/// Returns the media type: text or binary. HTML counts as text, so that browsers do not render it.
fn sniffed(first: &Bytes) -> &'static str {
    let head = &first[..first.len().min(512)];
    let binary = head.iter().any(|b| *b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b));
    if binary { "application/octet-stream" } else { TEXT }
}
