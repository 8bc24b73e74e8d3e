//! Ids, indexes and names of children differ between the recording and the replay. This table learns them
//! from answers and replaces them in requests.

use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Ids {
    texts: BTreeMap<String, String>,
    indexes: BTreeMap<u64, u64>,
}

const UUID: usize = 36;

/// Returns whether a text is a UUID.
pub fn is_uuid(text: &str) -> bool {
    text.len() == UUID
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns whether a text may be a plugin's name for an object.
fn is_name(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns the part of a child job's id that differs from run to run.
fn child(text: &str) -> Option<&str> {
    let last = text.rsplit('/').next()?;
    (text.contains('/') && (last.starts_with("dispatch-") || last.starts_with("periodic-"))).then_some(last)
}

impl Ids {
    /// Returns the replay's id for a recorded one.
    pub fn known(&self, recorded: &str) -> Option<&str> {
        self.texts.get(recorded).map(String::as_str)
    }

    /// Returns whether an id is one of the replay's.
    pub fn is_ours(&self, id: &str) -> bool {
        self.texts.values().any(|ours| ours == id)
    }

    /// Learns an id; the first pair stays.
    pub fn learn(&mut self, recorded: &str, ours: &str) {
        // Ids that plugins choose need not be UUIDs here.
        if is_uuid(recorded) && (is_uuid(ours) || is_name(ours)) {
            self.texts.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned());
        } else if let (Some(recorded), Some(ours)) = (child(recorded), child(ours)) {
            self.texts.entry(recorded.to_owned()).or_insert_with(|| ours.to_owned());
        }
    }

    /// Sets an id, replacing an earlier pair.
    pub fn set(&mut self, recorded: &str, ours: &str) {
        self.texts.insert(recorded.to_owned(), ours.to_owned());
    }

    pub fn learn_index(&mut self, recorded: u64, ours: u64) {
        if recorded > 1 {
            self.indexes.entry(recorded).or_insert(ours);
        }
    }

    /// Returns a recorded text with the replay's ids.
    pub fn text(&self, recorded: &str) -> String {
        let mut out = recorded.to_owned();
        for (theirs, ours) in self.texts.iter().rev() {
            if out.contains(theirs.as_str()) {
                out = out.replace(theirs.as_str(), ours);
            }
        }
        out
    }

    fn index(&self, recorded: u64) -> u64 {
        self.indexes.get(&recorded).copied().unwrap_or(recorded)
    }

    /// Returns a query parameter with the replay's ids.
    pub fn parameter(&self, name: &str, value: &str) -> String {
        match (name, value.parse::<u64>()) {
            ("index" | "cas", Ok(index)) => self.index(index).to_string(),
            ("prefix", _) => self.beginning(value),
            ("next_token", _) => match value.split_once('.').map(|(n, rest)| (n.parse::<u64>(), rest)) {
                Some((Ok(index), rest)) => format!("{}.{}", self.index(index), self.text(rest)),
                _ => self.text(value),
            },
            _ => self.text(value),
        }
    }

    /// Returns the prefix of the replay's id, if only one known id has the recorded prefix.
    fn beginning(&self, recorded: &str) -> String {
        let mut found =
            self.texts.iter().filter(|(theirs, _)| is_uuid(theirs) && theirs.starts_with(recorded));
        match (found.next(), found.next()) {
            (Some((_, ours)), None) if recorded.len() >= 4 => {
                ours.get(..recorded.len()).unwrap_or(ours).to_owned()
            }
            _ => self.text(recorded),
        }
    }

    /// Returns a request's body with the replay's ids.
    pub fn body(&self, recorded: &Value) -> Value {
        match recorded {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.body(item)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| {
                    let value = match value.as_u64() {
                        Some(index) if key == "JobModifyIndex" => self.index(index).into(),
                        _ => self.body(value),
                    };
                    (self.text(key), value)
                })
                .collect(),
            other => other.clone(),
        }
    }
}

/// Masks the parts of a text that differ from run to run: ids, numbers, paths, long hashes.
pub fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let before = out.chars().last();
        let starts_word = before.is_none_or(|c| !c.is_ascii_alphanumeric());
        if starts_word && rest.get(..UUID).is_some_and(is_uuid) {
            out.push_str("<id>");
            rest = &rest[UUID..];
            continue;
        }
        let path =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c))).unwrap_or(rest.len());
        if first == '/'
            && before.is_none_or(|c| " \"'(:".contains(c))
            && rest[..path].matches('/').count() > 2
        {
            out.push_str("<path>");
            rest = &rest[path..];
            continue;
        }
        let hex = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if starts_word && hex >= 16 {
            out.push_str("<hex>");
            rest = &rest[hex..];
            continue;
        }
        // The part that distinguishes jobs dispatched in the same second.
        if hex == 8 && out.ends_with("dispatch-#-") {
            out.push_str("<hex>");
            rest = &rest[hex..];
            continue;
        }
        // The name of the DNS server is in the text only if the program queries it itself.
        if out.contains("lookup ")
            && let Some(server) = rest.strip_prefix(" on ")
            && let Some(end) = server.find(": ")
            && server[..end].chars().all(|c| c.is_ascii_digit() || c == '.' || c == ':')
        {
            rest = &server[end..];
            continue;
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits > 0 {
            out.push('#');
            rest = &rest[digits..];
            continue;
        }
        out.push(first);
        rest = &rest[first.len_utf8()..];
    }
    out
}

#[test]
fn texts_are_masked_and_translated() {
    let id = "11111111-2222-3333-4444-555555555555";
    assert_eq!(masked(&format!("no \"{id}\" at 12")), "no \"<id>\" at #");
    assert_eq!(masked("open /opt/x/alloc/abc/nope: no"), "open <path>: no");
    assert_eq!(masked("lookup x on 192.0.2.53:53: no such host"), "lookup x: no such host");
    assert_eq!(masked("GET /v1/jobs"), "GET /v#/jobs");
    assert_eq!(masked("encode/dispatch-1795252794-74132a3c/x"), "encode/dispatch-#-<hex>/x");
    let mut ids = Ids::default();
    ids.learn("encode/dispatch-1-ab", "encode/dispatch-2-cd");
    ids.learn(id, "21111111-2222-3333-4444-555555555555");
    ids.learn_index(27, 40);
    assert_eq!(ids.text("/v1/job/encode%2Fdispatch-1-ab"), "/v1/job/encode%2Fdispatch-2-cd");
    assert_eq!(ids.parameter("next_token", &format!("27.{id}")), "40.21111111-2222-3333-4444-555555555555");
}
