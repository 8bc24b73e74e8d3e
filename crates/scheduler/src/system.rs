//! System and sysbatch jobs: one place (sysbatch: as many as the group's count) on every node.

use crate::diff::Update;
use crate::disconnect;
use crate::feasible;
use crate::reconcile::{
    Changes, Ground, NOT_NEEDED, Place, TAINTED, gives_way, ground, live, to_succeed, update_of,
};
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::alloc::Allocation;
use caravan_types::job::{Job, TaskGroup};
use caravan_types::node::Node;
use caravan_types::{NodeId, UnixNanos};
use std::collections::BTreeMap;
use std::sync::Arc;

type Slot<'a> = (&'a str, &'a NodeId, u32);

/// What a system job needs. `nodes` are those on which it may run now.
///
/// Counts of places are left at zero: whether a node counts at all is known once placing was tried.
pub(crate) fn changes<V: View>(
    view: &V,
    job: &Job,
    nodes: &[Arc<Node>],
    matcher: &mut Matcher,
    now: UnixNanos,
) -> Changes {
    let mut changes = Changes::default();
    let key = job.key();
    let allocs = live(view, &key, now, &mut changes);
    let mut slots: BTreeMap<Slot<'_>, Vec<&Arc<Allocation>>> = BTreeMap::new();
    for alloc in &allocs {
        let index = alloc.index().unwrap_or(u32::MAX);
        slots.entry((alloc.task_group.as_str(), &alloc.node_id, index)).or_default().push(alloc);
    }
    let mut over: BTreeMap<Slot<'_>, Vec<&Arc<Allocation>>> = BTreeMap::new();
    for alloc in view.allocs_by_job(&key).filter(|a| a.terminal()) {
        let slot = (alloc.task_group.as_str(), &alloc.node_id, alloc.index().unwrap_or(u32::MAX));
        over.entry(slot).or_default().push(alloc);
    }
    for (at, group) in job.task_groups.iter().enumerate() {
        changes.of(&group.name);
        for node in nodes {
            for index in 0..group.count {
                let slot = (group.name.as_str(), &node.id, index);
                let mut here = slots.remove(&slot).unwrap_or_default().into_iter();
                let place = Place {
                    group: at,
                    name: format!("{}.{}[{index}]", job.id, group.name),
                    only_on: Some(node.id.clone()),
                    ..Place::default()
                };
                match here.next() {
                    Some(alloc) if ground(Some(node), alloc, now) == Ground::Silent => {
                        disconnect::mark(alloc, now, &mut changes);
                    }
                    Some(alloc) => keep(job, matcher, group, alloc, node, place, &mut changes),
                    None => {
                        let over = over.get(&slot).map_or(&[][..], Vec::as_slice);
                        fill(job, group, over, place, &mut changes);
                    }
                }
                for duplicate in here {
                    changes.of(&group.name).stop += 1;
                    changes.stop(duplicate, NOT_NEEDED);
                }
            }
        }
    }
    for alloc in slots.into_values().flatten() {
        elsewhere(view, job, alloc, now, &mut changes);
    }
    changes.places.sort_by_key(|place| !place.replaces);
    changes
}

fn keep(
    job: &Job,
    matcher: &mut Matcher,
    group: &TaskGroup,
    alloc: &Arc<Allocation>,
    node: &Node,
    place: Place,
    changes: &mut Changes,
) {
    // A user stopped this one: the node gets a new one.
    if alloc.desired_transition.migrate == Some(true) {
        changes.of(&group.name).stop += 1;
        changes.stop(alloc, crate::reconcile::MIGRATING);
        changes.places.push(Place { previous: Some(Arc::clone(alloc)), ..place });
        return;
    }
    match update_of(matcher, job, group, alloc, Some(node)) {
        Update::None => changes.of(&group.name).ignore += 1,
        Update::InPlace => {
            changes.of(&group.name).in_place_update += 1;
            changes.in_place.push(Arc::clone(alloc));
        }
        Update::Destructive => {
            changes.of(&group.name).destructive_update += 1;
            changes.places.push(Place { previous: Some(Arc::clone(alloc)), replaces: true, ..place });
        }
    }
}

fn fill(job: &Job, group: &TaskGroup, over: &[&Arc<Allocation>], place: Place, changes: &mut Changes) {
    if over.iter().any(|a| a.next_allocation.is_empty() && !gives_way(a, job)) {
        changes.of(&group.name).ignore += 1;
        return;
    }
    let previous = to_succeed(over.iter().copied()).map(Arc::clone);
    changes.places.push(Place { previous, ..place });
}

/// Allocations on nodes where the job does not run now, and surplus ones.
fn elsewhere<V: View>(view: &V, job: &Job, alloc: &Arc<Allocation>, now: UnixNanos, changes: &mut Changes) {
    let group = alloc.task_group.clone();
    let node = view.node(&alloc.node_id).map(AsRef::as_ref);
    let wanted = job.group(&group).is_some_and(|g| alloc.index().is_some_and(|index| index < g.count));
    let placed_well = node.is_some_and(|n| feasible::in_pool(job, n) && feasible::in_datacenters(job, n));
    if !wanted || !placed_well {
        changes.of(&group).stop += 1;
        changes.stop(alloc, NOT_NEEDED);
        return;
    }
    match ground(node, alloc, now) {
        Ground::Leaving => {
            changes.of(&group).stop += 1;
            changes.stop(alloc, TAINTED);
        }
        Ground::Silent => disconnect::mark(alloc, now, changes),
        // Not eligible for new ones: what runs goes on.
        Ground::Firm | Ground::Lost => changes.of(&group).ignore += 1,
    }
}
