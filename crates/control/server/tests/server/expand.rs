//! The expansion of volumes.

use crate::make;
use crate::plugin::{EXPAND, NODE_EXPAND, Plugin, Reply};
use crate::world::{Client, Cluster, Setup, claim_id, until};
use caravan_rpc::Code;
use caravan_types::VolumeKey;
use caravan_types::volume::{Claim, Volume, VolumePhase, VolumeRequestBody};
use caravan_volumes::wait::WaitReason;
use std::sync::Arc;

fn sized(min: i64) -> VolumeRequestBody {
    VolumeRequestBody { requested_capacity_min: min, ..make::volume("data") }
}

fn key() -> VolumeKey {
    make::volume_key("data")
}

fn row(cluster: &Cluster) -> Arc<Volume> {
    cluster.root().volume(&key()).cloned().unwrap()
}

/// Returns a cluster with a volume of one byte, mounted by a job on node a.
async fn in_use() -> (Cluster, Plugin, Client, Claim) {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key()).await;
    (cluster, plugin, client, claim)
}

async fn stop(cluster: &Cluster, client: &Client, claim: &Claim) {
    let alloc = cluster.root().alloc(&claim.id.alloc).cloned().unwrap();
    cluster.stop_job("one").await;
    client.finish(&alloc, claim).await;
}

#[tokio::test]
async fn what_is_mounted_grows_and_so_does_what_is_mounted_later() {
    let (cluster, plugin, client, claim) = in_use().await;
    let grown = cluster.create(sized(5)).await.unwrap();
    assert_eq!(plugin.calls()[2..], ["ControllerExpandVolume data", "NodeExpandVolume data a"]);
    assert_eq!(grown.phase, VolumePhase::Ready);
    let capacity = grown.capacity;
    assert_eq!((capacity.requested_min, capacity.accepted, capacity.actual), (5, 5, 5));
    assert_eq!(cluster.claim(&claim.id).unwrap().expanded_to, 5);
    // The same command has nothing to do the second time.
    cluster.create(sized(5)).await.unwrap();
    assert_eq!((plugin.count(EXPAND), plugin.count(NODE_EXPAND)), (1, 1));
    stop(&cluster, &client, &claim).await;

    cluster.run_job(make::writer("two", "data")).await;
    let second = cluster.placed("two").await;
    client.start(&second, &key()).await;
    let id = claim_id(&key(), &second);
    until("the growth of the later mount", || cluster.claim(&id).filter(|c| c.expanded_to == 5)).await;
    assert_eq!((plugin.count(EXPAND), plugin.count(NODE_EXPAND)), (1, 2));
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn an_expansion_that_the_plugin_refuses_is_taken_back() {
    let (cluster, plugin, _client, _claim) = in_use().await;
    plugin.script(EXPAND, [Reply::Fail(Code::Invalid, "at most 3 bytes")]);
    let error = cluster.create(sized(5)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 error occurred:\n\t* unable to expand volume: ControllerExpandVolume: at most 3 bytes\n\n"
    );
    let row = row(&cluster);
    assert_eq!((row.phase, row.capacity.requested_min, row.capacity.accepted), (VolumePhase::Ready, 1, 1));
    let notes: Vec<(VolumePhase, &str)> = row.history.iter().map(|t| (t.phase, &*t.note)).collect();
    assert_eq!(
        notes,
        [
            (VolumePhase::Creating, ""),
            (VolumePhase::Ready, ""),
            (VolumePhase::Expanding, ""),
            (VolumePhase::Ready, "ControllerExpandVolume: at most 3 bytes")
        ]
    );
}

#[tokio::test]
async fn a_plugin_that_cannot_grow_volumes_is_not_asked() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut node = make::storage_node("a", true);
    for info in node.csi_controller_plugins.values_mut() {
        info.controller_info.as_mut().unwrap().supports_expand = false;
    }
    let _client = cluster.join(node, &plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    let error = cluster.create(sized(5)).await.unwrap_err();
    assert!(error.to_string().contains("* expand is not implemented by this controller plugin\n"), "{error}");
    assert_eq!((plugin.count(EXPAND), row(&cluster).phase), (0, VolumePhase::Ready));
}

#[tokio::test]
async fn a_failed_expansion_can_be_lowered_and_keeps_nobody_from_the_volume() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    plugin.script(EXPAND, vec![Reply::Fail(Code::Unavailable, "busy"); 50]);
    let error = cluster.create(sized(5)).await.unwrap_err();
    assert!(error.to_string().contains("* unable to expand volume: ControllerExpandVolume: busy"), "{error}");
    assert!(row(&cluster).phase == VolumePhase::Expanding && row(&cluster).tries > 0);
    let reported = cluster.handle.volumes().explain(&key()).unwrap();
    assert!(
        reported.summary.starts_with("expanding: ") && reported.last_error.contains("busy"),
        "{reported:?}"
    );
    // Allocations can use the volume all the same.
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    client.start(&alloc, &key()).await;
    let lowered = cluster.create(sized(1)).await.unwrap();
    assert_eq!((lowered.phase, lowered.tries, &*lowered.last_error), (VolumePhase::Ready, 0, ""));
    assert_eq!(lowered.capacity.accepted, 1);
}

