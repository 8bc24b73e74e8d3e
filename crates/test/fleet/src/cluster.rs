//! Servers and their clients.

use crate::client::SimClient;
use crate::servers::{self, Server};
use caravan_rpc::RpcError;
use caravan_server::{Handle, ServerError};
use caravan_state::Snapshot;
use caravan_types::node::{Node, NodeSecret};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
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
    /// The fleet had no progress for this time.
    #[error("nothing happened for {0:?}: {1}")]
    Stuck(Duration, String),
    /// The listener could not be set up.
    #[error("the address cannot be used: {0}")]
    Listener(#[from] std::io::Error),
    /// No server leads.
    #[error("no server leads")]
    NoLeader,
    /// A server could not become a member.
    #[error("the membership fails: {0}")]
    Members(String),
    /// A task of the fleet panicked.
    #[error("a task of the fleet broke")]
    Task(#[from] tokio::task::JoinError),
}

/// The options of a fleet.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of servers: 1, 3 or 5.
    pub servers: usize,
    /// The number of scheduling workers of each server.
    pub workers: usize,
    /// The directory of the logs; absent means in memory.
    pub dir: Option<PathBuf>,
    /// The least time between heartbeats, which is also the grace before a node counts as down. Absent means Nomad's
    /// value for this number of nodes.
    pub heartbeat: Option<Duration>,
}

impl Default for Setup {
    /// Returns one server in memory with two workers, without nodes.
    fn default() -> Self {
        Self { nodes: 0, servers: 1, workers: 2, dir: None, heartbeat: None }
    }
}

/// Running servers with clients.
pub struct Cluster {
    /// The handle of the leader.
    pub handle: Handle,
    servers: Vec<Server>,
    /// The nodes by position, each with the token that stops its client.
    clients: BTreeMap<usize, CancellationToken>,
    tracker: TaskTracker,
    failures: mpsc::UnboundedSender<RpcError>,
    failed: mpsc::UnboundedReceiver<RpcError>,
    acknowledged: Arc<AtomicU64>,
    cancel: CancellationToken,
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
    /// Starts the servers and registers all clients. Each server has an equal part of them.
    ///
    /// # Errors
    /// Fails if a server cannot start, or refuses a client.
    pub async fn start(setup: &Setup) -> Result<Self, FleetError> {
        let cancel = CancellationToken::new();
        let servers = servers::start(setup, &cancel).await?;
        let leader = servers::leader(&servers).ok_or(FleetError::NoLeader)?;
        let (failures, failed) = mpsc::unbounded_channel();
        let mut cluster = Self {
            handle: leader.handle.clone(),
            servers,
            clients: BTreeMap::new(),
            tracker: TaskTracker::new(),
            failures,
            failed,
            acknowledged: Arc::default(),
            cancel,
        };
        cluster.join(0..setup.nodes).await?;
        Ok(cluster)
    }

    /// Registers the clients of these positions.
    ///
    /// # Errors
    /// Fails if the server refuses a client.
    pub async fn join(&mut self, positions: impl IntoIterator<Item = usize>) -> Result<(), FleetError> {
        self.join_as(positions, |_| ()).await
    }

    /// Registers the clients of these positions with changed nodes.
    ///
    /// # Errors
    /// Fails if the server refuses a client.
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
                let router = self.servers[n % self.servers.len()].router.clone();
                let mut client = SimClient::new(node, router, self.acknowledged.clone());
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

    /// Returns the newest state of the leader.
    pub fn root(&self) -> Snapshot {
        self.handle.store().snapshot()
    }

    /// Returns the handles of all servers.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.servers.iter().map(|server| server.handle.clone()).collect()
    }

    /// Returns the newest state of each server.
    pub fn roots(&self) -> Vec<Snapshot> {
        self.servers.iter().map(|server| server.handle.store().snapshot()).collect()
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

    /// Stops clients and servers.
    ///
    /// # Errors
    /// Fails if a server does not stop cleanly.
    pub async fn stop(self) -> Result<(), FleetError> {
        for client in self.clients.values() {
            client.cancel();
        }
        self.tracker.close();
        self.tracker.wait().await;
        self.cancel.cancel();
        for server in self.servers {
            server.stopped().await?;
        }
        Ok(())
    }
}
