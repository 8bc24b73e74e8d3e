//! Whether a plan still fits the newest state, node by node. Pure.

use caravan_state::Root;
use caravan_types::alloc::Allocation;
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::plan::{Plan, StopAlloc};
use caravan_types::volume::Claim;
use caravan_types::{AllocId, NodeId, VolumeKey};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a plan that fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) placements: Vec<Allocation>,
    pub(crate) stops: Vec<StopAlloc>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) host_claims: Vec<HostVolumeClaim>,
    /// Placements that do not fit any more, with the reason.
    pub(crate) refused: Vec<(AllocId, String)>,
}

/// Checks every placement against the newest state; stops are always accepted.
pub(crate) fn check(root: &Root, plan: &Plan) -> Accepted {
    let mut accepted =
        Accepted { stops: plan.stops.values().flatten().cloned().collect(), ..Accepted::default() };
    let stopped: BTreeSet<&AllocId> = plan.stops.values().flatten().map(|s| &s.alloc_id).collect();
    let mut claims: BTreeMap<&AllocId, Vec<&Claim>> = BTreeMap::new();
    for claim in &plan.claims {
        claims.entry(&claim.id.alloc).or_default().push(claim);
    }
    let mut granted: BTreeMap<VolumeKey, Vec<Claim>> = BTreeMap::new();
    let (mut placements, mut given) = (Vec::new(), Vec::new());
    for (node_id, wanted) in &plan.placements {
        let mut on_node = live_allocs(root, node_id, &stopped, wanted);
        for alloc in wanted {
            let of_alloc = claims.get(&alloc.id).map(Vec::as_slice).unwrap_or_default();
            let verdict = node_takes(root, node_id, alloc, &on_node)
                .and_then(|()| volumes_take(root, of_alloc, &granted))
                .and_then(|()| super::host::takes(root, plan, &stopped, alloc, &placements));
            match verdict {
                Ok(()) => {
                    on_node.push(alloc.clone());
                    for claim in of_alloc {
                        granted.entry(claim.id.volume.clone()).or_default().push((*claim).clone());
                        given.push((*claim).clone());
                    }
                    placements.push(alloc.clone());
                }
                Err(reason) => accepted.refused.push((alloc.id.clone(), reason)),
            }
        }
    }
    if plan.all_at_once && !accepted.refused.is_empty() {
        // What would be replaced goes on.
        accepted.stops.clear();
        return accepted;
    }
    let placed: BTreeSet<&AllocId> = placements.iter().map(|a: &Allocation| &a.id).collect();
    accepted.host_claims =
        plan.host_claims.iter().filter(|claim| placed.contains(&claim.alloc_id)).cloned().collect();
    accepted.placements = placements;
    accepted.claims = given;
    accepted
}

fn live_allocs(
    root: &Root,
    node: &NodeId,
    stopped: &BTreeSet<&AllocId>,
    wanted: &[Allocation],
) -> Vec<Allocation> {
    let updated: BTreeSet<&AllocId> = wanted.iter().map(|a| &a.id).collect();
    root.allocs_by_node(node)
        .filter(|a| !a.client_terminal() && !stopped.contains(&a.id) && !updated.contains(&a.id))
        .map(|a| (**a).clone())
        .collect()
}

fn node_takes(root: &Root, id: &NodeId, alloc: &Allocation, on_node: &[Allocation]) -> Result<(), String> {
    let node = root.node(id).ok_or_else(|| format!("node {} is gone", id.short()))?;
    let is_new = root.alloc(&alloc.id).is_none();
    if is_new && !node.is_schedulable() {
        return Err(format!("node {} does not take allocations any more", id.short()));
    }
    caravan_scheduler::fits(node, on_node.iter().chain([alloc]))
        .map_err(|dimension| format!("node {} has not enough {dimension} any more", id.short()))
}

fn volumes_take(
    root: &Root,
    claims: &[&Claim],
    granted: &BTreeMap<VolumeKey, Vec<Claim>>,
) -> Result<(), String> {
    for claim in claims {
        let key = &claim.id.volume;
        let volume = root.volume(key).ok_or_else(|| format!("volume {} is gone", key.id))?;
        let held: Vec<&Claim> = root
            .claims_of(key)
            .map(|c| &**c)
            .filter(|c| c.phase.holds())
            .chain(granted.get(key).into_iter().flatten())
            .collect();
        caravan_volumes::modes::admit(volume, &held, claim).map_err(|e| format!("volume {}: {e}", key.id))?;
    }
    Ok(())
}
