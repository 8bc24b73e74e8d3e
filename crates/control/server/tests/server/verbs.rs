//! Snapshots, clones, and operations of users on volumes with problems.

use crate::make;
use crate::plugin::{CREATE, CREATE_SNAPSHOT, DELETE, DELETE_SNAPSHOT, Plugin, Reply, UNPUBLISH};
use crate::world::{Client, Cluster, Setup, claim_id, until};
use caravan_messages::ControllerOperation;
use caravan_rpc::Code;
use caravan_types::ser::Secrets;
use caravan_types::volume::{ClaimPhase, CsiSnapshot, VolumePhase, VolumeRequestBody};
use caravan_types::{Namespace, PluginId};
use std::collections::BTreeMap;

async fn storage() -> (Cluster, Plugin, Client) {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    (cluster, plugin, client)
}

fn default() -> Namespace {
    "default".into()
}

fn snapshot(volume: &str, name: &str) -> Option<CsiSnapshot> {
    Some(CsiSnapshot { source_volume_id: volume.into(), name: name.into(), ..CsiSnapshot::default() })
}

fn pairs(name: &str, value: &str) -> Secrets {
    Secrets::new(BTreeMap::from([(name.to_owned(), value.to_owned())]))
}

#[tokio::test]
async fn a_snapshot_of_the_same_name_is_the_same() {
    let (cluster, plugin, _client) = storage().await;
    let body = VolumeRequestBody { secrets: pairs("a", "kept"), ..make::volume("data") };
    cluster.create(body).await.unwrap();
    let mut expected = snapshot("data", "s1");
    if let Some(expected) = &mut expected {
        expected.secrets = pairs("b", "given");
        expected.parameters.insert("tier".into(), "cold".into());
    }
    let first = cluster.handle.snapshots().create(&default(), vec![expected.clone()]).await.unwrap();
    assert_eq!((first[0].id.as_str(), first[0].is_ready), ("snap-s1", true));
    assert_eq!(first[0].external_source_volume_id, "ext-data");
    assert!(first[0].name.is_empty() && first[0].plugin_id.is_empty(), "the answer has what the plugin told");
    let ControllerOperation::CreateSnapshot { secrets, parameters, .. } = plugin.last(CREATE_SNAPSHOT) else {
        panic!()
    };
    assert_eq!((secrets.expose()["a"].as_str(), secrets.expose()["b"].as_str()), ("kept", "given"));
    assert_eq!(parameters["tier"], "cold");
    // The response is lost, so the user repeats the command.
    plugin.script(CREATE_SNAPSHOT, [Reply::DoneButLost]);
    let error =
        cluster.handle.snapshots().create(&default(), vec![snapshot("data", "s2")]).await.unwrap_err();
    assert!(error.to_string().contains("the same command again finds it"), "{error}");
    let again = cluster.handle.snapshots().create(&default(), vec![snapshot("data", "s2")]).await.unwrap();
    assert_eq!(again[0].id, "snap-s2");
    assert_eq!(plugin.snapshots(), ["snap-s1", "snap-s2"]);
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn snapshots_that_cannot_be_are_refused_with_the_references_words() {
    let (cluster, plugin, client) = storage().await;
    cluster.create(make::volume("data")).await.unwrap();
    let error = |done: Result<Vec<CsiSnapshot>, caravan_server::ServerError>| done.unwrap_err().to_string();
    let create = async |expected| error(cluster.handle.snapshots().create(&default(), vec![expected]).await);
    assert_eq!(create(snapshot("nope", "s")).await, "1 error occurred:\n\t* no such volume \"nope\"\n\n");
    assert_eq!(create(None).await, "1 error occurred:\n\t* snapshot cannot be nil\n\n");
    let mut other = snapshot("data", "s");
    if let Some(other) = &mut other {
        other.plugin_id = "ghost".into();
    }
    assert_eq!(create(other).await, "1 error occurred:\n\t* no such plugin \"ghost\"\n\n");
    let both = vec![snapshot("nope", "s"), snapshot("data", "made")];
    let text = error(cluster.handle.snapshots().create(&default(), both).await);
    assert!(text.contains("no such volume"), "{text}");
    assert_eq!(plugin.snapshots(), ["snap-made"], "each is a snapshot of its own");
    plugin.script(CREATE_SNAPSHOT, [Reply::Fail(Code::Invalid, "no space")]);
    let text = create(snapshot("data", "full")).await;
    assert!(text.contains("could not create snapshot: CreateSnapshot: no space"), "{text}");

    let mut plain = client.row.clone();
    let info = plain.csi_controller_plugins.get_mut(make::PLUGIN).unwrap().controller_info.as_mut().unwrap();
    info.supports_create_delete_snapshot = false;
    info.supports_list_snapshots = false;
    let mut client = client;
    client.report(plain).await;
    let text = create(snapshot("data", "s")).await;
    assert_eq!(text, "1 error occurred:\n\t* plugin \"disk\" does not support snapshot\n\n");
    let (disk, ghost) = (PluginId::new("disk"), PluginId::new("ghost"));
    let none = Secrets::default();
    let text = cluster.handle.snapshots().delete(&disk, "s", &none).await.unwrap_err().to_string();
    assert_eq!(text, "1 error occurred:\n\t* plugin does not support snapshot\n\n");
    let text = cluster.handle.snapshots().delete(&ghost, "s", &none).await.unwrap_err().to_string();
    assert_eq!(text, "1 error occurred:\n\t* no such plugin\n\n");
    let list = async |plugin: &PluginId| {
        let listed = cluster.handle.snapshots().list(plugin, 0, String::new(), Secrets::default()).await;
        listed.unwrap_err().to_string()
    };
    assert_eq!(list(&disk).await, "plugin does not support listing snapshots");
    assert_eq!(list(&ghost).await, "no such plugin");
}

#[tokio::test]
async fn snapshots_are_listed_with_their_plugin_and_deleted_once_or_twice() {
    let (cluster, plugin, _client) = storage().await;
    cluster.create(make::volume("data")).await.unwrap();
    let expected = vec![snapshot("data", "a"), snapshot("data", "b")];
    cluster.handle.snapshots().create(&default(), expected).await.unwrap();
    let disk = PluginId::new(make::PLUGIN);
    let (listed, _) =
        cluster.handle.snapshots().list(&disk, 0, String::new(), Secrets::default()).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|s| (s.id.as_str(), s.plugin_id.as_str())).collect();
    assert_eq!(ids, [("snap-a", "disk"), ("snap-b", "disk")]);
    plugin.script(DELETE_SNAPSHOT, [Reply::DoneButLost, Reply::Fail(Code::NotFound, "gone")]);
    let secrets = pairs("k", "v");
    cluster.handle.snapshots().delete(&disk, "snap-a", &secrets).await.unwrap_err();
    cluster.handle.snapshots().delete(&disk, "snap-a", &secrets).await.unwrap();
    let ControllerOperation::DeleteSnapshot { secrets: reported, .. } = plugin.last(DELETE_SNAPSHOT) else {
        panic!()
    };
    assert_eq!(reported, secrets);
    assert_eq!(plugin.snapshots(), ["snap-b"]);
}

