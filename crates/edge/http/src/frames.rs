//! Streams of file content: frames with heartbeats, or raw bytes (docs/reference/http-api.md, section 4.1).

use crate::error::ApiError;
use crate::http_body::Body;
use crate::reply;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use caravan_client::fs;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Maximum content of one frame, in bytes.
const MAX_DATA: usize = 64 * 1024;

/// A piece of a stream, in the shape that clients read; empty fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Frame {
    /// A piece of the file; empty in a frame that only reports an event.
    #[serde(skip_serializing_if = "Bytes::is_empty", serialize_with = "base64")]
    pub(crate) data: Bytes,
    /// The path below the allocation directory; empty for logs of agents.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) file: String,
    /// The event of the file, or `log` for logs of agents.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) file_event: &'static str,
    /// The position after the content.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) offset: u64,
}

fn base64<S: Serializer>(data: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(data))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl From<fs::Frame> for Frame {
    fn from(frame: fs::Frame) -> Self {
        Self {
            data: Bytes::from(frame.data),
            file: frame.file,
            file_event: frame.event.map_or("", fs::FileEvent::as_str),
            offset: frame.offset,
        }
    }
}

/// A stream of frames; an error is the last item.
pub(crate) type Frames = BoxStream<'static, Result<Frame, ApiError>>;

/// Converts the frames of a file or log of an allocation.
pub(crate) fn of_client(frames: fs::Frames) -> Frames {
    frames.map(|frame| Ok(frame?.into())).boxed()
}

/// Drops the rest of a cut line at the beginning of the content, if the first piece contains the end of that
/// line.
pub(crate) fn whole_lines(frames: Frames) -> Frames {
    let mut is_first = true;
    frames
        .map(move |frame| {
            let mut frame = frame?;
            if is_first && !frame.data.is_empty() {
                is_first = false;
                let begins_within = frame.offset > frame.data.len() as u64;
                let end = frame.data.iter().position(|byte| *byte == b'\n');
                if let Some(end) = end.filter(|_| begins_within) {
                    frame.data = frame.data.slice(end + 1..);
                }
            }
            Ok(frame)
        })
        .boxed()
}

/// A piece of a stream that another route or agent encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Received {
    #[serde(deserialize_with = "from_base64")]
    pub(crate) data: Vec<u8>,
    pub(crate) file: String,
    pub(crate) file_event: String,
    /// The position after the content.
    pub(crate) offset: u64,
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(|_| de::Error::custom("Data is not base64"))
}

/// Reads frames that [`framed`] encoded, from bytes that arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Adds bytes and returns the frames that are complete with them.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<Vec<Received>, serde_json::Error> {
        self.buffer.extend_from_slice(bytes);
        let mut frames = Vec::new();
        let mut found = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Received>();
        let mut used = 0;
        while let Some(frame) = found.next() {
            match frame {
                Ok(frame) => {
                    used = found.byte_offset();
                    frames.push(frame);
                }
                Err(error) if error.is_eof() => break,
                Err(error) => return Err(error),
            }
        }
        self.buffer.advance(used);
        Ok(frames)
    }
}

