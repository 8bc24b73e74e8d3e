//! Compares two documents in meaning: the same keys, the same kinds of values, null and empty in the same
//! places. Values may differ. The comparison learns ids.

use super::ids::{Ids, is_uuid};
use serde_json::{Map, Value};

/// Objects whose keys depend on the machine or the moment.
const FREE: &[&str] = &[
    "Attributes",
    "Drivers",
    "Details",
    "Disk",
    "Environment",
    "Labels",
    "Links",
    "Scores",
    "ChrootEnv",
    "ClassEligibility",
    "ConstraintFiltered",
    "ClassFiltered",
    "DimensionExhausted",
    "ClassExhausted",
    // Part of an agent's configuration.
    "Options",
    // Depends on which job comes first.
    "Summary",
    // A plugin's own names.
    "Segments",
    // Nodes report new volumes at different times.
    "HostVolumes",
];

/// Answers of plugins, which differ between plugins, and figures that exist at different times.
const UNCOMPARED: [&str; 3] = ["PublishedExternalNodeIDs", "VolumeContext", "Measured"];

/// Times that are present depending on a task's progress.
const MOMENTS: [&str; 3] = ["StartedAt", "FinishedAt", "LastRestart"];

/// Indexes for which 0 means absence.
const ZERO_MEANS: [&str; 5] =
    ["Index", "EvalCreateIndex", "JobModifyIndex", "NodeModifyIndex", "DeploymentModifyIndex"];

/// Returns whether the recording omitted a value.
fn is_left_out(value: &Value) -> bool {
    match value {
        Value::String(text) => text == "(as elsewhere)" || text == "(left out)",
        Value::Object(map) => map.contains_key("(left out)"),
        _ => false,
    }
}

/// Returns the differences, each as a path and a few words.
pub fn differences(ids: &mut Ids, recorded: &Value, ours: &Value) -> Vec<String> {
    let mut walk = Walk { ids, found: Vec::new() };
    walk.values("", "", recorded, ours);
    walk.found
}

/// Reduces a document of the replay to the keys of a recorded one, of which only some keys were kept.
pub fn cut_like(recorded: &Value, ours: &Value) -> Value {
    match (recorded, ours) {
        (Value::Object(theirs), Value::Object(own)) => {
            let kept = own.iter().filter(|(key, _)| theirs.contains_key(*key));
            let cut = |key: &String, value: &Value| match (&theirs[key], value) {
                (Value::Object(empty), Value::Object(_)) if empty.is_empty() => theirs[key].clone(),
                _ => value.clone(),
            };
            Value::Object(kept.map(|(key, value)| (key.clone(), cut(key, value))).collect())
        }
        (Value::Array(theirs), Value::Array(own)) => {
            let like = theirs.first().unwrap_or(&Value::Null);
            own.iter().map(|item| cut_like(like, item)).collect()
        }
        (_, own) => own.clone(),
    }
}

struct Walk<'a> {
    ids: &'a mut Ids,
    found: Vec<String>,
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) if items.is_empty() => "[]",
        Value::Array(_) => "list",
        Value::Object(map) if map.is_empty() => "{}",
        Value::Object(_) => "object",
    }
}

