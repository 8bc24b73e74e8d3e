//! Parses and prints jobs in API JSON.

use caravan_api as api;
use serde_json::{Map, Value as Json};

/// Lists whose elements are plain values in Nomad: a null element decodes as an empty one.
const PLAIN: [&str; 3] = ["ReservedPorts", "DynamicPorts", "Checks"];

/// Parses a job in API JSON, alone or under the key `Job`. Members next to `Job` have no effect.
///
/// # Errors
/// The text is not JSON, or a value is of the wrong type.
pub fn parse_api_json(text: &str) -> Result<api::Job, api::DecodeError> {
    let value: Json = api::decode(text.as_bytes())?;
    api::from_value(job_in(&value))
}

/// Returns the job as JSON. An object is null where `text`, the API JSON of the job, has null.
///
/// # Errors
/// The job cannot be represented in JSON.
pub fn printed(job: &api::Job, text: &str) -> Result<Json, serde_json::Error> {
    let mut out = serde_json::to_value(job)?;
    if let Ok(value) = api::decode::<Json>(text.as_bytes()) {
        restore_nulls(job_in(&value), &mut out);
    }
    Ok(out)
}

/// Returns the member `Job`, or the whole value if absent.
fn job_in(value: &Json) -> &Json {
    let members = value.as_object().into_iter().flatten();
    let mut jobs = members.filter(|(key, job)| key.eq_ignore_ascii_case("job") && !job.is_null());
    jobs.next().map_or(value, |(_, job)| job)
}

fn restore_nulls(source: &Json, out: &mut Json) {
    match (source, out) {
        (Json::Object(source), Json::Object(out)) => {
            for (key, out) in out.iter_mut() {
                let Some(source) = member(source, key) else { continue };
                if !PLAIN.contains(&key.as_str()) {
                    restore_elements(source, out);
                }
                restore_nulls(source, out);
            }
        }
        (Json::Array(source), Json::Array(out)) => {
            source.iter().zip(out).for_each(|(source, out)| restore_nulls(source, out));
        }
        _ => {}
    }
}

/// Sets the elements of a list, and the values of a map of objects, to null where the source has null.
fn restore_elements(source: &Json, out: &mut Json) {
    let restore = |source: &Json, out: &mut Json| {
        if source.is_null() && out.is_object() {
            *out = Json::Null;
        }
    };
    match (source, out) {
        (Json::Array(source), Json::Array(out)) => {
            source.iter().zip(out).for_each(|(source, out)| restore(source, out));
        }
        (Json::Object(source), Json::Object(out)) => {
            out.iter_mut().for_each(|(key, out)| source.get(key).into_iter().for_each(|s| restore(s, out)));
        }
        _ => {}
    }
}

/// Returns the member of a JSON object with this key. The key's case is ignored.
fn member<'j>(object: &'j Map<String, Json>, key: &str) -> Option<&'j Json> {
    object
        .get(key)
        .or_else(|| object.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_beside_the_job_have_no_effect() {
        for text in [
            r#"{"Job": {"ID": "a"}, "EnforceIndex": true, "Extra": {"ID": "b"}}"#,
            r#"{"Extra": null, "ID": "b", "job": {"id": "a", "Unknown": [1]}}"#,
            r#"{"Job": null, "ID": "a"}"#,
            r#"{"ID": "a", "Extra": 1}"#,
        ] {
            assert_eq!(parse_api_json(text).unwrap().id.as_deref(), Some("a"), "{text}");
        }
        for text in [r#"{"Job": 5}"#, r#"{"Job": [{"ID": "a"}]}"#, "[]", r#"{"Job": {"ID": 1}}"#] {
            parse_api_json(text).unwrap_err();
        }
    }

    #[test]
    fn null_elements_stay() {
        let text = r#"{"Job": {"ID": "a", "Datacenters": ["x", null], "Constraints": [null, {}], "taskgroups": [
            null,
            {"Name": "g", "Volumes": {"v": null, "w": {}}, "Networks": [{"DynamicPorts": [null]}],
             "Tasks": [null, {"Name": "t", "Config": {"a": [null, {}]}, "Services": [{"Checks": [null]}, null]}]}
        ]}}"#;
        let job = parse_api_json(text).unwrap();
        let out = printed(&job, text).unwrap();
        for (pointer, want) in [
            ("/Datacenters", json!(["x", ""])),
            ("/Constraints/0", json!(null)),
            ("/Constraints/1/LTarget", json!("")),
            ("/TaskGroups/0", json!(null)),
            ("/TaskGroups/1/Volumes/v", json!(null)),
            ("/TaskGroups/1/Volumes/w/Name", json!("")),
            ("/TaskGroups/1/Networks/0/DynamicPorts/0/Label", json!("")),
            ("/TaskGroups/1/Tasks/0", json!(null)),
            ("/TaskGroups/1/Tasks/1/Config/a", json!([null, {}])),
            ("/TaskGroups/1/Tasks/1/Services/0/Checks/0/Name", json!("")),
            ("/TaskGroups/1/Tasks/1/Services/1", json!(null)),
        ] {
            assert_eq!(out.pointer(pointer), Some(&want), "{pointer}");
        }
    }
}
