//! Reads a task's `config` block. Every error names the key, and an unknown key is an error.

use crate::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A `config` block whose keys are read one by one; [`Reader::finish`] refuses the rest.
#[derive(Debug)]
pub struct Reader<'a> {
    driver: &'static str,
    /// The keys of the blocks around this one, each followed by a dot.
    path: String,
    values: BTreeMap<&'a str, &'a Value>,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// Begins to read a task's `config`.
    pub fn new(driver: &'static str, config: &'a Value) -> Result<Self> {
        let values = match config {
            Value::Null => BTreeMap::new(),
            Value::Object(map) => map.iter().map(|(key, value)| (key.as_str(), value)).collect(),
            other => {
                return Err(Error::Config(format!(
                    "the config of driver {driver} must be a block, not {}",
                    kind(other)
                )));
            }
        };
        Ok(Self { driver, path: String::new(), values, known: Vec::new() })
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.values.remove(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, desired: &str, got: &Value) -> Error {
        Error::Config(format!(
            "config key \"{}{key}\" of driver {} must be {desired}, not {}",
            self.path,
            self.driver,
            kind(got)
        ))
    }

    /// Returns an error that names a key and continues with a verb.
    pub fn refuse(&self, key: &str, problem: impl fmt::Display) -> Error {
        Error::Config(format!("config key \"{}{key}\" of driver {} {problem}", self.path, self.driver))
    }

    /// Reads a string.
    pub fn string(&mut self, key: &'static str) -> Result<Option<String>> {
        self.take(key).map(|value| text(value).ok_or_else(|| self.wrong(key, "a string", value))).transpose()
    }

    /// Reads a string that must not be empty.
    pub fn required_string(&mut self, key: &'static str) -> Result<String> {
        self.string(key)?.filter(|text| !text.is_empty()).ok_or_else(|| self.refuse(key, "is required"))
    }

    /// Reads a list of strings.
    pub fn strings(&mut self, key: &'static str) -> Result<Vec<String>> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let all = value.as_array().and_then(|list| list.iter().map(text).collect());
        all.ok_or_else(|| self.wrong(key, "a list of strings", value))
    }

    /// Reads a whole number, or a string that contains one.
    pub fn integer(&mut self, key: &'static str) -> Result<Option<i64>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        number.map(Some).ok_or_else(|| self.wrong(key, "a whole number", value))
    }

    /// Reads a boolean, which is false if absent.
    pub fn boolean(&mut self, key: &'static str) -> Result<bool> {
        Ok(self.optional_boolean(key)?.unwrap_or(false))
    }

    /// Reads a duration such as `1m30s`.
    pub fn duration(&mut self, key: &'static str) -> Result<Option<Duration>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let duration = value.as_str().and_then(parse_duration);
        duration.map(Some).ok_or_else(|| self.wrong(key, "a duration such as \"1m30s\"", value))
    }

    /// Reads a map of strings, or a list of such maps, which is how HCL parses a repeated block.
    pub fn string_map(&mut self, key: &'static str) -> Result<BTreeMap<String, String>> {
        let Some(value) = self.take(key) else { return Ok(BTreeMap::new()) };
        let maps: Vec<&Value> = value.as_array().map_or_else(|| vec![value], |list| list.iter().collect());
        let mut all = BTreeMap::new();
        for map in maps {
            let entries = map.as_object().ok_or_else(|| self.wrong(key, "a map of strings", map))?;
            for (name, value) in entries {
                let value = text(value).ok_or_else(|| self.wrong(key, "a map of strings", value))?;
                all.insert(name.clone(), value);
            }
        }
        Ok(all)
    }

    /// Reads a boolean that may be absent.
    pub fn optional_boolean(&mut self, key: &'static str) -> Result<Option<bool>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let flag = value.as_bool().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        flag.map(Some).ok_or_else(|| self.wrong(key, "true or false", value))
    }

    /// Reads a block that occurs at most once.
    pub fn block(&mut self, key: &'static str) -> Result<Option<Reader<'a>>> {
        let mut all = self.blocks(key)?;
        if all.len() > 1 {
            return Err(self.refuse(key, "must occur only once"));
        }
        Ok(all.pop())
    }

    /// Reads all blocks with this name, in their order.
    pub fn blocks(&mut self, key: &'static str) -> Result<Vec<Reader<'a>>> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let all: Vec<&Value> = value.as_array().map_or_else(|| vec![value], |list| list.iter().collect());
        all.into_iter()
            .map(|block| {
                let map = block.as_object().ok_or_else(|| self.wrong(key, "a block", block))?;
                Ok(Reader {
                    driver: self.driver,
                    path: format!("{}{key}.", self.path),
                    values: map.iter().map(|(key, value)| (key.as_str(), value)).collect(),
                    known: Vec::new(),
                })
            })
            .collect()
    }

    /// Refuses the block if it has a key that no earlier call has read.
    pub fn finish(self) -> Result<()> {
        let Some(key) = self.values.keys().next() else { return Ok(()) };
        let known = self.known.iter().map(|k| format!("{k:?}")).collect::<Vec<_>>().join(", ");
        Err(Error::Config(format!(
            "driver {} has no config key \"{}{key}\"; it has {known}",
            self.driver, self.path
        )))
    }
}

/// Returns a string, or the text of a number or boolean, which HCL converts to a string too.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "this string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a block",
    }
}

