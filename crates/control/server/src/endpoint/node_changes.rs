//! Users' changes of nodes: drains, eligibility, removal (docs/reference/http-api.md, sections 3.3 and 6.5).

use super::Nodes;
use super::fault::NodeFault;
use crate::error::ServerError;
use crate::node_evals::{self, NodeUpdated};
use caravan_types::command::{Change, NodeChange, Refusal};
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::node::{DrainStrategy, Eligibility, Node, NodeStatus};
use caravan_types::volume::ConfirmedOff;
use caravan_types::{Nanos, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A drain request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainRequest {
    /// The time for allocations to stop: a negative value forces them, 0 sets no limit. `None` ends the current
    /// drain.
    pub deadline: Option<Nanos>,
    /// Whether system jobs stay on the node.
    pub ignore_system_jobs: bool,
    /// Whether the node becomes eligible when a drain ends.
    pub mark_eligible: bool,
    /// Metadata, stored with the drain.
    pub meta: BTreeMap<String, String>,
    /// The identity of the caller, stored with the drain.
    pub accessor: String,
}

impl Nodes {
    fn row(&self, id: &NodeId) -> Result<Arc<Node>, NodeFault> {
        self.core.snapshot().node(id).cloned().ok_or(NodeFault::NothingToChange)
    }

    /// Commits a change that concerns no job.
    async fn change(&self, change: Change) -> Result<NodeUpdated, ServerError> {
        Ok(NodeUpdated { index: self.core.commit(change).await?, evals: Vec::new() })
    }

    /// Commits a change with evaluations of all jobs that the node concerns.
    async fn whole(
        &self,
        id: &NodeId,
        change: impl Fn(Vec<Evaluation>) -> NodeChange,
    ) -> Result<NodeUpdated, ServerError> {
        let done = node_evals::commit(&self.core, id, Trigger::NodeUpdate, |_, evals| Some(change(evals)));
        Ok(done.await?.unwrap_or_default())
    }

    /// Starts, changes or ends the drain of a node.
    ///
    /// # Errors
    /// If the node does not exist.
    pub async fn drain(&self, id: &NodeId, request: DrainRequest) -> Result<NodeUpdated, ServerError> {
        let node = self.row(id)?;
        let now = self.core.now();
        let drain = request.deadline.map(|deadline| DrainStrategy {
            deadline,
            ignore_system_jobs: request.ignore_system_jobs,
            force_deadline: if deadline.0 > 0 { now.plus(deadline).to_time() } else { Default::default() },
            started_at: node.drain_strategy.as_ref().map_or(now.to_time(), |drain| drain.started_at),
        });
        let eligible = drain.is_none() && request.mark_eligible;
        let change = |evals| NodeChange::NodeDrain {
            node: id.clone(),
            drain: drain.clone(),
            mark_eligible: eligible,
            meta: request.meta.clone(),
            accessor: request.accessor.clone(),
            end: None,
            evals,
        };
        if eligible { self.whole(id, change).await } else { self.change(change(Vec::new()).into()).await }
    }

    /// Sets whether a node accepts new placements.
    ///
    /// # Errors
    /// If the node does not exist, or it is draining and would become eligible.
    pub async fn set_eligibility(
        &self,
        id: &NodeId,
        eligibility: Eligibility,
    ) -> Result<NodeUpdated, ServerError> {
        let node = self.row(id)?;
        if eligibility == Eligibility::Eligible && node.drain_strategy.is_some() {
            return Err(NodeFault::Draining.into());
        }
        let turns = eligibility == Eligibility::Eligible && node.scheduling_eligibility != eligibility;
        let change = |evals| NodeChange::NodeEligibility { node: id.clone(), eligibility, evals };
        if turns { self.whole(id, change).await } else { self.change(change(Vec::new()).into()).await }
    }

    /// Creates evaluations for the jobs with allocations on a node.
    ///
    /// # Errors
    /// If the node does not exist.
    pub async fn evaluate(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.row(id)?;
        let evals = node_evals::for_node(&self.core.snapshot(), id, Trigger::NodeUpdate, self.core.now());
        let ids = evals.iter().map(|eval| eval.id.clone()).collect();
        let done = self.change(Change::Evals { evals }).await?;
        Ok(NodeUpdated { evals: ids, ..done })
    }

    /// Confirms that the machine of a node is off. The node's volumes are then released without a wait for the node's
    /// lease.
    ///
    /// # Errors
    /// If the node is in contact, or neither it nor its claims exist.
    pub async fn fence(
        &self,
        id: &NodeId,
        accessor_id: String,
        name: String,
    ) -> Result<NodeUpdated, ServerError> {
        let off = ConfirmedOff { accessor_id, name, at: self.core.now() };
        tracing::warn!(node = %id, by = off.by(), "recording the confirmation that a node is off");
        let outcome = self.core.propose(Change::NodeFence { node: id.clone(), off }).await?;
        match outcome.refused {
            None => Ok(NodeUpdated { index: outcome.index, evals: Vec::new() }),
            Some(Refusal::NotFound { .. }) => Err(NodeFault::NothingToFence(id.clone()).into()),
            Some(refusal) => Err(NodeFault::Fence(refusal).into()),
        }
    }

    /// Deregisters a node.
    ///
    /// # Errors
    /// If the node does not exist.
    pub async fn purge(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        let node = self.row(id)?;
        if node.status == NodeStatus::Ready {
            tracing::warn!(node = %id, "deregistering a node in contact; it registers again if it runs");
        }
        self.whole(id, |evals| NodeChange::NodeDelete { node: id.clone(), evals }).await
    }
}
