//! Jobs (docs/reference/http-api.md, section 3.1).

use crate::client::Client;
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_types::alloc::AllocListStub;
use caravan_types::api;
use caravan_types::deployment::Deployment;
use caravan_types::eval::{AllocMetric, Evaluation};
use caravan_types::id::EvalId;
use caravan_types::job::{Job, JobListStub, JobSummary};
use caravan_types::plan::PlanAnnotations;
use caravan_types::ser::null_default;
use caravan_types::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The text a job was made from, kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Submission {
    /// The text.
    pub source: String,
    /// `hcl2` or `json`.
    pub format: String,
    /// Variables given one by one.
    #[serde(deserialize_with = "null_default")]
    pub variable_flags: BTreeMap<String, String>,
    /// Text of the variable files.
    pub variables: String,
}

/// How a job is registered.
#[derive(Clone, Debug, Default)]
pub struct RegisterOptions {
    /// Only if the job's modify index is this; 0 = only if there is no such job.
    pub check_index: Option<u64>,
    /// Priority of the evaluation; 0 = the job's.
    pub eval_priority: i64,
    /// Keep the counts of groups that are there already.
    pub preserve_counts: bool,
    /// Keep the resources of tasks that are there already.
    pub preserve_resources: bool,
    /// Go against policies that may be gone against.
    pub policy_override: bool,
    /// The text it was made from.
    pub submission: Option<Submission>,
}

/// Answer to registering a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RegisterResponse {
    /// Evaluation made; empty for periodic and parameterized jobs.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// Its index.
    pub eval_create_index: u64,
    /// The job's.
    pub job_modify_index: u64,
    /// Warnings for people; empty = none.
    pub warnings: String,
}

/// How a job is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeregisterOptions {
    /// Forget it.
    pub purge: bool,
    /// In all its regions.
    pub global: bool,
    /// Do not wait before its tasks are stopped.
    pub no_shutdown_delay: bool,
    /// Priority of the evaluation; 0 = the job's.
    pub eval_priority: i64,
}

/// Answer to stopping a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeregisterResponse {
    /// Evaluation made.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// Its index.
    pub eval_create_index: u64,
    /// The job's.
    pub job_modify_index: u64,
}

/// What a dispatch gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchOptions {
    /// Bytes for the tasks, at most 16 KiB.
    pub payload: Vec<u8>,
    /// Pairs that go over those of the job.
    pub meta: BTreeMap<String, String>,
    /// Text for the id of the child; empty = none.
    pub id_prefix: String,
    /// Priority of the child; 0 = the job's.
    pub priority: i64,
    /// See [`Jobs::dispatch`]; empty = none.
    pub idempotency_token: String,
}

/// Answer to a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DispatchResponse {
    /// The child.
    #[serde(rename = "DispatchedJobID")]
    pub dispatched_job_id: String,
    /// Evaluation made; empty for a child that was there, or that is periodic.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// Its index.
    pub eval_create_index: u64,
    /// The child's.
    pub job_create_index: u64,
}

/// Answer to a forced launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ForceResponse {
    /// Evaluation made.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// Its index.
    pub eval_create_index: u64,
}

/// Answer to validating a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ValidateResponse {
    /// Whether drivers were asked too.
    pub driver_config_validated: bool,
    /// What is wrong, one by one.
    #[serde(deserialize_with = "null_default")]
    pub validation_errors: Vec<String>,
    /// The same in one text.
    pub error: String,
    /// Warnings.
    pub warnings: String,
}

/// A dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanRequest {
    /// Whether to answer with the difference to the job as it is.
    pub diff: bool,
    /// Keep the counts of groups that are there already.
    pub preserve_counts: bool,
    /// Keep the resources of tasks that are there already.
    pub preserve_resources: bool,
    /// Go against policies that may be gone against.
    pub policy_override: bool,
}

/// What a dry run tells (docs/reference/http-api.md, section 5.6).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PlanResponse {
    /// Counts of changes.
    pub annotations: Option<PlanAnnotations>,
    /// By group: why something would not be placed.
    #[serde(rename = "FailedTGAllocs", deserialize_with = "null_default")]
    pub failed_tg_allocs: BTreeMap<String, AllocMetric>,
    /// The job's modify index now; 0 = there is no such job.
    pub job_modify_index: u64,
    /// Evaluations that would be made.
    #[serde(deserialize_with = "null_default")]
    pub created_evals: Vec<Evaluation>,
    /// Difference, when asked for.
    pub diff: Option<JobDiff>,
    /// When a periodic job would run.
    pub next_periodic_launch: Time,
    /// Warnings.
    pub warnings: String,
    /// What was in the way of what would not be placed, in sentences; with the parameter `explain=true`.
    pub caravan_reasons: Vec<String>,
    /// What was looked at and scored for what would be placed, in sentences; with the parameter `explain=true`.
    pub caravan_placements: Vec<String>,
    /// What would move where; with the parameter `what-if`, which may be given several times.
    pub caravan_what_if: Option<WhatIf>,
}

