//! Jobs that create other jobs.

use crate::make;
use crate::world::{Cluster, Setup, until};
use caravan_server::{Dispatch, JobSubmission};
use caravan_types::JobId;
use caravan_types::eval::Trigger;
use caravan_types::job::{Job, JobStatus, JobType, Parameterized, Periodic};
use std::collections::BTreeSet;

fn parameterized(id: &str) -> Job {
    let rule = Parameterized {
        payload: "optional".into(),
        meta_required: Some(vec!["input".into()]),
        meta_optional: None,
    };
    Job { kind: JobType::Batch, parameterized_job: Some(rule), ..make::job(id) }
}

fn periodic(id: &str, spec: &str, prohibit_overlap: bool) -> Job {
    let rule = Periodic {
        enabled: true,
        specs: vec![spec.into()],
        spec_type: "cron".into(),
        prohibit_overlap,
        time_zone: "UTC".into(),
        ..Periodic::default()
    };
    Job { kind: JobType::Batch, periodic: Some(rule.into()), ..make::job(id) }
}

fn dispatch_with(token: &str) -> Dispatch {
    Dispatch {
        payload: b"payload".to_vec(),
        meta: [("input".to_owned(), "a".to_owned())].into(),
        idempotency_token: token.to_owned(),
        ..Dispatch::default()
    }
}

fn children(cluster: &Cluster, parent: &str) -> Vec<JobId> {
    cluster.root().children(&make::job_key(parent)).map(|child| child.id.clone()).collect()
}

#[tokio::test]
async fn a_template_is_not_evaluated_and_its_child_is_placed() {
    let cluster = Setup::memory().start().await;
    let _client = cluster.plain("a").await;
    let key = make::job_key("encode");
    let answer = cluster.run_job(parameterized("encode")).await;
    assert!(answer.eval_id.is_empty());
    assert_eq!(answer.eval_create_index, 0);
    assert_eq!(cluster.root().job(&key).unwrap().status, JobStatus::Running);

    let made = cluster.handle.jobs().dispatch(key.clone(), dispatch_with("")).await.unwrap();
    let child = cluster.placed(made.job_id.as_str()).await;
    let job = child.job.as_ref().unwrap();
    assert_eq!(
        (job.parent_id.as_str(), job.payload.as_str(), job.dispatched),
        ("encode", "cGF5bG9hZA==", true)
    );
    let eval = cluster.eval_over(&made.eval_id).await;
    assert_eq!(eval.triggered_by, Trigger::JobRegister);

    let stopped = cluster.handle.jobs().deregister(key.clone(), false, None).await.unwrap();
    assert!(stopped.eval_id.is_empty());
    let refused = cluster.handle.jobs().dispatch(key, dispatch_with("")).await.unwrap_err();
    assert_eq!(refused.to_string(), "Specified job \"encode\" is stopped");
}

#[tokio::test]
async fn of_many_dispatches_with_one_token_one_makes_a_child() {
    let cluster = Setup::memory().start().await;
    cluster.run_job(parameterized("encode")).await;
    let jobs = cluster.handle.jobs();
    let dispatch = |token| jobs.dispatch(make::job_key("encode"), dispatch_with(token));
    let same = futures::future::join_all((0..8).map(|_| dispatch("once"))).await;
    let ids: BTreeSet<JobId> = same.into_iter().map(|made| made.unwrap().job_id).collect();
    assert_eq!(ids.len(), 1);
    let each = futures::future::join_all((0..8).map(|_| dispatch(""))).await;
    let ids: BTreeSet<JobId> = each.into_iter().map(|made| made.unwrap().job_id).collect();
    assert_eq!(ids.len(), 8);
    assert_eq!(children(&cluster, "encode").len(), 9);
}

#[tokio::test]
async fn every_forced_launch_is_a_child_of_its_own() {
    let cluster = Setup::memory().start().await;
    cluster.run_job(periodic("yearly", "@yearly", true)).await;
    let jobs = cluster.handle.jobs();
    let force = || jobs.force_periodic(make::job_key("yearly"));
    let made = futures::future::join_all((0..5).map(|_| force())).await;
    let ids: BTreeSet<JobId> = made.into_iter().map(|made| made.unwrap().job_id).collect();
    assert_eq!(ids.len(), 5, "{ids:?}");
    let root = cluster.root();
    // An evaluation of unplaced allocations may wait already.
    let mut evals = root.evals_by_job(&make::job_key(ids.first().unwrap().as_str()));
    assert!(evals.any(|eval| eval.triggered_by == Trigger::PeriodicJob));
}

#[tokio::test]
async fn a_child_comes_with_its_time_and_no_second_one_while_it_lives() {
    let cluster = Setup::memory().start().await;
    cluster.run_job(periodic("often", "* * * * * * *", false)).await;
    cluster.run_job(periodic("alone", "* * * * * * *", true)).await;
    let first = until("a child", || children(&cluster, "alone").first().cloned()).await;
    // The test waits until the other job has several children.
    until("several children", || (children(&cluster, "often").len() > 2).then_some(())).await;
    assert_eq!(children(&cluster, "alone"), [first]);

    // A stopped job leaves nothing to place.
    cluster.handle.jobs().deregister(make::job_key("often"), false, None).await.unwrap();
    let many = children(&cluster, "often").len();
    until("the next second", || (cluster.root().job(&make::job_key("often"))?.stop).then_some(())).await;
    assert_eq!(children(&cluster, "often").len(), many);
}

#[tokio::test]
async fn a_job_stays_what_it_is() {
    let cluster = Setup::memory().start().await;
    cluster.run_job(parameterized("a")).await;
    cluster.run_job(Job { kind: JobType::Batch, ..make::job("b") }).await;
    for (job, words) in [
        (Job { kind: JobType::Batch, ..make::job("a") }, "parameterized job to being non-parameterized"),
        (parameterized("b"), "non-parameterized job to being parameterized"),
        (periodic("b", "@daily", false), "non-periodic job to being periodic"),
        (make::job("b"), "cannot update job from type \"batch\" to \"service\""),
    ] {
        let refused = cluster
            .handle
            .jobs()
            .register(JobSubmission { draft: job.into(), ..Default::default() })
            .await
            .unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
}
