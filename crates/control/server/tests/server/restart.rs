//! Servers that end during an operation and return with the same data.

use crate::make;
use crate::plugin::{CREATE, DELETE, PUBLISH, Plugin, UNPUBLISH};
use crate::world::{Client, Cluster, Setup, claim_id, mounted, until};
use caravan_messages::ClaimReportStep;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::ser::Secrets;
use caravan_types::volume::{ClaimId, ClaimPhase, VolumePhase};
use std::sync::Arc;

#[tokio::test]
async fn a_creation_that_was_cut_off_is_finished_once() {
    let (dir, plugin) = (tempfile::tempdir().unwrap(), Plugin::default());
    let cluster = Setup::dir(dir.path()).start().await;
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    plugin.hold(CREATE);
    let creation = {
        let handle = cluster.handle.clone();
        tokio::spawn(
            async move { handle.volumes().create(&"default".into(), vec![make::volume("data")]).await },
        )
    };
    until("the call", || (plugin.count(CREATE) == 1).then_some(())).await;
    cluster.stop().await;
    creation.await.unwrap().unwrap_err();

    let cluster = Setup::dir(dir.path()).start().await;
    let key = make::volume_key("data");
    assert_eq!(cluster.root().volume(&key).unwrap().phase, VolumePhase::Creating);
    let _client = cluster.join(client.row, &plugin).await;
    until("the volume ready", || {
        cluster.root().volume(&key).filter(|v| v.phase == VolumePhase::Ready).cloned()
    })
    .await;
    assert_eq!(plugin.volumes(), (vec!["ext-data".to_owned()], 1));
    plugin.assert_one_at_a_time();
    cluster.stop().await;
}

#[tokio::test]
async fn a_deletion_that_was_cut_off_is_finished() {
    let (dir, plugin) = (tempfile::tempdir().unwrap(), Plugin::default());
    let cluster = Setup::dir(dir.path()).start().await;
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    plugin.hold(DELETE);
    let deletion = {
        let handle = cluster.handle.clone();
        let secrets = Secrets::default();
        tokio::spawn(async move { handle.volumes().delete(&make::volume_key("data"), &secrets).await })
    };
    until("the call", || (plugin.count(DELETE) == 1).then_some(())).await;
    cluster.stop().await;
    deletion.await.unwrap().unwrap_err();

    let cluster = Setup::dir(dir.path()).start().await;
    let _client = cluster.join(client.row, &plugin).await;
    until("the row gone", || cluster.root().volume(&make::volume_key("data")).is_none().then_some(())).await;
    assert_eq!(plugin.volumes().0, Vec::<String>::new());
    plugin.assert_one_at_a_time();
    cluster.stop().await;
}

#[tokio::test]
async fn a_job_that_waited_is_placed_after_the_restart() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Setup::dir(dir.path()).start().await;
    cluster.run_job(make::job("web")).await;
    cluster.blocked("web").await;
    cluster.stop().await;
    let cluster = Setup::dir(dir.path()).start().await;
    let _client = cluster.plain("a").await;
    cluster.placed("web").await;
    cluster.stop().await;
}

struct Scene {
    cluster: Cluster,
    client: Client,
    alloc: Arc<Allocation>,
    id: ClaimId,
}

/// Moves the claim to a phase, stops the server there, and starts it again.
async fn cut_off_at(phase: ClaimPhase, dir: &std::path::Path, plugin: &Plugin) -> Scene {
    use ClaimPhase as P;
    let cluster = Setup::dir(dir).start().await;
    let mut client = cluster.join(make::storage_node("a", true), plugin).await;
    cluster.create(make::volume("data")).await.unwrap();
    match phase {
        P::Reserved => client.lose_connection(),
        P::Attaching => drop(plugin.hold(PUBLISH)),
        P::Detaching => drop(plugin.hold(UNPUBLISH)),
        _ => {}
    }
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let id = claim_id(&make::volume_key("data"), &alloc);
    if phase >= P::Attached {
        let claim = client.obtain(&id).await.1.unwrap().claim;
        if phase >= P::Mounted {
            client.prove(&claim, mounted()).await.unwrap();
            client.status(&alloc, ClientStatus::Running).await;
        }
        if phase >= P::Releasing {
            cluster.stop_job("one").await;
            client.status(&alloc, ClientStatus::Complete).await;
        }
        if phase >= P::Unpublished {
            client.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
        }
        if phase >= P::Unstaged {
            client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
        }
    }
    if phase == P::Attaching {
        until("the call", || (plugin.count(PUBLISH) == 1).then_some(())).await;
    }
    if phase == P::Detaching {
        until("the call", || (plugin.count(UNPUBLISH) == 1).then_some(())).await;
    }
    cluster.phase(&id, phase).await;
    let row = client.row.clone();
    cluster.stop().await;
    let cluster = Setup::dir(dir).start().await;
    let client = cluster.join(row, plugin).await;
    Scene { cluster, client, alloc, id }
}

#[tokio::test]
async fn a_claim_goes_on_from_every_phase() {
    use ClaimPhase as P;
    let phases =
        [P::Reserved, P::Attaching, P::Attached, P::Mounted, P::Releasing, P::Unpublished, P::Detaching];
    for phase in phases {
        let (dir, plugin) = (tempfile::tempdir().unwrap(), Plugin::default());
        let Scene { cluster, client, alloc, id } = Box::pin(cut_off_at(phase, dir.path(), &plugin)).await;
        if phase < P::Releasing {
            let claim = client.start(&alloc, &id.volume).await;
            assert_eq!(plugin.published().len(), 1);
            cluster.stop_job("one").await;
            client.finish(&alloc, &claim).await;
        } else {
            let claim = cluster.claim(&id).unwrap();
            client.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
            client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
        }
        cluster.phase(&id, P::Gone).await;
        assert_eq!(plugin.published(), [], "after {}", phase.as_str());
        let (published, unpublished) = (plugin.count(PUBLISH), plugin.count(UNPUBLISH));
        assert_eq!(published, if phase == P::Attaching { 2 } else { 1 }, "at {}", phase.as_str());
        assert_eq!(unpublished, if phase == P::Detaching { 2 } else { 1 }, "at {}", phase.as_str());
        plugin.assert_one_at_a_time();
        cluster.stop().await;
    }
}
