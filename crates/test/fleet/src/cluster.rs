//! A server and its clients.

use crate::client::SimClient;
use caravan_consensus::{Config as LogConfig, ServerId};
use caravan_rpc::{ReverseRegistry, Router, RpcError};
use caravan_server::{Handle, HeartbeatConfig, ServerConfig, ServerError, Service};
use caravan_state::Snapshot;
use caravan_types::node::{Node, NodeSecret};
use caravan_volumes::lease::Lease;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The number of clients that register concurrently.
const JOINING: usize = 64;
/// The number of racks of the nodes, as in Nomad's own benchmark.
const RACKS: usize = 25;

/// The errors of a fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A refusal or failure of the server.
    #[error("the server says: {0}")]
    Server(#[from] ServerError),
    /// A refusal of a client's call.
    #[error("a client was told: {0}")]
    Client(#[from] RpcError),
    /// An evaluation had another result than expected.
    #[error("job {job}: {what}")]
    Job {
        /// The id of the job.
        job: String,
        /// The result of the evaluation.
        what: String,
    },
    /// The fleet made no progress for this time.
    #[error("nothing happened for {0:?}: {1}")]
    Stuck(Duration, String),
    /// The listener could not be set up.
    #[error("the address cannot be used: {0}")]
    Listener(#[from] std::io::Error),
    /// A task of the fleet panicked.
    #[error("a task of the fleet broke")]
    Task(#[from] tokio::task::JoinError),
}

/// The options of a fleet.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of the server's scheduling workers.
    pub workers: usize,
    /// The directory of the log; absent means in memory.
    pub dir: Option<PathBuf>,
    /// The least time between heartbeats, which is also the grace before a node counts as down. Absent means Nomad's
    /// value for this number of nodes.
    pub heartbeat: Option<Duration>,
}

/// A running server with clients.
pub struct Cluster {
    /// The handle of the server.
    pub handle: Handle,
    router: Arc<Router>,
    /// The nodes by position, each with the token that stops its client.
    clients: BTreeMap<usize, CancellationToken>,
    tracker: TaskTracker,
    failures: mpsc::UnboundedSender<RpcError>,
    failed: mpsc::UnboundedReceiver<RpcError>,
    acknowledged: Arc<AtomicU64>,
    cancel: CancellationToken,
    run: JoinHandle<Result<(), ServerError>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

/// Returns the node of a position.
pub(crate) fn node(n: usize) -> Node {
    let mut node = caravan_sim::node(&format!("{n:08x}-0000-4000-8000-{n:012x}"));
    node.name = format!("node-{n}").into();
    node.secret_id = NodeSecret::new(format!("{n:08x}-5ec7-4000-8000-{n:012x}"));
    node.meta.insert("rack".into(), format!("r{}", n % RACKS));
    node
}

impl Cluster {
    /// Starts a server and registers all clients.
    ///
    /// # Errors
    /// Fails if the server cannot start, or refuses a client.
    pub async fn start(setup: &Setup) -> Result<Self, FleetError> {
        let log = match &setup.dir {
            Some(dir) => LogConfig::dir(ServerId(1), "127.0.0.1:4647", dir),
            // As many entries between snapshots as on disk.
            None => LogConfig { snapshot_after_entries: 8192, ..LogConfig::memory(ServerId(1)) },
        };
        // As many heartbeats a second as Nomad allows: fifty.
        let nodes = u32::try_from(setup.nodes).unwrap_or(u32::MAX);
        let usual = Duration::from_secs(10).max(Duration::from_secs(1) * nodes / 50);
        let heartbeat = match setup.heartbeat {
            Some(ttl) => HeartbeatConfig { min_ttl: ttl, grace: ttl, failover: 3 * ttl },
            None => HeartbeatConfig { min_ttl: usual, ..HeartbeatConfig::default() },
        };
        let config = ServerConfig {
            cluster: caravan_server::ClusterConfig::alone("s"),
            region: "global".into(),
            log,
            addresses: vec!["127.0.0.1:4647".into()],
            workers: caravan_server::Workers::all(setup.workers),
            heartbeat,
            lease: Lease::default(),
            volume_calls_per_plugin: caravan_server::CALLS_PER_PLUGIN,
            acl: Default::default(),
            issuer: None,
            gc: Default::default(),
            rejections: Default::default(),
            keyring: setup.dir.as_ref().map(|dir| dir.join("keyring")),
        };
        let (handle, service) = Service::start(config, ReverseRegistry::default()).await?;
        let cancel = CancellationToken::new();
        let run = tokio::spawn(service.run(cancel.clone()));
        let (failures, failed) = mpsc::unbounded_channel();
        let mut cluster = Self {
            router: handle.rpc().build(),
            handle,
            clients: BTreeMap::new(),
            tracker: TaskTracker::new(),
            failures,
            failed,
            acknowledged: Arc::default(),
            cancel,
            run,
        };
        cluster.join(0..setup.nodes).await?;
        Ok(cluster)
    }

    /// Registers the clients of these positions.
    ///
    /// # Errors
    /// Fails if the server refuses one.
    pub async fn join(&mut self, positions: impl IntoIterator<Item = usize>) -> Result<(), FleetError> {
        self.join_as(positions, |_| ()).await
    }

    /// Registers the clients of these positions with changed nodes.
    ///
    /// # Errors
    /// Fails if the server refuses one.
    pub async fn join_as(
        &mut self,
        positions: impl IntoIterator<Item = usize>,
        edit: impl Fn(&mut Node),
    ) -> Result<(), FleetError> {
        let positions: Vec<usize> = positions.into_iter().collect();
        let joined: Vec<_> = futures::stream::iter(positions)
            .map(|n| {
                let mut node = node(n);
                edit(&mut node);
                let client = SimClient::new(node, self.router.clone(), self.acknowledged.clone());
                async move {
                    let ttl = client.register().await;
                    (n, client, ttl)
                }
            })
            .buffer_unordered(JOINING)
            .collect()
            .await;
        for (n, client, ttl) in joined {
            let (ttl, cancel) = (ttl?, self.cancel.child_token());
            self.clients.insert(n, cancel.clone());
            let failures = self.failures.clone();
            self.tracker.spawn(async move {
                if let Err(error) = client.run(ttl, cancel).await {
                    // The receiver is dropped when the fleet ends.
                    let _ = failures.send(error);
                }
            });
        }
        Ok(())
    }

    /// Stops the clients of these positions without notice to the server.
    pub fn vanish(&mut self, positions: impl IntoIterator<Item = usize>) {
        for n in positions {
            if let Some(client) = self.clients.remove(&n) {
                client.cancel();
            }
        }
    }

    /// Returns the newest state.
    pub fn root(&self) -> Snapshot {
        self.handle.store().snapshot()
    }

    /// Returns the number of allocations that clients reported as running, and whose reports the server acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Checks that no client failed.
    ///
    /// # Errors
    /// Returns the error of a failed client.
    pub fn check(&mut self) -> Result<(), FleetError> {
        match self.failed.try_recv() {
            Ok(error) => Err(error.into()),
            Err(_) => Ok(()),
        }
    }

    /// Stops clients and server.
    ///
    /// # Errors
    /// Fails if the server does not stop cleanly.
    pub async fn stop(self) -> Result<(), FleetError> {
        for client in self.clients.values() {
            client.cancel();
        }
        self.tracker.close();
        self.tracker.wait().await;
        self.cancel.cancel();
        self.run.await??;
        Ok(())
    }
}
