//! Two evaluations that require the same resource: exactly one gets it.

use crate::make;
use crate::plugin::Plugin;
use crate::world::{Cluster, Setup};
use caravan_types::job::Job;

/// Registers both jobs concurrently and checks that one is placed and the other waits.
async fn one_wins(cluster: &Cluster, jobs: Vec<Job>) {
    let keys: Vec<_> = jobs.iter().map(Job::key).collect();
    let registered = futures::future::join_all(jobs.into_iter().map(|job| cluster.run_job(job))).await;
    for job in registered {
        cluster.eval_over(&job.eval_id).await;
    }
    cluster.quiet().await;
    let root = cluster.root();
    let placed: usize =
        keys.iter().map(|key| root.allocs_by_job(key).filter(|a| !a.terminal()).count()).sum();
    assert_eq!(placed, 1);
    for key in keys {
        cluster.handle.jobs().deregister(key.clone(), true, None).await.unwrap();
        cluster.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn for_the_last_slot() {
    for _ in 0..5 {
        let cluster = Setup::memory().start().await;
        let _client = cluster.plain("a").await;
        one_wins(&cluster, vec![make::big_job("one"), make::big_job("two")]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn for_a_port() {
    for _ in 0..5 {
        let cluster = Setup::memory().start().await;
        let _client = cluster.plain("a").await;
        one_wins(&cluster, vec![make::port_job("one", 8080), make::port_job("two", 8080)]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn for_a_claim() {
    for _ in 0..5 {
        let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
        let _a = cluster.join(make::storage_node("a", true), &plugin).await;
        let _b = cluster.join(make::storage_node("b", true), &plugin).await;
        cluster.create(make::volume("data")).await.unwrap();
        one_wins(&cluster, vec![make::writer("one", "data"), make::writer("two", "data")]).await;
        assert_eq!(cluster.root().claims_of(&make::volume_key("data")).count(), 1);
        plugin.assert_one_at_a_time();
    }
}

/// Rough edge of the reference's scheduler (docs/reference/storage.md, section 7). Its limit counts neither the
/// current plan nor the plans that are submitted at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn for_the_last_volume_that_the_plugin_takes_on_the_node() {
    for _ in 0..5 {
        let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
        let mut node = make::storage_node("a", true);
        for info in node.csi_node_plugins.values_mut() {
            info.node_info.as_mut().unwrap().max_volumes = 1;
        }
        let _a = cluster.join(node, &plugin).await;
        cluster.create(make::volume("red")).await.unwrap();
        cluster.create(make::volume("blue")).await.unwrap();
        one_wins(&cluster, vec![make::writer("one", "red"), make::writer("two", "blue")]).await;
    }
}