#[tokio::test]
async fn what_a_volume_is_made_from_reaches_the_plugin() {
    let (cluster, plugin, _client) = storage().await;
    cluster.create(make::volume("data")).await.unwrap();
    let sources = || match plugin.last(CREATE) {
        ControllerOperation::Create { clone_id, snapshot_id, .. } => (clone_id, snapshot_id),
        other => panic!("{other:?}"),
    };
    let from = |id: &str, clone: &str, snapshot: &str| VolumeRequestBody {
        clone_id: clone.into(),
        snapshot_id: snapshot.into(),
        ..make::volume(id)
    };
    // The source is named by its id, by its external id, and by an id that only the plugin has.
    let named = cluster.create(from("c1", "data", "")).await.unwrap();
    assert_eq!(sources(), ("ext-data".into(), String::new()));
    assert_eq!(named.clone_id, "data", "clients see what they asked for");
    cluster.create(from("c2", "ext-data", "")).await.unwrap();
    assert_eq!(sources(), ("ext-data".into(), String::new()));
    cluster.create(from("c3", "elsewhere", "")).await.unwrap();
    assert_eq!(sources(), ("elsewhere".into(), String::new()));
    cluster.create(from("c4", "", "snap-1")).await.unwrap();
    assert_eq!(sources(), (String::new(), "snap-1".into()));
    // The same command succeeds again, although the source is no longer registered.
    cluster.handle.volumes().deregister(&make::volume_key("data"), false).await.unwrap();
    assert_eq!(cluster.create(from("c1", "data", "")).await.unwrap(), named);
    let error = cluster.create(from("c1", "c2", "")).await.unwrap_err();
    assert_eq!(error.to_string(), "1 error occurred:\n\t* volume clone ID cannot be updated\n\n");
    let error = cluster.create(from("c5", "c1", "snap-1")).await.unwrap_err();
    assert_eq!(error.to_string(), "validation: only one of snapshot_id and clone_id is allowed");
}

