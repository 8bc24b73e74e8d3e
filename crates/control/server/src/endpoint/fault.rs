//! Failures of requests about jobs, nodes, evaluations, and the tasks of allocations.

use crate::error::Kind;
use crate::runtime::JoinError;
use caravan_rpc::RpcError;
use caravan_types::alloc::ClientStatus;
use caravan_types::command::Refusal;
use caravan_types::job::JobType;
use caravan_types::{AllocId, EvalId, JobId, JobKey, NodeId};
use std::sync::Arc;

/// The failure of a request about jobs.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JobFault {
    #[error("job not found")]
    NotFound,
    #[error("job \"{0}\" not found")]
    NothingToScale(JobId),
    #[error("job {:?} not found", .0.as_str())]
    NothingToRevert(JobId),
    /// A forced launch of a job that does not exist: 500, as in Nomad.
    #[error("job not found")]
    NothingToLaunch,
    #[error("alloc not found")]
    NoAlloc,
    #[error(
        "job {:?} in namespace {:?} at version {version} not found",
        key.id.as_str(),
        key.namespace.as_str()
    )]
    NoVersion { key: JobKey, version: u64 },
    #[error("Current job has version {current}; enforcing version {expected}")]
    OtherVersion { current: u64, expected: u64 },
    #[error("can't revert to current version")]
    CurrentVersion,
    #[error("can't evaluate parameterized job")]
    Parameterized,
    #[error("can't evaluate periodic job")]
    Periodic,
    #[error("parameterized job not found")]
    NothingToDispatch,
    #[error("Specified job \"{0}\" is not a parameterized job")]
    NotParameterized(JobId),
    #[error("Specified job \"{0}\" is stopped")]
    Stopped(JobId),
    #[error(transparent)]
    Dispatch(#[from] DispatchFault),
    #[error("can't force launch non-periodic job")]
    NotPeriodic,
    #[error("can't force run non-tracked job \"{}\" ({})", .0.id, .0.namespace)]
    NotTracked(JobKey),
    #[error(transparent)]
    Scale(#[from] ScaleFault),
    #[error("tag name required")]
    NoTagName,
    /// The scheduler's sentence on a question about consequences.
    #[error("{reason}")]
    WhatIf { reason: String },
    #[error("{0} questions about consequences are worked on already; ask again later")]
    ManyQuestions(usize),
    #[error("the question failed: {0}")]
    QuestionFailed(#[source] Arc<JoinError>),
}

impl JobFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NotFound | Self::NothingToScale(_) | Self::NoAlloc | Self::NothingToDispatch => {
                Kind::NotFound
            }
            Self::Scale(_) | Self::NoTagName => Kind::BadRequest,
            Self::ManyQuestions(_) => Kind::Unavailable,
            Self::QuestionFailed(_) => Kind::Internal,
            Self::NothingToRevert(_)
            | Self::NothingToLaunch
            | Self::NoVersion { .. }
            | Self::OtherVersion { .. }
            | Self::CurrentVersion
            | Self::Parameterized
            | Self::Periodic
            | Self::NotParameterized(_)
            | Self::Stopped(_)
            | Self::Dispatch(_)
            | Self::NotPeriodic
            | Self::NotTracked(_)
            | Self::WhatIf { .. } => Kind::Refused,
        }
    }
}

/// The problem of a dispatch, with texts on which clients rely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DispatchFault {
    #[error("Payload is not provided but required by parameterized job")]
    NoPayload,
    #[error("Payload provided but forbidden by parameterized job")]
    ForbiddenPayload,
    #[error("Payload exceeds maximum size; {size} > {max}")]
    LargePayload { size: usize, max: usize },
    #[error("Dispatch request included unpermitted metadata keys: [{}]", .0.join(" "))]
    UnpermittedMeta(Vec<String>),
    #[error("Dispatch did not provide required meta keys: [{}]", .0.join(" "))]
    MissingMeta(Vec<String>),
    #[error("the prefix of the child's id contains a space or a null character")]
    IdPrefix,
    #[error("Job priority must be between [1, 100]")]
    Priority,
}

