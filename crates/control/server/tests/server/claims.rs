//! The lifecycle of a claim, observed by the client, the plugin and the waiting allocations.

use crate::make;
use crate::plugin::{PUBLISH, Plugin, Reply, UNPUBLISH};
use crate::world::{Setup, claim_id, mounted, soon, until};
use caravan_messages::{ClaimProgress, ClaimReportStep};
use caravan_rpc::Code;
use caravan_types::alloc::ClientStatus;
use caravan_types::node::NodeStatus;
use caravan_types::volume::{
    AccessMode, AttachmentMode, Capability, ClaimPhase, VolumeRequestBody, VolumeUsage,
};
use caravan_volumes::wait::{NodeStep, Wait, WaitReason};
use futures::StreamExt;

/// Returns a volume that many nodes may write.
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
    let reason = WaitReason::NodeStep { node: client.row.id.clone(), step: NodeStep::Unpublish };
    until("the reason", || cluster.handle.volumes().claim_wait(&id).filter(|wait| wait.reason == reason))
        .await;
    assert_eq!(cluster.handle.volumes().figures().waits["node_step"], 1);
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
    until("no reason", || cluster.handle.volumes().claim_wait(&id).is_none().then_some(())).await;
    // Late reports about steps that have ended are no error.
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

/// docs/design/rough-edges.md, 34: a freed claim unblocks the evaluations that wait for its volume.
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
async fn a_waiting_claim_reports_each_change_of_its_reason() {
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
    let mut reported = Vec::new();
    let mut hear = async |word: &str| {
        loop {
            match soon(word, progress.next()).await.unwrap().unwrap() {
                ClaimProgress::Waiting { reason } => {
                    reported.push(reason.clone());
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
    // Without a healthy controller, the servers do not know whether the plugin attaches.
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
    let wait = until("a reason", || cluster.handle.volumes().claim_wait(&id)).await;
    let phase = ClaimPhase::Detaching;
    assert!(matches!(&wait.reason, WaitReason::OtherClaim { phase: other, .. } if *other == phase), "{wait}");
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
    let busy = |wait: &Wait| wait.failure.as_ref().is_some_and(|failure| failure.error == "target is busy");
    until("the reason", || cluster.handle.volumes().claim_wait(&claim.id).filter(busy)).await;
    client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
}

#[tokio::test]
async fn a_removed_allocation_leaves_no_reason() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    client.lose_connection();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&key, &alloc);
    until("a reason", || cluster.handle.volumes().claim_wait(&id)).await;
    cluster.stop_job("one").await;
    // No attach was ever intended, so the claim ends immediately.
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.phase(&id, ClaimPhase::Gone).await;
    until("no reason", || cluster.handle.volumes().claim_wait(&id).is_none().then_some(())).await;
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
async fn a_node_may_receive_a_release_twice() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    // A repeated proof of a mount, as after a restart of the client, changes nothing.
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
    // All waiting evaluations have been tried by then, without success: the volume is still mounted.
    cluster.quiet().await;
    client.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
    client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    let new = cluster.placed("one").await;
    assert_ne!(new.id, old.id);
    cluster.blocked("rival").await;
}

#[tokio::test]
async fn a_release_does_not_need_its_allocation_or_job() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    cluster.handle.jobs().deregister(make::job_key("one"), true, None).await.unwrap();
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.phase(&claim.id, ClaimPhase::Releasing).await;
    cluster.quiet().await;
    cluster.handle.collect_garbage().await.unwrap();
    client.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
    client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    until("the end", || cluster.claim(&claim.id).is_none_or(|c| c.phase == ClaimPhase::Gone).then_some(()))
        .await;
    assert_eq!(plugin.published(), []);
}

#[tokio::test]
async fn a_release_waits_for_its_plugin_and_says_so() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut client = cluster.join(make::storage_node("a", true), &plugin).await;
    let (key, row) = (make::volume_key("data"), client.row.clone());
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    cluster.stop_job("one").await;
    client.report(make::node("a")).await;
    assert!(cluster.root().plugin(&make::PLUGIN.into()).is_none(), "nobody reports it any more");
    client.finish(&alloc, &claim).await;
    let unknown = |wait: &Wait| matches!(wait.reason, WaitReason::PluginUnknown { .. });
    until("the reason", || cluster.handle.volumes().claim_wait(&claim.id).filter(unknown)).await;
    let reported = cluster.handle.volumes().explain(&key).unwrap();
    assert!(reported.summary.contains("is not known"), "{reported:?}");
    assert_eq!((reported.claims[0].phase, reported.claims[0].holder.as_str()), (ClaimPhase::Unstaged, ""));
    client.report(row).await;
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
    assert_eq!(plugin.published(), []);
}

