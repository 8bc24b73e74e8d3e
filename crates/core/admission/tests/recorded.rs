//! Jobs that Nomad refused: admission returns the same text, byte for byte, because programs compare it.

#![expect(clippy::disallowed_methods, reason = "the exchanges are files")]

use caravan_api as api;
use serde_json::Value;
use std::path::Path;

/// The texts of refusals that need more than the job.
const BY_STATE: &[&str] = &["is in nonexistent", "is not allowed in namespace"];

/// Compares texts without trailing blanks, which the recording lost.
fn same(a: &str, b: &str) -> bool {
    a.trim_end() == b.trim_end()
}

#[test]
fn refusals_read_as_recorded() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/http");
    let (mut seen, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "json") {
            continue;
        }
        let exchanges: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for (at, exchange) in exchanges.iter().enumerate() {
            let recorded = exchange["body_text"].as_str().unwrap_or_default();
            let refused = exchange["path"] == "/v1/jobs" && recorded.contains(" occurred:\n\t* ");
            if !refused || BY_STATE.iter().any(|words| recorded.contains(words)) {
                continue;
            }
            let mut job: api::Job = api::from_value(&exchange["request_body"]["Job"]).unwrap();
            api::canonicalize(&mut job);
            let (mut job, misfits) = api::fit(&job);
            if job.datacenters.is_empty() {
                job.datacenters = vec!["*".into()];
            }
            let ours = caravan_admission::check_all(&job, misfits).refusal();
            if !same(recorded, &ours) {
                wrong.push(format!("{} {at}: want {recorded:?}\n  have {ours:?}", path.display()));
            }
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 12, "only {seen} recorded refusals found");
}

/// The mistakes are those of the command line's recorded transcripts.
#[test]
fn a_job_with_several_mistakes_reads_as_recorded() {
    let job = r#"{"ID": "j", "Type": "strange", "Priority": 500, "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t"}]}]}"#;
    let mut job: api::Job = api::decode(job.as_bytes()).unwrap();
    api::canonicalize(&mut job);
    let (mut job, misfits) = api::fit(&job);
    job.datacenters = vec!["*".into()];
    let verdict = caravan_admission::check_all(&job, misfits);
    assert_eq!(
        verdict.refusal(),
        "3 errors occurred:\n\t* Invalid job type: \"strange\"\n\t* Task group g validation failed: 1 error occurred:\n\t* Task t \
         validation failed: 1 error occurred:\n\t* Missing task driver\n\n\n\n\n\t* job priority must be between [1, 100]\n\n"
    );
}

/// Each rule that checks misfits reports every misfit exactly once.
#[test]
fn every_misfit_is_told_once() {
    let job = r#"{"ID": "j", "Type": "strnge", "Datacenters": ["a"], "TaskGroups": [{"Name": "g", "Count": -1,
        "Update": {"MaxParallel": -2, "Canary": -3}, "Migrate": {"MaxParallel": -4},
        "RestartPolicy": {"Mode": "delai", "Attempts": 1}, "ReschedulePolicy": {"Attempts": -6},
        "Volumes": {"v": {"Type": "csi", "Source": "s", "AccessMode": "both", "AttachmentMode": "tape",
            "BrokenMount": "smile"}},
        "Tasks": [{"Name": "t", "Driver": "exec", "RestartPolicy": {"Mode": "never"},
            "LogConfig": {"MaxFiles": -7, "MaxFileSizeMB": -8},
            "VolumeMounts": [{"Volume": "v", "Destination": "/v", "PropagationMode": "up"}],
            "CSIPluginConfig": {"ID": "p", "Type": "server"}}]}]}"#;
    let mut job: api::Job = api::decode(job.as_bytes()).unwrap();
    api::canonicalize(&mut job);
    let (job, misfits) = api::fit(&job);
    let messages: Vec<String> = misfits.0.iter().map(|m| m.message.clone()).collect();
    assert!(messages.len() >= 14, "{messages:?}");
    let text = caravan_admission::check_all(&job, misfits).refusal();
    for message in &messages {
        let reported = text.matches(&format!("\t* {message}\n")).count();
        let meant = messages.iter().filter(|other| *other == message).count();
        assert_eq!(reported, meant, "{message} in {text}");
    }
    for part in [
        "Unsupported restart mode: \"delai\" Did you mean \"delay\"?",
        "Canary count can not be less than zero: -3 < 0",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
