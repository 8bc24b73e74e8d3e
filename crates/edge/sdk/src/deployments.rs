//! Deployments (docs/reference/http-api.md, section 3.2), and the routes of jobs about versions and stability.

use crate::client::Client;
use crate::error::Error;
use crate::jobs::{Jobs, RegisterResponse};
use crate::query::{QueryOptions, Response, path};
use caravan_types::alloc::AllocListStub;
use caravan_types::deployment::Deployment;
use caravan_types::id::{AllocId, EvalId};
use serde::Deserialize;
use serde_json::json;

/// The routes of deployments, from [`Client::deployments`].
#[derive(Clone, Copy, Debug)]
pub struct Deployments<'a>(&'a Client);

/// The answer to a change of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeploymentUpdateResponse {
    /// The evaluation that the change created; empty without one.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// The index at which the evaluation was created.
    pub eval_create_index: u64,
    /// The index of the deployment's change.
    pub deployment_modify_index: u64,
    /// The version to which the job is reverted; absent without a reversion.
    pub reverted_job_version: Option<u64>,
}

impl Client {
    /// Returns the routes of deployments.
    pub fn deployments(&self) -> Deployments<'_> {
        Deployments(self)
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Deployments<'_> {
    /// Lists deployments.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<Deployment>>, Error> {
        self.0.get("/v1/deployments", query).await
    }

    /// Returns a deployment by its full id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Deployment>, Error> {
        self.0.get(&path("/v1/deployment/{}", &[id]), query).await
    }

    /// Lists the allocations of a deployment.
    pub async fn allocations(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<AllocListStub>>, Error> {
        self.0.get(&path("/v1/deployment/allocations/{}", &[id]), query).await
    }

    /// Marks a deployment as failed.
    pub async fn fail(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<DeploymentUpdateResponse>, Error> {
        self.0.put(&path("/v1/deployment/fail/{}", &[id]), query, &json!({"DeploymentID": id})).await
    }

    /// Pauses a deployment (`true`) or resumes it.
    pub async fn pause(
        &self,
        id: &str,
        pause: bool,
        query: &QueryOptions,
    ) -> Result<Response<DeploymentUpdateResponse>, Error> {
        let body = json!({"DeploymentID": id, "Pause": pause});
        self.0.put(&path("/v1/deployment/pause/{}", &[id]), query, &body).await
    }

    /// Promotes the canaries of the named groups; of all groups if none is named.
    pub async fn promote(
        &self,
        id: &str,
        groups: &[String],
        query: &QueryOptions,
    ) -> Result<Response<DeploymentUpdateResponse>, Error> {
        let body = json!({"DeploymentID": id, "All": groups.is_empty(), "Groups": groups});
        self.0.put(&path("/v1/deployment/promote/{}", &[id]), query, &body).await
    }

    /// Resumes a deployment that waits for another region.
    pub async fn unblock(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<DeploymentUpdateResponse>, Error> {
        self.0.put(&path("/v1/deployment/unblock/{}", &[id]), query, &json!({"DeploymentID": id})).await
    }

    /// Sets the health of a deployment's allocations.
    pub async fn set_health(
        &self,
        id: &str,
        healthy: &[AllocId],
        unhealthy: &[AllocId],
        query: &QueryOptions,
    ) -> Result<Response<DeploymentUpdateResponse>, Error> {
        let body = json!({
            "DeploymentID": id,
            "HealthyAllocationIDs": healthy,
            "UnhealthyAllocationIDs": unhealthy,
        });
        self.0.put(&path("/v1/deployment/allocation-health/{}", &[id]), query, &body).await
    }
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Jobs<'_> {
    /// Registers an earlier version of a job again. With `prior`, only if `prior` is the current version.
    pub async fn revert(
        &self,
        id: &str,
        version: u64,
        prior: Option<u64>,
        query: &QueryOptions,
    ) -> Result<Response<RegisterResponse>, Error> {
        let body = json!({"JobID": id, "JobVersion": version, "EnforcePriorVersion": prior});
        self.0.put(&path("/v1/job/{}/revert", &[id]), query, &body).await
    }

    /// Sets whether a version of a job is stable.
    pub async fn set_stable(
        &self,
        id: &str,
        version: u64,
        stable: bool,
        query: &QueryOptions,
    ) -> Result<Response<serde_json::Value>, Error> {
        let body = json!({"JobID": id, "JobVersion": version, "Stable": stable});
        self.0.put(&path("/v1/job/{}/stable", &[id]), query, &body).await
    }
}
