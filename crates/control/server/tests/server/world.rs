//! The servers and clients of a test.

use crate::make;
use crate::plugin::Plugin;
use caravan_consensus::{Config as LogConfig, ServerId};
use caravan_messages::{
    AllocDelta, AllocStatus, ClaimGrant, ClaimProgress, ClaimReport, ClaimReportStep, ClaimVolume, Done,
    NodeContact, NodeDetach, NodeHeartbeat, NodeRegister, VolumeStats, WatchAllocs,
};
use caravan_rpc::{Channel, PeerIdentity, Registration, ReverseRegistry, Router, RpcError, Secret, methods};
use caravan_server::{
    Handle, HeartbeatConfig, JobPlanned, JobRegistered, JobSubmission, Preserve, ServerConfig, ServerError,
    Service, Workers,
};
use caravan_types::alloc::{AllocUpdate, Allocation, ClientStatus, TaskEvent, TaskRunState, TaskState};
use caravan_types::eval::{EvalStatus, Evaluation};
use caravan_types::job::Job;
use caravan_types::node::{Node, NodeStatus};
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, MountProof, Volume, VolumeRequestBody, VolumeUsage};
use caravan_types::{Nanos, NodeId, VolumeKey};
use caravan_volumes::lease::Lease;
use futures::{Stream, StreamExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The longest wait for any event, which only a failing test reaches.
const DEADLINE: Duration = Duration::from_secs(30);

/// Polls until `look` returns a value, and returns it.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let poll = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    match tokio::time::timeout(DEADLINE, poll).await {
        Ok(found) => found,
        Err(_) => panic!("it did not come to this: {what}"),
    }
}

/// Waits for a future, at most until [`DEADLINE`].
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("it did not end: {what}"),
    }
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Setup {
    pub log: LogConfig,
    pub heartbeat: HeartbeatConfig,
    pub lease: Lease,
    pub workers: usize,
    pub keyring: Option<PathBuf>,
    pub acl: caravan_server::AclConfig,
}

impl Setup {
    pub fn memory() -> Self {
        Self {
            log: LogConfig::memory(ServerId(1)),
            heartbeat: HeartbeatConfig::default(),
            lease: Lease::default(),
            workers: 2,
            keyring: None,
            acl: Default::default(),
        }
    }
    pub fn dir(dir: &Path) -> Self {
        Self {
            log: LogConfig::dir(ServerId(1), "127.0.0.1:4647", dir),
            keyring: Some(dir.join("keyring")),
            ..Self::memory()
        }
    }
    /// Shortens the waits: a node counts as down after one to two seconds, and its volumes are free half a second
    /// later.
    pub fn impatient(self) -> Self {
        let heartbeat = HeartbeatConfig {
            min_ttl: Duration::from_millis(600),
            grace: Duration::from_millis(600),
            failover: Duration::from_secs(2),
        };
        let lease = Lease {
            ttl: Nanos::from_millis(1500),
            kill_grace: Nanos::from_millis(300),
            margin: Nanos::from_millis(200),
        };
        Self { heartbeat, lease, ..self }
    }
    pub async fn start(self) -> Cluster {
        let config = ServerConfig {
            cluster: caravan_server::ClusterConfig::alone("s"),
            region: "global".into(),
            log: self.log,
            addresses: vec!["127.0.0.1:4647".into()],
            workers: Workers::all(self.workers),
            heartbeat: self.heartbeat,
            lease: self.lease,
            volume_calls_per_plugin: caravan_server::CALLS_PER_PLUGIN,
            acl: self.acl,
            issuer: None,
            gc: Default::default(),
            rejections: Default::default(),
            keyring: self.keyring,
        };
        let registry = ReverseRegistry::default();
        let (handle, service) = Service::start(config, registry.clone()).await.unwrap();
        let cancel = CancellationToken::new();
        let run = tokio::spawn(service.run(cancel.clone()));
        Cluster { router: handle.rpc().build(), handle, registry, cancel, run }
    }
}

/// A running server, as the tests use it.
pub struct Cluster {
    pub handle: Handle,
    pub registry: ReverseRegistry,
    router: Arc<Router>,
    cancel: CancellationToken,
    run: JoinHandle<Result<(), ServerError>>,
}

impl Cluster {
    /// Ends the server. Unfinished work is not completed.
    pub async fn stop(self) {
        self.cancel.cancel();
        soon("the server's end", self.run).await.unwrap().unwrap();
    }

    /// Returns a client that is connected, but has not registered yet.
    pub fn connect(&self, row: Node, plugin: &Plugin) -> Client {
        let detaches: Arc<Mutex<Vec<NodeDetach>>> = Arc::default();
        let (disk, asked) = (plugin.clone(), detaches.clone());
        let (grower, name) = (plugin.clone(), row.name.clone());
        let router = Router::builder()
            .unary::<methods::ControllerCall, _, _>(move |_, call| {
                let disk = disk.clone();
                async move { disk.answer(call).await }
            })
            .unary::<methods::NodeExpand, _, _>(move |_, request| {
                let (grower, name) = (grower.clone(), name.clone());
                async move { grower.grow(request, &name).await }
            })
            .unary::<methods::NodeDetach, _, _>(move |_, request| {
                asked.lock().unwrap().push(request);
                async move { Ok(Done::default()) }
            })
            .build();
        let server = PeerIdentity::server("s");
        let registration = self.registry.register(row.id.to_string(), Channel::local(router, server));
        let peer =
            PeerIdentity::Client { node_id: row.id.to_string(), secret: Secret::new(row.secret_id.expose()) };
        let channel = Channel::local(self.router.clone(), peer);
        Client { row, channel, registration: Some(registration), detaches }
    }

