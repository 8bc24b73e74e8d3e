//! The server as a whole: its parts, their start and stop, and the handle that others hold.

use crate::acl::AclConfig;
use crate::admin::Admin;
use crate::admission::Verdict;
use crate::broker::{Broker, BrokerDepth};
use crate::core::{Core, Machine};
use crate::deployment::{DeploymentRequest, DeploymentUpdated, Deployments, Watcher};
use crate::drain::Drainer;
use crate::endpoint::{
    Dispatch, Dispatched, DrainRequest, JobPlanned, JobRegistered, JobSubmission, Jobs, NodeUpdated, Nodes,
    ScaleRequest,
};
use crate::error::ServerError;
use crate::gc::{self, Collector, GcConfig};
use crate::heartbeat::{HeartbeatConfig, Heartbeats};
use crate::host_volume::HostVolumes;
use crate::keyring::Keyring;
use crate::locks::Locks;
use crate::lookups::Lookups;
use crate::periodic::Launcher;
use crate::plan::{Planner, PlannerService, RejectionConfig};
use crate::reports::Reports;
use crate::volume::{Claims, Controllers, Reconciler, UsageBook, Volumes};
use crate::worker::{Worker, WorkerPool};
use caravan_consensus::{Config as LogConfig, Consensus};
use caravan_rpc::{Channel, ReverseRegistry, RouterBuilder, RpcError, methods};
use caravan_state::Store;
use caravan_types::api::Misfits;
use caravan_types::command::Change;
use caravan_types::job::Job;
use caravan_types::node::Eligibility;
use caravan_types::scaling::VersionTag;
use caravan_types::wire::Done;
use caravan_types::{AllocId, DeploymentId, EvalId, JobKey, NodeId, ServiceId};
use caravan_volumes::lease::Lease;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Region.
    pub region: String,
    /// The replicated log.
    pub log: LogConfig,
    /// RPC addresses told to clients, `host:port`.
    pub addresses: Vec<String>,
    /// Workers that schedule.
    pub workers: usize,
    /// Heartbeats.
    pub heartbeat: HeartbeatConfig,
    /// The fence.
    pub lease: Lease,
    /// Calls of one kind that one storage plugin gets at the same time.
    pub volume_calls_per_plugin: usize,
    /// When what is over is forgotten.
    pub gc: GcConfig,
    /// When nodes are taken out that refuse placements.
    pub rejections: RejectionConfig,
    /// Directory of the keys that secrets are sealed with; none: one key that ends with the process.
    pub keyring: Option<PathBuf>,
    /// Access control.
    pub acl: AclConfig,
    /// Who issues identities, as others reach it (`oidc_issuer`).
    pub issuer: Option<String>,
}

/// The file beside the keyring that lets the first token be made again.
const RESET_FILE: &str = "acl-bootstrap-reset";

/// What others hold of a server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) core: Core,
    pub(crate) admin: Admin,
    pub(crate) locks: Locks,
    pool: Arc<WorkerPool>,
    jobs: Jobs,
    nodes: Nodes,
    pub(crate) volumes: Volumes,
    pub(crate) host_volumes: HostVolumes,
    pub(crate) claims: Claims,
    pub(crate) usage: UsageBook,
    lookups: Lookups,
    broker: Broker,
    registry: ReverseRegistry,
    addresses: Arc<Vec<String>>,
}

/// The server's long-lived parts.
#[derive(Debug)]
pub struct Service {
    handle: Handle,
    log: caravan_consensus::Service,
    planner: Planner,
    planner_service: PlannerService,
    heartbeats: Heartbeats,
    pool: Arc<WorkerPool>,
    gc: GcConfig,
}

