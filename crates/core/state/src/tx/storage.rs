//! Writes of volumes, and of the claims and holds on them.

use super::Tx;
use crate::changes::Changed;
use caravan_types::host_volume::{HostVolume, HostVolumeClaim};
use caravan_types::volume::{Claim, ClaimId, Volume};
use caravan_types::{HostVolumeId, NodeId, UnixNanos, VolumeKey};
use std::sync::Arc;

impl Tx {
    pub(crate) fn put_volume(&mut self, mut volume: Volume) {
        volume.modify_index = self.index;
        volume.modify_time = self.now;
        let key = volume.key();
        match self.root.volumes.get(&key).cloned() {
            Some(old) => {
                volume.create_index = old.create_index;
                volume.create_time = old.create_time;
                self.root.secondary.volume(&old, false);
            }
            None => {
                volume.create_index = self.index;
                volume.create_time = self.now;
            }
        }
        self.root.secondary.volume(&volume, true);
        self.root.volumes.insert(key.clone(), Arc::new(volume));
        self.changed(Changed::Volume(key));
    }

    pub(crate) fn remove_volume(&mut self, key: &VolumeKey) {
        if let Some(old) = self.root.volumes.remove(key) {
            self.root.secondary.volume(&old, false);
            self.changed(Changed::VolumeRemoved(key.clone()));
        }
    }

    /// Writes a claim. A claim that has ended is kept as history of its volume, and is removed if the volume no
    /// longer exists.
    pub(crate) fn put_claim(&mut self, mut claim: Claim) {
        if claim.forsaken && !claim.phase.holds() {
            self.remove_claim(&claim.id);
            return;
        }
        claim.modify_index = self.index;
        claim.modify_time = self.now;
        if let Some(old) = self.root.claims.get(&claim.id).cloned() {
            self.root.secondary.claim(&old, false);
        }
        self.root.secondary.claim(&claim, true);
        let id = claim.id.clone();
        self.root.claims.insert(id.clone(), Arc::new(claim));
        self.changed(Changed::Claim(id));
    }

    /// Records that a node is in contact again and may renew its lease. Earlier waits, and an operator's confirmation
    /// that the node is off, no longer apply.
    pub(super) fn void_waits(&mut self, node: &NodeId) {
        let waited =
            |claim: &Claim| claim.fence_index.is_some_and(|index| index > 0) || claim.node_off.is_some();
        let claims: Vec<Arc<Claim>> = self
            .root
            .claims_by_node(node)
            .filter(|claim| claim.phase.holds() && waited(claim))
            .cloned()
            .collect();
        for claim in claims {
            let mut claim = Claim::clone(&claim);
            claim.fence_until = UnixNanos(0);
            claim.fence_index = claim.fence_index.map(|_| 0);
            if claim.node_off.take().is_some() {
                let phase = claim.phase;
                claim.note(
                    self.now,
                    phase,
                    "the node is in contact again, although it was confirmed to be off",
                );
            }
            self.put_claim(claim);
        }
    }

    pub(crate) fn remove_claim(&mut self, id: &ClaimId) {
        if let Some(old) = self.root.claims.remove(id) {
            self.root.secondary.claim(&old, false);
            self.changed(Changed::ClaimRemoved(id.clone()));
        }
    }

    /// Updates the states of a node's host volumes from its row. Every change of a node passes here, so that no
    /// report and no loss of a node is missed (docs/design/rough-edges.md, 43, 44).
    pub(super) fn derive_host_volumes(&mut self, node: &NodeId) {
        let row = self.root.nodes.get(node);
        let moved: Vec<HostVolume> = self
            .root
            .host_volumes_by_node(node)
            .filter_map(|volume| {
                let state = volume.state_on(row.map(AsRef::as_ref));
                (state != volume.state).then(|| HostVolume { state, ..HostVolume::clone(volume) })
            })
            .collect();
        moved.into_iter().for_each(|volume| self.put_host_volume(volume));
    }

    pub(crate) fn put_host_volume(&mut self, mut volume: HostVolume) {
        volume.modify_index = self.index;
        volume.modify_time = self.now;
        volume.state = volume.state_on(self.root.nodes.get(&volume.node_id).map(AsRef::as_ref));
        match self.root.host_volumes.get(&volume.id).cloned() {
            Some(old) => {
                volume.create_index = old.create_index;
                volume.create_time = old.create_time;
                self.root.secondary.host_volume(&old, false);
            }
            None => {
                volume.create_index = self.index;
                volume.create_time = self.now;
            }
        }
        self.root.secondary.host_volume(&volume, true);
        let id = volume.id.clone();
        self.root.host_volumes.insert(id.clone(), Arc::new(volume));
        self.changed(Changed::HostVolume(id));
    }

    /// Removes a host volume with the holds on it.
    pub(crate) fn remove_host_volume(&mut self, id: &HostVolumeId) {
        let Some(old) = self.root.host_volumes.remove(id) else { return };
        self.root.secondary.host_volume(&old, false);
        self.changed(Changed::HostVolumeRemoved(id.clone()));
        let held: Vec<String> = self.root.host_claims_of(id).map(|claim| claim.id.clone()).collect();
        for claim in held {
            self.remove_host_claim(&claim);
        }
    }

    pub(crate) fn put_host_claim(&mut self, mut claim: HostVolumeClaim) {
        claim.modify_index = self.index;
        claim.create_index = self.index;
        if let Some(old) = self.root.host_claims.get(&claim.id).cloned() {
            claim.create_index = old.create_index;
            self.root.secondary.host_claim(&old, false);
        }
        self.root.secondary.host_claim(&claim, true);
        let id = claim.id.clone();
        self.root.host_claims.insert(id.clone(), Arc::new(claim));
        self.changed(Changed::HostClaim(id));
    }

    /// Removes a hold. Returns whether it existed.
    pub(crate) fn remove_host_claim(&mut self, id: &str) -> bool {
        let Some(old) = self.root.host_claims.remove(id) else { return false };
        self.root.secondary.host_claim(&old, false);
        self.changed(Changed::HostClaimRemoved(id.to_owned()));
        true
    }
}