/// A clone whose response was lost is requested again with the same source, whether or not the row of the source
/// exists.
#[tokio::test]
async fn a_clone_in_doubt_keeps_its_source() {
    let (cluster, plugin, _client) = storage().await;
    cluster.create(make::volume("data")).await.unwrap();
    plugin.script(CREATE, [Reply::DoneButLost]);
    let body = VolumeRequestBody { clone_id: "data".into(), ..make::volume("copy") };
    cluster.create(body.clone()).await.unwrap_err();
    cluster.handle.volumes().deregister(&make::volume_key("data"), false).await.unwrap();
    cluster.create(body).await.unwrap();
    let ControllerOperation::Create { clone_id, .. } = plugin.last(CREATE) else { panic!() };
    assert_eq!(clone_id, "ext-data");
    assert_eq!(plugin.volumes().1, 2);
}

/// docs/design/rough-edges.md, 15: the response of the plugin is stored unchanged, and nothing is stored before it.
#[tokio::test]
async fn topologies_are_those_of_the_plugin() {
    let (cluster, _plugin, _client) = storage().await;
    let zone = caravan_types::volume::Topology { segments: BTreeMap::from([("zone".into(), "z1".into())]) };
    let request =
        caravan_types::volume::TopologyRequest { required: vec![zone.clone()], preferred: Vec::new() };
    let body = VolumeRequestBody { requested_topologies: Some(request), ..make::volume("data") };
    assert_eq!(cluster.create(body).await.unwrap().topologies, [zone]);
}

/// A node registers before it connects, for example at a new leader. Its plugin is called once it has connected.
#[tokio::test]
async fn the_connection_of_a_controller_is_waited_for() {
    let (cluster, plugin, mut client) = storage().await;
    client.lose_connection();
    let connecting = async {
        let created = || cluster.root().volume(&make::volume_key("data")).map(|_| ());
        until("the intent", created).await;
        cluster.connect(client.row.clone(), &plugin)
    };
    let (made, _client) = tokio::join!(cluster.create(make::volume("data")), connecting);
    made.unwrap();
    assert_eq!(plugin.count(CREATE), 1);
}

/// docs/design/rough-edges.md, 26: the error text contains the alternative.
#[tokio::test]
async fn without_a_controller_nothing_is_deleted() {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let mut node = make::with_node_plugin(make::node("n"));
    node.csi_node_plugins.get_mut(make::PLUGIN).unwrap().requires_controller_plugin = false;
    let _client = cluster.join(node, &plugin).await;
    cluster.handle.volumes().register(&default(), vec![make::volume("data")]).await.unwrap();
    let key = make::volume_key("data");
    let error = cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("plugin \"disk\" for volume \"data\" not found"), "{error}");
    cluster.handle.volumes().deregister(&key, false).await.unwrap();
    assert_eq!(plugin.calls(), Vec::<String>::new());
}

/// docs/design/rough-edges.md, 25: an unclear deletion stays unclear until the plugin responds, for each caller that
/// retries.
#[tokio::test]
async fn a_deletion_asked_for_twice_is_not_taken_for_undone() {
    let (cluster, plugin, _client) = storage().await;
    cluster.create(make::volume("data")).await.unwrap();
    let key = make::volume_key("data");
    let lost = Reply::Fail(Code::Retryable, "not registered here");
    plugin.script(DELETE, [Reply::DoneButLost, lost.clone(), lost]);
    cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap_err();
    if cluster.handle.volumes().delete(&key, &Secrets::default()).await.is_err()
        && let Some(row) = cluster.root().volume(&key)
    {
        assert_eq!(row.phase, VolumePhase::Deleting, "it may be gone: nobody may claim it");
    }
    until("the row gone", || cluster.root().volume(&key).is_none().then_some(())).await;
    assert_eq!(plugin.volumes().0, Vec::<String>::new());
}

