//! The life of a claim, seen from the client, the plugin and whoever waits.

use crate::make;
use crate::plugin::{PUBLISH, Plugin, Reply, UNPUBLISH};
use crate::world::{Setup, claim_id, mounted, soon, until};
use caravan_rpc::Code;
use caravan_types::alloc::ClientStatus;
use caravan_types::volume::{AccessMode, AttachmentMode, Capability, ClaimPhase, VolumeRequestBody};
use caravan_types::wire::{ClaimProgress, ClaimReportStep};
use futures::StreamExt;

/// A volume that many nodes may write.
fn shared(id: &str) -> VolumeRequestBody {
    let capability = Capability {
        access_mode: AccessMode::MultiNodeMultiWriter,
        attachment_mode: AttachmentMode::FileSystem,
    };
    VolumeRequestBody { requested_capabilities: vec![capability], ..make::volume(id) }
}

fn shared_writer(id: &str, volume: &str) -> caravan_types::job::Job {
    let mut job = make::writer(id, volume);
    let requests = job.task_groups[0].volumes.values_mut();
    requests.for_each(|r| r.access_mode = AccessMode::MultiNodeMultiWriter);
    job
}

#[tokio::test]
async fn from_reserved_to_gone() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    let (_, grant) = client.obtain(&id).await;
    let grant = grant.unwrap();
    assert_eq!(grant.external_volume_id, "ext-data");
    assert_eq!(grant.claim.publish_context["device"], "/dev/csi-a");
    assert_eq!(grant.volume_context["made"], "yes");
    client.prove(&grant.claim, mounted()).await.unwrap();
    cluster.phase(&id, ClaimPhase::Mounted).await;
    client.status(&alloc, ClientStatus::Running).await;

    cluster.stop_job("one").await;
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.phase(&id, ClaimPhase::Releasing).await;
    let reason =
        until("a reason", || cluster.handle.claim_wait(&id).filter(|r| r.contains("unpublish"))).await;
    assert!(reason.contains("a-node"), "{reason}");
    client.prove(&grant.claim, ClaimReportStep::Unpublished).await.unwrap();
    cluster.phase(&id, ClaimPhase::Unpublished).await;
    assert_eq!(plugin.count(UNPUBLISH), 0, "the node still stages it");
    client.prove(&grant.claim, ClaimReportStep::Unstaged).await.unwrap();
    cluster.phase(&id, ClaimPhase::Gone).await;
    assert_eq!(
        plugin.calls(),
        ["CreateVolume data", "ControllerPublishVolume data csi-a", "ControllerUnpublishVolume data csi-a"]
    );
    assert_eq!(plugin.published(), []);
    plugin.assert_one_at_a_time();
    until("no reason", || cluster.handle.claim_wait(&id).is_none().then_some(())).await;
    // Late reports about what is over are no error.
    client.prove(&grant.claim, ClaimReportStep::Unstaged).await.unwrap();
}

#[tokio::test]
async fn a_plugin_that_does_not_attach_is_not_asked_to() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", false), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    cluster.stop_job("one").await;
    client.finish(&alloc, &claim).await;
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
    assert_eq!(plugin.calls(), ["CreateVolume data"]);
}

