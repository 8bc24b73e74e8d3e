//! The rights of a caller to the objects of other callers: variables, snapshots and copies by the plugin's ids,
//! identities.

use crate::make;
use crate::plugin::{CREATE, DELETE_SNAPSHOT, Plugin};
use crate::world::{Client, Cluster, Setup, soon, until};
use caravan_messages::SignIdentities;
use caravan_rpc::{Channel, Code, PeerIdentity, Router, Secret, methods};
use caravan_server::{Acl, AclConfig, Caller, Kind, VariableWritten};
use caravan_types::identity::IdentitySpec;
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node::{Node, NodeSecret};
use caravan_types::ser::Secrets;
use caravan_types::variable::VariableKey;
use caravan_types::volume::{CsiSnapshot, VolumeRequestBody};
use caravan_types::{Namespace, PluginId};
use std::collections::BTreeMap;
use std::sync::Arc;

fn caller(rules: &str) -> Caller {
    let rules = caravan_server::parse_rules(rules).unwrap();
    Caller { acl: Arc::new(Acl::compile([&rules])), ..Caller::nobody() }
}

/// Returns a caller with all rights in one namespace, and without rights elsewhere.
fn tenant(namespace: &str) -> Caller {
    caller(&format!("namespace \"{namespace}\" {{ policy = \"write\" }}"))
}

fn ns(name: &str) -> Namespace {
    Namespace::new(name)
}

async fn storage() -> (Cluster, Plugin, Client) {
    let (cluster, plugin) = (Setup::memory().start().await, Plugin::default());
    let client = cluster.join(make::storage_node("a", true), &plugin).await;
    for name in ["team-a", "team-b"] {
        let row = NamespaceSpec { name: name.into(), ..NamespaceSpec::default() };
        cluster.handle.admin().write_namespace(row).await.unwrap();
    }
    (cluster, plugin, client)
}

fn body(namespace: &str, id: &str) -> VolumeRequestBody {
    VolumeRequestBody { namespace: namespace.into(), ..make::volume(id) }
}

#[tokio::test]
async fn secrets_come_from_variables_that_the_caller_may_read() {
    let (cluster, plugin, _client) = storage().await;
    let key = VariableKey::new("team-a", "app/db");
    let items = Secrets::new(BTreeMap::from([("pw".to_owned(), "hunter2".to_owned())]));
    cluster.handle.variables().write(key, &items, None, None).await.unwrap();
    let referring = |id: &str, reference: &str| VolumeRequestBody {
        secrets_from: BTreeMap::from([("k".to_owned(), reference.to_owned())]),
        ..body("team-a", id)
    };
    let blind = tenant("team-a");
    let reader = caller(
        "namespace \"team-a\" { policy = \"write\"\n variables { path \"app/*\" { capabilities = [\"read\"] } } }",
    );
    let create = async |caller: &Caller, body: VolumeRequestBody| {
        cluster.handle.volumes().create_as(caller.clone(), &ns("team-a"), vec![body]).await
    };
    // The response does not reveal whether the variable exists.
    for reference in ["app/db#pw", "app/none#pw", "app/db#none"] {
        let error = create(&blind, referring("v", reference)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Forbidden, "{error}");
        assert!(error.to_string().starts_with("Permission denied"), "{error}");
        let error = cluster
            .handle
            .volumes()
            .register_as(blind.clone(), &ns("team-a"), vec![referring("v", reference)])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Forbidden, "{error}");
    }
    assert!(plugin.count(CREATE) == 0 && cluster.root().volumes_with_prefix(None, "").next().is_none());
    create(&reader, referring("v", "app/db#pw")).await.unwrap();
    // Existing references stay, whichever caller writes the volume; another reference needs the right again.
    create(&blind, referring("v", "app/db#pw")).await.unwrap();
    let error = create(&blind, referring("v", "app/other#pw")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden, "{error}");
    // A path does not refer to variables of another namespace.
    let error = create(&reader, referring("w", "other#pw")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden, "{error}");
    cluster.stop().await;
}

