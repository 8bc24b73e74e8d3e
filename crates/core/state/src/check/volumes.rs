//! Invariants of volumes and claims: the rules of `caravan-volumes` over records, and the references of claims.

use crate::root::Root;
use caravan_types::VolumeKey;
use caravan_types::alloc::Allocation;
use caravan_types::job::TaskGroup;
use caravan_types::volume::{Claim, ClaimId, ClaimPhase, Volume};
use caravan_volumes::{invariants, modes};
use std::collections::BTreeSet;

/// Checks rules 2, 3, 4 and 6 of `caravan_volumes::invariants`, volume by volume.
pub(super) fn rules(root: &Root, wrong: &mut Vec<String>) {
    let keys: BTreeSet<&VolumeKey> =
        root.claims.keys().map(|id| &id.volume).chain(root.volumes.keys()).collect();
    for key in keys {
        let claims: Vec<_> = root.claims_of(key).collect();
        let claims: Vec<&Claim> = claims.iter().map(|claim| &***claim).collect();
        let volume = root.volume(key).map(|volume| &**volume);
        let broken = invariants::records(&key.to_string(), volume, &claims);
        wrong.extend(broken.iter().map(ToString::to_string));
    }
    for claim in root.claims().filter(|claim| claim.phase.holds()) {
        let in_contact = root.node(&claim.node_id).is_some_and(|node| node.status.in_contact());
        if in_contact && (claim.node_off.is_some() || claim.fence_index.is_some_and(|index| index > 0)) {
            wrong.push(format!(
                "the claim of allocation {} on volume {} waits out the silence of node {}, which is in contact",
                claim.id.alloc, claim.id.volume, claim.node_id
            ));
        }
    }
}

/// Returns rows that stand for one storage without being declared as sharing it. No command of this version writes
/// such rows, but an earlier version may have.
pub(crate) fn storages(root: &Root) -> Vec<String> {
    let mut wrong = Vec::new();
    for volume in root.volumes() {
        let twins: Vec<&Volume> = root.twins(volume).map(AsRef::as_ref).collect();
        if let Some(owner) = modes::owner(volume, &twins) {
            let (key, owner, plugin) = (volume.key(), owner.key(), &volume.plugin_id);
            let storage = volume.storage().unwrap_or_default();
            wrong.push(format!(
                "volume {key} stands for the same storage as volume {owner}: \"{storage}\" of plugin {plugin}"
            ));
        }
        let named =
            root.namesakes(volume).find(|other| volume.storage().is_none() && other.key() < volume.key());
        if let Some(other) = named {
            wrong.push(format!(
                "volumes {} and {} are being created with the name \"{}\" by plugin {}",
                other.key(),
                volume.key(),
                volume.name,
                volume.plugin_id
            ));
        }
    }
    wrong
}

/// Returns violations that no sound cluster has, although single commands would permit them. Examples are a dangling
/// reference, an allocation without its claims, and a detach under a claim in use.
///
/// The offline check of volumes uses them. Findings of [`super::check`] are not repeated.
pub fn check_volumes(root: &Root) -> Vec<String> {
    let mut wrong = storages(root);
    for claim in root.claims().filter(|claim| claim.phase.holds()) {
        references(root, claim, &mut wrong);
    }
    for alloc in root.allocs().filter(|alloc| !alloc.client_terminal()) {
        unclaimed(root, alloc, &mut wrong);
    }
    for volume in root.volumes() {
        let claims: Vec<_> = root.claims_of(&volume.key()).collect();
        let claims: Vec<&Claim> = claims.iter().map(|claim| &***claim).collect();
        let in_use = invariants::detached_in_use(&volume.key().to_string(), &claims);
        wrong.extend(in_use.iter().map(ToString::to_string));
        let holding = claims.iter().filter(|claim| claim.phase.holds()).count();
        if holding > 0 && root.plugin(&volume.plugin_id).is_none() {
            let (key, plugin) = (volume.key(), &volume.plugin_id);
            wrong.push(format!("volume {key} has {holding} claims, and its plugin {plugin} is not known"));
        }
    }
    wrong
}

fn references(root: &Root, claim: &Claim, wrong: &mut Vec<String>) {
    let (volume, alloc, phase) = (&claim.id.volume, &claim.id.alloc, claim.phase.as_str());
    if root.node(&claim.node_id).is_none() && claim.phase.is_live() {
        wrong.push(format!(
            "the claim of allocation {alloc} on volume {volume} is {phase} on node {} that is not there",
            claim.node_id
        ));
    }
    if let Some(row) = root.volume(volume)
        && row.plugin_id != claim.plugin_id
        // The row may be another volume that was created later under the same id.
        && !claim.forsaken
    {
        wrong.push(format!(
            "the claim of allocation {alloc} on volume {volume} is with plugin {}, the volume with {}",
            claim.plugin_id, row.plugin_id
        ));
    }
    // Without an allocation, only the node can end the claim, and a removed node cannot end it.
    let nobody = root.alloc(alloc).is_none() && root.node(&claim.node_id).is_none();
    if nobody && matches!(claim.phase, ClaimPhase::Releasing | ClaimPhase::Unpublished) {
        wrong.push(format!(
            "the claim of allocation {alloc} on volume {volume} is {phase}, and neither allocation nor node is there"
        ));
    }
}

/// Reports claims that an allocation lacks. Claims are granted in the same command as their allocation and outlive
/// it.
fn unclaimed(root: &Root, alloc: &Allocation, wrong: &mut Vec<String>) {
    for (alias, request) in alloc.group().into_iter().flat_map(TaskGroup::csi_volumes) {
        let volume = VolumeKey::new(alloc.namespace.clone(), request.source_for(&alloc.name));
        let id = ClaimId { volume, alloc: alloc.id.clone() };
        if root.claim(&id).is_none() {
            wrong.push(format!(
                "allocation {} of job {} runs without a claim on volume {} ({alias})",
                id.alloc, alloc.job_id, id.volume
            ));
        }
    }
}
