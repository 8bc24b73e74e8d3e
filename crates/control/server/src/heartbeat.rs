//! Heartbeats: the deadline by which each node must send the next heartbeat.

use crate::core::Core;
use crate::error::ServerError;
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
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Timing of heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatConfig {
    /// The shortest interval between heartbeats.
    pub min_ttl: Duration,
    /// The time that is added to the interval before a node counts as down.
    pub grace: Duration,
    /// The time that every node receives when a server starts or becomes leader.
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
    deciding: Deciding,
}

/// The decision that is being recorded.
#[derive(Clone, Debug, Default)]
struct Deciding(Arc<watch::Sender<Pending>>);

/// A decision about a silent node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Pending {
    #[default]
    None,
    /// The silence of this node is being recorded.
    About(NodeId),
    /// The work of the term ended during a decision. The next leader may still commit the decision.
    Abandoned,
}

impl Deciding {
    /// Begins a decision. It is abandoned unless [`Decision::end`] is called.
    fn begin(&self, node: &NodeId) -> Decision<'_> {
        self.0.send_replace(Pending::About(node.clone()));
        Decision { deciding: self, after: Pending::Abandoned }
    }

    /// Waits until no decision about a node is in progress. Returns `false` if a decision was abandoned.
    async fn ended(&self, node: &NodeId) -> bool {
        let about = Pending::About(node.clone());
        // This value owns the sender.
        self.0.subscribe().wait_for(|now| *now != about).await.is_ok_and(|now| *now != Pending::Abandoned)
    }
}

/// A decision about a node that is in progress.
#[derive(Debug)]
struct Decision<'a> {
    deciding: &'a Deciding,
    after: Pending,
}

impl Decision<'_> {
    /// Ends a decision whose outcome is known.
    fn end(mut self) {
        self.after = Pending::None;
    }
}

impl Drop for Decision<'_> {
    fn drop(&mut self) {
        self.deciding.0.send_replace(std::mem::take(&mut self.after));
    }
}

impl Heartbeats {
    pub(crate) fn new(core: Core, config: HeartbeatConfig) -> Self {
        let (deadlines, changed, deciding) = Default::default();
        Self { core, config, deadlines, changed, deciding }
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
        // Random intervals prevent that nodes that started together send their heartbeats together.
        let ttl = self.config.min_ttl.mul_f64(1.0 + runtime::random_share());
        self.expect(node.clone(), ttl + self.config.grace);
        ttl
    }

    /// Waits until no decision about a node is in progress. After [`Self::beat`] and this call, the state shows
    /// whether the node counts as down. No decision from before the heartbeat follows. For example, a leader without
    /// a quorum cannot write that a node is silent. Its quorum returns, the server answers the node's heartbeat, and
    /// the write arrives after it.
    ///
    /// # Errors
    /// If the term ended during a decision, which the next leader may still commit.
    pub(crate) async fn decided(&self, node: &NodeId) -> Result<(), ServerError> {
        if self.deciding.ended(node).await { Ok(()) } else { Err(ServerError::NotLeader) }
    }

    fn expect(&self, node: NodeId, within: Duration) {
        let at = runtime::now() + within;
        let sooner = self.deadlines().insert(node, at).is_none_or(|before| at < before);
        if sooner {
            self.changed.notify_one();
        }
    }

    /// Watches the deadlines until cancelled, or until the next leader must complete a decision.
    pub(crate) async fn run(self, cancel: CancellationToken) {
        let mut restores = self.core.store.restores();
        self.expect_all();
        loop {
            let next = self.deadlines().values().min().copied();
            select! {
                () = cancel.cancelled() => return,
                () = self.changed.notified() => {}
                () = sleep_until(next) => select! {
                    // A decision may wait for a quorum that does not return.
                    () = cancel.cancelled() => return,
                    known = self.expire() => if !known { return },
                },
                // A restored state may have nodes that no heartbeat announced.
                () = self.core.store.replaced(restores) => {
                    restores = self.core.store.restores();
                    self.expect_all();
                }
            }
        }
    }

    /// Sets the deadline that a new leader grants for each node that is not down and has no deadline.
    fn expect_all(&self) {
        let failover = if planted!(NoFailover) { Duration::ZERO } else { self.config.failover };
        let (root, at) = (self.core.snapshot(), runtime::now() + failover);
        let mut deadlines = self.deadlines();
        for node in root.nodes().filter(|node| node.status != NodeStatus::Down) {
            // Some nodes may have sent a heartbeat already.
            deadlines.entry(node.id.clone()).or_insert(at);
        }
    }