impl Service {
    /// Opens the log, brings the state up to date and makes the parts. `registry` holds the ways to
    /// the clients.
    ///
    /// # Errors
    /// If the log cannot be opened.
    pub async fn start(
        config: ServerConfig,
        registry: ReverseRegistry,
    ) -> Result<(Handle, Self), ServerError> {
        let reset_file = config.keyring.as_deref().and_then(|dir| Some(dir.parent()?.join(RESET_FILE)));
        let keyring = match &config.keyring {
            Some(dir) => Keyring::dir(dir)?,
            None => Keyring::memory()?,
        };
        let store = Arc::new(Store::default());
        let (log, log_service) = Consensus::start(config.log, Machine(store.clone()))
            .await
            .map_err(|e| ServerError::unavailable(chain(&e)))?;
        let core = Core { store, log, keyring };
        // Everything committed before the restart is applied before anybody asks.
        core.log.barrier().await?;
        let heartbeats = Heartbeats::new(core.clone(), config.heartbeat);
        let broker = Broker::new(core.clone());
        let (planner, planner_service) = Planner::new(core.clone(), config.rejections);
        let controllers = Controllers::new(registry.clone(), config.volume_calls_per_plugin);
        let host_volumes = HostVolumes::new(core.clone(), controllers.clone());
        let reconciler = Reconciler::new(core.clone(), controllers, config.lease);
        let addresses = Arc::new(config.addresses);
        let admin = Admin::new(core.clone(), config.region.clone(), config.acl, config.issuer);
        let admin = admin.with_reset_file(reset_file);
        admin.settle_keys().await?;
        let pool = Arc::new(WorkerPool::new(config.workers));
        let handle = Handle {
            lookups: Lookups { core: core.clone(), admin: admin.clone() },
            admin,
            locks: Locks::new(core.clone()),
            pool: pool.clone(),
            jobs: Jobs { core: core.clone(), region: config.region },
            nodes: Nodes {
                core: core.clone(),
                heartbeats: heartbeats.clone(),
                addresses: addresses.clone(),
                lease_ttl: config.lease.ttl,
                reports: Reports::new(core.clone()),
            },
            claims: Claims { core: core.clone(), waits: reconciler.waits.clone() },
            usage: UsageBook::default(),
            volumes: Volumes { core: core.clone(), reconciler },
            host_volumes,
            broker,
            registry,
            addresses,
            core,
        };
        let service = Self {
            handle: handle.clone(),
            log: log_service,
            planner,
            planner_service,
            heartbeats,
            pool,
            gc: config.gc,
        };
        Ok((handle, service))
    }

    /// Runs until cancelled, or until the log fails, which is final for this process.
    ///
    /// # Errors
    /// If the log failed: what the disk holds is not certain any more.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), ServerError> {
        let stop = cancel.child_token();
        let tracker = TaskTracker::new();
        tracker.spawn(self.planner_service.run(stop.clone()));
        tracker.spawn(self.heartbeats.run(stop.clone()));
        tracker.spawn(self.handle.broker.clone().run(stop.clone()));
        tracker.spawn(self.handle.volumes.reconciler.clone().run(stop.clone()));
        tracker.spawn(self.handle.host_volumes.clone().run(stop.clone()));
        let waits = self.handle.volumes.reconciler.waits.clone();
        let collector = Collector { core: self.handle.core.clone(), config: self.gc };
        tracker.spawn(collector.run(stop.clone()));
        tracker.spawn(Watcher::new(self.handle.core.clone()).run(stop.clone()));
        tracker.spawn(Drainer::new(self.handle.core.clone(), waits).run(stop.clone()));
        tracker.spawn(Launcher { core: self.handle.core.clone() }.run(stop.clone()));
        tracker.spawn(self.handle.locks.clone().run(stop.clone()));
        tracker.spawn(crate::admin::Chores::new(self.handle.admin.clone()).run(stop.clone()));
        for index in 0..self.pool.most() {
            let worker = Worker {
                index,
                pool: self.pool.clone(),
                core: self.handle.core.clone(),
                broker: self.handle.broker.clone(),
                planner: self.planner.clone(),
                memory: Mutex::default(),
            };
            tracker.spawn(worker.run(stop.clone()));
        }
        tracker.close();
        // The log outlives the parts that write to it.
        let end_of_log = CancellationToken::new();
        let log = self.log.run(end_of_log.clone());
        tokio::pin!(log);
        let result = tokio::select! {
            result = &mut log => {
                stop.cancel();
                tracker.wait().await;
                result
            }
            () = cancel.cancelled() => {
                tracker.wait().await;
                end_of_log.cancel();
                log.await
            }
        };
        result.map_err(|e| ServerError::unavailable(chain(&e)))
    }
}