#[tokio::test]
async fn a_failed_expansion_is_tried_again_by_itself() {
    let (cluster, plugin, _client, _claim) = in_use().await;
    plugin.script(EXPAND, [Reply::DoneButLost]);
    cluster.create(sized(5)).await.unwrap_err();
    until("the growth", || (row(&cluster).capacity.actual == 5).then_some(())).await;
    assert_eq!((plugin.count(EXPAND), plugin.count(NODE_EXPAND)), (2, 1));
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_failed_node_expansion_is_reported_and_retried() {
    let (cluster, plugin, _client, claim) = in_use().await;
    plugin.script(NODE_EXPAND, [Reply::Fail(Code::Unavailable, "resize2fs is missing")]);
    let error = cluster.create(sized(5)).await.unwrap_err();
    assert!(
        error.to_string().contains("* unable to expand volume: NodeExpandVolume: resize2fs is missing\n"),
        "{error}"
    );
    until("the node's part", || cluster.claim(&claim.id).filter(|c| c.expanded_to == 5)).await;
    assert_eq!((plugin.count(EXPAND), plugin.count(NODE_EXPAND)), (1, 2));
    until("the size that the node saw", || (row(&cluster).capacity.actual == 5).then_some(())).await;
}

#[tokio::test]
async fn a_node_without_connection_owes_the_growth() {
    let (cluster, plugin, mut client, claim) = in_use().await;
    let controller = cluster.join(make::with_controller(make::node("c"), true), &plugin).await;
    let row = client.row.clone();
    client.lose_connection();
    cluster.create(sized(5)).await.unwrap();
    let wait = until("a reason", || cluster.handle.volumes().claim_wait(&claim.id)).await;
    assert!(matches!(wait.reason, WaitReason::NodeNotConnected { .. }), "{wait}");
    let _back = cluster.join(row, &plugin).await;
    until("the node's part", || cluster.claim(&claim.id).filter(|c| c.expanded_to == 5)).await;
    drop(controller);
}

#[tokio::test]
async fn a_plugin_that_grows_only_unused_volumes_is_asked_again_once_it_is() {
    let (cluster, plugin, client, claim) = in_use().await;
    plugin.script(EXPAND, [Reply::Fail(Code::Conflict, "volume is published")]);
    let error = cluster.create(sized(5)).await.unwrap_err();
    assert!(error.to_string().contains("once its last claim has ended"), "{error}");
    let reported = cluster.handle.volumes().explain(&key()).unwrap();
    assert!(reported.summary.contains("waits until nobody uses the volume"), "{reported:?}");
    // An allocation that waits for the volume gets the expanded volume.
    cluster.run_job(make::writer("two", "data")).await;
    cluster.blocked("two").await;
    assert_eq!(plugin.count(EXPAND), 1);
    stop(&cluster, &client, &claim).await;
    let second = cluster.placed("two").await;
    client.start(&second, &key()).await;
    until("the growth", || (row(&cluster).phase == VolumePhase::Ready).then_some(())).await;
    assert_eq!((row(&cluster).capacity.accepted, plugin.count(EXPAND)), (5, 2));
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn an_expansion_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::default();
    {
        let cluster = Setup::dir(dir.path()).start().await;
        let _client = cluster.join(make::storage_node("a", true), &plugin).await;
        cluster.create(make::volume("data")).await.unwrap();
        let _gate = plugin.hold(EXPAND);
        let handle = cluster.handle.clone();
        let command =
            tokio::spawn(async move { handle.volumes().create(&"default".into(), vec![sized(5)]).await });
        until("the call", || (plugin.count(EXPAND) == 1).then_some(())).await;
        assert_eq!(row(&cluster).phase, VolumePhase::Expanding);
        cluster.stop().await;
        assert!(command.await.unwrap().is_err());
    }
    let cluster = Setup::dir(dir.path()).start().await;
    let _client = cluster.join(make::storage_node("a", true), &plugin).await;
    until("the growth", || (row(&cluster).phase == VolumePhase::Ready).then_some(())).await;
    assert_eq!((row(&cluster).capacity.accepted, plugin.count(EXPAND)), (5, 2));
}
