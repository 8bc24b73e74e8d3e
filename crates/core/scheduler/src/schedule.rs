//! The processing of one evaluation into a decision.

use crate::context::Context;
use crate::decision::{Outcome, decide};
use crate::disconnect::{Clock, Passed};
use crate::field::Memory;
use crate::metric;
use crate::place::{Failure, Selected, select};
use crate::preempt;
use crate::prepared::Prepared;
use crate::reconcile::{self, Changes, NOT_NEEDED, Place, Previous, RESCHEDULED, Stop, UPDATING, reschedule};
use crate::rng::Rng;
use crate::system;
use crate::versions::Versions;
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::alloc::{AllocDeploymentStatus, Allocation, ClientStatus, DesiredStatus};
use caravan_types::eval::{Evaluation, WaitsFor};
use caravan_types::job::Job;
use caravan_types::plan::Decision;
use caravan_types::small::Text;
use caravan_types::{AllocId, DeploymentId, UnixNanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The non-deterministic inputs of a decision.
#[derive(Clone, Debug)]
pub struct Params {
    /// The wall clock.
    pub now: UnixNanos,
    /// The seed that breaks ties and creates ids. The same seed gives the same decision. It must be random for each
    /// evaluation, because ids are derived from it.
    pub seed: u64,
    /// The time for which allocations have been unknown or lost.
    pub passed: Passed,
}

impl Params {
    /// Creates parameters for a cluster whose clock never steps.
    pub fn new(now: UnixNanos, seed: u64) -> Self {
        Self { now, seed, passed: Passed::Recorded }
    }

    fn clock(&self) -> Clock<'_> {
        Clock { now: self.now, passed: &self.passed }
    }
}

/// Returns the decision on an evaluation.
///
/// The evaluation in the decision is complete: it has the counts of queued allocations and the reasons. If a later
/// change of the cluster may allow a failed placement, a blocked evaluation follows. If the evaluation was itself a
/// blocked one, it is blocked again instead. The follow-ups cancel other blocked evaluations of the job, because this
/// evaluation already covers the changes for which they wait.
pub fn schedule<V: View>(view: &V, eval: &Evaluation, params: &Params) -> Decision {
    schedule_with(view, eval, params, &mut Memory::default())
}

/// Returns the decision on an evaluation as [`schedule`] does, with cached results of earlier evaluations. The cache
/// does not change the decision.
pub fn schedule_with<V: View>(view: &V, eval: &Evaluation, params: &Params, memory: &mut Memory) -> Decision {
    let key = eval.job_key();
    let job = view.job(&key).cloned();
    let mut rng = Rng::new(params.seed, eval.id.as_str());
    let (mut changes, outcome) = match job.as_ref().filter(|job| !job.is_stopped()) {
        None => {
            let changes = reconcile::stop_all(view, &key, params.clock());
            let outcome = Outcome { stops: changes.stops.clone(), ..Outcome::default() };
            (changes, outcome)
        }
        // Periodic and parameterized jobs are parent jobs: only their children run.
        Some(job) if job.is_template() => (Changes::default(), Outcome::default()),
        Some(job) => run(view, job, eval, params, &mut rng, memory),
    };
    for group in job.iter().flat_map(|job| &job.task_groups) {
        changes.group_mut(&group.name);
    }
    decide(view, eval, job, params.now, &mut rng, changes, outcome)
}

