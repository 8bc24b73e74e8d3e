//! Host volumes through the servers: intents, names, deletion, and the holds of sticky groups.

use crate::make;
use crate::plugin::Plugin;
use crate::world::{Cluster, Setup, soon, until};
use caravan_messages::{AllocStatus, Done, HostVolumeCreated, NodeRegister};
use caravan_rpc::{Channel, Code, PeerIdentity, Registration, Router, RpcError, Secret, methods};
use caravan_server::{Acl, Caller, JobSubmission, Kind, ServerError};
use caravan_types::alloc::{AllocUpdate, Allocation, ClientStatus};
use caravan_types::host_volume::{HostVolume, HostVolumeIntent, HostVolumeSpec, HostVolumeState};
use caravan_types::job::{HostAccess, Job, VolumeRequest, VolumeType};
use caravan_types::namespace::NamespaceSpec;
use caravan_types::node::{HostVolumeInfo, Node};
use caravan_types::node_pool::NodePool;
use caravan_types::{HostVolumeId, UnixNanos};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The requests that a node received, its volumes, and its next replies in place of execution.
#[derive(Debug, Default)]
struct Disk {
    calls: Vec<String>,
    made: BTreeMap<String, HostVolume>,
    script: VecDeque<Answer>,
}

#[derive(Clone, Debug)]
enum Answer {
    Fail(Code),
    /// Executes the request and never responds.
    Hang,
}

/// A node that creates host volumes as the test specifies.
struct Host {
    row: Node,
    disk: Arc<Mutex<Disk>>,
    channel: Channel,
    registration: Option<Registration>,
    router: Arc<Router>,
}

async fn asked(disk: &Mutex<Disk>, call: &str, volume: HostVolume) -> Result<(), RpcError> {
    let answer = {
        let mut disk = disk.lock().unwrap();
        disk.calls.push(format!("{call} {}", volume.name));
        let answer = disk.script.pop_front();
        if !matches!(answer, Some(Answer::Fail(_))) {
            match call {
                "delete" => drop(disk.made.remove(volume.id.as_str())),
                _ => drop(disk.made.insert(volume.id.to_string(), volume)),
            }
        }
        answer
    };
    match answer {
        None => Ok(()),
        Some(Answer::Fail(code)) => Err(RpcError::new(code, "the plugin says no")),
        Some(Answer::Hang) => std::future::pending().await,
    }
}

impl Host {
    async fn join(cluster: &Cluster, name: &str) -> Self {
        Self::on(cluster, name, Arc::default()).await
    }

    async fn on(cluster: &Cluster, name: &str, disk: Arc<Mutex<Disk>>) -> Self {
        let mut row = make::node(name);
        row.attributes.insert("plugins.host_volume.mkdir.version".into(), "0.0.1".into());
        let (makes, registers, deletes) = (disk.clone(), disk.clone(), disk.clone());
        let router = Router::builder()
            .unary::<methods::HostVolumeCreate, _, _>(move |_, request| {
                let disk = makes.clone();
                async move {
                    let host_path = format!("/volumes/{}", request.volume.id);
                    asked(&disk, "create", request.volume).await?;
                    Ok(HostVolumeCreated { host_path, capacity_bytes: 7 })
                }
            })
            .unary::<methods::HostVolumeRegister, _, _>(move |_, request| {
                let disk = registers.clone();
                async move { asked(&disk, "register", request.volume).await.map(|()| Done::default()) }
            })
            .unary::<methods::HostVolumeDelete, _, _>(move |_, request| {
                let disk = deletes.clone();
                async move { asked(&disk, "delete", request.volume).await.map(|()| Done::default()) }
            })
            .build();
        let peer =
            PeerIdentity::Client { node_id: row.id.to_string(), secret: Secret::new(row.secret_id.expose()) };
        let channel = Channel::local(cluster.handle.rpc().build(), peer);
        let mut host = Self { row, disk, channel, registration: None, router };
        host.connect(cluster);
        host.report().await;
        host
    }

    fn connect(&mut self, cluster: &Cluster) {
        let server = PeerIdentity::server("s");
        let way = Channel::local(self.router.clone(), server);
        self.registration = Some(cluster.registry.register(self.row.id.to_string(), way));
    }

