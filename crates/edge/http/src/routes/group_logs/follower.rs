//! The stream of a selection, which opens outputs, cuts them into lines, and reports outputs that join and end.

use super::Selection;
use super::sources::{Begin, Omitted, Opening, Shown, Sources};
use crate::dispatch;
use crate::frames::{Decoder, Received};
use crate::http_body::Body;
use crate::state::HttpState;
use bytes::Bytes;
use caravan_base::percent;
use caravan_client::fs::{FileEvent, LogPlace};
use caravan_server::{Handle, NsCap};
use caravan_state::{Reads, Watch};
use futures::stream::{self, BoxStream, SelectAll};
use futures::{Stream, StreamExt as _, future};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Collected, Limited};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The shortest time between two reads of the allocations.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// The time for the last lines of a task that has ended: its log may be written a moment after the report of its end.
const CLOSE_PAUSE: Duration = Duration::from_secs(2);
/// The shortest and the longest pause before an output that broke off is opened again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(15);
/// The longest line, in bytes. A longer one is sent in pieces.
const MAX_LINE: usize = 16 * 1024;
/// The most bytes of a refusal that are read.
const MAX_REFUSAL: usize = 4096;

/// A line of the stream.
#[derive(Serialize)]
#[serde(untagged)]
enum Message<'r> {
    /// All outputs, after each change.
    #[serde(rename_all = "PascalCase")]
    Outputs { sources: Vec<Shown<'r>>, omitted: Omitted, most: usize, since: Option<u64> },
    /// Lines of one output.
    #[serde(rename_all = "PascalCase")]
    Lines {
        #[serde(rename = "ID")]
        id: u32,
        lines: Vec<String>,
        /// The place after the lines, at which a later stream continues.
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<String>,
    },
    /// A heartbeat.
    Alive {},
}

impl Message<'_> {
    fn encoded(&self) -> Bytes {
        // All shapes have string keys, so encoding cannot fail.
        let mut text = serde_json::to_vec(self).unwrap_or_default();
        text.push(b'\n');
        text.into()
    }
}

/// A piece of an output.
enum Piece {
    /// Bytes, and the place after them.
    Data(Vec<u8>, LogPlace),
    /// The log begins again: the following bytes have not been read.
    Again,
    End(End),
}

/// The end of an output.
struct End {
    /// The reason, if it is not the end of the log.
    failure: Option<String>,
    /// Whether the output may be readable later: its node or its agent ended the stream.
    may_return: bool,
}

impl End {
    /// Returns the piece that reports a failure.
    fn failed(reason: String, may_return: bool) -> Piece {
        Piece::End(Self { failure: Some(reason), may_return })
    }
}

/// Cuts bytes that arrive in pieces into lines.
#[derive(Debug, Default)]
struct Cutter {
    open: Vec<u8>,
    /// The place after the lines that were cut.
    cut: Option<LogPlace>,
    /// The place after all bytes.
    end: Option<LogPlace>,
}

impl Cutter {
    /// Returns a cutter for the bytes after a place.
    fn after(place: Option<LogPlace>) -> Self {
        Self { open: Vec::new(), cut: place, end: place }
    }

    /// Adds bytes, and returns the lines that are whole. Bytes before the known end are dropped: an agent of an older
    /// version does not begin at the requested place, but before.
    fn add(&mut self, data: &[u8], end: LogPlace) -> Vec<String> {
        let from = |length: usize| LogPlace { offset: end.offset.saturating_sub(length as u64), ..end };
        let known = match self.end {
            Some(before) if before >= end => data.len(),
            Some(before) if before > from(data.len()) => {
                usize::try_from(before.offset - from(data.len()).offset).unwrap_or(data.len())
            }
            _ => 0,
        };
        let mut rest = data.get(known..).unwrap_or_default();
        let mut lines = Vec::new();
        while !rest.is_empty() {
            let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            let (part, others) = rest.split_at(length);
            rest = others;
            self.open.extend_from_slice(part);
            self.end = Some(from(rest.len()));
            if part.ends_with(b"\n") || self.open.len() >= MAX_LINE {
                lines.extend(self.rest());
            }
        }
        lines
    }

