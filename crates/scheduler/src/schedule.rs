//! Processes one evaluation into a decision.

use crate::context::Context;
use crate::disconnect::{Clock, Passed};
use crate::field::Memory;
use crate::metric;
use crate::place::{Failure, Selected, select};
use crate::prepared::Prepared;
use crate::reconcile::{self, Changes, NOT_NEEDED, Place, RESCHEDULED, Stop, UPDATING, reschedule};
use crate::rng::Rng;
use crate::system;
use crate::timed::Timed;
use crate::versions::Versions;
use crate::view::View;
use caravan_lang::Matcher;
use caravan_types::alloc::{AllocDeploymentStatus, Allocation, ClientStatus, DesiredStatus};
use caravan_types::eval::{AllocMetric, EvalStatus, Evaluation, Trigger, WaitsFor};
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::job::Job;
use caravan_types::plan::{Decision, Plan, PlanAnnotations, StopAlloc};
use caravan_types::small::Text;
use caravan_types::volume::Claim;
use caravan_types::{AllocId, DeploymentId, EvalId, NodeId, UnixNanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The non-deterministic inputs of a decision.
#[derive(Clone, Debug)]
pub struct Params {
    /// The wall clock.
    pub now: UnixNanos,
    /// Breaks ties and creates ids. The same seed gives the same decision. It must be random for each evaluation,
    /// because ids are derived from it.
    pub seed: u64,
    /// How long allocations have been unknown or lost.
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

const BLOCKED: &str = "created to place remaining allocations";

/// The result of placing.
#[derive(Default)]
struct Outcome {
    stops: Vec<Stop>,
    /// Preempted allocations of other jobs, each with the allocation that preempts it.
    preempted: Vec<(Arc<Allocation>, AllocId)>,
    in_place: Vec<(Arc<Allocation>, DeploymentId)>,
    placements: BTreeMap<NodeId, Vec<Allocation>>,
    claims: Vec<Claim>,
    host_claims: Vec<HostVolumeClaim>,
    failed: BTreeMap<String, AllocMetric>,
    queued: BTreeMap<String, u32>,
    /// Changes that would let failed placements succeed, by group.
    notes: BTreeMap<String, Vec<String>>,
    /// Whether a change of the cluster may allow a failed placement.
    blocked: bool,
    waits: BTreeSet<WaitsFor>,
    classes: BTreeMap<String, bool>,
    escaped: bool,
}

/// Decides what an evaluation changes.
///
/// The evaluation in the decision is complete: it has the counts of queued allocations and the reasons. If a later
/// change of the cluster may allow a failed placement, a blocked evaluation follows. If the evaluation was itself a
/// blocked one, it is blocked again instead. The follow-ups cancel other blocked evaluations of the job, because this
/// evaluation already covers everything that they wait for.
pub fn schedule<V: View>(view: &V, eval: &Evaluation, params: &Params) -> Decision {
    schedule_with(view, eval, params, &mut Memory::default())
}

/// Decides like [`schedule`], with cached results of earlier evaluations. The cache does not change the decision.
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
        changes.of(&group.name);
    }
    decide(view, eval, params, job, &mut rng, changes, outcome)
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
    let versions = Versions::of(job, &places);
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
    /// Names of the groups, by position.
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
        // A group that failed once fails again, because nothing was freed in between.
        if !place.replaces
            && !is_system
            && !prepared.differs_by_name()
            && let Some(metric) = outcome.failed.get_mut(&group.name)
        {
            metric.coalesced_failures += 1;
            metric::ask(metric, group);
            *outcome.queued.entry(group.name.clone()).or_default() += 1;
            return;
        }
        let replaced = place.previous.as_ref().filter(|_| place.replaces).map(Arc::clone);
        if let Some(old) = &replaced {
            ctx.stop(old);
        }
        match select(ctx, prepared, &place, false) {
            Ok(selected) => {
                if let Some(old) = replaced {
                    outcome.stops.push(Stop { alloc: old, description: UPDATING, lost: false });
                } else if is_system {
                    changes.of(&group.name).place += 1;
                }
                if let Some(failed) = place.previous.as_ref().filter(|_| place.reschedules) {
                    let failed = Arc::clone(failed);
                    outcome.stops.push(Stop { alloc: failed, description: RESCHEDULED, lost: false });
                }
                changes.of(&group.name).preemptions += selected.preempted.len() as u64;
                self.add(ctx, place, selected, outcome);
            }
            Err(failure) => {
                if let Some(old) = replaced {
                    // Only the claim of the old allocation blocks the new one: the old one must stop before the new one
                    // is placed.
                    let of_old = |w: &WaitsFor| matches!(w, WaitsFor::Claim(_) | WaitsFor::HostVolume(..));
                    let waits_for_old = failure.waits.iter().any(of_old) && would_fit(ctx, prepared, &place);
                    if waits_for_old {
                        outcome.stops.push(Stop { alloc: old, description: UPDATING, lost: false });
                        // Every update of a volume's only writer waits like this for a moment: the allocation is
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
        let tracker = place.previous.as_ref().and_then(|old| match place.reschedules {
            true => Some(Arc::new(reschedule::tracker(old, self.now))),
            // A replacement keeps the recorded reschedule attempts of the previous allocation.
            false => old.reschedule_tracker.clone().filter(|_| !place.replaces),
        });
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
            previous_allocation: place.previous.map(|old| old.id.clone()).unwrap_or_default(),
            create_time: self.now,
            modify_time: self.now,
            ..Allocation::default()
        };
        ctx.place(alloc, claims, host_claims);
    }
}

/// Returns whether a node would fit once the allocations that the plan stops have released their volumes. Nothing is
/// preempted for that yet.
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
            changes.of(name).place += 1;
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

/// Counts an allocation as queued, with everything that may allow its placement.
fn queue(prepared: &Prepared<'_>, waits: BTreeSet<WaitsFor>, outcome: &mut Outcome) {
    *outcome.queued.entry(prepared.group.name.clone()).or_default() += 1;
    outcome.blocked = true;
    outcome.waits.extend(waits);
    outcome.escaped |= prepared.escaped;
    for (class, fits) in &prepared.classes {
        *outcome.classes.entry(class.clone()).or_default() |= fits;
    }
}

fn decide<V: View>(
    view: &V,
    eval: &Evaluation,
    params: &Params,
    job: Option<Arc<Job>>,
    rng: &mut Rng,
    mut changes: Changes,
    mut outcome: Outcome,
) -> Decision {
    let now = params.now;
    if let Some(job) = job.as_ref().filter(|j| j.kind.is_system()) {
        // Drops failures of groups that were placed on another node.
        let placed: BTreeSet<&str> =
            outcome.placements.values().flatten().map(|a| a.task_group.as_str()).collect();
        let queued = &outcome.queued;
        outcome.failed.retain(|group, _| queued.contains_key(group) || !placed.contains(group.as_str()));
        debug_assert!(outcome.failed.keys().all(|name| job.group(name).is_some()));
    }
    let mut queued: BTreeMap<String, u32> =
        job.iter().flat_map(|j| &j.task_groups).map(|g| (g.name.clone(), 0)).collect();
    queued.extend(std::mem::take(&mut outcome.queued));

    let timed = Timed::new(view, eval, job.as_deref(), rng, &changes, now);
    let rollout = std::mem::take(&mut changes.rollout);
    let (deployment, deployment_id) = rollout.finish();
    let mut plan = Plan {
        eval_id: eval.id.clone(),
        priority: eval.priority,
        all_at_once: job.as_ref().is_some_and(|job| job.all_at_once),
        job: job.clone(),
        snapshot_index: view.index(),
        placements: outcome.placements,
        claims: outcome.claims,
        host_claims: outcome.host_claims,
        annotations: Some(PlanAnnotations {
            desired_tg_updates: changes.updates,
            ..PlanAnnotations::default()
        }),
        deployment,
        deployment_updates: changes.ended,
        ..Plan::default()
    };
    for (alloc, until) in &changes.unknown {
        let unknown = timed.unknown(alloc, *until, eval, now);
        plan.placements.entry(alloc.node_id.clone()).or_default().push(unknown);
    }
    for waiting in timed.waiting(&changes.failed_until) {
        plan.placements.entry(waiting.node_id.clone()).or_default().push(waiting);
    }
    for (alloc, deployment_id) in outcome.in_place {
        let updated = Allocation {
            eval_id: eval.id.clone(),
            job: None,
            deployment_id,
            deployment_status: None,
            modify_time: now,
            ..Allocation::clone(&alloc)
        };
        plan.placements.entry(alloc.node_id.clone()).or_default().push(updated);
    }
    for stop in outcome.stops {
        plan.stops.entry(stop.alloc.node_id.clone()).or_default().push(StopAlloc {
            alloc_id: stop.alloc.id.clone(),
            description: stop.description.to_owned(),
            client_status: stop.lost.then_some(ClientStatus::Lost),
            ..StopAlloc::default()
        });
    }
    for (victim, by) in outcome.preempted {
        plan.stops.entry(victim.node_id.clone()).or_default().push(StopAlloc {
            alloc_id: victim.id.clone(),
            description: format!("Preempted by alloc ID {by}"),
            preempted_by: by,
            ..StopAlloc::default()
        });
        if let Some(annotations) = &mut plan.annotations {
            annotations.preempted_allocs.push(victim.stub());
        }
    }

    let mut done = Evaluation {
        status: EvalStatus::Complete,
        status_description: String::new(),
        failed_tg_allocs: outcome.failed,
        queued_allocations: queued,
        plan_annotations: plan.annotations.clone(),
        blocked_eval: EvalId::default(),
        deployment_id: if deployment_id.is_empty() { eval.deployment_id.clone() } else { deployment_id },
        class_eligibility: BTreeMap::new(),
        escaped_computed_class: false,
        missing_non_node_resources: Vec::new(),
        snapshot_index: view.index(),
        modify_time: now,
        ..eval.clone()
    };
    let mut follow_ups = timed.evals;
    let reblocks = outcome.blocked && eval.triggered_by == Trigger::QueuedAllocs;
    if outcome.blocked {
        let wait = |eval: &mut Evaluation| {
            eval.status = EvalStatus::Blocked;
            eval.status_description = BLOCKED.to_owned();
            // Annotations and deployment of the last round belong to its plan, not to the blocked evaluation.
            eval.plan_annotations = None;
            eval.deployment_id = DeploymentId::default();
            eval.class_eligibility = outcome.classes.clone();
            eval.escaped_computed_class = outcome.escaped;
            eval.missing_non_node_resources = outcome.waits.iter().map(WaitsFor::to_string).collect();
        };
        if reblocks {
            wait(&mut done);
        } else {
            let mut blocked = Evaluation {
                id: EvalId::from(rng.uuid()),
                namespace: eval.namespace.clone(),
                priority: eval.priority,
                kind: eval.kind.clone(),
                triggered_by: Trigger::QueuedAllocs,
                job_id: eval.job_id.clone(),
                job_modify_index: job.as_ref().map_or(eval.job_modify_index, |j| j.job_modify_index),
                previous_eval: eval.id.clone(),
                failed_tg_allocs: done.failed_tg_allocs.clone(),
                snapshot_index: view.index(),
                create_time: now,
                modify_time: now,
                ..Evaluation::default()
            };
            wait(&mut blocked);
            done.blocked_eval = blocked.id.clone();
            follow_ups.push(blocked);
        }
    }
    let key = eval.job_key();
    let superseded = view.evals_by_job(&key).filter(|e| e.status == EvalStatus::Blocked && e.id != eval.id);
    follow_ups.extend(superseded.map(|old| Evaluation {
        status: EvalStatus::Canceled,
        status_description: format!("evaluation {:?} looked at the job anew", eval.id.as_str()),
        modify_time: now,
        ..Evaluation::clone(old)
    }));
    let mut notes = outcome.notes;
    notes.retain(|group, notes| !notes.is_empty() && done.failed_tg_allocs.contains_key(group));
    Decision { plan, eval: done, follow_ups, notes }
}
