//! A job as the servers keep it: every default filled in.

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

/// A block of a job that nothing acts on (`docs/gaps.md`): kept and answered as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unsupported(pub serde_json::Value);

/// Which scheduler a job belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobType {
    /// Runs until stopped.
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
    /// All names in job files.
    pub const WORDS: &'static [&'static str] = &["service", "batch", "system", "sysbatch"];

    /// The name in job files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Batch => "batch",
            Self::System => "system",
            Self::Sysbatch => "sysbatch",
        }
    }
    /// Whether it places on every feasible node.
    pub fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Sysbatch)
    }
    /// Whether it ends by itself.
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

/// Where a job stands (docs/reference/http-api.md, section 6.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// Nothing runs yet and an evaluation is under way or blocked.
    #[default]
    Pending,
    /// Allocations or a deployment are live, or the type never ends by itself.
    Running,
    /// Nothing is left to do.
    Dead,
}

impl JobStatus {
    /// The word clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Dead => "dead",
        }
    }
}

/// A condition on nodes (docs/reference/jobspec.md, section 4.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Constraint {
    /// Left side, usually `${attr.…}`.
    #[serde(rename = "LTarget")]
    pub l_target: String,
    /// Right side.
    #[serde(rename = "RTarget")]
    pub r_target: String,
    /// Operator.
    pub operand: String,
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.l_target, self.operand, self.r_target)
    }
}

/// A wish about nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Affinity {
    /// Left side.
    #[serde(rename = "LTarget")]
    pub l_target: String,
    /// Right side.
    #[serde(rename = "RTarget")]
    pub r_target: String,
    /// Operator.
    pub operand: String,
    /// -100..=100, never 0.
    pub weight: i64,
}

/// A wish to spread over the values of an attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Spread {
    /// The attribute.
    pub attribute: String,
    /// 1..=100.
    pub weight: i64,
    /// Wanted shares.
    #[serde(with = "nil")]
    pub spread_target: Vec<SpreadTarget>,
}

/// A share of a [`Spread`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SpreadTarget {
    /// Value of the attribute.
    pub value: String,
    /// 0..=100.
    pub percent: u32,
}

blocks! {
    /// Text and links for the web page.
    JobUi {
        description: String = "Description";
        links: Option<Vec<JobUiLink>> = "Links";
    }

    /// One link of the web page.
    JobUiLink {
        label: String = "Label";
        url: String = "URL";
    }
}

/// A job. Defaults are filled, names are checked; docs/reference/http-api.md, section 5.1 is its JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Job {
    /// A user stopped it.
    pub stop: bool,
    /// Region it runs in.
    pub region: String,
    /// Namespace.
    pub namespace: Namespace,
    /// Id.
    #[serde(rename = "ID")]
    pub id: JobId,
    /// The periodic or parameterized job that made this one, or empty.
    #[serde(rename = "ParentID")]
    pub parent_id: JobId,
    /// Name shown to people.
    pub name: String,
    /// Scheduler.
    #[serde(rename = "Type")]
    pub kind: JobType,
    /// 1..=100, higher first.
    pub priority: i64,
    /// All groups or none.
    pub all_at_once: bool,
    /// Datacenters, globs allowed.
    #[serde(with = "nil")]
    pub datacenters: Vec<String>,
    /// Node pool.
    pub node_pool: String,
    /// Conditions on nodes.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// Wishes about nodes.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
    /// Spreads.
    #[serde(with = "nil")]
    pub spreads: Vec<Spread>,
    /// Groups, at least one.
    #[serde(with = "nil")]
    pub task_groups: Vec<TaskGroup>,
    /// Only `Stagger` and `MaxParallel` are kept at this level; groups hold the real values.
    pub update: UpdateStrategy,
    /// Several regions; refused.
    pub multiregion: Option<Box<Unsupported>>,
    /// When it makes children.
    pub periodic: Option<Box<Periodic>>,
    /// What a dispatch of it must and may give ([`Self::dispatch_rule`]).
    pub parameterized_job: Option<Parameterized>,
    /// Made by a dispatch.
    pub dispatched: bool,
    /// Token of the dispatch.
    pub dispatch_idempotency_token: String,
    /// Payload of the dispatch, base64.
    #[serde(with = "nil_text")]
    pub payload: String,
    /// Free pairs.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    /// Consul namespace.
    pub consul_namespace: String,
    /// Vault namespace.
    pub vault_namespace: String,
    /// Accessor of the token that submitted it.
    #[serde(rename = "NomadTokenID")]
    pub nomad_token_id: String,
    /// Where it stands, derived by the state store.
    pub status: JobStatus,
    /// Words for the status.
    pub status_description: String,
    /// This version's deployment succeeded.
    pub stable: bool,
    /// Counts changes of the specification.
    pub version: u64,
    /// When it was submitted.
    pub submit_time: UnixNanos,
    /// Index of the first registration.
    pub create_index: u64,
    /// Index of the last write.
    pub modify_index: u64,
    /// Index of the last write of the specification.
    pub job_modify_index: u64,
    /// Text and links for the web page.
    #[serde(rename = "UI")]
    pub ui: Option<Box<JobUi>>,
    /// Name of this version.
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
    /// Namespace and id.
    pub fn key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.id.clone() }
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&TaskGroup> {
        self.task_groups.iter().find(|g| g.name == name)
    }

    /// Whether any task is a CSI plugin.
    pub fn is_plugin(&self) -> bool {
        self.task_groups.iter().flat_map(|g| &g.tasks).any(|t| t.csi_plugin_config.is_some())
    }

    /// Whether a user stopped it or it was never more than a template.
    pub fn is_stopped(&self) -> bool {
        self.stop
    }

    /// Whether the specification of both is the same: everything that a submission can change,
    /// bookkeeping apart.
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

    /// Returns the job with what it may use of host volumes, and what the same specification from another submitter
    /// may use; none if that is no more.
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

/// The job in lists (`JobListStub`).
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

/// Counts of a job's allocations by state; always derived from the allocations and evaluations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobSummary {
    /// The job.
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    /// Its namespace.
    pub namespace: Namespace,
    /// By group.
    pub summary: BTreeMap<String, GroupSummary>,
    /// Children of periodic and parameterized jobs.
    pub children: ChildrenSummary,
    /// Index of the job's creation.
    pub create_index: u64,
    /// Index of the last change counted here.
    pub modify_index: u64,
}

/// Counts of one group.
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

/// Counts of child jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "each field counts the children in the state it is named after")]
pub struct ChildrenSummary {
    pub pending: u32,
    pub running: u32,
    pub dead: u32,
}
