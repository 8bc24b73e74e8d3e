//! Servers in the test's process, a client connected to them, and small builders.

use async_trait::async_trait;
use caravan_client::{Answers, Client, ClientConfig, Handle, Servers};
use caravan_drivers::{
    DevicePlugin, Driver, ExecDriver, ExecOptions, ForkServer, MockDriver, RawExecDriver, RawExecOptions,
    ShimCommand,
};
use caravan_messages::{
    AllocDelta, AllocStatus, ClaimGrant, ClaimProgress, ClaimReport, ClaimReportStep, ClaimVolume, DiskChunk,
    Done, FetchDisk, GiveDisk, NodeContact, NodeEvents, NodeHeartbeat, NodeRegister, ServiceSync,
    SignIdentities, SignNode, SignedIdentities, SignedNode, VolumeStats, WatchAllocs,
};
use caravan_rpc::{Channel, Code, PeerIdentity, Router, RpcError, methods};
use caravan_types::acl::Secret;
use caravan_types::alloc::{AllocUpdate, Allocation, ClientStatus, DesiredStatus, TaskState};
use caravan_types::identity::Claims;
use caravan_types::job::{Job, JobType, RestartMode, RestartPolicy, Task, TaskGroup};
use caravan_types::lookup::{Found, Lookup, LookupsFound, WatchLookups};
use caravan_types::node::{Node, NodeEvent, NodeStatus};
use caravan_types::service::ServiceRegistration;
use caravan_types::volume::{ClaimId, VolumeUsage};
use caravan_types::{AllocId, Nanos, VolumeKey};
use futures::StreamExt;
use futures::stream::unfold;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The timeout of every wait; only failures take that long.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct World {
    node: Option<Node>,
    allocs: BTreeMap<AllocId, Arc<Allocation>>,
    updates: BTreeMap<AllocId, AllocUpdate>,
    claims: BTreeMap<ClaimId, ClaimProgress>,
    reports: Vec<(ClaimId, ClaimReportStep)>,
    events: Vec<NodeEvent>,
    services: BTreeMap<AllocId, Vec<ServiceRegistration>>,
    usage: Vec<(VolumeKey, VolumeUsage)>,
    lookups: BTreeMap<Lookup, Found>,
    index: u64,
    down: bool,
    lease: Option<Duration>,
    /// The channel to the other node.
    neighbour: Option<Channel>,
}

/// Servers that return what the test sets.
#[derive(Debug)]
pub struct TestServers {
    world: Mutex<World>,
    changes: watch::Sender<u64>,
}

