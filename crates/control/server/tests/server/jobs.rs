//! The lifecycle of jobs without volumes.

use crate::make;
use crate::plugin::Plugin;
use crate::world::{Setup, soon, until};
use caravan_api::ErrorReason;
use caravan_server::{JobSubmission, Kind};
use caravan_types::Nanos;
use caravan_types::alloc::{ClientStatus, DesiredStatus, event};
use caravan_types::eval::{EvalStatus, Trigger};
use caravan_types::job::{Job, JobStatus, JobType};
use caravan_types::volume::AccessMode;
use futures::StreamExt;

#[tokio::test]
async fn a_job_runs_stops_and_is_purged() {
    let cluster = Setup::memory().start().await;
    let client = cluster.plain("a").await;
    let mut stream = client.watch();
    assert!(stream.next().await.unwrap().unwrap().full);
    let registered = cluster.run_job(make::job("web")).await;
    assert_eq!(cluster.eval_over(&registered.eval_id).await.status, EvalStatus::Complete);
    let delta = soon("the placement", stream.next()).await.unwrap().unwrap();
    let alloc = delta.allocs[0].clone();
    assert_eq!(alloc.name, "web.g[0]");
    assert_eq!(alloc.job.as_ref().unwrap().id, "web");
    client.status(&alloc, ClientStatus::Running).await;
    let key = make::job_key("web");
    assert_eq!(cluster.root().job(&key).unwrap().status, JobStatus::Running);

    cluster.stop_job("web").await;
    let delta = soon("the stop", stream.next()).await.unwrap().unwrap();
    assert_eq!(delta.allocs[0].desired_status, DesiredStatus::Stop);
    client.status(&alloc, ClientStatus::Complete).await;
    until("the job dead", || (cluster.root().job(&key).unwrap().status == JobStatus::Dead).then_some(()))
        .await;

    cluster.handle.jobs().deregister(key.clone(), true, None).await.unwrap();
    assert!(cluster.root().job(&key).is_none());
    cluster.quiet().await;
    cluster.handle.collect_garbage().await.unwrap();
    assert!(cluster.root().alloc(&alloc.id).is_none());
    let delta = soon("the removal", stream.next()).await.unwrap().unwrap();
    assert_eq!(delta.removed, std::slice::from_ref(&alloc.id));
}

/// Concurrent registrations of one job each return the index of their own write, not that of the last write.
#[tokio::test]
async fn registrations_at_once_return_their_own_index() {
    let cluster = Setup::memory().start().await;
    let jobs = cluster.handle.jobs();
    let register = |count| {
        let mut job = make::job("web");
        job.task_groups[0].count = count;
        jobs.register(JobSubmission { draft: job.into(), ..Default::default() })
    };
    for answer in futures::future::join_all((1..=16).map(register)).await {
        let answer = answer.unwrap();
        assert_eq!(answer.job_modify_index, answer.index);
    }
}

#[tokio::test]
async fn a_purged_job_stops_what_runs() {
    let cluster = Setup::memory().start().await;
    let _client = cluster.plain("a").await;
    cluster.run_job(make::job("web")).await;
    let alloc = cluster.placed("web").await;
    cluster.handle.jobs().deregister(make::job_key("web"), true, None).await.unwrap();
    until("the stop", || cluster.root().alloc(&alloc.id).filter(|a| a.server_terminal()).cloned()).await;
}

#[tokio::test]
async fn stopping_what_does_not_exist_is_no_error() {
    let cluster = Setup::memory().start().await;
    let answer = cluster.handle.jobs().deregister(make::job_key("none"), false, None).await.unwrap();
    assert!(answer.eval_id.is_empty());
}

#[tokio::test]
async fn a_stopped_job_runs_again_when_it_is_registered_again() {
    let cluster = Setup::memory().start().await;
    let client = cluster.plain("a").await;
    cluster.run_job(make::job("web")).await;
    let first = cluster.placed("web").await;
    cluster.stop_job("web").await;
    until("the stop", || cluster.root().alloc(&first.id).filter(|a| a.server_terminal()).cloned()).await;
    client.status(&first, ClientStatus::Complete).await;
    cluster.run_job(make::job("web")).await;
    assert_ne!(cluster.placed("web").await.id, first.id);
}

