//! Rows of status pages: jobs with their allocations, claims with their waits, and the rights of a caller.

use crate::acl::Acl;
use crate::error::Error;
use crate::jobs::Jobs;
use crate::overview::Caravan;
use crate::query::{QueryOptions, Response};
use caravan_types::alloc::ClientStatus;
use caravan_types::deployment::DeploymentStatus;
use caravan_types::job::{JobStatus, JobType};
use caravan_types::ser::null_default;
use caravan_types::volume::{ClaimMode, ClaimPhase};
use caravan_types::{AllocId, DeploymentId, EvalId, JobId, Namespace, NodeId, PluginId, UnixNanos, VolumeId};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A job as a status page shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobStatusRow {
    /// The id of the job.
    #[serde(rename = "ID")]
    pub id: JobId,
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The name of the job.
    pub name: String,
    /// The type of the job.
    #[serde(rename = "Type")]
    pub kind: JobType,
    /// The node pool of the job.
    pub node_pool: String,
    /// The datacenters in which the job may run.
    #[serde(deserialize_with = "null_default")]
    pub datacenters: Vec<String>,
    /// The priority of the job.
    pub priority: i64,
    /// The version of the job.
    pub version: u64,
    /// The time at which the version was submitted.
    pub submit_time: UnixNanos,
    /// The index of the last change.
    pub modify_index: u64,
    /// The allocations of the job; empty with the parameter `allocs=counts`.
    #[serde(deserialize_with = "null_default")]
    pub allocs: Vec<JobStatusAlloc>,
    /// The number of allocations in each state, with the parameter `allocs=counts`.
    pub caravan_allocs: Option<BTreeMap<String, u64>>,
    /// The sum of the counts of all groups.
    pub group_count_sum: u64,
    /// The statuses of the children of a periodic or parameterized job.
    #[serde(deserialize_with = "null_default")]
    pub child_statuses: Vec<String>,
    /// The periodic or parameterized job that created the job.
    #[serde(rename = "ParentID")]
    pub parent_id: JobId,
    /// The newest deployment; absent for a job that never had a deployment.
    pub latest_deployment: Option<JobStatusDeployment>,
    /// Whether a user stopped the job.
    pub stop: bool,
    /// The status of the job.
    pub status: JobStatus,
}

/// An allocation of a [`JobStatusRow`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobStatusAlloc {
    /// The id of the allocation.
    #[serde(rename = "ID")]
    pub id: AllocId,
    /// The group of the allocation.
    pub group: String,
    /// The status of the allocation.
    pub client_status: ClientStatus,
    /// The node of the allocation.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// The version of the job that the allocation runs.
    pub job_version: u64,
    /// The evaluation that will replace the allocation; empty for none.
    #[serde(rename = "FollowupEvalID")]
    pub followup_eval_id: EvalId,
    /// Whether a task of the allocation is paused.
    pub has_paused_task: bool,
}

/// The newest deployment of a [`JobStatusRow`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobStatusDeployment {
    /// The id of the deployment.
    #[serde(rename = "ID")]
    pub id: DeploymentId,
    /// Whether the deployment has not ended.
    pub is_active: bool,
    /// The version that is deployed.
    pub job_version: u64,
    /// The status of the deployment.
    pub status: DeploymentStatus,
    /// The status in words.
    pub status_description: String,
    /// Whether all groups are promoted automatically.
    pub all_auto_promote: bool,
    /// Whether the deployment waits for its promotion.
    pub requires_promotion: bool,
}

