//! Deployments: the rollout of a job version (`http-api` section 5.5).

use crate::id::{AllocId, DeploymentId, JobId, Namespace};
use crate::ser::nil;
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a deployment stands.
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
    /// Whether nothing more will happen.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Successful | Self::Failed | Self::Cancelled)
    }
}

/// The rollout of a job version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of http-api section 5.5")]
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

/// One group of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of http-api section 5.5")]
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
