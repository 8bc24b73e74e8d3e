//! The sharing of equal values between allocations: decoding a command or a snapshot creates a copy of each text and
//! count.

use crate::root::Root;
use caravan_types::alloc::{AllocatedResources, Allocation};
use caravan_types::eval::AllocMetric;
use caravan_types::small::Text;
use caravan_types::{DeploymentId, EvalId, NodeId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The values of the last allocation of an evaluation and a group.
struct Like {
    eval_id: EvalId,
    task_group: Text,
    deployment_id: DeploymentId,
    resources: Option<Arc<AllocatedResources>>,
    metrics: Option<Arc<AllocMetric>>,
}

/// Recently decoded values, for sharing with the next allocations.
#[derive(Default)]
pub(crate) struct Sharing {
    nodes: HashMap<NodeId, (NodeId, Text)>,
    like: HashMap<EvalId, Vec<Like>>,
}

/// Replaces a value by a shared copy of an equal value.
fn same<T: PartialEq + Clone>(own: &mut T, other: &T) {
    if own == other {
        own.clone_from(other);
    }
}

impl Sharing {
    /// Replaces the id of a node by the shared id of the node's row. Returns the node's name.
    fn node(&mut self, root: &Root, id: &mut NodeId) -> Option<&Text> {
        let (known, name) = match self.nodes.entry(id.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let node = root.nodes.get(unknown.key())?;
                unknown.insert((node.id.clone(), node.name.clone()))
            }
        };
        *id = known.clone();
        Some(name)
    }

    /// Replaces values of an allocation by equal values of other allocations, or of the row that it replaces.
    pub(crate) fn share(&mut self, root: &Root, alloc: &mut Allocation, old: Option<&Allocation>) {
        if let Some(name) = self.node(root, &mut alloc.node_id) {
            same(&mut alloc.node_name, name);
        }
        if let Some(job) = &alloc.job {
            same(&mut alloc.job_id, &job.id);
            same(&mut alloc.namespace, &job.namespace);
        }
        if let Some(row) = root.deployments.get(&alloc.deployment_id) {
            alloc.deployment_id = row.id.clone();
        }
        if let Some(old) = old {
            same(&mut alloc.id, &old.id);
            same(&mut alloc.name, &old.name);
            same(&mut alloc.task_group, &old.task_group);
            same(&mut alloc.allocated_resources, &old.allocated_resources);
            if alloc.metrics == old.metrics {
                alloc.metrics.clone_from(&old.metrics);
                return;
            }
        }
        if let Some(metrics) = &mut alloc.metrics {
            // Other commands may share the values too: copy them only if that saves memory.
            let mut own = |id: &NodeId| {
                let mut shared = id.clone();
                self.node(root, &mut shared);
                shared.is_copy_of(id)
            };
            if !metrics.score_meta_data.iter().all(|score| own(&score.node_id)) {
                for score in &mut Arc::make_mut(metrics).score_meta_data {
                    self.node(root, &mut score.node_id);
                }
            }
        }
        let known = self.like.entry(alloc.eval_id.clone()).or_default();
        let Some(like) = known.iter_mut().find(|like| like.task_group == alloc.task_group) else {
            if let Some(eval) = root.evals.get(&alloc.eval_id) {
                alloc.eval_id = eval.id.clone();
            }
            known.push(Like {
                eval_id: alloc.eval_id.clone(),
                task_group: alloc.task_group.clone(),
                deployment_id: alloc.deployment_id.clone(),
                resources: alloc.allocated_resources.clone(),
                metrics: alloc.metrics.clone(),
            });
            return;
        };
        alloc.eval_id = like.eval_id.clone();
        alloc.task_group = like.task_group.clone();
        same(&mut alloc.deployment_id, &like.deployment_id);
        if alloc.allocated_resources == like.resources {
            alloc.allocated_resources.clone_from(&like.resources);
        } else {
            like.resources.clone_from(&alloc.allocated_resources);
        }
        if let (Some(own), Some(other)) = (&mut alloc.metrics, &like.metrics)
            && !Arc::ptr_eq(&own.counts, &other.counts)
            && own.counts == other.counts
        {
            Arc::make_mut(own).share(other);
        }
        like.metrics.clone_from(&alloc.metrics);
    }
}
