//! Jobs (docs/reference/http-api.md, section 3.1).

use crate::client::{ASKS_FOR_PROBLEMS, Client};
use crate::error::Error;
use crate::query::{QueryOptions, Response, path};
use caravan_api as api;
use caravan_types::alloc::AllocListStub;
use caravan_types::deployment::Deployment;
use caravan_types::eval::{AllocMetric, Evaluation};
use caravan_types::id::EvalId;
use caravan_types::job::{Job, JobListStub, JobSummary};
use caravan_types::plan::PlanAnnotations;
use caravan_types::ser::null_default;
use caravan_types::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The source text of a job, which the servers store with the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Submission {
    /// The source text.
    pub source: String,
    /// The language of the source: `hcl2` or `json`.
    pub format: String,
    /// The values of single variables, by name.
    #[serde(deserialize_with = "null_default")]
    pub variable_flags: BTreeMap<String, String>,
    /// The text of the variable files.
    pub variables: String,
}

/// The options of a registration.
#[derive(Clone, Debug, Default)]
pub struct RegisterOptions {
    /// The modify index that the job must have; 0 requires that the job does not exist. `None` sets no condition.
    pub check_index: Option<u64>,
    /// The priority of the evaluation; 0 means the job's.
    pub eval_priority: i64,
    /// Whether existing groups keep their counts.
    pub preserve_counts: bool,
    /// Whether existing tasks keep their resources.
    pub preserve_resources: bool,
    /// Whether to override policies that allow an override.
    pub policy_override: bool,
    /// The source text to store with the job.
    pub submission: Option<Submission>,
}

/// The answer to a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RegisterResponse {
    /// The evaluation that the registration created; empty for periodic and parameterized jobs.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// The index at which the evaluation was created.
    pub eval_create_index: u64,
    /// The modify index of the job.
    pub job_modify_index: u64,
    /// Warnings for users; empty without any.
    pub warnings: String,
    /// The warnings as data; empty from agents of other kinds.
    pub caravan_problems: Vec<api::JobProblem>,
}

/// The options of a deregistration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeregisterOptions {
    /// Whether to delete the job immediately instead of keeping it as stopped.
    pub purge: bool,
    /// Whether to stop the job in all its regions.
    pub global: bool,
    /// Whether to skip the shutdown delay of the tasks.
    pub no_shutdown_delay: bool,
    /// The priority of the evaluation; 0 means the job's.
    pub eval_priority: i64,
}

/// The answer to a deregistration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeregisterResponse {
    /// The evaluation that the deregistration created.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// The index at which the evaluation was created.
    pub eval_create_index: u64,
    /// The modify index of the job.
    pub job_modify_index: u64,
}

/// The input of a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchOptions {
    /// Bytes for the tasks, at most 16 KiB.
    pub payload: Vec<u8>,
    /// Metadata that overrides the metadata of the parent job.
    pub meta: BTreeMap<String, String>,
    /// Text that the id of the child job includes; empty for none.
    pub id_prefix: String,
    /// The priority of the child job; 0 means the parent's.
    pub priority: i64,
    /// The idempotency token of [`Jobs::dispatch`]; empty for none.
    pub idempotency_token: String,
}

/// The answer to a dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DispatchResponse {
    /// The id of the child job.
    #[serde(rename = "DispatchedJobID")]
    pub dispatched_job_id: String,
    /// The evaluation that the dispatch created; empty if the child existed already or is periodic.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// The index at which the evaluation was created.
    pub eval_create_index: u64,
    /// The index at which the child job was created.
    pub job_create_index: u64,
}

/// The answer to a forced launch of a periodic job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ForceResponse {
    /// The evaluation that the launch created.
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    /// The index at which the evaluation was created.
    pub eval_create_index: u64,
}

/// The answer to a validation of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ValidateResponse {
    /// Whether drivers checked the configuration of tasks.
    pub driver_config_validated: bool,
    /// The errors, one for each entry.
    #[serde(deserialize_with = "null_default")]
    pub validation_errors: Vec<String>,
    /// All errors as one text.
    pub error: String,
    /// Warnings for users; empty without any.
    pub warnings: String,
    /// Errors and warnings as data; empty from agents of other kinds.
    pub caravan_problems: Vec<api::JobProblem>,
}

