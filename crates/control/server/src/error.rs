//! Errors of the servers, in the form that users see.

use crate::admin::{AdminFault, LoginFault};
use crate::cluster::MembershipFault;
use crate::deployment::DeploymentFault;
use crate::endpoint::{EvalFault, JobFault, NodeFault, TaskFault};
use crate::host_volume::HostVolumeFault;
use crate::keyring::KeyringFault;
use crate::runtime::JoinError;
use crate::variables::VariableFault;
use crate::volume::{SnapshotFault, VolumeFault};
use caravan_admission::{Problem, Problems, joined};
use caravan_api::{ErrorReason, JobProblem, Severity};
use caravan_rpc::{Code, RpcError};
use caravan_types::command::Refusal;
use caravan_types::packed::{PackError, UnpackError};
use caravan_types::{Namespace, VolumeKey};
use std::sync::Arc;

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The object does not exist: HTTP 404.
    NotFound,
    /// The request is invalid: HTTP 400.
    BadRequest,
    /// The caller is not authenticated: HTTP 401.
    Unauthorized,
    /// The caller lacks the right: HTTP 403.
    Forbidden,
    /// The current state refuses the request: HTTP 500, as in Nomad.
    Refused,
    /// No leader, node or plugin is available at the moment: HTTP 500.
    Unavailable,
    /// The request was not executed and may be retried unchanged: HTTP 500.
    Retry,
    /// This server does not lead, and nothing was done: HTTP 500.
    NotLeader,
    /// Another agent failed, or this agent has a defect: HTTP 500.
    Internal,
}

/// A right that a caller lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The response names no right.
    #[error("Permission denied")]
    Any,
    /// The right to read the variable that a volume's secret refers to.
    #[error(
        "Permission denied: secret \"{secret}\" needs the right to read variable \"{path}\" in namespace \"{namespace}\""
    )]
    Secret {
        /// Name of the secret.
        secret: String,
        /// Path of the variable.
        path: String,
        /// Namespace of the variable.
        namespace: Namespace,
    },
    /// The right to write the volume that is cloned.
    #[error("Permission denied: volume \"{volume}\" is not the caller's to clone")]
    Clone {
        /// The name in the request.
        volume: String,
    },
    /// The right to write the volume of a snapshot.
    #[error("Permission denied: the volume of snapshot \"{snapshot}\" is not the caller's, or is not known")]
    Snapshot {
        /// The plugin's id of the snapshot.
        snapshot: String,
    },
}

