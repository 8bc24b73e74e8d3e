//! System and sysbatch jobs: one allocation on every node, and for sysbatch as many as the group's count.

use crate::diff::Update;
use crate::disconnect::{self, Clock};
use crate::feasible;
use crate::reconcile::reschedule::{self, Verdict};
use crate::reconcile::rollout::Rollout;
use crate::reconcile::{
    self, Changes, Ground, NOT_NEEDED, Place, Previous, TAINTED, gives_way, ground, is_current, live,
    to_succeed, update_of,
};
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::eval::Evaluation;
use caravan_types::job::{Job, JobType, TaskGroup, UpdateStrategy};
use caravan_types::node::Node;
use caravan_types::{DeploymentId, EvalId, NodeId, UnixNanos};
use std::collections::BTreeMap;
use std::sync::Arc;

type Slot<'a> = (&'a str, &'a NodeId, u32);

/// Returns the changes that a system job needs. `nodes` are the nodes on which the job may run now, and `id` is for a
/// new deployment.
///
/// The counts of placements stay zero, because only placing shows whether a node counts at all. [`settle`] therefore
/// sets the deployment's desired total.
pub(crate) fn changes<V: View>(
    view: &V,
    job: &Job,
    nodes: &[Arc<Node>],
    matcher: &mut Matcher,
    eval: &Evaluation,
    id: DeploymentId,
    clock: Clock<'_>,
) -> Changes {
    let mut changes = Changes { rollout: Rollout::new(view, job, eval, id), ..Changes::default() };
    changes.ended = std::mem::take(&mut changes.rollout.ended);
    let key = job.key();
    let allocs = live(view, &key, clock, &mut changes);
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
        changes.group_mut(&group.name);
        let survey = Survey::default();
        let mut group_pass = GroupPass { job, group, at, now: clock.now, eval: &eval.id, survey };
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
                    Some(alloc) if ground(Some(node), alloc, clock) == Ground::Silent => {
                        disconnect::mark(alloc, clock, &mut changes);
                    }
                    Some(alloc) => group_pass.keep(matcher, alloc, node, place, &mut changes),
                    None => {
                        let over = over.get(&slot).map_or(&[][..], Vec::as_slice);
                        group_pass.vacant(over, place, &mut changes);
                    }
                }
                for duplicate in here {
                    changes.group_mut(&group.name).stop += 1;
                    changes.stop(duplicate, NOT_NEEDED);
                }
            }
        }
        let had_run = view
            .allocs_by_job(&key)
            .any(|alloc| alloc.task_group == group.name && reconcile::is_current(alloc, job));
        group_pass.finish(had_run, &mut changes);
    }
    for alloc in slots.into_values().flatten() {
        elsewhere(view, job, alloc, clock, &mut changes);
    }
    changes.places.sort_by_key(|place| place.previous.running().is_none());
    changes
}

/// Sets the deployment's desired total: its existing allocations plus `news`, the allocations that this pass placed
/// without replacing another one.
pub(crate) fn settle<'a>(job: &Job, news: impl Iterator<Item = &'a Allocation>, changes: &mut Changes) {
    let fresh = changes.rollout.is_fresh();
    let mut placed: BTreeMap<&str, u32> = BTreeMap::new();
    for alloc in news {
        // A replacement of a failed allocation is already in the total.
        if fresh || alloc.previous_allocation.is_empty() {
            *placed.entry(alloc.task_group.as_str()).or_default() += 1;
        }
    }
    for group in &job.task_groups {
        let (Some(state), Some(new)) = (changes.rollout.group(&group.name), placed.get(group.name.as_str()))
        else {
            continue;
        };
        if changes.rollout.id_for(&group.name).is_some() {
            let total = state.desired_total.saturating_add(*new);
            changes.rollout.expect(&group.name, total);
        }
    }
}

