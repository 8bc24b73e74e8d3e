//! The requests of clients about themselves and their allocations.

use super::fault::NodeFault;
use crate::cluster::Addresses;
use crate::core::Core;
use crate::error::ServerError;
use crate::heartbeat::{Heartbeats, event, nanos};
use crate::node_evals;
use crate::node_identity;
use crate::reports::Reports;
use crate::runtime::{self, planted};
use caravan_messages::{self as messages, AllocDelta, Done, NodeContact};
use caravan_rpc::RpcError;
use caravan_state::{Arrivals, NodeWork, Root};
use caravan_types::command::{Change, NodeChange};
use caravan_types::eval::Trigger;
use caravan_types::node::{Node, NodeEvent, NodeSecret, NodeStatus};
use caravan_types::{Nanos, NodeId};
use futures::Stream;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a server's wait for the state of an index that a client has seen.
const LAG_TIMEOUT: Duration = Duration::from_secs(10);

/// The service for the clients' requests about nodes.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub(crate) core: Core,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) addresses: Addresses,
    /// The time after a heartbeat in which a node may use single-writer volumes.
    pub(crate) lease_ttl: Nanos,
    pub(crate) reports: Reports,
    /// The region of the nodes.
    pub(crate) region: String,
}

impl Nodes {
    /// Returns the node's row, if `proof` is the node's secret or an identity of the node.
    pub(crate) fn authentic(&self, id: &NodeId, proof: &NodeSecret) -> Result<Arc<Node>, ServerError> {
        let root = self.core.snapshot();
        let node = root.node(id).ok_or_else(|| NodeFault::NotFound(id.clone()))?;
        node_identity::check(&self.core, &self.region, node, proof)?;
        Ok(node.clone())
    }

    /// Does the same as [`Self::authentic`], but refuses a node only by the newest state, because the client does not
    /// repeat a refused report. For example, a server that wrongly considers itself the leader does not have a new
    /// node yet.
    pub(crate) async fn surely_authentic(
        &self,
        id: &NodeId,
        proof: &NodeSecret,
    ) -> Result<Arc<Node>, ServerError> {
        if let Ok(node) = self.authentic(id, proof) {
            return Ok(node);
        }
        self.core.prove_newest().await?;
        self.authentic(id, proof)
    }

    pub(crate) async fn register(&self, request: messages::NodeRegister) -> Result<NodeContact, ServerError> {
        let mut node = request.node;
        for (field, empty) in [
            ("ID", node.id.is_empty()),
            ("SecretID", node.secret_id.expose().is_empty()),
            ("Name", node.name.is_empty()),
            ("Datacenter", node.datacenter.is_empty()),
        ] {
            if empty {
                return Err(NodeFault::Missing(field).into());
            }
        }
        let root = self.core.snapshot();
        let before = root.node(&node.id).cloned();
        if let Some(before) = &before
            && before.secret_id != node.secret_id
        {
            return Err(NodeFault::OtherSecret(node.id).into());
        }
        node.status = before.as_deref().map_or(NodeStatus::Ready, |before| on_contact(&root, before));
        node.computed_class = node.class();
        if let Some(before) = &before
            && unchanged(before, &node)
        {
            self.prove().await?;
            let contact = self.contact(before);
            self.heartbeats.decided(&node.id).await?;
            let root = self.core.snapshot();
            let node = root.node(&node.id).ok_or_else(|| NodeFault::NotFound(node.id.clone()))?;
            return self.record_contact(node, contact).await;
        }
        let id = node.id.clone();
        let node = Box::new(node);
        let index = if concerns_jobs(before.as_deref(), &node) {
            // The same command writes the rows that the evaluations read.
            let register = |_: &Root, evals| Some(NodeChange::NodeRegister { node: node.clone(), evals });
            let done = node_evals::commit(&self.core, &id, Trigger::NodeUpdate, register).await?;
            done.map_or(0, |done| done.index)
        } else {
            self.core.commit(Change::NodeRegister { node, evals: Vec::new() }).await?
        };
        self.core.store.wait_for_index(index).await;
        let root = self.core.snapshot();
        Ok(self.contact(root.node(&id).ok_or_else(|| NodeFault::NotFound(id.clone()))?))
    }

    fn contact(&self, node: &Node) -> NodeContact {
        NodeContact {
            heartbeat_ttl: nanos(self.heartbeats.beat(&node.id)),
            index: node.modify_index,
            status: node.status,
            servers: self.addresses.list(),
            unknown: false,
            lease_ttl: self.lease_ttl,
            state_index: self.core.snapshot().index(),
            identity: None,
        }
    }

