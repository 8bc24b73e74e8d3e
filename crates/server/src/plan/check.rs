//! Checks whether a plan still fits the newest state, node by node. Pure.

use caravan_scheduler::Room;
use caravan_state::Root;
use caravan_types::alloc::Allocation;
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::plan::{Plan, StopAlloc};
use caravan_types::volume::{Claim, Volume};
use caravan_types::{AllocId, NodeId, PluginId, VolumeKey};
use caravan_volumes::modes;
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

/// Checks every placement against the newest state, and removes misfits from the plan. Stops are always accepted.
pub(crate) fn check(root: &Root, plan: &mut Plan) -> Accepted {
    let wanted = std::mem::take(&mut plan.placements);
    let plan = &*plan;
    let mut accepted =
        Accepted { stops: plan.stops.values().flatten().cloned().collect(), ..Accepted::default() };
    let stopped: BTreeSet<&AllocId> = plan.stops.values().flatten().map(|s| &s.alloc_id).collect();
    let mut claims: BTreeMap<&AllocId, Vec<&Claim>> = BTreeMap::new();
    for claim in &plan.claims {
        claims.entry(&claim.id.alloc).or_default().push(claim);
    }
    let (mut placements, mut given) = (Vec::new(), Vec::new());
    for (node_id, wanted) in wanted {
        let mut on_node = room_of(root, plan, &node_id, &stopped, &wanted);
        for alloc in wanted {
            if alloc.client_terminal() {
                // The plan only annotates this allocation, which needs no room.
                placements.push(alloc);
                continue;
            }
            let of_alloc = claims.get(&alloc.id).map(Vec::as_slice).unwrap_or_default();
            // Check the node last, because an accepted placement takes its resources.
            let verdict = volumes_take(root, of_alloc, &given)
                .and_then(|()| limits_take(root, &node_id, of_alloc, &given))
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
                        given.push((*claim).clone());
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
        // The allocation that it would replace keeps running.
        accepted.stops.clear();
        return accepted;
    }
    let placed: BTreeSet<&AllocId> = placements.iter().map(|a: &Allocation| &a.id).collect();
    accepted.host_claims =
        plan.host_claims.iter().filter(|claim| placed.contains(&claim.alloc_id)).cloned().collect();
    accepted.stops.retain(|stop| stop.preempted_by.is_empty() || placed.contains(&stop.preempted_by));
    accepted.placements = placements;
    accepted.claims = given;
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
    wanted: &[Allocation],
) -> Room {
    let updated: BTreeSet<&AllocId> = wanted.iter().map(|a| &a.id).collect();
    if wanted.iter().all(Room::is_plain) {
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

/// Adds an allocation to its node, if it fits.
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

fn volumes_take(root: &Root, claims: &[&Claim], given: &[Claim]) -> Result<(), String> {
    for claim in claims {
        let key = &claim.id.volume;
        let volume = root.volume(key).ok_or_else(|| format!("volume {} is gone", key.id))?;
        let held: Vec<&Claim> = root
            .claims_beside(key)
            .map(|c| &**c)
            .filter(|c| c.phase.holds())
            .chain(given.iter().filter(|given| given.is_beside(volume)))
            .collect();
        let twins: Vec<&Volume> = root.twins(volume).map(|twin| &**twin).collect();
        modes::sole(volume, &twins)
            .and_then(|()| modes::admit(volume, &held, claim))
            .map_err(|e| format!("volume {}: {e}", key.id))?;
    }
    Ok(())
}

/// Whether the plugins of the node accept so many volumes (CSI, `max_volumes_per_node`). A volume that any claim
/// already uses there counts once.
fn limits_take(root: &Root, node_id: &NodeId, claims: &[&Claim], given: &[Claim]) -> Result<(), String> {
    let Some(node) = root.node(node_id) else { return Ok(()) };
    let plugins: BTreeSet<&PluginId> = claims.iter().map(|c| &c.plugin_id).collect();
    for plugin in plugins {
        let info = node.csi_node_plugins.get(plugin).and_then(|info| info.node_info.as_ref());
        // Zero means that the plugin sets no limit (CSI specification, NodeGetInfo).
        let limit = info.map(|info| info.max_volumes).filter(|limit| *limit > 0);
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
        let existing = root.claims_by_node(node_id).map(|c| &**c).filter(|c| c.phase.holds());
        let held: BTreeSet<&VolumeKey> = existing
            .chain(given.iter().filter(|c| c.node_id == *node_id))
            .filter(|c| c.plugin_id == *plugin)
            .map(|c| &c.id.volume)
            .collect();
        let new: BTreeSet<&VolumeKey> = claims
            .iter()
            .filter(|c| c.plugin_id == *plugin && !held.contains(&c.id.volume))
            .map(|c| &c.id.volume)
            .collect();
        if !new.is_empty() && held.len() + new.len() > limit {
            return Err(format!(
                "plugin {plugin} has the maximum number of volumes on node {} ({limit})",
                node_id.short()
            ));
        }
    }
    Ok(())
}
