//! What the scheduler reads.

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

/// A consistent picture of the cluster. Every method must answer from the same moment.
pub trait View {
    /// Index of the picture.
    fn index(&self) -> u64;
    /// A job.
    fn job(&self, key: &JobKey) -> Option<&Arc<Job>>;
    /// All nodes, in a fixed order.
    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>>;
    /// A node.
    fn node(&self, id: &NodeId) -> Option<&Arc<Node>>;
    /// The allocations of a job, those that are over included.
    fn allocs_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Allocation>>;
    /// The allocations of a node, those that are over included.
    fn allocs_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Allocation>>;
    /// An allocation.
    fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>>;
    /// A volume.
    fn volume(&self, key: &VolumeKey) -> Option<&Arc<Volume>>;
    /// The claims of a volume, and those that hold on its storage by other volumes.
    fn claims_of(&self, key: &VolumeKey) -> impl Iterator<Item = &Arc<Claim>>;
    /// The other volumes that stand for a volume's storage.
    fn twins(&self, volume: &Volume) -> Vec<&Arc<Volume>> {
        let _ = volume;
        Vec::new()
    }
    /// The claims on a node.
    fn claims_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Claim>>;
    /// A plugin.
    fn plugin(&self, id: &PluginId) -> Option<&Arc<Plugin>>;
    /// A host volume that a user made.
    fn host_volume(&self, id: &HostVolumeId) -> Option<&Arc<HostVolume>>;
    /// The holds of a job's groups on host volumes.
    fn host_claims_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<HostVolumeClaim>>;
    /// The evaluations of a job.
    fn evals_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Evaluation>>;
    /// The deployments of a job.
    fn deployments_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Deployment>>;
    /// What is used of a node by all allocations that are not over for its client, if that is kept; otherwise it is
    /// counted.
    fn used_of_node(&self, id: &NodeId) -> Option<Used> {
        let _ = id;
        None
    }
    /// The same of all nodes of which something is used, in the order of their ids.
    fn used_of_nodes(&self) -> Option<Box<dyn Iterator<Item = (&NodeId, Used)> + '_>> {
        None
    }
    /// A number that is another one whenever any node is, if there is one: what was found out about the nodes may be
    /// remembered with it.
    fn nodes_index(&self) -> Option<u64> {
        None
    }
    /// The rules for jobs of a node pool.
    fn rules(&self, pool: &str) -> Rules {
        let _ = pool;
        Rules::default()
    }
}

impl View for Root {
    fn rules(&self, pool: &str) -> Rules {
        Rules::of(self.scheduler_config(), Root::node_pool(self, pool).map(AsRef::as_ref))
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
