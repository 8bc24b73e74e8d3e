//! The reconciliation of one group of a service or batch job.

use super::reschedule::{self, Verdict};
use super::{
    Changes, Ground, MIGRATING, NOT_NEEDED, Place, Previous, UPDATING, ground, is_current, to_succeed,
    update_of,
};
use crate::diff::Update;
use crate::disconnect::{self, Clock};
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::EvalId;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::job::{Job, JobType, TaskGroup, UpdateStrategy};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The inputs of reconciling the groups of a job.
pub(super) struct Pass<'a, V> {
    pub view: &'a V,
    pub job: &'a Job,
    pub matcher: &'a mut Matcher,
    pub eval: &'a EvalId,
    pub clock: Clock<'a>,
    pub changes: &'a mut Changes,
}

/// An index of the group without a running allocation.
struct Gap {
    index: u32,
    why: Why,
}

/// The reason that an index has no running allocation.
enum Why {
    /// No allocation ever ran, or the last allocation has a successor or does not matter.
    New,
    /// The allocation had to stop, or its node is down.
    Left(Arc<Allocation>),
    /// The allocation failed and is due for rescheduling.
    Failed(Arc<Allocation>),
    /// The allocation is unknown, and a replacement runs in the meantime.
    Silent(Arc<Allocation>),
}

impl Why {
    fn previous(&self) -> Option<&Arc<Allocation>> {
        match self {
            Self::New => None,
            Self::Left(alloc) | Self::Failed(alloc) | Self::Silent(alloc) => Some(alloc),
        }
    }
}

/// The state of all indexes of a group.
#[derive(Default)]
struct Survey {
    destructive: Vec<(u32, Arc<Allocation>)>,
    in_place: Vec<Arc<Allocation>>,
    leaving: Vec<(u32, Arc<Allocation>)>,
    gaps: Vec<Gap>,
    /// The number of allocations of the deployment that are not yet healthy.
    unsettled: u32,
    /// Whether an allocation of the deployment is known to be unhealthy.
    unhealthy: bool,
}

/// The state of a group's canaries.
#[derive(Default)]
struct Canaries {
    /// The indexes of the canaries that are kept or wait.
    taken: BTreeSet<u32>,
    /// The failed or lost canaries that are placed again.
    again: Vec<Option<Arc<Allocation>>>,
}

