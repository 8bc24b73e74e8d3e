//! The server as a whole: its services, their start and stop, and its handle.

mod cluster;
mod handle;
mod parts;
mod rpc;
mod term;

use crate::absence::Absences;
use crate::acl::AclConfig;
use crate::admin::KeyLoader;
use crate::aging::Aging;
use crate::cluster::{Cluster, ClusterConfig, Founder, HealthBook, Promises, Removals, Transport};
use crate::core::{Clock, Core, Machine, Term};
use crate::error::ServerError;
use crate::gc::GcConfig;
use crate::heartbeat::HeartbeatConfig;
use crate::keyring::Keyring;
use crate::plan::RejectionConfig;
use crate::pool::{WorkerPool, Workers};
use crate::replication::StatusBook;
use crate::runtime::JoinHandle;
use crate::runtime::{self, select};
use crate::ways_back::WaysBack;
use caravan_consensus::{Config as LogConfig, Consensus, Leadership};
use caravan_meters::Meters;
use caravan_rpc::ReverseRegistry;
use caravan_state::Store;
use caravan_volumes::lease::Lease;
use parts::Blueprint;
use std::path::PathBuf;
use std::sync::Arc;
use term::LeaderTerm;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use cluster::{ClusterMember, ClusterRequests, LeaderPlace};
pub use handle::{NoPath, Scheduling};
pub(crate) use parts::Parts;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The region of this cluster.
    pub region: String,
    /// The settings of the replicated log.
    pub log: LogConfig,
    /// The RPC addresses that clients receive, `host:port`.
    pub addresses: Vec<String>,
    /// The settings of the scheduling workers.
    pub workers: Workers,
    /// The timing of heartbeats.
    pub heartbeat: HeartbeatConfig,
    /// The durations of the fence.
    pub lease: Lease,
    /// The maximum number of concurrent calls of one kind to one storage plugin.
    pub volume_calls_per_plugin: usize,
    /// The ages at which garbage collection removes objects that have ended.
    pub gc: GcConfig,
    /// The conditions under which a node that repeatedly rejects placements becomes ineligible.
    pub rejections: RejectionConfig,
    /// The directory of the root keys. Without one, the server uses a single key in memory.
    pub keyring: Option<PathBuf>,
    /// The settings of access control.
    pub acl: AclConfig,
    /// The issuer of workload identities, as a URL that other parties can reach (`oidc_issuer`).
    pub issuer: Option<String>,
    /// The settings of this server as a part of a cluster.
    pub cluster: ClusterConfig,
}

/// The file next to the keyring that permits another bootstrap of access control.
const RESET_FILE: &str = "acl-bootstrap-reset";

/// The interface of a running server for other parts; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    blueprint: Arc<Blueprint>,
    /// The parts of the current leader term, or those of a follower.
    current: Arc<watch::Sender<Arc<Parts>>>,
    pool: Arc<WorkerPool>,
}

/// The server's long-lived services.
#[derive(Debug)]
pub struct Service {
    handle: Handle,
    log: caravan_consensus::Service,
    /// The term that began before [`Service::run`].
    begun: Option<LeaderTerm>,
    gc: GcConfig,
}

/// The running work of a leader term.
#[derive(Debug)]
struct Running {
    term: Term,
    stop: CancellationToken,
    work: JoinHandle<()>,
}

impl Service {
    /// Opens the log, brings the state up to date and creates the services. `registry` contains the connections to
    /// the clients.
    ///
    /// # Errors
    /// If the log cannot be opened.
    pub async fn start(
        config: ServerConfig,
        registry: ReverseRegistry,
    ) -> Result<(Handle, Self), ServerError> {
        let keyring = match &config.keyring {
            Some(dir) => Keyring::dir(dir)?,
            None => Keyring::memory()?,
        };
        let store = Arc::new(Store::default());
        let transport = Arc::new(Transport(config.cluster.channels.clone()));
        let machine = Machine { store: store.clone(), level: config.cluster.level };
        let (log, log_service) = Consensus::start(config.log.clone(), transport, machine)
            .await
            .map_err(|e| ServerError::Storage(Arc::new(e)))?;
        let own = &config.cluster;
        let server = caravan_founding::ServerUuid(own.id);
        let cluster = Cluster {
            promises: Promises::open(server, own.expect, own.dir.clone())?,
            config: Arc::new(own.clone()),
            region: config.region.as_str().into(),
            log: log.clone(),
            keyring: keyring.clone(),
            health: HealthBook::default(),
            replication: StatusBook::default(),
            removals: Removals::default(),
        };
        cluster.settle().await?;
        let (meters, clock, absences) = (Meters::default(), Clock::default(), Absences::default());
        let aging = Aging::new(config.gc.longest());
        let core = Core { store, log, keyring, meters, clock, absences, aging, term: None };
        let blueprint = Arc::new(Blueprint::new(core, &config, registry, cluster));
        let pool = Arc::new(WorkerPool::new(config.workers));
        let term = leads(&blueprint.core.log.leadership().borrow());
        let begun = term.map(|term| LeaderTerm::new(&blueprint, term));
        if let Some(begun) = &begun {
            // Apply everything committed before the restart before serving requests.
            blueprint.core.log.read_quorum().await?;
            begun.parts.admin.settle_keys().await?;
        }
        let parts = begun.as_ref().map_or_else(|| blueprint.of_follower(), |begun| begun.parts.clone());
        let handle = Handle { blueprint, current: Arc::new(watch::Sender::new(parts)), pool };
        Ok((handle.clone(), Self { handle, log: log_service, begun, gc: config.gc }))
    }

