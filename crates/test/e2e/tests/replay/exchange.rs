//! A recorded exchange: a request and its answer.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};
use std::fs;

/// The body of a request or an answer.
#[derive(Clone, Debug)]
pub enum Body {
    /// No body, or a body of which only the length was recorded.
    Unrecorded,
    Json(Value),
    Text(String),
    /// A stream: one document or line of text each.
    Lines(Vec<Value>),
    /// The messages of a websocket.
    Frames(Vec<Value>),
}

#[derive(Clone, Debug)]
pub struct Exchange {
    pub topic: &'static str,
    /// The place in its topic.
    pub at: usize,
    pub note: String,
    pub method: String,
    /// The path as sent, with escapes.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// The query as one text, if it does not consist of pairs.
    pub raw_query: String,
    pub headers: Vec<(String, String)>,
    pub request: Body,
    pub status: u16,
    /// The headers; names are in lower case.
    pub answer_headers: Vec<(String, String)>,
    /// Whether headers were recorded.
    pub has_headers: bool,
    pub answer: Body,
    /// Whether the recorded list or text was cut.
    pub trimmed: bool,
}

impl Exchange {
    pub fn is_get(&self) -> bool {
        self.method == "GET"
    }

    /// Returns the name of the exchange: `topic 3 GET /v1/jobs`.
    pub fn name(&self) -> String {
        format!("{} {} {} {}", self.topic, self.at, self.method, self.path)
    }

    fn read(topic: &'static str, at: usize, value: &Value) -> Result<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut query, mut raw_query) = (Vec::new(), String::new());
        match value.get("query") {
            Some(Value::Object(map)) => query = pairs(map),
            Some(Value::String(raw)) => raw_query.clone_from(raw),
            _ => {}
        }
        let request = match value.get("request_body") {
            None => Body::Unrecorded,
            Some(Value::String(text)) => Body::Text(text.clone()),
            Some(json) => Body::Json(json.clone()),
        };
        let list = |key: &str| value.get(key).and_then(Value::as_array).cloned();
        let answer = if let Some(frames) = list("frames") {
            Body::Frames(frames)
        } else if let Some(lines) = list("body_lines") {
            Body::Lines(lines)
        } else if let Some(json) = value.get("body") {
            Body::Json(json.clone())
        } else if let Some(text) = value.get("body_text").and_then(Value::as_str) {
            Body::Text(text.to_owned())
        } else {
            Body::Unrecorded
        };
        let headers = |key: &str| value.get(key).and_then(Value::as_object).map(pairs);
        let answer_headers = headers("headers");
        Ok(Self {
            topic,
            at,
            note: text("note"),
            method: text("method"),
            path: text("path"),
            query,
            raw_query,
            headers: headers("request_headers").unwrap_or_default(),
            request,
            status: u16::try_from(value["status"].as_u64().context("no status")?)?,
            has_headers: answer_headers.is_some(),
            answer_headers: answer_headers
                .unwrap_or_default()
                .into_iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value))
                .collect(),
            answer,
            trimmed: value.get("body_trimmed_from").is_some()
                || value.get("body_text_trimmed_from").is_some(),
        })
    }
}

/// Returns the pairs of a query; a list as a value stands for a repeated parameter.
fn pairs(map: &Map<String, Value>) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    map.iter()
        .flat_map(|(key, value)| match value {
            Value::Array(items) => items.iter().map(|item| (key.clone(), text(item))).collect(),
            one => vec![(key.clone(), text(one))],
        })
        .collect()
}

/// Loads the exchanges of a topic, in order.
pub fn load(topic: &'static str) -> Result<Vec<Exchange>> {
    let path = caravan_testkit::workspace("fixtures/http").join(format!("{topic}.json"));
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let Value::Array(items) = serde_json::from_str(&text)? else {
        bail!("{} is not a list", path.display());
    };
    items
        .iter()
        .enumerate()
        .map(|(at, item)| Exchange::read(topic, at, item).with_context(|| format!("{topic} {at}")))
        .collect()
}
