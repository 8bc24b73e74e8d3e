//! Commands about nodes (docs/reference/http-api.md, section 6.5).

use super::Done;
use crate::tx::Tx;
use caravan_types::command::{DrainEnd, Refusal};
use caravan_types::eval::Evaluation;
use caravan_types::node::{DrainStrategy, Eligibility, LastDrain, Node, NodeEvent, NodeStatus};
use caravan_types::volume::{Claim, ConfirmedOff};
use caravan_types::{JobKey, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Stores the metadata and the caller of a change of a drain, if the change has them.
fn sign(last: &mut LastDrain, meta: &BTreeMap<String, String>, accessor: &str) {
    if !meta.is_empty() {
        last.meta.clone_from(meta);
    }
    if !accessor.is_empty() {
        accessor.clone_into(&mut last.accessor_id);
    }
}

impl Tx {
    fn node(&self, id: &NodeId) -> Result<Node, Refusal> {
        let found = self.root.node(id).map(|node| Node::clone(node));
        found.ok_or_else(|| Refusal::NotFound { what: format!("node {id}") })
    }

    fn event(&self, subsystem: &str, message: &str) -> NodeEvent {
        NodeEvent {
            message: message.to_owned(),
            subsystem: subsystem.to_owned(),
            timestamp: self.now.to_time(),
            ..Default::default()
        }
    }

    fn push(&self, node: &mut Node, event: NodeEvent) {
        let mut event = NodeEvent { create_index: self.index, ..event };
        if event.timestamp.is_zero() {
            event.timestamp = self.now.to_time();
        }
        node.push_event(event);
    }

    /// Writes evaluations that follow from a node's change, with the index of that change.
    pub(super) fn node_evals(&mut self, node: &NodeId, evals: &[Evaluation]) {
        let stamped: Vec<Evaluation> = evals
            .iter()
            .map(|eval| {
                let mut eval = eval.clone();
                if eval.node_id == *node && eval.node_modify_index == 0 {
                    eval.node_modify_index = self.index;
                }
                eval
            })
            .collect();
        self.evals(&stamped);
    }

    /// Refuses evaluations that do not cover all jobs that a node concerns.
    pub(super) fn reaches_all(&self, node: &NodeId, evals: &[Evaluation]) -> Done {
        let reached: BTreeSet<JobKey> = evals.iter().map(Evaluation::job_key).collect();
        if self.root.jobs_of_node(node).is_subset(&reached) {
            Ok(())
        } else {
            Err(Refusal::Changed { what: format!("what runs on node {node}") })
        }
    }

    /// Refuses a node whose secret differs from the recorded one. Servers check the secret before they propose. Of
    /// two concurrent first registrations, the order of the commands decides.
    pub(super) fn is_own(&self, node: &Node) -> Done {
        match self.root.node(&node.id) {
            Some(known) if known.secret_id != node.secret_id => {
                Err(Refusal::NodeSecret { node: node.id.to_string() })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn node_register(&mut self, reported: &Node) {
        let mut node = reported.clone();
        let events = std::mem::take(&mut node.events);
        let report = !events.is_empty();
        let old = self.root.node(&node.id).cloned();
        match &old {
            Some(old) => {
                node.events = old.events.clone();
                node.scheduling_eligibility = old.scheduling_eligibility;
                node.drain_strategy = old.drain_strategy.clone();
                node.last_drain = old.last_drain.clone();
                node.status_updated_at = old.status_updated_at;
                node.last_missed_heartbeat_index = old.last_missed_heartbeat_index;
                node.last_alloc_update_index = old.last_alloc_update_index;
                (node.create_index, node.modify_index) = (old.create_index, old.modify_index);
                if node.status != old.status {
                    self.status_moved(&mut node, old.status);
                }
                if old.status == NodeStatus::Down && !report {
                    let event = self.event("Cluster", "Node re-registered");
                    self.push(&mut node, event);
                }
            }
            None => {
                node.status_updated_at = self.now.as_secs();
                if !report {
                    let event = self.event("Cluster", "Node registered");
                    self.push(&mut node, event);
                }
            }
        }
        for event in events {
            self.push(&mut node, event);
        }
        // A report without a change must not wake the watchers of the node.
        if old.is_none_or(|old| *old != node) {
            self.put_node(node);
        }
    }

    /// Records a change of status. A silence keeps the index with which it began, because waits for the node's lease
    /// refer to that index.
    fn status_moved(&self, node: &mut Node, before: NodeStatus) {
        node.status_updated_at = self.now.as_secs();
        if before.in_contact() && !node.status.in_contact() {
            node.last_missed_heartbeat_index = self.index;
        }
    }

    pub(super) fn node_status(&mut self, id: &NodeId, status: NodeStatus, event: Option<&NodeEvent>) -> Done {
        let mut node = self.node(id)?;
        if node.status == status && event.is_none() {
            return Ok(());
        }
        if node.status != status {
            let before = std::mem::replace(&mut node.status, status);
            node.status_description = String::new();
            self.status_moved(&mut node, before);
        }
        if let Some(event) = event {
            self.push(&mut node, event.clone());
        }
        let down = node.status == NodeStatus::Down;
        self.put_node(node);
        if down {
            self.remove_services_of_node(id);
        }
        Ok(())
    }

    pub(super) fn node_events(&mut self, events: &BTreeMap<NodeId, Vec<NodeEvent>>) {
        for (id, events) in events {
            let Ok(mut node) = self.node(id) else { continue };
            for event in events {
                self.push(&mut node, event.clone());
            }
            self.put_node(node);
        }
    }

    pub(super) fn node_eligibility(&mut self, id: &NodeId, eligibility: Eligibility) -> Done {
        let mut node = self.node(id)?;
        if node.drain_strategy.is_some() && eligibility == Eligibility::Eligible {
            return Err(Refusal::Invalid(format!("node {id} cannot be made eligible while it is draining")));
        }
        if node.scheduling_eligibility == eligibility {
            return Ok(());
        }
        node.scheduling_eligibility = eligibility;
        let message = match eligibility {
            Eligibility::Eligible => "Node marked as eligible for scheduling",
            Eligibility::Ineligible => "Node marked as ineligible for scheduling",
        };
        let event = self.event("Cluster", message);
        self.push(&mut node, event);
        self.put_node(node);
        Ok(())
    }

    pub(super) fn node_drain(
        &mut self,
        id: &NodeId,
        drain: Option<&DrainStrategy>,
        eligible: bool,
        (meta, accessor): (&BTreeMap<String, String>, &str),
        end: Option<DrainEnd>,
    ) -> Done {
        let mut node = self.node(id)?;
        let was_draining = node.drain_strategy.is_some();
        let now = self.now.to_time();
        let message = match (drain, was_draining) {
            (Some(drain), _) => {
                node.scheduling_eligibility = Eligibility::Ineligible;
                let since = node.last_drain.take().filter(|_| was_draining);
                let mut last = LastDrain {
                    started_at: since.as_ref().map_or(now, |last| last.started_at),
                    updated_at: now,
                    status: "draining".to_owned(),
                    ..since.unwrap_or_default()
                };
                sign(&mut last, meta, accessor);
                node.last_drain = Some(last);
                node.drain_strategy = Some(drain.clone());
                if was_draining { "Node drain strategy updated" } else { "Node drain strategy set" }
            }
            (None, true) => {
                node.drain_strategy = None;
                let (status, message) = match end {
                    Some(_) => ("complete", "Node drain complete"),
                    None => ("canceled", "Node drain disabled"),
                };
                if let Some(last) = &mut node.last_drain {
                    last.updated_at = now;
                    last.status = status.to_owned();
                    sign(last, meta, accessor);
                }
                message
            }
            (None, false)
                if end.is_none() && eligible && node.scheduling_eligibility != Eligibility::Eligible =>
            {
                "Node drain disabled"
            }
            (None, false) => return Ok(()),
        };
        if drain.is_none() && eligible {
            node.scheduling_eligibility = Eligibility::Eligible;
        }
        let mut event = self.event("Drain", message);
        if end.is_some_and(|end| end.deadline_reached) {
            event.details.insert("deadline_reached".to_owned(), "true".to_owned());
        }
        self.push(&mut node, event);
        self.put_node(node);
        Ok(())
    }

    /// Records with a node and its claims that an operator confirmed that its machine is off.
    pub(super) fn node_fence(&mut self, id: &NodeId, off: &ConfirmedOff) -> Done {
        let claims: Vec<Arc<Claim>> =
            self.root.claims_by_node(id).filter(|claim| claim.phase.holds()).cloned().collect();
        match self.root.node(id).map(|node| Node::clone(node)) {
            Some(node) if node.status.in_contact() => {
                let (name, status) = (&node.name, node.status.as_str());
                return Err(Refusal::Invalid(format!(
                    "node {id} ({name}) is {status} and answers: only a node that is down or disconnected can be confirmed to be off"
                )));
            }
            Some(mut node) => {
                let message =
                    "Node confirmed to be off: its volumes are handed on without a wait for its lease";
                let mut event = self.event("Storage", message);
                event.details.insert("accessor_id".to_owned(), off.accessor_id.clone());
                event.details.insert("name".to_owned(), off.name.clone());
                self.push(&mut node, event);
                self.put_node(node);
            }
            None if claims.is_empty() => return Err(Refusal::NotFound { what: format!("node {id}") }),
            None => {}
        }
        for claim in claims {
            let mut claim = Claim { node_off: Some(off.clone()), ..Claim::clone(&claim) };
            let (phase, note) = (claim.phase, format!("{} confirmed that the node is off", off.by()));
            claim.note(self.now, phase, note);
            self.put_claim(claim);
        }
        Ok(())
    }

    pub(super) fn node_delete(&mut self, id: &NodeId) -> Done {
        self.node(id)?;
        self.remove_node(id);
        Ok(())
    }
}
