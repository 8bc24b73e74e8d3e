//! Comparison of answers with recorded ones: key sets, types, null, absent and `[]`.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Returns the recorded exchanges of a topic.
pub(crate) fn exchanges(topic: &str) -> Vec<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/http").join(format!("{topic}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the body of a recorded GET.
pub(crate) fn recorded(topic: &str, path: &str) -> Value {
    let all = exchanges(topic);
    let found = all.iter().find(|e| e["method"] == "GET" && e["path"] == path && e.get("query").is_none());
    found.unwrap_or_else(|| panic!("{path} was not recorded"))["body"].clone()
}

/// Objects whose keys are data.
const MAPS: &[&str] = &[
    "Attributes",
    "Drivers",
    "Meta",
    "Links",
    "Details",
    "TaskStates",
    "Summary",
    "Scores",
    "Tasks",
    "TaskResources",
    "TaskLifecycles",
    "Env",
    "Config",
    "HostVolumes",
    "FailedTGAllocs",
    "NodesAvailable",
    "ConstraintFiltered",
    "ClassFiltered",
    "ClassExhausted",
    "DimensionExhausted",
    "ResourcesExhausted",
    "ClassEligibility",
    "QueuedAllocations",
    "DesiredTGUpdates",
    "VariableFlags",
];

fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Returns the differences in shape between two bodies, as sentences. Lists and maps of data are compared by their
/// first elements, if both have one.
pub(crate) fn differences(want: &Value, got: &Value) -> Vec<String> {
    let mut all = Vec::new();
    compare("", want, got, &mut all);
    all.sort();
    all.dedup();
    all
}

fn compare(path: &str, want: &Value, got: &Value, all: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(w), Value::Object(g)) if is_map(path) => {
            if let (Some(w), Some(g)) = (w.values().next(), g.values().next()) {
                compare(&format!("{path}[]"), w, g, all);
            }
        }
        (Value::Object(w), Value::Object(g)) => {
            let keys: BTreeSet<&String> = w.keys().chain(g.keys()).collect();
            for key in keys {
                let inner = format!("{path}.{key}");
                match (w.get(key), g.get(key)) {
                    (Some(w), Some(g)) => compare(&inner, w, g, all),
                    (Some(_), None) => all.push(format!("{inner} is absent")),
                    _ => all.push(format!("{inner} should be absent")),
                }
            }
        }
        (Value::Array(w), Value::Array(g)) => {
            if let (Some(w), Some(g)) = (w.first(), g.first()) {
                compare(&format!("{path}[]"), w, g, all);
            }
        }
        (w, g) if name(w) != name(g) => all.push(format!("{path} is {} instead of {}", name(g), name(w))),
        _ => {}
    }
}

fn is_map(path: &str) -> bool {
    path.rsplit('.').next().is_some_and(|last| MAPS.contains(&last))
}

/// Fails unless the differences are exactly the expected ones.
#[track_caller]
pub(crate) fn assert_shape(want: &Value, got: &Value, explained: &[&str]) {
    assert_eq!(differences(want, got), explained, "got {got:#}");
}