    /// Returns a client that is connected and registered.
    pub async fn join(&self, row: Node, plugin: &Plugin) -> Client {
        let client = self.connect(row, plugin);
        client.register().await.unwrap();
        client
    }

    /// Returns a client without plugins that is connected and registered.
    pub async fn plain(&self, name: &str) -> Client {
        self.join(make::node(name), &Plugin::default()).await
    }

    pub fn root(&self) -> caravan_state::Snapshot {
        self.handle.store().snapshot()
    }

    /// Plans a job without storing it.
    pub(crate) fn plan(&self, job: Job) -> Result<JobPlanned, ServerError> {
        let caller = caravan_server::Caller::unrestricted();
        let admitted = self.handle.jobs().admit(&caller, job.into(), Preserve::default())?;
        Ok(self.handle.jobs().plan(admitted))
    }

    pub async fn run_job(&self, job: Job) -> JobRegistered {
        let submission = JobSubmission { draft: job.into(), ..Default::default() };
        self.handle.jobs().register(submission).await.unwrap()
    }

    pub async fn stop_job(&self, id: &str) {
        self.handle.jobs().deregister(make::job_key(id), false, None).await.unwrap();
    }

    pub async fn create(&self, body: VolumeRequestBody) -> Result<Arc<Volume>, ServerError> {
        let mut made = self.handle.volumes().create(&"default".into(), vec![body]).await?;
        Ok(made.remove(0))
    }

    /// Waits for an allocation of a job that should run, and returns it.
    pub async fn placed(&self, job: &str) -> Arc<Allocation> {
        let key = make::job_key(job);
        let what = format!("an allocation of {job}");
        until(&what, || self.root().allocs_by_job(&key).find(|a| !a.terminal()).cloned()).await
    }

    /// Waits until the job's evaluation is blocked with its reasons, and returns it.
    pub async fn blocked(&self, job: &str) -> Arc<Evaluation> {
        let key = make::job_key(job);
        let what = format!("a blocked evaluation of {job}");
        let found = until(&what, || {
            self.root().evals_by_job(&key).find(|e| e.status == EvalStatus::Blocked).cloned()
        })
        .await;
        until("the broker having it", || (self.handle.scheduling().depth().blocked > 0).then_some(())).await;
        found
    }

    pub async fn eval_over(&self, id: &caravan_types::EvalId) -> Arc<Evaluation> {
        until("the evaluation's end", || {
            self.root().eval(id).filter(|e| e.status != EvalStatus::Pending).cloned()
        })
        .await
    }

    /// Waits until no evaluation is queued or being processed.
    pub async fn quiet(&self) {
        until("quiet", || {
            let depth = self.handle.scheduling().depth();
            let pending = self.root().evals().any(|e| e.status == EvalStatus::Pending);
            (depth.ready + depth.in_flight == 0 && !pending).then_some(())
        })
        .await;
    }

    pub fn claim(&self, id: &ClaimId) -> Option<Arc<Claim>> {
        self.root().claim(id).cloned()
    }

    /// Waits until the claim is in this phase, and returns it.
    pub async fn phase(&self, id: &ClaimId, phase: ClaimPhase) -> Arc<Claim> {
        let what = format!("claim of {} in phase {}", id.alloc, phase.as_str());
        until(&what, || self.claim(id).filter(|c| c.phase == phase)).await
    }

    pub async fn node_status(&self, id: &NodeId, status: NodeStatus) -> Arc<Node> {
        let what = format!("node {id} {}", status.as_str());
        until(&what, || self.root().node(id).filter(|n| n.status == status).cloned()).await
    }
}

/// Returns the id of the claim of an allocation on a volume.
pub fn claim_id(volume: &VolumeKey, alloc: &Allocation) -> ClaimId {
    ClaimId { volume: volume.clone(), alloc: alloc.id.clone() }
}

/// A client agent that acts as the test specifies.
pub struct Client {
    pub row: Node,
    pub channel: Channel,
    registration: Option<Registration>,
    pub detaches: Arc<Mutex<Vec<NodeDetach>>>,
}

impl Client {
    pub async fn register(&self) -> Result<NodeContact, RpcError> {
        self.channel.call::<methods::NodeRegister>(NodeRegister { node: self.row.clone() }, None).await
    }

    /// Registers the node again with another row.
    pub async fn report(&mut self, row: Node) -> NodeContact {
        self.row = row;
        self.register().await.unwrap()
    }

