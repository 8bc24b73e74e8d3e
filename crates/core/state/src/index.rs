//! Secondary indexes: sets of (index key, primary key), updated together with the primary tables.

use crate::root::Root;
use caravan_types::alloc::{Allocation, Amount, Used};
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::service::ServiceRegistration;
use caravan_types::variable::{Variable, VariableKey};
use caravan_types::volume::{Claim, ClaimId, Volume};
use caravan_types::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobKey, Namespace, NodeId, PluginId, ServiceId, VolumeKey,
};
use imbl::{OrdMap, OrdSet};
use std::collections::BTreeSet;

/// The key of a storage: a plugin with an external id or a name.
pub(crate) type Storage = (PluginId, String);

/// All secondary indexes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Indexes {
    pub(crate) nodes_by_plugin: OrdSet<(PluginId, NodeId)>,
    pub(crate) jobs_by_plugin: OrdSet<(PluginId, JobKey)>,
    /// The jobs that place an allocation on every node.
    pub(crate) jobs_of_all_nodes: OrdSet<JobKey>,
    pub(crate) evals_by_age: OrdSet<(u64, EvalId)>,
    pub(crate) allocs_by_age: OrdSet<(u64, AllocId)>,
    pub(crate) deployments_by_age: OrdSet<(u64, DeploymentId)>,
    pub(crate) evals_by_job: OrdSet<(JobKey, EvalId)>,
    pub(crate) allocs_by_job: OrdSet<(JobKey, AllocId)>,
    pub(crate) allocs_by_node: OrdSet<(NodeId, AllocId)>,
    pub(crate) allocs_by_eval: OrdSet<(EvalId, AllocId)>,
    pub(crate) deployments_by_job: OrdSet<(JobKey, DeploymentId)>,
    pub(crate) volumes_by_plugin: OrdSet<(PluginId, VolumeKey)>,
    /// The volumes by plugin and external id of their storage.
    pub(crate) volumes_by_storage: OrdSet<(Storage, VolumeKey)>,
    /// The volumes by plugin and name, if the plugin has not yet reported an external id.
    pub(crate) volumes_by_name: OrdSet<(Storage, VolumeKey)>,
    /// The claims that hold a storage, by plugin and external id.
    pub(crate) claims_by_storage: OrdSet<(Storage, ClaimId)>,
    /// The resources of each node that its live allocations use.
    pub(crate) used_of_nodes: OrdMap<NodeId, Used>,
    pub(crate) claims_by_alloc: OrdSet<(AllocId, ClaimId)>,
    pub(crate) claims_by_node: OrdSet<(NodeId, ClaimId)>,
    pub(crate) host_volumes_by_node: OrdSet<(NodeId, HostVolumeId)>,
    pub(crate) host_claims_by_job: OrdSet<(JobKey, String)>,
    pub(crate) host_claims_by_volume: OrdSet<(HostVolumeId, String)>,
    pub(crate) services_by_name: OrdSet<((Namespace, String), ServiceId)>,
    pub(crate) services_by_alloc: OrdSet<(AllocId, ServiceId)>,
    pub(crate) services_by_node: OrdSet<(NodeId, ServiceId)>,
    pub(crate) services_by_job: OrdSet<(JobKey, ServiceId)>,
    /// The variables with a lock.
    pub(crate) locked_variables: OrdSet<VariableKey>,
}

/// Inserts or removes an entry.
fn set<A: Ord + Clone>(index: &mut OrdSet<A>, entry: A, present: bool) {
    if present {
        index.insert(entry);
    } else {
        index.remove(&entry);
    }
}

/// Returns the plugins that a node reports, for either service or for their mounts.
pub(crate) fn plugins_of_node(node: &Node) -> BTreeSet<&PluginId> {
    let left = node.left_mounts.iter().map(|mount| &mount.plugin_id);
    node.csi_controller_plugins.keys().chain(node.csi_node_plugins.keys()).chain(left).collect()
}

/// Returns the plugins that a job's tasks run.
pub(crate) fn plugins_of_job(job: &Job) -> BTreeSet<&PluginId> {
    let tasks = job.task_groups.iter().flat_map(|g| &g.tasks);
    tasks.filter_map(|t| t.csi_plugin_config.as_ref().map(|c| &c.id)).collect()
}

