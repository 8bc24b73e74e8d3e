//! Failures of requests about host volumes.

use crate::admission::joined;
use crate::error::Kind;
use caravan_lang::constraint::ConstraintError;
use caravan_rpc::RpcError;
use caravan_types::component::PathError;
use caravan_types::{AllocId, HostVolumeId, JobId, Namespace, NodeId};
use std::fmt;

/// The failure of a request about host volumes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostVolumeFault {
    #[error("volume validation failed: {}", list(.0))]
    Invalid(Vec<SpecProblem>),
    #[error("validating volume \"{volume}\" update failed: {}", list(.problems))]
    InvalidUpdate { volume: HostVolumeId, problems: Vec<UpdateProblem> },
    #[error("validating volume \"{volume}\" against state failed: {problem}")]
    Misplaced { volume: String, problem: PlaceProblem },
    #[error("no such namespace \"{0}\"")]
    NoNamespace(Namespace),
    #[error("cannot register volume: {0} is required")]
    Missing(&'static str),
    #[error("another command is at work on volume {0}")]
    Busy(HostVolumeId),
    #[error("volume {0} keeps changing")]
    Changes(HostVolumeId),
    #[error("volume {0} was deleted meanwhile")]
    Deleted(HostVolumeId),
    #[error("no such volume: {0}")]
    NotFound(HostVolumeId),
    #[error("cannot update volume \"{0}\": volume does not exist")]
    NothingToUpdate(HostVolumeId),
    #[error("volume name already exists on this node")]
    NameTaken,
    #[error("node {0} is not feasible for volume")]
    Infeasible(NodeId),
    #[error(
        "could not place volume \"{volume}\": no node meets constraints: {existing} nodes had existing volume, {filtered} nodes filtered by node pool governance, {infeasible} nodes were infeasible"
    )]
    NoNode { volume: String, existing: usize, filtered: usize, infeasible: usize },
    #[error("no node was found for volume {0}: they keep changing")]
    NodesChange(String),
    #[error("HostVolume.{call} error: {error}")]
    Call {
        call: Call,
        #[source]
        error: RpcError,
    },
    #[error("HostVolume.{call} error: {error} (volume {volume} is tried again; delete it to give up)")]
    Retried {
        call: Call,
        #[source]
        error: RpcError,
        volume: HostVolumeId,
    },
    #[error("HostVolume.Delete error: {error} (volume {volume} is deleted later)")]
    DeletedLater {
        #[source]
        error: RpcError,
        volume: HostVolumeId,
    },
    /// The failure of a call that resumes an intent.
    #[error(transparent)]
    Resume(RpcError),
    #[error("volume cannot be removed from unknown node without force=true")]
    UnknownNode,
    #[error("volume {volume} in use by allocations: [{}]", separated(.allocs, " "))]
    InUse { volume: HostVolumeId, allocs: Vec<AllocId> },
    #[error("volume {volume} is claimed by task groups: [{}]", separated(.holders, " "))]
    Held { volume: HostVolumeId, holders: Vec<Holder> },
    #[error("task group volume claim does not exist")]
    NoClaim,
}

impl HostVolumeFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NotFound(_) | Self::NoClaim => Kind::NotFound,
            Self::Busy(_)
            | Self::Changes(_)
            | Self::NodesChange(_)
            | Self::Retried { .. }
            | Self::DeletedLater { .. } => Kind::Unavailable,
            Self::Invalid(_)
            | Self::InvalidUpdate { .. }
            | Self::Misplaced { .. }
            | Self::NoNamespace(_)
            | Self::Missing(_)
            | Self::Deleted(_)
            | Self::NothingToUpdate(_)
            | Self::NameTaken
            | Self::Infeasible(_)
            | Self::NoNode { .. }
            | Self::Call { .. }
            | Self::Resume(_)
            | Self::UnknownNode
            | Self::InUse { .. }
            | Self::Held { .. } => Kind::Refused,
        }
    }
}

/// Formats one problem without a list, and several problems as a list.
fn list(problems: &[impl fmt::Display]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => joined(many),
    }
}

fn separated(items: &[impl fmt::Display], separator: &str) -> String {
    let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.join(separator)
}

/// A call to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Create,
    Register,
    Delete,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "Create",
            Self::Register => "Register",
            Self::Delete => "Delete",
        })
    }
}

/// A task group that holds a host volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub(super) job: JobId,
    pub(super) group: String,
    pub(super) claim: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} (claim {})", self.job, self.group, self.claim)
    }
}

/// A problem of a host volume specification.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecProblem {
    #[error("invalid ID \"{0}\"")]
    Id(String),
    #[error("missing name")]
    NoName,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("capacity_max ({max}) must be larger than capacity_min ({min})")]
    MaxBelowMin { max: i64, min: i64 },
    #[error("invalid attachment mode: \"{0}\"")]
    AttachmentMode(String),
    #[error("invalid access mode: \"{0}\"")]
    AccessMode(String),
    #[error("invalid constraint: {0}")]
    Constraint(#[source] ConstraintError),
    #[error("invalid constraint {0}: host volumes of the same name are always on distinct hosts")]
    Distinct(String),
}

/// A reason why a specification cannot update a host volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateProblem {
    #[error("cannot update a volume in use: claimed by allocs ({})", separated(.0, ", "))]
    InUse(Vec<AllocId>),
    /// The field has another value in the specification.
    #[error("{0} cannot be updated")]
    Fixed(&'static str),
    #[error("capacity_max ({max}) cannot be less than existing provisioned capacity ({capacity})")]
    MaxBelowCapacity { max: i64, capacity: i64 },
    #[error("the volume is being deleted")]
    BeingDeleted,
}

/// A reason why the node or pool of a specification is not suitable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceProblem {
    #[error("node pool \"{0}\" does not exist")]
    NoPool(String),
    #[error("node \"{0}\" does not exist")]
    NoNode(NodeId),
    #[error("node ID \"{node}\" is not in pool \"{pool}\"")]
    OtherPool { node: NodeId, pool: String },
}