    /// Reports the volumes on its disk.
    async fn report(&self) {
        let mut node = self.row.clone();
        for volume in self.disk.lock().unwrap().made.values() {
            let info = HostVolumeInfo {
                name: volume.name.clone(),
                id: volume.id.to_string(),
                ..HostVolumeInfo::default()
            };
            node.host_volumes.insert(volume.name.clone(), info);
        }
        self.channel.call::<methods::NodeRegister>(NodeRegister { node }, None).await.unwrap();
    }

    fn next(&self, answer: Answer) {
        self.disk.lock().unwrap().script.push_back(answer);
    }

    fn calls(&self) -> Vec<String> {
        self.disk.lock().unwrap().calls.clone()
    }

    async fn over(&self, alloc: &Allocation) {
        let update = AllocUpdate {
            alloc_id: alloc.id.clone(),
            client_status: ClientStatus::Complete,
            ..Default::default()
        };
        let (node_id, secret) = (self.row.id.clone(), self.row.secret_id.clone());
        let request = AllocStatus { node_id, secret, updates: vec![update] };
        self.channel.call::<methods::AllocStatus>(request, None).await.unwrap();
    }
}

fn spec(name: &str) -> HostVolumeSpec {
    HostVolumeSpec { name: name.into(), ..HostVolumeSpec::default() }
}

async fn create(cluster: &Cluster, spec: HostVolumeSpec) -> Result<Arc<HostVolume>, ServerError> {
    cluster.handle.host_volumes().create(&"default".into(), spec).await
}

async fn delete(cluster: &Cluster, id: &HostVolumeId, force: bool) -> Result<u64, ServerError> {
    cluster.handle.host_volumes().delete(&"default".into(), id, force).await
}

fn row(cluster: &Cluster, id: &HostVolumeId) -> Option<Arc<HostVolume>> {
    cluster.root().host_volume(id).cloned()
}

fn using(id: &str, sticky: bool) -> Job {
    let mut job = make::job(id);
    let request =
        VolumeRequest { kind: VolumeType::Host, source: "data".into(), sticky, ..VolumeRequest::default() };
    job.task_groups[0].volumes.insert("d".into(), request);
    job
}

/// Returns a caller with all rights in the namespace, and with no right to any host volume by its name.
fn tenant() -> Arc<Caller> {
    let rules = caravan_server::parse_rules("namespace \"default\" { policy = \"write\" }").unwrap();
    Arc::new(Caller { acl: Arc::new(Acl::compile([&rules])), ..Caller::nobody() })
}

/// A job that was allowed to use a volume of its namespace does not get the configured volume of the same name
/// instead.
#[tokio::test]
async fn how_a_volume_was_allowed_holds_for_as_long_as_the_job() {
    let cluster = Setup::memory().start().await;
    let submit = async |job: Job, caller: Option<Arc<Caller>>| {
        cluster
            .handle
            .jobs()
            .register(JobSubmission { draft: job.into(), caller, ..JobSubmission::default() })
            .await
    };
    // A node with a configured volume, and a node on which users may create volumes.
    let mut fixed = make::node("fixed");
    let info = HostVolumeInfo { name: "data".into(), path: "/srv".into(), ..HostVolumeInfo::default() };
    fixed.host_volumes.insert("data".into(), info);
    let _fixed = cluster.join(fixed, &Plugin::default()).await;
    let host = Host::join(&cluster, "n").await;
    let error = submit(using("early", false), Some(tenant())).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Forbidden, "{error}");
    // No volume of the name can be created on the node whose configuration has the name.
    let on_fixed = HostVolumeSpec { node_id: "fixed-node".into(), ..spec("data") };
    create(&cluster, on_fixed).await.unwrap_err();
    let made = create(&cluster, spec("data")).await.unwrap();
    assert_eq!(made.node_id, "n-node");
    host.report().await;
    submit(using("web", false), Some(tenant())).await.unwrap();
    assert_eq!(cluster.placed("web").await.node_id, "n-node");
    let kept = cluster.root().job(&make::job_key("web")).unwrap().clone();
    assert_eq!(kept.task_groups[0].volumes["d"].host_access, HostAccess::Created);
    // Without its volume the job waits, although a node has another volume of the name.
    cluster.stop_job("web").await;
    let alloc = cluster.root().allocs_by_job(&make::job_key("web")).next().unwrap().clone();
    host.over(&alloc).await;
    delete(&cluster, &made.id, false).await.unwrap();
    host.report().await;
    submit(Job { priority: 51, ..(*kept).clone() }, None).await.unwrap();
    cluster.blocked("web").await;
    let allocs = || cluster.root().allocs_by_job(&make::job_key("web")).count();
    assert_eq!(allocs(), 1);
    // A caller who may use volumes by their names registers the same job.
    let same = Job { priority: 51, ..using("web", false) };
    submit(same, Some(Arc::new(Caller::unrestricted()))).await.unwrap();
    until("a placement with the volume of the configuration", || (allocs() == 2).then_some(())).await;
    cluster.stop().await;
}