/// The options of a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanRequest {
    /// Whether the answer includes the difference to the current job.
    pub diff: bool,
    /// Whether existing groups keep their counts.
    pub preserve_counts: bool,
    /// Whether existing tasks keep their resources.
    pub preserve_resources: bool,
    /// Whether to override policies that allow an override.
    pub policy_override: bool,
}

/// The result of a dry run (docs/reference/http-api.md, section 5.6).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PlanResponse {
    /// The numbers of changes by kind.
    pub annotations: Option<PlanAnnotations>,
    /// The reasons, by group, for groups that would not be placed.
    #[serde(rename = "FailedTGAllocs", deserialize_with = "null_default")]
    pub failed_tg_allocs: BTreeMap<String, AllocMetric>,
    /// The current modify index of the job; 0 if the job does not exist.
    pub job_modify_index: u64,
    /// The evaluations that the registration would create.
    #[serde(deserialize_with = "null_default")]
    pub created_evals: Vec<Evaluation>,
    /// The difference to the current job, if requested.
    pub diff: Option<JobDiff>,
    /// The next launch of a periodic job.
    pub next_periodic_launch: Time,
    /// Warnings for users; empty without any.
    pub warnings: String,
    /// The warnings as data; empty from agents of other kinds.
    pub caravan_problems: Vec<api::JobProblem>,
    /// Sentences that explain what prevents placements; filled with the parameter `explain=true`.
    pub caravan_reasons: Vec<String>,
    /// Sentences about the nodes that were compared and scored for placements; filled with the parameter
    /// `explain=true`.
    pub caravan_placements: Vec<String>,
    /// The moves that node changes would cause; filled with the parameter `what-if`, which may be repeated.
    pub caravan_what_if: Option<WhatIf>,
}

/// The consequences of a hypothetical change of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct WhatIf {
    /// The allocations that would leave their nodes.
    pub moves: Vec<WhatIfMove>,
    /// Other placements that would follow: the allocation's name and the node's name.
    pub placed: Vec<(String, String)>,
    /// Sentences that explain why allocations would wait.
    pub reasons: Vec<String>,
    /// The number of omitted lines, because the caller may not read their jobs.
    pub hidden: usize,
    /// The number of jobs that were not examined, because there are too many.
    pub skipped: usize,
}

/// An allocation that would leave its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct WhatIfMove {
    /// The namespace of the job.
    pub namespace: String,
    /// The id of the job.
    #[serde(rename = "JobID")]
    pub job_id: String,
    /// The name of the allocation: `job.group[index]`.
    pub name: String,
    /// The name of the node that the allocation would leave.
    pub from: String,
    /// The name of the node that would run the allocation; empty if the allocation would wait.
    pub to: String,
    /// The volumes that would move with the allocation.
    pub volumes: Vec<String>,
}