impl Indexes {
    pub(crate) fn node(&mut self, node: &Node, present: bool) {
        for plugin in plugins_of_node(node) {
            set(&mut self.nodes_by_plugin, (plugin.clone(), node.id.clone()), present);
        }
    }
    pub(crate) fn job(&mut self, job: &Job, present: bool) {
        for plugin in plugins_of_job(job) {
            set(&mut self.jobs_by_plugin, (plugin.clone(), job.key()), present);
        }
        if job.kind.is_system() && !job.is_stopped() && !job.is_template() {
            set(&mut self.jobs_of_all_nodes, job.key(), present);
        }
    }
    pub(crate) fn eval(&mut self, eval: &Evaluation, present: bool) {
        set(&mut self.evals_by_age, (eval.create_index, eval.id.clone()), present);
        set(&mut self.evals_by_job, (eval.job_key(), eval.id.clone()), present);
    }

    /// Updates the indexes for a changed evaluation; most changes concern no index.
    pub(crate) fn eval_changes(&mut self, old: &Evaluation, new: &Evaluation) {
        if old.create_index != new.create_index || old.job_key() != new.job_key() {
            self.eval(old, false);
            self.eval(new, true);
        }
    }

    pub(crate) fn alloc(&mut self, alloc: &Allocation, present: bool) {
        set(&mut self.allocs_by_age, (alloc.create_index, alloc.id.clone()), present);
        set(&mut self.allocs_by_job, (alloc.job_key(), alloc.id.clone()), present);
        set(&mut self.allocs_by_node, (alloc.node_id.clone(), alloc.id.clone()), present);
        set(&mut self.allocs_by_eval, (alloc.eval_id.clone(), alloc.id.clone()), present);
        self.uses(alloc, present);
    }

    /// Updates the indexes for a changed allocation; most changes concern no index.
    pub(crate) fn alloc_changes(&mut self, old: &Allocation, new: &Allocation) {
        let stays = old.create_index == new.create_index
            && old.node_id == new.node_id
            && old.eval_id == new.eval_id
            && old.job_id == new.job_id
            && old.namespace == new.namespace;
        if !stays {
            self.alloc(old, false);
            self.alloc(new, true);
        } else if old.client_terminal() != new.client_terminal()
            || old.allocated_resources != new.allocated_resources
        {
            self.uses(old, false);
            self.uses(new, true);
        }
    }

    fn uses(&mut self, alloc: &Allocation, present: bool) {
        if alloc.client_terminal() {
            return;
        }
        let mut used = self.used_of_nodes.get(&alloc.node_id).copied().unwrap_or_default();
        let amount = Amount::of_alloc(alloc);
        if present {
            used.amount = used.amount.plus(amount);
            used.allocs += 1;
        } else {
            used.amount = used.amount.minus(amount);
            used.allocs = used.allocs.saturating_sub(1);
        }
        if used.allocs == 0 {
            self.used_of_nodes.remove(&alloc.node_id);
        } else {
            self.used_of_nodes.insert(alloc.node_id.clone(), used);
        }
    }
    pub(crate) fn deployment(&mut self, row: &Deployment, present: bool) {
        let job = JobKey { namespace: row.namespace.clone(), id: row.job_id.clone() };
        set(&mut self.deployments_by_age, (row.create_index, row.id.clone()), present);
        set(&mut self.deployments_by_job, (job, row.id.clone()), present);
    }

    /// Updates the indexes for a changed deployment; most changes concern no index.
    pub(crate) fn deployment_changes(&mut self, old: &Deployment, new: &Deployment) {
        if old.create_index != new.create_index || old.job_key() != new.job_key() {
            self.deployment(old, false);
            self.deployment(new, true);
        }
    }

