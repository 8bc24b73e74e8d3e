//! The event stream (docs/reference/http-api.md, section 4.3).

use crate::client::Client;
use crate::error::Error;
use crate::query::QueryOptions;
use bytes::{Buf as _, Bytes, BytesMut};
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

const PATH: &str = "/v1/event/stream";

/// The events of one index. A batch without events is a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EventBatch {
    /// The index of the change.
    pub index: u64,
    /// The events as the agent sends them.
    pub events: Vec<Value>,
}

/// A stream of event batches, from [`Client::events`].
#[derive(Debug)]
pub struct EventStream(JsonLines);

/// A stream with one JSON value in each line.
#[derive(Debug)]
pub(crate) struct JsonLines {
    client: Client,
    path: &'static str,
    body: Incoming,
    buffer: BytesMut,
}

impl Client {
    /// Follows events. `topics` are `Topic`, `Topic:key` or `*`; an empty list means all topics. `index` 0 starts
    /// with the next change.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn events(
        &self,
        topics: &[String],
        index: u64,
        query: &QueryOptions,
    ) -> Result<EventStream, Error> {
        self.stream(topics, index, query.clone()).await
    }

    /// Follows the newest row of each object, sent at most once in `pause` (10 ms to 60 s, `coalesce`). A slow reader
    /// misses intermediate changes, never an object. Only Caravan's agents support this; other agents send each
    /// change.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn newest_events(
        &self,
        topics: &[String],
        index: u64,
        pause: Duration,
        query: &QueryOptions,
    ) -> Result<EventStream, Error> {
        let query = query.clone().param("coalesce", format!("{}ms", pause.as_millis()));
        self.stream(topics, index, query).await
    }

    async fn stream(&self, topics: &[String], index: u64, query: QueryOptions) -> Result<EventStream, Error> {
        let mut query = topics.iter().fold(query, |query, topic| query.param("topic", topic));
        if index > 0 {
            query = query.param("index", index.to_string());
        }
        let answer = self.send(Method::GET, PATH, &query, &[], Bytes::new()).await?;
        Ok(EventStream(JsonLines::new(self.clone(), PATH, answer.into_body())))
    }
}

impl EventStream {
    /// Returns the next batch; `None` at the end. Cancel-safe between batches: dropping the future loses nothing.
    ///
    /// # Errors
    /// Fails if the connection breaks or the stream does not consist of events.
    pub async fn next(&mut self) -> Result<Option<EventBatch>, Error> {
        self.0.next().await
    }
}

impl JsonLines {
    pub(crate) fn new(client: Client, path: &'static str, body: Incoming) -> Self {
        Self { client, path, body, buffer: BytesMut::new() }
    }

    /// Returns the next value; `None` at the end. Cancel safe.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.copy_to_bytes(end + 1);
                return match serde_json::from_slice(&line) {
                    Ok(value) => Ok(Some(value)),
                    Err(source) => Err(Error::Decode { path: self.path.to_owned(), source }),
                };
            }
            match self.body.frame().await {
                Some(Ok(chunk)) => {
                    if let Ok(data) = chunk.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(source)) => return Err(self.client.broken(self.path, source)),
                None => return Ok(None),
            }
        }
    }
}
