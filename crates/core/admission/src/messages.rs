//! Tests of every message of admission: the change of a job that causes it, and its text.

mod group;
mod job;
mod service;
mod task;
mod warnings;

use super::tests::minimal;
use super::{Problem, ProblemCode, Verdict, check, update as check_update};
use caravan_api::{self as api, PathStep};
use caravan_types::Nanos;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::{
    Affinity, Constraint, CsiPluginConfig, DisconnectStrategy, EphemeralDisk, Job, JobType, Lifecycle,
    MigrateStrategy, Network, Port, RequestedDevice, ReschedulePolicy, RestartMode, RestartPolicy, Spread,
    SpreadTarget, Task, TaskGroup, Template, UpdateStrategy, VolumeRequest, VolumeType,
};
use caravan_types::service::ServiceSpec;
use caravan_types::volume::{AccessMode, AttachmentMode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

type Case = (&'static str, fn(&mut Job));

fn verdict(change: fn(&mut Job)) -> Verdict {
    let mut job = minimal();
    change(&mut job);
    check(&job)
}

fn group(job: &mut Job) -> &mut TaskGroup {
    &mut job.task_groups[0]
}

fn task(job: &mut Job) -> &mut Task {
    &mut job.task_groups[0].tasks[0]
}

/// Adds a volume request to the group.
fn source(job: &mut Job, source: &str, per_alloc: bool) {
    let request = VolumeRequest {
        name: "v".into(),
        kind: VolumeType::Csi,
        source: source.into(),
        per_alloc,
        access_mode: AccessMode::SingleNodeWriter,
        attachment_mode: AttachmentMode::FileSystem,
        ..VolumeRequest::default()
    };
    group(job).volumes.insert("v".into(), request);
}

/// Parses one block from its JSON.
fn block<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn carry<T: DeserializeOwned>(value: Value) -> Vec<T> {
    vec![block(value)]
}

fn secs(n: i64) -> Nanos {
    Nanos::from_secs(n)
}

fn constraint(left: &str, operand: &str, right: &str) -> Vec<Constraint> {
    vec![Constraint { l_target: left.into(), r_target: right.into(), operand: operand.into() }]
}

fn affinity(left: &str, operand: &str, right: &str, weight: i64) -> Vec<Affinity> {
    vec![Affinity { l_target: left.into(), r_target: right.into(), operand: operand.into(), weight }]
}

fn spread(attribute: &str, weight: i64, targets: &[(&str, u32)]) -> Vec<Spread> {
    let target = |(value, percent): &(&str, u32)| SpreadTarget { value: (*value).into(), percent: *percent };
    vec![Spread { attribute: attribute.into(), weight, spread_target: targets.iter().map(target).collect() }]
}

fn update() -> UpdateStrategy {
    UpdateStrategy {
        stagger: secs(30),
        max_parallel: 1,
        health_check: "checks".into(),
        min_healthy_time: secs(10),
        healthy_deadline: secs(300),
        progress_deadline: secs(600),
        ..Default::default()
    }
}

fn reschedule() -> ReschedulePolicy {
    ReschedulePolicy {
        attempts: 3,
        interval: secs(3600),
        delay: secs(30),
        delay_function: "constant".into(),
        max_delay: secs(300),
        unlimited: false,
    }
}

fn port(label: &str, value: i64) -> Port {
    Port { label: label.into(), value, host_network: "default".into(), ..Default::default() }
}

fn service(change: Value) -> Vec<ServiceSpec> {
    let mut all = json!({"Name": "web", "Provider": "consul", "AddressMode": "auto", "OnUpdate": "require_healthy",
        "Cluster": "default"});
    merge(&mut all, change);
    carry(all)
}

fn with_check(change: Value) -> Vec<ServiceSpec> {
    let mut all = json!({"Type": "tcp", "PortLabel": "8080", "Interval": 1_000_000_000, "Timeout": 1_000_000_000,
        "OnUpdate": "require_healthy"});
    merge(&mut all, change);
    service(json!({"Checks": [all]}))
}

fn template(change: Value) -> Vec<Template> {
    let mut all =
        json!({"EmbeddedTmpl": "x", "DestPath": "local/x", "ChangeMode": "restart", "Perms": "0644"});
    merge(&mut all, change);
    carry(all)
}

fn identity(change: Value) -> Vec<IdentitySpec> {
    let mut all = json!({"Name": "i", "Audience": ["a"], "TTL": 3_600_000_000_000_i64});
    merge(&mut all, change);
    carry(all)
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

#[test]
fn every_error_is_reported() {
    let mut wrong = Vec::new();
    let all = [job::CASES, group::CASES, service::CASES, task::CASES];
    for (want, change) in all.into_iter().flatten() {
        let text = verdict(*change).refusal();
        if !text.contains(want) {
            wrong.push(format!("want {want:?}, have {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_warning_is_reported() {
    let mut wrong = Vec::new();
    for (want, change) in warnings::CASES {
        let text = verdict(*change).warnings.texts().join("\n");
        if !text.contains(want) {
            wrong.push(format!("want {want:?}, have {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The builders of the cases create valid jobs before a case changes them.
#[test]
fn the_cases_begin_with_what_is_right() {
    let not_built = |error: &String| !error.contains("not supported yet");
    let mut job = minimal();
    group(&mut job).update = Some(update());
    group(&mut job).reschedule_policy = Some(reschedule());
    group(&mut job).services = with_check(json!({}));
    group(&mut job).shutdown_delay = Some(secs(1));
    task(&mut job).identities = identity(json!({}));
    task(&mut job).constraints = constraint("${attr.a}", "version", ">= 1.2");
    task(&mut job).affinities = affinity("${meta.a}", "set_contains_any", "x", -100);
    group(&mut job).spreads = spread("${node.datacenter}", 100, &[("a", 50), ("b", 50)]);
    let errors: Vec<_> = check(&job).errors.texts().into_iter().filter(not_built).collect();
    assert_eq!(errors, Vec::<String>::new());
    task(&mut job).templates = template(json!({}));
    assert_eq!(check(&job).errors.texts(), Vec::<String>::new());
}

/// Returns all problems that the cases cause, each with its job.
fn all_problems() -> Vec<(Job, Problem)> {
    let all = [job::CASES, group::CASES, service::CASES, task::CASES, warnings::CASES];
    let mut out = Vec::new();
    for (_, change) in all.into_iter().flatten() {
        let mut job = minimal();
        change(&mut job);
        let Verdict { errors, warnings } = check(&job);
        out.extend(errors.iter().chain(warnings.iter()).map(|problem| (job.clone(), problem.clone())));
    }
    out
}

/// The codes of problems whose detection needs more than the job. The tests of the servers and of the API cause them.
const BY_STATE: [ProblemCode; 4] = [
    ProblemCode::Nonexistent,
    ProblemCode::NotAllowedInNamespace,
    ProblemCode::VolumeLacksMode,
    ProblemCode::Hidden,
];

#[test]
fn every_code_is_brought_about() {
    let mut found: Vec<ProblemCode> = all_problems().into_iter().map(|(_, problem)| problem.code).collect();
    found
        .extend(check_update(None, &Job { dispatched: true, ..minimal() }).err().map(|problem| problem.code));
    let never: Vec<_> =
        ProblemCode::ALL.iter().filter(|code| !found.contains(code) && !BY_STATE.contains(code)).collect();
    assert_eq!(never, Vec::<&ProblemCode>::new());
    let names: std::collections::BTreeSet<&str> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(names.len(), ProblemCode::ALL.len());
}

/// Follows a path in the JSON of a job, in which unset fields are null.
fn follow(json: &Value, problem: &Problem) -> Result<(), String> {
    let mut value = json;
    for step in problem.path.steps() {
        let next = match step {
            // A path below a missing block consists of fields only.
            PathStep::Field(_) if value.is_null() => continue,
            PathStep::Field(name) => value.get(name.as_ref()),
            PathStep::Index(at) => value.get(at),
            PathStep::Key(key) => value.get(key),
        };
        value =
            next.ok_or_else(|| format!("{} of {:?} leads nowhere at {step:?}", problem.path, problem.text))?;
    }
    Ok(())
}

#[test]
fn every_path_leads_to_a_setting_of_the_job() {
    let mut wrong = Vec::new();
    for (job, problem) in all_problems() {
        let kept = serde_json::to_value(&job).unwrap();
        // Blocks of a wrong type cannot be read.
        let Ok(job) = api::from_value::<api::Job>(&kept) else { continue };
        wrong.extend(follow(&serde_json::to_value(job).unwrap(), &problem).err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All errors are reported together.
#[test]
fn errors_are_collected() {
    let mut job = minimal();
    job.priority = 0;
    group(&mut job).constraints = constraint("", "~~", "");
    task(&mut job).driver.clear();
    task(&mut job).resources.memory_mb = 1;
    let text = check(&job).refusal();
    for part in ["job priority", "Unknown constraint type", "No LTarget", "Missing task driver", "MemoryMB"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
