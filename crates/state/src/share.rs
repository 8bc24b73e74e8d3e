//! What allocations say alike is kept once: commands and snapshots bring each text and each count anew.

use crate::root::Root;
use caravan_types::alloc::{AllocatedResources, Allocation};
use caravan_types::eval::AllocMetric;
use caravan_types::small::Text;
use caravan_types::{DeploymentId, EvalId, NodeId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the last allocation of an evaluation and a group was made of.
struct Like {
    eval_id: EvalId,
    task_group: Text,
    deployment_id: DeploymentId,
    resources: Option<Arc<AllocatedResources>>,
    metrics: Option<Arc<AllocMetric>>,
}

/// What was read lately, to be shared by what is read next.
#[derive(Default)]
pub(crate) struct Sharing {
    nodes: HashSet<NodeId>,
    names: HashMap<NodeId, Text>,
    like: HashMap<EvalId, Vec<Like>>,
}

/// The same value, once.
fn same<T: PartialEq + Clone>(own: &mut T, other: &T) {
    if own == other {
        own.clone_from(other);
    }
}

impl Sharing {
    fn node(&mut self, root: &Root, id: &mut NodeId) {
        if let Some(known) = self.nodes.get(id) {
            *id = known.clone();
            return;
        }
        if let Some(node) = root.nodes.get(id) {
            *id = node.id.clone();
        }
        self.nodes.insert(id.clone());
    }

    fn node_name(&mut self, root: &Root, alloc: &mut Allocation) {
        if let Some(name) = self.names.get(&alloc.node_id) {
            same(&mut alloc.node_name, name);
            return;
        }
        if let Some(other) = root.allocs_by_node(&alloc.node_id).next() {
            same(&mut alloc.node_name, &other.node_name);
        }
        self.names.insert(alloc.node_id.clone(), alloc.node_name.clone());
    }

    /// Makes an allocation share what others, or the row that it replaces, have already.
    pub(crate) fn share(&mut self, root: &Root, alloc: &mut Allocation, old: Option<&Allocation>) {
        self.node(root, &mut alloc.node_id);
        self.node_name(root, alloc);
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
            let metrics = Arc::make_mut(metrics);
            metrics.score_meta_data.iter_mut().for_each(|score| self.node(root, &mut score.node_id));
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
        if let (Some(own), Some(other)) = (&mut alloc.metrics, &like.metrics) {
            // Not shared by anybody yet, so that nothing is copied.
            Arc::make_mut(own).share(other);
        }
        like.metrics.clone_from(&alloc.metrics);
    }
}
