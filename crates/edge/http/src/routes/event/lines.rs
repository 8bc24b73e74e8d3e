//! The lines of a stream: of each change, or of the newest row of each object.

use super::reasons::{self, Reasons};
use super::render::render;
use super::{Filter, Who};
use bytes::Bytes;
use caravan_state::{CoalescedReader, EventBatch, EventReader};
use futures::{Stream, stream};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The stage of a stream.
enum Stage {
    /// The first line, a heartbeat, is sent immediately.
    Opening,
    Following,
    Over,
}

/// Returns the lines of all events. A reader that falls behind receives an error and the end.
pub(super) fn each(
    reader: EventReader,
    filter: Filter,
    who: Who,
    heartbeat: Duration,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let begin = (reader, filter, who, Stage::Opening);
    Box::pin(stream::unfold(begin, move |(mut reader, filter, who, stage)| async move {
        match stage {
            Stage::Opening => Some((Ok(who.opening()), (reader, filter, who, Stage::Following))),
            Stage::Over => None,
            Stage::Following => {
                let deadline = tokio::time::Instant::now() + heartbeat;
                loop {
                    let next = tokio::select! {
                        next = tokio::time::timeout_at(deadline, reader.next()) => next,
                        () = who.lost() => return None,
                    };
                    match next {
                        Err(_) => return Some((Ok(alive()), (reader, filter, who, Stage::Following))),
                        Ok(Err(missed)) => {
                            // Clients that do not support this key ignore the line as a heartbeat, and then see the
                            // end of the stream.
                            let line = line(&json!({"Error": missed.to_string()}));
                            return Some((Ok(line), (reader, filter, who, Stage::Over)));
                        }
                        Ok(Ok(batch)) => {
                            let caller = who.now()?;
                            if let Some(line) =
                                render(&batch, &|event| filter.takes(event), &caller, who.facts())
                            {
                                return Some((Ok(line), (reader, filter, who, Stage::Following)));
                            }
                        }
                    }
                }
            }
        }
    }))
}

/// Returns the lines of the newest row of each object. The stream takes events at most once in a time, and a reader
/// of any pace never falls behind: meanwhile its events are replaced by newer ones.
pub(super) fn newest(
    reader: CoalescedReader,
    filter: Arc<Filter>,
    who: Who,
    from: u64,
    pause: Duration,
    heartbeat: Duration,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let reasons = who.facts().map(Reasons::follow);
    let sent = from.saturating_sub(1);
    let begin =
        Newest { reader, filter, who, pause, heartbeat, reasons, sent, taken: VecDeque::new(), next: None };
    Box::pin(stream::unfold((begin, Stage::Opening), |(mut state, stage)| async move {
        let (line, stage) = match stage {
            Stage::Opening => (state.who.opening(), Stage::Following),
            Stage::Following => state.line().await?,
            Stage::Over => return None,
        };
        Some((Ok(line), (state, stage)))
    }))
}

struct Newest {
    reader: CoalescedReader,
    filter: Arc<Filter>,
    who: Who,
    pause: Duration,
    heartbeat: Duration,
    /// The wait reasons of volumes, if the caller requested the facts that only Caravan has.
    reasons: Option<Reasons>,
    /// The newest index that was sent. An event of a reason has this index too, because no command changed the row.
    sent: u64,
    /// Events that were taken and not yet sent.
    taken: VecDeque<EventBatch>,
    /// The time at which events may be taken again.
    next: Option<Instant>,
}

impl Newest {
    /// Returns the next line; `None` when the caller loses the right.
    async fn line(&mut self) -> Option<(Bytes, Stage)> {
        let deadline = Instant::now() + self.heartbeat;
        loop {
            while let Some(batch) = self.taken.pop_front() {
                // Each line has its own check, because a slow reader can take minutes for all of them.
                let caller = self.who.now()?;
                self.sent = self.sent.max(batch.index);
                if let Some(line) = render(&batch, &|_| true, &caller, self.who.facts()) {
                    return Some((line, Stage::Following));
                }
            }
            let (reader, next) = (&mut self.reader, self.next);
            let due = async {
                reader.changed().await;
                if let Some(next) = next {
                    tokio::time::sleep_until(next).await;
                }
            };
            tokio::select! {
                due = timeout_at(deadline, due) => if due.is_err() {
                    // The reader may have seen a change already. The next call must not wait for another one.
                    self.reader.again();
                    return Some((alive(), Stage::Following));
                },
                () = reasons::changed(self.reasons.as_mut()) => {
                    self.take_reasons();
                    continue;
                }
                () = self.who.lost() => return None,
            }
            match self.reader.take() {
                Ok(batches) => self.taken = batches.into(),
                Err(missed) => return Some((line(&json!({"Error": missed.to_string()})), Stage::Over)),
            }
            self.next = Some(Instant::now() + self.pause);
        }
    }

    fn take_reasons(&mut self) {
        let root = self.who.server.store().snapshot();
        let events = self.reasons.as_mut().map(|reasons| reasons.take(&root)).unwrap_or_default();
        let events: Vec<_> = events.into_iter().filter(|event| self.filter.takes(event)).collect();
        if !events.is_empty() {
            self.taken.push_back(EventBatch { index: self.sent, events });
        }
    }
}

pub(super) fn alive() -> Bytes {
    Bytes::from_static(b"{}\n")
}

pub(super) fn line(value: &Value) -> Bytes {
    let mut text = crate::encode(value, false);
    text.push(b'\n');
    Bytes::from(text)
}
