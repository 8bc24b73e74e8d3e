//! Routes of jobs that serve single commands.

use crate::error::Error;
use crate::jobs::{JobDiff, Jobs, RegisterResponse};
use crate::query::{QueryOptions, Response, path};
use caravan_types::ser::null_default;
use caravan_types::time::UnixNanos;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The versions of a job as the agent sends them, newest first, with their differences.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VersionsOf {
    /// The versions, newest first.
    #[serde(deserialize_with = "null_default")]
    pub versions: Vec<serde_json::Value>,
    /// The differences, if requested. Without a base, each entry compares a version with its predecessor: one entry
    /// fewer than versions.
    /// With a version or tag as base, each entry compares a version with that base: as many entries as versions.
    #[serde(deserialize_with = "null_default")]
    pub diffs: Vec<JobDiff>,
}

/// A change of a group's count, or a remark of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingEvent {
    /// The time of the event.
    pub time: UnixNanos,
    /// The new count; absent if the count did not change.
    pub count: Option<i64>,
    /// The count before the event.
    pub previous_count: i64,
    /// Whether the event reports a failure.
    pub error: bool,
    /// A message for users.
    pub message: String,
    /// The evaluation that the change created; absent without one.
    #[serde(rename = "EvalID")]
    pub eval_id: Option<String>,
}

/// The scaling events of a job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingEvents {
    /// The events by group.
    #[serde(deserialize_with = "null_default")]
    pub task_groups: BTreeMap<String, GroupEvents>,
}

/// The scaling events of a group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GroupEvents {
    /// The latest events.
    #[serde(deserialize_with = "null_default")]
    pub events: Vec<ScalingEvent>,
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as
/// [`crate::Client::get`].
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Jobs<'_> {
    /// Creates an evaluation of a job. With `force`, failed allocations are placed again without the delay of their
    /// policy.
    pub async fn evaluate(
        &self,
        id: &str,
        force: bool,
        query: &QueryOptions,
    ) -> Result<Response<RegisterResponse>, Error> {
        let body = serde_json::json!({"JobID": id, "EvalOptions": {"ForceReschedule": force}});
        self.0.put(&path("/v1/job/{}/evaluate", &[id]), query, &body).await
    }

    /// Returns the dry run of a registration as the agent sends it.
    pub async fn plan_raw<J: serde::Serialize + ?Sized>(
        &self,
        id: &str,
        job: &J,
        request: crate::jobs::PlanRequest,
        query: &QueryOptions,
    ) -> Result<Response<serde_json::Value>, Error> {
        let query = crate::jobs::asking(query);
        self.0.put(&path("/v1/job/{}/plan", &[id]), &query, &crate::jobs::plan_body(job, request)).await
    }

    /// Returns the versions of a job. The query parameters `diffs`, `diff_version` and `diff_tag` request
    /// differences.
    pub async fn history(&self, id: &str, query: &QueryOptions) -> Result<Response<VersionsOf>, Error> {
        self.0.get(&path("/v1/job/{}/versions", &[id]), query).await
    }

    /// Returns the scaling events of a job's groups.
    pub async fn scaling_events(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<ScalingEvents>, Error> {
        self.0.get(&path("/v1/job/{}/scale", &[id]), query).await
    }
}
