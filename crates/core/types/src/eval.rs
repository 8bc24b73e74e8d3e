//! Evaluations: requests to compare a job with its allocations, and their results.

use crate::id::{DeploymentId, EvalId, JobId, JobKey, Namespace, NodeId};
pub use crate::metric::{AllocMetric, Counts, NodeScore, Scorer, Scores};
use crate::plan::PlanAnnotations;
use crate::ser::is_default;
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The status of an evaluation (docs/reference/http-api.md, section 6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvalStatus {
    /// The evaluation waits for a worker.
    #[default]
    Pending,
    /// The evaluation waits for capacity or for another named change.
    Blocked,
    /// A worker has scheduled the evaluation.
    Complete,
    /// The evaluation failed, and is not retried.
    Failed,
    /// Another evaluation of the job made this one redundant.
    Canceled,
}

impl EvalStatus {
    /// Returns the name of the status in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Blocked => "blocked",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
    /// Returns whether the evaluation has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Canceled)
    }
}

/// The reason that an evaluation was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are the documented triggers")]
pub enum Trigger {
    #[default]
    JobRegister,
    JobDeregister,
    PeriodicJob,
    NodeDrain,
    NodeUpdate,
    AllocStop,
    Scheduled,
    RollingUpdate,
    DeploymentWatcher,
    FailedFollowUp,
    MaxPlanAttempts,
    AllocFailure,
    QueuedAllocs,
    Preemption,
    JobScaling,
    MaxDisconnectTimeout,
    Reconnect,
    AllocReschedule,
}

impl Trigger {
    /// Returns the name of the reason in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JobRegister => "job-register",
            Self::JobDeregister => "job-deregister",
            Self::PeriodicJob => "periodic-job",
            Self::NodeDrain => "node-drain",
            Self::NodeUpdate => "node-update",
            Self::AllocStop => "alloc-stop",
            Self::Scheduled => "scheduled",
            Self::RollingUpdate => "rolling-update",
            Self::DeploymentWatcher => "deployment-watcher",
            Self::FailedFollowUp => "failed-follow-up",
            Self::MaxPlanAttempts => "max-plan-attempts",
            Self::AllocFailure => "alloc-failure",
            Self::QueuedAllocs => "queued-allocs",
            Self::Preemption => "preemption",
            Self::JobScaling => "job-scaling",
            Self::MaxDisconnectTimeout => "max-disconnect-timeout",
            Self::Reconnect => "reconnect",
            Self::AllocReschedule => "alloc-reschedule",
        }
    }
}

/// A resource other than a node for which a blocked evaluation waits.
///
/// The texts of this type are the elements of `MissingNonNodeResources`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitsFor {
    /// A volume that does not exist yet: `csi-volume:<namespace>:<id>`.
    Volume(crate::id::VolumeKey),
    /// A volume with claims that must end: `csi-claim:<namespace>:<id>`.
    Claim(crate::id::VolumeKey),
    /// A plugin without a healthy instance: `csi-plugin:<id>`.
    Plugin(crate::id::PluginId),
    /// A host volume that is not ready or not free: `host-volume:<namespace>:<name>`.
    HostVolume(crate::id::Namespace, String),
}

impl std::fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Volume(key) => write!(f, "csi-volume:{}:{}", key.namespace, key.id),
            Self::Claim(key) => write!(f, "csi-claim:{}:{}", key.namespace, key.id),
            Self::Plugin(id) => write!(f, "csi-plugin:{id}"),
            Self::HostVolume(namespace, name) => write!(f, "host-volume:{namespace}:{name}"),
        }
    }
}