    /// Runs the services until cancelled, or until the log fails, which is final for this process.
    ///
    /// # Errors
    /// If the log failed: the content of the disk is then uncertain.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), ServerError> {
        let Self { handle, log, begun, gc } = self;
        let stop = cancel.child_token();
        let tracker = TaskTracker::new();
        let core = handle.blueprint.core.clone();
        let registry = handle.blueprint.paths.registry().clone();
        runtime::spawn_in(&tracker, WaysBack { core, registry }.run(stop.clone()));
        runtime::spawn_in(&tracker, handle.blueprint.paths.clone().run(stop.clone()));
        let mirror = handle.blueprint.mirror.clone();
        runtime::spawn_in(&tracker, mirror.run(handle.clone(), stop.clone()));
        runtime::spawn_in(&tracker, KeyLoader::new(handle.blueprint.admin.clone()).run(stop.clone()));
        runtime::spawn_in(&tracker, Founder::new(handle.blueprint.cluster.clone()).run(stop.clone()));
        runtime::spawn_in(&tracker, handle.lead(begun, gc, stop.clone()));
        tracker.close();
        // The log stops after the services that write to it.
        let end_of_log = CancellationToken::new();
        let log = log.run(end_of_log.clone());
        tokio::pin!(log);
        let result = select! {
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

/// Returns the term that this server leads, or `None` if it does not lead.
fn leads(leadership: &Leadership) -> Option<Term> {
    match leadership {
        Leadership::Leader { term, .. } => Some(Term::new(*term)),
        Leadership::Follower { .. } | Leadership::Unknown => None,
    }
}

impl Handle {
    /// Performs the work of the leader in each term that this server leads, until `stop` is cancelled.
    async fn lead(self, begun: Option<LeaderTerm>, gc: GcConfig, stop: CancellationToken) {
        let mut leadership = self.blueprint.core.log.leadership();
        let mut running = begun.map(|begun| self.begin(begun, gc, &stop));
        loop {
            let leads = leads(&leadership.borrow_and_update());
            if let Some(over) = running.take_if(|running| Some(running.term) != leads) {
                self.current.send_replace(self.blueprint.of_follower());
                over.stop.cancel();
                // A panic was reported when it happened.
                let _ = over.work.await;
                continue;
            }
            if let (None, Some(term)) = (&running, leads) {
                running = Some(self.begin(LeaderTerm::new(&self.blueprint, term), gc, &stop));
            }
            select! {
                () = stop.cancelled() => break,
                changed = leadership.changed() => if changed.is_err() { break },
            }
        }
        if let Some(last) = running {
            last.stop.cancel();
            let _ = last.work.await;
        }
    }

    fn begin(&self, term: LeaderTerm, gc: GcConfig, stop: &CancellationToken) -> Running {
        let (number, stop) = (term.term(), stop.child_token());
        self.current.send_replace(term.parts.clone());
        let work = runtime::spawn(term.run(self.pool.clone(), gc, stop.clone()));
        Running { term: number, stop, work }
    }

    /// Returns the parts of the current leader term, or those of a follower.
    pub(crate) fn parts(&self) -> Arc<Parts> {
        self.current.borrow().clone()
    }
}

/// Completes a command even if its caller disconnects. The server's shutdown waits for it.
pub(crate) async fn to_the_end<T: Send + 'static>(
    commands: &TaskTracker,
    command: impl Future<Output = Result<T, ServerError>> + Send + 'static,
) -> Result<T, ServerError> {
    match runtime::spawn_in(commands, command).await {
        Ok(result) => result,
        Err(error) => Err(ServerError::CommandFailed(Arc::new(error))),
    }
}
