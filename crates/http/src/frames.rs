//! Streams of file content: frames with heartbeats, or raw bytes (docs/reference/http-api.md, section 4.1).

use crate::client_side::{ClientSideError, Frame, Frames};
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Maximum content of one frame, in bytes.
const MAX_DATA: usize = 64 * 1024;

/// Encodes frames as JSON objects without separators; `{}` is the heartbeat of an idle stream.
pub(crate) fn framed(frames: Frames, stopping: CancellationToken) -> Body {
    let objects = frames.flat_map(|frame| {
        stream::iter(match frame {
            Ok(frame) => split(frame).into_iter().map(|f| Ok(object(&f))).collect::<Vec<_>>(),
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
    objects: stream::BoxStream<'static, Result<Bytes, ClientSideError>>,
    every: Duration,
) -> impl Stream<Item = Result<Bytes, ClientSideError>> + Send {
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
        let event = if parts.is_empty() { frame.event.clone() } else { String::new() };
        parts.push(Frame { data: piece, file: frame.file.clone(), offset, event });
    }
    parts
}

/// Encodes a frame; empty fields are omitted.
fn object(frame: &Frame) -> Bytes {
    let mut map = Map::new();
    if !frame.data.is_empty() {
        map.insert("Data".into(), json!(STANDARD.encode(&frame.data)));
    }
    if !frame.file.is_empty() {
        map.insert("File".into(), json!(frame.file));
    }
    if !frame.event.is_empty() {
        map.insert("FileEvent".into(), json!(frame.event));
    }
    if frame.offset != 0 {
        map.insert("Offset".into(), json!(frame.offset));
    }
    Bytes::from(crate::encode(&Value::Object(map), false))
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
            event: String::new(),
        };
        assert_eq!(
            object(&frame),
            r#"{"Data":"YWxwaGEKYmV0YQpnYW1tYQo=","File":"talker/local/data/words.txt","Offset":17}"#
        );
        assert_eq!(object(&Frame::default()), "{}");
    }

    #[test]
    fn long_content_is_split_with_its_positions() {
        let frame = Frame {
            data: Bytes::from(vec![7; MAX_DATA + 10]),
            file: "f".into(),
            offset: 100 + MAX_DATA as u64 + 10,
            event: String::new(),
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