/// What would follow from something that happens to nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct WhatIf {
    /// Allocations that would go.
    pub moves: Vec<WhatIfMove>,
    /// What else would be placed: name and node.
    pub placed: Vec<(String, String)>,
    /// Why something would wait.
    pub reasons: Vec<String>,
    /// How many lines are left out: they are about jobs that the caller may not read.
    pub hidden: usize,
    /// How many jobs were not looked at, because there are too many.
    pub skipped: usize,
}

/// An allocation that would go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct WhatIfMove {
    /// Namespace of the job.
    pub namespace: String,
    /// The job.
    #[serde(rename = "JobID")]
    pub job_id: String,
    /// `job.group[index]`.
    pub name: String,
    /// Name of the node that it would leave.
    pub from: String,
    /// Name of the node where it would run; empty if it would wait.
    pub to: String,
    /// Volumes that would go along.
    pub volumes: Vec<String>,
}

macro_rules! diff {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        #[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.6")]
        pub struct $name {
            /// `None`, `Added`, `Deleted` or `Edited`.
            #[serde(rename = "Type")]
            pub kind: String,
            $($(#[$attr])* #[serde(deserialize_with = "null_default")] pub $field: $ty,)*
        }
    };
}

diff!(
    /// Difference between two versions of a job.
    JobDiff {
        #[serde(rename = "ID")]
        id: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
        task_groups: Vec<TaskGroupDiff>,
    }
);
diff!(
    /// Difference of a group.
    TaskGroupDiff {
        name: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
        tasks: Vec<TaskDiff>,
        updates: BTreeMap<String, u64>,
    }
);
diff!(
    /// Difference of a task.
    TaskDiff {
        name: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
        annotations: Vec<String>,
    }
);
diff!(
    /// Difference of a block.
    ObjectDiff {
        name: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
    }
);
diff!(
    /// Difference of a value.
    FieldDiff {
        name: String,
        old: String,
        new: String,
        annotations: Vec<String>,
    }
);

/// Versions of a job, newest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobVersions {
    /// The versions.
    #[serde(deserialize_with = "null_default")]
    pub versions: Vec<Job>,
}

/// Routes of jobs.
#[derive(Clone, Copy, Debug)]
pub struct Jobs<'a>(pub(crate) &'a Client);

impl Client {
    /// Routes of jobs.
    pub fn jobs(&self) -> Jobs<'_> {
        Jobs(self)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RegisterBody<'a, J: ?Sized> {
    job: &'a J,
    #[serde(skip_serializing_if = "Option::is_none")]
    submission: Option<&'a Submission>,
    enforce_index: bool,
    job_modify_index: u64,
    policy_override: bool,
    preserve_counts: bool,
    preserve_resources: bool,
    eval_priority: i64,
}