/// The problem of a scaling request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleFault {
    #[error("missing task group name for scaling action")]
    NoGroupName,
    #[error("scaling action should not contain count if error is true")]
    CountOfError,
    #[error("scaling action count can't be negative")]
    Negative,
    #[error("scaling action count {0} is too large")]
    Large(i64),
    #[error("task group \"{0}\" specified for scaling does not exist in job")]
    NoGroup(String),
    #[error("jobs of type \"{0}\" can only be scaled between 0 and 1")]
    System(JobType),
    #[error("group count was less than scaling policy minimum: {count} < {min}")]
    BelowMin { count: i64, min: i64 },
    #[error("group count was greater than scaling policy maximum: {count} > {max}")]
    AboveMax { count: i64, max: i64 },
    #[error("job scaling blocked due to active deployment")]
    ActiveDeployment,
}

/// The failure of a request about nodes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NodeFault {
    #[error("node {0} not found")]
    NotFound(NodeId),
    /// A change of a node that does not exist: 500, as in Nomad, and clients match on the text.
    #[error("node not found")]
    NothingToChange,
    #[error("node not found")]
    NothingToSign,
    /// This server lacks a state that another server has already sent to the client.
    #[error("this server lags behind index {index}")]
    Lagging { index: u64 },
    #[error("node {0} did not prove who it is: wrong secret")]
    WrongSecret(NodeId),
    #[error("node {node} did not prove who it is: its identity is refused: {reason}")]
    Identity { node: NodeId, reason: &'static str },
    #[error("node secret ID does not match. Not registering node {0}")]
    OtherSecret(NodeId),
    #[error("missing node {0} for client registration")]
    Missing(&'static str),
    #[error("can not set node's scheduling eligibility to eligible while it is draining")]
    Draining,
    #[error("node {0} is not known, and no volume waits for it")]
    NothingToFence(NodeId),
    /// The state contradicts the caller's statement that the machine is off.
    #[error(transparent)]
    Fence(Refusal),
    #[error("service registration not found")]
    NoService,
    #[error("allocation {0} replaces none on this node")]
    NoPredecessor(AllocId),
    #[error("allocation {0} is gone")]
    PredecessorGone(AllocId),
    #[error("allocation {alloc} is {}: its node cannot be asked for its data", status.as_str())]
    PredecessorLost { alloc: AllocId, status: ClientStatus },
    #[error("node {node} cannot be asked: {error}")]
    Unreachable {
        node: NodeId,
        #[source]
        error: RpcError,
    },
}

impl NodeFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NotFound(_)
            | Self::NothingToSign
            | Self::NothingToFence(_)
            | Self::NoPredecessor(_)
            | Self::PredecessorGone(_) => Kind::NotFound,
            Self::WrongSecret(_) | Self::Identity { .. } | Self::OtherSecret(_) => Kind::Forbidden,
            Self::Missing(_) | Self::Fence(_) => Kind::BadRequest,
            Self::NothingToChange | Self::Draining | Self::NoService => Kind::Refused,
            Self::PredecessorLost { .. } | Self::Unreachable { .. } | Self::Lagging { .. } => {
                Kind::Unavailable
            }
        }
    }
}

/// The failure of a request about evaluations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalFault {
    #[error("eval not found")]
    NotFound,
    /// A deletion of an evaluation that does not exist: 500, as in Nomad.
    #[error("eval not found")]
    NothingToDelete,
    #[error("eval broker is enabled; eval broker must be paused to delete evals")]
    NotPaused,
    #[error("evaluation {0} cannot be deleted: its job has allocations that depend on it")]
    Needed(EvalId),
}

impl EvalFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NotFound => Kind::NotFound,
            Self::NothingToDelete | Self::NotPaused | Self::Needed(_) => Kind::Refused,
        }
    }
}

/// The failure of a request that a node makes for the tasks of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskFault {
    #[error("alloc not found")]
    NoAlloc,
    #[error("the allocation is over")]
    Over,
    #[error("the group of the allocation is gone")]
    NoGroup,
    #[error("the allocation has no task \"{0}\"")]
    NoTask(String),
    #[error("task \"{task}\" has no identity \"{name}\"")]
    NoIdentity { task: String, name: String },
    #[error("the templates of task \"{task}\" read more than {max} variables and services")]
    ManyLookups { task: String, max: usize },
}

impl TaskFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NoAlloc | Self::NoGroup | Self::NoTask(_) | Self::NoIdentity { .. } => Kind::NotFound,
            Self::Over | Self::ManyLookups { .. } => Kind::Refused,
        }
    }
}