impl TestServers {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { world: Mutex::default(), changes: watch::Sender::new(0) })
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let out = change(&mut self.world());
        self.changes.send_modify(|v| *v += 1);
        out
    }

    pub fn run(&self, mut alloc: Allocation) {
        self.change(|w| {
            w.index += 1;
            alloc.alloc_modify_index = w.index;
            w.allocs.insert(alloc.id.clone(), Arc::new(alloc));
        });
    }

    pub fn stop(&self, id: &str) {
        self.change(|w| {
            w.index += 1;
            let mut alloc = (*w.allocs[&AllocId::new(id)]).clone();
            alloc.desired_status = DesiredStatus::Stop;
            alloc.alloc_modify_index = w.index;
            w.allocs.insert(alloc.id.clone(), Arc::new(alloc));
        });
    }

    pub fn remove(&self, id: &str) {
        self.change(|w| w.allocs.remove(&AllocId::new(id)));
    }

    pub fn say(&self, claim: ClaimId, progress: ClaimProgress) {
        self.change(|w| w.claims.insert(claim, progress));
    }

    pub fn grant(&self, grant: ClaimGrant) {
        self.say(grant.claim.id.clone(), ClaimProgress::Attached(Box::new(grant)));
    }

    /// Sets the duration of all later leases.
    pub fn set_lease(&self, ttl: Duration) {
        self.change(|w| w.lease = Some(ttl));
    }

    fn contact(&self) -> NodeContact {
        let lease = self.world().lease.unwrap_or(Duration::from_secs(30));
        NodeContact {
            heartbeat_ttl: Nanos::from_secs(10),
            lease_ttl: Nanos::from_std(lease),
            status: NodeStatus::Ready,
            ..Default::default()
        }
    }

    /// Connects another node, on which predecessors ran.
    pub fn set_neighbour(&self, node: &Handle) {
        let router = node.routes(Router::builder()).build();
        let channel = Channel::local(router, PeerIdentity::server("s"));
        self.change(|w| w.neighbour = Some(channel));
    }

    pub fn set_down(&self, down: bool) {
        self.change(|w| w.down = down);
    }

    pub fn reports(&self, alloc: &str) -> Vec<ClaimReportStep> {
        let world = self.world();
        world.reports.iter().filter(|(c, _)| c.alloc == *alloc).map(|(_, s)| s.clone()).collect()
    }

    /// Waits until a condition holds.
    async fn wait<T>(&self, what: &str, look: impl Fn(&World) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        let waiting = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = look(&self.world()) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(TIMEOUT, waiting).await {
            Ok(found) => found,
            Err(_) => panic!("{what}: {:#?}", self.world()),
        }
    }

    pub async fn node(&self, what: &str, is: impl Fn(&Node) -> bool) -> Node {
        self.wait(what, |w| w.node.clone().filter(|n| is(n))).await
    }

    pub async fn status(&self, id: &str, status: ClientStatus) -> AllocUpdate {
        let id = AllocId::new(id);
        let found = |w: &World| w.updates.get(&id).filter(|u| u.client_status == status).cloned();
        self.wait(&format!("{id} is to be {}", status.as_str()), found).await
    }

    pub async fn task(&self, id: &str, what: &str, is: impl Fn(&TaskState) -> bool) -> TaskState {
        let id = AllocId::new(id);
        let found = |w: &World| w.updates.get(&id)?.task_states.values().find(|t| is(t)).cloned();
        self.wait(&format!("{id}: {what}"), found).await
    }

    /// Waits for the reported services of an allocation.
    pub async fn services(
        &self,
        alloc: &str,
        what: &str,
        is: impl Fn(&[ServiceRegistration]) -> bool,
    ) -> Vec<ServiceRegistration> {
        let id = AllocId::new(alloc);
        self.wait(what, |w| w.services.get(&id).filter(|rows| is(rows)).cloned()).await
    }

    pub async fn reported(&self, alloc: &str, is: impl Fn(&ClaimReportStep) -> bool) {
        let found = |w: &World| w.reports.iter().any(|(c, s)| c.alloc == *alloc && is(s)).then_some(());
        self.wait(&format!("a report of {alloc}"), found).await;
    }

    /// Waits for an event of the node.
    pub async fn node_event(&self, message: &str) -> NodeEvent {
        let found = |w: &World| w.events.iter().find(|e| e.message == message).cloned();
        self.wait(&format!("the node says \"{message}\""), found).await
    }

    /// Waits for reported usage of volumes.
    pub async fn usage(&self, what: &str, is: impl Fn(&[(VolumeKey, VolumeUsage)]) -> bool) {
        self.wait(what, |w| is(&w.usage).then_some(())).await;
    }

    /// Returns the number of requests so far.
    pub fn count(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits until this number of requests was received, or the allocation runs.
    pub async fn counted(&self, count: u64, alloc: &str) {
        let id = AllocId::new(alloc);
        let runs = |w: &World| w.updates.get(&id).is_some_and(|u| u.client_status == ClientStatus::Running);
        self.wait("something happens", |w| (self.count() >= count || runs(w)).then_some(())).await;
    }

    fn up(&self) -> Result<(), RpcError> {
        if self.world().down { Err(RpcError::new(Code::Unavailable, "no servers")) } else { Ok(()) }
    }
}

