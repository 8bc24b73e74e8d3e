//! Preemption: the selection of allocations of less important jobs to evict (docs/reference/http-api.md, section 5.7,
//! `PreemptionConfig`).
//!
//! Only allocations of jobs whose priority is at least ten lower may be evicted. On each node the scheduler finds the
//! least important allocations that suffice, and evicts no more of them than needed. It then chooses the node by its
//! scores; one score states how unimportant the victims are.

use crate::context::Context;
use crate::decision::Outcome;
use crate::fits;
use crate::prepared::{Prepared, Reject};
use crate::rank::{self, Score};
use crate::resources::Amount;
use crate::view::View;
use caravan_types::AllocId;
use caravan_types::alloc::Allocation;
use caravan_types::node::Node;
use caravan_types::small::Text;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The minimum difference between the priorities of the job and of a victim.
const DISTANCE: i64 = 10;

/// The number of nodes on which victims are searched before the best node so far is chosen.
const NODES_COMPARED: usize = 32;

/// The victims on one node.
pub(crate) struct Room {
    /// The index of the candidate.
    pub index: usize,
    pub score: Score,
    pub victims: Vec<Arc<Allocation>>,
}

fn priority(alloc: &Allocation) -> i64 {
    alloc.job.as_ref().map_or(i64::MAX, |job| job.priority)
}

/// Returns the combined priority of several victims: the priority of the most important victim, plus a little for
/// each other victim.
fn net_priority(victims: &[Arc<Allocation>]) -> f64 {
    let most = victims.iter().map(|alloc| priority(alloc)).max().unwrap_or(0);
    let sum = victims.iter().fold(0_i64, |sum, alloc| sum.saturating_add(priority(alloc)));
    rank::ratio(most, 1) + rank::ratio(sum, most)
}

