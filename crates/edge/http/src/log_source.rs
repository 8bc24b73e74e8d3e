//! The agent's log for the monitor (docs/reference/http-api.md, section 3.7): records, and their two formats.

use caravan_types::{Time, UnixNanos};
use futures::stream::BoxStream;
use serde_json::{Map, Value, json};
use std::fmt::{self, Write as _};
use std::path::PathBuf;

/// The level of a record, ordered from the most severe to the most verbose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogLevel {
    /// A failure.
    Error = 1,
    /// An unexpected condition.
    Warn = 2,
    /// A normal event.
    #[default]
    Info = 3,
    /// Details for debugging.
    Debug = 4,
    /// All details.
    Trace = 5,
}

impl LogLevel {
    /// Parses a level, ignoring case.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "error" | "err" => Self::Error,
            "warn" => Self::Warn,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => return None,
        })
    }

    /// Returns the level's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// A record of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRecord {
    /// The time of the record.
    pub time: UnixNanos,
    /// The level of the record.
    pub level: LogLevel,
    /// The module of the program that wrote the record.
    pub module: String,
    /// The message of the record.
    pub message: String,
    /// The fields of the message, in the order of the record.
    pub fields: Vec<(String, String)>,
    /// The source location in the program.
    pub location: String,
}

/// The format of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notation {
    pub(crate) json: bool,
    pub(crate) location: bool,
}

impl LogRecord {
    /// Formats the record as one line with its newline.
    pub(crate) fn line(&self, notation: Notation) -> String {
        let mut line =
            if notation.json { self.object(notation.location) } else { self.text(notation.location) };
        line.push('\n');
        line
    }

    fn text(&self, location: bool) -> String {
        let mut out = format!("{} ", millis(self.time));
        let level = format!("[{}]", self.level.as_str().to_ascii_uppercase());
        // Writing to a string cannot fail, here and below.
        let _ = write!(out, "{level:<7} ");
        if location && !self.location.is_empty() {
            let _ = write!(out, "{}: ", self.location);
        }
        let _ = write!(out, "{}: {}", self.module, self.message);
        for (at, (key, value)) in self.fields.iter().enumerate() {
            out.push_str(if at == 0 { ": " } else { " " });
            let plain =
                !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '='));
            let _ = if plain { write!(out, "{key}={value}") } else { write!(out, "{key}={value:?}") };
        }
        out.replace('\n', " ")
    }

    fn object(&self, location: bool) -> String {
        let mut map = Map::new();
        if location && !self.location.is_empty() {
            map.insert("@caller".into(), json!(self.location));
        }
        map.insert("@level".into(), json!(self.level.as_str()));
        map.insert("@message".into(), json!(self.message));
        map.insert("@module".into(), json!(self.module));
        map.insert("@timestamp".into(), json!(Time(self.time.0)));
        for (key, value) in &self.fields {
            map.insert(key.clone(), json!(value));
        }
        String::from_utf8_lossy(&crate::encode(&Value::Object(map), false)).into_owned()
    }
}

/// Formats a time: `2026-11-21T09:19:38.870Z`.
fn millis(time: UnixNanos) -> String {
    let millis = time.0.div_euclid(1_000_000);
    let text = json!(Time(time.0.div_euclid(1_000_000_000).saturating_mul(1_000_000_000)));
    let text = text.as_str().unwrap_or_default().trim_end_matches('Z').to_owned();
    format!("{text}.{:03}Z", millis.rem_euclid(1000))
}

/// A stream of new records. A slow reader misses some records and receives a record that reports the loss.
pub type LogRecords = BoxStream<'static, std::sync::Arc<LogRecord>>;

/// The agent's log.
pub trait LogSource: fmt::Debug + Send + Sync + 'static {
    /// Follows records of this level and of more severe ones, independent of the level of the agent's own log output.
    fn follow(&self, level: LogLevel) -> LogRecords;

    /// Returns the agent's log file, if it writes one.
    fn file(&self) -> Option<PathBuf> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LogRecord {
        LogRecord {
            time: UnixNanos(1_795_252_778_870_123_456),
            level: LogLevel::Info,
            module: "http".into(),
            message: "request failed".into(),
            fields: vec![("method".into(), "GET".into()), ("error".into(), "job not found".into())],
            location: "dispatch.rs:7".into(),
        }
    }

    #[test]
    fn lines_are_written_as_readers_know_them() {
        let line = record().line(Notation::default());
        assert_eq!(
            line,
            "2026-11-21T09:19:38.870Z [INFO]  http: request failed: method=GET error=\"job not found\"\n"
        );
        let located = record().line(Notation { location: true, json: false });
        assert!(located.contains("[INFO]  dispatch.rs:7: http: request"), "{located}");
        let json = record().line(Notation { json: true, location: false });
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&value["@level"], &value["@module"]), (&json!("info"), &json!("http")));
        assert_eq!(value["error"], "job not found");
        assert!(value.get("@caller").is_none());
    }

    #[test]
    fn levels_have_words_and_an_order() {
        assert_eq!(LogLevel::parse("DEBUG"), Some(LogLevel::Debug));
        assert_eq!(LogLevel::parse("bogus"), None);
        assert!(LogLevel::Error < LogLevel::Trace);
    }
}
