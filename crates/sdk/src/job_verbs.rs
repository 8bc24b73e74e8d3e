//! Routes of jobs that single verbs need.

use crate::error::Error;
use crate::jobs::{JobDiff, Jobs, RegisterResponse};
use crate::query::{QueryOptions, Response, path};
use caravan_types::ser::null_default;
use caravan_types::time::UnixNanos;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Versions of a job as the agent shows them, newest first, with their differences.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct VersionsOf {
    /// The versions.
    #[serde(deserialize_with = "null_default")]
    pub versions: Vec<serde_json::Value>,
    /// When asked for: of each version to the one before (one less than there are versions), or to the version or tag
    /// that was named (as many as there are versions).
    #[serde(deserialize_with = "null_default")]
    pub diffs: Vec<JobDiff>,
}

/// A change of a group's count, or a remark of whoever scales it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingEvent {
    /// When.
    pub time: UnixNanos,
    /// The new count, if it was changed.
    pub count: Option<i64>,
    /// The count before.
    pub previous_count: i64,
    /// Whether it tells of a failure.
    pub error: bool,
    /// Words for people.
    pub message: String,
    /// The evaluation that followed.
    #[serde(rename = "EvalID")]
    pub eval_id: Option<String>,
}

/// How the groups of a job were scaled.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ScalingEvents {
    /// By group.
    #[serde(deserialize_with = "null_default")]
    pub task_groups: BTreeMap<String, GroupEvents>,
}

/// How a group was scaled.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GroupEvents {
    /// The latest ones.
    #[serde(deserialize_with = "null_default")]
    pub events: Vec<ScalingEvent>,
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as
/// [`crate::Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Jobs<'_> {
    /// Makes an evaluation of a job; `force`: place again what failed, even where its policy would wait.
    pub async fn evaluate(
        &self,
        id: &str,
        force: bool,
        query: &QueryOptions,
    ) -> Result<Response<RegisterResponse>, Error> {
        let body = serde_json::json!({"JobID": id, "EvalOptions": {"ForceReschedule": force}});
        self.0.put(&path("/v1/job/{}/evaluate", &[id]), query, &body).await
    }

    /// Tells what registering a job would do, as the agent shows it.
    pub async fn plan_raw<J: serde::Serialize + ?Sized>(
        &self,
        id: &str,
        job: &J,
        request: crate::jobs::PlanRequest,
        query: &QueryOptions,
    ) -> Result<Response<serde_json::Value>, Error> {
        self.0.put(&path("/v1/job/{}/plan", &[id]), query, &crate::jobs::plan_body(job, request)).await
    }

    /// Versions of a job. Parameters `diffs`, `diff_version` and `diff_tag` of the query ask for differences.
    pub async fn history(&self, id: &str, query: &QueryOptions) -> Result<Response<VersionsOf>, Error> {
        self.0.get(&path("/v1/job/{}/versions", &[id]), query).await
    }

    /// How the groups of a job were scaled.
    pub async fn scaling_events(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<ScalingEvents>, Error> {
        self.0.get(&path("/v1/job/{}/scale", &[id]), query).await
    }
}