#[tokio::test]
async fn snapshots_and_copies_belong_to_the_namespace_of_their_volume() {
    let (cluster, plugin, _client) = storage().await;
    let handle = &cluster.handle;
    let (a, b) = (tenant("team-a"), tenant("team-b"));
    handle.volumes().create_as(a.clone(), &ns("team-a"), vec![body("team-a", "data")]).await.unwrap();
    let snapshot =
        Some(CsiSnapshot { source_volume_id: "data".into(), name: "s".into(), ..CsiSnapshot::default() });
    let made = handle.snapshots().create(&ns("team-a"), vec![snapshot]).await.unwrap();
    let (id, external) = (made[0].id.clone(), made[0].external_source_volume_id.clone());
    let disk = PluginId::new(make::PLUGIN);
    let none = Secrets::default();

    let list = async |caller: &Caller| {
        handle.snapshots().list_as(caller, &disk, 0, String::new(), Secrets::default()).await.unwrap().0.len()
    };
    assert_eq!((list(&a).await, list(&b).await, list(&Caller::unrestricted()).await), (1, 0, 1));

    for origin in [
        VolumeRequestBody { snapshot_id: id.clone(), ..body("team-b", "stolen") },
        VolumeRequestBody { clone_id: external.clone(), ..body("team-b", "stolen") },
        // Objects without a record on the servers are reserved for management tokens.
        VolumeRequestBody { clone_id: "ext-of-somebody-else".into(), ..body("team-b", "stolen") },
        VolumeRequestBody { snapshot_id: "snap-of-somebody-else".into(), ..body("team-b", "stolen") },
    ] {
        let made = handle.volumes().create_as(b.clone(), &ns("team-b"), vec![origin.clone()]).await;
        let error = made.unwrap_err();
        assert_eq!(error.kind(), Kind::Forbidden, "{origin:?}: {error}");
    }
    assert_eq!(plugin.count(CREATE), 1);
    assert!(cluster.root().volumes_with_prefix(Some(&ns("team-b")), "").next().is_none());
    let error = handle.snapshots().delete_as(b.clone(), &disk, &id, &none).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden, "{error}");
    assert!(plugin.count(DELETE_SNAPSHOT) == 0);

    // The owning tenant may do all of this.
    for origin in [
        VolumeRequestBody { snapshot_id: id.clone(), ..body("team-a", "from-snapshot") },
        VolumeRequestBody { clone_id: external, ..body("team-a", "clone") },
        VolumeRequestBody { clone_id: "data".into(), ..body("team-a", "clone-by-id") },
    ] {
        handle.volumes().create_as(a.clone(), &ns("team-a"), vec![origin]).await.unwrap();
    }
    handle.snapshots().delete_as(a.clone(), &disk, &id, &none).await.unwrap();
    handle.snapshots().delete_as(a.clone(), &disk, &id, &none).await.unwrap();
    assert!(plugin.snapshots().is_empty());
    // The volume of a snapshot may be deleted. In this case, only a management token may use the snapshot, because
    // its owner is unknown.
    let snapshot =
        Some(CsiSnapshot { source_volume_id: "clone".into(), name: "old".into(), ..CsiSnapshot::default() });
    let made = handle.snapshots().create(&ns("team-a"), vec![snapshot]).await.unwrap();
    handle.volumes().deregister(&caravan_types::VolumeKey::new("team-a", "clone"), false).await.unwrap();
    assert_eq!(list(&a).await, 0);
    let error = handle.snapshots().delete_as(a, &disk, &made[0].id, &none).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden, "{error}");
    handle.snapshots().delete_as(Caller::unrestricted(), &disk, &made[0].id, &none).await.unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn an_identity_for_somebody_else_is_none_here() {
    let acl = AclConfig { enabled: true, ..AclConfig::default() };
    let cluster = Setup { acl, ..Setup::memory() }.start().await;
    let mut row = make::node("a");
    row.attributes.insert("nomad.version".into(), "1.11.0".into());
    let client = cluster.join(row, &Plugin::default()).await;
    let audiences: [(&str, &[&str]); 4] = [
        ("default", &["nomadproject.io"]),
        ("ext", &["third-party.example"]),
        ("both", &["third-party.example", "nomadproject.io"]),
        ("none", &[]),
    ];
    let mut job = make::job("web");
    let specs = audiences.map(|(name, audience)| IdentitySpec {
        name: name.into(),
        audience: Some(audience.iter().map(|text| (*text).to_owned()).collect()),
        file: true,
        ..IdentitySpec::default()
    });
    let task = &mut job.task_groups[0].tasks[0];
    task.identity = Some(specs[0].clone().into());
    task.identities = specs[1..].to_vec();
    cluster.run_job(job).await;
    let alloc = cluster.placed("web").await;
    let sign = SignIdentities {
        node_id: client.row.id.clone(),
        secret: client.row.secret_id.clone(),
        alloc_id: alloc.id.clone(),
        identities: audiences.iter().map(|(name, _)| ("t".to_owned(), (*name).to_owned())).collect(),
    };
    let identity = PeerIdentity::Client { node_id: "a-node".into(), secret: Secret::new("a-secret") };
    let node = Channel::local(cluster.handle.rpc().build(), identity);
    let signed = node.call::<methods::SignIdentities>(sign, None).await.unwrap();
    let good: Vec<bool> = signed
        .tokens
        .iter()
        .map(|token| cluster.handle.admin().caller(token.expose()).is_ok_and(|caller| caller.is_workload()))
        .collect();
    assert_eq!(good, [true, false, true, false]);
    cluster.stop().await;
}