fn run<V: View>(
    view: &V,
    job: &Arc<Job>,
    eval: &Evaluation,
    params: &Params,
    rng: &mut Rng,
    memory: &mut Memory,
) -> (Changes, Outcome) {
    let field = memory.field(view, job);
    let nodes = &field.nodes;
    let mut matcher = Matcher::new();
    let id = DeploymentId::from(rng.uuid());
    let mut changes = if job.kind.is_system() {
        system::changes(view, job, nodes, &mut matcher, eval, id, params.clock())
    } else {
        reconcile::changes(view, job, &mut matcher, eval, id, params.clock())
    };
    let places = std::mem::take(&mut changes.places);
    let versions = Versions::new(job, &places);
    let mut ctx = Context::new(view, job, &field, rng.clone());
    for stop in &changes.stops {
        ctx.stop(&stop.alloc);
    }
    let mut outcome =
        Outcome { stops: changes.stops.clone(), in_place: changes.in_place.clone(), ..Outcome::default() };
    let names = job.task_groups.iter().map(|group| Text::from(&group.name)).collect();
    let mut placer =
        Placer { job, eval, now: params.now, names, prepared: BTreeMap::new(), versions: &versions };
    let base = outcome.stops.len();
    for place in places {
        placer.place(&mut ctx, place, &mut changes, &mut outcome);
    }
    // Later ids are drawn after all ids that placing drew.
    *rng = ctx.rng.clone();
    if job.all_at_once && !outcome.failed.is_empty() {
        // All or nothing: no allocation of the job is placed or replaced.
        outcome.stops.truncate(base);
        outcome.preempted.clear();
        let (placements, ..) = ctx.into_placements();
        for alloc in placements.into_values().flatten() {
            *outcome.queued.entry(alloc.task_group.into()).or_default() += 1;
        }
        outcome.blocked = true;
    } else {
        (outcome.placements, outcome.claims, outcome.host_claims) = ctx.into_placements();
        for group in preempt::spare(view, nodes, &mut outcome) {
            changes.group_mut(&group).preemptions -= 1;
        }
    }
    if job.kind.is_system() {
        let updated: BTreeSet<&AllocId> =
            outcome.stops.iter().filter(|s| s.description == UPDATING).map(|s| &s.alloc.id).collect();
        let news =
            outcome.placements.values().flatten().filter(|a| !updated.contains(&a.previous_allocation));
        system::settle(job, news, &mut changes);
    }
    (changes, outcome)
}

struct Placer<'a> {
    job: &'a Arc<Job>,
    eval: &'a Evaluation,
    now: UnixNanos,
    /// The names of the groups, by position.
    names: Vec<Text>,
    prepared: BTreeMap<(usize, Option<u64>), Prepared<'a>>,
    versions: &'a Versions,
}

impl<'a> Placer<'a> {
    fn place<V: View>(
        &mut self,
        ctx: &mut Context<'a, V>,
        place: Place,
        changes: &mut Changes,
        outcome: &mut Outcome,
    ) {
        let newest: &'a Job = self.job;
        let group = &newest.task_groups[place.group];
        let (job, group) = self.versions.find(&place, &group.name).unwrap_or((newest, group));
        ctx.job = job;
        let version = place.version.as_ref().map(|old| old.version);
        let prepared = self
            .prepared
            .entry((place.group, version))
            .or_insert_with(|| Prepared::new(ctx, place.group, job, group));
        let is_system = job.kind.is_system();
        // A group that failed once fails again, because no resources were freed in between.
        if place.previous.running().is_none()
            && !is_system
            && !prepared.differs_by_name()
            && let Some(metric) = outcome.failed.get_mut(&group.name)
        {
            metric.coalesced_failures += 1;
            metric::ask(metric, group);
            *outcome.queued.entry(group.name.clone()).or_default() += 1;
            return;
        }
        let replaced = place.previous.running().map(Arc::clone);
        if let Some(old) = &replaced {
            ctx.stop(old);
        }
        match select(ctx, prepared, &place, false) {
            Ok(selected) => {
                if let Some(old) = replaced {
                    outcome.stops.push(Stop { alloc: old, description: UPDATING, lost: false });
                } else if is_system {
                    changes.group_mut(&group.name).place += 1;
                }
                if let Some(failed) = place.previous.failed().filter(|_| !is_system).map(Arc::clone) {
                    outcome.stops.push(Stop { alloc: failed, description: RESCHEDULED, lost: false });
                }
                changes.group_mut(&group.name).preemptions += selected.preempted.len() as u64;
                self.add(ctx, place, selected, outcome);
            }
            Err(failure) => {
                if let Some(old) = replaced {
                    // Only the claim of the old allocation blocks the new one, so the old allocation must stop first.
                    let of_old = |w: &WaitsFor| matches!(w, WaitsFor::Claim(_) | WaitsFor::HostVolume(..));
                    let waits_for_old = failure.waits.iter().any(of_old) && would_fit(ctx, prepared, &place);
                    if waits_for_old {
                        outcome.stops.push(Stop { alloc: old, description: UPDATING, lost: false });
                        // Every update of a volume's only writer waits in this way for a moment: the allocation is
                        // queued, but did not fail.
                        queue(prepared, failure.waits, outcome);
                        return;
                    } else if is_system && !failure.may_change() {
                        outcome.stops.push(Stop { alloc: old, description: NOT_NEEDED, lost: false });
                    } else {
                        ctx.unstop(&old);
                    }
                }
                let counts = !is_system || failure.may_change();
                record(prepared, *failure, counts, is_system, changes, outcome);
            }
        }
    }

