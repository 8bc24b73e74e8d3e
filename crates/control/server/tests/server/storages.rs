//! One storage of a plugin is one volume, for all requests of users in every order.

use crate::make;
use crate::plugin::{CREATE, DELETE, Plugin, Reply, VALIDATE};
use crate::world::{Client, Cluster, Setup, claim_id, soon, until};
use caravan_messages::ClaimReportStep;
use caravan_server::{Kind, ServerError};
use caravan_types::VolumeKey;
use caravan_types::alloc::ClientStatus;
use caravan_types::ser::Secrets;
use caravan_types::volume::{AccessMode, ClaimPhase, Volume, VolumePhase, VolumeRequestBody};
use futures::future::join;
use std::sync::Arc;
use tokio::task::JoinHandle;

async fn storage() -> (Cluster, Plugin, Client) {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    (cluster, plugin, client)
}

/// Returns a volume that is created with a name.
fn named(id: &str, name: &str) -> VolumeRequestBody {
    VolumeRequestBody { name: name.into(), ..make::volume(id) }
}

/// Returns a volume that stands for a storage.
fn on(id: &str, external_id: &str) -> VolumeRequestBody {
    VolumeRequestBody { external_id: external_id.into(), ..make::volume(id) }
}

/// Returns a volume that stands for a storage, for reading only, with its storage shared or not.
fn reads(id: &str, external_id: &str, shared_storage: bool) -> VolumeRequestBody {
    let mut body = VolumeRequestBody { shared_storage, ..on(id, external_id) };
    body.requested_capabilities[0].access_mode = AccessMode::MultiNodeReaderOnly;
    body
}

async fn register(cluster: &Cluster, body: VolumeRequestBody) -> Result<Arc<Volume>, ServerError> {
    let done = cluster.handle.volumes().register(&"default".into(), vec![body]).await;
    done.map(|mut rows| rows.remove(0))
}

fn creation(cluster: &Cluster, body: VolumeRequestBody) -> JoinHandle<Result<Vec<Arc<Volume>>, ServerError>> {
    let handle = cluster.handle.clone();
    tokio::spawn(async move { handle.volumes().create(&"default".into(), vec![body]).await })
}

/// Checks that an error is about another volume, whose name only callers see who may see its namespace.
fn assert_about(error: &ServerError, other: &VolumeKey) {
    assert_eq!((error.kind(), &error.about()), (Kind::Refused, &vec![other.clone()]), "{error}");
    let name = format!("volume \"{}\" in namespace \"{}\"", other.id, other.namespace);
    assert!(!error.to_string().contains(&name), "{error}");
    assert!(error.message_for(|namespace| *namespace == other.namespace).contains(&name));
    assert_eq!(error.message_for(|_| false), error.to_string());
}

#[tokio::test]
async fn a_twin_is_refused_whatever_the_phase() {
    let (cluster, plugin, _client) = storage().await;
    let data = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    let refused = || async {
        let before = plugin.count(VALIDATE);
        let error = register(&cluster, on("twin", "ext-data")).await.unwrap_err();
        assert_about(&error, &data);
        assert_eq!(plugin.count(VALIDATE), before, "the plugin is not asked about what is another volume's");
        assert!(cluster.root().volume(&make::volume_key("twin")).is_none());
    };
    refused().await;
    // Without an external id, the id of the volume is the external id.
    let error = register(&cluster, VolumeRequestBody { name: "x".into(), ..make::volume("ext-data") }).await;
    assert_about(&error.unwrap_err(), &data);
    // While the volume is being deleted, its storage exists until the plugin responds.
    let gate = plugin.hold(DELETE);
    let deletion = {
        let (handle, data) = (cluster.handle.clone(), data.clone());
        tokio::spawn(async move { handle.volumes().delete(&data, &Secrets::default()).await })
    };
    until("the call", || (plugin.count(DELETE) == 1).then_some(())).await;
    assert_eq!(cluster.root().volume(&data).unwrap().phase, VolumePhase::Deleting);
    refused().await;
    gate.open();
    soon("the deletion", deletion).await.unwrap().unwrap();
    // The external id is free again once the row is removed.
    register(&cluster, on("twin", "ext-data")).await.unwrap();
}

