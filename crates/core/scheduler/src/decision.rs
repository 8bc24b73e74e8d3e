//! The conversion of the result of placing into a decision: a plan, the completed evaluation, and the evaluations
//! that follow.

use crate::reconcile::{Changes, Stop};
use crate::rng::Rng;
use crate::timed::Timed;
use crate::view::View;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::eval::{AllocMetric, EvalStatus, Evaluation, Trigger, WaitsFor};
use caravan_types::host_volume::HostVolumeClaim;
use caravan_types::job::Job;
use caravan_types::plan::{Decision, Plan, PlanAnnotations, StopAlloc};
use caravan_types::volume::Claim;
use caravan_types::{AllocId, DeploymentId, EvalId, NodeId, UnixNanos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const BLOCKED: &str = "created to place remaining allocations";

/// The result of placing.
#[derive(Default)]
pub(crate) struct Outcome {
    pub stops: Vec<Stop>,
    /// Preempted allocations of other jobs, each with the allocation that preempts it.
    pub preempted: Vec<(Arc<Allocation>, AllocId)>,
    pub in_place: Vec<(Arc<Allocation>, DeploymentId)>,
    pub placements: BTreeMap<NodeId, Vec<Allocation>>,
    pub claims: Vec<Claim>,
    pub host_claims: Vec<HostVolumeClaim>,
    pub failed: BTreeMap<String, AllocMetric>,
    pub queued: BTreeMap<String, u32>,
    /// The changes that would let failed placements succeed, by group.
    pub notes: BTreeMap<String, Vec<String>>,
    /// Whether a change of the cluster may allow a failed placement.
    pub blocked: bool,
    pub waits: BTreeSet<WaitsFor>,
    pub classes: BTreeMap<String, bool>,
    pub escaped: bool,
}

/// The evaluation, with the state that its decision is based on.
struct Round<'a, V: View> {
    view: &'a V,
    eval: &'a Evaluation,
    job: Option<&'a Arc<Job>>,
    now: UnixNanos,
}

/// Returns the decision on an evaluation of a job. The job is absent if it was purged.
pub(crate) fn decide<V: View>(
    view: &V,
    eval: &Evaluation,
    job: Option<Arc<Job>>,
    now: UnixNanos,
    rng: &mut Rng,
    mut changes: Changes,
    mut outcome: Outcome,
) -> Decision {
    let round = Round { view, eval, job: job.as_ref(), now };
    round.drop_settled_failures(&mut outcome);
    let timed = Timed::new(view, eval, job.as_deref(), rng, &changes, now);
    let (deployment, deployment_id) = std::mem::take(&mut changes.rollout).finish();
    let mut plan = Plan { deployment, ..round.plan(&mut changes, &mut outcome) };
    for (alloc, until) in &changes.unknown {
        place_again(&mut plan, timed.unknown(alloc, *until, eval, now));
    }
    for waiting in timed.waiting(&changes.failed_until) {
        place_again(&mut plan, waiting);
    }
    round.update_in_place(&mut plan, std::mem::take(&mut outcome.in_place));
    round.stop(&mut plan, &mut outcome);

    let mut done = round.completed(&plan, &mut outcome, deployment_id);
    let mut follow_ups = timed.evals;
    if outcome.blocked {
        if eval.triggered_by == Trigger::QueuedAllocs {
            block(&mut done, &outcome);
        } else {
            let blocked = round.blocked(&done, &outcome, EvalId::from(rng.uuid()));
            done.blocked_eval = blocked.id.clone();
            follow_ups.push(blocked);
        }
    }
    follow_ups.extend(round.superseded());
    let mut notes = outcome.notes;
    notes.retain(|group, notes| !notes.is_empty() && done.failed_tg_allocs.contains_key(group));
    Decision { plan, eval: done, follow_ups, notes }
}