#[tokio::test]
async fn an_explanation_tells_calls_holders_and_history() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    let gate = plugin.hold(PUBLISH);
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let reported = until("the call", || {
        cluster.handle.volumes().explain(&key).filter(|reported| !reported.calls.is_empty())
    })
    .await;
    assert_eq!((reported.calls[0].call.as_str(), &reported.calls[0].alloc_id), (PUBLISH, &alloc.id));
    assert_eq!(reported.calls[0].node_id, client.row.id);
    assert_eq!(cluster.handle.volumes().figures().claims["attaching"], 1);
    gate.open();
    client.start(&alloc, &key).await;
    let reported = cluster.handle.volumes().explain(&key).unwrap();
    assert_eq!((reported.summary.as_str(), reported.calls.len()), ("in use by 1 allocation", 0));
    let phases: Vec<_> = reported.claims[0].history.iter().map(|t| t.phase.as_str()).collect();
    assert_eq!(phases, ["reserved", "attaching", "attached", "mounted"]);
    let figures = cluster.handle.volumes().figures();
    assert_eq!((figures.claims["mounted"], figures.backlog), (1, 0));
    let calls = &figures.calls[&(make::PLUGIN.into(), PUBLISH)];
    assert_eq!((calls.times.count, calls.errors, calls.in_flight), (1, 0, 0));
    assert!(cluster.handle.volumes().explain(&make::volume_key("none")).is_none());
}

#[tokio::test]
async fn reported_usage_is_removed_with_the_claim() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    let usage = |used_bytes| VolumeUsage {
        used_bytes,
        sampled_at: caravan_types::UnixNanos(i64::MAX),
        ..VolumeUsage::default()
    };
    client.tell_usage(vec![(key.clone(), usage(3)), (make::volume_key("other"), usage(9))]).await;
    let seen = || cluster.handle.volumes().usage(&cluster.root(), &key);
    assert_eq!(seen()[&client.row.id].used_bytes, 3);
    assert_eq!(
        cluster.handle.volumes().figures().usage.len(),
        1,
        "who does not use a volume says nothing of it"
    );
    client.tell_usage(vec![(key.clone(), usage(4))]).await;
    assert_eq!(cluster.handle.volumes().explain(&key).unwrap().usage[&client.row.id].used_bytes, 4);
    cluster.stop_job("one").await;
    client.finish(&alloc, &claim).await;
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
    assert!(seen().is_empty());
}

/// docs/design/rough-edges.md, 24: the controller reports whether a plugin attaches. Without a controller, nothing is
/// mounted without attaching: the job waits, and continues when a controller returns.
#[tokio::test]
async fn a_plugin_that_has_lost_its_controller_is_not_taken_for_one_that_does_not_attach() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut controller = cluster.join(make::with_controller(make::node("c"), true), &plugin).await;
    let _node = cluster.join(make::with_node_plugin(make::node("a")), &plugin).await;
    let row = controller.row.clone();
    cluster.create(make::volume("data")).await.unwrap();
    controller.report(make::node("c")).await;
    cluster.run_job(make::writer("one", "data")).await;
    let waits = cluster.blocked("one").await;
    assert_eq!(waits.missing_non_node_resources, [format!("csi-plugin:{}", make::PLUGIN)]);
    assert_eq!(cluster.root().claims().count(), 0);
    controller.report(row).await;
    let alloc = cluster.placed("one").await;
    cluster.phase(&claim_id(&make::volume_key("data"), &alloc), ClaimPhase::Attached).await;
    assert_eq!(plugin.count(PUBLISH), 1);
}

/// docs/design/rough-edges.md, 34: a plugin on a vanished node is not healthy.
#[tokio::test]
async fn a_node_that_is_gone_takes_the_health_of_its_plugin_along() {
    let (cluster, plugin) = (Setup::memory().impatient().start().await, Plugin::default());
    let lost = cluster.join(make::storage_node("a", true), &plugin).await;
    let health =
        || cluster.root().plugin(&make::PLUGIN.into()).map(|p| (p.controllers_healthy, p.nodes_healthy));
    assert_eq!(health(), Some((1, 1)));
    cluster.node_status(&lost.row.id, NodeStatus::Down).await;
    assert!(health().is_none_or(|counts| counts == (0, 0)));
}

/// The node's last report may arrive while a controller still attaches. The node sends it once, so the servers must
/// not lose it.
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