impl Walk<'_> {
    fn tell(&mut self, path: &str, words: String) {
        self.found.push(format!("{}: {words}", if path.is_empty() { "/" } else { path }));
    }

    fn values(&mut self, path: &str, key: &str, recorded: &Value, ours: &Value) {
        if is_left_out(recorded) || UNCOMPARED.contains(&key) {
            return;
        }
        match (recorded, ours) {
            (Value::Object(theirs), Value::Object(own)) if FREE.contains(&key) => {
                for (name, value) in theirs {
                    if let Some(own) = own.get(name) {
                        self.values(&format!("{path}/{name}"), name, value, own);
                    }
                }
            }
            (Value::Object(_), Value::Null) | (Value::Null, Value::Object(_)) if FREE.contains(&key) => {}
            (Value::Object(theirs), Value::Object(own)) if !theirs.is_empty() || !own.is_empty() => {
                self.objects(path, theirs, own);
            }
            (Value::Array(theirs), Value::Array(own)) if !theirs.is_empty() && !own.is_empty() => {
                self.lists(path, key, theirs, own);
            }
            (Value::String(theirs), Value::String(own)) => self.ids.learn(theirs, own),
            // The progress of a task.
            (Value::String(_) | Value::Null, Value::String(_) | Value::Null) if MOMENTS.contains(&key) => {}
            (theirs, own) if kind(theirs) == kind(own) => {
                if let (true, Some(theirs), Some(own)) =
                    (key.ends_with("Index"), theirs.as_u64(), own.as_u64())
                {
                    self.ids.learn_index(theirs, own);
                    if ZERO_MEANS.contains(&key) && theirs == 0 && own != 0 {
                        self.tell(path, format!("{own} instead of {theirs}"));
                    }
                }
            }
            (theirs, own) => self.tell(path, format!("{} instead of {}", kind(own), kind(theirs))),
        }
    }

    fn objects(&mut self, path: &str, recorded: &Map<String, Value>, ours: &Map<String, Value>) {
        // Keys that are ids cannot be equal.
        if !recorded.is_empty() && recorded.keys().chain(ours.keys()).all(|key| is_id(key)) {
            match ours.values().next() {
                Some(own) => recorded.values().take(1).for_each(|value| self.values(path, "", value, own)),
                None => self.tell(path, "{} instead of object".to_owned()),
            }
            return;
        }
        let own_key = |key: &str, ids: &Ids| ids.text(key);
        // The lengths of lists before they were cut.
        for (key, value) in recorded.iter().filter(|(key, _)| !key.ends_with("TrimmedFrom")) {
            let path = format!("{path}/{key}");
            match ours.get(key).or_else(|| ours.get(&own_key(key, self.ids))) {
                Some(own) => self.values(&path, key, value, own),
                None if is_left_out(value) => {}
                None => self.tell(&path, "missing".to_owned()),
            }
        }
        for (key, value) in ours {
            let known = recorded.contains_key(key) || recorded.keys().any(|k| own_key(k, self.ids) == *key);
            if !known && !key.starts_with("Caravan") {
                self.tell(&format!("{path}/{key}"), format!("{} where nothing was", kind(value)));
            }
        }
    }

    fn lists(&mut self, path: &str, key: &str, recorded: &[Value], ours: &[Value]) {
        let mut free: Vec<&Value> = ours.iter().collect();
        for (at, value) in recorded.iter().enumerate() {
            // The modes depend on the programs of the host, such as CNI plugins.
            let is_built = |mode: &Value| ours.iter().any(|own| own.get("Mode") == Some(mode));
            if key.ends_with("Networks") && value.get("Mode").is_some_and(|mode| !is_built(mode)) {
                continue;
            }
            let pool = if free.is_empty() { ours.iter().collect() } else { free.clone() };
            let best =
                pool.iter().enumerate().max_by_key(|(n, own)| (self.likeness(value, own), usize::MAX - n));
            let Some((n, own)) = best.map(|(n, own)| (n, *own)) else { continue };
            if n < free.len() {
                free.remove(n);
            }
            // An element that is paired only by similarity does not reveal ids.
            let before = self.ids.clone();
            let known = self.likeness(value, own) >= SAME;
            self.values(&format!("{path}/{at}"), key, value, own);
            if !known && recorded.len() > ours.len() {
                *self.ids = before;
            }
        }
    }

    /// Returns the similarity of two elements.
    fn likeness(&self, recorded: &Value, ours: &Value) -> usize {
        match (recorded, ours) {
            (Value::Object(theirs), Value::Object(own)) => {
                theirs.iter().map(|(key, value)| self.same(key, value, own.get(key))).sum()
            }
            (theirs, own) => usize::from(theirs == own),
        }
    }

    fn same(&self, key: &str, recorded: &Value, ours: Option<&Value>) -> usize {
        let Some(ours) = ours else { return 0 };
        match (recorded, ours) {
            (Value::String(theirs), Value::String(own)) if is_uuid(theirs) => {
                if self.ids.known(theirs) != Some(own) {
                    0
                } else if key == "ID" {
                    SAME
                } else {
                    2
                }
            }
            (Value::String(theirs), Value::String(own)) if self.ids.text(theirs) == *own => match key {
                "ID" | "JobID" | "Name" | "Label" | "Topic" | "Type" => 8,
                _ => 2,
            },
            (Value::Number(theirs), Value::Number(own)) if theirs == own => 1,
            (Value::Null, Value::Null) => 1,
            (Value::Bool(theirs), Value::Bool(own)) if theirs == own => 1,
            // Elements with the same name are likely to be about the same object.
            (Value::Object(theirs), Value::Object(own)) => {
                theirs.keys().filter(|key| own.contains_key(*key)).count().min(4)
            }
            _ if kind(recorded) == kind(ours) && ours.is_array() => 1,
            _ => 0,
        }
    }
}

/// The similarity of elements that are known to be the same.
const SAME: usize = 1000;

fn is_id(key: &str) -> bool {
    let all = |is: fn(&u8) -> bool| !key.is_empty() && key.as_bytes().iter().all(is);
    // Ids of objects, of checks, of processes.
    is_uuid(key) || (key.len() >= 32 && all(u8::is_ascii_hexdigit)) || all(u8::is_ascii_digit)
}

#[test]
fn kinds_and_keys_are_compared_and_ids_learned() {
    use serde_json::json;
    let (theirs, own) = ("11111111-2222-3333-4444-555555555555", "21111111-2222-3333-4444-555555555555");
    let mut ids = Ids::default();
    let reported = differences(
        &mut ids,
        &json!([{"ID": theirs, "Job": "a", "L": null, "E": [], "N": 1, "X": 1}, {"ID": "b"}]),
        &json!([{"ID": "b", "Y": 1}, {"ID": own, "Job": "a", "L": [], "E": [], "N": "1"}]),
    );
    assert_eq!(
        reported,
        [
            "/0/L: [] instead of null",
            "/0/N: string instead of number",
            "/0/X: missing",
            "/1/Y: number where nothing was"
        ]
    );
    assert_eq!(ids.text(theirs), own);
}