    /// Returns the line that has no end yet.
    fn rest(&mut self) -> Option<String> {
        if self.open.is_empty() {
            return None;
        }
        self.cut = self.end;
        let line = std::mem::take(&mut self.open);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        Some(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
    }
}

/// An output that is read.
struct Open {
    cutter: Cutter,
    /// The token that ends the output after its last lines.
    close: CancellationToken,
}

pub(super) struct Follower {
    state: Arc<HttpState>,
    server: Handle,
    secret: String,
    selection: Selection,
    sources: Sources,
    pieces: SelectAll<BoxStream<'static, (u32, Piece)>>,
    open: BTreeMap<u32, Open>,
    watch: Watch,
    /// Whether allocations have changed since the last look.
    is_due: bool,
    next_look: Instant,
    has_looked: bool,
    /// The time at which outputs that broke off are opened again.
    retry: Option<Instant>,
    /// The number of times that outputs broke off without any bytes between.
    failures: u32,
    /// The lines of the stream that are not sent yet. Nothing is read while there are such lines, so they stay few.
    out: VecDeque<Bytes>,
}

impl Follower {
    pub(super) fn new(state: Arc<HttpState>, server: Handle, secret: String, selection: Selection) -> Self {
        let topics = {
            let root = server.store().snapshot();
            let reads = Reads::new(&root);
            let _ = reads.allocs_by_job(&selection.key).next();
            reads.into_topics()
        };
        // The first look follows the registration, so that no change between the two is missed.
        let watch = server.store().watch().on_all(topics).start();
        let sources = Sources::resume(selection.since, selection.after.clone());
        Self {
            state,
            server,
            secret,
            selection,
            sources,
            pieces: SelectAll::new(),
            open: BTreeMap::new(),
            watch,
            is_due: true,
            next_look: Instant::now(),
            has_looked: false,
            retry: None,
            failures: 0,
            out: VecDeque::new(),
        }
    }

    pub(super) fn lines(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        Box::pin(stream::unfold(self, |mut this| async move {
            let line = this.next().await?;
            Some((Ok(line), this))
        }))
    }

    /// Returns the next line of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        let deadline = Instant::now() + HEARTBEAT;
        loop {
            if let Some(line) = self.out.pop_front() {
                return Some(line);
            }
            // Without following, the stream ends with its outputs.
            if !self.selection.follow && !self.is_due && self.pieces.is_empty() {
                return None;
            }
            tokio::select! {
                Some((id, piece)) = self.pieces.next(), if !self.pieces.is_empty() => self.take(id, piece),
                () = self.watch.changed(), if !self.is_due && self.selection.follow => self.is_due = true,
                () = sleep_until(self.next_look), if self.is_due => self.look()?,
                () = sleep_until(self.retry.unwrap_or(deadline)), if self.retry.is_some() => {
                    self.retry = None;
                    self.sources.retry();
                    self.is_due = true;
                }
                () = sleep_until(deadline) => return Some(Message::Alive {}.encoded()),
            }
        }
    }

    fn take(&mut self, id: u32, piece: Piece) {
        match piece {
            Piece::Data(data, end) => {
                self.failures = 0;
                let lines =
                    self.open.get_mut(&id).map(|open| open.cutter.add(&data, end)).unwrap_or_default();
                self.send(id, lines);
            }
            Piece::Again => {
                if let Some(open) = self.open.get_mut(&id) {
                    open.cutter = Cutter::default();
                }
            }
            Piece::End(End { failure, may_return }) => {
                let is_closing = self.open.get(&id).is_some_and(|open| open.close.is_cancelled());
                // A line without an end continues if the output continues.
                let is_over = is_closing || !may_return;
                let rest = self.open.get_mut(&id).filter(|_| is_over).and_then(|open| open.cutter.rest());
                self.send(id, rest.into_iter().collect());
                self.open.remove(&id);
                if self.sources.end(id, failure, may_return) && self.selection.follow {
                    self.failures = self.failures.saturating_add(1);
                    let pause = RETRY_PAUSE.saturating_mul(1 << self.failures.min(6)).min(MAX_RETRY_PAUSE);
                    self.retry.get_or_insert(Instant::now() + pause);
                }
                self.describe();
                // An omitted output may take the place.
                self.is_due |= self.selection.follow;
            }
        }
    }

