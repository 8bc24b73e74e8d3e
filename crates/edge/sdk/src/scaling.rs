//! Counts of groups, scaling policies, and tags of versions (docs/reference/http-api.md, sections 3.1 and 3.7).

use crate::client::Client;
use crate::error::Error;
use crate::jobs::RegisterResponse;
use crate::query::{QueryOptions, Response, path};
use caravan_types::id::JobId;
use caravan_types::scaling::ScalingEvent;
use caravan_types::ser::null_default;
use caravan_types::time::UnixNanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A request to set a group's count, or to record a scaling event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ScaleRequest {
    /// The new count; absent if the request only records the event.
    pub count: Option<i64>,
    /// The target of the request: the key `Group` and the group's name.
    pub target: BTreeMap<String, String>,
    /// The message of the event.
    pub message: String,
    /// Whether the event reports an error.
    pub error: bool,
    /// Additional facts of the event.
    pub meta: Option<BTreeMap<String, Value>>,
}

impl ScaleRequest {
    /// Creates a request to set the count of a group.
    ///
    /// ```
    /// let request = caravan_sdk::ScaleRequest::count("web", 3, "more, please");
    /// assert_eq!(request.target["Group"], "web");
    /// ```
    pub fn count(group: &str, count: i64, message: &str) -> Self {
        Self {
            count: Some(count),
            target: BTreeMap::from([("Group".to_owned(), group.to_owned())]),
            message: message.to_owned(),
            ..Self::default()
        }
    }
}

/// The desired and actual counts of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScaleStatus {
    /// The id of the job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// The namespace of the job.
    pub namespace: String,
    /// The index at which the job was created.
    pub job_create_index: u64,
    /// The index of the last change of the job's specification.
    pub job_modify_index: u64,
    /// Whether the job is stopped.
    pub job_stopped: bool,
    /// The counts by group.
    pub task_groups: BTreeMap<String, GroupScaleStatus>,
}

/// The desired and actual counts of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GroupScaleStatus {
    /// The number of desired allocations.
    pub desired: i64,
    /// The number of allocations that are not terminal.
    pub placed: i64,
    /// The number of running allocations.
    pub running: i64,
    /// The number of allocations that are known to be healthy.
    pub healthy: i64,
    /// The number of allocations that are known to be unhealthy.
    pub unhealthy: i64,
    /// The scaling events, newest first.
    #[serde(deserialize_with = "null_default")]
    pub events: Vec<ScalingEvent>,
}

/// A scaling policy as lists show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingPolicyStub {
    /// The policy's id, a UUID.
    #[serde(rename = "ID")]
    pub id: String,
    /// Whether an autoscaler may act on the policy.
    pub enabled: bool,
    /// The policy's type: `horizontal`, `vertical_cpu` or `vertical_mem`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// The target of the policy, with the keys `Namespace`, `Job`, `Group`, `Task`.
    pub target: BTreeMap<String, String>,
    /// The index at which the policy was created.
    pub create_index: u64,
    /// The index of the policy's last change.
    pub modify_index: u64,
}

/// A scaling policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingPolicy {
    /// The fields that lists show too.
    #[serde(flatten)]
    pub stub: ScalingPolicyStub,
    /// The least count.
    pub min: i64,
    /// The greatest count.
    pub max: i64,
    /// The configuration for the autoscaler.
    pub policy: Value,
}

/// The answer to tagging a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TagResponse {
    /// The name of the tag; empty after its removal.
    pub name: String,
    /// The description of the tag.
    pub description: String,
    /// The time at which the tag was set.
    pub tagged_time: UnixNanos,
    /// The index of the change.
    pub index: u64,
}

/// A command that a task offers to run inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Action {
    /// The name of the action, unique in the task.
    pub name: String,
    /// The program to run.
    pub command: String,
    /// The arguments of the program.
    #[serde(deserialize_with = "null_default")]
    pub args: Vec<String>,
    /// The name of the task.
    pub task_name: String,
    /// The name of the task's group.
    pub task_group_name: String,
}

impl Client {
    /// Returns the routes of scaling.
    pub fn scaling(&self) -> Scaling<'_> {
        Scaling(self)
    }
}

/// The routes of scaling, from [`Client::scaling`].
#[derive(Clone, Copy, Debug)]
pub struct Scaling<'a>(&'a Client);

impl Scaling<'_> {
    /// Lists policies. The query parameters `job` and `type` select policies.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn policies(&self, query: &QueryOptions) -> Result<Response<Vec<ScalingPolicyStub>>, Error> {
        self.0.get("/v1/scaling/policies", query).await
    }

    /// Returns a policy by its id.
    ///
    /// # Errors
    /// As [`Client::get`]: 404 if there is no such policy.
    pub async fn policy(&self, id: &str, query: &QueryOptions) -> Result<Response<ScalingPolicy>, Error> {
        self.0.get(&path("/v1/scaling/policy/{}", &[id]), query).await
    }

    /// Changes the count of a group, or records a scaling event.
    ///
    /// ```no_run
    /// use caravan_sdk::{Client, QueryOptions, ScaleRequest};
    /// # async fn example(client: Client) -> Result<(), caravan_sdk::Error> {
    /// let request = ScaleRequest::count("web", 3, "the queue is long");
    /// let answer = client.scaling().scale("shop", &request, &QueryOptions::new()).await?;
    /// println!("evaluation {}", answer.value.eval_id);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::get`]: 400 if the count is out of bounds or a deployment is under way.
    pub async fn scale(
        &self,
        job: &str,
        request: &ScaleRequest,
        query: &QueryOptions,
    ) -> Result<Response<RegisterResponse>, Error> {
        self.0.put(&path("/v1/job/{}/scale", &[job]), query, request).await
    }

    /// Returns the counts and scaling events of a job's groups.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn status(&self, job: &str, query: &QueryOptions) -> Result<Response<ScaleStatus>, Error> {
        self.0.get(&path("/v1/job/{}/scale", &[job]), query).await
    }

    /// Tags a version of a job, which protects it from garbage collection. Without a version, tags the newest one.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn tag_version(
        &self,
        job: &str,
        name: &str,
        version: Option<u64>,
        description: &str,
        query: &QueryOptions,
    ) -> Result<Response<TagResponse>, Error> {
        let body = serde_json::json!({"Version": version, "Description": description});
        self.0.put(&path("/v1/job/{}/versions/{}/tag", &[job, name]), query, &body).await
    }

    /// Removes the tag of a version.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn untag_version(
        &self,
        job: &str,
        name: &str,
        query: &QueryOptions,
    ) -> Result<Response<TagResponse>, Error> {
        self.0.delete(&path("/v1/job/{}/versions/{}/tag", &[job, name]), query).await
    }

    /// Lists the actions that a job's tasks offer.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn actions(&self, job: &str, query: &QueryOptions) -> Result<Response<Vec<Action>>, Error> {
        self.0.get(&path("/v1/job/{}/actions", &[job]), query).await
    }
}