    pub(crate) fn volume(&mut self, volume: &Volume, present: bool) {
        set(&mut self.volumes_by_plugin, (volume.plugin_id.clone(), volume.key()), present);
        let plugin = volume.plugin_id.clone();
        match volume.storage() {
            Some(id) => set(&mut self.volumes_by_storage, ((plugin, id.to_owned()), volume.key()), present),
            None => set(&mut self.volumes_by_name, ((plugin, volume.name.clone()), volume.key()), present),
        }
    }
    pub(crate) fn claim(&mut self, claim: &Claim, present: bool) {
        set(&mut self.claims_by_alloc, (claim.id.alloc.clone(), claim.id.clone()), present);
        set(&mut self.claims_by_node, (claim.node_id.clone(), claim.id.clone()), present);
        if claim.phase.holds() && !claim.external_volume_id.is_empty() {
            let storage = (claim.plugin_id.clone(), claim.external_volume_id.clone());
            set(&mut self.claims_by_storage, (storage, claim.id.clone()), present);
        }
    }
    pub(crate) fn host_volume(&mut self, row: &HostVolume, present: bool) {
        set(&mut self.host_volumes_by_node, (row.node_id.clone(), row.id.clone()), present);
    }
    pub(crate) fn host_claim(&mut self, row: &HostVolumeClaim, present: bool) {
        let job = JobKey { namespace: row.namespace.clone(), id: row.job_id.clone() };
        set(&mut self.host_claims_by_job, (job, row.id.clone()), present);
        set(&mut self.host_claims_by_volume, (row.volume_id.clone(), row.id.clone()), present);
    }

    pub(crate) fn service(&mut self, row: &ServiceRegistration, present: bool) {
        let name = (row.namespace.clone(), row.service_name.clone());
        set(&mut self.services_by_name, (name, row.id.clone()), present);
        set(&mut self.services_by_alloc, (row.alloc_id.clone(), row.id.clone()), present);
        set(&mut self.services_by_node, (row.node_id.clone(), row.id.clone()), present);
        set(&mut self.services_by_job, (row.job_key(), row.id.clone()), present);
    }

    /// Updates the index for a written variable, which may have had a row before.
    pub(crate) fn variable(&mut self, row: &Variable, present: bool) {
        let locked = present && row.lock.is_some();
        if locked != self.locked_variables.contains(&row.key) {
            set(&mut self.locked_variables, row.key.clone(), locked);
        }
    }

    /// Builds all indexes from the primary tables.
    pub(crate) fn rebuilt(root: &Root) -> Self {
        let mut all = Self::default();
        root.nodes.values().for_each(|row| all.node(row, true));
        root.jobs.values().for_each(|row| all.job(row, true));
        root.evals.values().for_each(|row| all.eval(row, true));
        root.allocs.values().for_each(|row| all.alloc(row, true));
        root.deployments.values().for_each(|row| all.deployment(row, true));
        root.volumes.values().for_each(|row| all.volume(row, true));
        root.claims.values().for_each(|row| all.claim(row, true));
        root.host_volumes.values().for_each(|row| all.host_volume(row, true));
        root.host_claims.values().for_each(|row| all.host_claim(row, true));
        root.services.values().for_each(|row| all.service(row, true));
        root.variables.values().for_each(|row| all.variable(row, true));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The indexes after a change equal those of the new row alone.
    #[test]
    fn a_changed_row_leaves_nothing_of_the_old_one() {
        let eval = |job: &str, create_index| Evaluation {
            id: "e".into(),
            job_id: job.into(),
            create_index,
            ..Evaluation::default()
        };
        let deployment = |job: &str, create_index| Deployment {
            id: "d".into(),
            job_id: job.into(),
            create_index,
            ..Deployment::default()
        };
        for (job, create_index) in [("web", 1), ("api", 1), ("web", 2)] {
            let (mut changed, mut fresh) = (Indexes::default(), Indexes::default());
            changed.eval(&eval("web", 1), true);
            changed.eval_changes(&eval("web", 1), &eval(job, create_index));
            fresh.eval(&eval(job, create_index), true);
            changed.deployment(&deployment("web", 1), true);
            changed.deployment_changes(&deployment("web", 1), &deployment(job, create_index));
            fresh.deployment(&deployment(job, create_index), true);
            assert_eq!(changed, fresh, "{job} {create_index}");
        }
    }
}