/// docs/design/rough-edges.md, 38: without a plugin, the built-in plugin is used.
#[tokio::test]
async fn a_volume_is_made_reported_brought_up_to_date_and_deleted() {
    let cluster = Setup::memory().start().await;
    let host = Host::join(&cluster, "n").await;
    let made = create(&cluster, spec("data")).await.unwrap();
    assert_eq!((made.plugin_id.as_str(), made.node_id.as_str()), ("mkdir", "n-node"));
    assert_eq!(
        (made.state, made.intent, made.capacity_bytes),
        (HostVolumeState::Pending, HostVolumeIntent::None, 7)
    );
    assert_eq!(made.host_path, format!("/volumes/{}", made.id));
    assert!(made.create_time > UnixNanos(0) && made.modify_index > made.create_index);
    host.report().await;
    assert_eq!(row(&cluster, &made.id).unwrap().state, HostVolumeState::Ready);

    let again = HostVolumeSpec { id: made.id.to_string(), requested_capacity_max_bytes: 50, ..spec("data") };
    let updated = create(&cluster, again.clone()).await.unwrap();
    assert_eq!((updated.requested_capacity_max_bytes, updated.state), (50, HostVolumeState::Ready));
    // A plugin that refuses an update leaves the volume unchanged.
    host.next(Answer::Fail(Code::Conflict));
    let refused = HostVolumeSpec { requested_capacity_max_bytes: 99, ..again };
    assert!(create(&cluster, refused).await.unwrap_err().to_string().ends_with("the plugin says no"));
    let kept = row(&cluster, &made.id).unwrap();
    assert_eq!((kept.requested_capacity_max_bytes, kept.intent), (50, HostVolumeIntent::None));

    // A plugin that refuses to delete leaves the volume unchanged too.
    host.next(Answer::Fail(Code::Conflict));
    assert!(delete(&cluster, &made.id, false).await.unwrap_err().to_string().ends_with("the plugin says no"));
    assert_eq!(row(&cluster, &made.id).unwrap().intent, HostVolumeIntent::None);
    delete(&cluster, &made.id, false).await.unwrap();
    assert!(row(&cluster, &made.id).is_none());
    assert_eq!(host.calls(), ["create data", "create data", "create data", "delete data", "delete data"]);
    cluster.stop().await;
}

#[tokio::test]
async fn a_refused_creation_leaves_nothing_and_an_unclear_one_is_taken_up() {
    let cluster = Setup::memory().start().await;
    let host = Host::join(&cluster, "n").await;
    host.next(Answer::Fail(Code::Conflict));
    let error = create(&cluster, spec("data")).await.unwrap_err();
    assert_eq!(error.to_string(), "HostVolume.Create error: the plugin says no");
    assert_eq!(cluster.root().host_volumes().count(), 0);

    host.next(Answer::Fail(Code::Unavailable));
    let error = create(&cluster, spec("data")).await.unwrap_err();
    assert!(error.to_string().contains("is tried again; delete it to give up"), "{error}");
    until("the creation to be done", || {
        let root = cluster.root();
        let row = root.host_volumes().next()?;
        (row.intent == HostVolumeIntent::None && row.last_error.is_empty()).then_some(())
    })
    .await;
    assert_eq!((cluster.root().host_volumes().count(), host.disk.lock().unwrap().made.len()), (1, 1));
    cluster.stop().await;
}

