//! The check whether a plan still fits the newest state, node by node. Pure.

use caravan_scheduler::Room;
use caravan_state::Root;
use caravan_types::alloc::Allocation;
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::plan::{Plan, StopAlloc};
use caravan_types::volume::{Claim, Volume};
use caravan_types::{AllocId, NodeId, PluginId};
use caravan_volumes::{limits, modes};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a plan that fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) placements: Vec<Allocation>,
    pub(crate) stops: Vec<StopAlloc>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) host_claims: Vec<HostVolumeClaim>,
    /// Placements that no longer fit, with the reason.
    pub(crate) refused: Vec<(AllocId, String)>,
    /// Nodes that reject their placements.
    pub(crate) refusing: BTreeSet<NodeId>,
}

/// Checks every placement against the newest state, and removes the placements from the plan. Stops are always
/// accepted.
pub(crate) fn check(root: &Root, plan: &mut Plan) -> Accepted {
    let desired = std::mem::take(&mut plan.placements);
    let plan = &*plan;
    let mut accepted =
        Accepted { stops: plan.stops.values().flatten().cloned().collect(), ..Accepted::default() };
    let stopped: BTreeSet<&AllocId> = plan.stops.values().flatten().map(|s| &s.alloc_id).collect();
    let mut claims: BTreeMap<&AllocId, Vec<&Claim>> = BTreeMap::new();
    for claim in &plan.claims {
        claims.entry(&claim.id.alloc).or_default().push(claim);
    }
    let (mut placements, mut supplied) = (Vec::new(), Vec::new());
    for (node_id, desired) in desired {
        let mut on_node = room_of(root, plan, &node_id, &stopped, &desired);
        for alloc in desired {
            if alloc.client_terminal() {
                // The plan only annotates this allocation, which needs no room.
                placements.push(alloc);
                continue;
            }
            let of_alloc = claims.get(&alloc.id).map(Vec::as_slice).unwrap_or_default();
            // Check the node last, because an accepted placement takes its resources.
            let verdict = volumes_take(root, of_alloc, &supplied)
                .and_then(|()| limits_take(root, &node_id, of_alloc, &supplied))
                .and_then(|()| super::host::takes(root, plan, &stopped, &alloc, &placements))
                .and_then(|()| {
                    let taken = node_takes(root, &node_id, &alloc, &mut on_node);
                    if taken.is_err() {
                        accepted.refusing.insert(node_id.clone());
                    }
                    taken
                });
            match verdict {
                Ok(()) => {
                    for claim in of_alloc {
                        supplied.push((*claim).clone());
                    }
                    placements.push(alloc);
                }
                Err(reason) => {
                    // A rejected placement preempts nothing.
                    victims_of(root, plan, &alloc.id).for_each(|victim| on_node.put(victim));
                    accepted.refused.push((alloc.id.clone(), reason));
                }
            }
        }
    }
    if plan.all_at_once && !accepted.refused.is_empty() {
        // The allocations that the plan would replace keep running.
        accepted.stops.clear();
        return accepted;
    }
    let placed: BTreeSet<&AllocId> = placements.iter().map(|a: &Allocation| &a.id).collect();
    accepted.host_claims =
        plan.host_claims.iter().filter(|claim| placed.contains(&claim.alloc_id)).cloned().collect();
    accepted.stops.retain(|stop| stop.preempted_by.is_empty() || placed.contains(&stop.preempted_by));
    accepted.placements = placements;
    accepted.claims = supplied;
    accepted
}

/// Returns the allocations that a plan preempts for an allocation.
fn victims_of<'a>(root: &'a Root, plan: &'a Plan, id: &'a AllocId) -> impl Iterator<Item = &'a Allocation> {
    let stops = plan.stops.values().flatten().filter(move |stop| stop.preempted_by == *id);
    stops.filter_map(|stop| root.alloc(&stop.alloc_id)).map(|alloc| &**alloc)
}

/// Returns the resources in use on a node, without the allocations that the plan stops or rewrites there.
fn room_of(
    root: &Root,
    plan: &Plan,
    node: &NodeId,
    stopped: &BTreeSet<&AllocId>,
    desired: &[Allocation],
) -> Room {
    let updated: BTreeSet<&AllocId> = desired.iter().map(|a| &a.id).collect();
    if desired.iter().all(Room::is_plain) {
        // Use the stored sums: the node may have hundreds of allocations.
        let mut room = Room::of_used(root.used_of_node(node));
        let stops = plan.stops.get(node).into_iter().flatten().map(|stop| &stop.alloc_id);
        let gone: BTreeSet<&AllocId> = stops.chain(updated).collect();
        let live = gone.into_iter().filter_map(|id| root.alloc(id));
        live.filter(|a| a.node_id == *node && !a.client_terminal()).for_each(|alloc| room.free(alloc));
        return room;
    }
    let mut room = Room::default();
    root.allocs_by_node(node)
        .filter(|a| !a.client_terminal() && !stopped.contains(&a.id) && !updated.contains(&a.id))
        .for_each(|alloc| room.put(alloc));
    room
}

/// Adds an allocation to its node, if the allocation fits.
fn node_takes(root: &Root, id: &NodeId, alloc: &Allocation, on_node: &mut Room) -> Result<(), String> {
    let node = root.node(id).ok_or_else(|| format!("node {} is gone", id.short()))?;
    let is_new = root.alloc(&alloc.id).is_none();
    if is_new && !node.is_schedulable() {
        return Err(format!("node {} does not take allocations any more", id.short()));
    }
    on_node
        .add(node, alloc)
        .map_err(|dimension| format!("node {} has not enough {dimension} any more", id.short()))
}

fn volumes_take(root: &Root, claims: &[&Claim], supplied: &[Claim]) -> Result<(), String> {
    for claim in claims {
        let key = &claim.id.volume;
        let volume = root.volume(key).ok_or_else(|| format!("volume {} is gone", key.id))?;
        let held: Vec<&Claim> = root
            .claims_beside(key)
            .map(|c| &**c)
            .filter(|c| c.phase.holds())
            .chain(supplied.iter().filter(|supplied| supplied.is_beside(volume)))
            .collect();
        let twins: Vec<&Volume> = root.twins(volume).map(|twin| &**twin).collect();
        modes::sole(volume, &twins)
            .and_then(|()| modes::admit(volume, &held, claim))
            .map_err(|e| format!("volume {}: {e}", key.id))?;
    }
    Ok(())
}

/// Checks the limits of volumes that the node's plugins have ([`limits::has_room`]).
fn limits_take(root: &Root, node_id: &NodeId, claims: &[&Claim], supplied: &[Claim]) -> Result<(), String> {
    let Some(node) = root.node(node_id) else { return Ok(()) };
    let plugins: BTreeSet<&PluginId> = claims.iter().map(|c| &c.plugin_id).collect();
    for plugin in plugins {
        let info = node.csi_node_plugins.get(plugin).and_then(|info| info.node_info.as_ref());
        let Some(limit) = info.map(|info| info.max_volumes) else { continue };
        let existing = root.claims_by_node(node_id).map(|c| &**c).filter(|c| c.phase.holds());
        let held = existing.chain(supplied.iter().filter(|c| c.node_id == *node_id));
        let held = held.filter(|c| c.plugin_id == *plugin).map(|c| &c.id.volume);
        let new = claims.iter().filter(|c| c.plugin_id == *plugin).map(|c| &c.id.volume);
        if !limits::has_room(limit, held, new) {
            return Err(format!(
                "plugin {plugin} has the maximum number of volumes on node {} ({limit})",
                node_id.short()
            ));
        }
    }
    Ok(())
}