/// Parses a duration in the notation of job files: numbers with units, such as `1h2m3.5s` or `250ms`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &rest[..end])?;
        seconds += number * factor;
        rest = &rest[end..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Returns whether a name matches a pattern in which `*` matches any text, also the empty one.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((prefix, rest)) => {
            let Some(tail) = name.strip_prefix(prefix) else { return false };
            (0..=tail.len())
                .filter(|at| tail.is_char_boundary(*at))
                .any(|at| matches_pattern(rest, &tail[at..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn error<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_key() {
        let config = json!({"command": ["x"], "args": "x", "oom": "many", "extra": 1});
        let mut reader = Reader::new("d", &config).unwrap();
        assert_eq!(
            error(reader.string("command")),
            "config key \"command\" of driver d must be a string, not a list"
        );
        assert_eq!(
            error(reader.strings("args")),
            "config key \"args\" of driver d must be a list of strings, not this string"
        );
        assert_eq!(
            error(reader.integer("oom")),
            "config key \"oom\" of driver d must be a whole number, not this string"
        );
        assert_eq!(error(reader.required_string("image")), "config key \"image\" of driver d is required");
        assert_eq!(
            error(reader.finish()),
            "driver d has no config key \"extra\"; it has \"command\", \"args\", \"oom\", \"image\""
        );
        assert_eq!(error(Reader::new("d", &json!([]))), "the config of driver d must be a block, not a list");
    }

    #[test]
    fn values_are_read_as_job_files_write_them() {
        let config = json!({"args": ["-n", 3, true], "oom": "7", "flag": "true", "wait": "1m0.5s",
            "groups": [{"cpu": "a"}, {"pids": "b"}], "none": null});
        let mut reader = Reader::new("d", &config).unwrap();
        assert_eq!(reader.strings("args").unwrap(), ["-n", "3", "true"]);
        assert_eq!(reader.integer("oom").unwrap(), Some(7));
        assert!(reader.boolean("flag").unwrap());
        assert_eq!(reader.duration("wait").unwrap(), Some(Duration::from_millis(60_500)));
        assert_eq!(reader.string_map("groups").unwrap().len(), 2);
        assert_eq!(reader.string("none").unwrap(), None);
        reader.finish().unwrap();
    }

    #[test]
    fn blocks_are_read_and_named_in_errors() {
        let config =
            json!({"auth": [{"user": "a"}], "mount": [{"to": 1}, {"from": []}], "two": [{}, {}], "x": 1});
        let mut reader = Reader::new("d", &config).unwrap();
        let mut auth = reader.block("auth").unwrap().unwrap();
        assert_eq!(auth.string("user").unwrap().as_deref(), Some("a"));
        auth.finish().unwrap();
        let mut mounts = reader.blocks("mount").unwrap();
        assert_eq!(
            error(mounts[1].string("from")),
            "config key \"mount.from\" of driver d must be a string, not a list"
        );
        let first = mounts.remove(0);
        assert_eq!(error(first.finish()), "driver d has no config key \"mount.to\"; it has ");
        assert_eq!(error(reader.block("two")), "config key \"two\" of driver d must occur only once");
        assert!(error(reader.blocks("x")).contains("must be a block"));
        assert!(reader.block("absent").unwrap().is_none());
    }

    #[test]
    fn patterns_match() {
        assert!(matches_pattern("AWS_*", "AWS_KEY"));
        assert!(matches_pattern("*TOKEN*", "MY_TOKEN_2"));
        assert!(!matches_pattern("AWS_*", "MY_AWS_KEY"));
        assert!(!matches_pattern("HOME", "HOMES"));
    }

    proptest! {
        #[test]
        fn durations_never_panic(text in "[0-9a-zµ.]{0,12}") {
            let _ = parse_duration(&text);
        }
    }
}