/// A server ends between intent and outcome. The next server continues with the same volume.
#[tokio::test]
async fn what_a_server_intended_the_next_one_carries_out() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Setup::dir(dir.path()).start().await;
    let host = Host::join(&cluster, "n").await;
    let kept = create(&cluster, spec("other")).await.unwrap();
    for _ in 0..2 {
        host.next(Answer::Hang);
    }
    let handle = cluster.handle.clone();
    let (making, deleting) = (handle.clone(), handle.clone());
    let doomed = kept.id.clone();
    let asked =
        tokio::spawn(async move { making.host_volumes().create(&"default".into(), spec("data")).await });
    until("both calls to be under way", || (host.calls().len() == 2).then_some(())).await;
    let gone =
        tokio::spawn(async move { deleting.host_volumes().delete(&"default".into(), &doomed, false).await });
    until("both calls to be under way", || (host.calls().len() == 3).then_some(())).await;
    drop(handle);
    cluster.stop().await;
    assert!(soon("the command", asked).await.unwrap().is_err());
    assert!(soon("the command", gone).await.unwrap().is_err());

    let cluster = Setup::dir(dir.path()).start().await;
    let intents: Vec<_> = cluster.root().host_volumes().map(|row| (row.name.clone(), row.intent)).collect();
    assert_eq!(intents.len(), 2, "{intents:?}");
    let host = Host::on(&cluster, "n", host.disk).await;
    until("everything to be done", || {
        let root = cluster.root();
        let done = root.host_volumes().all(|row| row.intent == HostVolumeIntent::None);
        (done && root.host_volumes().count() == 1).then_some(())
    })
    .await;
    let root = cluster.root();
    let row = root.host_volumes().next().unwrap();
    assert_eq!((row.name.as_str(), row.host_path.is_empty()), ("data", false));
    let made: Vec<String> = host.disk.lock().unwrap().made.keys().cloned().collect();
    assert_eq!(made, [row.id.to_string()]);
    cluster.stop().await;
}

/// docs/design/rough-edges.md, 40: concurrent creations of one name never choose one node.
#[tokio::test]
async fn concurrent_creations_of_a_name_go_to_different_nodes() {
    let cluster = Setup::memory().start().await;
    let hosts = [Host::join(&cluster, "a").await, Host::join(&cluster, "b").await];
    let all = (0..3).map(|_| create(&cluster, spec("data")));
    let results = futures::future::join_all(all).await;
    let mut nodes: Vec<_> = results.iter().flatten().map(|row| row.node_id.to_string()).collect();
    nodes.sort();
    assert_eq!(nodes, ["a-node", "b-node"]);
    let refused = results.into_iter().find_map(Result::err).unwrap();
    assert!(refused.to_string().contains("2 nodes had existing volume"), "{refused}");
    assert!(hosts.iter().all(|host| host.calls() == ["create data"]));
    cluster.stop().await;
}

#[tokio::test]
async fn what_is_used_or_held_stays_and_a_node_that_is_gone_needs_force() {
    let cluster = Setup::memory().start().await;
    let mut host = Host::join(&cluster, "n").await;
    let id = create(&cluster, spec("data")).await.unwrap().id.clone();
    cluster.run_job(using("web", true)).await;
    let waiting = cluster.blocked("web").await;
    assert_eq!(waiting.missing_non_node_resources, ["host-volume:default:data"]);
    host.report().await;
    let alloc = cluster.placed("web").await;
    let error = delete(&cluster, &id, false).await.unwrap_err();
    assert_eq!(error.to_string(), format!("volume {id} in use by allocations: [{}]", alloc.id));
    let again = HostVolumeSpec { id: id.to_string(), ..spec("data") };
    let error = create(&cluster, again).await.unwrap_err();
    assert!(error.to_string().ends_with(&format!("claimed by allocs ({})", alloc.id)), "{error}");

    // docs/design/rough-edges.md, 39: the hold has one id for all callers, and the replacement of its allocation
    // keeps it.
    let hold = cluster.root().host_claims().next().unwrap().clone();
    assert_eq!((hold.id.len(), &hold.alloc_id), (36, &alloc.id));
    cluster.stop_job("web").await;
    host.over(&alloc).await;
    let error = delete(&cluster, &id, false).await.unwrap_err();
    assert!(error.to_string().contains("is claimed by task groups: [web/g"), "{error}");
    cluster.run_job(using("web", true)).await;
    let next = cluster.placed("web").await;
    let held = cluster.root().host_claim(&hold.id).unwrap().clone();
    assert_eq!((&held.alloc_id, held.create_index), (&next.id, hold.create_index));
    cluster.stop_job("web").await;
    host.over(&next).await;
    cluster.handle.host_volumes().delete_claim(&hold.id).await.unwrap();
    let error = cluster.handle.host_volumes().delete_claim(&hold.id).await.unwrap_err();
    assert_eq!(error.to_string(), "task group volume claim does not exist");

    // The row of the node is deleted, so the deletion does not wait.
    host.registration = None;
    cluster.handle.nodes().purge(&host.row.id).await.unwrap();
    let error = delete(&cluster, &id, false).await.unwrap_err();
    assert_eq!(error.to_string(), "volume cannot be removed from unknown node without force=true");
    delete(&cluster, &id, true).await.unwrap();
    assert!(row(&cluster, &id).is_none() && !host.calls().iter().any(|call| call.starts_with("delete")));
    let error = delete(&cluster, &id, false).await.unwrap_err();
    assert_eq!(error.to_string(), format!("no such volume: {id}"));
    cluster.stop().await;
}