    pub async fn beat(&self) -> Result<NodeContact, RpcError> {
        let beat = NodeHeartbeat {
            node_id: self.row.id.clone(),
            secret: self.row.secret_id.clone(),
            wants_identity: false,
        };
        self.channel.call::<methods::NodeHeartbeat>(beat, None).await
    }

    /// Sends heartbeats until dropped.
    pub fn stay_alive(&self) -> impl Drop + use<> {
        let (channel, row) = (self.channel.clone(), self.row.clone());
        let task = tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(50));
            loop {
                pace.tick().await;
                let beat = NodeHeartbeat {
                    node_id: row.id.clone(),
                    secret: row.secret_id.clone(),
                    wants_identity: false,
                };
                // A server that is about to stop may refuse.
                let _ = channel.call::<methods::NodeHeartbeat>(beat, None).await;
            }
        });
        Ended(task)
    }

    /// Closes the connection over which the servers call this client.
    pub fn lose_connection(&mut self) {
        self.registration = None;
    }

    pub fn watch(&self) -> impl Stream<Item = Result<AllocDelta, RpcError>> + Unpin + use<> {
        let request =
            WatchAllocs { node_id: self.row.id.clone(), secret: self.row.secret_id.clone(), after: 0 };
        self.channel.stream::<methods::WatchAllocs>(request)
    }

    pub async fn status(&self, alloc: &Allocation, status: ClientStatus) {
        let update = AllocUpdate { alloc_id: alloc.id.clone(), client_status: status, ..Default::default() };
        self.update(update).await;
    }

    /// Reports an allocation whose task ended by itself, or was killed.
    pub async fn ended(&self, alloc: &Allocation, event: &'static str) {
        let mut task = TaskState { state: TaskRunState::Dead, ..TaskState::default() };
        task.push_event(TaskEvent::new(event, caravan_types::UnixNanos(1)));
        let main = alloc.group().unwrap().tasks[0].name.clone();
        self.update(AllocUpdate {
            alloc_id: alloc.id.clone(),
            client_status: ClientStatus::Complete,
            task_states: std::iter::once((main, task)).collect(),
            ..Default::default()
        })
        .await;
    }

    async fn update(&self, update: AllocUpdate) {
        let request = AllocStatus {
            node_id: self.row.id.clone(),
            secret: self.row.secret_id.clone(),
            updates: vec![update],
        };
        self.channel.call::<methods::AllocStatus>(request, None).await.unwrap();
    }

    pub fn ask_for(
        &self,
        claim: &ClaimId,
    ) -> impl Stream<Item = Result<ClaimProgress, RpcError>> + Unpin + use<> {
        let request = ClaimVolume {
            node_id: self.row.id.clone(),
            secret: self.row.secret_id.clone(),
            claim: claim.clone(),
        };
        self.channel.stream::<methods::ClaimVolume>(request)
    }

    /// Waits for the volume. Returns the reasons of the wait, and the grant or the permanent failure.
    pub async fn obtain(&self, claim: &ClaimId) -> (Vec<String>, Result<ClaimGrant, String>) {
        let mut progress = self.ask_for(claim);
        let mut reasons = Vec::new();
        let end = async {
            loop {
                match progress.next().await.unwrap().unwrap() {
                    ClaimProgress::Waiting { reason } => reasons.push(reason),
                    ClaimProgress::Attached(grant) => return Ok(*grant),
                    ClaimProgress::Denied { reason } => return Err(reason),
                }
            }
        };
        let end = soon("the claim", end).await;
        (reasons, end)
    }

    pub async fn prove(&self, claim: &Claim, step: ClaimReportStep) -> Result<Done, RpcError> {
        let report = ClaimReport {
            node_id: self.row.id.clone(),
            secret: self.row.secret_id.clone(),
            claim: claim.id.clone(),
            generation: claim.generation,
            step,
        };
        self.channel.call::<methods::ClaimReport>(report, None).await
    }

    pub async fn tell_usage(&self, usage: Vec<(VolumeKey, VolumeUsage)>) {
        let stats = VolumeStats { node_id: self.row.id.clone(), secret: self.row.secret_id.clone(), usage };
        self.channel.call::<methods::VolumeStats>(stats, None).await.unwrap();
    }

    /// Obtains the volume, mounts it and reports that the task runs.
    pub async fn start(&self, alloc: &Allocation, volume: &VolumeKey) -> Claim {
        let (_, grant) = self.obtain(&claim_id(volume, alloc)).await;
        let claim = grant.unwrap().claim;
        self.prove(&claim, mounted()).await.unwrap();
        self.status(alloc, ClientStatus::Running).await;
        claim
    }

    /// Reports that the task has ended and that the volume is unmounted.
    pub async fn finish(&self, alloc: &Allocation, claim: &Claim) {
        self.status(alloc, ClientStatus::Complete).await;
        self.prove(claim, ClaimReportStep::Unpublished).await.unwrap();
        self.prove(claim, ClaimReportStep::Unstaged).await.unwrap();
    }
}

pub fn mounted() -> ClaimReportStep {
    ClaimReportStep::Mounted { proof: MountProof { path: "/mnt".into(), device: "8:1".into(), mount_id: 7 } }
}

struct Ended(JoinHandle<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}
