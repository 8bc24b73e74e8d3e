//! Heartbeats: the time by which each node must send the next one.

use crate::core::Core;
use crate::node_evals;
use crate::runtime::{self, planted, select};
use caravan_types::command::NodeChange;
use caravan_types::eval::Trigger;
use caravan_types::node::{NodeEvent, NodeStatus};
use caravan_types::{Nanos, NodeId, UnixNanos};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Timing of heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatConfig {
    /// Shortest interval between heartbeats.
    pub min_ttl: Duration,
    /// Added to the interval before a node counts as down.
    pub grace: Duration,
    /// Granted to every node when a server starts or becomes leader.
    pub failover: Duration,
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self {
            min_ttl: Duration::from_secs(10),
            grace: Duration::from_secs(10),
            failover: Duration::from_secs(30),
        }
    }
}

/// Deadlines of the nodes, on the monotonic clock of this server.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeats {
    core: Core,
    config: HeartbeatConfig,
    deadlines: Arc<Mutex<BTreeMap<NodeId, Instant>>>,
    changed: Arc<Notify>,
}

impl Heartbeats {
    pub(crate) fn new(core: Core, config: HeartbeatConfig) -> Self {
        Self { core, config, deadlines: Arc::default(), changed: Arc::default() }
    }

    fn deadlines(&self) -> MutexGuard<'_, BTreeMap<NodeId, Instant>> {
        self.deadlines.lock()
    }

    /// Returns the number of nodes with a deadline.
    pub(crate) fn active(&self) -> usize {
        self.deadlines().len()
    }

    /// Records a heartbeat of a node. Returns the time within which its next heartbeat must arrive.
    pub(crate) fn beat(&self, node: &NodeId) -> Duration {
        // Spread the intervals, so that nodes that started together do not send together.
        let ttl = self.config.min_ttl.mul_f64(1.0 + runtime::random_share());
        self.expect(node.clone(), ttl + self.config.grace);
        ttl
    }

    fn expect(&self, node: NodeId, within: Duration) {
        let at = runtime::now() + within;
        let sooner = self.deadlines().insert(node, at).is_none_or(|before| at < before);
        if sooner {
            self.changed.notify_one();
        }
    }

    /// Watches the deadlines until cancelled.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let nodes: Vec<NodeId> = self
            .core
            .snapshot()
            .nodes()
            .filter(|n| n.status != NodeStatus::Down)
            .map(|n| n.id.clone())
            .collect();
        let failover = if planted!(NoFailover) { Duration::ZERO } else { self.config.failover };
        let at = runtime::now() + failover;
        for node in nodes {
            // Some nodes may have sent a heartbeat before this task ran.
            self.deadlines().entry(node).or_insert(at);
        }
        loop {
            let next = self.deadlines().values().min().copied();
            select! {
                () = cancel.cancelled() => return,
                () = self.changed.notified() => {}
                () = sleep_until(next) => self.expire().await,
            }
        }
    }

    async fn expire(&self) {
        let now = runtime::now();
        let late: Vec<NodeId> = {
            let mut deadlines = self.deadlines();
            let late: Vec<NodeId> =
                deadlines.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
            for id in &late {
                deadlines.remove(id);
            }
            late
        };
        for node in late {
            self.miss(node).await;
        }
    }

    /// Marks a node whose heartbeat is overdue as down, or as disconnected while an allocation on it may come back.
    async fn miss(&self, node: NodeId) {
        // The node may have sent a heartbeat after its deadline.
        if self.deadlines().contains_key(&node) {
            return;
        }
        let now = self.core.now();
        let missed = node_evals::commit(&self.core, &node, Trigger::NodeUpdate, |root, evals| {
            let before = root.node(&node).map(|n| n.status).filter(|s| *s != NodeStatus::Down)?;
            let kept = self.core.kept_on(root, &node);
            let status = if kept.is_some() { NodeStatus::Disconnected } else { NodeStatus::Down };
            if let Some(left) = kept {
                self.expect(node.clone(), left.to_std().max(Duration::from_millis(10)));
            }
            if status == before {
                return None;
            }
            tracing::warn!(%node, "heartbeat missed: the node counts as {}", status.as_str());
            let event = event("Cluster", "Node heartbeat missed", now);
            Some(NodeChange::NodeStatus { node: node.clone(), status, event: Some(event), evals })
        });
        if let Err(error) = missed.await {
            tracing::error!(%node, %error, "a node that was missed could not be recorded; trying again");
            self.expect(node, self.config.grace);
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => runtime::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns a node event of a subsystem.
pub(crate) fn event(subsystem: &str, message: &str, now: UnixNanos) -> NodeEvent {
    NodeEvent {
        message: message.to_owned(),
        subsystem: subsystem.to_owned(),
        timestamp: now.to_time(),
        ..Default::default()
    }
}

/// Returns a duration in its wire format.
pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::from_std(duration)
}