/// A claim on a CSI volume, as [`Caravan::claims`] lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ClaimRow {
    /// The id of the CSI volume, within the namespace.
    #[serde(rename = "VolumeID")]
    pub volume_id: VolumeId,
    /// The namespace of the volume and of the allocation.
    pub namespace: Namespace,
    /// The plugin of the volume.
    #[serde(rename = "PluginID")]
    pub plugin_id: PluginId,
    /// The allocation that holds the claim.
    #[serde(rename = "AllocID")]
    pub alloc_id: AllocId,
    /// The job of the allocation.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// The group of the allocation.
    pub task_group: String,
    /// The node of the allocation.
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    /// Whether the allocation writes to the volume.
    pub mode: ClaimMode,
    /// The phase that the claim has reached.
    pub phase: ClaimPhase,
    /// The time at which the claim reached the phase.
    pub since: UnixNanos,
    /// The reason why the next step waits; empty if the step does not wait.
    pub waits_for: String,
    /// The number of failed tries of the current step.
    pub tries: u32,
    /// The plugin's message of the last failure.
    pub last_error: String,
    /// The time of the next try; 0 means an immediate try.
    pub next_try: UnixNanos,
    /// The index of the claim's creation.
    pub create_index: u64,
    /// The index of the claim's last change.
    pub modify_index: u64,
}

/// The effective rights of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Capabilities {
    /// Whether the caller may do everything.
    pub management: bool,
    /// The capabilities in each namespace.
    pub namespaces: BTreeMap<String, Vec<String>>,
    /// The rules about variables, for each namespace with such rules. The first rule whose path matches decides;
    /// without one, nothing is allowed.
    pub variables: BTreeMap<String, Vec<VariableRule>>,
    /// The right to nodes: `read`, `write`, or empty.
    pub node: String,
    /// The right to agents: `read`, `write`, or empty.
    pub agent: String,
    /// The right to the region's settings: `read`, `write`, or empty.
    pub operator: String,
    /// The right to plugins: `list`, `read`, `write`, or empty.
    pub plugin: String,
}

/// The capabilities on the variables of some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VariableRule {
    /// A pattern of paths, in which `*` stands for any text.
    pub path: String,
    /// The capabilities: `list`, `read`, `write`, `destroy`; or only `deny`.
    pub capabilities: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct OwnRights {
    caravan_capabilities: Capabilities,
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`crate::Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Jobs<'_> {
    /// Lists jobs with the facts of a status page, newest change first. The parameter `allocs=counts` replaces each
    /// job's list of allocations by their number in each state.
    pub async fn statuses(&self, query: &QueryOptions) -> Result<Response<Vec<JobStatusRow>>, Error> {
        self.0.get("/v1/jobs/statuses", query).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`crate::Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Caravan<'_> {
    /// Lists the claims that hold CSI volumes. Parameters: `node_id`, `plugin_id`, `volume_id`, `job_id`, `phase`,
    /// and
    /// `ended=true` for ended claims too.
    pub async fn claims(&self, query: &QueryOptions) -> Result<Response<Vec<ClaimRow>>, Error> {
        self.0.get("/v1/caravan/claims", query).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`crate::Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Acl<'_> {
    /// Returns the effective rights of the caller.
    pub async fn own_capabilities(&self, query: &QueryOptions) -> Result<Response<Capabilities>, Error> {
        let query = query.clone().param("capabilities", "true");
        let answer: Response<OwnRights> = self.0.get("/v1/acl/token/self", &query).await?;
        Ok(Response { value: answer.value.caravan_capabilities, meta: answer.meta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_counts_and_with_allocations_are_read() {
        let text = r#"{"ID": "web", "Type": "service", "Allocs": null, "CaravanAllocs": {"running": 3},
            "Datacenters": null, "ChildStatuses": null, "LatestDeployment": null, "Status": "running"}"#;
        let row: JobStatusRow = serde_json::from_str(text).unwrap();
        assert_eq!((row.caravan_allocs.unwrap()["running"], row.allocs.len()), (3, 0));
        let text = r#"{"ID": "web", "Allocs": [{"ID": "a", "ClientStatus": "failed"}]}"#;
        let row: JobStatusRow = serde_json::from_str(text).unwrap();
        assert_eq!((row.allocs[0].client_status, row.caravan_allocs), (ClientStatus::Failed, None));
        let claim: ClaimRow = serde_json::from_str(r#"{"VolumeID": "data", "Phase": "fencing"}"#).unwrap();
        assert_eq!((claim.volume_id.as_str(), claim.phase), ("data", ClaimPhase::Fencing));
    }
}