#[tokio::test]
async fn registrations_of_one_storage_that_race_give_one_row() {
    let (cluster, plugin, _client) = storage().await;
    let gate = plugin.hold(VALIDATE);
    let both = join(register(&cluster, on("one", "s")), register(&cluster, on("two", "s")));
    let opener = async {
        until("a call", || (plugin.count(VALIDATE) >= 1).then_some(())).await;
        gate.open();
    };
    let ((one, two), ()) = Box::pin(join(both, opener)).await;
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    let (row, error) =
        if let Ok(row) = one { (row, two.unwrap_err()) } else { (two.unwrap(), one.unwrap_err()) };
    assert_about(&error, &row.key());
    assert_eq!(cluster.root().volumes_by_plugin(&make::PLUGIN.into()).count(), 1);
}

#[tokio::test]
async fn creations_with_one_name_that_race_give_one_storage_and_one_row() {
    let (cluster, plugin, _client) = storage().await;
    let gate = plugin.hold(CREATE);
    let first = creation(&cluster, named("one", "same"));
    until("the call", || (plugin.count(CREATE) == 1).then_some(())).await;
    let error = cluster.create(named("two", "same")).await.unwrap_err();
    assert_about(&error, &make::volume_key("one"));
    gate.open();
    let made = soon("the creation", first).await.unwrap().unwrap();
    assert_eq!((made[0].id.as_str(), &*made[0].external_id), ("one", "ext-same"));
    // The same happens after the first creation: the plugin is called, and returns the storage of the other volume.
    let error = cluster.create(named("two", "same")).await.unwrap_err();
    assert_about(&error, &made[0].key());
    assert_eq!(plugin.volumes(), (vec!["ext-same".to_owned()], 1));
    assert_eq!(cluster.root().volumes_by_plugin(&make::PLUGIN.into()).count(), 1);
    assert_eq!(plugin.count(DELETE), 0);
}

/// A storage that is registered while the plugin creates a volume on it belongs to the registered volume.
#[tokio::test]
async fn a_creation_does_not_take_what_was_registered_meanwhile() {
    let (cluster, plugin, _client) = storage().await;
    let gate = plugin.hold(CREATE);
    let first = creation(&cluster, named("one", "same"));
    until("the call", || (plugin.count(CREATE) == 1).then_some(())).await;
    let row = register(&cluster, on("two", "ext-same")).await.unwrap();
    gate.open();
    let error = soon("the creation", first).await.unwrap().unwrap_err();
    assert_about(&error, &row.key());
    assert!(cluster.root().volume(&make::volume_key("one")).is_none(), "the intent is taken back");
    assert_eq!((plugin.volumes().0, plugin.count(DELETE)), (vec!["ext-same".to_owned()], 0));
}

#[tokio::test]
async fn the_deletion_of_a_volume_that_is_being_made_deletes_no_other_storage() {
    let (cluster, plugin, _client) = storage().await;
    let (one, two) = (make::volume_key("one"), make::volume_key("two"));
    // The plugin has created nothing for "one". Another volume has the name of "one" by the time that the creation is
    // given up.
    plugin.script(CREATE, [Reply::Fail(caravan_rpc::Code::Unavailable, "not now")]);
    cluster.create(named("one", "same")).await.unwrap_err();
    assert_eq!(cluster.root().volume(&one).unwrap().phase, VolumePhase::Creating);
    let registered = register(&cluster, on("two", "ext-same")).await.unwrap();
    let deleted = cluster.handle.volumes().delete(&one, &Secrets::default()).await;
    // The reconciler may have been faster, and may have removed the intent.
    assert!(
        deleted.is_ok() || deleted.as_ref().is_err_and(|error| error.kind() == Kind::NotFound),
        "{deleted:?}"
    );
    assert!(cluster.root().volume(&one).is_none());
    assert_eq!(cluster.root().volume(&two).cloned(), Some(registered));
    assert_eq!(plugin.count(DELETE), 0, "{:?}", plugin.calls());
}