#[async_trait]
impl Servers for TestServers {
    async fn register(&self, request: NodeRegister) -> Result<NodeContact, RpcError> {
        self.up()?;
        self.change(|w| w.node = Some(request.node));
        Ok(self.contact())
    }
    async fn heartbeat(&self, _: NodeHeartbeat) -> Result<NodeContact, RpcError> {
        self.up()?;
        Ok(self.contact())
    }
    async fn node_events(&self, request: NodeEvents) -> Result<Done, RpcError> {
        self.up()?;
        self.change(|w| w.events.extend(request.events));
        Ok(Done::default())
    }
    async fn watch_allocs(&self, _: WatchAllocs) -> Answers<AllocDelta> {
        // Every message contains the whole state: the client must handle that as well as small changes.
        let all = |w: &World| AllocDelta {
            index: w.index,
            full: true,
            allocs: w.allocs.values().cloned().collect(),
            removed: Vec::new(),
        };
        let mut seen: Option<AllocDelta> = None;
        let mut changes = self.changes.subscribe();
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut look = {
            let delta = all(&self.world());
            seen.get_or_insert_with(|| delta.clone());
            let _ = sender.send(delta);
            move |w: &World| {
                let delta = all(w);
                let fresh = seen.as_ref() != Some(&delta);
                seen = Some(delta.clone());
                fresh.then_some(delta)
            }
        };
        let world = WorldRef::new(self);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(servers) = world.upgrade() else { return };
                if let Some(delta) = look(&servers.world())
                    && sender.send(delta).is_err()
                {
                    return;
                }
            }
        });
        unfold(receiver, |mut r| async move { r.recv().await.map(|d| (Ok(d), r)) }).boxed()
    }
    async fn alloc_status(&self, request: AllocStatus) -> Result<Done, RpcError> {
        self.up()?;
        self.change(|w| {
            for update in request.updates {
                w.updates.insert(update.alloc_id.clone(), update);
            }
        });
        Ok(Done::default())
    }
    async fn claim_volume(&self, request: ClaimVolume) -> Answers<ClaimProgress> {
        let (changes, world) = (self.changes.subscribe(), WorldRef::new(self));
        let state = (changes, world, request.claim, None::<ClaimProgress>);
        unfold(state, |(mut changes, world, claim, seen)| async move {
            loop {
                changes.borrow_and_update();
                let now = world.upgrade()?.world().claims.get(&claim).cloned();
                if let Some(progress) = now.filter(|p| seen.as_ref() != Some(p)) {
                    return Some((Ok(progress.clone()), (changes, world, claim, Some(progress))));
                }
                changes.changed().await.ok()?;
            }
        })
        .boxed()
    }
    async fn claim_report(&self, request: ClaimReport) -> Result<Done, RpcError> {
        self.up()?;
        self.change(|w| w.reports.push((request.claim, request.step)));
        Ok(Done::default())
    }
    async fn watch_lookups(&self, request: WatchLookups) -> Answers<LookupsFound> {
        if let Err(error) = self.up() {
            return futures::stream::iter([Err(error)]).boxed();
        }
        // Returns the current values; system tests cover later changes.
        let world = self.world();
        let found = request.lookups.into_iter().filter_map(|lookup| {
            let found = world.lookups.get(&lookup).cloned()?;
            Some((lookup, found))
        });
        let reported = LookupsFound { found: found.collect() };
        futures::stream::iter([Ok(reported)]).chain(futures::stream::pending()).boxed()
    }
    async fn sign_identities(&self, request: SignIdentities) -> Result<SignedIdentities, RpcError> {
        self.up()?;
        let token = |(task, name): &(String, String)| Secret::new(format!("{task}.{name}"));
        Ok(SignedIdentities { tokens: request.identities.iter().map(token).collect() })
    }
    async fn sign_node(&self, request: SignNode) -> Result<SignedNode, RpcError> {
        self.up()?;
        let claims = Claims { node_id: request.node_id.to_string(), ..Claims::default() };
        Ok(SignedNode { token: Secret::new("node"), claims })
    }
    async fn fetch_disk(&self, request: FetchDisk) -> Answers<DiskChunk> {
        let world = self.world();
        let previous = world.allocs[&request.alloc].previous_allocation.clone();
        match &world.neighbour {
            Some(node) => node.stream::<methods::GiveDisk>(GiveDisk { alloc: previous }).boxed(),
            None => futures::stream::iter([Err(RpcError::unavailable("the node is gone"))]).boxed(),
        }
    }
    async fn volume_stats(&self, request: VolumeStats) -> Result<Done, RpcError> {
        self.up()?;
        self.change(|w| w.usage = request.usage);
        Ok(Done::default())
    }
    async fn sync_services(&self, request: ServiceSync) -> Result<Done, RpcError> {
        self.up()?;
        self.change(|w| drop(w.services.insert(request.alloc_id, request.services)));
        Ok(Done::default())
    }
}

