//! Users' changes of nodes: drains, eligibility, removal (docs/reference/http-api.md, sections 3.3 and 6.5).

use super::Nodes;
use crate::error::{Kind, ServerError};
use crate::node_evals::{self, NodeUpdated};
use caravan_types::command::{Change, Refusal};
use caravan_types::eval::{Evaluation, Trigger};
use caravan_types::node::{DrainStrategy, Eligibility, Node, NodeStatus};
use caravan_types::volume::ConfirmedOff;
use caravan_types::{Nanos, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A drain request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainRequest {
    /// The time for allocations to stop: negative forces them, 0 is without limit. `None` ends the current drain.
    pub deadline: Option<Nanos>,
    /// Keeps system jobs on the node.
    pub ignore_system_jobs: bool,
    /// Makes the node eligible when a drain ends.
    pub mark_eligible: bool,
    /// Metadata, stored with the drain.
    pub meta: BTreeMap<String, String>,
}

impl Nodes {
    fn row(&self, id: &NodeId) -> Result<Arc<Node>, ServerError> {
        // Nomad returns 500, and clients match on it.
        self.core
            .snapshot()
            .node(id)
            .cloned()
            .ok_or_else(|| ServerError::new(Kind::Refused, "node not found"))
    }

    /// Commits a change that concerns no job.
    async fn change(&self, change: Change) -> Result<NodeUpdated, ServerError> {
        Ok(NodeUpdated { index: self.core.commit(change).await?, evals: Vec::new() })
    }

    /// Commits a change with evaluations of all jobs that the node concerns.
    async fn whole(
        &self,
        id: &NodeId,
        change: impl Fn(Vec<Evaluation>) -> Change,
    ) -> Result<NodeUpdated, ServerError> {
        let done = node_evals::commit(&self.core, id, Trigger::NodeUpdate, |_, evals| Some(change(evals)));
        Ok(done.await?.unwrap_or_default())
    }

    pub(crate) async fn drain(&self, id: &NodeId, request: DrainRequest) -> Result<NodeUpdated, ServerError> {
        let node = self.row(id)?;
        let now = self.core.now();
        let drain = request.deadline.map(|deadline| DrainStrategy {
            deadline,
            ignore_system_jobs: request.ignore_system_jobs,
            force_deadline: if deadline.0 > 0 { now.plus(deadline).to_time() } else { Default::default() },
            started_at: node.drain_strategy.as_ref().map_or(now.to_time(), |drain| drain.started_at),
        });
        let eligible = drain.is_none() && request.mark_eligible;
        let change = |evals| Change::NodeDrain {
            node: id.clone(),
            drain: drain.clone(),
            mark_eligible: eligible,
            meta: request.meta.clone(),
            end: None,
            evals,
        };
        if eligible { self.whole(id, change).await } else { self.change(change(Vec::new())).await }
    }

    pub(crate) async fn eligibility(
        &self,
        id: &NodeId,
        eligibility: Eligibility,
    ) -> Result<NodeUpdated, ServerError> {
        let node = self.row(id)?;
        if eligibility == Eligibility::Eligible && node.drain_strategy.is_some() {
            return Err(ServerError::refused(
                "can not set node's scheduling eligibility to eligible while it is draining",
            ));
        }
        let turns = eligibility == Eligibility::Eligible && node.scheduling_eligibility != eligibility;
        let change = |evals| Change::NodeEligibility { node: id.clone(), eligibility, evals };
        if turns { self.whole(id, change).await } else { self.change(change(Vec::new())).await }
    }

    /// Creates evaluations for all jobs with allocations on the node.
    pub(crate) async fn evaluate(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        self.row(id)?;
        let evals = node_evals::for_node(&self.core.snapshot(), id, Trigger::NodeUpdate, self.core.now());
        let ids = evals.iter().map(|eval| eval.id.clone()).collect();
        let done = self.change(Change::Evals { evals }).await?;
        Ok(NodeUpdated { evals: ids, ..done })
    }

    /// Records an operator's confirmation that the machine of a node is off: its volumes are handed over without
    /// waiting for its lease.
    pub(crate) async fn fence(&self, id: &NodeId, off: ConfirmedOff) -> Result<NodeUpdated, ServerError> {
        tracing::warn!(node = %id, by = off.by(), "a node is confirmed to be off");
        let outcome = self.core.propose(Change::NodeFence { node: id.clone(), off }).await?;
        match outcome.refused {
            None => Ok(NodeUpdated { index: outcome.index, evals: Vec::new() }),
            Some(Refusal::NotFound { .. }) => {
                Err(ServerError::not_found(format!("node {id} is not known, and no volume waits for it")))
            }
            // The error concerns the caller's statement about the node.
            Some(refusal) => Err(ServerError::new(Kind::BadRequest, refusal.to_string())),
        }
    }

    /// Deregisters a node. Its allocations count as lost, and its claims are fenced before volumes are handed over.
    pub(crate) async fn purge(&self, id: &NodeId) -> Result<NodeUpdated, ServerError> {
        let node = self.row(id)?;
        if node.status == NodeStatus::Ready {
            tracing::warn!(node = %id, "a node in contact is removed; it registers again if it still runs");
        }
        self.whole(id, |evals| Change::NodeDelete { node: id.clone(), evals }).await
    }
}