/// A failure of a request. The text is one sentence for the user, without secrets.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ServerError {
    /// The state refused the command.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// The job has problems; the text contains all of them.
    #[error("{}", joined(&.0.texts()))]
    Job(Problems),
    /// The job has one problem, whose sentence is the whole text.
    #[error("{}", .0.text)]
    Problem(Box<Problem>),
    /// This server is not the leader, or its term has ended. Nothing was written.
    #[error("No cluster leader")]
    NotLeader,
    /// The command is not durable.
    #[error("the change could not be made durable: {0}")]
    Log(#[source] Arc<caravan_consensus::Error>),
    /// Servers of an older version could not read the command.
    #[error(
        "the change {command} needs feature level {needs}, and the servers of the cluster have level {level}: upgrade all \
         servers"
    )]
    Level {
        /// The kind of the command.
        command: &'static str,
        /// The level of the command.
        needs: u32,
        /// The level of the cluster.
        level: u32,
    },
    /// Another agent failed.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// A request about jobs failed.
    #[error(transparent)]
    Jobs(#[from] JobFault),
    /// A request about nodes failed.
    #[error(transparent)]
    Nodes(#[from] NodeFault),
    /// A request about evaluations failed.
    #[error(transparent)]
    Evals(#[from] EvalFault),
    /// A request about deployments failed.
    #[error(transparent)]
    Deployments(#[from] DeploymentFault),
    /// A request for the tasks of an allocation failed.
    #[error(transparent)]
    Tasks(#[from] TaskFault),
    /// A request of an operator failed.
    #[error(transparent)]
    Admin(#[from] AdminFault),
    /// The login of a user by an auth method failed: the token, its keys or the provider.
    #[error(transparent)]
    Login(#[from] LoginFault),
    /// A request about volumes failed.
    #[error(transparent)]
    Volumes(#[from] VolumeFault),
    /// A request about host volumes failed.
    #[error(transparent)]
    HostVolumes(#[from] HostVolumeFault),
    /// A request about snapshots failed.
    #[error(transparent)]
    Snapshots(#[from] SnapshotFault),
    /// The caller lacks a right.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// A request about variables failed.
    #[error(transparent)]
    Variables(#[from] VariableFault),
    /// A request about the membership of the cluster failed.
    #[error(transparent)]
    Membership(#[from] MembershipFault),
    /// The root keys cannot be used.
    #[error(transparent)]
    Keyring(#[from] KeyringFault),
    /// The log cannot be opened, or failed.
    #[error("{}", caravan_sys::describe(.0))]
    Storage(#[source] Arc<caravan_consensus::Error>),
    /// The command cannot be encoded.
    #[error("command {command} cannot be encoded: {error}")]
    Encode {
        /// The kind of the command.
        command: &'static str,
        /// The encoder's error.
        #[source]
        error: Arc<PackError>,
    },
    /// The outcome of a command cannot be decoded.
    #[error("the outcome of command {command} cannot be read: {error}")]
    Outcome {
        /// The kind of the command.
        command: &'static str,
        /// The decoder's error.
        #[source]
        error: Arc<UnpackError>,
    },
    /// The task of a command panicked.
    #[error("the command failed: {0}")]
    CommandFailed(#[source] Arc<JoinError>),
    /// A part of the server has stopped.
    #[error("the {0} has stopped")]
    Stopped(&'static str),
}

impl From<caravan_types::sealed::Unopened> for ServerError {
    fn from(error: caravan_types::sealed::Unopened) -> Self {
        Self::Keyring(error.into())
    }
}

impl ServerError {
    /// Returns the kind, which determines the HTTP status and the RPC code.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Refusal(refusal) => kind_of_refusal(refusal),
            Self::Job(_) | Self::Problem(_) | Self::Level { .. } => Kind::Refused,
            Self::NotLeader => Kind::NotLeader,
            Self::Log(_) | Self::Storage(_) | Self::Stopped(_) => Kind::Unavailable,
            Self::Rpc(error) => kind_of_code(error.code),
            Self::Jobs(fault) => fault.kind(),
            Self::Nodes(fault) => fault.kind(),
            Self::Evals(fault) => fault.kind(),
            Self::Deployments(fault) => fault.kind(),
            Self::Tasks(fault) => fault.kind(),
            Self::Admin(fault) => fault.kind(),
            Self::Login(fault) => fault.kind(),
            Self::Volumes(fault) => fault.kind(),
            Self::HostVolumes(fault) => fault.kind(),
            Self::Snapshots(fault) => fault.kind(),
            Self::Denied(_) => Kind::Forbidden,
            Self::Variables(fault) => fault.kind(),
            Self::Membership(fault) => fault.kind(),
            Self::Keyring(fault) => fault.kind(),
            Self::Encode { .. } | Self::Outcome { .. } | Self::CommandFailed(_) => Kind::Internal,
        }
    }

    /// Returns the status of the HTTP response.
    pub fn http_status(&self) -> u16 {
        match self.kind() {
            Kind::NotFound => 404,
            Kind::BadRequest => 400,
            Kind::Unauthorized => 401,
            Kind::Forbidden => 403,
            Kind::Refused | Kind::Unavailable | Kind::Retry | Kind::NotLeader | Kind::Internal => 500,
        }
    }

    /// Returns the reason, where clients act on it.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::NotLeader => Some(ErrorReason::NoLeader),
            Self::Refusal(Refusal::JobModifyIndex { .. }) => Some(ErrorReason::ModifyIndex),
            Self::Refusal(Refusal::VolumeInUse { .. }) => Some(ErrorReason::VolumeInUse),
            Self::Admin(AdminFault::SnapshotKey { .. }) => Some(ErrorReason::SnapshotKey),
            _ => None,
        }
    }

    /// Returns the volumes that the failure concerns and that the text does not name. [`ServerError::message_for`]
    /// names them to callers who may see their namespaces.
    pub fn about(&self) -> Vec<VolumeKey> {
        match self {
            Self::Refusal(refusal) => about_refusal(refusal).into_iter().cloned().collect(),
            Self::Volumes(fault) => fault.about(),
            _ => Vec::new(),
        }
    }

    /// Returns the problems of the refused job; the text contains all of them.
    pub fn problems(&self) -> Vec<JobProblem> {
        match self {
            Self::Job(problems) => problems.to_api(Severity::Error),
            Self::Problem(problem) => vec![problem.to_api(Severity::Error)],
            _ => Vec::new(),
        }
    }

    /// Returns the text, with the names of the volumes whose namespaces `sees` accepts.
    pub fn message_for(&self, sees: impl Fn(&Namespace) -> bool) -> String {
        let mut text = self.to_string();
        for key in self.about().iter().filter(|key| sees(&key.namespace)) {
            text.push_str(&format!(" (volume \"{}\" in namespace \"{}\")", key.id, key.namespace));
        }
        text
    }
}

pub(crate) fn kind_of_refusal(refusal: &Refusal) -> Kind {
    match refusal {
        Refusal::NotFound { .. } => Kind::NotFound,
        Refusal::UnknownKey { .. } => Kind::Retry,
        Refusal::NodeSecret { .. } => Kind::Forbidden,
        _ => Kind::Refused,
    }
}

fn kind_of_code(code: Code) -> Kind {
    match code {
        Code::NotFound | Code::NoPath => Kind::NotFound,
        Code::Invalid => Kind::BadRequest,
        Code::Permission => Kind::Forbidden,
        Code::Conflict => Kind::Refused,
        Code::NotLeader => Kind::NotLeader,
        Code::Unavailable | Code::Retryable | Code::Deadline | Code::Cancelled => Kind::Unavailable,
        _ => Kind::Internal,
    }
}

/// Returns the volume that a refusal concerns and that its text does not name.
pub(crate) fn about_refusal(refusal: &Refusal) -> Option<&VolumeKey> {
    match refusal {
        Refusal::StorageTaken { other, .. } | Refusal::NameTaken { other, .. } => Some(other),
        _ => None,
    }
}

impl From<Problem> for ServerError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<caravan_consensus::Error> for ServerError {
    fn from(error: caravan_consensus::Error) -> Self {
        match error {
            caravan_consensus::Error::NotLeader { .. }
            | caravan_consensus::Error::TermEnded { .. }
            | caravan_consensus::Error::NotAdmitted => Self::NotLeader,
            error => Self::Log(Arc::new(error)),
        }
    }
}

impl From<ServerError> for RpcError {
    fn from(error: ServerError) -> Self {
        let code = match error.kind() {
            Kind::NotFound => Code::NotFound,
            Kind::BadRequest => Code::Invalid,
            Kind::Unauthorized | Kind::Forbidden => Code::Permission,
            Kind::Refused => Code::Conflict,
            Kind::Unavailable => Code::Unavailable,
            Kind::Retry => Code::Retryable,
            Kind::NotLeader => Code::NotLeader,
            Kind::Internal => Code::Internal,
        };
        Self::new(code, error.to_string()).with_http_status(error.http_status())
    }
}

#[cfg(test)]
mod tests;