/// A weak reference to the servers, for streams that outlive the call.
struct WorldRef(std::sync::Weak<TestServers>);

static ALL: Mutex<Vec<std::sync::Weak<TestServers>>> = Mutex::new(Vec::new());

impl WorldRef {
    fn new(servers: &TestServers) -> Self {
        let all = ALL.lock().unwrap();
        let found = all.iter().find(|w| w.as_ptr() == std::ptr::from_ref(servers));
        Self(found.expect("the servers were made known").clone())
    }
    fn upgrade(&self) -> Option<Arc<TestServers>> {
        self.0.upgrade()
    }
}

/// A client agent with a data directory that outlives it.
pub struct Agent {
    pub servers: Arc<TestServers>,
    pub handle: Handle,
    pub dir: Arc<tempfile::TempDir>,
    dev: bool,
    devices: Vec<Arc<dyn DevicePlugin>>,
    cancel: CancellationToken,
    running: JoinHandle<()>,
}

pub fn helper() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let helper = exe.parent().and_then(Path::parent).unwrap().join("examples/helper");
    assert!(
        helper.exists(),
        "{} is missing: build it with `cargo build -p caravan-client --examples`",
        helper.display()
    );
    helper
}

fn drivers() -> Vec<Arc<dyn Driver>> {
    let shims = ForkServer::new(ShimCommand { program: helper(), args: vec!["shim".to_owned()] });
    let raw = RawExecOptions { enabled: true, ..Default::default() };
    let exec = ExecOptions { allow_privileged_plugins: true, ..Default::default() };
    vec![
        Arc::new(RawExecDriver::new(raw, shims.clone())),
        Arc::new(ExecDriver::new(exec, shims)),
        Arc::new(MockDriver::new()),
    ]
}

impl Agent {
    pub fn start() -> Self {
        Self::with_devices(Vec::new())
    }
    pub fn start_dev() -> Self {
        Self::begin(TestServers::new(), Arc::new(short_dir()), true, Vec::new())
    }

    pub fn with_devices(devices: Vec<Arc<dyn DevicePlugin>>) -> Self {
        Self::begin(TestServers::new(), Arc::new(short_dir()), false, devices)
    }

    fn begin(
        servers: Arc<TestServers>,
        dir: Arc<tempfile::TempDir>,
        dev: bool,
        devices: Vec<Arc<dyn DevicePlugin>>,
    ) -> Self {
        ALL.lock().unwrap().push(Arc::downgrade(&servers));
        let mut config = ClientConfig::new(dir.path(), "test-node");
        config.dev = dev;
        config.devices.clone_from(&devices);
        // Tests run in parallel, and their allocations have the same names.
        let unique = dir.path().file_name().unwrap().to_string_lossy().into_owned();
        config.cgroup_parent = format!("/caravan-test-{unique}");
        let as_servers: Arc<dyn Servers> = Arc::clone(&servers) as Arc<dyn Servers>;
        let (handle, service) = Client::open(config).unwrap().connect(as_servers, drivers()).unwrap();
        let cancel = CancellationToken::new();
        let running = tokio::spawn(service.run(cancel.clone()));
        Self { servers, handle, dir, dev, devices, cancel, running }
    }

    /// Starts another agent on the directories of an earlier one.
    pub fn resume(servers: Arc<TestServers>, dir: Arc<tempfile::TempDir>) -> Self {
        Self::begin(servers, dir, false, Vec::new())
    }