#[tokio::test]
async fn small_changes_are_taken_over_in_place_and_others_replace() {
    let cluster = Setup::memory().start().await;
    let _client = cluster.plain("a").await;
    cluster.run_job(make::job("web")).await;
    let first = cluster.placed("web").await;

    let mut patient = make::job("web");
    patient.task_groups[0].tasks[0].kill_timeout = Nanos::from_secs(9);
    cluster.run_job(patient.clone()).await;
    let updated = until("the update in place", || {
        let now = cluster.root().alloc(&first.id).cloned()?;
        now.job.as_ref().is_some_and(|job| job.version == 1).then_some(now)
    })
    .await;
    assert!(!updated.server_terminal() && updated.alloc_modify_index > first.alloc_modify_index);

    patient.task_groups[0].tasks[0].env.insert("COLOUR".into(), "red".into());
    cluster.run_job(patient).await;
    until("the replacement", || cluster.root().alloc(&first.id).filter(|a| a.server_terminal()).cloned())
        .await;
    let second = cluster.placed("web").await;
    assert_ne!(second.id, first.id);
    assert_eq!(second.job.as_ref().unwrap().version, 2);
}

#[tokio::test]
async fn the_same_specification_again_changes_nothing() {
    let cluster = Setup::memory().start().await;
    let _client = cluster.plain("a").await;
    let first = cluster.run_job(make::job("web")).await;
    let alloc = cluster.placed("web").await;
    let again = cluster.run_job(make::job("web")).await;
    assert_eq!(again.job_modify_index, first.job_modify_index);
    cluster.eval_over(&again.eval_id).await;
    assert_eq!(cluster.root().job(&make::job_key("web")).unwrap().version, 0);
    assert_eq!(cluster.placed("web").await.id, alloc.id);
}

#[tokio::test]
async fn a_system_job_follows_the_nodes() {
    let cluster = Setup::memory().start().await;
    let _a = cluster.plain("a").await;
    cluster.run_job(make::system_job("logs")).await;
    let key = make::job_key("logs");
    let nodes = || {
        let root = cluster.root();
        let mut nodes: Vec<_> =
            root.allocs_by_job(&key).filter(|a| !a.terminal()).map(|a| a.node_name.clone()).collect();
        nodes.sort();
        nodes
    };
    until("one allocation", || (nodes() == ["a"]).then_some(())).await;
    let _b = cluster.plain("b").await;
    until("a second one", || (nodes() == ["a", "b"]).then_some(())).await;
}

#[tokio::test]
async fn an_enforced_index_must_be_the_jobs() {
    let cluster = Setup::memory().start().await;
    let enforce = |index, job: caravan_types::job::Job| JobSubmission {
        draft: job.into(),
        enforce_index: Some(index),
        ..Default::default()
    };
    let error = cluster.handle.jobs().register(enforce(7, make::job("web"))).await.unwrap_err();
    assert_eq!(error.to_string(), "Enforcing job modify index 7: job does not exist");
    assert_eq!(error.reason(), Some(ErrorReason::ModifyIndex));
    let made = cluster.handle.jobs().register(enforce(0, make::job("web"))).await.unwrap();
    let error = cluster.handle.jobs().register(enforce(0, make::job("web"))).await.unwrap_err();
    assert_eq!(error.to_string(), "Enforcing job modify index 0: job already exists");
    cluster.handle.jobs().register(enforce(made.job_modify_index, make::job("web"))).await.unwrap();
}

#[tokio::test]
async fn a_jobs_type_is_for_ever() {
    let cluster = Setup::memory().start().await;
    cluster.run_job(make::job("web")).await;
    let batch = caravan_types::job::Job { kind: JobType::Batch, ..make::job("web") };
    let submission = JobSubmission { draft: batch.into(), ..Default::default() };
    let error = cluster.handle.jobs().register(submission).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    assert_eq!(error.to_string(), "cannot update job from type \"service\" to \"batch\"");
    let problems = error.problems();
    let [problem] = problems.as_slice() else { panic!("{error:?}") };
    assert_eq!((problem.path.to_string().as_str(), problem.code.as_str()), ("Type", "immutable"));
}

#[tokio::test]
async fn a_plan_changes_nothing() {
    let cluster = Setup::memory().start().await;
    let _client = cluster.plain("a").await;
    cluster.quiet().await;
    let before = cluster.root().index();
    let planned = cluster.plan(make::job("web")).unwrap();
    assert_eq!(planned.annotations.unwrap().desired_tg_updates["g"].place, 1);
    assert_eq!((planned.job_modify_index, planned.index), (0, before));
    let mut huge = make::job("web");
    huge.task_groups[0].tasks[0].resources.memory_mb = 1 << 30;
    assert!(cluster.plan(huge).unwrap().failed.contains_key("g"));
    assert_eq!(cluster.root().index(), before);
    assert!(cluster.root().job(&make::job_key("web")).is_none());
}