    fn add<V: View>(
        &self,
        ctx: &mut Context<'a, V>,
        place: Place,
        selected: Selected,
        outcome: &mut Outcome,
    ) {
        let Selected { node, resources, mut claims, mut host_claims, metric, preempted } = selected;
        let job = self.job;
        let id = ctx.rng.uuid().into();
        crate::csi::assign(&mut claims, &id);
        crate::host::assign(&mut host_claims, &id);
        for claim in &mut claims {
            claim.create_time = self.now;
            claim.modify_time = self.now;
        }
        for victim in &preempted {
            ctx.evict(victim);
            outcome.preempted.push((Arc::clone(victim), AllocId::clone(&id)));
        }
        let status = AllocDeploymentStatus { canary: true, ..AllocDeploymentStatus::default() };
        let tracker = match &place.previous {
            Previous::Failed(old) => Some(Arc::new(reschedule::tracker(old, self.now))),
            // The recorded attempts continue.
            Previous::Left(old) => old.reschedule_tracker.clone(),
            Previous::Running(_) | Previous::None => None,
        };
        let alloc = Allocation {
            id,
            job: place.version,
            deployment_id: place.deployment,
            deployment_status: place.canary.then_some(status),
            reschedule_tracker: tracker,
            preempted_allocations: preempted.iter().map(|victim| victim.id.clone()).collect(),
            namespace: job.namespace.clone(),
            eval_id: self.eval.id.clone(),
            name: place.name,
            node_id: node.id.clone(),
            node_name: node.name.clone(),
            job_id: job.id.clone(),
            task_group: self.names[place.group].clone(),
            allocated_resources: Some(resources),
            metrics: Some(Arc::new(metric)),
            desired_status: DesiredStatus::Run,
            client_status: ClientStatus::Pending,
            previous_allocation: place.previous.alloc().map(|old| old.id.clone()).unwrap_or_default(),
            create_time: self.now,
            modify_time: self.now,
            ..Allocation::default()
        };
        ctx.place(alloc, claims, host_claims);
    }
}

/// Returns whether a node would fit once the allocations that the plan stops have released their volumes. No
/// allocation is preempted for that yet.
fn would_fit<V: View>(ctx: &mut Context<'_, V>, prepared: &mut Prepared<'_>, place: &Place) -> bool {
    let Ok(selected) = select(ctx, prepared, place, true) else { return false };
    selected.preempted.iter().for_each(|victim| ctx.unstop(victim));
    true
}

fn record(
    prepared: &Prepared<'_>,
    failure: Failure,
    counts: bool,
    is_system: bool,
    changes: &mut Changes,
    outcome: &mut Outcome,
) {
    let name = &prepared.group.name;
    let Failure { metric: failed, waits, notes } = failure;
    outcome.notes.entry(name.clone()).or_insert(notes);
    if counts {
        queue(prepared, waits, outcome);
        if is_system {
            changes.group_mut(name).place += 1;
        }
    } else {
        // A node that does not suit a system job is not a failure, but a group without any suitable node is reported.
        let runs_somewhere = changes
            .updates
            .get(name)
            .is_some_and(|u| u.place + u.ignore + u.in_place_update + u.destructive_update > 0);
        if runs_somewhere {
            return;
        }
    }
    match outcome.failed.get_mut(name) {
        Some(metric) if is_system => metric::merge(metric, &failed),
        Some(metric) => {
            metric.coalesced_failures += 1;
            metric::ask(metric, prepared.group);
        }
        None => {
            outcome.failed.insert(name.clone(), failed);
        }
    }
}

/// Counts an allocation as queued, and adds all changes that may allow its placement.
fn queue(prepared: &Prepared<'_>, waits: BTreeSet<WaitsFor>, outcome: &mut Outcome) {
    *outcome.queued.entry(prepared.group.name.clone()).or_default() += 1;
    outcome.blocked = true;
    outcome.waits.extend(waits);
    outcome.escaped |= prepared.escaped;
    for (class, fits) in &prepared.classes {
        *outcome.classes.entry(class.clone()).or_default() |= fits;
    }
}
