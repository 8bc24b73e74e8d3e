//! Plans: the results of schedulers, before the planner has checked them.

use crate::alloc::Allocation;
use crate::deployment::{Deployment, Verdict};
use crate::eval::Evaluation;
use crate::host_volume::HostVolumeClaim;
use crate::id::{AllocId, EvalId, NodeId};
use crate::job::Job;
use crate::volume::Claim;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of a scheduler for one evaluation. The planner checks it node by node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The evaluation that requested the plan.
    pub eval_id: EvalId,
    /// The priority of the evaluation.
    pub priority: i64,
    /// Whether the planner refuses the whole plan if it refuses a part.
    pub all_at_once: bool,
    /// The job that was scheduled; `None` if it was removed.
    pub job: Option<Arc<Job>>,
    /// The index of the snapshot that the scheduler used.
    pub snapshot_index: u64,
    /// The new allocations and the in-place updates, by node. New allocations have no create index.
    pub placements: BTreeMap<NodeId, Vec<Allocation>>,
    /// The allocations to stop, or to declare lost, by node.
    pub stops: BTreeMap<NodeId, Vec<StopAlloc>>,
    /// The volume claims of the placements, in phase reserved.
    pub claims: Vec<Claim>,
    /// The holds of groups on host volumes (sticky) of the placements; the planner sets their ids.
    #[serde(default)]
    pub host_claims: Vec<HostVolumeClaim>,
    /// The number of changes by group, for `job plan`.
    pub annotations: Option<PlanAnnotations>,
    /// A new deployment, or a running one to which the plan adds groups.
    #[serde(default)]
    pub deployment: Option<Deployment>,
    /// The deployments that the plan ends.
    #[serde(default)]
    pub deployment_updates: Vec<Verdict>,
}

impl Plan {
    /// Returns whether the plan changes nothing.
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty()
            && self.stops.is_empty()
            && self.deployment.is_none()
            && self.deployment_updates.is_empty()
    }
}

/// An allocation to stop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAlloc {
    /// The UUID of the allocation.
    pub alloc_id: AllocId,
    /// The reason, shown to users.
    pub description: String,
    /// The client status, if the servers decide it too (lost, unknown).
    pub client_status: Option<crate::alloc::ClientStatus>,
    /// The later evaluation that will decide about the allocation, or empty.
    pub followup_eval_id: EvalId,
    /// The allocation for which this one is preempted, or empty.
    #[serde(default)]
    pub preempted_by: AllocId,
}

/// The number of changes by group, for `job plan`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanAnnotations {
    /// The number of changes, by group.
    #[serde(rename = "DesiredTGUpdates")]
    pub desired_tg_updates: BTreeMap<String, DesiredUpdates>,
    /// The allocations that the plan would preempt.
    #[serde(rename = "PreemptedAllocs", with = "crate::ser::nil")]
    pub preempted_allocs: Vec<crate::alloc::AllocListStub>,
}

/// The number of one group's changes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "each field counts what it is named after")]
pub struct DesiredUpdates {
    pub ignore: u64,
    pub place: u64,
    pub migrate: u64,
    pub stop: u64,
    pub in_place_update: u64,
    pub destructive_update: u64,
    pub canary: u64,
    pub preemptions: u64,
    pub disconnect: u64,
    pub reconnect: u64,
    pub reschedule_now: u64,
    pub reschedule_later: u64,
}

/// The result of a scheduler: a plan, and the evaluation after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The plan; may be empty.
    pub plan: Plan,
    /// The evaluation after the plan is applied, with status, failed groups and queued counts.
    pub eval: Evaluation,
    /// New evaluations, blocked or delayed.
    pub follow_ups: Vec<Evaluation>,
    /// Sentences for users about changes that would let the failed placements succeed, by group. They are not stored.
    #[serde(default)]
    pub notes: BTreeMap<String, Vec<String>>,
}