/// A node that is ready connects again soon. Until then, its directory is not lost and the request does not fail.
#[tokio::test]
async fn the_connection_of_a_node_is_waited_for() {
    let cluster = Setup::memory().start().await;
    let mut host = Host::join(&cluster, "n").await;
    host.registration = None;
    let connecting = async {
        until("the intent", || cluster.root().host_volumes().next().map(|_| ())).await;
        host.connect(&cluster);
    };
    let create = async { cluster.handle.host_volumes().create(&"default".into(), spec("data")).await };
    let (made, ()) = tokio::join!(create, connecting);
    let id = made.unwrap().id.clone();
    host.registration = None;
    let connecting = async {
        // The deletion has looked for a connection before this point.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        host.connect(&cluster);
    };
    let (deleted, ()) = tokio::join!(biased; delete(&cluster, &id, true), connecting);
    deleted.unwrap();
    assert_eq!(host.calls(), ["create data", "delete data"]);
    cluster.stop().await;
}

#[tokio::test]
async fn a_volume_is_in_a_namespace_and_a_pool_that_there_are() {
    let cluster = Setup::memory().start().await;
    let host = Host::join(&cluster, "n").await;
    let (team, admin) = ("team".into(), cluster.handle.admin());
    let create = |pool: &str| {
        let spec = HostVolumeSpec { node_pool: pool.to_owned(), namespace: String::new(), ..spec("data") };
        cluster.handle.host_volumes().create(&team, spec)
    };
    let error = create("").await.unwrap_err();
    assert_eq!(error.to_string(), "no such namespace \"team\"");
    let namespace = NamespaceSpec { name: team.clone(), ..NamespaceSpec::default() };
    admin.write_namespace(namespace).await.unwrap();
    let error = create("gold").await.unwrap_err();
    assert!(error.to_string().ends_with("node pool \"gold\" does not exist"), "{error}");
    admin.write_node_pool(NodePool { name: "gold".into(), ..NodePool::default() }).await.unwrap();
    let error = create("gold").await.unwrap_err();
    assert!(error.to_string().starts_with("could not place volume"), "{error}");
    let made = create("").await.unwrap();
    assert_eq!(made.namespace, team);
    assert_eq!(host.calls(), ["create data"]);
    cluster.stop().await;
}

#[tokio::test]
async fn a_directory_is_registered_where_the_user_says() {
    let cluster = Setup::memory().start().await;
    let host = Host::join(&cluster, "n").await;
    let namespace = "default".into();
    let register = |spec| cluster.handle.host_volumes().register(&namespace, spec);
    let error = register(spec("there")).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot register volume: node ID is required");
    let at = HostVolumeSpec { node_id: "n-node".into(), ..spec("there") };
    let error = register(at.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot register volume: host path is required");
    let at = HostVolumeSpec { host_path: "/srv/there".into(), ..at };
    let made = register(at.clone()).await.unwrap();
    assert_eq!((made.plugin_id.as_str(), made.host_path.as_str()), ("", "/srv/there"));
    let error = register(at).await.unwrap_err();
    assert_eq!(error.to_string(), "volume name already exists on this node");
    assert_eq!(host.calls(), ["register there"]);
    cluster.stop().await;
}
