//! Compares the output of `job status` to recorded output.

use super::*;
use crate::format::tests::clock;
use caravan_types::eval::{AllocMetric, Counts};
use caravan_types::job::{GroupSummary, JobStatus, JobType};
use caravan_types::small::Map;
use caravan_types::time::UnixNanos;
use caravan_types::volume::ClaimPhase;

fn at(text: &str) -> UnixNanos {
    clock(text).now
}

fn job(id: &str, kind: JobType, status: JobStatus, submitted: &str) -> Job {
    Job {
        id: id.into(),
        name: id.into(),
        kind,
        status,
        priority: 50,
        datacenters: vec!["*".into()],
        namespace: "default".into(),
        node_pool: "default".into(),
        submit_time: at(submitted),
        ..Default::default()
    }
}

#[test]
fn the_list_reads_like_the_recorded_one() {
    let stub = |id: &str, kind, status, time: &str| {
        let job = job(id, kind, status, time);
        JobListStub {
            id: job.id,
            kind: job.kind,
            priority: 50,
            status,
            submit_time: job.submit_time,
            ..Default::default()
        }
    };
    use JobStatus::{Dead, Pending, Running};
    let mut jobs = vec![
        stub("crash", JobType::Service, Dead, "2026-11-21T09:22:37Z"),
        stub("crunch", JobType::Batch, Dead, "2026-11-21T09:22:23Z"),
        stub("encode", JobType::Batch, Running, "2026-11-21T09:22:37Z"),
        stub("everywhere", JobType::System, Running, "2026-11-21T09:22:24Z"),
        stub("huge", JobType::Service, Pending, "2026-11-21T09:22:36Z"),
        stub("nightly", JobType::Batch, Running, "2026-11-21T09:22:36Z"),
        stub("sweep", JobType::Sysbatch, Dead, "2026-11-21T09:22:24Z"),
        stub("talk", JobType::Service, Running, "2026-11-21T09:22:24Z"),
        stub("web", JobType::Service, Running, "2026-11-21T09:22:37Z"),
    ];
    jobs[2].parameterized_job = true;
    jobs[5].periodic = true;
    let text = list(&clock("2026-11-21T09:22:40Z"), &jobs, false);
    assert_eq!(text + "\n", include_str!("../../../../fixtures/job-list.txt"));
}

#[test]
fn a_job_that_waits_reads_like_the_recorded_one() {
    let metric = AllocMetric::from(Counts {
        nodes_evaluated: 1,
        nodes_exhausted: 1,
        class_exhausted: Map::from([("fixture".into(), 1)]),
        dimension_exhausted: Map::from([("cpu".into(), 1)]),
        ..Default::default()
    });
    let eval = |status, index| Evaluation {
        status,
        create_index: index,
        modify_index: index,
        failed_tg_allocs: BTreeMap::from([("g".into(), metric.clone())]),
        ..Default::default()
    };
    let summary = GroupSummary { queued: 1, ..Default::default() };
    let mut detail = Detail {
        job: job("huge", JobType::Service, JobStatus::Pending, "2026-11-21T09:22:36Z"),
        summary: Some(JobSummary { summary: BTreeMap::from([("g".into(), summary)]), ..Default::default() }),
        evals: vec![eval(EvalStatus::Complete, 1), eval(EvalStatus::Blocked, 2)],
        ..Default::default()
    };
    let clock = clock("2026-11-21T09:22:40Z");
    let text = detail.render(&clock, &StatusArgs::default());
    assert_eq!(text + "\n", include_str!("../../../../fixtures/job-status-huge.txt"));

    detail.evals[1].missing_non_node_resources = vec!["csi-claim:default:data".into()];
    let claim = ClaimView {
        alloc_id: "59017f05-ce1f".into(),
        job_id: "writer".into(),
        phase: ClaimPhase::Mounted,
        modify_time: at("2026-11-21T09:22:37Z"),
        ..Default::default()
    };
    let gone = ClaimView { phase: ClaimPhase::Gone, ..Default::default() };
    detail.holders.insert("csi-claim:default:data".into(), vec![claim, gone]);
    let text = detail.render(&clock, &StatusArgs::default());
    let line = "  * Waiting for a claim on volume \"data\" in namespace \"default\" to be released\n    \
                Held by allocation \"59017f05\" of job \"writer\" (mounted, since 3s ago)\n\n";
    assert!(text.contains(line), "{text}");

    detail.evals = vec![eval(EvalStatus::Complete, 1), Evaluation { create_index: 3, ..Default::default() }];
    assert!(detail.placement_failure(&clock).is_none(), "a newer evaluation placed everything");
}

