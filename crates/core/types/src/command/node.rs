//! Changes of a node that come with evaluations of every job that the node concerns.

use super::{Change, DrainEnd};
use crate::eval::Evaluation;
use crate::id::NodeId;
use crate::node::{DrainStrategy, Eligibility, Node, NodeEvent, NodeStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A change of a node from which evaluations follow. Names and fields are those of the same variants of [`Change`],
/// because older logs contain a `Change` in this place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeChange {
    /// [`Change::NodeRegister`].
    NodeRegister {
        /// The node, as its client reported it.
        node: Box<Node>,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeStatus`].
    NodeStatus {
        /// The UUID of the node.
        node: NodeId,
        /// The status that the node has from now on.
        status: NodeStatus,
        /// The reason, shown as a node event.
        event: Option<NodeEvent>,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeEligibility`].
    NodeEligibility {
        /// The UUID of the node.
        node: NodeId,
        /// The eligibility that the node has from now on.
        eligibility: Eligibility,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeDrain`].
    NodeDrain {
        /// The UUID of the node.
        node: NodeId,
        /// The drain strategy, or `None` to end the drain.
        drain: Option<DrainStrategy>,
        /// Whether the node becomes eligible when no drain is in force.
        mark_eligible: bool,
        /// Metadata that is stored with the drain.
        #[serde(default)]
        meta: BTreeMap<String, String>,
        /// The identity of the caller, or empty for the end of a drain by itself and in logs of earlier versions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        accessor: String,
        /// How the drain ended by itself; `None` when a user sets or ends it.
        #[serde(default)]
        end: Option<DrainEnd>,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeDelete`].
    NodeDelete {
        /// The UUID of the node.
        node: NodeId,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
}

impl From<NodeChange> for Change {
    /// Returns the same change without the condition of [`Change::NodeWhole`].
    fn from(change: NodeChange) -> Self {
        match change {
            NodeChange::NodeRegister { node, evals } => Self::NodeRegister { node, evals },
            NodeChange::NodeStatus { node, status, event, evals } => {
                Self::NodeStatus { node, status, event, evals }
            }
            NodeChange::NodeEligibility { node, eligibility, evals } => {
                Self::NodeEligibility { node, eligibility, evals }
            }
            NodeChange::NodeDrain { node, drain, mark_eligible, meta, accessor, end, evals } => {
                Self::NodeDrain { node, drain, mark_eligible, meta, accessor, end, evals }
            }
            NodeChange::NodeDelete { node, evals } => Self::NodeDelete { node, evals },
        }
    }
}

impl NodeChange {
    /// Returns the evaluations that follow from the change.
    pub fn evals(&self) -> &[Evaluation] {
        match self {
            Self::NodeRegister { evals, .. }
            | Self::NodeStatus { evals, .. }
            | Self::NodeEligibility { evals, .. }
            | Self::NodeDrain { evals, .. }
            | Self::NodeDelete { evals, .. } => evals,
        }
    }

    /// Returns the name of the kind, which is that of the same variant of [`Change`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NodeRegister { .. } => "NodeRegister",
            Self::NodeStatus { .. } => "NodeStatus",
            Self::NodeEligibility { .. } => "NodeEligibility",
            Self::NodeDrain { .. } => "NodeDrain",
            Self::NodeDelete { .. } => "NodeDelete",
        }
    }
}

#[cfg(test)]
mod tests;