/// A purged node cannot be called over any connection, and neither can a node that another agent replaced.
#[tokio::test]
async fn a_way_back_ends_with_the_secret_that_it_was_opened_with() {
    use caravan_rpc::{
        Authenticator, ConnectOptions, Hello, ReverseOptions, ReverseService, Role, RpcError, RpcServer,
        ServerOptions,
    };
    #[derive(Debug)]
    struct Known(caravan_server::Handle);
    impl Authenticator for Known {
        fn authenticate<'a>(
            &'a self,
            _: Role,
            hello: &'a Hello,
        ) -> futures::future::BoxFuture<'a, Result<PeerIdentity, RpcError>> {
            let known = self.proves(&hello.identity, None);
            let refused = RpcError::new(Code::NotFound, "not registered");
            Box::pin(async move { if known { Ok(hello.identity.clone()) } else { Err(refused) } })
        }
        fn proves(&self, peer: &PeerIdentity, _: Option<&caravan_rpc::Certificate>) -> bool {
            let PeerIdentity::Client { node_id, secret } = peer else { return false };
            self.0.is_node(&node_id.as_str().into(), secret.expose()) == Some(true)
        }
    }
    let cluster = Setup::memory().start().await;
    let name = PeerIdentity::server("s");
    let options = ServerOptions {
        registry: cluster.registry.clone(),
        authenticator: Arc::new(Known(cluster.handle.clone())),
        ..ServerOptions::new(name, cluster.handle.rpc().build())
    };
    let server = RpcServer::bind("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
    let target = server.local_addr().to_string();
    let cancel = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(server.run(cancel.clone()));
    // The node connects before it is registered, and is accepted once it is registered.
    let identity = PeerIdentity::Client { node_id: "a-node".into(), secret: Secret::new("a-secret") };
    let connect = ConnectOptions::new(vec![target], identity, "global");
    let (service, _state) =
        ReverseService::new(ReverseOptions { connect, router: Router::builder().build() });
    let dialling = tokio::spawn(service.run(cancel.clone()));
    tokio::task::yield_now().await;
    assert!(cluster.registry.get("a-node").is_err());
    let node = Node { secret_id: NodeSecret::new("a-secret"), ..make::node("a") };
    let register = async |node: Node| {
        let peer = PeerIdentity::Client { node_id: "a-node".into(), secret: Secret::new("x") };
        let channel = Channel::local(cluster.handle.rpc().build(), peer);
        channel.call::<methods::NodeRegister>(caravan_messages::NodeRegister { node }, None).await
    };
    register(node.clone()).await.unwrap();
    let way = until("a way back", || cluster.registry.get("a-node").ok()).await;
    cluster.handle.nodes().purge(&node.id).await.unwrap();
    until("the end of the way back", || way.is_closed().then_some(())).await;
    assert!(cluster.registry.get("a-node").is_err());
    // Another agent registers the id: the connection of the old agent is not accepted again.
    register(Node { secret_id: NodeSecret::new("other"), ..node.clone() }).await.unwrap();
    let error = register(node).await.unwrap_err();
    assert_eq!(error.code, Code::Permission);
    assert!(cluster.registry.get("a-node").is_err());
    cancel.cancel();
    soon("the end of the client", dialling).await.unwrap();
    soon("the end of the port", serving).await.unwrap();
    cluster.stop().await;
}

/// Acknowledged variables can be opened, even if root keys are rotated and deleted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_root_key_takes_no_variable_with_it() {
    let cluster = Setup::memory().start().await;
    let stop = tokio_util::sync::CancellationToken::new();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (handle, stop) = (cluster.handle.clone(), stop.clone());
            tokio::spawn(async move {
                let mut written = 0_u32;
                while !stop.is_cancelled() || written < 5 {
                    let key = VariableKey::new("default", format!("w{writer}/{}", written % 8));
                    let value = BTreeMap::from([("n".to_owned(), written.to_string())]);
                    let done = handle.variables().write(key, &Secrets::new(value), None, None).await;
                    assert!(matches!(done.unwrap(), VariableWritten::Done { .. }));
                    written += 1;
                }
            })
        })
        .collect();
    let admin = cluster.handle.admin();
    for _ in 0..20 {
        let before: Vec<String> = cluster.root().root_keys().map(|key| key.key_id.clone()).collect();
        admin.rotate_key(true, None).await.unwrap();
        for key in before {
            // Data sealed with the key is sealed again, and a key in use is not deleted.
            let _ = admin.delete_key(&key, false).await;
        }
    }
    stop.cancel();
    for writer in writers {
        soon("the end of a writer", writer).await.unwrap();
    }
    let root = cluster.root();
    assert!(root.root_keys().count() < 20, "keys were deleted");
    for row in root.variables_with_prefix(None, "") {
        cluster.handle.variables().open(row).unwrap();
    }
    cluster.stop().await;
}
