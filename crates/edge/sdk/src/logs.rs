//! Streams of frames (docs/reference/http-api.md, section 4.1).

use crate::client::Client;
use crate::error::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Deserializer, de};

/// A piece of a file. A frame without content is a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Frame {
    /// The bytes of the file.
    #[serde(deserialize_with = "base64_bytes")]
    pub data: Vec<u8>,
    /// The path of the file, relative to the allocation's directory.
    pub file: String,
    /// `file deleted`, `file truncated`, or empty.
    pub file_event: String,
    /// The position in the file after `data`.
    pub offset: i64,
}

impl Frame {
    /// Returns whether the frame is only a heartbeat.
    pub fn is_heartbeat(&self) -> bool {
        *self == Self::default()
    }
}

fn base64_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    BASE64.decode(text).map_err(|_| de::Error::custom("Data is not base64"))
}

/// A decoder from a byte stream to frames, which are JSON objects without separators.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: BytesMut,
}

impl FrameDecoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete frame, if there is one.
    ///
    /// # Errors
    /// Fails if the bytes are not a frame; the rest of the stream cannot be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, serde_json::Error> {
        let mut frames = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Frame>();
        match frames.next() {
            Some(Ok(frame)) => {
                let used = frames.byte_offset();
                self.buffer.advance(used);
                Ok(Some(frame))
            }
            Some(Err(error)) if error.is_eof() => Ok(None),
            Some(Err(error)) => Err(error),
            None => {
                self.buffer.clear();
                Ok(None)
            }
        }
    }
}

/// A stream of frames from an agent.
#[derive(Debug)]
pub struct LogStream {
    client: Client,
    path: String,
    body: Incoming,
    decoder: FrameDecoder,
}

impl LogStream {
    pub(crate) fn new(client: Client, path: String, body: Incoming) -> Self {
        Self { client, path, body, decoder: FrameDecoder::default() }
    }

    /// Returns the next frame; `None` at the end. Cancel-safe between frames: dropping the future loses nothing.
    ///
    /// # Errors
    /// Fails if the connection breaks or the stream does not consist of frames.
    pub async fn next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            let frame = self
                .decoder
                .next_frame()
                .map_err(|source| Error::Decode { path: self.path.clone(), source })?;
            if frame.is_some() {
                return Ok(frame);
            }
            match self.body.frame().await {
                Some(Ok(chunk)) => {
                    if let Ok(data) = chunk.into_data() {
                        self.decoder.push(&data);
                    }
                }
                Some(Err(source)) => return Err(self.client.broken(&self.path, source)),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_wherever_the_bytes_are() {
        let stream = br#"{"Data":"bGluZSAxCg==","File":"alloc/logs/t.stdout.0","Offset":7}{}{"FileEvent":"file deleted"}"#;
        for step in 1..stream.len() {
            let mut decoder = FrameDecoder::default();
            let mut frames = Vec::new();
            for piece in stream.chunks(step) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.len(), 3, "step {step}");
            assert_eq!(frames[0].data, b"line 1\n");
            assert_eq!((frames[0].file.as_str(), frames[0].offset), ("alloc/logs/t.stdout.0", 7));
            assert!(frames[1].is_heartbeat() && !frames[2].is_heartbeat());
        }
    }

    #[test]
    fn rubbish_is_an_error() {
        let mut decoder = FrameDecoder::default();
        decoder.push(b"<html>");
        assert!(decoder.next_frame().is_err());
        let mut decoder = FrameDecoder::default();
        decoder.push(br#"{"Data":"%%%"}"#);
        assert!(decoder.next_frame().is_err());
    }
}