impl<V: View> Round<'_, V> {
    /// Drops failures of a system job's groups that were placed on another node.
    fn drop_settled_failures(&self, outcome: &mut Outcome) {
        let Some(job) = self.job.filter(|job| job.kind.is_system()) else { return };
        let placed: BTreeSet<&str> =
            outcome.placements.values().flatten().map(|alloc| alloc.task_group.as_str()).collect();
        let queued = &outcome.queued;
        outcome.failed.retain(|group, _| queued.contains_key(group) || !placed.contains(group.as_str()));
        debug_assert!(outcome.failed.keys().all(|name| job.group(name).is_some()));
    }

    /// Returns the plan with new placements, but without stops and updates.
    fn plan(&self, changes: &mut Changes, outcome: &mut Outcome) -> Plan {
        Plan {
            eval_id: self.eval.id.clone(),
            priority: self.eval.priority,
            all_at_once: self.job.is_some_and(|job| job.all_at_once),
            job: self.job.cloned(),
            snapshot_index: self.view.index(),
            placements: std::mem::take(&mut outcome.placements),
            claims: std::mem::take(&mut outcome.claims),
            host_claims: std::mem::take(&mut outcome.host_claims),
            annotations: Some(PlanAnnotations {
                desired_tg_updates: std::mem::take(&mut changes.updates),
                ..PlanAnnotations::default()
            }),
            deployment_updates: std::mem::take(&mut changes.ended),
            ..Plan::default()
        }
    }

    /// Adds allocations that continue with a new version of the job, each with its deployment.
    fn update_in_place(&self, plan: &mut Plan, allocs: Vec<(Arc<Allocation>, DeploymentId)>) {
        for (alloc, deployment_id) in allocs {
            let updated = Allocation {
                eval_id: self.eval.id.clone(),
                job: None,
                deployment_id,
                deployment_status: None,
                modify_time: self.now,
                ..Allocation::clone(&alloc)
            };
            place_again(plan, updated);
        }
    }

    /// Adds stops and preemptions.
    fn stop(&self, plan: &mut Plan, outcome: &mut Outcome) {
        for stop in std::mem::take(&mut outcome.stops) {
            plan.stops.entry(stop.alloc.node_id.clone()).or_default().push(StopAlloc {
                alloc_id: stop.alloc.id.clone(),
                description: stop.description.to_owned(),
                client_status: stop.lost.then_some(ClientStatus::Lost),
                ..StopAlloc::default()
            });
        }
        for (victim, by) in std::mem::take(&mut outcome.preempted) {
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
    }

    /// Returns the evaluation as completed, with its failed and queued allocations.
    fn completed(&self, plan: &Plan, outcome: &mut Outcome, deployment_id: DeploymentId) -> Evaluation {
        let groups = self.job.into_iter().flat_map(|job| &job.task_groups);
        let mut queued: BTreeMap<String, u32> = groups.map(|group| (group.name.clone(), 0)).collect();
        queued.extend(std::mem::take(&mut outcome.queued));
        let deployment_id = match deployment_id.is_empty() {
            true => self.eval.deployment_id.clone(),
            false => deployment_id,
        };
        Evaluation {
            status: EvalStatus::Complete,
            status_description: String::new(),
            failed_tg_allocs: std::mem::take(&mut outcome.failed),
            queued_allocations: queued,
            plan_annotations: plan.annotations.clone(),
            blocked_eval: EvalId::default(),
            deployment_id,
            class_eligibility: BTreeMap::new(),
            escaped_computed_class: false,
            missing_non_node_resources: Vec::new(),
            snapshot_index: self.view.index(),
            modify_time: self.now,
            ..self.eval.clone()
        }
    }

    /// Returns a new blocked evaluation that waits for the resources that the completed evaluation lacked.
    fn blocked(&self, done: &Evaluation, outcome: &Outcome, id: EvalId) -> Evaluation {
        let eval = self.eval;
        let mut blocked = Evaluation {
            id,
            namespace: eval.namespace.clone(),
            priority: eval.priority,
            kind: eval.kind.clone(),
            triggered_by: Trigger::QueuedAllocs,
            job_id: eval.job_id.clone(),
            job_modify_index: self.job.map_or(eval.job_modify_index, |job| job.job_modify_index),
            previous_eval: eval.id.clone(),
            failed_tg_allocs: done.failed_tg_allocs.clone(),
            snapshot_index: self.view.index(),
            create_time: self.now,
            modify_time: self.now,
            ..Evaluation::default()
        };
        block(&mut blocked, outcome);
        blocked
    }

    /// Returns the other blocked evaluations of the job, canceled. This evaluation covers the changes for which they
    /// wait.
    fn superseded(&self) -> Vec<Evaluation> {
        let key = self.eval.job_key();
        let others = self.view.evals_by_job(&key);
        let blocked = others.filter(|other| other.status == EvalStatus::Blocked && other.id != self.eval.id);
        let canceled = blocked.map(|old| Evaluation {
            status: EvalStatus::Canceled,
            status_description: format!("evaluation {:?} processed the job again", self.eval.id.as_str()),
            modify_time: self.now,
            ..Evaluation::clone(old)
        });
        canceled.collect()
    }
}

/// Adds a changed row of an allocation that stays on its node.
fn place_again(plan: &mut Plan, alloc: Allocation) {
    plan.placements.entry(alloc.node_id.clone()).or_default().push(alloc);
}

/// Marks an evaluation as blocked until a change of the cluster may allow the failed placements.
fn block(eval: &mut Evaluation, outcome: &Outcome) {
    eval.status = EvalStatus::Blocked;
    eval.status_description = BLOCKED.to_owned();
    // Annotations and deployment of the last round belong to its plan, not to the blocked evaluation.
    eval.plan_annotations = None;
    eval.deployment_id = DeploymentId::default();
    eval.class_eligibility = outcome.classes.clone();
    eval.escaped_computed_class = outcome.escaped;
    eval.missing_non_node_resources = outcome.waits.iter().map(WaitsFor::to_string).collect();
}
