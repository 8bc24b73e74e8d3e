//! Counts of groups, the policies that bound them, and names of versions (docs/reference/http-api.md, sections 3.1 and 3.7).

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

/// A count to set, or an event to keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ScaleRequest {
    /// The new count; none keeps the event only.
    pub count: Option<i64>,
    /// What is scaled: `Group` and its name.
    pub target: BTreeMap<String, String>,
    /// Words for the event.
    pub message: String,
    /// Something went wrong.
    pub error: bool,
    /// Facts for the event.
    pub meta: Option<BTreeMap<String, Value>>,
}

impl ScaleRequest {
    /// Sets the count of a group.
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

/// Wanted and found counts of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScaleStatus {
    /// The job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// Its namespace.
    pub namespace: String,
    /// Index of its creation.
    pub job_create_index: u64,
    /// Index of its specification.
    pub job_modify_index: u64,
    /// It was stopped.
    pub job_stopped: bool,
    /// By group.
    pub task_groups: BTreeMap<String, GroupScaleStatus>,
}

/// Wanted and found counts of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GroupScaleStatus {
    /// Wanted allocations.
    pub desired: i64,
    /// Allocations that are not over.
    pub placed: i64,
    /// Those that run.
    pub running: i64,
    /// Those that are known to be healthy.
    pub healthy: i64,
    /// Those that are known not to be.
    pub unhealthy: i64,
    /// What was scaled, the newest first.
    #[serde(deserialize_with = "null_default")]
    pub events: Vec<ScalingEvent>,
}

/// A policy in lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingPolicyStub {
    /// Id, a UUID.
    #[serde(rename = "ID")]
    pub id: String,
    /// An autoscaler may act on it.
    pub enabled: bool,
    /// `horizontal`, `vertical_cpu` or `vertical_mem`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// What it is about: `Namespace`, `Job`, `Group`, `Task`.
    pub target: BTreeMap<String, String>,
    /// Index of its creation.
    pub create_index: u64,
    /// Index of its last change.
    pub modify_index: u64,
}

/// A policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingPolicy {
    /// What lists show too.
    #[serde(flatten)]
    pub stub: ScalingPolicyStub,
    /// Least count.
    pub min: i64,
    /// Greatest count.
    pub max: i64,
    /// What the autoscaler is told.
    pub policy: Value,
}

/// The answer to naming a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TagResponse {
    /// The name; empty when it was taken away.
    pub name: String,
    /// Words about it.
    pub description: String,
    /// When it was given.
    pub tagged_time: UnixNanos,
    /// Index of the change.
    pub index: u64,
}

/// A command that a task offers to be run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Action {
    /// Name, unique in the task.
    pub name: String,
    /// Program.
    pub command: String,
    /// Its arguments.
    #[serde(deserialize_with = "null_default")]
    pub args: Vec<String>,
    /// The task.
    pub task_name: String,
    /// Its group.
    pub task_group_name: String,
}

impl Client {
    /// Routes of scaling.
    pub fn scaling(&self) -> Scaling<'_> {
        Scaling(self)
    }
}

/// Routes of scaling.
#[derive(Clone, Copy, Debug)]
pub struct Scaling<'a>(&'a Client);

impl Scaling<'_> {
    /// Lists policies; the parameters `job` and `type` leave out others.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn policies(&self, query: &QueryOptions) -> Result<Response<Vec<ScalingPolicyStub>>, Error> {
        self.0.get("/v1/scaling/policies", query).await
    }

    /// Reads a policy.
    ///
    /// # Errors
    /// As [`Client::get`]: 404 if there is no such policy.
    pub async fn policy(&self, id: &str, query: &QueryOptions) -> Result<Response<ScalingPolicy>, Error> {
        self.0.get(&path("/v1/scaling/policy/{}", &[id]), query).await
    }

    /// Changes the count of a group, or keeps an event about it.
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

    /// Tells the counts of a job's groups and what was scaled.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn status(&self, job: &str, query: &QueryOptions) -> Result<Response<ScaleStatus>, Error> {
        self.0.get(&path("/v1/job/{}/scale", &[job]), query).await
    }

    /// Names a version of a job, which keeps it from being forgotten; without a version the newest.
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

    /// Takes a version's name away.
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

    /// Lists the commands that a job's tasks offer.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn actions(&self, job: &str, query: &QueryOptions) -> Result<Response<Vec<Action>>, Error> {
        self.0.get(&path("/v1/job/{}/actions", &[job]), query).await
    }
}
