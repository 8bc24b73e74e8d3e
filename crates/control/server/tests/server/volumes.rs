//! Requests of users about volumes.

use crate::make;
use crate::plugin::{CREATE, DELETE, Plugin, Reply, VALIDATE};
use crate::world::{Client, Cluster, Setup, claim_id, soon, until};
use caravan_rpc::Code;
use caravan_server::Kind;
use caravan_types::alloc::ClientStatus;
use caravan_types::namespace::NamespaceSpec;
use caravan_types::ser::Secrets;
use caravan_types::volume::{ClaimPhase, VolumePhase, VolumeRequestBody};
use std::collections::BTreeMap;

async fn storage() -> (Cluster, Plugin, Client) {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    (cluster, plugin, client)
}

#[tokio::test]
async fn a_created_volume_is_what_the_plugin_made() {
    let (cluster, plugin, _client) = storage().await;
    let volume = cluster.create(make::volume("data")).await.unwrap();
    assert_eq!((volume.phase, &*volume.external_id), (VolumePhase::Ready, "ext-data"));
    assert_eq!(volume.capacity.accepted, 1);
    assert_eq!(volume.context["made"], "yes");
    // The same command changes nothing and creates nothing the second time.
    let again = cluster.create(make::volume("data")).await.unwrap();
    assert_eq!(again, volume);
    assert_eq!(plugin.calls(), ["CreateVolume data"]);
}