/// The state of a group on its nodes.
#[derive(Default)]
struct Survey {
    destructive: Vec<Place>,
    in_place: Vec<Arc<Allocation>>,
    missing: Vec<Place>,
    /// The number of allocations of the newest version.
    current: u32,
    /// The number of existing canaries of the deployment.
    canaries: u32,
    /// The number of allocations of the deployment that are not yet healthy.
    unsettled: u32,
    unhealthy: bool,
    /// The time at which the newest allocation of the deployment was placed.
    newest: UnixNanos,
}

struct GroupPass<'a> {
    job: &'a Job,
    group: &'a TaskGroup,
    at: usize,
    now: UnixNanos,
    eval: &'a EvalId,
    survey: Survey,
}

impl GroupPass<'_> {
    fn keep(
        &mut self,
        matcher: &mut Matcher,
        alloc: &Arc<Allocation>,
        node: &Node,
        place: Place,
        changes: &mut Changes,
    ) {
        debug_assert_eq!(place.group, self.at, "a place is one of the group in hand");
        let survey = &mut self.survey;
        if changes.rollout.holds(alloc) {
            survey.newest = survey.newest.max(alloc.create_time);
            survey.canaries += u32::from(alloc.is_canary());
            match alloc.health() {
                Some(true) => {}
                Some(false) => survey.unhealthy = true,
                None => survey.unsettled += 1,
            }
        }
        // A user stopped this allocation, so the node gets a new one.
        if alloc.desired_transition.migrate == Some(true) {
            changes.group_mut(&self.group.name).stop += 1;
            changes.stop(alloc, reconcile::MIGRATING);
            survey.missing.push(Place { previous: Previous::Left(Arc::clone(alloc)), ..place });
            return;
        }
        match update_of(matcher, self.job, self.group, alloc, Some(node)) {
            Update::None => {
                survey.current += 1;
                changes.group_mut(&self.group.name).ignore += 1;
            }
            Update::InPlace => survey.in_place.push(Arc::clone(alloc)),
            Update::Destructive => {
                let place = Place { previous: Previous::Running(Arc::clone(alloc)), ..place };
                survey.destructive.push(place);
            }
        }
    }

    fn vacant(&mut self, over: &[&Arc<Allocation>], place: Place, changes: &mut Changes) {
        if over.iter().any(|a| a.next_allocation.is_empty() && !gives_way(a, self.job)) {
            changes.group_mut(&self.group.name).ignore += 1;
            return;
        }
        if let Some(failed) = self.failed(over) {
            let due = failed.followup_eval_id == *self.eval;
            match reschedule::verdict(failed, self.now, false, due) {
                Verdict::Now => {
                    let previous = Previous::Failed(Arc::clone(failed));
                    self.survey.missing.push(Place { previous, ..place });
                }
                Verdict::Later(at) => {
                    changes.group_mut(&self.group.name).reschedule_later += 1;
                    changes.failed_until.push((Arc::clone(failed), at));
                }
                Verdict::Never => changes.group_mut(&self.group.name).ignore += 1,
            }
            return;
        }
        let previous = to_succeed(over.iter().copied())
            .map_or(Previous::None, |alloc| Previous::Left(Arc::clone(alloc)));
        self.survey.missing.push(Place { previous, ..place });
    }

    /// Returns the newest allocation of this version that failed and has no successor.
    fn failed<'b>(&self, over: &[&'b Arc<Allocation>]) -> Option<&'b Arc<Allocation>> {
        let failed = over.iter().copied().filter(|alloc| {
            alloc.client_status == ClientStatus::Failed
                && alloc.next_allocation.is_empty()
                && !alloc.server_terminal()
                && is_current(alloc, self.job)
        });
        failed.max_by_key(|alloc| alloc.create_index)
    }

    /// Returns the number of nodes on which canaries run, which is a percentage of all nodes (`canary` of system
    /// jobs).
    fn canaries(&self, update: &UpdateStrategy) -> u32 {
        let survey = &self.survey;
        let all = survey.destructive.len() + survey.in_place.len() + survey.missing.len();
        let all = u64::try_from(all).unwrap_or(u64::MAX).saturating_add(u64::from(survey.current));
        let share = all.saturating_mul(u64::from(update.canary.min(100))).div_ceil(100);
        u32::try_from(share).unwrap_or(u32::MAX)
    }

    fn finish(self, had_run: bool, changes: &mut Changes) {
        let group = self.group;
        let rolls = self.job.kind == JobType::System;
        let strategy = group.update.as_ref().filter(|update| rolls && update.is_rolling());
        let updating = !self.survey.destructive.is_empty() || !self.survey.in_place.is_empty();
        if let Some(update) = strategy.filter(|_| updating || !had_run) {
            let survey = &self.survey;
            let there = survey.destructive.len() + survey.in_place.len();
            let total = u32::try_from(there).unwrap_or(u32::MAX).saturating_add(survey.current);
            let tries = !survey.destructive.is_empty() && !changes.rollout.is_done();
            let canaries = if tries { self.canaries(update) } else { 0 };
            changes.rollout.begin(group, update, total, canaries);
        }
        let state = changes.rollout.group(&group.name).cloned().unwrap_or_default();
        let held = changes.rollout.is_failed() || changes.rollout.is_paused();
        let deployment = changes.rollout.id_for(&group.name).cloned().unwrap_or_default();
        let canarying = state.is_canarying();
        let missing = u32::try_from(self.survey.missing.len()).unwrap_or(u32::MAX);
        let room = match strategy {
            None => u32::MAX,
            Some(_) if held => 0,
            Some(_) if canarying => state.desired_canaries.saturating_sub(self.survey.canaries),
            Some(_) if self.survey.unhealthy => 0,
            Some(update) => {
                let room = update.max_parallel.saturating_sub(self.survey.unsettled.saturating_add(missing));
                self.paced(update, room, changes)
            }
        };
        for alloc in self.survey.in_place {
            changes.group_mut(&group.name).in_place_update += 1;
            changes.in_place.push((alloc, deployment.clone()));
        }
        for place in self.survey.missing {
            changes.places.push(Place { deployment: deployment.clone(), ..place });
        }
        let mut room = usize::try_from(room).unwrap_or(usize::MAX);
        for place in self.survey.destructive {
            if room == 0 {
                changes.group_mut(&group.name).ignore += 1;
                continue;
            }
            room -= 1;
            if canarying && strategy.is_some() {
                changes.group_mut(&group.name).canary += 1;
            }
            changes.group_mut(&group.name).destructive_update += 1;
            let canary = canarying && strategy.is_some();
            changes.places.push(Place { canary, deployment: deployment.clone(), ..place });
        }
    }

    /// Returns the number of updates that may start now; 0 during the pause between batches (`stagger`).
    fn paced(&self, update: &UpdateStrategy, room: u32, changes: &mut Changes) -> u32 {
        let next = self.survey.newest.plus(update.stagger);
        if self.survey.newest.is_zero() || self.survey.destructive.is_empty() || room == 0 || next <= self.now
        {
            return room;
        }
        changes.next_batch = Some(changes.next_batch.map_or(next, |at| at.min(next)));
        0
    }
}

/// Handles surplus allocations, and allocations on nodes where the job may not be placed now.
fn elsewhere<V: View>(view: &V, job: &Job, alloc: &Arc<Allocation>, clock: Clock<'_>, changes: &mut Changes) {
    let group = alloc.task_group.clone();
    let node = view.node(&alloc.node_id).map(AsRef::as_ref);
    let desired = job.group(&group).is_some_and(|g| alloc.index().is_some_and(|index| index < g.count));
    let placed_well = node.is_some_and(|n| feasible::in_pool(job, n) && feasible::in_datacenters(job, n));
    if !desired || !placed_well {
        changes.group_mut(&group).stop += 1;
        changes.stop(alloc, NOT_NEEDED);
        return;
    }
    match ground(node, alloc, clock) {
        Ground::Leaving => {
            changes.group_mut(&group).stop += 1;
            changes.stop(alloc, TAINTED);
        }
        Ground::Silent => disconnect::mark(alloc, clock, changes),
        // The node accepts no new allocations, and running allocations continue.
        Ground::Firm | Ground::Lost => changes.group_mut(&group).ignore += 1,
    }
}
