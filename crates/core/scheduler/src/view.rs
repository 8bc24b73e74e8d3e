//! The state that the scheduler reads.

use crate::rules::Rules;
use caravan_state::{Root, Table};
use caravan_types::alloc::{Allocation, Used};
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::plugin::Plugin;
use caravan_types::volume::{Claim, Volume};
use caravan_types::{AllocId, HostVolumeId, JobKey, NodeId, PluginId, VolumeKey};
use std::sync::Arc;

/// A consistent snapshot of the cluster. All methods must read the same moment.
pub trait View {
    /// Returns the index of the snapshot.
    fn index(&self) -> u64;
    /// Returns the newest version of a job.
    fn job(&self, key: &JobKey) -> Option<&Arc<Job>>;
    /// Returns all nodes, in a fixed order.
    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>>;
    /// Returns a node by its id.
    fn node(&self, id: &NodeId) -> Option<&Arc<Node>>;
    /// Returns the allocations of a job, including terminal allocations.
    fn allocs_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Allocation>>;
    /// Returns the allocations of a node, including terminal allocations.
    fn allocs_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Allocation>>;
    /// Returns an allocation by its id.
    fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>>;
    /// Returns a CSI volume by namespace and id.
    fn volume(&self, key: &VolumeKey) -> Option<&Arc<Volume>>;
    /// Returns the claims of a volume, and the claims on its storage that other volumes hold.
    fn claims_of(&self, key: &VolumeKey) -> impl Iterator<Item = &Arc<Claim>>;
    /// Returns the other volumes that stand for a volume's storage.
    fn twins(&self, volume: &Volume) -> Vec<&Arc<Volume>> {
        let _ = volume;
        Vec::new()
    }
    /// Returns the claims on a node.
    fn claims_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Claim>>;
    /// Returns a CSI plugin by its id.
    fn plugin(&self, id: &PluginId) -> Option<&Arc<Plugin>>;
    /// Returns a host volume that a user created.
    fn host_volume(&self, id: &HostVolumeId) -> Option<&Arc<HostVolume>>;
    /// Returns the claims of a job's groups on host volumes.
    fn host_claims_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<HostVolumeClaim>>;
    /// Returns the evaluations of a job.
    fn evals_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Evaluation>>;
    /// Returns the deployments of a job.
    fn deployments_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Deployment>>;
    /// Returns the sum of resources in use by all allocations of a node that are not client-terminal. Returns `None`
    /// if the view does not keep that sum, so that the caller computes it.
    fn used_of_node(&self, id: &NodeId) -> Option<Used> {
        let _ = id;
        None
    }
    /// Returns the sums of [`View::used_of_node`] for all nodes in use, in the order of their ids.
    fn used_of_nodes(&self) -> Option<Box<dyn Iterator<Item = (&NodeId, Used)> + '_>> {
        None
    }
    /// Returns a number that changes whenever any node changes, if the view has one. Results about nodes may be
    /// cached under it.
    fn nodes_index(&self) -> Option<u64> {
        None
    }
    /// Returns the scheduler configuration for jobs of a node pool.
    fn rules(&self, pool: &str) -> Rules {
        let _ = pool;
        Rules::default()
    }
}

impl View for Root {
    fn rules(&self, pool: &str) -> Rules {
        Rules::new(self.scheduler_config(), Root::node_pool(self, pool).map(AsRef::as_ref))
    }
    fn index(&self) -> u64 {
        Root::index(self)
    }
    fn job(&self, key: &JobKey) -> Option<&Arc<Job>> {
        Root::job(self, key)
    }
    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        Root::nodes(self)
    }
    fn node(&self, id: &NodeId) -> Option<&Arc<Node>> {
        Root::node(self, id)
    }
    fn allocs_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Allocation>> {
        Root::allocs_by_job(self, key)
    }
    fn allocs_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Allocation>> {
        Root::allocs_by_node(self, id)
    }
    fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>> {
        Root::alloc(self, id)
    }
    fn volume(&self, key: &VolumeKey) -> Option<&Arc<Volume>> {
        Root::volume(self, key)
    }
    fn claims_of(&self, key: &VolumeKey) -> impl Iterator<Item = &Arc<Claim>> {
        Root::claims_beside(self, key)
    }
    fn twins(&self, volume: &Volume) -> Vec<&Arc<Volume>> {
        Root::twins(self, volume).collect()
    }
    fn claims_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Claim>> {
        Root::claims_by_node(self, id)
    }
    fn plugin(&self, id: &PluginId) -> Option<&Arc<Plugin>> {
        Root::plugin(self, id)
    }
    fn host_volume(&self, id: &HostVolumeId) -> Option<&Arc<HostVolume>> {
        Root::host_volume(self, id)
    }
    fn host_claims_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<HostVolumeClaim>> {
        Root::host_claims_by_job(self, key)
    }
    fn evals_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Evaluation>> {
        Root::evals_by_job(self, key)
    }
    fn deployments_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Deployment>> {
        Root::deployments_by_job(self, key)
    }
    fn used_of_node(&self, id: &NodeId) -> Option<Used> {
        Some(Root::used_of_node(self, id))
    }
    fn used_of_nodes(&self) -> Option<Box<dyn Iterator<Item = (&NodeId, Used)> + '_>> {
        Some(Box::new(Root::used_of_nodes(self)))
    }
    fn nodes_index(&self) -> Option<u64> {
        Some(self.table_index(Table::Nodes))
    }
}

impl<T: View> View for Arc<T> {
    fn index(&self) -> u64 {
        T::index(self)
    }
    fn job(&self, key: &JobKey) -> Option<&Arc<Job>> {
        T::job(self, key)
    }
    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        T::nodes(self)
    }
    fn node(&self, id: &NodeId) -> Option<&Arc<Node>> {
        T::node(self, id)
    }
    fn allocs_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Allocation>> {
        T::allocs_by_job(self, key)
    }
    fn allocs_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Allocation>> {
        T::allocs_by_node(self, id)
    }
    fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>> {
        T::alloc(self, id)
    }
    fn volume(&self, key: &VolumeKey) -> Option<&Arc<Volume>> {
        T::volume(self, key)
    }
    fn claims_of(&self, key: &VolumeKey) -> impl Iterator<Item = &Arc<Claim>> {
        T::claims_of(self, key)
    }
    fn twins(&self, volume: &Volume) -> Vec<&Arc<Volume>> {
        T::twins(self, volume)
    }
    fn claims_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Claim>> {
        T::claims_by_node(self, id)
    }
    fn plugin(&self, id: &PluginId) -> Option<&Arc<Plugin>> {
        T::plugin(self, id)
    }
    fn host_volume(&self, id: &HostVolumeId) -> Option<&Arc<HostVolume>> {
        T::host_volume(self, id)
    }
    fn host_claims_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<HostVolumeClaim>> {
        T::host_claims_by_job(self, key)
    }
    fn evals_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Evaluation>> {
        T::evals_by_job(self, key)
    }
    fn deployments_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Deployment>> {
        T::deployments_by_job(self, key)
    }
    fn used_of_node(&self, id: &NodeId) -> Option<Used> {
        T::used_of_node(self, id)
    }
    fn used_of_nodes(&self) -> Option<Box<dyn Iterator<Item = (&NodeId, Used)> + '_>> {
        T::used_of_nodes(self)
    }
    fn nodes_index(&self) -> Option<u64> {
        T::nodes_index(self)
    }
    fn rules(&self, pool: &str) -> Rules {
        T::rules(self, pool)
    }
}
