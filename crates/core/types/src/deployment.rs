//! Deployments: the rollout of a job version (docs/reference/http-api.md, section 5.5).

use crate::alloc::Allocation;
use crate::id::{AllocId, DeploymentId, JobId, JobKey, Namespace};
use crate::ser::nil;
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The status of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the documented states")]
pub enum DeploymentStatus {
    #[default]
    Running,
    Paused,
    Initializing,
    Pending,
    Blocked,
    Unblocking,
    Successful,
    Failed,
    Cancelled,
}

impl DeploymentStatus {
    /// Returns the name of the status in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Initializing => "initializing",
            Self::Pending => "pending",
            Self::Blocked => "blocked",
            Self::Unblocking => "unblocking",
            Self::Successful => "successful",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the deployment has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Successful | Self::Failed | Self::Cancelled)
    }
}

/// The status descriptions of deployments that clients read (docs/reference/http-api.md, section 6.3).
#[expect(missing_docs, reason = "the text is the documentation")]
pub mod description {
    pub const RUNNING: &str = "Deployment is running";
    pub const NEEDS_PROMOTION: &str = "Deployment is running but requires manual promotion";
    pub const AUTO_PROMOTION: &str = "Deployment is running pending automatic promotion";
    pub const PAUSED: &str = "Deployment is paused";
    pub const SUCCESSFUL: &str = "Deployment completed successfully";
    pub const JOB_STOPPED: &str = "Cancelled because job is stopped";
    pub const NEWER_JOB: &str = "Cancelled due to newer version of job";
    pub const UNHEALTHY: &str = "Failed due to unhealthy allocations";
    pub const NO_PROGRESS: &str = "Failed due to progress deadline";
    pub const BY_USER: &str = "Deployment marked as failed";
}

/// A new status of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The id of the deployment.
    pub id: DeploymentId,
    /// The status that the deployment has from now on.
    pub status: DeploymentStatus,
    /// The reason, shown to users.
    pub description: String,
}

/// The rollout of a job version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.5")]
pub struct Deployment {
    #[serde(rename = "ID")]
    pub id: DeploymentId,
    pub namespace: Namespace,
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    pub job_version: u64,
    pub job_modify_index: u64,
    pub job_spec_modify_index: u64,
    pub job_create_index: u64,
    pub is_multiregion: bool,
    #[serde(with = "nil")]
    pub task_groups: BTreeMap<String, DeploymentState>,
    pub status: DeploymentStatus,
    pub status_description: String,
    pub eval_priority: i64,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
}

impl Deployment {
    /// Returns the key of the deployment's job.
    pub fn job_key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.job_id.clone() }
    }
    /// Returns whether any canaries have not been promoted.
    pub fn needs_promotion(&self) -> bool {
        self.task_groups.values().any(DeploymentState::is_canarying)
    }
    /// Returns whether all groups with canaries are promoted automatically.
    pub fn promotes_itself(&self) -> bool {
        let mut with_canaries = self.task_groups.values().filter(|g| g.desired_canaries > 0).peekable();
        with_canaries.peek().is_some() && with_canaries.all(|g| g.auto_promote)
    }
    /// Returns the status description of a new deployment.
    pub fn beginning(&self) -> &'static str {
        match (self.needs_promotion(), self.promotes_itself()) {
            (false, _) => description::RUNNING,
            (true, true) => description::AUTO_PROMOTION,
            (true, false) => description::NEEDS_PROMOTION,
        }
    }
    /// Returns whether the deployment placed or updated an allocation.
    pub fn holds(&self, alloc: &Allocation) -> bool {
        !self.id.is_empty() && alloc.deployment_id == self.id
    }
}

impl DeploymentState {
    /// Returns whether the canaries of the group have not been promoted.
    pub fn is_canarying(&self) -> bool {
        self.desired_canaries > 0 && !self.promoted
    }
}

/// One group of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.5")]
pub struct DeploymentState {
    pub auto_revert: bool,
    pub auto_promote: bool,
    pub progress_deadline: Nanos,
    pub require_progress_by: Time,
    pub promoted: bool,
    #[serde(with = "nil")]
    pub placed_canaries: Vec<AllocId>,
    pub desired_canaries: u32,
    pub desired_total: u32,
    pub placed_allocs: u32,
    pub healthy_allocs: u32,
    pub unhealthy_allocs: u32,
}