/// Carries a command to its end although whoever asked may go away meanwhile. The server's end waits
/// for it.
pub(crate) async fn to_the_end<T: Send + 'static>(
    commands: &TaskTracker,
    command: impl Future<Output = Result<T, ServerError>> + Send + 'static,
) -> Result<T, ServerError> {
    match commands.spawn(command).await {
        Ok(result) => result,
        Err(error) => Err(ServerError::new(crate::Kind::Internal, format!("the command failed: {error}"))),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

impl Handle {
    /// The state.
    pub fn store(&self) -> &Arc<Store> {
        &self.core.store
    }

    /// What operators change.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// RPC addresses of the servers.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Whether this server leads.
    pub fn is_leader(&self) -> bool {
        self.core.log.is_leader()
    }

    /// Facts about the log.
    pub fn log_metrics(&self) -> caravan_consensus::Metrics {
        self.core.log.metrics()
    }

    /// Depths of the queues.
    pub fn broker_depth(&self) -> BrokerDepth {
        self.broker.depth()
    }

    /// How many workers schedule, and how many could.
    pub fn workers(&self) -> (usize, usize) {
        (self.pool.active(), self.pool.most())
    }

    /// Sets how many workers schedule, at most as many as could.
    pub fn set_workers(&self, active: usize) {
        self.pool.set(active);
    }

    /// A way to a node.
    ///
    /// # Errors
    /// If the node is not connected.
    pub fn node_channel(&self, node: &NodeId) -> Result<Channel, RpcError> {
        self.registry.get(node.as_str())
    }

    /// The calls of clients, to be served over RPC.
    pub fn rpc(&self) -> RouterBuilder {
        let builder = caravan_rpc::Router::builder();
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::NodeRegister, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.register(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::NodeHeartbeat, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.heartbeat(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::NodeEvents, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.events(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::AllocStatus, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.alloc_status(request).await.map_err(RpcError::from) }
        });
        let nodes = self.nodes.clone();
        let builder = builder.stream::<methods::WatchAllocs, _, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.watch(request).map_err(RpcError::from) }
        });
        let (nodes, claims) = (self.nodes.clone(), self.claims.clone());
        let builder = builder.stream::<methods::ClaimVolume, _, _, _>(move |_, request| {
            let (nodes, claims) = (nodes.clone(), claims.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                Ok(claims.claim(request))
            }
        });
        let (nodes, book, core) = (self.nodes.clone(), self.usage.clone(), self.core.clone());
        let builder = builder.unary::<methods::VolumeStats, _, _>(move |_, stats| {
            let (nodes, book, core) = (nodes.clone(), book.clone(), core.clone());
            async move {
                nodes.authentic(&stats.node_id, &stats.secret)?;
                let root = core.snapshot();
                book.replace(&root, &stats.node_id, stats.usage);
                Ok(Done { index: root.index() })
            }
        });
        let nodes = self.nodes.clone();
        let builder = builder.unary::<methods::ServiceSync, _, _>(move |_, request| {
            let nodes = nodes.clone();
            async move { nodes.sync_services(request).await.map_err(RpcError::from) }
        });
        let (nodes, registry) = (self.nodes.clone(), self.registry.clone());
        let builder = builder.stream::<methods::FetchDisk, _, _, _>(move |_, request| {
            let (nodes, registry) = (nodes.clone(), registry.clone());
            async move { nodes.fetch_disk(&registry, request).await.map_err(RpcError::from) }
        });
        let (nodes, admin) = (self.nodes.clone(), self.admin.clone());
        let builder = builder.unary::<methods::SignIdentities, _, _>(move |_, request| {
            let (nodes, admin) = (nodes.clone(), admin.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                admin.sign_identities(request).await.map_err(RpcError::from)
            }
        });
        let (nodes, lookups) = (self.nodes.clone(), self.lookups.clone());
        let builder = builder.stream::<methods::WatchLookups, _, _, _>(move |_, request| {
            let (nodes, lookups) = (nodes.clone(), lookups.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                lookups.watch(request).map_err(RpcError::from)
            }
        });
        let (nodes, admin) = (self.nodes.clone(), self.admin.clone());
        let builder = builder.unary::<methods::SignNode, _, _>(move |_, request| {
            let (nodes, admin) = (nodes.clone(), admin.clone());
            async move {
                nodes.authentic(&request.node_id, &request.secret)?;
                admin.sign_node(&request.node_id).await.map_err(RpcError::from)
            }
        });
        let (nodes, claims) = (self.nodes.clone(), self.claims.clone());
        builder.unary::<methods::ClaimReport, _, _>(move |_, report| {
            let (nodes, claims) = (nodes.clone(), claims.clone());
            async move {
                nodes.authentic(&report.node_id, &report.secret)?;
                claims.report(report).await.map_err(RpcError::from)
            }
        })
    }

    /// Whether the secret is the node's: none if the node is not known (yet).
    pub fn is_node(&self, node: &NodeId, secret: &str) -> Option<bool> {
        let root = self.core.snapshot();
        root.node(node).map(|n| n.secret_id == caravan_types::node::NodeSecret::new(secret))
    }

    /// Registers a job.
    ///
    /// # Errors
    /// With all problems of the job in one text.
    pub async fn register_job(&self, submission: JobSubmission) -> Result<JobRegistered, ServerError> {
        self.jobs.register(submission).await
    }

    /// Checks a job without storing it.
    pub fn validate_job(&self, job: &Job, misfits: Misfits) -> Verdict {
        self.jobs.validate(job, misfits)
    }

    /// Whether all of a job fitted.
    ///
    /// # Errors
    /// With all problems of the job in one text, if it did not.
    pub fn job_fits(&self, job: &Job, misfits: Misfits) -> Result<(), ServerError> {
        self.jobs.fits(job, misfits)
    }

    /// What a job would do.
    ///
    /// # Errors
    /// With all problems of the job in one text.
    pub fn plan_job(&self, job: Job) -> Result<JobPlanned, ServerError> {
        self.jobs.plan(job)
    }

    /// Why what an evaluation was about is not placed, if it is looked at now, and what would change it.
    ///
    /// # Errors
    /// If the evaluation does not exist.
    pub fn explain_eval(&self, id: &EvalId) -> Result<Vec<String>, ServerError> {
        crate::endpoint::explain::evaluation(&self.jobs.core, id)
    }

    /// What would move where if something happened to nodes (`node=<id>:down`, or `drain`, `ineligible`, `up`),
    /// and if this job were registered.
    ///
    /// # Errors
    /// If a text cannot be read or a node is not known.
    pub fn what_if(
        &self,
        job: Option<Job>,
        imagined: &[String],
    ) -> Result<caravan_scheduler::Consequences, ServerError> {
        crate::endpoint::explain::what_if(&self.jobs, job, imagined)
    }

    /// Stops a job, or removes it. A job that does not exist is no error.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn deregister_job(
        &self,
        key: JobKey,
        purge: bool,
        eval_priority: Option<i64>,
    ) -> Result<JobRegistered, ServerError> {
        self.jobs.deregister(key, purge, eval_priority).await
    }

    /// Has a job looked at again.
    ///
    /// # Errors
    /// If there is no such job.
    pub async fn evaluate_job(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        self.jobs.evaluate(key).await
    }

    /// Makes a child of a parameterized job.
    ///
    /// # Errors
    /// If there is no such job, it cannot be dispatched, or what is given is not what it wants.
    pub async fn dispatch_job(&self, key: JobKey, dispatch: Dispatch) -> Result<Dispatched, ServerError> {
        self.jobs.dispatch(key, dispatch).await
    }

    /// Makes a child of a periodic job now.
    ///
    /// # Errors
    /// If there is no such job, or it is not periodic, stopped or switched off.
    pub async fn force_periodic(&self, key: JobKey) -> Result<Dispatched, ServerError> {
        self.jobs.force_periodic(key).await
    }

    /// Marks a version of a job as good, or not. Answers the index.
    ///
    /// # Errors
    /// If there is no such version.
    pub async fn set_job_stable(&self, key: JobKey, version: u64, stable: bool) -> Result<u64, ServerError> {
        self.jobs.set_stable(key, version, stable).await
    }

    /// Registers an earlier version of a job again. With `prior`, only if that is the version there is.
    ///
    /// # Errors
    /// If there is no such version, or it is the one there is, or the job has problems by now.
    pub async fn revert_job(
        &self,
        key: JobKey,
        version: u64,
        prior: Option<u64>,
    ) -> Result<JobRegistered, ServerError> {
        self.jobs.revert(key, version, prior).await
    }

    /// Changes a deployment.
    ///
    /// # Errors
    /// If there is no such deployment, it is over, or too few of its canaries are healthy.
    pub async fn change_deployment(
        &self,
        id: &DeploymentId,
        request: DeploymentRequest,
    ) -> Result<DeploymentUpdated, ServerError> {
        Deployments { core: self.core.clone() }.change(id, request).await
    }

    /// Has a job looked at again, its failed allocations placed anew at once.
    ///
    /// # Errors
    /// If there is no such job.
    pub async fn force_reschedule(&self, key: JobKey) -> Result<JobRegistered, ServerError> {
        self.jobs.force_reschedule(key).await
    }

    /// Stops a job's allocations without their shutdown delays, once they are stopped.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn skip_shutdown_delay(&self, key: &JobKey) -> Result<(), ServerError> {
        self.jobs.without_delay(key).await
    }

    /// Changes the count of a group, or keeps an event about it.
    ///
    /// # Errors
    /// If there is no such job or group, or the count is out of bounds.
    pub async fn scale_job(&self, key: JobKey, request: ScaleRequest) -> Result<JobRegistered, ServerError> {
        self.jobs.scale(key, request).await
    }

    /// Names a version of a job; without a version the newest. Answers the tag and the index.
    ///
    /// # Errors
    /// If there is no such version, or another one has the name.
    pub async fn tag_version(
        &self,
        key: JobKey,
        name: &str,
        version: Option<u64>,
        description: &str,
    ) -> Result<(VersionTag, u64), ServerError> {
        self.jobs.tag(key, name, version, description).await
    }

    /// Takes a version's name away. Answers the index.
    ///
    /// # Errors
    /// If no version has the name.
    pub async fn untag_version(&self, key: JobKey, name: &str) -> Result<u64, ServerError> {
        self.jobs.untag(key, name).await
    }

    /// Has an allocation stopped and replaced. Answers the evaluation and its index.
    ///
    /// # Errors
    /// If there is no such allocation.
    pub async fn stop_alloc(&self, id: AllocId) -> Result<(EvalId, u64), ServerError> {
        self.jobs.stop_alloc(id, false, false).await
    }

    /// The same; `at_once`: without waiting for the shutdown delay of its tasks; `reschedule`: as if it had failed.
    ///
    /// # Errors
    /// If there is no such allocation.
    pub async fn stop_alloc_with(
        &self,
        id: AllocId,
        at_once: bool,
        reschedule: bool,
    ) -> Result<(EvalId, u64), ServerError> {
        self.jobs.stop_alloc(id, at_once, reschedule).await
    }

    /// Starts, changes or ends the drain of a node.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn drain_node(&self, id: &NodeId, request: DrainRequest) -> Result<NodeUpdated, ServerError> {
        self.nodes.drain(id, request).await
    }

    /// Sets whether a node takes new work.
    ///
    /// # Errors
    /// If there is no such node, or it is to be eligible while it drains.
    pub async fn set_node_eligibility(
        &self,
        id: &NodeId,
        eligibility: Eligibility,
    ) -> Result<NodeUpdated, ServerError> {
        self.nodes.eligibility(id, eligibility).await
    }

    /// Has the jobs with work on a node looked at again.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn evaluate_node(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.nodes.evaluate(id).await
    }

    /// Forgets a node.
    ///
    /// # Errors
    /// If there is no such node.
    pub async fn purge_node(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.nodes.purge(id).await
    }

    /// Strikes a registration of a service out. Answers the index.
    ///
    /// # Errors
    /// If there is no such registration.
    pub async fn deregister_service(
        &self,
        namespace: &caravan_types::Namespace,
        name: &str,
        id: ServiceId,
    ) -> Result<u64, ServerError> {
        self.nodes.deregister_service(namespace, name, id).await
    }

    /// Collects everything that is over, however young: evaluations, allocations, deployments, jobs, nodes.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn collect_garbage(&self) -> Result<(), ServerError> {
        gc::collect(&self.core, &gc::Ages::default()).await
    }

    /// An index that includes everything committed before the call.
    ///
    /// # Errors
    /// If there is no leader.
    pub async fn barrier(&self) -> Result<u64, ServerError> {
        self.core.commit(Change::Noop).await
    }
}
