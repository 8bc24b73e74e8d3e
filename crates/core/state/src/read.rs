//! The reads of the state: lookups, lists in key order, and lists by secondary index.

use crate::root::{Root, ScalingEvents};
use caravan_types::alloc::Allocation;
use caravan_types::command::JobSource;
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::plugin::Plugin;
use caravan_types::service::ServiceRegistration;
use caravan_types::variable::{Variable, VariableKey, VariableLock};
use caravan_types::volume::{Claim, ClaimId, Volume};
use caravan_types::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobId, JobKey, Namespace, NodeId, PluginId, ServiceId,
    UnixNanos, VolumeId, VolumeKey,
};
use imbl::{OrdMap, OrdSet};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Returns the rows of an index entry, in the order of their primary keys.
fn indexed<'a, I, K, V>(
    index: &'a OrdSet<(I, K)>,
    rows: &'a OrdMap<K, Arc<V>>,
    of: &I,
) -> impl Iterator<Item = &'a Arc<V>> + use<'a, I, K, V>
where
    I: Ord + Clone,
    K: Ord + Clone + Default,
{
    let of = of.clone();
    index
        .range((of.clone(), K::default())..)
        .take_while(move |(key, _)| *key == of)
        .filter_map(|(_, primary)| rows.get(primary))
}

/// Returns rows ordered by create index and id, from a position on: oldest first, or newest first.
fn aged<'a, K, V>(
    index: &'a OrdSet<(u64, K)>,
    rows: &'a OrdMap<K, Arc<V>>,
    from: Option<(u64, K)>,
    newest_first: bool,
) -> Box<dyn Iterator<Item = &'a Arc<V>> + 'a>
where
    K: Ord + Clone,
{
    let row = |(_, id): &(u64, K)| rows.get(id);
    match (from, newest_first) {
        (None, false) => Box::new(index.iter().filter_map(row)),
        (None, true) => Box::new(index.iter().rev().filter_map(row)),
        (Some(from), false) => Box::new(index.range(from..).filter_map(row)),
        (Some(from), true) => Box::new(index.range(..=from).rev().filter_map(row)),
    }
}

/// Returns the rows whose id begins with a text.
fn prefixed<'a, K, V>(
    rows: &'a OrdMap<K, Arc<V>>,
    prefix: &str,
) -> impl Iterator<Item = &'a Arc<V>> + use<'a, K, V>
where
    K: Ord + Clone + Borrow<str>,
{
    let prefix = prefix.to_owned();
    rows.range::<_, str>((Bound::Included(prefix.as_str()), Bound::Unbounded))
        .take_while(move |(key, _)| (*key).borrow().starts_with(prefix.as_str()))
        .map(|(_, row)| row)
}