#[tokio::test]
async fn the_second_writer_gets_it_after_the_first_on_another_node() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let a = cluster.join(make::storage_node("a", true), &plugin).await;
    let b = cluster.join(make::with_node_plugin(make::node("b")), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::pinned(make::writer("one", "data"), "a")).await;
    let first = cluster.placed("one").await;
    let claim = a.start(&first, &key).await;
    cluster.run_job(make::pinned(make::writer("two", "data"), "b")).await;
    cluster.blocked("two").await;
    cluster.stop_job("one").await;
    a.finish(&first, &claim).await;
    let second = cluster.placed("two").await;
    b.start(&second, &key).await;
    assert_eq!(
        plugin.calls()[1..],
        [
            "ControllerPublishVolume data csi-a",
            "ControllerUnpublishVolume data csi-a",
            "ControllerPublishVolume data csi-b"
        ]
    );
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn who_waits_is_told_why_and_when_that_changes() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut a = cluster.join(make::with_controller(make::node("a"), true), &plugin).await;
    let b = cluster.join(make::with_node_plugin(make::node("b")), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    let row = a.row.clone();
    a.lose_connection();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    let mut progress = b.ask_for(&id);
    let mut said = Vec::new();
    let mut hear = async |word: &str| {
        loop {
            match soon(word, progress.next()).await.unwrap().unwrap() {
                ClaimProgress::Waiting { reason } => {
                    said.push(reason.clone());
                    if reason.contains(word) {
                        return;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    };
    hear("connected").await;
    a.report(make::with_health(row.clone(), false)).await;
    // Without a healthy controller it is not even known whether the plugin attaches.
    hear("no healthy controller").await;
    assert_eq!(plugin.count(PUBLISH), 0);
    let back = cluster.connect(row, &plugin);
    back.register().await.unwrap();
    let end = async {
        loop {
            if let ClaimProgress::Attached(grant) = progress.next().await.unwrap().unwrap() {
                return grant;
            }
        }
    };
    let grant = soon("the grant", end).await;
    assert_eq!(grant.claim.phase, ClaimPhase::Attached);
    assert!(soon("the end of the stream", progress.next()).await.is_none());
    assert_eq!(plugin.count(PUBLISH), 1);
}

#[tokio::test]
async fn a_claim_behind_a_detach_says_so() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(shared("data")).await.unwrap();
    cluster.run_job(shared_writer("one", "data")).await;
    let first = cluster.placed("one").await;
    let claim = client.start(&first, &key).await;
    let gate = plugin.hold(UNPUBLISH);
    cluster.stop_job("one").await;
    client.finish(&first, &claim).await;
    until("the detach", || (plugin.count(UNPUBLISH) == 1).then_some(())).await;
    cluster.run_job(shared_writer("two", "data")).await;
    let second = cluster.placed("two").await;
    let id = claim_id(&key, &second);
    let reason = until("a reason", || cluster.handle.claim_wait(&id)).await;
    assert!(reason.contains("to end (detaching)"), "{reason}");
    gate.open();
    let (_, grant) = client.obtain(&id).await;
    grant.unwrap();
    assert_eq!(plugin.published(), [("ext-data".to_owned(), "csi-a".to_owned())]);
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn the_last_of_two_on_a_node_detaches() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(shared("data")).await.unwrap();
    let mut held = Vec::new();
    for id in ["one", "two"] {
        cluster.run_job(shared_writer(id, "data")).await;
        let alloc = cluster.placed(id).await;
        let claim = client.start(&alloc, &key).await;
        held.push((id, alloc, claim));
    }
    for (n, (id, alloc, claim)) in held.iter().enumerate() {
        cluster.stop_job(id).await;
        client.finish(alloc, claim).await;
        cluster.phase(&claim.id, ClaimPhase::Gone).await;
        assert_eq!(plugin.count(UNPUBLISH), n, "only the last one detaches");
    }
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_controller_that_fails_is_tried_again_later() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    plugin.script(
        PUBLISH,
        [Reply::Fail(Code::Internal, "array rebooting"), Reply::Nonsense, Reply::DoneButLost],
    );
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    let failed = until("a failure", || cluster.claim(&id).filter(|c| c.tries > 0)).await;
    assert!(failed.last_error.contains("array rebooting"), "{}", failed.last_error);
    assert!(failed.next_try > failed.modify_time);
    let (reasons, grant) = client.obtain(&id).await;
    assert_eq!((grant.unwrap().claim.tries, plugin.count(PUBLISH)), (0, 4));
    assert!(reasons.iter().any(|r| r.contains("array rebooting")), "{reasons:?}");
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_volume_that_keeps_failing_does_not_hold_up_others() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    for id in ["slow", "quick"] {
        cluster.create(make::volume(id)).await.unwrap();
    }
    let gate = plugin.hold(PUBLISH);
    cluster.run_job(make::writer("one", "slow")).await;
    let slow = cluster.placed("one").await;
    until("the call that hangs", || (plugin.count(PUBLISH) == 1).then_some(())).await;
    cluster.run_job(make::writer("two", "quick")).await;
    let quick = cluster.placed("two").await;
    client.start(&quick, &make::volume_key("quick")).await;
    gate.open();
    client.start(&slow, &make::volume_key("slow")).await;
}

#[tokio::test]
async fn a_job_that_is_stopped_while_it_attaches_is_detached() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    let gate = plugin.hold(PUBLISH);
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    until("the call", || (plugin.count(PUBLISH) == 1).then_some(())).await;
    cluster.stop_job("one").await;
    client.status(&alloc, ClientStatus::Complete).await;
    let (_, denied) = client.obtain(&id).await;
    assert!(denied.unwrap_err().contains("is being released"));
    gate.open();
    cluster.phase(&id, ClaimPhase::Gone).await;
    assert_eq!(plugin.published(), []);
    assert_eq!(plugin.count(UNPUBLISH), 1);
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn claims_belong_to_their_node_and_generation() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let a = cluster.join(make::storage_node("a", true), &plugin).await;
    let b = cluster.join(make::with_node_plugin(make::node("b")), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::pinned(make::writer("one", "data"), "a")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    let claim = a.start(&alloc, &key).await;
    assert!(b.obtain(&id).await.1.unwrap_err().contains("for another node"));
    let error = b.prove(&claim, ClaimReportStep::Unpublished).await.unwrap_err();
    assert_eq!(error.code, Code::Permission);
    let other = caravan_types::volume::Claim { generation: claim.generation + 1, ..claim.clone() };
    a.prove(&other, ClaimReportStep::Unpublished).await.unwrap();
    assert_eq!(cluster.claim(&id).unwrap().phase, ClaimPhase::Mounted);
}

#[tokio::test]
async fn a_node_that_fails_to_let_go_says_why() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    cluster.stop_job("one").await;
    client.status(&alloc, ClientStatus::Complete).await;
    let failed = |tries| ClaimReportStep::Failed { error: "target is busy".into(), tries };
    client.prove(&claim, failed(1)).await.unwrap();
    let index = cluster.claim(&claim.id).unwrap().modify_index;
    client.prove(&claim, failed(2)).await.unwrap();
    assert_eq!(cluster.claim(&claim.id).unwrap().modify_index, index, "the same words are written once");
    until("the reason", || cluster.handle.claim_wait(&claim.id).filter(|r| r.contains("target is busy")))
        .await;
    client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
}

#[tokio::test]
async fn a_forgotten_allocation_leaves_no_reason_behind() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    client.lose_connection();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    until("a reason", || cluster.handle.claim_wait(&id)).await;
    cluster.stop_job("one").await;
    // Nothing was ever intended: the claim is over at once.
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.phase(&id, ClaimPhase::Gone).await;
    until("no reason", || cluster.handle.claim_wait(&id).is_none().then_some(())).await;
}

#[tokio::test]
async fn an_update_hands_the_volume_from_the_old_allocation_to_the_new() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    let mut job = make::writer("one", "data");
    cluster.run_job(job.clone()).await;
    let old = cluster.placed("one").await;
    let claim = client.start(&old, &key).await;
    job.task_groups[0].tasks[0].env.insert("COLOUR".into(), "red".into());
    cluster.run_job(job).await;
    until("the stop of the old one", || {
        cluster.root().alloc(&old.id).filter(|a| a.server_terminal()).cloned()
    })
    .await;
    cluster.blocked("one").await;
    client.finish(&old, &claim).await;
    let new = cluster.placed("one").await;
    assert_ne!(new.id, old.id);
    client.start(&new, &key).await;
    assert_eq!(plugin.count(PUBLISH), 2);
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_node_that_is_told_to_let_go_twice_is_not_confused() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    // A mount that is proven again, as after a restart of the client, is no news.
    let index = cluster.claim(&claim.id).unwrap().modify_index;
    client.prove(&claim, mounted()).await.unwrap();
    assert_eq!(cluster.claim(&claim.id).unwrap().modify_index, index);
    cluster.stop_job("one").await;
    client.finish(&alloc, &claim).await;
    client.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
    assert_eq!(plugin.count(UNPUBLISH), 1);
}