    /// Proves that this server leads, with a quorum round that begins now. The answer to a node extends the time in
    /// which the node may use single-writer volumes, so it must come from the only leader. For example, a leader
    /// whose machine slept could otherwise renew a node's lease while its successor waits for the end of that lease.
    async fn prove(&self) -> Result<(), ServerError> {
        if planted!(NoQuorumRound) {
            return Ok(());
        }
        self.core.log.read_quorum().await?;
        Ok(())
    }

    pub(crate) async fn heartbeat(
        &self,
        request: messages::NodeHeartbeat,
    ) -> Result<NodeContact, ServerError> {
        self.prove().await?;
        let find = || match self.authentic(&request.node_id, &request.secret) {
            Err(ServerError::Nodes(NodeFault::NotFound(_))) => Ok(None),
            other => other.map(Some),
        };
        let unknown = || Ok(NodeContact { unknown: true, ..NodeContact::default() });
        let Some(node) = find()? else { return unknown() };
        let contact = self.contact(&node);
        self.heartbeats.decided(&node.id).await?;
        let Some(node) = find()? else { return unknown() };
        self.record_contact(&node, contact).await
    }

    /// Records a heartbeat of a node, and updates its status.
    async fn record_contact(&self, node: &Node, contact: NodeContact) -> Result<NodeContact, ServerError> {
        let (root, now) = (self.core.snapshot(), self.core.now());
        let status = on_contact(&root, node);
        if status == node.status {
            return Ok(contact);
        }
        // Logged once, at the first heartbeat after a silence.
        let missed = matches!(node.status, NodeStatus::Down | NodeStatus::Disconnected);
        let event = missed.then(|| event("Cluster", "Node reregistered by heartbeat", now));
        let change =
            |evals| NodeChange::NodeStatus { node: node.id.clone(), status, event: event.clone(), evals };
        let index = if status == NodeStatus::Ready {
            let ready = |_: &Root, evals| Some(change(evals));
            let done = node_evals::commit(&self.core, &node.id, Trigger::NodeUpdate, ready).await?;
            done.map_or(0, |done| done.index)
        } else {
            self.core.commit(change(Vec::new()).into()).await?
        };
        self.core.store.wait_for_index(index).await;
        Ok(NodeContact { status, index, ..contact })
    }

    pub(crate) async fn events(&self, request: messages::NodeEvents) -> Result<Done, ServerError> {
        self.authentic(&request.node_id, &request.secret)?;
        let events: BTreeMap<NodeId, Vec<NodeEvent>> = BTreeMap::from([(request.node_id, request.events)]);
        Ok(Done { index: self.core.commit(Change::NodeEvents { events }).await? })
    }

    pub(crate) async fn alloc_status(&self, request: messages::AllocStatus) -> Result<Done, ServerError> {
        let node = self.surely_authentic(&request.node_id, &request.secret).await?;
        if node.status == NodeStatus::Disconnected {
            // The report counts as a heartbeat, so that it is not judged by the node's earlier silence.
            self.record_contact(&node, self.contact(&node)).await?;
        }
        let mut root = self.core.snapshot();
        if request.updates.iter().any(|update| root.alloc(&update.alloc_id).is_none()) {
            // A report about an allocation that an old state does not have yet must not be lost.
            self.core.prove_newest().await?;
            root = self.core.snapshot();
        }
        // A node reports its own allocations only; reports about removed allocations have no effect.
        let updates: Vec<_> = request
            .updates
            .into_iter()
            .filter(|u| root.alloc(&u.alloc_id).is_some_and(|a| a.node_id == request.node_id))
            .collect();
        if updates.is_empty() {
            return Ok(Done { index: root.index() });
        }
        let index = self.reports.submit(updates).await?;
        let node = self.core.snapshot().node(&request.node_id).cloned();
        if let Some(node) = node.filter(|node| node.status == NodeStatus::Initializing) {
            // The node is up to date and need not wait for its next heartbeat.
            self.record_contact(&node, NodeContact::default()).await?;
        }
        Ok(Done { index })
    }

