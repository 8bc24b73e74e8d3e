//! Changes of a node that come with evaluations of every job that the node concerns.

use super::{Change, DrainEnd};
use crate::eval::Evaluation;
use crate::id::NodeId;
use crate::node::{DrainStrategy, Eligibility, Node, NodeEvent, NodeStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A change of a node that evaluations follow from. Names and fields are those of the same variants of [`Change`]: logs
/// written before hold a `Change` here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeChange {
    /// [`Change::NodeRegister`].
    NodeRegister {
        /// The node as reported.
        node: Box<Node>,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeStatus`].
    NodeStatus {
        /// Node.
        node: NodeId,
        /// New status.
        status: NodeStatus,
        /// Why, shown as a node event.
        event: Option<NodeEvent>,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeEligibility`].
    NodeEligibility {
        /// Node.
        node: NodeId,
        /// New value.
        eligibility: Eligibility,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeDrain`].
    NodeDrain {
        /// Node.
        node: NodeId,
        /// In force, or none.
        drain: Option<DrainStrategy>,
        /// Eligible once no drain is in force.
        mark_eligible: bool,
        /// Metadata, kept with the drain.
        #[serde(default)]
        meta: BTreeMap<String, String>,
        /// Why a drain ended by itself; none when a user sets or ends it.
        #[serde(default)]
        end: Option<DrainEnd>,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// [`Change::NodeDelete`].
    NodeDelete {
        /// Node.
        node: NodeId,
        /// Evaluations that follow from it.
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
            NodeChange::NodeDrain { node, drain, mark_eligible, meta, end, evals } => {
                Self::NodeDrain { node, drain, mark_eligible, meta, end, evals }
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