/// The body of a dry run.
pub(crate) fn plan_body<J: Serialize + ?Sized>(job: &J, request: PlanRequest) -> impl Serialize {
    PlanBody {
        job,
        diff: request.diff,
        policy_override: request.policy_override,
        preserve_counts: request.preserve_counts,
        preserve_resources: request.preserve_resources,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PlanBody<'a, J: ?Sized> {
    job: &'a J,
    diff: bool,
    policy_override: bool,
    preserve_counts: bool,
    preserve_resources: bool,
}

/// Every method fails with [`Error::Status`] when the agent refuses, and otherwise as [`Client::get`].
#[expect(clippy::missing_errors_doc, reason = "told once for all methods")]
impl Jobs<'_> {
    /// Lists jobs.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<JobListStub>>, Error> {
        self.0.get("/v1/jobs", query).await
    }

    /// Registers a job: an [`api::Job`], or the same as raw JSON.
    ///
    /// ```no_run
    /// use caravan_sdk::{Client, QueryOptions, RegisterOptions};
    /// # async fn example(client: Client, job: caravan_types::api::Job) -> Result<(), caravan_sdk::Error> {
    /// let answer = client.jobs().register(&job, &RegisterOptions::default(), &QueryOptions::new()).await?;
    /// println!("evaluation {}", answer.value.eval_id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn register<J: Serialize + ?Sized>(
        &self,
        job: &J,
        options: &RegisterOptions,
        query: &QueryOptions,
    ) -> Result<Response<RegisterResponse>, Error> {
        let body = RegisterBody {
            job,
            submission: options.submission.as_ref(),
            enforce_index: options.check_index.is_some(),
            job_modify_index: options.check_index.unwrap_or(0),
            policy_override: options.policy_override,
            preserve_counts: options.preserve_counts,
            preserve_resources: options.preserve_resources,
            eval_priority: options.eval_priority,
        };
        self.0.put("/v1/jobs", query, &body).await
    }

    /// Parses a job file on the agent. `variables` is the text of a variable file.
    pub async fn parse(
        &self,
        text: &str,
        variables: &str,
        canonicalize: bool,
    ) -> Result<Response<api::Job>, Error> {
        let body = serde_json::json!({"JobHCL": text, "Variables": variables, "Canonicalize": canonicalize});
        self.0.put("/v1/jobs/parse", &QueryOptions::new(), &body).await
    }

    /// Checks a job without registering it.
    pub async fn validate<J: Serialize + ?Sized>(
        &self,
        job: &J,
        query: &QueryOptions,
    ) -> Result<Response<ValidateResponse>, Error> {
        self.0.put("/v1/validate/job", query, &serde_json::json!({"Job": Raw(job)})).await
    }

    /// Tells what registering a job would do.
    pub async fn plan<J: Serialize + ?Sized>(
        &self,
        id: &str,
        job: &J,
        request: PlanRequest,
        query: &QueryOptions,
    ) -> Result<Response<PlanResponse>, Error> {
        self.0.put(&path("/v1/job/{}/plan", &[id]), query, &plan_body(job, request)).await
    }

    /// A job.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Job>, Error> {
        self.0.get(&path("/v1/job/{}", &[id]), query).await
    }

    /// A job as the agent shows it.
    pub async fn raw(&self, id: &str, query: &QueryOptions) -> Result<Response<serde_json::Value>, Error> {
        self.0.get(&path("/v1/job/{}", &[id]), query).await
    }

    /// Stops a job.
    pub async fn deregister(
        &self,
        id: &str,
        options: DeregisterOptions,
        query: &QueryOptions,
    ) -> Result<Response<DeregisterResponse>, Error> {
        let query = query
            .clone()
            .param("eval_priority", options.eval_priority.to_string())
            .param("global", options.global.to_string())
            .param("no_shutdown_delay", options.no_shutdown_delay.to_string())
            .param("purge", options.purge.to_string());
        self.0.delete(&path("/v1/job/{}", &[id]), &query).await
    }

    /// Allocations of a job; `all`: also those of an earlier job of the same id.
    pub async fn allocations(
        &self,
        id: &str,
        all: bool,
        query: &QueryOptions,
    ) -> Result<Response<Vec<AllocListStub>>, Error> {
        let query = query.clone().param("all", all.to_string());
        self.0.get(&path("/v1/job/{}/allocations", &[id]), &query).await
    }

    /// Evaluations of a job.
    pub async fn evaluations(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<Evaluation>>, Error> {
        self.0.get(&path("/v1/job/{}/evaluations", &[id]), query).await
    }

    /// Deployments of a job.
    pub async fn deployments(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<Deployment>>, Error> {
        self.0.get(&path("/v1/job/{}/deployments", &[id]), query).await
    }

    /// The newest deployment of a job, if there is one.
    pub async fn latest_deployment(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Option<Deployment>>, Error> {
        self.0.get(&path("/v1/job/{}/deployment", &[id]), query).await
    }

    /// Counts of a job's allocations.
    pub async fn summary(&self, id: &str, query: &QueryOptions) -> Result<Response<JobSummary>, Error> {
        self.0.get(&path("/v1/job/{}/summary", &[id]), query).await
    }

    /// Versions of a job.
    pub async fn versions(&self, id: &str, query: &QueryOptions) -> Result<Response<JobVersions>, Error> {
        self.0.get(&path("/v1/job/{}/versions", &[id]), query).await
    }

    /// Has a parameterized job make a child. With an idempotency token, only the first of all dispatches with it
    /// does; the others answer that child.
    pub async fn dispatch(
        &self,
        id: &str,
        options: &DispatchOptions,
        query: &QueryOptions,
    ) -> Result<Response<DispatchResponse>, Error> {
        use base64::Engine as _;
        let payload = base64::engine::general_purpose::STANDARD.encode(&options.payload);
        let body = serde_json::json!({
            "JobID": id,
            "Payload": if payload.is_empty() { None } else { Some(payload) },
            "Meta": options.meta,
            "IdPrefixTemplate": options.id_prefix,
            "Priority": options.priority,
        });
        let mut query = query.clone();
        if !options.idempotency_token.is_empty() {
            query = query.param("idempotency_token", options.idempotency_token.clone());
        }
        self.0.put(&path("/v1/job/{}/dispatch", &[id]), &query, &body).await
    }

    /// Has a periodic job make a child now.
    pub async fn force_periodic(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<ForceResponse>, Error> {
        self.0.put(&path("/v1/job/{}/periodic/force", &[id]), query, &serde_json::json!({})).await
    }

    /// The text that a version of a job was made from, if it was kept.
    pub async fn submission(
        &self,
        id: &str,
        version: u64,
        query: &QueryOptions,
    ) -> Result<Response<Option<Submission>>, Error> {
        let query = query.clone().param("version", version.to_string());
        self.0.get(&path("/v1/job/{}/submission", &[id]), &query).await
    }
}

/// Lets `json!` take a borrowed value of any type.
struct Raw<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Raw<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
