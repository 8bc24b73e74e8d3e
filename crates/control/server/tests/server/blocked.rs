//! Evaluations that wait, and the changes that unblock them.

use crate::make;
use crate::plugin::Plugin;
use crate::world::{Setup, claim_id, until};
use caravan_types::alloc::ClientStatus;
use caravan_types::eval::{EvalStatus, WaitsFor};
use caravan_types::volume::ClaimPhase;

#[tokio::test]
async fn a_new_node_wakes() {
    let cluster = Setup::memory().start().await;
    cluster.run_job(make::job("web")).await;
    cluster.blocked("web").await;
    let _client = cluster.plain("a").await;
    cluster.placed("web").await;
    cluster.quiet().await;
    assert_eq!(cluster.handle.scheduling().depth().blocked, 0);
}

#[tokio::test]
async fn freed_resources_wake() {
    let cluster = Setup::memory().start().await;
    let client = cluster.plain("a").await;
    cluster.run_job(make::big_job("one")).await;
    let first = cluster.placed("one").await;
    cluster.run_job(make::big_job("two")).await;
    let waits = cluster.blocked("two").await;
    assert_eq!(waits.failed_tg_allocs["g"].dimension_exhausted["memory"], 1);
    cluster.stop_job("one").await;
    client.status(&first, ClientStatus::Complete).await;
    cluster.placed("two").await;
}

#[tokio::test]
async fn a_created_volume_wakes_and_its_row_is_the_same() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let _client = cluster.join(make::storage_node("a", true), &plugin).await;
    cluster.run_job(make::writer("one", "data")).await;
    let waits = cluster.blocked("one").await;
    let expected = WaitsFor::Volume(make::volume_key("data")).to_string();
    assert_eq!(waits.missing_non_node_resources, [expected]);
    cluster.create(make::volume("data")).await.unwrap();
    cluster.placed("one").await;
    cluster.quiet().await;
    let root = cluster.root();
    assert_eq!(root.eval(&waits.id).unwrap().status, EvalStatus::Complete);
    assert_eq!(root.evals_by_job(&make::job_key("one")).count(), 2, "the woken evaluation keeps its row");
}

#[tokio::test]
async fn a_wake_that_does_not_help_leaves_one_row_waiting() {
    let cluster = Setup::memory().start().await;
    let mut huge = make::job("web");
    huge.task_groups[0].tasks[0].resources.memory_mb = 1 << 20;
    cluster.run_job(huge).await;
    let first = cluster.blocked("web").await;
    for name in ["a", "b", "c"] {
        let before = cluster.root().eval(&first.id).unwrap().modify_index;
        cluster.plain(name).await;
        until("another look", || {
            let root = cluster.root();
            let eval = root.eval(&first.id)?;
            (eval.modify_index > before && eval.status == EvalStatus::Blocked).then_some(())
        })
        .await;
        cluster.quiet().await;
    }
    assert_eq!(cluster.root().evals_by_job(&make::job_key("web")).count(), 2);
    until("it waits", || (cluster.handle.scheduling().depth().blocked == 1).then_some(())).await;
}

#[tokio::test]
async fn a_freed_claim_wakes() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let first = cluster.placed("one").await;
    let claim = client.start(&first, &make::volume_key("data")).await;
    cluster.run_job(make::writer("two", "data")).await;
    let waits = cluster.blocked("two").await;
    let expected = WaitsFor::Claim(make::volume_key("data")).to_string();
    assert_eq!(waits.missing_non_node_resources, [expected]);
    cluster.stop_job("one").await;
    client.finish(&first, &claim).await;
    let second = cluster.placed("two").await;
    let (_, grant) = client.obtain(&claim_id(&make::volume_key("data"), &second)).await;
    grant.unwrap();
    assert_eq!(cluster.claim(&claim.id).unwrap().phase, ClaimPhase::Gone);
}

#[tokio::test]
async fn a_plugin_that_becomes_healthy_wakes() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut client = cluster.join(make::storage_node("a", true), &plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    client.report(make::with_health(client.row.clone(), false)).await;
    cluster.run_job(make::writer("one", "data")).await;
    cluster.blocked("one").await;
    client.report(make::with_health(client.row.clone(), true)).await;
    cluster.placed("one").await;
}

#[tokio::test]
async fn an_update_of_a_waiting_job_leaves_one_evaluation_waiting() {
    let cluster = Setup::memory().start().await;
    for memory in [1 << 20, 1 << 21, 1 << 22] {
        let mut huge = make::job("web");
        huge.task_groups[0].tasks[0].resources.memory_mb = memory;
        let registered = cluster.run_job(huge).await;
        cluster.eval_over(&registered.eval_id).await;
    }
    let key = make::job_key("web");
    until("one that waits", || {
        let root = cluster.root();
        let waiting = root.evals_by_job(&key).filter(|e| e.status == EvalStatus::Blocked).count();
        (waiting == 1 && cluster.handle.scheduling().depth().blocked == 1).then_some(())
    })
    .await;
    let root = cluster.root();
    let canceled = root.evals_by_job(&key).filter(|e| e.status == EvalStatus::Canceled).count();
    assert_eq!(canceled, 2);
}

#[tokio::test]
async fn a_stopped_job_waits_for_nothing() {
    let cluster = Setup::memory().start().await;
    cluster.run_job(make::job("web")).await;
    let waiting = cluster.blocked("web").await;
    cluster.stop_job("web").await;
    until("the cancellation", || {
        (cluster.root().eval(&waiting.id).unwrap().status == EvalStatus::Canceled).then_some(())
    })
    .await;
    until("nothing waits", || (cluster.handle.scheduling().depth().blocked == 0).then_some(())).await;
}

/// Each unblocking races with the worker that has just blocked the evaluation again: none may be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_is_lost_while_the_evaluation_is_being_put_back() {
    let cluster = Setup::memory().start().await;
    let mut many = make::job("web");
    many.task_groups[0].count = 60;
    many.task_groups[0].tasks[0].resources.memory_mb = 4000;
    cluster.run_job(many).await;
    cluster.blocked("web").await;
    let names: Vec<String> = (0..60).map(|n| format!("n{n}")).collect();
    let mut clients = Vec::new();
    for name in &names {
        clients.push(cluster.plain(name).await);
    }
    let key = make::job_key("web");
    until("all placed", || (cluster.root().allocs_by_job(&key).count() == 60).then_some(())).await;
}