#[tokio::test]
async fn the_intent_is_there_before_the_call() {
    let (cluster, plugin, _client) = storage().await;
    let gate = plugin.hold(CREATE);
    let creation = {
        let handle = cluster.handle.clone();
        tokio::spawn(
            async move { handle.volumes().create(&"default".into(), vec![make::volume("data")]).await },
        )
    };
    until("the call", || (plugin.count(CREATE) == 1).then_some(())).await;
    let row = cluster.root().volume(&make::volume_key("data")).cloned().unwrap();
    assert_eq!(row.phase, VolumePhase::Creating);
    gate.open();
    soon("the creation", creation).await.unwrap().unwrap();
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_cut_its_command_off() {
    let (cluster, plugin, _client) = storage().await;
    let gate = plugin.hold(CREATE);
    let creation = {
        let handle = cluster.handle.clone();
        tokio::spawn(
            async move { handle.volumes().create(&"default".into(), vec![make::volume("data")]).await },
        )
    };
    until("the call", || (plugin.count(CREATE) == 1).then_some(())).await;
    creation.abort();
    gate.open();
    until("the volume ready", || {
        cluster.root().volume(&make::volume_key("data")).filter(|v| v.phase == VolumePhase::Ready).cloned()
    })
    .await;
    assert_eq!(plugin.count(CREATE), 1);
}

#[tokio::test]
async fn what_the_plugin_refuses_leaves_nothing() {
    let (cluster, plugin, _client) = storage().await;
    plugin.script(CREATE, [Reply::Fail(Code::Invalid, "no such parameter")]);
    let error = cluster.create(make::volume("data")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.to_string().contains("no such parameter"), "{error}");
    assert!(cluster.root().volume(&make::volume_key("data")).is_none());
}

#[tokio::test]
async fn an_answer_that_was_lost_is_asked_for_again() {
    let (cluster, plugin, _client) = storage().await;
    plugin.script(CREATE, [Reply::DoneButLost]);
    let error = cluster.create(make::volume("data")).await.unwrap_err();
    assert!(error.to_string().contains("stays in phase creating"), "{error}");
    let volume = until("the volume ready", || {
        cluster.root().volume(&make::volume_key("data")).filter(|v| v.phase == VolumePhase::Ready).cloned()
    })
    .await;
    assert_eq!((volume.tries, &*volume.last_error), (0, ""));
    assert_eq!(plugin.volumes(), (vec!["ext-data".to_owned()], 1));
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn create_again_converges_while_the_first_is_in_doubt() {
    let (cluster, plugin, _client) = storage().await;
    plugin.script(CREATE, [Reply::DoneButLost]);
    cluster.create(make::volume("data")).await.unwrap_err();
    let volume = cluster.create(make::volume("data")).await.unwrap();
    assert_eq!(volume.phase, VolumePhase::Ready);
    assert_eq!(plugin.volumes().1, 1);
    plugin.assert_one_at_a_time();
}

#[tokio::test]
async fn a_refusal_after_a_lost_response_keeps_the_volume() {
    let (cluster, plugin, _client) = storage().await;
    plugin.script(CREATE, [Reply::DoneButLost, Reply::Fail(Code::Invalid, "busy, say")]);
    cluster.create(make::volume("data")).await.unwrap_err();
    until("the second call", || (plugin.count(CREATE) >= 2).then_some(())).await;
    until("the volume ready", || {
        cluster.root().volume(&make::volume_key("data")).filter(|v| v.phase == VolumePhase::Ready).cloned()
    })
    .await;
}

#[tokio::test]
async fn a_plugin_that_answers_nonsense_is_not_asked_without_a_pause() {
    let (cluster, plugin, _client) = storage().await;
    plugin.script(CREATE, [Reply::Nonsense, Reply::Nonsense]);
    cluster.create(make::volume("data")).await.unwrap_err();
    let row = until("a later try", || {
        cluster.root().volume(&make::volume_key("data")).filter(|v| v.tries > 0).cloned()
    })
    .await;
    assert!(row.next_try > row.modify_time);
    until("the volume ready", || {
        cluster.root().volume(&make::volume_key("data")).filter(|v| v.phase == VolumePhase::Ready).cloned()
    })
    .await;
    assert_eq!(plugin.count(CREATE), 3);
}

#[tokio::test]
async fn a_deleted_volume_is_gone_on_both_sides() {
    let (cluster, plugin, _client) = storage().await;
    cluster.create(make::volume("data")).await.unwrap();
    let key = make::volume_key("data");
    cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap();
    assert!(cluster.root().volume(&key).is_none());
    assert_eq!(plugin.volumes().0, Vec::<String>::new());
    let error = cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap_err();
    assert_eq!((error.kind(), &*error.to_string()), (Kind::NotFound, "volume not found: data"));
}

#[tokio::test]
async fn a_refused_deletion_leaves_the_volume_as_it_was() {
    let (cluster, plugin, _client) = storage().await;
    let before = cluster.create(make::volume("data")).await.unwrap();
    plugin.script(DELETE, [Reply::Fail(Code::Conflict, "has snapshots")]);
    let secrets = Secrets::new(BTreeMap::from([("token".to_owned(), "once".to_owned())]));
    let key = make::volume_key("data");
    let error = cluster.handle.volumes().delete(&key, &secrets).await.unwrap_err();
    assert!(error.to_string().contains("has snapshots"), "{error}");
    let after = cluster.root().volume(&key).cloned().unwrap();
    assert_eq!(after.phase, VolumePhase::Ready);
    assert_eq!(after.secrets, before.secrets, "secrets of one command are not kept");
}

#[tokio::test]
async fn a_deletion_in_doubt_goes_on_until_it_is_sure() {
    let (cluster, plugin, _client) = storage().await;
    cluster.create(make::volume("data")).await.unwrap();
    plugin.script(DELETE, [Reply::DoneButLost, Reply::Fail(Code::Internal, "restarting")]);
    let key = make::volume_key("data");
    cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap_err();
    until("the row gone", || cluster.root().volume(&key).is_none().then_some(())).await;
    assert_eq!(plugin.count(DELETE), 3);
    assert_eq!(plugin.volumes().1, 1);
}

#[tokio::test]
async fn giving_up_a_creation_in_doubt_leaves_nothing_at_the_plugin() {
    let (cluster, plugin, client) = storage().await;
    let key = make::volume_key("data");
    plugin.script(CREATE, [Reply::DoneButLost]);
    cluster.create(make::volume("data")).await.unwrap_err();
    cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap();
    assert!(cluster.root().volume(&key).is_none());
    assert_eq!(plugin.volumes().0, Vec::<String>::new());
    drop(client);
}

#[tokio::test]
async fn a_creation_whose_deletion_is_refused_is_a_volume_with_its_id() {
    let (cluster, plugin, _client) = storage().await;
    let key = make::volume_key("data");
    plugin.script(CREATE, [Reply::DoneButLost]);
    plugin.script(DELETE, [Reply::Fail(Code::Conflict, "protected")]);
    cluster.create(make::volume("data")).await.unwrap_err();
    cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap_err();
    let volume = cluster.root().volume(&key).cloned().unwrap();
    assert_eq!((volume.phase, &*volume.external_id), (VolumePhase::Ready, "ext-data"));
    assert_eq!(volume.context["made"], "yes");
}

#[tokio::test]
async fn a_volume_in_use_is_neither_deleted_nor_deregistered() {
    let (cluster, plugin, client) = storage().await;
    let key = make::volume_key("data");
    cluster.create(make::volume("data")).await.unwrap();
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    let error = cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("volume in use: data"), "{error}");
    for force in [false, true] {
        let error = cluster.handle.volumes().deregister(&key, force).await.unwrap_err();
        assert!(error.to_string().starts_with("volume in use: data"), "{error}");
    }
    assert_eq!(plugin.count(DELETE), 0);
    assert_eq!(cluster.root().volume(&key).unwrap().phase, VolumePhase::Ready);
    cluster.stop_job("one").await;
    client.finish(&alloc, &claim).await;
    cluster.phase(&claim.id, ClaimPhase::Gone).await;
    cluster.handle.volumes().deregister(&key, false).await.unwrap();
    assert_eq!(plugin.volumes().0, ["ext-data"], "the plugin was not asked");
}

/// Either the claim or the deletion succeeds, never both.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deletion_races_with_a_claim() {
    for round in 0..8 {
        let (cluster, plugin, _client) = storage().await;
        let key = make::volume_key("data");
        cluster.create(make::volume("data")).await.unwrap();
        let handle = cluster.handle.clone();
        let delete = {
            let key = key.clone();
            async move {
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
                handle.volumes().delete(&key, &Secrets::default()).await
            }
        };
        let (deleted, registered) = tokio::join!(delete, cluster.run_job(make::writer("one", "data")));
        cluster.eval_over(&registered.eval_id).await;
        cluster.quiet().await;
        let root = cluster.root();
        let claimed = root.claims_of(&key).filter(|c| c.phase.holds()).count();
        match deleted {
            Ok(_) => assert!(root.volume(&key).is_none() && claimed == 0 && plugin.volumes().0.is_empty()),
            Err(_) => assert!(root.volume(&key).is_some() && plugin.volumes().0 == ["ext-data"]),
        }
        plugin.assert_one_at_a_time();
    }
}

