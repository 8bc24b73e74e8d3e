//! The agent's log as the monitor shows it (docs/reference/http-api.md, section 3.7): records, and their two notations.

use caravan_types::{Time, UnixNanos};
use futures::stream::BoxStream;
use serde_json::{Map, Value, json};
use std::fmt::{self, Write as _};
use std::path::PathBuf;

/// How much a record matters; the order is from the least to the most talkative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogLevel {
    /// Something failed.
    Error = 1,
    /// Something is odd.
    Warn = 2,
    /// Something happened.
    #[default]
    Info = 3,
    /// For whoever looks for a fault.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

impl LogLevel {
    /// Reads a level, whatever its letters' case.
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

    /// The word, in small letters.
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
    /// When.
    pub time: UnixNanos,
    /// How much it matters.
    pub level: LogLevel,
    /// The part of the program.
    pub module: String,
    /// What happened.
    pub message: String,
    /// To what, in the order of the record.
    pub fields: Vec<(String, String)>,
    /// Where in the program.
    pub location: String,
}

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notation {
    pub(crate) json: bool,
    pub(crate) location: bool,
}

impl LogRecord {
    /// One line, its end included.
    pub(crate) fn line(&self, notation: Notation) -> String {
        let mut line =
            if notation.json { self.object(notation.location) } else { self.text(notation.location) };
        line.push('\n');
        line
    }

    fn text(&self, location: bool) -> String {
        let mut out = format!("{} ", millis(self.time));
        let level = format!("[{}]", self.level.as_str().to_ascii_uppercase());
        // Writing to a text cannot fail, here and below.
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

/// `2026-11-21T09:19:38.870Z`.
fn millis(time: UnixNanos) -> String {
    let millis = time.0.div_euclid(1_000_000);
    let text = json!(Time(time.0.div_euclid(1_000_000_000).saturating_mul(1_000_000_000)));
    let text = text.as_str().unwrap_or_default().trim_end_matches('Z').to_owned();
    format!("{text}.{:03}Z", millis.rem_euclid(1000))
}

/// Records from now on; readers that are too slow miss some, and read a record that says so.
pub type LogRecords = BoxStream<'static, std::sync::Arc<LogRecord>>;

/// The agent's log.
pub trait LogSource: fmt::Debug + Send + Sync + 'static {
    /// Records of a level and of those that matter more, whatever the agent itself writes to its log.
    fn follow(&self, level: LogLevel) -> LogRecords;

    /// The file in which the agent keeps its log, if it does.
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