macro_rules! diff {
    ($(#[$doc:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        #[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.6")]
        pub struct $name {
            /// The kind of difference: `None`, `Added`, `Deleted` or `Edited`.
            #[serde(rename = "Type")]
            pub kind: String,
            $($(#[$attr])* #[serde(deserialize_with = "null_default")] pub $field: $ty,)*
        }
    };
}

diff!(
    /// The difference between two versions of a job.
    JobDiff {
        #[serde(rename = "ID")]
        id: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
        task_groups: Vec<TaskGroupDiff>,
    }
);
diff!(
    /// The difference between two versions of a group.
    TaskGroupDiff {
        name: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
        tasks: Vec<TaskDiff>,
        updates: BTreeMap<String, u64>,
    }
);
diff!(
    /// The difference between two versions of a task.
    TaskDiff {
        name: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
        annotations: Vec<String>,
    }
);
diff!(
    /// The difference between two versions of a block.
    ObjectDiff {
        name: String,
        fields: Vec<FieldDiff>,
        objects: Vec<ObjectDiff>,
    }
);
diff!(
    /// The difference between two versions of a value.
    FieldDiff {
        name: String,
        old: String,
        new: String,
        annotations: Vec<String>,
    }
);

/// The versions of a job, newest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobVersions {
    /// The versions, newest first.
    #[serde(deserialize_with = "null_default")]
    pub versions: Vec<Job>,
}

/// The routes of jobs, from [`Client::jobs`].
#[derive(Clone, Copy, Debug)]
pub struct Jobs<'a>(pub(crate) &'a Client);

impl Client {
    /// Returns the routes of jobs.
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

/// Returns the options of a request that selects refusals as data.
pub(crate) fn asking(query: &QueryOptions) -> QueryOptions {
    query.clone().param(ASKS_FOR_PROBLEMS.0, ASKS_FOR_PROBLEMS.1)
}

/// Builds the body of a dry run.
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
#[expect(clippy::missing_errors_doc, reason = "documented once for all methods")]
impl Jobs<'_> {
    /// Lists jobs.
    pub async fn list(&self, query: &QueryOptions) -> Result<Response<Vec<JobListStub>>, Error> {
        self.0.get("/v1/jobs", query).await
    }

    /// Registers a job: an [`api::Job`], or its raw JSON.
    ///
    /// ```no_run
    /// use caravan_sdk::{Client, QueryOptions, RegisterOptions};
    /// # async fn example(client: Client, job: caravan_api::Job) -> Result<(), caravan_sdk::Error> {
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
        self.0.put("/v1/jobs", &asking(query), &body).await
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

    /// Validates a job without registering it.
    pub async fn validate<J: Serialize + ?Sized>(
        &self,
        job: &J,
        query: &QueryOptions,
    ) -> Result<Response<ValidateResponse>, Error> {
        self.0.put("/v1/validate/job", query, &serde_json::json!({"Job": Raw(job)})).await
    }

    /// Returns the effects that registering a job would have.
    pub async fn plan<J: Serialize + ?Sized>(
        &self,
        id: &str,
        job: &J,
        request: PlanRequest,
        query: &QueryOptions,
    ) -> Result<Response<PlanResponse>, Error> {
        self.0.put(&path("/v1/job/{}/plan", &[id]), &asking(query), &plan_body(job, request)).await
    }

    /// Returns a job by its id.
    pub async fn info(&self, id: &str, query: &QueryOptions) -> Result<Response<Job>, Error> {
        self.0.get(&path("/v1/job/{}", &[id]), query).await
    }

    /// Returns a job as the agent sends it.
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

    /// Lists the allocations of a job. With `all`, includes allocations of an earlier job with the same id.
    pub async fn allocations(
        &self,
        id: &str,
        all: bool,
        query: &QueryOptions,
    ) -> Result<Response<Vec<AllocListStub>>, Error> {
        let query = query.clone().param("all", all.to_string());
        self.0.get(&path("/v1/job/{}/allocations", &[id]), &query).await
    }

    /// Lists the evaluations of a job.
    pub async fn evaluations(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<Evaluation>>, Error> {
        self.0.get(&path("/v1/job/{}/evaluations", &[id]), query).await
    }

    /// Lists the deployments of a job.
    pub async fn deployments(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Vec<Deployment>>, Error> {
        self.0.get(&path("/v1/job/{}/deployments", &[id]), query).await
    }

    /// Returns the newest deployment of a job; `None` without one.
    pub async fn latest_deployment(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<Option<Deployment>>, Error> {
        self.0.get(&path("/v1/job/{}/deployment", &[id]), query).await
    }

    /// Returns the counts of a job's allocations by state.
    pub async fn summary(&self, id: &str, query: &QueryOptions) -> Result<Response<JobSummary>, Error> {
        self.0.get(&path("/v1/job/{}/summary", &[id]), query).await
    }

    /// Returns the versions of a job, newest first.
    pub async fn versions(&self, id: &str, query: &QueryOptions) -> Result<Response<JobVersions>, Error> {
        self.0.get(&path("/v1/job/{}/versions", &[id]), query).await
    }

    /// Dispatches a parameterized job. If several dispatches have the same idempotency token, only the first one
    /// creates a child job; the others return that child job.
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

    /// Launches a periodic job now.
    pub async fn force_periodic(
        &self,
        id: &str,
        query: &QueryOptions,
    ) -> Result<Response<ForceResponse>, Error> {
        self.0.put(&path("/v1/job/{}/periodic/force", &[id]), query, &serde_json::json!({})).await
    }

    /// Returns the stored source text of a job's version, if there is one.
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

/// A borrowed value of any type, for `json!`.
struct Raw<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Raw<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