#[tokio::test]
async fn a_registration_is_checked_by_the_plugin() {
    let (cluster, plugin, _client) = storage().await;
    let body = VolumeRequestBody { external_id: "ext-old".into(), ..make::volume("old") };
    plugin.script(VALIDATE, [Reply::Fail(Code::NotFound, "no such volume")]);
    let refused = cluster.handle.volumes().register(&"default".into(), vec![body.clone()]).await.unwrap_err();
    assert!(refused.to_string().starts_with("controller validate volume: "), "{refused}");
    assert!(cluster.root().volume(&make::volume_key("old")).is_none());
    let made = cluster.handle.volumes().register(&"default".into(), vec![body]).await.unwrap();
    assert_eq!((made[0].phase, &*made[0].external_id), (VolumePhase::Ready, "ext-old"));
    assert_eq!(plugin.calls(), ["ValidateVolumeCapabilities old", "ValidateVolumeCapabilities old"]);
}

#[tokio::test]
async fn unknown_plugins_and_empty_requests_are_named() {
    let cluster = Setup::memory().start().await;
    let error = cluster.create(make::volume("data")).await.unwrap_err();
    assert_eq!(error.to_string(), "no CSI plugin named: disk could be found");
    let error = cluster.handle.volumes().create(&"default".into(), Vec::new()).await.unwrap_err();
    assert_eq!((error.kind(), &*error.to_string()), (Kind::BadRequest, "missing volume definition"));
    let error = cluster.create(VolumeRequestBody::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("validation: missing volume id, missing plugin id"), "{error}");
}

#[tokio::test]
async fn several_volumes_fail_one_by_one() {
    let (cluster, plugin, _client) = storage().await;
    plugin.script(CREATE, [Reply::Fail(Code::Invalid, "first")]);
    let bodies = vec![make::volume("one"), make::volume("two")];
    let error = cluster.handle.volumes().create(&"default".into(), bodies).await.unwrap_err();
    assert!(error.to_string().contains("first"), "{error}");
    assert!(cluster.root().volume(&make::volume_key("one")).is_none());
    assert!(cluster.root().volume(&make::volume_key("two")).is_some());
}

