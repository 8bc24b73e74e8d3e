//! Jobs in the encoding of the replicated log and of snapshots, as version 0.1.0 wrote them. Blocks of jobs were raw
//! JSON then. The jobs have every block of the job file: with all fields, with empty lists, and empty.

use caravan_types::job::Job;
use serde_json::{Map, Value};

const JOBS: &[u8] = include_bytes!("recorded/jobs.msgpack");

/// Returns the API's responses for the recorded jobs. A response equals the job as it was written, because both have
/// the same form.
fn answers() -> Vec<Value> {
    rmp_serde::from_slice(JOBS).expect("the record is a list of jobs")
}

/// Collects the places at which two responses differ.
fn differences(path: &str, recorded: Option<&Value>, answered: Option<&Value>, out: &mut Vec<String>) {
    match (recorded, answered) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                differences(&format!("{path}.{key}"), a.get(key), b.get(key), out);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for at in 0..a.len().max(b.len()) {
                differences(&format!("{path}[{at}]"), a.get(at), b.get(at), out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{path}: recorded {a:?}, answered {b:?}")),
    }
}

#[test]
fn recorded_jobs_are_answered_as_they_were() {
    let jobs: Vec<Job> = rmp_serde::from_slice(JOBS).expect("jobs of an earlier version are read");
    let answers = answers();
    assert_eq!((jobs.len(), answers.len()), (16, 16));
    let mut wrong = Vec::new();
    for (job, recorded) in jobs.iter().zip(&answers) {
        let answered = serde_json::to_value(job).expect("a job is JSON");
        differences(job.id.as_str(), Some(recorded), Some(&answered), &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn recorded_jobs_are_written_and_read_again() {
    let jobs: Vec<Job> = rmp_serde::from_slice(JOBS).expect("jobs of an earlier version are read");
    let packed = rmp_serde::to_vec_named(&jobs).expect("jobs are written");
    assert_eq!(rmp_serde::from_slice::<Vec<Job>>(&packed).expect("they are read"), jobs);
}

/// Calls `change` for every object in a value, the innermost first.
fn each_object(value: &mut Value, change: &impl Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(|value| each_object(value, change));
            change(map);
        }
        Value::Array(items) => items.iter_mut().for_each(|value| each_object(value, change)),
        _ => {}
    }
}

/// Versions before 0.1.0 had fewer fields.
#[test]
fn blocks_without_any_of_their_fields_are_read() {
    for mut answer in answers() {
        each_object(&mut answer, &|map| map.retain(|_, value| value.is_object() || value.is_array()));
        serde_json::from_value::<Job>(answer.clone()).unwrap_or_else(|e| panic!("{e} in {answer}"));
    }
}

/// A field that a request may omit as `null` is read as `null`, even where the canonical form has a value.
#[test]
fn fields_that_requests_may_leave_out_are_read_as_null() {
    const BLOCKS: [&str; 4] = ["EmbeddedTmpl", "GetterSource", "SpecType", "RunOnFirstRender"];
    for mut answer in answers() {
        each_object(&mut answer, &|map| {
            if BLOCKS.iter().any(|key| map.contains_key(*key)) {
                map.iter_mut().filter(|(key, _)| *key != "Chown").for_each(|(_, value)| *value = Value::Null);
            }
        });
        serde_json::from_value::<Job>(answer.clone()).unwrap_or_else(|e| panic!("{e} in {answer}"));
    }
}