impl Root {
    /// Returns a node.
    pub fn node(&self, id: &NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(id)
    }
    /// Returns all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }
    /// Returns the nodes whose id begins with a text.
    pub fn nodes_with_prefix<'a>(&'a self, prefix: &str) -> impl Iterator<Item = &'a Arc<Node>> + use<'a> {
        prefixed(&self.nodes, prefix)
    }
    /// Returns the nodes that report a plugin, for either service.
    pub fn nodes_by_plugin<'a>(&'a self, id: &PluginId) -> impl Iterator<Item = &'a Arc<Node>> + use<'a> {
        indexed(&self.secondary.nodes_by_plugin, &self.nodes, id)
    }

    /// Returns the newest version of a job.
    pub fn job(&self, key: &JobKey) -> Option<&Arc<Job>> {
        self.jobs.get(key)
    }
    /// Returns all jobs, by namespace and id.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }
    /// Returns the jobs of a namespace (with `None`, of all namespaces) whose id begins with a text.
    pub fn jobs_with_prefix<'a>(
        &'a self,
        namespace: Option<&Namespace>,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Job>> + use<'a> {
        let from = match namespace {
            Some(ns) => JobKey { namespace: ns.clone(), id: JobId::new(prefix) },
            None => JobKey::default(),
        };
        // Within one namespace the matches are adjacent, so the scan ends at the first mismatch.
        let (namespace, prefix, stop) = (namespace.cloned(), prefix.to_owned(), prefix.to_owned());
        self.jobs
            .range(from..)
            .take_while(move |(key, _)| {
                namespace.as_ref().is_none_or(|ns| key.namespace == *ns && key.id.as_str().starts_with(&stop))
            })
            .filter(move |(key, _)| key.id.as_str().starts_with(&prefix))
            .map(|(_, row)| row)
    }
    /// Returns the jobs that run a plugin, including stopped jobs.
    pub fn jobs_by_plugin<'a>(&'a self, id: &PluginId) -> impl Iterator<Item = &'a Arc<Job>> + use<'a> {
        indexed(&self.secondary.jobs_by_plugin, &self.jobs, id)
    }
    /// Returns the children of a periodic or parameterized job.
    pub fn children<'a>(&'a self, parent: &JobKey) -> impl Iterator<Item = &'a Arc<Job>> + use<'a> {
        let id: JobId = parent.id.clone();
        self.jobs_with_prefix(Some(&parent.namespace), &format!("{id}/"))
            .filter(move |job| job.parent_id == id)
    }
    /// Returns the child that a dispatch with this token created; `None` for an empty token.
    pub fn dispatched_with(&self, parent: &JobKey, token: &str) -> Option<&Arc<Job>> {
        if token.is_empty() {
            return None;
        }
        self.children(parent).find(|child| child.dispatch_idempotency_token == token)
    }
    /// Returns the time at which a periodic job created its last child, or its registration time if it has no child.
    pub fn periodic_launch(&self, key: &JobKey) -> Option<UnixNanos> {
        self.periodic_launches.get(key).copied()
    }
    /// Returns one of the kept versions of a job.
    pub fn job_version(&self, key: &JobKey, version: u64) -> Option<&Arc<Job>> {
        self.versions.get(&(key.clone(), version))
    }
    /// Returns the kept versions of a job, newest first.
    pub fn job_versions<'a>(
        &'a self,
        key: &JobKey,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<Job>> + use<'a> {
        self.versions.range((key.clone(), 0)..=(key.clone(), u64::MAX)).map(|(_, row)| row).rev()
    }
    /// Returns the scaling events of a job, by group, newest first.
    pub fn scaling_events(&self, key: &JobKey) -> Option<&Arc<ScalingEvents>> {
        self.scaling_events.get(key)
    }
    /// Returns the text with which a version was submitted.
    pub fn submission(&self, key: &JobKey, version: u64) -> Option<&Arc<JobSource>> {
        self.submissions.get(&(key.clone(), version))
    }

    /// Returns an evaluation.
    pub fn eval(&self, id: &EvalId) -> Option<&Arc<Evaluation>> {
        self.evals.get(id)
    }
    /// Returns all evaluations.
    pub fn evals(&self) -> impl Iterator<Item = &Arc<Evaluation>> {
        self.evals.values()
    }
    /// Returns the evaluations whose id begins with a text.
    pub fn evals_with_prefix<'a>(
        &'a self,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Evaluation>> + use<'a> {
        prefixed(&self.evals, prefix)
    }
    /// Returns evaluations by age, from a create index and id on.
    pub fn evals_by_age(
        &self,
        from: Option<(u64, EvalId)>,
        newest_first: bool,
    ) -> Box<dyn Iterator<Item = &Arc<Evaluation>> + '_> {
        aged(&self.secondary.evals_by_age, &self.evals, from, newest_first)
    }
    /// Returns the evaluations of a job.
    pub fn evals_by_job<'a>(&'a self, key: &JobKey) -> impl Iterator<Item = &'a Arc<Evaluation>> + use<'a> {
        indexed(&self.secondary.evals_by_job, &self.evals, key)
    }

    /// Returns an allocation.
    pub fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>> {
        self.allocs.get(id)
    }
    /// Returns all allocations.
    pub fn allocs(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocs.values()
    }
    /// Returns the allocations whose id begins with a text.
    pub fn allocs_with_prefix<'a>(
        &'a self,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> {
        prefixed(&self.allocs, prefix)
    }
    /// Returns allocations by age, from a create index and id on.
    pub fn allocs_by_age(
        &self,
        from: Option<(u64, AllocId)>,
        newest_first: bool,
    ) -> Box<dyn Iterator<Item = &Arc<Allocation>> + '_> {
        aged(&self.secondary.allocs_by_age, &self.allocs, from, newest_first)
    }
    /// Returns the allocations of a job, including those of an earlier job of the same id.
    pub fn allocs_by_job<'a>(&'a self, key: &JobKey) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> {
        indexed(&self.secondary.allocs_by_job, &self.allocs, key)
    }
    /// Returns the allocations on a node.
    pub fn allocs_by_node<'a>(&'a self, id: &NodeId) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> {
        indexed(&self.secondary.allocs_by_node, &self.allocs, id)
    }
    /// Returns the jobs that a node concerns: jobs with live allocations on it, and system jobs that place an
    /// allocation on every node.
    pub fn jobs_of_node(&self, id: &NodeId) -> BTreeSet<JobKey> {
        let there = self.allocs_by_node(id).filter(|alloc| !alloc.terminal()).map(|alloc| alloc.job_key());
        let everywhere = self.secondary.jobs_of_all_nodes.iter().cloned();
        there.chain(everywhere).filter(|key| self.jobs.contains_key(key)).collect()
    }
    /// Returns, by node id, the resources in use by allocations whose client has not reported their end.
    pub fn used_of_nodes(&self) -> impl Iterator<Item = (&NodeId, caravan_types::alloc::Used)> {
        self.secondary.used_of_nodes.iter().map(|(id, used)| (id, *used))
    }

    /// Returns the resources in use on one node.
    pub fn used_of_node(&self, id: &NodeId) -> caravan_types::alloc::Used {
        self.secondary.used_of_nodes.get(id).copied().unwrap_or_default()
    }
    /// Returns the allocations that an evaluation created or last changed.
    pub fn allocs_by_eval<'a>(&'a self, id: &EvalId) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> {
        indexed(&self.secondary.allocs_by_eval, &self.allocs, id)
    }

    /// Returns a deployment.
    pub fn deployment(&self, id: &DeploymentId) -> Option<&Arc<Deployment>> {
        self.deployments.get(id)
    }
    /// Returns all deployments.
    pub fn deployments(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.values()
    }
    /// Returns the deployments whose id begins with a text.
    pub fn deployments_with_prefix<'a>(
        &'a self,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Deployment>> + use<'a> {
        prefixed(&self.deployments, prefix)
    }
    /// Returns deployments by age, from a create index and id on.
    pub fn deployments_by_age(
        &self,
        from: Option<(u64, DeploymentId)>,
        newest_first: bool,
    ) -> Box<dyn Iterator<Item = &Arc<Deployment>> + '_> {
        aged(&self.secondary.deployments_by_age, &self.deployments, from, newest_first)
    }
    /// Returns the deployments of a job.
    pub fn deployments_by_job<'a>(
        &'a self,
        key: &JobKey,
    ) -> impl Iterator<Item = &'a Arc<Deployment>> + use<'a> {
        indexed(&self.secondary.deployments_by_job, &self.deployments, key)
    }

    /// Returns a volume.
    pub fn volume(&self, key: &VolumeKey) -> Option<&Arc<Volume>> {
        self.volumes.get(key)
    }
    /// Returns all volumes, by namespace and id.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.volumes.values()
    }
    /// Returns the volumes of a namespace (with `None`, of all namespaces) whose id begins with a text.
    pub fn volumes_with_prefix<'a>(
        &'a self,
        namespace: Option<&Namespace>,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Volume>> + use<'a> {
        let from = match namespace {
            Some(ns) => VolumeKey { namespace: ns.clone(), id: VolumeId::new(prefix) },
            None => VolumeKey::default(),
        };
        // Within one namespace the matches are adjacent, so the scan ends at the first mismatch.
        let (namespace, prefix, stop) = (namespace.cloned(), prefix.to_owned(), prefix.to_owned());
        self.volumes
            .range(from..)
            .take_while(move |(key, _)| {
                namespace.as_ref().is_none_or(|ns| key.namespace == *ns && key.id.as_str().starts_with(&stop))
            })
            .filter(move |(key, _)| key.id.as_str().starts_with(&prefix))
            .map(|(_, row)| row)
    }
    /// Returns the volumes of a plugin.
    pub fn volumes_by_plugin<'a>(&'a self, id: &PluginId) -> impl Iterator<Item = &'a Arc<Volume>> + use<'a> {
        indexed(&self.secondary.volumes_by_plugin, &self.volumes, id)
    }

    /// Returns the volumes that stand for a storage of a plugin. There is one, unless several declare that they share
    /// the storage or an earlier version permitted several.
    pub fn volumes_on<'a>(
        &'a self,
        plugin: &PluginId,
        storage: &str,
    ) -> impl Iterator<Item = &'a Arc<Volume>> + use<'a> {
        let storage = (plugin.clone(), storage.to_owned());
        indexed(&self.secondary.volumes_by_storage, &self.volumes, &storage)
    }
    /// Returns the other volumes that stand for a volume's storage.
    pub fn twins<'a>(&'a self, volume: &Volume) -> impl Iterator<Item = &'a Arc<Volume>> + use<'a> {
        let key = volume.key();
        let on_storage = volume.storage().map(|storage| self.volumes_on(&volume.plugin_id, storage));
        on_storage.into_iter().flatten().filter(move |other| other.key() != key)
    }
    /// Returns the other volumes of a plugin with the same name whose external id the plugin has not yet reported.
    pub(crate) fn namesakes<'a>(
        &'a self,
        volume: &Volume,
    ) -> impl Iterator<Item = &'a Arc<Volume>> + use<'a> {
        let (key, name) = (volume.key(), (volume.plugin_id.clone(), volume.name.clone()));
        let named = indexed(&self.secondary.volumes_by_name, &self.volumes, &name);
        named.filter(move |other| other.key() != key)
    }
    /// Returns the claims that hold a storage of a plugin, by any volume.
    pub fn claims_on<'a>(
        &'a self,
        plugin: &PluginId,
        storage: &str,
    ) -> impl Iterator<Item = &'a Arc<Claim>> + use<'a> {
        let storage = (plugin.clone(), storage.to_owned());
        indexed(&self.secondary.claims_by_storage, &self.claims, &storage)
    }
    /// Returns the claims on a volume, including ended claims, and claims of other volumes that hold its storage.
    pub fn claims_beside<'a>(&'a self, key: &VolumeKey) -> impl Iterator<Item = &'a Arc<Claim>> + use<'a> {
        let (own, volume) = (key.clone(), self.volume(key));
        let on_storage = volume.and_then(|row| Some(self.claims_on(&row.plugin_id, row.storage()?)));
        let others = on_storage.into_iter().flatten().filter(move |claim| claim.id.volume != own);
        self.claims_of(key).chain(others)
    }

    /// Returns a claim.
    pub fn claim(&self, id: &ClaimId) -> Option<&Arc<Claim>> {
        self.claims.get(id)
    }
    /// Returns all claims, including ended claims.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.values()
    }
    /// Returns the claims on a volume, including ended claims.
    pub fn claims_of<'a>(&'a self, key: &VolumeKey) -> impl Iterator<Item = &'a Arc<Claim>> + use<'a> {
        let from = ClaimId { volume: key.clone(), alloc: AllocId::default() };
        let key = key.clone();
        self.claims.range(from..).take_while(move |(id, _)| id.volume == key).map(|(_, row)| row)
    }
    /// Returns the claims of allocations on a node.
    pub fn claims_by_node<'a>(&'a self, id: &NodeId) -> impl Iterator<Item = &'a Arc<Claim>> + use<'a> {
        indexed(&self.secondary.claims_by_node, &self.claims, id)
    }
    /// Returns the claims of an allocation.
    pub fn claims_by_alloc<'a>(&'a self, id: &AllocId) -> impl Iterator<Item = &'a Arc<Claim>> + use<'a> {
        indexed(&self.secondary.claims_by_alloc, &self.claims, id)
    }

    /// Returns a variable.
    pub fn variable(&self, key: &VariableKey) -> Option<&Arc<Variable>> {
        self.variables.get(key)
    }
    /// Returns all variables, by namespace and path.
    pub fn variables(&self) -> impl Iterator<Item = &Arc<Variable>> {
        self.variables.values()
    }
    /// Returns the variables with a lock, and their locks.
    pub fn locked_variables(&self) -> impl Iterator<Item = (&VariableKey, &VariableLock)> {
        let rows = self.secondary.locked_variables.iter();
        rows.filter_map(|key| Some((key, self.variables.get(key)?.lock.as_ref()?)))
    }
    /// Returns the variables of a namespace (with `None`, of all namespaces) whose path begins with a text.
    pub fn variables_with_prefix<'a>(
        &'a self,
        namespace: Option<&Namespace>,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Variable>> + use<'a> {
        let from = namespace.map_or_else(VariableKey::default, |ns| VariableKey::new(ns.clone(), prefix));
        let (namespace, prefix, stop) = (namespace.cloned(), prefix.to_owned(), prefix.to_owned());
        self.variables
            .range(from..)
            .take_while(move |(key, _)| {
                namespace
                    .as_ref()
                    .is_none_or(|ns| key.namespace == *ns && key.path.as_str().starts_with(&stop))
            })
            .filter(move |(key, _)| key.path.as_str().starts_with(&prefix))
            .map(|(_, row)| row)
    }

    /// Returns a plugin.
    pub fn plugin(&self, id: &PluginId) -> Option<&Arc<Plugin>> {
        self.plugins.get(id)
    }
    /// Returns all plugins.
    pub fn plugins(&self) -> impl Iterator<Item = &Arc<Plugin>> {
        self.plugins.values()
    }
    /// Returns the plugins whose id begins with a text.
    pub fn plugins_with_prefix<'a>(
        &'a self,
        prefix: &str,
    ) -> impl Iterator<Item = &'a Arc<Plugin>> + use<'a> {
        prefixed(&self.plugins, prefix)
    }

    /// Returns a host volume.
    pub fn host_volume(&self, id: &HostVolumeId) -> Option<&Arc<HostVolume>> {
        self.host_volumes.get(id)
    }
    /// Returns all host volumes, by id.
    pub fn host_volumes(&self) -> impl Iterator<Item = &Arc<HostVolume>> {
        self.host_volumes.values()
    }
    /// Returns the host volumes of a node.
    pub fn host_volumes_by_node<'a>(
        &'a self,
        node: &NodeId,
    ) -> impl Iterator<Item = &'a Arc<HostVolume>> + use<'a> {
        indexed(&self.secondary.host_volumes_by_node, &self.host_volumes, node)
    }
    /// Returns the allocations that use a host volume: they run on its node, request its name, and have not ended for
    /// their client.
    pub fn host_volume_users<'a>(
        &'a self,
        volume: &HostVolume,
    ) -> impl Iterator<Item = &'a Arc<Allocation>> + use<'a> {
        let (name, namespace) = (volume.name.clone(), volume.namespace.clone());
        self.allocs_by_node(&volume.node_id).filter(move |alloc| {
            alloc.namespace == namespace
                && !alloc.client_terminal()
                && alloc.group().is_some_and(|group| {
                    group.host_volumes().any(|(_, request)| request.source_for(&alloc.name) == name)
                })
        })
    }
    /// Returns the hold of a group on a host volume.
    pub fn host_claim(&self, id: &str) -> Option<&Arc<HostVolumeClaim>> {
        self.host_claims.get(id)
    }
    /// Returns all holds of groups on host volumes, by id.
    pub fn host_claims(&self) -> impl Iterator<Item = &Arc<HostVolumeClaim>> {
        self.host_claims.values()
    }
    /// Returns the holds of a job's groups on host volumes.
    pub fn host_claims_by_job<'a>(
        &'a self,
        key: &JobKey,
    ) -> impl Iterator<Item = &'a Arc<HostVolumeClaim>> + use<'a> {
        indexed(&self.secondary.host_claims_by_job, &self.host_claims, key)
    }
    /// Returns the holds of groups on a host volume.
    pub fn host_claims_of<'a>(
        &'a self,
        id: &HostVolumeId,
    ) -> impl Iterator<Item = &'a Arc<HostVolumeClaim>> + use<'a> {
        indexed(&self.secondary.host_claims_by_volume, &self.host_claims, id)
    }

    /// Returns a service registration.
    pub fn service(&self, id: &ServiceId) -> Option<&Arc<ServiceRegistration>> {
        self.services.get(id)
    }
    /// Returns all service registrations, by id.
    pub fn services(&self) -> impl Iterator<Item = &Arc<ServiceRegistration>> {
        self.services.values()
    }
    /// Returns the registrations of a service name, by id.
    pub fn services_by_name<'a>(
        &'a self,
        namespace: &Namespace,
        name: &str,
    ) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> + use<'a> {
        let of = (namespace.clone(), name.to_owned());
        indexed(&self.secondary.services_by_name, &self.services, &of)
    }
    /// Returns the services of an allocation.
    pub fn services_by_alloc<'a>(
        &'a self,
        id: &AllocId,
    ) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> + use<'a> {
        indexed(&self.secondary.services_by_alloc, &self.services, id)
    }
    /// Returns the services on a node.
    pub fn services_by_node<'a>(
        &'a self,
        id: &NodeId,
    ) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> + use<'a> {
        indexed(&self.secondary.services_by_node, &self.services, id)
    }
    /// Returns the services of a job.
    pub fn services_by_job<'a>(
        &'a self,
        key: &JobKey,
    ) -> impl Iterator<Item = &'a Arc<ServiceRegistration>> + use<'a> {
        indexed(&self.secondary.services_by_job, &self.services, key)
    }
}
