//! Query strings and paths: decoding, and the parameters that all routes share (docs/reference/http-api.md, section
//! 1.3).

use crate::error::ApiError;
use caravan_base::percent;
use caravan_types::duration::parse as go_duration;
use std::time::Duration;

/// Longest wait of a blocking query, and its default.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// The decoded pairs of a query string, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

/// The wait of a blocking query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The query blocks until the result is newer than this index. With 0, the query does not block.
    pub(crate) index: u64,
    /// The longest time that the query blocks.
    pub(crate) limit: Duration,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (percent::decode_form(key), percent::decode_form(value))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// Returns the first value of a parameter; a parameter without a value is the empty text.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a parameter, or the empty text if absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns all values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Parses a parameter as a Go bool; absent or empty is `None`.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            text => match go_bool(text) {
                Some(value) => Ok(Some(value)),
                None => Err(ApiError::internal(format!(
                    "Failed to parse value of \"{name}\" ({text}) as a bool: strconv.ParseBool: parsing \"{text}\": invalid syntax"
                ))),
            },
        }
    }

    /// Parses a parameter that only Caravan has as a Go bool; absent or empty is `None`.
    pub(crate) fn bool(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name) {
            "" => Ok(None),
            text => match go_bool(text) {
                Some(value) => Ok(Some(value)),
                None => {
                    Err(ApiError::bad_request(format!("`{name}` is {text:?}; expected `true` or `false`")))
                }
            },
        }
    }

    /// Returns whether answers are indented.
    pub(crate) fn pretty(&self) -> bool {
        self.get("pretty").is_some_and(|value| value != "0")
    }

    /// Parses `index` and `wait`.
    pub(crate) fn wait(&self) -> Result<Wait, ApiError> {
        let index = match self.text("index") {
            "" => 0,
            text => text.parse().map_err(|_| ApiError::bad_request("Invalid index"))?,
        };
        let limit = match self.text("wait") {
            "" => MAX_WAIT,
            text => {
                let wait = go_duration(text).ok_or_else(|| ApiError::bad_request("Invalid wait time"))?;
                if wait.0 <= 0 { MAX_WAIT } else { wait.to_std().min(MAX_WAIT) }
            }
        };
        Ok(Wait { index, limit })
    }

    /// Parses `per_page`, the maximum number of elements on a page; 0 means all.
    pub(crate) fn per_page(&self) -> Result<i32, ApiError> {
        match self.text("per_page") {
            "" => Ok(0),
            text => text
                .parse()
                .map_err(|_| ApiError::bad_request("Expect a number for `per_page` query string parameter")),
        }
    }

    /// Returns whether any server may answer, from a state that may lag behind the leader's. A parameter without
    /// a value counts.
    pub(crate) fn is_stale(&self) -> bool {
        self.get("stale").is_some_and(|text| text.is_empty() || go_bool(text) == Some(true))
    }

    /// Checks `stale`.
    pub(crate) fn check_stale(&self) -> Result<(), ApiError> {
        match self.text("stale") {
            "" => Ok(()),
            text if go_bool(text).is_some() => Ok(()),
            _ => Err(ApiError::bad_request("Expect `true` or `false` for `stale` query string parameter")),
        }
    }
}

/// Parses `1 t T TRUE true True` and `0 f F FALSE false False`.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Returns the path without `//`, `.` and `..`; `None` if it has none of them.
pub(crate) fn cleaned(path: &str) -> Option<String> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let tail = inner.strip_suffix('/').unwrap_or(inner);
    if path.starts_with('/') && (tail.is_empty() || tail.split('/').all(|s| !matches!(s, "" | "." | ".."))) {
        return None;
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let slash = if path.ends_with('/') && !kept.is_empty() { "/" } else { "" };
    Some(format!("/{}{slash}", kept.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Nanos;

    #[test]
    fn pairs_are_decoded() {
        let query = Query::parse("a=1+2&b=%2Fx%25&stale&a=z&c=%zz");
        assert_eq!(query.get("a"), Some("1 2"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1 2", "z"]);
        assert_eq!(query.get("b"), Some("/x%"));
        assert_eq!(query.get("stale"), Some(""));
        assert_eq!(query.get("c"), Some("%zz"));
        assert_eq!(query.get("d"), None);
    }

    #[test]
    fn durations_read_like_go() {
        for (text, want) in [
            ("10s", 10_000_000_000),
            ("500ms", 500_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("-2s", -2_000_000_000),
            ("0", 0),
            ("3us", 3_000),
        ] {
            assert_eq!(go_duration(text), Some(Nanos(want)), "{text}");
        }
        for text in ["", "10", "10q", "s", "1..2s", "9999999999999h", "-"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }

    #[test]
    fn waits_are_capped() {
        let wait = |text: &str| Query::parse(text).wait();
        assert_eq!(wait("").unwrap(), Wait { index: 0, limit: MAX_WAIT });
        assert_eq!(wait("index=7&wait=100000s").unwrap(), Wait { index: 7, limit: MAX_WAIT });
        assert_eq!(wait("wait=-1s").unwrap().limit, MAX_WAIT);
        assert_eq!(wait("wait=2s").unwrap().limit, Duration::from_secs(2));
        assert_eq!(wait("wait=10q").unwrap_err().message, "Invalid wait time");
        assert_eq!(wait("index=ten").unwrap_err().message, "Invalid index");
    }

    #[test]
    fn paths_are_cleaned_only_when_they_must_be() {
        for path in ["/", "/v1/jobs", "/v1/jobs/", "/v1/job/"] {
            assert_eq!(cleaned(path), None, "{path}");
        }
        for (path, want) in [
            ("//v1/jobs", "/v1/jobs"),
            ("/v1//jobs/", "/v1/jobs/"),
            ("/v1/x/../jobs", "/v1/jobs"),
            ("/..", "/"),
        ] {
            assert_eq!(cleaned(path).as_deref(), Some(want), "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_sent_breaks_the_parsers(text in ".*") {
            let query = Query::parse(&text);
            let _ = (query.wait(), query.flag("a"), go_duration(&text), cleaned(&text), percent::decode(&text));
        }
    }
}