/// Returns the best node on which room can be made, with the victims counted as stopped. `suits` returns whether the
/// candidate then fits this allocation.
pub(crate) fn find<V: View>(
    ctx: &mut Context<'_, V>,
    prepared: &Prepared<'_>,
    indexes: impl Iterator<Item = usize>,
    mut suits: impl FnMut(&mut Context<'_, V>, usize) -> bool,
) -> Option<Room> {
    if !ctx.rules.preemption.allows(ctx.job.kind) {
        return None;
    }
    let ranges = prepared.axes.ranges();
    let mut order: Vec<usize> = indexes.collect();
    order.sort_by_key(|index| prepared.candidates[*index].tie);
    let (mut best, mut compared): (Option<Room>, usize) = (None, 0);
    for index in order {
        let values = &prepared.buckets[prepared.candidates[index].bucket].values;
        if prepared.axes.refusal(values).is_some() {
            continue;
        }
        let Some(victims) = on_node(ctx, prepared, index) else { continue };
        victims.iter().for_each(|victim| ctx.stop(victim));
        if let Ok(score) = prepared.assess(ctx, index)
            && suits(ctx, index)
        {
            let spread = prepared.axes.spread(values, &ranges);
            let preemption = Some(rank::preemption(net_priority(&victims)));
            let score = Score { spread, preemption, ..score };
            let better = best.as_ref().is_none_or(|known| {
                let fewer = victims.len() < known.victims.len();
                score.norm() > known.score.norm() || (score.norm() >= known.score.norm() && fewer)
            });
            victims.iter().for_each(|victim| ctx.unstop(victim));
            if better {
                best = Some(Room { index, score, victims });
            }
            compared += 1;
            if compared >= NODES_COMPARED {
                break;
            }
        } else {
            victims.iter().for_each(|victim| ctx.unstop(victim));
        }
    }
    if let Some(room) = &best {
        room.victims.iter().for_each(|victim| ctx.stop(victim));
    }
    best
}

/// Returns the victims that free enough resources on one node, or `None` if that is not possible.
fn on_node<V: View>(
    ctx: &mut Context<'_, V>,
    prepared: &Prepared<'_>,
    index: usize,
) -> Option<Vec<Arc<Allocation>>> {
    let at = prepared.candidates[index].at;
    let mut pool = weaker(ctx, at);
    // On most nodes too little may be evicted, which the amounts alone show.
    let free = pool.iter().fold(Amount::default(), |sum, alloc| sum.plus(Amount::of_alloc(alloc)));
    let used = ctx.usage(at).amount.minus(free);
    let desired = prepared.ask.on(&ctx.nodes[at]);
    if pool.is_empty() || desired.lacking(used, prepared.candidates[index].capacity).is_some() {
        return None;
    }
    pool.sort_by_key(|alloc| (priority(alloc), size(alloc), alloc.id.clone()));
    // The lowest priority up to which the allocations together free enough.
    let mut levels: Vec<i64> = pool.iter().map(|alloc| priority(alloc)).collect();
    levels.dedup();
    let enough = levels.into_iter().find(|level| {
        let below: Vec<&Arc<Allocation>> = pool.iter().filter(|alloc| priority(alloc) <= *level).collect();
        fits_without(ctx, prepared, index, &below)
    })?;
    pool.retain(|alloc| priority(alloc) <= enough);
    if let Some(one) = pool.iter().find(|one| fits_without(ctx, prepared, index, &[one])) {
        return Some(vec![Arc::clone(one)]);
    }
    // If several victims are necessary, as many allocations as possible are kept. Important allocations are kept
    // first, then allocations of groups that already lose `migrate.max_parallel`, then small ones. Therefore few
    // allocations are evicted.
    let mut keep: Vec<AllocId> = Vec::new();
    let mut order: Vec<(i64, bool, i64, AllocId)> =
        pool.iter().map(|a| (-priority(a), !ctx.is_pressed(a), size(a), a.id.clone())).collect();
    order.sort();
    for (_, _, _, id) in order {
        keep.push(id);
        let go: Vec<&Arc<Allocation>> = pool.iter().filter(|alloc| !keep.contains(&alloc.id)).collect();
        if go.is_empty() || !fits_without(ctx, prepared, index, &go) {
            keep.pop();
        }
    }
    pool.retain(|alloc| !keep.contains(&alloc.id));
    Some(pool)
}

fn size(alloc: &Allocation) -> i64 {
    let amount = Amount::of_alloc(alloc);
    amount.cpu.saturating_add(amount.memory)
}

/// Returns the allocations on a node that the job may preempt.
fn weaker<V: View>(ctx: &Context<'_, V>, at: usize) -> Vec<Arc<Allocation>> {
    let most = ctx.job.priority.saturating_sub(DISTANCE);
    ctx.view
        .allocs_by_node(&ctx.nodes[at].id)
        .filter(|alloc| !alloc.terminal() && !ctx.is_stopped(&alloc.id))
        .filter(|alloc| alloc.job_id != ctx.job.id || alloc.namespace != ctx.job.namespace)
        .filter(|alloc| priority(alloc) <= most)
        .map(Arc::clone)
        .collect()
}

fn fits_without<V: View>(
    ctx: &mut Context<'_, V>,
    prepared: &Prepared<'_>,
    index: usize,
    without: &[&Arc<Allocation>],
) -> bool {
    without.iter().for_each(|victim| ctx.stop(victim));
    let fits = prepared.assess(ctx, index).is_ok();
    without.iter().for_each(|victim| ctx.unstop(victim));
    fits
}

/// Removes victims from the plan for which the nodes have room after all placements of the plan, the most important
/// victims first. Returns the groups of the allocations that no longer preempt them, one for each victim.
///
/// For example, a job has two allocations, on the nodes n1 and n2, and an update replaces both. The first replacement
/// preempts a victim on n2, because the old allocation on n2 still counts. The plan then replaces the old allocation
/// on n2 as well, so that its room suffices and the victim can stay.
pub(crate) fn spare<V: View>(view: &V, nodes: &[Arc<Node>], outcome: &mut Outcome) -> Vec<Text> {
    let mut victims = std::mem::take(&mut outcome.preempted);
    victims.sort_by_key(|(alloc, _)| (-priority(alloc), size(alloc), alloc.id.clone()));
    let mut gone: BTreeSet<AllocId> = victims.iter().map(|(alloc, _)| alloc.id.clone()).collect();
    gone.extend(outcome.stops.iter().map(|stop| stop.alloc.id.clone()));
    let mut groups = Vec::new();
    for (victim, by) in victims {
        // The volumes that a victim uses are not part of the room.
        let claims = outcome.claims.iter().any(|claim| claim.id.alloc == by)
            || outcome.host_claims.iter().any(|claim| claim.alloc_id == by);
        let node = nodes.binary_search_by(|node| node.id.cmp(&victim.node_id)).ok().map(|at| &nodes[at]);
        if claims || !node.is_some_and(|node| has_room(view, node, &gone, &victim, outcome)) {
            outcome.preempted.push((victim, by));
            continue;
        }
        gone.remove(&victim.id);
        let placed = outcome.placements.get_mut(&victim.node_id).into_iter().flatten();
        if let Some(winner) = placed.into_iter().find(|alloc| alloc.id == by) {
            winner.preempted_allocations.retain(|id| *id != victim.id);
            groups.push(winner.task_group.clone());
        }
    }
    groups
}

/// Returns whether a node has room for a victim next to all allocations that the plan leaves and places there.
fn has_room<V: View>(
    view: &V,
    node: &Node,
    gone: &BTreeSet<AllocId>,
    victim: &Allocation,
    outcome: &Outcome,
) -> bool {
    let existing = view
        .allocs_by_node(&node.id)
        .map(AsRef::as_ref)
        .filter(|alloc| !alloc.client_terminal() && (alloc.id == victim.id || !gone.contains(&alloc.id)));
    let placed = outcome.placements.get(&node.id).into_iter().flatten();
    let mut room = fits::Room::default();
    existing.chain(placed).try_for_each(|alloc| room.add(node, alloc)).is_ok()
}

/// Returns whether the candidate lacks only resources that evicting allocations may free.
pub(crate) fn may_help(reject: Option<&Reject>) -> bool {
    !matches!(reject, Some(Reject::Filter(..)))
}