    /// Records the nodes whose deadline has passed. Returns `false` if the next leader must complete a decision.
    async fn expire(&self) -> bool {
        let proved = self.core.log.read(None).await;
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
        if let Err(error) = proved {
            // Without a quorum this server answers no heartbeat, so the silence is not that of the nodes.
            tracing::warn!(%error, nodes = late.len(), "no quorum: overdue nodes get more time");
            late.into_iter().for_each(|node| self.expect(node, self.config.grace));
            return true;
        }
        for node in late {
            if !self.miss(node).await {
                return false;
            }
        }
        true
    }

    async fn miss(&self, node: NodeId) -> bool {
        let decision = self.deciding.begin(&node);
        let decided = self.decide(&node).await;
        // The write may be in the log. The server answers no heartbeat of the node before the outcome of the write is
        // known.
        if decided.is_err() && !self.core.settle().await {
            tracing::warn!(%node, "the status of a node is undecided; the next leader decides");
            return false;
        }
        decision.end();
        if let Err(error) = decided {
            tracing::error!(%node, %error, "a missed heartbeat could not be recorded; retrying");
            self.expect(node, self.config.grace);
        }
        true
    }

    /// Marks a node whose heartbeat is overdue as down, or as disconnected while an allocation on it may return.
    async fn decide(&self, node: &NodeId) -> Result<(), ServerError> {
        // The node may have sent a heartbeat after its deadline.
        if self.deadlines().contains_key(node) {
            return Ok(());
        }
        let now = self.core.now();
        let missed = node_evals::commit(&self.core, node, Trigger::NodeUpdate, |root, evals| {
            let before = root.node(node).map(|n| n.status).filter(|s| *s != NodeStatus::Down)?;
            let kept = self.core.kept_on(root, node);
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
        missed.await?;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::pin::pin;

    async fn register_a_ready_node(core: &Core) {
        let node = caravan_types::node::Node {
            id: "n".into(),
            status: NodeStatus::Ready,
            ..caravan_types::node::Node::default()
        };
        let register = NodeChange::NodeRegister { node: Box::new(node), evals: Vec::new() };
        core.commit(register.into()).await.unwrap();
    }

    /// A node that was down is ready again in the restored state. Without heartbeats, the node counts as down again.
    #[tokio::test]
    async fn nodes_of_a_restored_state_have_deadlines() {
        let core = Core::in_memory().await;
        let heartbeats = Heartbeats::new(core.clone(), HeartbeatConfig::default());
        let running = tokio::spawn(heartbeats.clone().run(CancellationToken::new()));
        register_a_ready_node(&core).await;
        assert_eq!(heartbeats.active(), 0, "a registration is recorded by its endpoint");
        let snapshot = caravan_state::encode(&core.snapshot());
        core.commit(caravan_types::command::Change::Restore { snapshot }).await.unwrap();
        let waiting = async {
            while heartbeats.active() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
        running.abort();
    }

    #[tokio::test]
    async fn a_heartbeat_waits_for_the_decision_about_its_node() {
        let (deciding, a, b) = (Deciding::default(), NodeId::from("a"), NodeId::from("b"));
        assert_eq!(deciding.ended(&a).now_or_never(), Some(true));
        let decision = deciding.begin(&a);
        let mut waiting = pin!(deciding.ended(&a));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(deciding.ended(&b).now_or_never(), Some(true));
        decision.end();
        assert!(waiting.await);
    }

    /// The end of a term waits for its tasks. A decision without a known outcome must not delay that end.
    #[tokio::test]
    async fn the_watch_ends_when_a_decision_is_left_to_the_next_leader() {
        let core = Core::in_memory().await;
        register_a_ready_node(&core).await;
        let config = HeartbeatConfig { failover: Duration::ZERO, ..HeartbeatConfig::default() };
        let of_another_term = core.in_term(crate::core::Term::new(1_000));
        let heartbeats = Heartbeats::new(of_another_term, config);
        let run = heartbeats.clone().run(CancellationToken::new());
        tokio::time::timeout(Duration::from_secs(30), run).await.unwrap();
        assert!(heartbeats.decided(&"n".into()).await.is_err());
    }

    #[tokio::test]
    async fn no_heartbeat_is_answered_after_an_abandoned_decision() {
        let (deciding, a, b) = (Deciding::default(), NodeId::from("a"), NodeId::from("b"));
        let decision = deciding.begin(&a);
        let waiting = deciding.ended(&a);
        drop(decision);
        assert!(!waiting.await);
        assert_eq!(deciding.ended(&b).now_or_never(), Some(false));
    }
}