    /// Returns the stream of a node's allocations: first all allocations, then changes.
    pub(crate) async fn watch(
        &self,
        request: messages::WatchAllocs,
    ) -> Result<impl Stream<Item = Result<AllocDelta, RpcError>> + Send + use<>, ServerError> {
        let after = if planted!(NoFloor) { 0 } else { request.after };
        let reached = self.core.store.wait_for_index(after);
        if runtime::timeout(LAG_TIMEOUT, reached).await.is_err() {
            return Err(NodeFault::Lagging { index: request.after }.into());
        }
        self.authentic(&request.node_id, &request.secret)?;
        let work = self.core.store.follow_node(request.node_id.clone());
        let watch = AllocWatch { core: self.core.clone(), node: request.node_id, work, whole: None };
        Ok(futures::stream::unfold(watch, |mut watch| async move {
            let delta = watch.next().await;
            Some((Ok(delta), watch))
        }))
    }
}

struct AllocWatch {
    core: Core,
    node: NodeId,
    work: NodeWork,
    /// Index of the state that the node received in full; `None` at the beginning.
    whole: Option<u64>,
}

impl AllocWatch {
    async fn next(&mut self) -> AllocDelta {
        loop {
            let arrivals = match self.whole {
                Some(_) => self.work.next().await,
                None => Arrivals::All,
            };
            let root = self.core.snapshot();
            if let Some(delta) = delta(&root, &self.node, arrivals, self.whole) {
                if delta.full {
                    self.whole = Some(delta.index);
                }
                return delta;
            }
        }
    }
}

/// Returns the changes that a node may lack after it received the whole state of index `whole`. The node may receive
/// the newest row of an allocation twice, because a snapshot can be newer than the last change that arrived.
fn delta(root: &Root, node: &NodeId, arrivals: Arrivals, whole: Option<u64>) -> Option<AllocDelta> {
    let empty = AllocDelta { index: root.index(), ..AllocDelta::default() };
    let (Arrivals::Some(mut ids), Some(whole)) = (arrivals, whole) else {
        return Some(AllocDelta {
            full: true,
            allocs: root.allocs_by_node(node).cloned().collect(),
            ..empty
        });
    };
    ids.sort_unstable();
    ids.dedup();
    let mut delta = empty;
    for id in ids {
        match root.alloc(&id) {
            Some(alloc) if alloc.alloc_modify_index <= whole => {}
            Some(alloc) => delta.allocs.push(Arc::clone(alloc)),
            None => delta.removed.push(id),
        }
    }
    (!delta.allocs.is_empty() || !delta.removed.is_empty()).then_some(delta)
}

/// Returns the status of a node after a heartbeat. A disconnected node becomes ready only after it has reported its
/// allocations, so that no decision uses unknown states.
fn on_contact(root: &Root, node: &Node) -> NodeStatus {
    if matches!(node.status, NodeStatus::Ready | NodeStatus::Down) {
        return NodeStatus::Ready;
    }
    let reported = node.last_missed_heartbeat_index == 0
        || node.last_alloc_update_index > node.last_missed_heartbeat_index;
    if reported || root.allocs_by_node(&node.id).all(|alloc| alloc.client_terminal()) {
        NodeStatus::Ready
    } else {
        NodeStatus::Initializing
    }
}

/// Returns whether a report contains no change.
fn unchanged(before: &Node, report: &Node) -> bool {
    let kept = Node {
        status: before.status,
        status_description: before.status_description.clone(),
        status_updated_at: before.status_updated_at,
        scheduling_eligibility: before.scheduling_eligibility,
        drain_strategy: before.drain_strategy.clone(),
        last_drain: before.last_drain.clone(),
        events: before.events.clone(),
        computed_class: before.computed_class.clone(),
        last_missed_heartbeat_index: before.last_missed_heartbeat_index,
        last_alloc_update_index: before.last_alloc_update_index,
        create_index: before.create_index,
        modify_index: before.modify_index,
        ..report.clone()
    };
    before.status == NodeStatus::Ready && kept == *before
}

/// Returns whether jobs must be evaluated again: system jobs may fit now, or no longer fit.
fn concerns_jobs(before: Option<&Node>, report: &Node) -> bool {
    let Some(before) = before else { return true };
    let healthy = |node: &Node| -> Vec<String> {
        node.drivers.iter().filter(|(_, d)| d.detected && d.healthy).map(|(name, _)| name.clone()).collect()
    };
    before.status != NodeStatus::Ready
        || before.attributes != report.attributes
        || before.meta != report.meta
        || before.datacenter != report.datacenter
        || before.node_pool != report.node_pool
        || before.node_class != report.node_class
        || healthy(before) != healthy(report)
        || before.node_resources != report.node_resources
        || before.host_volumes != report.host_volumes
}