#[tokio::test]
async fn an_allocation_that_is_stopped_by_hand_is_replaced() {
    let cluster = Setup::memory().start().await;
    let _client = cluster.plain("a").await;
    cluster.run_job(make::job("web")).await;
    let first = cluster.placed("web").await;
    let (eval, _) = cluster.handle.jobs().stop_alloc(first.id.clone(), false, false).await.unwrap();
    cluster.eval_over(&eval).await;
    assert!(cluster.root().alloc(&first.id).unwrap().server_terminal());
    assert_ne!(cluster.placed("web").await.id, first.id);
    let error = cluster.handle.jobs().stop_alloc("nope".into(), false, false).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
}

#[tokio::test]
async fn a_failure_has_its_job_looked_at_once() {
    let cluster = Setup::memory().start().await;
    let client = cluster.plain("a").await;
    cluster.run_job(make::job("web")).await;
    let alloc = cluster.placed("web").await;
    let looks = || {
        let root = cluster.root();
        root.evals_by_job(&make::job_key("web")).filter(|e| e.triggered_by == Trigger::AllocFailure).count()
    };
    client.status(&alloc, ClientStatus::Running).await;
    assert_eq!(looks(), 0);
    for _ in 0..2 {
        client.status(&alloc, ClientStatus::Failed).await;
        assert_eq!(looks(), 1);
    }
    // An end is final, even if later reports arrive.
    client.status(&alloc, ClientStatus::Running).await;
    assert_eq!(cluster.root().alloc(&alloc.id).unwrap().client_status, ClientStatus::Failed);
}

/// After the restore of a snapshot, a node reports allocations as ended that the state shows as running: their job
/// was stopped after the snapshot.
#[tokio::test]
async fn a_service_that_its_node_stopped_runs_again() {
    let cluster = Setup::memory().start().await;
    let client = cluster.plain("a").await;
    cluster.run_job(make::job("web")).await;
    let first = cluster.placed("web").await;
    client.status(&first, ClientStatus::Running).await;
    client.ended(&first, event::KILLED).await;
    cluster.quiet().await;
    let second = cluster.placed("web").await;
    assert_ne!(second.id, first.id);

    // A task that ends by itself, and whose group has no restarts, would be placed many times a second.
    client.status(&second, ClientStatus::Running).await;
    client.ended(&second, event::TERMINATED).await;
    cluster.quiet().await;
    let root = cluster.root();
    assert_eq!(root.allocs_by_job(&make::job_key("web")).count(), 2);

    let batch = Job { kind: JobType::Batch, ..make::job("once") };
    cluster.run_job(batch).await;
    let once = cluster.placed("once").await;
    client.status(&once, ClientStatus::Complete).await;
    cluster.quiet().await;
    let root = cluster.root();
    let looks = root.evals_by_job(&make::job_key("once")).filter(|e| e.triggered_by == Trigger::AllocStop);
    assert_eq!(looks.count(), 0, "a batch job ends by itself");
}

#[tokio::test]
async fn a_node_speaks_for_its_own_allocations_only() {
    let cluster = Setup::memory().start().await;
    let _a = cluster.plain("a").await;
    cluster.run_job(make::job("web")).await;
    let alloc = cluster.placed("web").await;
    let b = cluster.plain("b").await;
    cluster.quiet().await;
    let before = cluster.root().index();
    b.status(&alloc, ClientStatus::Failed).await;
    assert_eq!(cluster.root().index(), before);
}

/// docs/design/rough-edges.md, 20: a job whose modes the volume was not registered with is refused, with the required
/// change.
#[tokio::test]
async fn modes_that_a_volume_does_not_have_are_refused_at_once() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let _client = cluster.join(make::storage_node("a", true), &plugin).await;
    // A job waits for a volume that does not exist yet.
    let mut job = make::writer("one", "data");
    for request in job.task_groups[0].volumes.values_mut() {
        request.access_mode = AccessMode::MultiNodeMultiWriter;
    }
    cluster.plan(job.clone()).unwrap();
    cluster.create(make::volume("data")).await.unwrap();
    let planned = cluster.plan(job.clone()).unwrap_err();
    assert!(
        planned.to_string().contains(
            "volume \"data\" cannot be used as file-system with access mode multi-node-multi-writer: it was registered for file-system with access mode single-node-writer: ask for a mode that it has"
        ),
        "{planned}"
    );
    let problems = planned.problems();
    let [problem] = problems.as_slice() else { panic!("{planned:?}") };
    assert_eq!(problem.path.to_string(), "TaskGroups[0].Volumes[\"data\"].AccessMode");
    assert_eq!(problem.code, "volume_lacks_mode");
    let submission = JobSubmission { draft: job.into(), ..Default::default() };
    let refused = cluster.handle.jobs().register(submission).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string(), refused.problems()),
        (planned.kind(), planned.to_string(), problems)
    );
}
