//! The stream of a selection: opens outputs, cuts them into lines, and reports what joins and ends.

use super::Selection;
use super::sources::{Omitted, Shown, Source, Sources};
use crate::dispatch;
use crate::http_body::Body;
use crate::state::HttpState;
use bytes::Bytes;
use caravan_base::percent;
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
/// The shortest time between two looks at the allocations.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// The time for the last lines of a task that has ended: its log may be written a moment after the report of its end.
const CLOSE_PAUSE: Duration = Duration::from_secs(2);
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
    Outputs { sources: Vec<Shown<'r>>, omitted: Omitted, most: usize },
    /// Lines of one output.
    #[serde(rename_all = "PascalCase")]
    Lines {
        #[serde(rename = "ID")]
        id: u32,
        lines: Vec<String>,
    },
    /// A sign of life.
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
    Data(Bytes),
    /// The end; the reason if it is not that of the log.
    End(Option<String>),
}

/// Cuts bytes that arrive in pieces into lines.
#[derive(Debug, Default)]
struct Cutter {
    open: Vec<u8>,
}

impl Cutter {
    fn add(&mut self, data: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(part);
            if part.ends_with(b"\n") || self.open.len() >= MAX_LINE {
                lines.extend(self.rest());
            }
        }
        lines
    }

    /// Returns the line that has no end so far.
    fn rest(&mut self) -> Option<String> {
        if self.open.is_empty() {
            return None;
        }
        let line = std::mem::take(&mut self.open);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        Some(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
    }
}

/// An output that is read.
struct Open {
    cutter: Cutter,
    /// Ends the output after its last lines.
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
    /// Lines of the stream that are not sent yet. Nothing is read while there are some, so they stay few.
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
        Self {
            state,
            server,
            secret,
            selection,
            sources: Sources::default(),
            pieces: SelectAll::new(),
            open: BTreeMap::new(),
            watch,
            is_due: true,
            next_look: Instant::now(),
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
                () = sleep_until(deadline) => return Some(Message::Alive {}.encoded()),
            }
        }
    }

    fn take(&mut self, id: u32, piece: Piece) {
        match piece {
            Piece::Data(data) => {
                let lines = self.open.get_mut(&id).map(|open| open.cutter.add(&data)).unwrap_or_default();
                self.send(id, lines);
            }
            Piece::End(failure) => {
                let rest = self.open.remove(&id).and_then(|mut open| open.cutter.rest());
                self.send(id, rest.into_iter().collect());
                self.sources.end(id, failure);
                self.describe();
                // An output that was left out may take the place.
                self.is_due |= self.selection.follow;
            }
        }
    }

    fn send(&mut self, id: u32, lines: Vec<String>) {
        if !lines.is_empty() {
            self.out.push_back(Message::Lines { id, lines }.encoded());
        }
    }

    fn describe(&mut self) {
        let (sources, omitted) = self.sources.shown();
        let message = Message::Outputs { sources, omitted, most: super::sources::MAX_OPEN };
        self.out.push_back(message.encoded());
    }

    /// Looks at the allocations, and opens and closes outputs; `None` if the caller may no longer see the job.
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
        let is_first = self.sources.is_new();
        let step = self.sources.update(candidates, index);
        for id in &step.close {
            if let Some(open) = self.open.get(id) {
                open.close.cancel();
            }
        }
        let has_new = !step.open.is_empty();
        for (id, source, is_live) in step.open {
            let close = CancellationToken::new();
            let pieces = self.read(&source, is_live && self.selection.follow, close.clone());
            self.open.insert(id, Open { cutter: Cutter::default(), close });
            self.pieces.push(pieces.map(move |piece| (id, piece)).boxed());
        }
        if has_new || is_first || before != self.sources.shown().1 {
            self.describe();
        }
        Some(())
    }

    /// Reads an output through the route of a single log.
    fn read(&self, source: &Source, follow: bool, close: CancellationToken) -> BoxStream<'static, Piece> {
        let uri = format!(
            "/v1/client/fs/logs/{}?task={}&type={}&follow={follow}&origin=end&offset={}&plain=true&whole_lines=true",
            percent::encode(source.alloc.as_str()),
            percent::encode(&source.task),
            source.output.0.as_str(),
            self.selection.tail,
        );
        let (state, secret) = (self.state.clone(), self.secret.clone());
        let opened = stream::once(opened(state, uri, secret)).flatten();
        let closed = async move {
            close.cancelled().await;
            sleep(CLOSE_PAUSE).await;
        };
        // The end that the stream itself reports is the last piece; after a request to close, this one is.
        let pieces = opened.take_until(Box::pin(closed)).chain(stream::once(future::ready(Piece::End(None))));
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
    let failed = |reason: String| stream::once(future::ready(Piece::End(Some(reason)))).boxed();
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    match (uri.parse(), HeaderValue::from_str(&secret)) {
        (Ok(uri), Ok(secret)) => {
            *request.uri_mut() = uri;
            request.headers_mut().insert("x-nomad-token", secret);
        }
        _ => return failed("the request cannot be made".into()),
    }
    let response = Box::pin(dispatch::handle(state, request)).await;
    if !response.status().is_success() {
        let text = Limited::new(response.into_body(), MAX_REFUSAL).collect().await;
        let text = text.map(Collected::to_bytes).unwrap_or_default();
        return failed(String::from_utf8_lossy(&text).trim().to_owned());
    }
    let pieces = response.into_body().into_data_stream().map(|piece| match piece {
        Ok(data) => Piece::Data(data),
        Err(error) => Piece::End(Some(format!("the log broke off: {error}"))),
    });
    pieces.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_whole_and_bounded() {
        let mut cutter = Cutter::default();
        assert_eq!(cutter.add(b"one\r\ntw"), ["one"]);
        assert_eq!(cutter.add(b"o\n\nthree"), ["two", ""]);
        assert_eq!((cutter.rest(), cutter.rest()), (Some("three".into()), None));
        let pieces: Vec<String> = (0..5).flat_map(|_| cutter.add(&vec![b'x'; MAX_LINE / 2])).collect();
        assert_eq!((pieces.len(), cutter.open.len()), (2, MAX_LINE / 2));
        assert_eq!(cutter.add(&[0xff, b'\n']).len(), 1, "bytes that are no text are replaced");
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_pieces(text in "[ab\n]{0,60}", at in 0usize..60) {
            let at = at.min(text.len());
            let mut whole = Cutter::default();
            let lines: Vec<String> = whole.add(text.as_bytes()).into_iter().chain(whole.rest()).collect();
            let mut parts = Cutter::default();
            let mut got = parts.add(&text.as_bytes()[..at]);
            got.extend(parts.add(&text.as_bytes()[at..]));
            got.extend(parts.rest());
            prop_assert_eq!(got, lines);
        }
    }
}
