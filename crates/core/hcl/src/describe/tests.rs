#![expect(clippy::disallowed_methods, reason = "the recorded cases are files")]

use super::*;
use serde_json::Value as Json;
use std::path::Path;

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

#[test]
fn the_page_is_current() {
    let kept = std::fs::read_to_string(root().join("docs/job-language.md")).unwrap();
    assert!(kept == page(), "docs/job-language.md is not what the tables say: run `cargo xtask docs`");
}

#[test]
fn everything_has_a_line_for_people() {
    for place in places() {
        let attributes = place.schema.attributes.iter().map(|a| (a.name, a.doc));
        let blocks = place.schema.blocks.iter().map(|b| (b.name, b.doc));
        for (name, doc) in attributes.chain(blocks) {
            assert!(!doc.is_empty(), "{} of {:?}", name, place.ways[0]);
        }
    }
}

#[test]
fn links_have_their_headings() {
    let page = page();
    let headings: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    let mut unique = headings.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), headings.len());
    let links = page.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    for link in links {
        assert!(headings.iter().any(|heading| heading == link), "{link}");
    }
}

/// Validates `value` with the subset of JSON Schema that the generated schema uses.
fn check(schema: &Json, value: &Json, whole: &Json, path: &str, out: &mut Vec<String>) {
    for (word, rule) in schema.as_object().into_iter().flatten() {
        match word.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                check(whole.pointer(pointer).unwrap(), value, whole, path, out);
            }
            "anyOf" => {
                let tried = rule.as_array().unwrap().iter().map(|one| {
                    let mut errors = Vec::new();
                    check(one, value, whole, path, &mut errors);
                    errors
                });
                let tried: Vec<Vec<String>> = tried.collect();
                if !tried.iter().any(Vec::is_empty) {
                    out.extend(tried.into_iter().min_by_key(Vec::len).into_iter().flatten());
                }
            }
            "enum" => {
                if !rule.as_array().unwrap().contains(value) {
                    out.push(format!("{path}: {value} is none of {rule}"));
                }
            }
            "type" => {
                let is = |kind: &Json| match kind.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    "integer" => value.is_i64() || value.is_u64(),
                    other => panic!("{other}"),
                };
                let right = rule.as_array().map_or_else(|| is(rule), |kinds| kinds.iter().any(is));
                if !right {
                    out.push(format!("{path}: {value} is not {rule}"));
                }
            }
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, item, whole, &format!("{path}[{at}]"), out);
                }
            }
            "properties" => {
                for (key, rule) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        check(rule, value, whole, &format!("{path}.{key}"), out);
                    }
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Json::as_object);
                for (key, value) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(key)) {
                        continue;
                    }
                    if rule == &Json::Bool(false) {
                        out.push(format!("{path}.{key} is not known"));
                    } else {
                        check(rule, value, whole, &format!("{path}.{key}"), out);
                    }
                }
            }
            "required" => {
                for key in rule.as_array().unwrap() {
                    if value.is_object() && value.get(key.as_str().unwrap()).is_none() {
                        out.push(format!("{path}: {key} is missing"));
                    }
                }
            }
            "minimum" | "maximum" => {
                let (limit, low) = (rule.as_i64().unwrap(), word == "minimum");
                if value.as_i64().is_some_and(|n| if low { n < limit } else { n > limit }) {
                    out.push(format!("{path}: {value} is beyond {limit}"));
                }
            }
            "$schema" | "$defs" | "title" | "description" | "deprecated" => {}
            other => panic!("the schema uses {other:?}"),
        }
    }
}

fn errors(value: &Json) -> Vec<String> {
    let schema = json_schema();
    let mut out = Vec::new();
    check(&schema, value, &schema, "", &mut out);
    out
}

#[test]
fn recorded_jobs_are_valid() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(root().join("fixtures/jobspec/valid")).unwrap() {
        let dir = entry.unwrap().path();
        for file in ["output.json", "canonical.json"] {
            let Ok(text) = std::fs::read_to_string(dir.join(file)) else { continue };
            let found = errors(&serde_json::from_str(&text).unwrap());
            wrong.extend(found.into_iter().map(|error| format!("{} {file}: {error}", dir.display())));
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 80, "{seen}");
}

#[test]
fn mistakes_are_found() {
    let job = |text: &str| errors(&serde_json::from_str(text).unwrap());
    assert_eq!(job(r#"{"ID": "a", "TaskGroups": [{"Name": "g", "Tasks": []}]}"#), Vec::<String>::new());
    assert!(!job(r#"{"ID": "a", "Priorty": 5}"#).is_empty());
    assert!(!job(r#"{"Job": {"ID": "a", "Priority": "high"}}"#).is_empty());
    assert!(!job(r#"{"TaskGroups": [{"Spreads": [{"Weight": 500}]}]}"#).is_empty());
    assert!(!job(r#"{"TaskGroups": [{"Tasks": [{"Env": {"A": 1}}]}]}"#).is_empty());
}
