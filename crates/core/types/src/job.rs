//! A job as the servers store it, with all defaults.

mod files;
mod group;
mod policy;
mod resources;
mod shape;
mod task;
mod template;
mod volume;

pub use files::{Artifact, ChangeScript, DispatchPayload, Template, WaitConfig};
pub use group::{Consul, EphemeralDisk, TaskGroup};
pub use policy::{
    DisconnectStrategy, MigrateStrategy, ReschedulePolicy, RestartMode, RestartPolicy, UpdateStrategy,
};
pub use resources::{Cni, Dns, Network, Numa, Port, RequestedDevice, Resources, is_label};
pub(crate) use shape::blocks;
pub use task::{Action, CsiPluginConfig, CsiPluginType, Lifecycle, LogConfig, Task};
pub use template::{Parameterized, Periodic};
pub use volume::{
    BrokenMount, HostAccess, MountOptions, PropagationMode, VolumeMount, VolumeRequest, VolumeType,
};

use crate::id::{JobId, JobKey, Namespace};
use crate::scaling::VersionTag;
use crate::ser::nil;
use crate::time::UnixNanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A block of a job without effect (`docs/gaps.md`), stored and returned unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unsupported(pub serde_json::Value);

/// The type of a job, which selects its scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobType {
    /// Runs until a user stops the job.
    #[default]
    Service,
    /// Runs to completion.
    Batch,
    /// One allocation on every feasible node, until stopped.
    System,
    /// Runs to completion on every feasible node.
    Sysbatch,
}

impl JobType {
    /// The names of all types in job files.
    pub const WORDS: &'static [&'static str] = &["service", "batch", "system", "sysbatch"];

    /// Returns the name in job files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Batch => "batch",
            Self::System => "system",
            Self::Sysbatch => "sysbatch",
        }
    }
    /// Returns whether the job has an allocation on every feasible node.
    pub fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Sysbatch)
    }
    /// Returns whether the job ends when its tasks have ended.
    pub fn is_batch(self) -> bool {
        matches!(self, Self::Batch | Self::Sysbatch)
    }
}

impl fmt::Display for JobType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for JobType {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "service" => Ok(Self::Service),
            "batch" => Ok(Self::Batch),
            "system" => Ok(Self::System),
            "sysbatch" => Ok(Self::Sysbatch),
            other => {
                let near = crate::words::suggestion(other, Self::WORDS.iter().copied());
                Err(format!("Invalid job type: \"{other}\"{near}"))
            }
        }
    }
}

/// The status of a job (docs/reference/http-api.md, section 6.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// No allocation runs yet, and an evaluation is pending or blocked.
    #[default]
    Pending,
    /// Allocations or a deployment are live, or the type never ends by itself.
    Running,
    /// No allocation runs, and no evaluation is pending.
    Dead,
}

impl JobStatus {
    /// Returns the name of the status in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Dead => "dead",
        }
    }
}

/// A condition that nodes must meet (docs/reference/jobspec.md, section 4.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Constraint {
    /// The left side, usually `${attr.…}`.
    #[serde(rename = "LTarget")]
    pub l_target: String,
    /// The value with which the left side is compared; empty for operators with one side.
    #[serde(rename = "RTarget")]
    pub r_target: String,
    /// The operator that compares both sides, such as `=` or `version`.
    pub operand: String,
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.l_target, self.operand, self.r_target)
    }
}

/// A preference for nodes that meet a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Affinity {
    /// The left side, usually `${attr.…}`.
    #[serde(rename = "LTarget")]
    pub l_target: String,
    /// The value with which the left side is compared; empty for operators with one side.
    #[serde(rename = "RTarget")]
    pub r_target: String,
    /// The operator that compares both sides, such as `=` or `version`.
    pub operand: String,
    /// The strength of the preference, in -100..=100 without 0. A negative weight is an aversion.
    pub weight: i64,
}