#[tokio::test]
async fn detaching_needs_the_end_of_the_allocation() {
    let (cluster, _plugin, client) = storage().await;
    let key = make::volume_key("data");
    let node = client.row.id.clone();
    cluster.create(make::volume("data")).await.unwrap();
    // A detach without an attachment succeeds, unless the node is unknown.
    cluster.handle.volumes().detach(&key, &node).await.unwrap();
    let error = cluster.handle.volumes().detach(&key, &"nobody".into()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    cluster.run_job(make::writer("one", "data")).await;
    let alloc = cluster.placed("one").await;
    let claim = client.start(&alloc, &key).await;
    let error = cluster.handle.volumes().detach(&key, &node).await.unwrap_err();
    assert!(error.to_string().contains("still runs with volume data"), "{error}");
    // The allocation has to stop, but its task still runs.
    cluster.stop_job("one").await;
    until("the stop", || cluster.root().alloc(&alloc.id).filter(|a| a.server_terminal()).cloned()).await;
    let error = cluster.handle.volumes().detach(&key, &node).await.unwrap_err();
    assert!(error.to_string().contains("still runs with volume data"), "{error}");
    assert_eq!(cluster.claim(&claim.id).unwrap().phase, ClaimPhase::Mounted);
    // The task has ended, but the client does not unmount by itself.
    client.status(&alloc, ClientStatus::Complete).await;
    cluster.handle.volumes().detach(&key, &node).await.unwrap();
    let asked = client.detaches.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].claim, claim_id(&key, &alloc));
}

#[tokio::test]
async fn a_registered_volume_is_deleted_by_its_id_and_never_made() {
    let (cluster, plugin, _client) = storage().await;
    let key = make::volume_key("old");
    cluster.handle.volumes().register(&"default".into(), vec![make::volume("old")]).await.unwrap();
    plugin.script(DELETE, [Reply::Fail(Code::NotFound, "there is none")]);
    cluster.handle.volumes().delete(&key, &Secrets::default()).await.unwrap();
    assert!(cluster.root().volume(&key).is_none(), "what the plugin does not know is gone");
    assert_eq!(plugin.calls(), ["ValidateVolumeCapabilities old", "DeleteVolume old"]);
}

#[tokio::test]
async fn volumes_are_in_namespaces_that_there_are() {
    let (cluster, plugin, _client) = storage().await;
    let (team, handle) = ("team".into(), &cluster.handle);
    let body = || vec![VolumeRequestBody { namespace: Default::default(), ..make::volume("data") }];
    let error = handle.volumes().create(&team, body()).await.unwrap_err();
    assert_eq!(error.to_string(), "volume data is in nonexistent namespace team");
    let spec = NamespaceSpec { name: team.clone(), ..NamespaceSpec::default() };
    handle.admin().write_namespace(spec).await.unwrap();
    let made = handle.volumes().create(&team, body()).await.unwrap();
    assert_eq!(made[0].namespace, team);
    // Plugins have no namespaces: the same name would be the same volume.
    let error = handle.volumes().create(&"default".into(), body()).await.unwrap_err();
    assert!(error.to_string().contains("for the name \"data\" the plugin has a storage"), "{error}");
    assert_eq!(error.about(), [made[0].key()], "named to those who may see it");
    assert!(cluster.root().volume(&make::volume_key("data")).is_none());
    let named = vec![VolumeRequestBody { name: "own".into(), ..make::volume("data") }];
    let other = handle.volumes().create(&"default".into(), named).await.unwrap();
    assert_eq!((other[0].namespace.as_str(), &*other[0].external_id), ("default", "ext-own"));
    assert_eq!(cluster.root().volumes_with_prefix(None, "data").count(), 2);
    assert_eq!((plugin.count(CREATE), plugin.count(DELETE)), (3, 0));
}

#[tokio::test]
async fn commands_of_one_volume_take_turns() {
    let (cluster, plugin, _client) = storage().await;
    let gate = plugin.hold(CREATE);
    let bodies = || vec![make::volume("data")];
    let handle = &cluster.handle;
    let namespace = "default".into();
    let both = futures::future::join(
        handle.volumes().create(&namespace, bodies()),
        handle.volumes().register(&namespace, bodies()),
    );
    let opener = async {
        until("the call", || (plugin.count(CREATE) == 1).then_some(())).await;
        gate.open();
    };
    let ((created, registered), ()) = Box::pin(futures::future::join(both, opener)).await;
    created.unwrap();
    registered.unwrap();
    assert_eq!(plugin.calls(), ["CreateVolume data", "ValidateVolumeCapabilities data"]);
    plugin.assert_one_at_a_time();
}