#[tokio::test]
async fn an_only_writers_update_keeps_the_volume_from_who_waits_for_it() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    let mut job = make::writer("one", "data");
    cluster.run_job(job.clone()).await;
    let old = cluster.placed("one").await;
    let claim = client.start(&old, &key).await;
    cluster.run_job(make::writer("rival", "data")).await;
    cluster.blocked("rival").await;
    job.task_groups[0].tasks[0].env.insert("COLOUR".into(), "red".into());
    cluster.run_job(job).await;
    until("the stop of the old one", || {
        cluster.root().alloc(&old.id).filter(|a| a.server_terminal()).cloned()
    })
    .await;
    cluster.blocked("one").await;
    client.status(&old, ClientStatus::Complete).await;
    // Everybody has looked in vain by then: the volume is still mounted.
    cluster.quiet().await;
    client.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
    client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    let new = cluster.placed("one").await;
    assert_ne!(new.id, old.id);
    cluster.blocked("rival").await;
}

/// The node's last word may come while a controller still attaches; it is said once and must not be lost.
#[tokio::test]
async fn a_node_that_will_not_mount_says_so_while_the_volume_is_being_attached() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    let gate = plugin.hold(PUBLISH);
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    let claim = cluster.phase(&id, ClaimPhase::Attaching).await;
    until("the call", || (plugin.count(PUBLISH) == 1).then_some(())).await;
    client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    gate.open();
    cluster.stop_job("one").await;
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.phase(&id, ClaimPhase::Gone).await;
    assert_eq!(plugin.published(), []);
    plugin.assert_one_at_a_time();
}