/// A request to compare a job with its allocations. Its JSON omits empty fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(
    missing_docs,
    reason = "fields are those of docs/reference/http-api.md, section 5.2; the ones with a twist are described"
)]
pub struct Evaluation {
    #[serde(rename = "ID", skip_serializing_if = "is_default")]
    pub id: EvalId,
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: Namespace,
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i64,
    /// The type of the job, or `_core`.
    #[serde(rename = "Type", skip_serializing_if = "is_default")]
    pub kind: String,
    pub triggered_by: Trigger,
    #[serde(rename = "JobID", skip_serializing_if = "is_default")]
    pub job_id: JobId,
    #[serde(skip_serializing_if = "is_default")]
    pub job_modify_index: u64,
    #[serde(rename = "NodeID", skip_serializing_if = "is_default")]
    pub node_id: NodeId,
    #[serde(skip_serializing_if = "is_default")]
    pub node_modify_index: u64,
    #[serde(rename = "DeploymentID", skip_serializing_if = "is_default")]
    pub deployment_id: DeploymentId,
    pub status: EvalStatus,
    #[serde(skip_serializing_if = "is_default")]
    pub status_description: String,
    #[serde(skip_serializing_if = "is_default")]
    pub wait: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    pub wait_until: Time,
    #[serde(skip_serializing_if = "is_default")]
    pub next_eval: EvalId,
    #[serde(skip_serializing_if = "is_default")]
    pub previous_eval: EvalId,
    #[serde(skip_serializing_if = "is_default")]
    pub blocked_eval: EvalId,
    /// The related evaluations, present only in responses to requests with `related=true`.
    #[serde(skip_serializing_if = "is_default")]
    pub related_evals: Vec<EvalStub>,
    /// The reasons that allocations were not placed, by group.
    #[serde(rename = "FailedTGAllocs", skip_serializing_if = "is_default")]
    pub failed_tg_allocs: BTreeMap<String, AllocMetric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_annotations: Option<PlanAnnotations>,
    #[serde(skip_serializing_if = "is_default")]
    pub class_eligibility: BTreeMap<String, bool>,
    #[serde(skip_serializing_if = "is_default")]
    pub quota_limit_reached: String,
    /// The texts of [`WaitsFor`].
    #[serde(skip_serializing_if = "is_default")]
    pub missing_non_node_resources: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub escaped_computed_class: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub annotate_plan: bool,
    /// The number of desired allocations that are not placed, by group.
    #[serde(skip_serializing_if = "is_default")]
    pub queued_allocations: BTreeMap<String, u32>,
    #[serde(rename = "LeaderACL", skip_serializing_if = "is_default")]
    pub leader_acl: String,
    /// The index of the newest state that the scheduler read.
    #[serde(skip_serializing_if = "is_default")]
    pub snapshot_index: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub create_index: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
}

impl Evaluation {
    /// Returns the key of the evaluation's job.
    pub fn job_key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.job_id.clone() }
    }
    /// Returns the short form inside `RelatedEvals`.
    pub fn stub(&self) -> EvalStub {
        EvalStub {
            id: self.id.clone(),
            namespace: self.namespace.clone(),
            priority: self.priority,
            kind: self.kind.clone(),
            triggered_by: self.triggered_by,
            job_id: self.job_id.clone(),
            node_id: self.node_id.clone(),
            deployment_id: self.deployment_id.clone(),
            status: self.status,
            status_description: self.status_description.clone(),
            wait_until: self.wait_until,
            next_eval: self.next_eval.clone(),
            previous_eval: self.previous_eval.clone(),
            blocked_eval: self.blocked_eval.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
            create_time: self.create_time,
            modify_time: self.modify_time,
        }
    }
}

/// The short form of an evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "the fields are those of Evaluation")]
pub struct EvalStub {
    #[serde(rename = "ID")]
    pub id: EvalId,
    pub namespace: Namespace,
    pub priority: i64,
    #[serde(rename = "Type")]
    pub kind: String,
    pub triggered_by: Trigger,
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    #[serde(rename = "DeploymentID")]
    pub deployment_id: DeploymentId,
    pub status: EvalStatus,
    pub status_description: String,
    pub wait_until: Time,
    pub next_eval: EvalId,
    pub previous_eval: EvalId,
    pub blocked_eval: EvalId,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
}