/// docs/design/rough-edges.md, 29: fields that the servers set are ignored in a specification.
#[tokio::test]
async fn internal_fields_of_a_specification_count_for_nothing() {
    let (cluster, _plugin, _client) = storage().await;
    let body: VolumeRequestBody = serde_json::from_value(serde_json::json!({
        "ID": "data", "PluginID": "disk", "Schedulable": true, "CreateTime": 7, "ReadAllocs": {"a": null},
        "CreateIndex": 99, "Capacity": 5, "ResourceExhausted": "2026-01-01T00:00:00Z",
        "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
    }))
    .unwrap();
    let made = cluster.handle.volumes().register(&default(), vec![body]).await.unwrap();
    assert!(made[0].create_time.0 > 7 && made[0].create_index != 99);
    assert_eq!((made[0].capacity.accepted, cluster.root().claims().count()), (0, 0));
}

/// The row of a volume is removed by force while a vanished node still holds the volume. The servers continue with
/// the data of the claim, including its secrets, and remove the claim in the end.
#[tokio::test]
async fn what_a_forsaken_volume_leaves_behind_is_finished() {
    let (cluster, plugin) = (Setup::memory().impatient().start().await, Plugin::default());
    let a = cluster.join(make::storage_node("a", true), &plugin).await;
    let b = cluster.join(make::with_node_plugin(make::node("b")), &plugin).await;
    let _a = a.stay_alive();
    let key = make::volume_key("data");
    let claim = {
        let _b = b.stay_alive();
        let body = VolumeRequestBody { secrets: pairs("token", "kept"), ..make::volume("data") };
        cluster.create(body).await.unwrap();
        cluster.run_job(make::pinned(make::writer("one", "data"), "b")).await;
        let alloc = cluster.placed("one").await;
        let error = cluster.handle.volumes().deregister(&key, true).await.unwrap_err();
        assert!(error.to_string().starts_with("volume in use: data"), "it runs: {error}");
        b.start(&alloc, &key).await
    };
    cluster.phase(&claim.id, ClaimPhase::Fencing).await;
    cluster.handle.volumes().deregister(&key, false).await.unwrap_err();
    cluster.handle.volumes().deregister(&key, true).await.unwrap();
    assert!(cluster.root().volume(&key).is_none());
    let left = cluster.claim(&claim.id).expect("it still holds the volume");
    assert!(left.forsaken && left.phase.holds());
    assert_eq!(caravan_state::check(&cluster.root()), Vec::<String>::new());
    until("the claim gone", || cluster.claim(&claim.id).is_none().then_some(())).await;
    let ControllerOperation::Unpublish { external_id, external_node_id, secrets } = plugin.last(UNPUBLISH)
    else {
        panic!()
    };
    assert_eq!((&*external_id, &*external_node_id), ("ext-data", "csi-b"));
    assert_eq!(secrets.expose()["token"], "kept");
    assert_eq!(plugin.published(), []);
    assert_eq!(caravan_state::check(&cluster.root()), Vec::<String>::new());
}

/// docs/design/rough-edges.md, 19: detaching works, and works a second time.
#[tokio::test]
async fn a_volume_is_detached_from_a_node_that_is_gone() {
    let (cluster, plugin) = (Setup::memory().impatient().start().await, Plugin::default());
    let a = cluster.join(make::storage_node("a", true), &plugin).await;
    let b = cluster.join(make::with_node_plugin(make::node("b")), &plugin).await;
    let _a = a.stay_alive();
    let key = make::volume_key("data");
    let (alloc, node) = {
        let _b = b.stay_alive();
        cluster.create(make::volume("data")).await.unwrap();
        cluster.run_job(make::pinned(make::writer("one", "data"), "b")).await;
        let alloc = cluster.placed("one").await;
        b.start(&alloc, &key).await;
        (alloc, b.row.id.clone())
    };
    let id = claim_id(&key, &alloc);
    cluster.phase(&id, ClaimPhase::Fencing).await;
    cluster.handle.volumes().detach(&key, &node).await.unwrap();
    cluster.phase(&id, ClaimPhase::Gone).await;
    cluster.handle.volumes().detach(&key, &node).await.unwrap();
    assert_eq!(plugin.published(), []);
}