    /// Stops the agent; tasks keep running unless it is a development agent.
    pub async fn end(self) -> (Arc<TestServers>, Arc<tempfile::TempDir>) {
        self.cancel.cancel();
        let Self { servers, handle, dir, running, .. } = self;
        tokio::time::timeout(TIMEOUT, running).await.expect("the client ends").unwrap();
        drop(handle);
        (servers, dir)
    }

    /// Stops the agent and starts another one on the same directories.
    pub async fn restart(self) -> Self {
        let (dev, devices) = (self.dev, self.devices.clone());
        let (servers, dir) = self.end().await;
        Self::begin(servers, dir, dev, devices)
    }

    /// Stops and removes all allocations.
    pub async fn clean(self) {
        let ids = self.handle.alloc_ids();
        for id in &ids {
            self.servers.remove(id.as_str());
        }
        poll("every allocation is removed", || self.handle.alloc_ids().is_empty()).await;
        let (_, dir) = self.end().await;
        remove_cgroups(dir.path());
        let table = caravan_sys::mountinfo::MountTable::read().unwrap();
        for mount in table.under(dir.path()).rev() {
            let target = &mount.target;
            assert!(
                *target == dir.path().join("client") || *target == dir.path().join("alloc"),
                "{target:?} stays"
            );
            caravan_sys::mount::unmount(target, caravan_sys::mount::Unmount::Lazy).unwrap();
        }
    }
}

/// Removes the control group that was the parent of a test's tasks.
pub fn remove_cgroups(dir: &Path) {
    let name = format!("caravan-test-{}", dir.file_name().unwrap().to_string_lossy());
    if let Ok(Some(hierarchy)) = caravan_sys::cgroup::Hierarchy::detect() {
        // A leftover does no harm.
        let _ = caravan_sys::cgroup::SharedCpus::open(&hierarchy, Path::new(&name)).and_then(|s| s.remove());
        let _ = caravan_sys::cgroup::Cgroup::at(&hierarchy, Path::new(&name)).and_then(|g| g.remove());
    }
}

/// Returns a directory whose path is short enough for sockets.
fn short_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("cc").tempdir_in("/tmp").unwrap()
}

/// Waits until a driver returns the usage of a task.
pub async fn usage(agent: &Agent, alloc: &str, task: &str) -> caravan_drivers::Usage {
    let asking = async {
        loop {
            if let Ok(usage) = agent.handle.stats(&alloc.into(), task).await {
                return usage;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.expect("the task runs")
}

pub async fn poll(what: &str, is: impl Fn() -> bool) {
    let polling = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, polling).await.is_ok(), "{what}");
}

pub fn task(name: &str, driver: &str, config: serde_json::Value) -> Task {
    let config = config.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut task = Task { name: name.into(), driver: driver.into(), config, ..Default::default() };
    task.kill_timeout = Nanos::from_secs(5);
    task.resources.cpu = 100;
    task.resources.memory_mb = 64;
    task
}

pub fn shell(name: &str, driver: &str, script: &str) -> Task {
    task(name, driver, json!({"command": "/bin/sh", "args": ["-c", script]}))
}

pub fn alloc(id: &str, kind: JobType, tasks: Vec<Task>) -> Allocation {
    let policy = RestartPolicy {
        attempts: 1,
        interval: Nanos::from_secs(600),
        delay: Nanos::from_millis(10),
        mode: RestartMode::Fail,
        render_templates: false,
    };
    let group =
        TaskGroup { name: "g".into(), tasks, restart_policy: Some(policy), count: 1, ..Default::default() };
    let job = Job {
        id: "job".into(),
        name: "job".into(),
        namespace: "default".into(),
        kind,
        task_groups: vec![group],
        ..Default::default()
    };
    Allocation {
        id: id.into(),
        name: "job.g[0]".into(),
        namespace: "default".into(),
        job_id: "job".into(),
        task_group: "g".into(),
        job: Some(Arc::new(job)),
        ..Default::default()
    }
}

pub fn kinds(task: &TaskState) -> Vec<&str> {
    task.events.iter().map(|e| e.kind.as_str()).collect()
}