    fn send(&mut self, id: u32, lines: Vec<String>) {
        if lines.is_empty() {
            return;
        }
        let at = self.open.get(&id).and_then(|open| open.cutter.cut);
        if let Some(at) = at {
            self.sources.reach(id, at);
        }
        self.out.push_back(Message::Lines { id, lines, at: at.map(|at| at.to_string()) }.encoded());
    }

    fn describe(&mut self) {
        let (sources, omitted) = self.sources.shown();
        let since = self.sources.since();
        let message = Message::Outputs { sources, omitted, most: super::sources::MAX_OPEN, since };
        self.out.push_back(message.encoded());
    }

    /// Compares the outputs with the allocations, and opens and closes outputs; `None` if the caller may no longer
    /// see the job.
    fn look(&mut self) -> Option<()> {
        self.is_due = false;
        self.next_look = Instant::now() + LOOK_PAUSE;
        let caller = self.server.admin().caller(&self.secret).ok()?;
        if !caller.may(self.selection.key.namespace.as_str(), NsCap::ReadJob) {
            return None;
        }
        let (candidates, index) = {
            let root = self.server.store().snapshot();
            (self.selection.candidates(&root), root.index())
        };
        let before = self.sources.shown().1;
        let is_first = !self.has_looked;
        self.has_looked = true;
        let step = self.sources.update(candidates, index);
        for id in &step.close {
            if let Some(open) = self.open.get(id) {
                open.close.cancel();
            }
        }
        let has_new = !step.open.is_empty();
        for opening in step.open {
            let close = CancellationToken::new();
            let pieces = self.read(&opening, close.clone());
            let place = match opening.begin {
                Begin::After(place) => Some(place),
                Begin::Tail | Begin::Start => None,
            };
            let id = opening.id;
            self.open.insert(id, Open { cutter: Cutter::after(place), close });
            self.pieces.push(pieces.map(move |piece| (id, piece)).boxed());
        }
        if has_new || is_first || before != self.sources.shown().1 {
            self.describe();
        }
        Some(())
    }

    /// Reads an output through the route of a single log.
    fn read(&self, opening: &Opening, close: CancellationToken) -> BoxStream<'static, Piece> {
        let Opening { source, begin, is_live, .. } = opening;
        let follow = *is_live && self.selection.follow;
        let tail = self.selection.tail;
        let start = match begin {
            Begin::Tail => format!("origin=end&offset={tail}&whole_lines=true"),
            Begin::Start => "origin=start".to_owned(),
            // An agent of an older version does not read `position`.
            Begin::After(place) => format!("position={place}&origin=end&offset={tail}"),
        };
        let uri = format!(
            "/v1/client/fs/logs/{}?task={}&type={}&follow={follow}&{start}",
            percent::encode(source.alloc.as_str()),
            percent::encode(&source.task),
            source.output.0.as_str(),
        );
        let (state, secret) = (self.state.clone(), self.secret.clone());
        let opened = stream::once(opened(state, uri, secret)).flatten();
        let closed = async move {
            close.cancelled().await;
            sleep(CLOSE_PAUSE).await;
        };
        // The last piece is the end that the stream itself reports, or this end after a request to close.
        let end = Piece::End(End { failure: None, may_return: follow });
        let pieces = opened.take_until(Box::pin(closed)).chain(stream::once(future::ready(end)));
        let until_end = pieces.scan(false, |is_over, piece| {
            let item = (!*is_over).then_some(piece);
            *is_over |= matches!(item, Some(Piece::End(_)));
            future::ready(item)
        });
        until_end.boxed()
    }
}

