//! The used capacity of volumes, as reported by nodes. It is kept in memory only, because the next report of a node
//! replaces the previous one.

use caravan_state::Root;
use caravan_types::volume::{Claim, VolumeUsage};
use caravan_types::{NodeId, VolumeKey};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

type ByNode = HashMap<NodeId, HashMap<VolumeKey, VolumeUsage>>;

/// The latest reports of the nodes; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageBook(Arc<Mutex<ByNode>>);

impl UsageBook {
    /// Locks the reports. Each holder performs one complete change, so a panic leaves the data consistent.
    fn lock(&self) -> MutexGuard<'_, ByNode> {
        self.0.lock()
    }

    /// Stores a node's report about all volumes that it has mounted. Removes the reports of deregistered nodes.
    pub(crate) fn replace(&self, root: &Root, node: &NodeId, usage: Vec<(VolumeKey, VolumeUsage)>) {
        let mut book = self.lock();
        book.retain(|id, _| root.node(id).is_some());
        book.insert(node.clone(), usage.into_iter().collect());
    }

    /// Returns the reports about a volume from the nodes that still use it.
    pub(crate) fn list(&self, root: &Root, volume: &VolumeKey) -> BTreeMap<NodeId, VolumeUsage> {
        let book = self.lock();
        let reported = |claim: &Arc<Claim>| {
            let usage = book.get(&claim.node_id)?.get(volume)?;
            counts(claim, usage).then(|| (claim.node_id.clone(), usage.clone()))
        };
        root.claims_of(volume).filter_map(reported).collect()
    }

    /// Returns all reports, in no particular order.
    pub(crate) fn all(&self, root: &Root) -> Vec<(VolumeKey, NodeId, VolumeUsage)> {
        let book = self.lock();
        let mut found = Vec::new();
        for (node, volumes) in book.iter() {
            for (volume, usage) in volumes {
                if root.claims_of(volume).any(|c| c.node_id == *node && counts(c, usage)) {
                    found.push((volume.clone(), node.clone(), usage.clone()));
                }
            }
        }
        found
    }
}

/// Returns whether a report applies to the claim. A report about an earlier mount does not.
fn counts(claim: &Claim, usage: &VolumeUsage) -> bool {
    claim.phase.may_be_on_node() && usage.sampled_at >= claim.create_time
}
