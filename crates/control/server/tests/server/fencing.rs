//! Nodes that vanish with a volume in use.

use crate::make;
use crate::plugin::{Plugin, UNPUBLISH};
use crate::world::{Client, Cluster, Setup, claim_id, until};
use caravan_messages::ClaimReportStep;
use caravan_types::Nanos;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::node::NodeStatus;
use caravan_types::volume::{Claim, ClaimPhase};
use caravan_volumes::wait::{Wait, WaitReason};
use std::sync::Arc;

struct Two {
    cluster: Cluster,
    plugin: Plugin,
    a: Client,
    b: Client,
    alloc: Arc<Allocation>,
    claim: Claim,
}

/// Starts a writer on node b, and another writer that waits to run on node a.
async fn two(setup: Setup) -> Two {
    let (cluster, plugin) = (setup.start().await, Plugin::default());
    let a = cluster.join(make::storage_node("a", true), &plugin).await;
    let b = cluster.join(make::with_node_plugin(make::node("b")), &plugin).await;
    let (_a, _b) = (a.stay_alive(), b.stay_alive());
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::pinned(make::writer("one", "data"), "b")).await;
    let alloc = cluster.placed("one").await;
    let claim = b.start(&alloc, &make::volume_key("data")).await;
    cluster.run_job(make::pinned(make::writer("two", "data"), "a")).await;
    cluster.blocked("two").await;
    Two { cluster, plugin, a, b, alloc, claim }
}

#[tokio::test]
async fn a_volume_is_handed_on_only_after_the_lease() {
    let Two { cluster, plugin, a, b, alloc, claim } = Box::pin(two(Setup::memory().impatient())).await;
    let lease = Setup::memory().impatient().lease;
    let _alive = a.stay_alive();
    let down = cluster.node_status(&b.row.id, NodeStatus::Down).await;
    let fencing = cluster.phase(&claim.id, ClaimPhase::Fencing).await;
    assert_eq!(cluster.root().alloc(&alloc.id).unwrap().client_status, ClientStatus::Lost);
    assert!(fencing.fence_until.since(fencing.modify_time).0 > 0);
    assert!(
        fencing.fence_until.as_secs() * 1000 + 1000
            > down.status_updated_at * 1000 + lease.grace().0 / 1_000_000
    );
    let gone = cluster.phase(&claim.id, ClaimPhase::Gone).await;
    assert!(gone.modify_time >= fencing.fence_until, "handed on before the lease ran out");
    let second = cluster.placed("two").await;
    assert!(second.create_time >= fencing.fence_until);
    a.start(&second, &make::volume_key("data")).await;
    assert_eq!(
        plugin.calls()[1..],
        [
            "ControllerPublishVolume data csi-b",
            "ControllerUnpublishVolume data csi-b",
            "ControllerPublishVolume data csi-a"
        ]
    );
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_node_that_comes_back_proves_its_state_itself() {
    let mut setup = Setup::memory().impatient();
    setup.lease = caravan_volumes::lease::Lease::default();
    let Two { cluster, plugin, a, b, claim, .. } = Box::pin(two(setup)).await;
    let _alive = a.stay_alive();
    cluster.phase(&claim.id, ClaimPhase::Fencing).await;
    // The job that held the claim would be evaluated first, and could run on its node again.
    cluster.stop_job("one").await;
    b.beat().await.unwrap();
    let _back = b.stay_alive();
    cluster.node_status(&b.row.id, NodeStatus::Ready).await;
    assert_eq!(plugin.count(UNPUBLISH), 0);
    b.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
    b.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
    let next = cluster.placed("two").await;
    let (_, grant) = a.obtain(&claim_id(&make::volume_key("data"), &next)).await;
    grant.unwrap();
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_fence_outlasts_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::dir(dir.path()).impatient();
    setup.lease.ttl = Nanos::from_secs(4);
    let Two { cluster, plugin, a, claim, .. } = Box::pin(two(setup.clone())).await;
    let fencing = {
        let _alive = a.stay_alive();
        cluster.phase(&claim.id, ClaimPhase::Fencing).await
    };
    cluster.stop().await;
    let cluster = setup.start().await;
    let a = cluster.join(a.row, &plugin).await;
    let _alive = a.stay_alive();
    assert_eq!(plugin.count(UNPUBLISH), 0);
    let gone = cluster.phase(&claim.id, ClaimPhase::Gone).await;
    assert!(gone.modify_time >= fencing.fence_until);
    let second = cluster.placed("two").await;
    a.start(&second, &make::volume_key("data")).await;
    assert_eq!(plugin.count(UNPUBLISH), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn a_volume_of_a_vanished_node_is_detached_by_hand_no_sooner() {
    let mut setup = Setup::memory().impatient();
    setup.lease.ttl = Nanos::from_secs(3600);
    let Two { cluster, plugin, a, b, claim, .. } = Box::pin(two(setup)).await;
    let _alive = a.stay_alive();
    cluster.phase(&claim.id, ClaimPhase::Fencing).await;
    cluster.handle.volumes().detach(&claim.id.volume, &b.row.id).await.unwrap();
    cluster.quiet().await;
    assert_eq!(cluster.claim(&claim.id).unwrap().phase, ClaimPhase::Fencing);
    assert_eq!(plugin.count(UNPUBLISH), 0);
    let leased = |wait: &Wait| matches!(wait.reason, WaitReason::LeaseOfSilentNode { .. });
    until("the reason", || cluster.handle.volumes().claim_wait(&claim.id).filter(leased)).await;
}
