//! The server as a whole: its services, their start and stop, and its handle.

mod handle;
mod rpc;

use crate::absence::{self, Absences};
use crate::acl::AclConfig;
use crate::admin::Admin;
use crate::aging::Aging;
use crate::broker::Broker;
use crate::core::{Clock, Core, Machine};
use crate::deployment::Watcher;
use crate::drain::Drainer;
use crate::endpoint::{Jobs, Nodes};
use crate::error::ServerError;
use crate::gc::{Collector, GcConfig};
use crate::heartbeat::{HeartbeatConfig, Heartbeats};
use crate::host_volume::HostVolumes;
use crate::keyring::Keyring;
use crate::locks::Locks;
use crate::lookups::Lookups;
use crate::periodic::Launcher;
use crate::plan::{Planner, PlannerService, RejectionConfig};
use crate::pool::{Crew, WorkerPool, Workers};
use crate::reports::Reports;
use crate::volume::{Claims, Controllers, Reconciler, UsageBook, Volumes};
use crate::ways_back::WaysBack;
use caravan_consensus::{Config as LogConfig, Consensus, NoPeers};
use caravan_meters::Meters;
use caravan_rpc::ReverseRegistry;
use caravan_state::Store;
use caravan_volumes::lease::Lease;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use handle::Scheduling;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The region of this cluster.
    pub region: String,
    /// Settings of the replicated log.
    pub log: LogConfig,
    /// RPC addresses that clients receive, `host:port`.
    pub addresses: Vec<String>,
    /// Settings of the scheduling workers.
    pub workers: Workers,
    /// Timing of heartbeats.
    pub heartbeat: HeartbeatConfig,
    /// Durations of the fence.
    pub lease: Lease,
    /// Maximum number of concurrent calls of one kind to one storage plugin.
    pub volume_calls_per_plugin: usize,
    /// Ages at which garbage collection removes objects that have ended.
    pub gc: GcConfig,
    /// When a node that repeatedly rejects placements becomes ineligible.
    pub rejections: RejectionConfig,
    /// Directory of the root keys; without one, the server uses a single key in memory.
    pub keyring: Option<PathBuf>,
    /// Settings of access control.
    pub acl: AclConfig,
    /// The issuer of workload identities, as a URL that others can reach (`oidc_issuer`).
    pub issuer: Option<String>,
}

/// The file beside the keyring that permits another bootstrap of access control.
const RESET_FILE: &str = "acl-bootstrap-reset";

/// The interface of a running server for other parts; cheap to clone.
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
    planner: Planner,
    registry: ReverseRegistry,
    addresses: Arc<Vec<String>>,
}

/// The server's long-lived services.
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
    /// Opens the log, brings the state up to date and creates the services. `registry` holds the connections to the
    /// clients.
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
        let (log, log_service) = Consensus::start(config.log, Arc::new(NoPeers), Machine(store.clone()))
            .await
            .map_err(|e| ServerError::Storage(Arc::new(e)))?;
        let (meters, clock, absences) = (Meters::default(), Clock::default(), Absences::default());
        let aging = Aging::new(config.gc.longest());
        let core = Core { store, log, keyring, meters, clock, absences, aging };
        // Apply everything committed before the restart before serving requests.
        core.log.read_quorum().await?;
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
            jobs: Jobs { core: core.clone(), region: config.region, questions: Default::default() },
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
            planner: planner.clone(),
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
    /// If the log failed: the content of the disk is then uncertain.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), ServerError> {
        let stop = cancel.child_token();
        let tracker = TaskTracker::new();
        tracker.spawn(self.planner_service.run(stop.clone()));
        tracker.spawn(absence::watch(self.handle.core.clone(), stop.clone()));
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
        let (core, registry) = (self.handle.core.clone(), self.handle.registry.clone());
        tracker.spawn(WaysBack { core, registry }.run(stop.clone()));
        tracker.spawn(crate::admin::Chores::new(self.handle.admin.clone()).run(stop.clone()));
        let crew = Crew {
            pool: self.pool,
            core: self.handle.core.clone(),
            broker: self.handle.broker.clone(),
            planner: self.planner,
            tracker: tracker.clone(),
        };
        tracker.spawn(crew.run(stop.clone()));
        tracker.close();
        // The log stops after the services that write to it.
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
        result.map_err(|e| ServerError::Storage(Arc::new(e)))
    }
}

/// Completes a command even if its caller disconnects. The server's shutdown waits for it.
pub(crate) async fn to_the_end<T: Send + 'static>(
    commands: &TaskTracker,
    command: impl Future<Output = Result<T, ServerError>> + Send + 'static,
) -> Result<T, ServerError> {
    match commands.spawn(command).await {
        Ok(result) => result,
        Err(error) => Err(ServerError::CommandFailed(Arc::new(error))),
    }
}