/// A preference to spread allocations over the values of an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Spread {
    /// The attribute, usually `${attr.…}` or `${node.datacenter}`.
    pub attribute: String,
    /// The strength of the preference, in 1..=100.
    pub weight: i64,
    /// The desired shares of the values; empty means even shares.
    #[serde(with = "nil")]
    pub spread_target: Vec<SpreadTarget>,
}

/// A share of a [`Spread`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SpreadTarget {
    /// The value of the attribute.
    pub value: String,
    /// The desired share of allocations, in 0..=100.
    pub percent: u32,
}

blocks! {
    /// A description and links for the web page.
    JobUi {
        description: String = "Description";
        links: Option<Vec<JobUiLink>> = "Links";
    }

    /// A link for the web page.
    JobUiLink {
        label: String = "Label";
        url: String = "URL";
    }
}

/// A job with all defaults, whose names are checked. Its JSON is docs/reference/http-api.md, section 5.1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Job {
    /// Whether a user stopped the job.
    pub stop: bool,
    /// The region in which the job runs.
    pub region: String,
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The id, unique in the namespace.
    #[serde(rename = "ID")]
    pub id: JobId,
    /// The periodic or parameterized job that created this one, or empty.
    #[serde(rename = "ParentID")]
    pub parent_id: JobId,
    /// The name shown to users.
    pub name: String,
    /// The type, which selects the scheduler.
    #[serde(rename = "Type")]
    pub kind: JobType,
    /// The priority in 1..=100; jobs with a higher priority are first.
    pub priority: i64,
    /// Whether a plan that cannot place all allocations places none.
    pub all_at_once: bool,
    /// The datacenters in which the job may run, as names or globs.
    #[serde(with = "nil")]
    pub datacenters: Vec<String>,
    /// The node pool in which the job runs.
    pub node_pool: String,
    /// The conditions that nodes of all groups must meet.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// The preferences for nodes of all groups.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
    /// The preferences for spreading the allocations of all groups.
    #[serde(with = "nil")]
    pub spreads: Vec<Spread>,
    /// The groups, at least one.
    #[serde(with = "nil")]
    pub task_groups: Vec<TaskGroup>,
    /// The update strategy of the job, of which only `Stagger` and `MaxParallel` are kept. The effective values are
    /// in the groups.
    pub update: UpdateStrategy,
    /// The settings for several regions; a job that has them is refused.
    pub multiregion: Option<Box<Unsupported>>,
    /// The times at which the job creates children.
    pub periodic: Option<Box<Periodic>>,
    /// The input that a dispatch of the job must and may have ([`Self::dispatch_rule`]).
    pub parameterized_job: Option<Parameterized>,
    /// Whether a dispatch created the job.
    pub dispatched: bool,
    /// The idempotency token of the dispatch.
    pub dispatch_idempotency_token: String,
    /// The payload of the dispatch, in base64.
    #[serde(with = "nil_text")]
    pub payload: String,
    /// Key and value pairs of the user.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    /// The namespace in Consul; without effect.
    pub consul_namespace: String,
    /// The namespace in Vault; without effect.
    pub vault_namespace: String,
    /// The accessor of the token that submitted the job.
    #[serde(rename = "NomadTokenID")]
    pub nomad_token_id: String,
    /// The status, which the state store derives.
    pub status: JobStatus,
    /// The reason for the status, shown to users.
    pub status_description: String,
    /// Whether the deployment of this version succeeded.
    pub stable: bool,
    /// The number of the version; each change of the specification increments it.
    pub version: u64,
    /// The time of the submission.
    pub submit_time: UnixNanos,
    /// The Raft index of the first registration.
    pub create_index: u64,
    /// The Raft index of the last write.
    pub modify_index: u64,
    /// The Raft index of the last write of the specification.
    pub job_modify_index: u64,
    /// A description and links for the web page.
    #[serde(rename = "UI")]
    pub ui: Option<Box<JobUi>>,
    /// The tag of this version.
    pub version_tag: Option<Box<VersionTag>>,
}

mod nil_text {
    use serde::{Deserializer, Serializer};
    pub(super) fn serialize<S: Serializer>(value: &str, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_empty() { serializer.serialize_none() } else { serializer.serialize_str(value) }
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        crate::ser::null_default(deserializer)
    }
}