/// Encodes frames as JSON objects without separators; `{}` is the heartbeat of an idle stream.
pub(crate) fn framed(frames: Frames, stopping: CancellationToken) -> Body {
    let objects = frames.flat_map(|frame| {
        stream::iter(match frame {
            Ok(frame) => split(frame).into_iter().map(|f| object(&f)).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    });
    Body::from_stream(with_heartbeats(objects.boxed(), HEARTBEAT).take_until(stopping.cancelled_owned()))
}

/// Streams the content without frames.
pub(crate) fn plain(frames: Frames, stopping: CancellationToken) -> Body {
    let content = frames.map(|frame| frame.map(|frame| frame.data));
    Body::from_stream(content.take_until(stopping.cancelled_owned()))
}

fn with_heartbeats(
    objects: BoxStream<'static, Result<Bytes, ApiError>>,
    every: Duration,
) -> impl Stream<Item = Result<Bytes, ApiError>> + Send {
    stream::unfold(Some(objects), move |objects| async move {
        let mut objects = objects?;
        match tokio::time::timeout(every, objects.next()).await {
            Ok(Some(Ok(object))) => Some((Ok(object), Some(objects))),
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Ok(None) => None,
            Err(_) => Some((Ok(Bytes::from_static(b"{}")), Some(objects))),
        }
    })
}

fn split(frame: Frame) -> Vec<Frame> {
    if frame.data.len() <= MAX_DATA {
        return vec![frame];
    }
    let mut offset = frame.offset.saturating_sub(frame.data.len() as u64);
    let mut parts = Vec::new();
    let mut data = frame.data;
    while !data.is_empty() {
        let piece = data.split_to(data.len().min(MAX_DATA));
        offset += piece.len() as u64;
        let file_event = if parts.is_empty() { frame.file_event } else { "" };
        parts.push(Frame { data: piece, file: frame.file.clone(), file_event, offset });
    }
    parts
}

fn object(frame: &Frame) -> Result<Bytes, ApiError> {
    Ok(Bytes::from(crate::encode(&reply::to_value(frame)?, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_out_what_is_empty() {
        let frame = Frame {
            data: Bytes::from_static(b"alpha\nbeta\ngamma\n"),
            file: "talker/local/data/words.txt".into(),
            offset: 17,
            file_event: "",
        };
        assert_eq!(
            object(&frame).unwrap(),
            r#"{"Data":"YWxwaGEKYmV0YQpnYW1tYQo=","File":"talker/local/data/words.txt","Offset":17}"#
        );
        assert_eq!(object(&Frame::default()).unwrap(), "{}");
    }

    #[tokio::test]
    async fn content_that_begins_within_a_line_begins_with_the_next_one() {
        for (pieces, offset, expected) in [
            (["ne\ntwo\n", "three\n"], 100, "two\nthree\n"),
            // The file begins here.
            (["one\ntwo\n", "three\n"], 8, "one\ntwo\nthree\n"),
            // A line that is longer than the content is kept in part.
            (["a part", " of a line\nnext\n"], 100, "a part of a line\nnext\n"),
        ] {
            let mut offset = offset;
            let frames = pieces.map(|text| {
                let frame = Frame { data: Bytes::from(text), offset, ..Frame::default() };
                offset += text.len() as u64;
                Ok(frame)
            });
            let frames = whole_lines(stream::iter(frames).boxed());
            let got: Vec<u8> = frames.flat_map(|frame| stream::iter(frame.unwrap().data)).collect().await;
            assert_eq!(String::from_utf8(got).unwrap(), expected);
        }
    }

    #[test]
    fn encoded_frames_are_read_wherever_their_bytes_are_cut() {
        let frame = Frame {
            data: Bytes::from_static(b"one\n"),
            file: "alloc/logs/t.stdout.3".into(),
            offset: 9,
            file_event: "",
        };
        let text =
            [object(&frame).unwrap(), object(&Frame::default()).unwrap(), object(&frame).unwrap()].concat();
        let expected =
            Received { data: b"one\n".to_vec(), file: frame.file, file_event: String::new(), offset: 9 };
        for step in 1..text.len() {
            let mut decoder = Decoder::default();
            let found: Vec<Received> =
                text.chunks(step).flat_map(|piece| decoder.add(piece).unwrap()).collect();
            assert_eq!(
                found,
                [expected.clone(), Received::default(), expected.clone()],
                "pieces of {step} bytes"
            );
        }
        assert!(Decoder::default().add(b"<html>").is_err());
        assert!(Decoder::default().add(br#"{"Data":"%"}"#).is_err());
    }

    #[test]
    fn long_content_is_split_with_its_positions() {
        let frame = Frame {
            data: Bytes::from(vec![7; MAX_DATA + 10]),
            file: "f".into(),
            offset: 100 + MAX_DATA as u64 + 10,
            file_event: "",
        };
        let parts = split(frame);
        let seen: Vec<(usize, u64)> = parts.iter().map(|f| (f.data.len(), f.offset)).collect();
        assert_eq!(seen, [(MAX_DATA, 100 + MAX_DATA as u64), (10, 110 + MAX_DATA as u64)]);
    }

    #[tokio::test]
    async fn an_idle_stream_beats() {
        let idle = stream::pending().boxed();
        let beats: Vec<_> = with_heartbeats(idle, Duration::from_millis(1)).take(2).collect().await;
        assert!(beats.iter().all(|beat| beat.as_ref().is_ok_and(|beat| beat == "{}")));
    }

    #[tokio::test]
    async fn a_followed_stream_ends_when_the_agent_stops() {
        let stopping = CancellationToken::new();
        stopping.cancel();
        for body in
            [framed(stream::pending().boxed(), stopping.clone()), plain(stream::pending().boxed(), stopping)]
        {
            assert!(body.into_data_stream().next().await.is_none());
        }
    }
}