#[test]
fn a_parameterized_job_tells_what_a_dispatch_gives() {
    let mut job = job("encode", JobType::Batch, JobStatus::Running, "2026-11-21T09:22:37Z");
    job.parameterized_job = Some(caravan_types::job::Parameterized {
        payload: "optional".into(),
        meta_required: Some(vec!["input".into()]),
        meta_optional: None,
    });
    let detail = Detail { job, summary: Some(JobSummary::default()), ..Default::default() };
    let text = detail.render(&clock("2026-11-21T09:22:39Z"), &StatusArgs::default());
    let recorded = include_str!("../../../../fixtures/job-status-encode.txt");
    assert_eq!(text + "\n", recorded);
}

#[test]
fn a_finished_batch_job_reads_like_the_recorded_one() {
    let summary = GroupSummary { complete: 1, ..Default::default() };
    let alloc = AllocListStub {
        id: "de0fa963-aacf-0637-6aa1-531be241cffb".into(),
        node_id: "63126d9d-dd5a-f032-b3e4-c1537acb6cc7".into(),
        task_group: "g".into(),
        client_status: caravan_types::alloc::ClientStatus::Complete,
        create_time: at("2026-11-21T09:22:23Z"),
        modify_time: at("2026-11-21T09:22:24Z"),
        ..Default::default()
    };
    let detail = Detail {
        job: job("crunch", JobType::Batch, JobStatus::Dead, "2026-11-21T09:22:23Z"),
        summary: Some(JobSummary { summary: BTreeMap::from([("g".into(), summary)]), ..Default::default() }),
        evals: vec![Evaluation {
            id: "7517fe37-e7f9-e051-f894-839e3280cda6".into(),
            priority: 50,
            status: EvalStatus::Complete,
            ..Default::default()
        }],
        allocs: vec![alloc],
        ..Default::default()
    };
    let args = StatusArgs { evals: true, ..Default::default() };
    let text = detail.render(&clock("2026-11-21T09:22:39Z"), &args);
    assert_eq!(text + "\n", include_str!("../../../../fixtures/job-status-crunch.txt"));
}

#[test]
fn a_service_with_a_canary_reads_like_the_recorded_one() {
    let alloc = |id: &str, version, created: &str, modified: &str| AllocListStub {
        id: id.into(),
        node_id: "63126d9d-dd5a-f032-b3e4-c1537acb6cc7".into(),
        task_group: "web".into(),
        job_version: version,
        client_status: caravan_types::alloc::ClientStatus::Running,
        create_index: version,
        create_time: at(created),
        modify_time: at(modified),
        ..Default::default()
    };
    let action = caravan_types::job::Action { name: "hello".into(), command: "/bin/echo".into(), args: None };
    let task =
        caravan_types::job::Task { name: "server".into(), actions: vec![action], ..Default::default() };
    let group = caravan_types::job::TaskGroup { name: "web".into(), tasks: vec![task], ..Default::default() };
    let mut job = job("web", JobType::Service, JobStatus::Running, "2026-11-21T09:22:37Z");
    job.task_groups = vec![group];
    let state = caravan_types::deployment::DeploymentState {
        desired_total: 2,
        desired_canaries: 1,
        placed_allocs: 1,
        healthy_allocs: 1,
        require_progress_by: at("2026-11-21T09:23:18Z").to_time(),
        ..Default::default()
    };
    let summary = GroupSummary { running: 3, ..Default::default() };
    let detail = Detail {
        job,
        summary: Some(JobSummary {
            summary: BTreeMap::from([("web".into(), summary)]),
            ..Default::default()
        }),
        deployment: Some(Deployment {
            id: "31a61a1a-94c6".into(),
            status_description: "Deployment is running but requires manual promotion".into(),
            task_groups: BTreeMap::from([("web".into(), state)]),
            ..Default::default()
        }),
        allocs: vec![
            alloc("59017f05-ce1f", 0, "2026-11-21T09:22:20Z", "2026-11-21T09:22:22Z"),
            alloc("a810f467-f0e7", 0, "2026-11-21T09:22:20Z", "2026-11-21T09:22:22Z"),
            alloc("895f3b64-f6dd", 1, "2026-11-21T09:22:38Z", "2026-11-21T09:22:40Z"),
        ],
        ..Default::default()
    };
    let text = detail.render(&clock("2026-11-21T09:22:40Z"), &StatusArgs::default());
    assert_eq!(text + "\n", include_str!("../../../../fixtures/job-status-web.txt"));
}
