//! The requests that other parts send to a server, by subject.

use super::{ClusterRequests, Handle, Parts};
use crate::admin::Admin;
use crate::broker::{BrokerDepth, QueueFigures};
use crate::cluster::PATH_TIMEOUT;
use crate::deployment::Deployments;
use crate::endpoint::{Evals, Jobs, Nodes};
use crate::error::ServerError;
use crate::gc;
use crate::node_identity;
use crate::pool::Workers;
use crate::reasons::ReasonChanges;
use crate::storage::{HostVolumeRequests, SnapshotRequests, VariableRequests, VolumeRequests};
use caravan_consensus::Leadership;
use caravan_meters::Meters;
use caravan_rpc::Channel;
use caravan_state::Store;
use caravan_types::NodeId;
use caravan_types::command::Change;
use caravan_types::node::{NodeSecret, NodeStatus};
use std::sync::Arc;
use tokio::sync::watch;

/// The reason that a node cannot be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPath {
    /// The node missed its heartbeats.
    #[error("the node is down")]
    Down,
    /// The node missed its heartbeats, and its allocations may return.
    #[error("the node is disconnected")]
    Disconnected,
    /// The node did not connect in time.
    #[error("the node has no connection to a server, and made none within {PATH_TIMEOUT:?}")]
    Late,
    /// No such node is registered.
    #[error("the node is not registered")]
    Unknown,
}

impl Handle {
    /// Returns the requests about jobs and their allocations.
    pub fn jobs(&self) -> Jobs {
        self.parts().jobs.clone()
    }

    /// Returns the requests about nodes and the services on them.
    pub fn nodes(&self) -> Nodes {
        self.parts().nodes.clone()
    }

    /// Returns the requests about evaluations.
    pub fn evals(&self) -> Evals {
        Evals(self.parts().core.clone())
    }

    /// Returns the requests about deployments.
    pub fn deployments(&self) -> Deployments {
        Deployments(self.parts().core.clone())
    }

    /// Returns the requests about CSI volumes.
    pub fn volumes(&self) -> VolumeRequests {
        VolumeRequests(self.parts())
    }

    /// Returns the requests about host volumes.
    pub fn host_volumes(&self) -> HostVolumeRequests {
        HostVolumeRequests(self.parts())
    }

    /// Returns the requests about snapshots of CSI volumes.
    pub fn snapshots(&self) -> SnapshotRequests {
        SnapshotRequests(self.parts())
    }

    /// Returns the requests about variables and their locks.
    pub fn variables(&self) -> VariableRequests {
        VariableRequests(self.parts())
    }

    /// Returns the requests about the servers of the cluster.
    pub fn cluster(&self) -> ClusterRequests<'_> {
        ClusterRequests(self)
    }

    /// Returns the requests about this server's workers and queues.
    pub fn scheduling(&self) -> Scheduling<'_> {
        Scheduling(self)
    }

    /// Returns the state store.
    pub fn store(&self) -> &Arc<Store> {
        &self.blueprint.core.store
    }

    /// Returns the endpoint for operators' changes.
    pub fn admin(&self) -> Arc<Admin> {
        self.parts().admin.clone()
    }

    /// Returns the RPC addresses of the servers.
    pub fn addresses(&self) -> Vec<String> {
        self.blueprint.addresses.list()
    }

    /// Waits until this server no longer leads; returns immediately if it does not lead.
    pub async fn ended_leading(&self) {
        let mut parts = self.current.subscribe();
        // This handle owns the sender.
        let _ = parts.wait_for(|parts| parts.core.term.is_none()).await;
    }

    /// Waits until this server has other parts, because a term began or ended.
    pub(crate) async fn replaced(&self, parts: &Arc<Parts>) {
        let mut current = self.current.subscribe();
        // This handle owns the sender.
        let _ = current.wait_for(|now| !Arc::ptr_eq(now, parts)).await;
    }

    /// Returns the log's reports about the leader.
    pub(crate) fn leadership(&self) -> watch::Receiver<Leadership> {
        self.blueprint.core.log.leadership()
    }

    /// Returns the volumes whose wait reasons change from now on, also if another server leads. While the result
    /// lives, this server follows the leader's reasons.
    pub fn reason_changes(&self) -> ReasonChanges {
        ReasonChanges::new(self.current.subscribe(), self.blueprint.mirror.clone())
    }

    /// Whether this server is the leader.
    pub fn is_leader(&self) -> bool {
        self.parts().core.term.is_some()
    }

    /// Returns the metrics of the replicated log.
    pub fn log_metrics(&self) -> caravan_consensus::Metrics {
        self.blueprint.core.log.metrics()
    }

    /// Returns counters and timings of scheduling and plans since the server started.
    pub fn meters(&self) -> &Meters {
        &self.blueprint.core.meters
    }

    /// Returns a connection to a node. A node that is not down gets some time to connect. For example, a node has
    /// just registered, or is connecting to another server.
    ///
    /// # Errors
    /// If the node is down, or does not connect in time.
    pub async fn node_channel(&self, node: &NodeId) -> Result<Channel, NoPath> {
        let paths = &self.blueprint.paths;
        let look = || {
            if let Ok(channel) = paths.get(node.as_str()) {
                return Some(Ok(channel));
            }
            match self.store().snapshot().node(node).map(|node| node.status) {
                Some(NodeStatus::Initializing | NodeStatus::Ready) => None,
                Some(NodeStatus::Down) => Some(Err(NoPath::Down)),
                Some(NodeStatus::Disconnected) => Some(Err(NoPath::Disconnected)),
                None => Some(Err(NoPath::Unknown)),
            }
        };
        paths.until(look).await.unwrap_or(Err(NoPath::Late))
    }

    /// Returns whether a text is the secret or an identity of the node, or `None` if the node is not registered
    /// (yet).
    pub fn is_node(&self, node: &NodeId, proof: &str) -> Option<bool> {
        let root = self.store().snapshot();
        let row = root.node(node)?;
        let (core, region) = (&self.blueprint.core, &self.blueprint.cluster.region);
        Some(node_identity::check(core, region, row, &NodeSecret::new(proof)).is_ok())
    }

    /// Deletes all evaluations, allocations, deployments, jobs and nodes that have ended, regardless of age.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn collect_garbage(&self) -> Result<(), ServerError> {
        gc::collect(&self.parts().core, &gc::Ages::default()).await
    }

    /// Returns an index that includes everything committed before the call.
    ///
    /// # Errors
    /// If there is no leader.
    pub async fn barrier(&self) -> Result<u64, ServerError> {
        self.parts().core.commit(Change::Noop).await
    }
}

/// The requests about the workers and queues of a server.
#[derive(Clone, Copy, Debug)]
pub struct Scheduling<'a>(&'a Handle);

impl Scheduling<'_> {
    /// Returns the depths of the queues.
    pub fn depth(self) -> BrokerDepth {
        self.0.parts().broker.depth()
    }

    /// Returns the numbers of waiting evaluations and plans, by cause.
    pub fn queues(self) -> QueueFigures {
        let parts = self.0.parts();
        QueueFigures {
            plans: parts.planner.depth(),
            heartbeats: parts.heartbeats.active(),
            ..parts.broker.figures()
        }
    }

    /// Returns the number of workers that schedule, and the types of evaluations that they process.
    pub fn workers(self) -> Workers {
        self.0.pool.settings()
    }

    /// Sets the number of workers that schedule, and the types of evaluations that they process, until the server
    /// ends.
    pub fn set_workers(self, workers: Workers) {
        self.0.pool.set(workers);
    }
}
