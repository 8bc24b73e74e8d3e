//! A snapshot of the cluster with assumed changes.

use crate::rules::Rules;
use crate::view::View;
use caravan_types::alloc::{Allocation, Used};
use caravan_types::deployment::Deployment;
use caravan_types::eval::Evaluation;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::job::Job;
use caravan_types::node::Node;
use caravan_types::plugin::Plugin;
use caravan_types::volume::{Claim, Volume};
use caravan_types::{AllocId, HostVolumeId, JobKey, NodeId, PluginId, VolumeKey};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A snapshot under another scheduler configuration, without the claims of some allocations, or with extra claims.
#[derive(Clone, Debug)]
pub struct Overlay<'a, V> {
    base: &'a V,
    rules: Option<Rules>,
    released: BTreeSet<AllocId>,
    granted: Vec<Arc<Claim>>,
}

impl<'a, V> Overlay<'a, V> {
    /// Creates an overlay that changes nothing.
    pub fn new(base: &'a V) -> Self {
        Self { base, rules: None, released: BTreeSet::new(), granted: Vec::new() }
    }

    /// Returns the overlay with this scheduler configuration for all node pools.
    #[must_use]
    pub fn with_rules(self, rules: Option<Rules>) -> Self {
        Self { rules, ..self }
    }

    /// Returns the overlay with the claims of these allocations released.
    #[must_use]
    pub fn without_claims_of(self, allocs: impl IntoIterator<Item = AllocId>) -> Self {
        Self { released: allocs.into_iter().collect(), ..self }
    }

    /// Returns the overlay with these claims granted.
    #[must_use]
    pub fn with_claims(self, granted: Vec<Arc<Claim>>) -> Self {
        Self { granted, ..self }
    }
}

impl<V: View> View for Overlay<'_, V> {
    fn index(&self) -> u64 {
        self.base.index()
    }
    fn job(&self, key: &JobKey) -> Option<&Arc<Job>> {
        self.base.job(key)
    }
    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.base.nodes()
    }
    fn node(&self, id: &NodeId) -> Option<&Arc<Node>> {
        self.base.node(id)
    }
    fn allocs_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Allocation>> {
        self.base.allocs_by_job(key)
    }
    fn allocs_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Allocation>> {
        self.base.allocs_by_node(id)
    }
    fn alloc(&self, id: &AllocId) -> Option<&Arc<Allocation>> {
        self.base.alloc(id)
    }
    fn volume(&self, key: &VolumeKey) -> Option<&Arc<Volume>> {
        self.base.volume(key)
    }
    fn claims_of(&self, key: &VolumeKey) -> impl Iterator<Item = &Arc<Claim>> {
        let held = self.base.claims_of(key).filter(|claim| !self.released.contains(&claim.id.alloc));
        held.chain(self.granted.iter().filter(move |claim| claim.id.volume == *key))
    }
    fn twins(&self, volume: &Volume) -> Vec<&Arc<Volume>> {
        self.base.twins(volume)
    }
    fn claims_by_node(&self, id: &NodeId) -> impl Iterator<Item = &Arc<Claim>> {
        let held = self.base.claims_by_node(id).filter(|claim| !self.released.contains(&claim.id.alloc));
        held.chain(self.granted.iter().filter(move |claim| claim.node_id == *id))
    }
    fn plugin(&self, id: &PluginId) -> Option<&Arc<Plugin>> {
        self.base.plugin(id)
    }
    fn host_volume(&self, id: &HostVolumeId) -> Option<&Arc<HostVolume>> {
        self.base.host_volume(id)
    }
    fn host_claims_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<HostVolumeClaim>> {
        self.base.host_claims_by_job(key)
    }
    fn evals_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Evaluation>> {
        self.base.evals_by_job(key)
    }
    fn deployments_by_job(&self, key: &JobKey) -> impl Iterator<Item = &Arc<Deployment>> {
        self.base.deployments_by_job(key)
    }
    fn used_of_node(&self, id: &NodeId) -> Option<Used> {
        self.base.used_of_node(id)
    }
    fn used_of_nodes(&self) -> Option<Box<dyn Iterator<Item = (&NodeId, Used)> + '_>> {
        self.base.used_of_nodes()
    }
    fn nodes_index(&self) -> Option<u64> {
        self.base.nodes_index()
    }
    fn rules(&self, pool: &str) -> Rules {
        self.rules.unwrap_or_else(|| self.base.rules(pool))
    }
}