impl Job {
    /// Returns the key of the job: namespace and id.
    pub fn key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.id.clone() }
    }

    /// Returns the group with a name.
    pub fn group(&self, name: &str) -> Option<&TaskGroup> {
        self.task_groups.iter().find(|g| g.name == name)
    }

    /// Returns whether any task is a CSI plugin.
    pub fn is_plugin(&self) -> bool {
        self.task_groups.iter().flat_map(|g| &g.tasks).any(|t| t.csi_plugin_config.is_some())
    }

    /// Returns whether a user stopped the job.
    pub fn is_stopped(&self) -> bool {
        self.stop
    }

    /// Returns whether both jobs have the same specification: every field that a submission can change. Indexes,
    /// status and host access are not compared.
    pub fn same_spec(&self, other: &Self) -> bool {
        let strip = |job: &Self| Self {
            status: JobStatus::default(),
            status_description: String::new(),
            stable: false,
            version: 0,
            submit_time: UnixNanos(0),
            create_index: 0,
            modify_index: 0,
            job_modify_index: 0,
            version_tag: None,
            nomad_token_id: String::new(),
            ..job.with_access(|_| HostAccess::Any)
        };
        strip(self) == strip(other)
    }

    /// Returns the job with another access of each request to host volumes.
    fn with_access(&self, access: impl Fn(&VolumeRequest) -> HostAccess) -> Self {
        let mut job = self.clone();
        for request in job.task_groups.iter_mut().flat_map(|group| group.volumes.values_mut()) {
            request.host_access = access(request);
        }
        job
    }

    /// Returns the job with the host access of both jobs, which have the same specification but other submitters.
    /// Returns `None` if the other job adds no access.
    #[must_use]
    pub fn widened(&self, other: &Self) -> Option<Self> {
        let mut job = self.clone();
        for group in &mut job.task_groups {
            let Some(theirs) = other.group(&group.name) else { continue };
            for (alias, request) in &mut group.volumes {
                if theirs.volumes.get(alias).is_some_and(|own| own.host_access == HostAccess::Any) {
                    request.host_access = HostAccess::Any;
                }
            }
        }
        (job != *self).then_some(job)
    }
}

/// A job in a list (`JobListStub`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "the fields are those of Job")]
pub struct JobListStub {
    #[serde(rename = "ID")]
    pub id: JobId,
    #[serde(rename = "ParentID")]
    pub parent_id: JobId,
    pub name: String,
    pub namespace: Namespace,
    #[serde(with = "nil")]
    pub datacenters: Vec<String>,
    pub node_pool: String,
    pub multiregion: Option<Box<Unsupported>>,
    #[serde(rename = "Type")]
    pub kind: JobType,
    pub priority: i64,
    pub periodic: bool,
    pub parameterized_job: bool,
    pub stop: bool,
    pub status: JobStatus,
    pub status_description: String,
    pub job_summary: Option<JobSummary>,
    pub create_index: u64,
    pub modify_index: u64,
    pub job_modify_index: u64,
    pub submit_time: UnixNanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<BTreeMap<String, String>>,
}

/// The number of a job's allocations by state, derived from the allocations and evaluations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobSummary {
    /// The id of the job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The number of allocations by group and state.
    pub summary: BTreeMap<String, GroupSummary>,
    /// The number of children of a periodic or parameterized job.
    pub children: ChildrenSummary,
    /// The Raft index at which the job was created.
    pub create_index: u64,
    /// The Raft index of the last change that the counts include.
    pub modify_index: u64,
}

/// The number of one group's allocations by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "each field counts the allocations in the state it is named after")]
pub struct GroupSummary {
    pub queued: u32,
    pub complete: u32,
    pub failed: u32,
    pub running: u32,
    pub starting: u32,
    pub lost: u32,
    pub unknown: u32,
}

/// The number of child jobs by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "each field counts the children in the state it is named after")]
pub struct ChildrenSummary {
    pub pending: u32,
    pub running: u32,
    pub dead: u32,
}
