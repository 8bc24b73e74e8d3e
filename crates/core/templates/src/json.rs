//! The conversion of values from and to JSON.

use crate::session::Answer;
use crate::value::{map, text};
use gotmpl::Value;
use serde_json::Value as Json;

pub(crate) fn from_value(value: &Value) -> Json {
    match value {
        Value::Nil | Value::Function(_) => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => (*n).into(),
        Value::Uint(n) => (*n).into(),
        Value::Float(f) => serde_json::Number::from_f64(*f).map_or(Json::Null, Json::Number),
        Value::String(text) => Json::String(text.to_string()),
        Value::List(items) => Json::Array(items.iter().map(from_value).collect()),
        Value::Map(items) => {
            Json::Object(items.iter().map(|(key, value)| (key.to_string(), from_value(value))).collect())
        }
    }
}

pub(crate) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => Value::Int(n),
            (None, Some(n)) => Value::Uint(n),
            (None, None) => Value::Float(n.as_f64().unwrap_or_default()),
        },
        Json::String(s) => text(s),
        Json::Array(items) => Value::List(items.iter().map(value).collect()),
        Json::Object(items) => map(items.iter().map(|(key, item)| (key, value(item)))),
    }
}

/// Parses JSON. An empty text is an empty map, so that a value that is still missing is no error.
pub(crate) fn read(supplied: &str) -> Answer {
    if supplied.trim().is_empty() {
        return Ok(map::<&str>([]));
    }
    let json: Json = serde_json::from_str(supplied).map_err(|error| format!("this is no JSON: {error}"))?;
    Ok(value(&json))
}

/// Formats JSON indented by two spaces.
pub(crate) fn pretty(json: &Json) -> String {
    format!("{json:#}")
}

/// Escapes JSON as Go does, safe for HTML.
pub(crate) fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}
