//! Plans: what a scheduler wants, and what the planner accepted of it.

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

/// What a scheduler wants for one evaluation. The planner checks it node by node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The evaluation.
    pub eval_id: EvalId,
    /// Its priority.
    pub priority: i64,
    /// All or nothing.
    pub all_at_once: bool,
    /// The job as scheduled; none when it is gone.
    pub job: Option<Arc<Job>>,
    /// Index of the snapshot that was used.
    pub snapshot_index: u64,
    /// New allocations and in-place updates, by node. New ones have no create index.
    pub placements: BTreeMap<NodeId, Vec<Allocation>>,
    /// Allocations to stop (or declare lost), by node.
    pub stops: BTreeMap<NodeId, Vec<StopAlloc>>,
    /// Volume claims that go with placements, in phase reserved.
    pub claims: Vec<Claim>,
    /// Holds of groups on host volumes (sticky) that go with placements; their ids are filled by the planner.
    #[serde(default)]
    pub host_claims: Vec<HostVolumeClaim>,
    /// What changes by group, for `job plan`.
    pub annotations: Option<PlanAnnotations>,
    /// The deployment that begins, or to which groups are added.
    #[serde(default)]
    pub deployment: Option<Deployment>,
    /// Deployments that end.
    #[serde(default)]
    pub deployment_updates: Vec<Verdict>,
}

impl Plan {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty()
            && self.stops.is_empty()
            && self.deployment.is_none()
            && self.deployment_updates.is_empty()
    }
}

/// An allocation that is to stop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAlloc {
    /// Which.
    pub alloc_id: AllocId,
    /// Why, as clients see it.
    pub description: String,
    /// Set when the servers also decide the client status (lost, unknown).
    pub client_status: Option<crate::alloc::ClientStatus>,
    /// Evaluation that will look again.
    pub followup_eval_id: EvalId,
    /// The allocation that it makes room for.
    #[serde(default)]
    pub preempted_by: AllocId,
}

/// Counts of changes by group, for `job plan`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanAnnotations {
    /// By group.
    #[serde(rename = "DesiredTGUpdates")]
    pub desired_tg_updates: BTreeMap<String, DesiredUpdates>,
    /// The allocations that the plan would preempt.
    #[serde(rename = "PreemptedAllocs", with = "crate::ser::nil")]
    pub preempted_allocs: Vec<crate::alloc::AllocListStub>,
}

/// Counts of one group.
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

/// What a scheduler answers: the plan and what becomes of the evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The plan; may be empty.
    pub plan: Plan,
    /// The evaluation as it should be once the plan is in (status, failed groups, queued counts).
    pub eval: Evaluation,
    /// New evaluations: blocked, delayed.
    pub follow_ups: Vec<Evaluation>,
    /// By group: sentences about what would change it that something was not placed. For people only; they are
    /// stored nowhere.
    #[serde(default)]
    pub notes: BTreeMap<String, Vec<String>>,
}