impl<V: View> Pass<'_, V> {
    pub fn group(
        &mut self,
        at: usize,
        group: &TaskGroup,
        live: Vec<Arc<Allocation>>,
        over: Vec<Arc<Allocation>>,
    ) {
        self.changes.group_mut(&group.name);
        let rolls = self.job.kind == JobType::Service;
        let strategy = group.update.as_ref().filter(|update| rolls && update.is_rolling());
        let had_run = live.iter().chain(&over).any(|alloc| is_current(alloc, self.job));
        let (canaries, live): (Vec<_>, Vec<_>) = live.into_iter().partition(|alloc| alloc.is_canary());
        let (dead_canaries, over): (Vec<_>, Vec<_>) = over.into_iter().partition(|alloc| alloc.is_canary());
        let canaries = self.canaries(group, canaries, dead_canaries);
        let survey = self.survey(group, live, over);
        self.begin(group, strategy, &survey, had_run);
        let canarying = self.changes.rollout.group(&group.name).is_some_and(|state| state.is_canarying());
        let held = self.changes.rollout.is_failed() || self.changes.rollout.is_paused();
        let ready = strategy.is_none() || !(canarying || held);
        self.place_canaries(at, group, canarying && !held, canaries, &survey);
        let mut limit = match strategy {
            None => usize::MAX,
            Some(_) if !ready || survey.unhealthy => 0,
            Some(update) => {
                // Allocations that move to this deployment in place count as down until they are healthy.
                let taken_over = survey.in_place.iter().filter(|alloc| alloc.health() != Some(true)).count();
                let open = survey.gaps.len() + survey.leaving.len() + taken_over;
                let open = u32::try_from(open).unwrap_or(u32::MAX);
                let down = survey.unsettled.saturating_add(open);
                usize::try_from(update.max_parallel.saturating_sub(down)).unwrap_or(usize::MAX)
            }
        };
        for alloc in survey.in_place {
            self.changes.group_mut(&group.name).in_place_update += 1;
            let deployment = self.deployment(group);
            self.changes.in_place.push((alloc, deployment));
        }
        for gap in survey.gaps {
            self.fill(at, group, gap, ready);
        }
        for (index, alloc) in survey.leaving {
            self.changes.group_mut(&group.name).migrate += 1;
            self.changes.stop(&alloc, MIGRATING);
            let place = self.successor(at, group, index, alloc, ready);
            self.changes.places.push(place);
        }
        for (index, alloc) in survey.destructive {
            if limit == 0 {
                self.changes.group_mut(&group.name).ignore += 1;
                continue;
            }
            limit -= 1;
            self.changes.group_mut(&group.name).destructive_update += 1;
            let place = self.place(at, group, index);
            self.changes.places.push(Place { previous: Previous::Running(alloc), ..place });
        }
    }

    /// Adds this group to the deployment, if the group's version is new.
    fn begin(
        &mut self,
        group: &TaskGroup,
        strategy: Option<&UpdateStrategy>,
        survey: &Survey,
        had_run: bool,
    ) {
        let Some(strategy) = strategy.filter(|_| group.count > 0) else { return };
        let updating = !survey.destructive.is_empty() || !survey.in_place.is_empty();
        if had_run && !updating {
            return;
        }
        let tries = !survey.destructive.is_empty() && !self.changes.rollout.is_done();
        let canaries = if tries { strategy.canary } else { 0 };
        self.changes.rollout.begin(group, strategy, group.count, canaries);
    }

    fn deployment(&self, group: &TaskGroup) -> caravan_types::DeploymentId {
        self.changes.rollout.id_for(&group.name).cloned().unwrap_or_default()
    }

    fn place(&self, at: usize, group: &TaskGroup, index: u32) -> Place {
        Place {
            group: at,
            name: format!("{}.{}[{index}]", self.job.id, group.name),
            deployment: self.deployment(group),
            ..Place::default()
        }
    }

    /// Returns a placement that replaces an allocation. During canaries or a paused or failed deployment, it runs the
    /// version of that allocation.
    fn successor(
        &self,
        at: usize,
        group: &TaskGroup,
        index: u32,
        previous: Arc<Allocation>,
        ready: bool,
    ) -> Place {
        let place = self.place(at, group, index);
        let earlier = previous
            .job
            .clone()
            .filter(|old| !ready && !is_current(&previous, self.job) && old.group(&group.name).is_some());
        let deployment = if earlier.is_some() { Default::default() } else { place.deployment };
        Place { previous: Previous::Left(previous), version: earlier, deployment, ..place }
    }

    /// Returns whether the newest version may not be placed freely, because its deployment has unpromoted canaries,
    /// is paused or failed.
    fn is_held(&self, group: &TaskGroup) -> bool {
        let rollout = &self.changes.rollout;
        let tries = rollout.group(&group.name).is_some_and(|state| state.is_canarying());
        tries || rollout.is_failed() || rollout.is_paused()
    }

    fn ground(&self, alloc: &Allocation) -> Ground {
        ground(self.view.node(&alloc.node_id).map(AsRef::as_ref), alloc, self.clock)
    }

    fn verdict(&self, alloc: &Allocation) -> Verdict {
        let held = self.changes.rollout.holds_back(alloc);
        let due = alloc.followup_eval_id == *self.eval;
        reschedule::verdict(alloc, self.clock.now, held, due)
    }

    /// Keeps canaries of the current deployment until they are promoted, and stops canaries of other deployments.
    fn canaries(
        &mut self,
        group: &TaskGroup,
        live: Vec<Arc<Allocation>>,
        over: Vec<Arc<Allocation>>,
    ) -> Canaries {
        let mut found = Canaries::default();
        for canary in live {
            let index = canary.index().unwrap_or(u32::MAX);
            let tried = self.changes.rollout.holds(&canary) && !self.changes.rollout.is_failed();
            match self.ground(&canary) {
                _ if !tried => {
                    self.changes.group_mut(&group.name).stop += 1;
                    self.changes.stop(&canary, NOT_NEEDED);
                }
                Ground::Leaving => {
                    self.changes.group_mut(&group.name).migrate += 1;
                    self.changes.stop(&canary, MIGRATING);
                    found.again.push(Some(canary));
                }
                Ground::Silent => {
                    disconnect::mark(&canary, self.clock, self.changes);
                    found.taken.insert(index);
                }
                Ground::Firm | Ground::Lost => {
                    self.changes.group_mut(&group.name).ignore += 1;
                    found.taken.insert(index);
                }
            }
        }
        for canary in over {
            let concerns = self.changes.rollout.holds(&canary)
                && canary.next_allocation.is_empty()
                && !canary.server_terminal()
                && canary.client_status == ClientStatus::Failed;
            if !concerns {
                continue;
            }
            match self.verdict(&canary) {
                Verdict::Now => found.again.push(Some(canary)),
                Verdict::Later(at) => {
                    found.taken.insert(canary.index().unwrap_or(u32::MAX));
                    self.changes.group_mut(&group.name).reschedule_later += 1;
                    self.changes.failed_until.push((canary, at));
                }
                Verdict::Never => {
                    found.taken.insert(canary.index().unwrap_or(u32::MAX));
                    self.changes.group_mut(&group.name).ignore += 1;
                }
            }
        }
        found
    }

    /// Places canaries next to the allocations that they will replace.
    fn place_canaries(
        &mut self,
        at: usize,
        group: &TaskGroup,
        requested: bool,
        canaries: Canaries,
        survey: &Survey,
    ) {
        let desired = self.changes.rollout.group(&group.name).map_or(0, |state| state.desired_canaries);
        let Canaries { mut taken, mut again } = canaries;
        let there = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        if !requested || there >= desired {
            return;
        }
        let updated: Vec<u32> = survey.destructive.iter().map(|(index, _)| *index).collect();
        for _ in there..desired {
            let free = updated.iter().copied().chain(0..).find(|index| !taken.contains(index));
            let index = free.unwrap_or(0);
            taken.insert(index);
            let place = Place { canary: true, ..self.place(at, group, index) };
            let place = match again.pop().flatten() {
                Some(previous) => {
                    let failed = previous.client_status == ClientStatus::Failed;
                    match failed {
                        true => {
                            let penalties = reschedule::penalties(&previous);
                            Place { penalties, previous: Previous::Failed(previous), ..place }
                        }
                        false => Place { previous: Previous::Left(previous), ..place },
                    }
                }
                None => place,
            };
            self.changes.group_mut(&group.name).canary += 1;
            self.changes.places.push(place);
        }
    }

    fn survey(
        &mut self,
        group: &TaskGroup,
        live: Vec<Arc<Allocation>>,
        over: Vec<Arc<Allocation>>,
    ) -> Survey {
        let mut survey = Survey::default();
        let mut slots: BTreeMap<u32, Vec<Arc<Allocation>>> = BTreeMap::new();
        for alloc in live {
            // A name without an index cannot be distinguished from other names, so it counts as beyond the last
            // index.
            slots.entry(alloc.index().unwrap_or(u32::MAX)).or_default().push(alloc);
        }
        let mut ended: BTreeMap<u32, Vec<Arc<Allocation>>> = BTreeMap::new();
        for alloc in over {
            if let Some(index) = alloc.index() {
                ended.entry(index).or_default().push(alloc);
            }
        }
        for index in 0..group.count {
            let here = slots.remove(&index).unwrap_or_default();
            let ended = ended.remove(&index).unwrap_or_default();
            self.slot(group, index, here, &ended, &mut survey);
        }
        for alloc in slots.into_values().flatten() {
            self.changes.group_mut(&group.name).stop += 1;
            self.changes.stop(&alloc, NOT_NEEDED);
        }
        survey
    }

    fn slot(
        &mut self,
        group: &TaskGroup,
        index: u32,
        here: Vec<Arc<Allocation>>,
        over: &[Arc<Allocation>],
        survey: &mut Survey,
    ) {
        let (silent, here): (Vec<_>, Vec<_>) =
            here.into_iter().partition(|alloc| self.ground(alloc) == Ground::Silent);
        silent.iter().for_each(|alloc| disconnect::mark(alloc, self.clock, self.changes));
        let mut here = disconnect::reconcile(self.job, here, self.changes);
        // The allocation that needs the least change is kept, and duplicates of a name are stopped.
        here.sort_by_key(|a| (!is_current(a, self.job), Reverse(a.create_index)));
        let mut here = here.into_iter();
        match here.next() {
            Some(alloc) => self.keep(group, index, alloc, survey),
            None if silent.iter().any(|alloc| !disconnect::is_replaced(alloc)) => {}
            None => self.vacant(group, index, silent.last(), over, survey),
        }
        for duplicate in here {
            self.changes.group_mut(&group.name).stop += 1;
            self.changes.stop(&duplicate, NOT_NEEDED);
        }
    }

    fn keep(&mut self, group: &TaskGroup, index: u32, alloc: Arc<Allocation>, survey: &mut Survey) {
        if self.changes.rollout.holds(&alloc) {
            match alloc.health() {
                Some(true) => {}
                Some(false) => survey.unhealthy = true,
                None => survey.unsettled += 1,
            }
        }
        // Lost allocations and allocations of disconnected nodes are not handled here.
        if alloc.desired_transition.migrate == Some(true) {
            survey.leaving.push((index, alloc));
            return;
        }
        let node = self.view.node(&alloc.node_id).map(AsRef::as_ref);
        match update_of(self.matcher, self.job, group, &alloc, node) {
            Update::None => self.changes.group_mut(&group.name).ignore += 1,
            Update::InPlace => survey.in_place.push(alloc),
            Update::Destructive => survey.destructive.push((index, alloc)),
        }
    }

    /// Handles an index without a running allocation: finds the reason, and decides whether to place an allocation.
    fn vacant(
        &mut self,
        group: &TaskGroup,
        index: u32,
        silent: Option<&Arc<Allocation>>,
        over: &[Arc<Allocation>],
        survey: &mut Survey,
    ) {
        let open = || over.iter().filter(|alloc| alloc.next_allocation.is_empty());
        if let Some(until) = open().filter_map(|a| disconnect::stopping_until(a, self.clock)).max() {
            self.changes.group_mut(&group.name).reschedule_later += 1;
            self.changes.later.insert(until);
            return;
        }
        let current = |alloc: &&Arc<Allocation>| is_current(alloc, self.job) && !alloc.server_terminal();
        if self.job.kind.is_batch()
            && open().filter(current).any(|alloc| alloc.client_status == ClientStatus::Complete)
        {
            self.changes.group_mut(&group.name).ignore += 1;
            return;
        }
        let failed = open().filter(|alloc| {
            let older = !is_current(alloc, self.job);
            // A failure of an older version does not matter: the newest version is placed immediately, unless it is
            // held.
            (!older || self.is_held(group))
                && !alloc.server_terminal()
                && alloc.client_status == ClientStatus::Failed
        });
        if let Some(alloc) = failed.max_by_key(|alloc| alloc.create_index) {
            let alloc = Arc::clone(alloc);
            let of_deployment = self.changes.rollout.holds(&alloc);
            match self.verdict(&alloc) {
                Verdict::Now => survey.gaps.push(Gap { index, why: Why::Failed(alloc) }),
                Verdict::Later(at) => {
                    survey.unhealthy |= of_deployment;
                    self.changes.group_mut(&group.name).reschedule_later += 1;
                    self.changes.failed_until.push((alloc, at));
                }
                Verdict::Never => {
                    survey.unhealthy |= of_deployment;
                    self.changes.group_mut(&group.name).ignore += 1;
                }
            }
            return;
        }
        let why = match silent {
            Some(alloc) => Why::Silent(Arc::clone(alloc)),
            None => {
                let left = to_succeed(
                    over.iter().filter(|a| is_current(a, self.job) || a.server_terminal() || !a.terminal()),
                );
                let lost = || over.iter().find(|alloc| !alloc.terminal());
                left.or_else(lost).map_or(Why::New, |alloc| Why::Left(Arc::clone(alloc)))
            }
        };
        survey.gaps.push(Gap { index, why });
    }

    /// Places missing allocations as far as the deployment allows. While the deployment is held or has unpromoted
    /// canaries, only allocations that ran before are replaced.
    fn fill(&mut self, at: usize, group: &TaskGroup, gap: Gap, ready: bool) {
        let held = !ready && gap.why.previous().is_none_or(|previous| self.may_not_return(previous));
        if held {
            return;
        }
        let place = match gap.why {
            Why::New => self.place(at, group, gap.index),
            Why::Failed(previous) => {
                let penalties = reschedule::penalties(&previous);
                self.changes.group_mut(&group.name).stop += 1;
                let place = self.successor(at, group, gap.index, Arc::clone(&previous), ready);
                Place { previous: Previous::Failed(previous), penalties, ..place }
            }
            Why::Left(previous) | Why::Silent(previous) => {
                self.successor(at, group, gap.index, previous, ready)
            }
        };
        self.changes.group_mut(&group.name).place += 1;
        self.changes.places.push(place);
    }

    /// Returns whether a held deployment prevents the replacement of an allocation. That applies to an allocation
    /// that was stopped for the new version while the deployment is active. It also applies to an allocation that
    /// failed within the deployment.
    fn may_not_return(&self, previous: &Allocation) -> bool {
        let rollout = &self.changes.rollout;
        let made_way = previous.desired_description == UPDATING && !rollout.is_failed();
        let broke = rollout.holds(previous) && previous.client_status == ClientStatus::Failed;
        made_way || broke
    }
}