#[tokio::test]
async fn storage_is_shared_by_rows_that_say_so_and_only_read() {
    let (cluster, plugin, _client) = storage().await;
    let (one, two) = (make::volume_key("one"), make::volume_key("two"));
    let first = register(&cluster, reads("one", "s", false)).await.unwrap();
    assert!(!first.shared_storage);
    // Both volumes must declare the sharing.
    for shared in [false, true] {
        assert_about(&register(&cluster, reads("two", "s", shared)).await.unwrap_err(), &one);
    }
    assert!(register(&cluster, reads("one", "s", true)).await.unwrap().shared_storage);
    assert_about(&register(&cluster, reads("two", "s", false)).await.unwrap_err(), &one);
    let mut writes = reads("two", "s", true);
    writes.requested_capabilities.push(make::volume("x").requested_capabilities[0]);
    let error = register(&cluster, writes).await.unwrap_err();
    assert!(error.to_string().contains("CaravanSharedStorage"), "{error}");
    assert!(register(&cluster, reads("two", "s", true)).await.unwrap().shared_storage);
    // Neither volume may be written, cease to share, or be deleted as long as the other exists.
    for (key, other) in [(&one, &two), (&two, &one)] {
        assert_about(&register(&cluster, reads(key.id.as_str(), "s", false)).await.unwrap_err(), other);
        assert_about(&register(&cluster, on(key.id.as_str(), "s")).await.unwrap_err(), other);
        let error = cluster.handle.volumes().delete(key, &Secrets::default()).await.unwrap_err();
        assert!(error.to_string().contains("only deregistered"), "{error}");
        assert_about(&error, other);
    }
    assert_eq!(plugin.count(DELETE), 0);
    cluster.handle.volumes().deregister(&two, false).await.unwrap();
    assert!(!register(&cluster, reads("one", "s", false)).await.unwrap().shared_storage);
}

/// The row is removed, and its claim stays until the node has unmounted the storage. No other volume gets the storage
/// before.
#[tokio::test]
async fn a_storage_that_was_deregistered_by_force_is_not_used_twice() {
    let (cluster, plugin, client) = storage().await;
    let _alive = client.stay_alive();
    let data = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &data).await;
    let error = cluster.handle.volumes().deregister(&data, true).await.unwrap_err();
    assert!(error.to_string().starts_with("volume in use: data"), "{error}");
    // The task has ended, and the mounts still exist.
    cluster.stop_job("one").await;
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.phase(&claim.id, ClaimPhase::Releasing).await;
    cluster.handle.volumes().deregister(&data, true).await.unwrap();
    register(&cluster, on("again", "ext-data")).await.unwrap();
    let registered = cluster.run_job(make::writer("two", "again")).await;
    cluster.eval_over(&registered.eval_id).await;
    cluster.quiet().await;
    let again = make::volume_key("again");
    assert_eq!(cluster.root().claims_of(&again).count(), 0, "the storage is still mounted");
    let error = cluster.handle.volumes().delete(&again, &Secrets::default()).await.unwrap_err();
    assert!(error.to_string().contains("still held"), "{error}");
    assert_eq!(plugin.count(DELETE), 0);
    // The node's proof frees the storage.
    client.prove(&claim, ClaimReportStep::Unpublished).await.unwrap();
    client.prove(&claim, ClaimReportStep::Unstaged).await.unwrap();
    let alloc = cluster.placed("two").await;
    let claim = client.start(&alloc, &again).await;
    assert_eq!(claim.id, claim_id(&again, &alloc));
}

#[tokio::test]
async fn ids_that_cannot_be_mounted_reach_no_plugin() {
    let (cluster, plugin, client) = storage().await;
    let long = "x".repeat(300);
    for id in [&*long, &long[..256], "a\0b", "..", ".", "a/b"] {
        for error in [
            cluster.create(make::volume(id)).await.unwrap_err(),
            register(&cluster, make::volume(id)).await.unwrap_err(),
        ] {
            assert!(error.to_string().starts_with("validation: volume id \""), "{error}");
            assert!(error.to_string().contains("cannot name a directory"), "{error}");
        }
    }
    assert_eq!(plugin.calls(), Vec::<String>::new());
    // Every id that is accepted can be mounted.
    for id in [&long[..250], &long[..255]] {
        let key = make::volume_key(id);
        cluster.create(make::volume(id)).await.unwrap();
        cluster.run_job(make::writer(&id[..10], id)).await;
        let alloc = cluster.placed(&id[..10]).await;
        let claim = client.start(&alloc, &key).await;
        caravan_volumes::paths::for_use("/csi".as_ref(), &key, &claim.usage(), &alloc.id).unwrap();
        cluster.stop_job(&id[..10]).await;
        client.finish(&alloc, &claim).await;
        cluster.phase(&claim.id, ClaimPhase::Gone).await;
    }
}
