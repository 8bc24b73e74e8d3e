//! Checks of a settled cluster.

use caravan_state::Root;
use caravan_types::alloc::Amount;
use caravan_types::eval::EvalStatus;
use caravan_types::job::JobType;
use caravan_types::node::NodeStatus;
use std::collections::{BTreeMap, BTreeSet};

/// A violation in the state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Secondary indexes and derived rows do not match the other tables.
    State(String),
    /// The allocations of a node need more than the node has.
    Overcommitted {
        /// The name of the node.
        node: String,
        /// The exhausted resource.
        dimension: String,
    },
    /// Two desired allocations have one name (on one node, for system jobs).
    Doubled {
        /// The name of the allocations.
        name: String,
    },
    /// A group has another number of allocations than desired, and no evaluation of the job is blocked.
    Lost {
        /// The job and its group.
        group: String,
        /// The desired number.
        desired: u32,
        /// The actual number.
        found: u32,
    },
    /// An evaluation has not ended.
    Pending {
        /// The job of the evaluation.
        job: String,
    },
    /// An allocation that has not ended is on a node that must not have any.
    Stranded {
        /// The name of the allocation.
        name: String,
        /// The name of the node.
        node: String,
    },
}

/// Returns all violations in a settled cluster.
pub fn survey(root: &Root) -> Vec<Finding> {
    let mut found: Vec<Finding> = caravan_state::check(root).into_iter().map(Finding::State).collect();
    for eval in root.evals().filter(|eval| eval.status == EvalStatus::Pending && eval.wait_until.is_zero()) {
        found.push(Finding::Pending { job: eval.job_id.to_string() });
    }
    for node in root.nodes() {
        let used = root.used_of_node(&node.id);
        if let Some(dimension) = used.amount.lacking(Amount::default(), Amount::capacity(node)) {
            found.push(Finding::Overcommitted {
                node: node.name.to_string(),
                dimension: dimension.to_owned(),
            });
        }
    }
    for job in root.jobs().filter(|job| !job.is_template()) {
        let (mut names, mut counts) = (BTreeSet::new(), BTreeMap::<&str, u32>::new());
        for alloc in root.allocs_by_job(&job.key()) {
            let done = job.kind.is_batch() && alloc.client_terminal() && !alloc.server_terminal();
            if alloc.terminal() && !done {
                continue;
            }
            let home = if job.kind.is_system() { alloc.node_id.as_str() } else { "" };
            if !names.insert((&alloc.name, home)) {
                found.push(Finding::Doubled { name: alloc.name.clone() });
            }
            *counts.entry(&alloc.task_group).or_default() += 1;
            let gone = root
                .node(&alloc.node_id)
                .is_none_or(|node| node.status == NodeStatus::Down || node.drain_strategy.is_some());
            if gone && !alloc.client_terminal() {
                found.push(Finding::Stranded { name: alloc.name.clone(), node: alloc.node_name.to_string() });
            }
        }
        let blocked = root.evals_by_job(&job.key()).any(|eval| eval.status == EvalStatus::Blocked);
        for group in job.task_groups.iter().filter(|_| !job.is_stopped() && !blocked) {
            let found_of = counts.get(group.name.as_str()).copied().unwrap_or(0);
            let nodes = || root.nodes().filter(|node| node.is_schedulable()).count();
            let desired = match job.kind {
                JobType::System | JobType::Sysbatch => {
                    group.count.saturating_mul(u32::try_from(nodes()).unwrap_or(u32::MAX))
                }
                JobType::Service | JobType::Batch => group.count,
            };
            if found_of != desired {
                let group = format!("{}.{}", job.id, group.name);
                found.push(Finding::Lost { group, desired, found: found_of });
            }
        }
    }
    found
}