/// Opens an output.
async fn opened(state: Arc<HttpState>, uri: String, secret: String) -> BoxStream<'static, Piece> {
    let failed =
        |reason: String, may_return| stream::once(future::ready(End::failed(reason, may_return))).boxed();
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    match (uri.parse(), HeaderValue::from_str(&secret)) {
        (Ok(uri), Ok(secret)) => {
            *request.uri_mut() = uri;
            request.headers_mut().insert("x-nomad-token", secret);
        }
        _ => return failed("the request cannot be made".into(), false),
    }
    let response = Box::pin(dispatch::handle(state, request)).await;
    let status = response.status();
    if !status.is_success() {
        let text = Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
        let text = text.map(Collected::to_bytes).unwrap_or_default();
        return failed(String::from_utf8_lossy(&text).trim().to_owned(), status.is_server_error());
    }
    let frames = response.into_body().into_data_stream().scan(Decoder::default(), |decoder, bytes| {
        let pieces = match bytes.map(|bytes| decoder.add(&bytes)) {
            Ok(Ok(frames)) => frames.into_iter().filter_map(piece).collect(),
            Ok(Err(error)) => vec![End::failed(format!("the log cannot be read: {error}"), false)],
            Err(error) => vec![End::failed(format!("the log broke off: {error}"), true)],
        };
        future::ready(Some(stream::iter(pieces)))
    });
    frames.flatten().boxed()
}

/// Returns the piece of a frame; `None` for heartbeats.
fn piece(frame: Received) -> Option<Piece> {
    if frame.file_event == FileEvent::Truncated.as_str() {
        return Some(Piece::Again);
    }
    let end = LogPlace::locate(&frame.file, frame.offset)?;
    (!frame.data.is_empty()).then_some(Piece::Data(frame.data, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_whole_and_bounded() {
        let mut cutter = Cutter::default();
        let mut at = 0;
        let mut add = |cutter: &mut Cutter, data: &[u8]| {
            at += data.len() as u64;
            cutter.add(data, place(0, at))
        };
        assert_eq!(add(&mut cutter, b"one\r\ntw"), ["one"]);
        assert_eq!(add(&mut cutter, b"o\n\nthree"), ["two", ""]);
        assert_eq!((cutter.rest(), cutter.rest()), (Some("three".into()), None));
        let pieces: Vec<String> = (0..5).flat_map(|_| add(&mut cutter, &vec![b'x'; MAX_LINE / 2])).collect();
        assert_eq!((pieces.len(), cutter.open.len()), (2, MAX_LINE / 2));
        assert_eq!(add(&mut cutter, &[0xff, b'\n']).len(), 1, "bytes that are no text are replaced");
    }

    fn place(number: u64, offset: u64) -> LogPlace {
        LogPlace { number, offset }
    }

    #[test]
    fn the_place_is_after_the_lines_that_were_cut() {
        let mut cutter = Cutter::default();
        assert_eq!((cutter.add(b"tw", place(3, 90)), cutter.cut), (vec![], None));
        assert_eq!(cutter.add(b"o\nthree\nfo", place(4, 10)), ["two", "three"]);
        assert_eq!(cutter.cut, Some(place(4, 8)));
        assert_eq!((cutter.rest(), cutter.cut), (Some("fo".into()), Some(place(4, 10))));
    }

    #[test]
    fn what_an_earlier_stream_has_read_is_skipped() {
        let mut cutter = Cutter::after(Some(place(4, 4)));
        assert!(cutter.add(b"one\n", place(3, 20)).is_empty());
        assert_eq!(cutter.add(b"two\nthree\n", place(4, 10)), ["three"]);
        assert_eq!(cutter.add(b"four\n", place(5, 5)), ["four"]);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_pieces(text in "[ab\n]{0,60}", at in 0usize..60) {
            let at = at.min(text.len());
            let end = |at: usize| place(0, at as u64);
            let mut whole = Cutter::default();
            let lines: Vec<String> = whole.add(text.as_bytes(), end(text.len())).into_iter().chain(whole.rest()).collect();
            let mut parts = Cutter::default();
            let mut got = parts.add(&text.as_bytes()[..at], end(at));
            // A stream that continues after the last whole line has neither gaps nor repetitions.
            let cut = parts.cut.unwrap_or_default();
            let mut later = Cutter::after(Some(cut));
            let rest = text.get(usize::try_from(cut.offset).unwrap()..).unwrap();
            let resumed: Vec<String> = got.iter().cloned().chain(later.add(rest.as_bytes(), end(text.len()))).chain(later.rest()).collect();
            prop_assert_eq!(&resumed, &lines);
            got.extend(parts.add(&text.as_bytes()[at..], end(text.len())));
            got.extend(parts.rest());
            prop_assert_eq!(got, lines);
        }
    }
}
