//! Failures of requests about volumes.

use super::controller::CallError;
use crate::admission::joined;
use crate::error::{Kind, ServerError, about_refusal, kind_of_refusal};
use caravan_rpc::RpcError;
use caravan_types::command::Refusal;
use caravan_types::component::PathError;
use caravan_types::volume::{AccessMode, VolumePhase};
use caravan_types::{AllocId, JobId, NodeId, PluginId, VolumeId, VolumeKey};
use caravan_volumes::wait::MissingSecret;
use std::fmt;

/// The failure of a request about volumes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VolumeFault {
    #[error("missing volume definition")]
    NoDefinition,
    #[error("validation: {}", list(.0, ", "))]
    Invalid(Vec<SpecProblem>),
    /// Several volumes failed. The creation of a single volume also reports its failure as a list.
    #[error("{}", joined(&texts(.0)))]
    Several(Vec<ServerError>),
    #[error("volume not found: {}", .0.id)]
    NotFound(VolumeKey),
    #[error("volume {} is in nonexistent namespace {}", .0.id, .0.namespace)]
    NoNamespace(VolumeKey),
    #[error("no CSI plugin named: {0} could be found")]
    NoPlugin(PluginId),
    #[error("no such plugin")]
    NoPluginToList,
    #[error("no healthy controllers for CSI plugin: {0}")]
    NoHealthyController(PluginId),
    #[error("plugin has no controller")]
    NoController,
    #[error("plugin does not support creating volumes")]
    CannotCreate,
    #[error("expand is not implemented by this controller plugin")]
    CannotExpand,
    #[error("unimplemented for this plugin")]
    CannotList,
    #[error(
        "plugin \"{plugin}\" for volume \"{volume}\" not found: it has no controller that could delete the volume (deregister only forgets it)"
    )]
    CannotDelete { plugin: PluginId, volume: VolumeId },
    #[error(transparent)]
    Secrets(#[from] MissingSecret),
    #[error("{wait} (volume \"{volume}\" stays in phase {} and goes on by itself then)", phase.as_str())]
    WaitsForSecrets {
        #[source]
        wait: MissingSecret,
        volume: VolumeId,
        phase: VolumePhase,
    },
    /// The plugin's answer to ValidateVolumeCapabilities.
    #[error("controller validate volume: {reason}")]
    NotValidated { reason: String },
    #[error("controller validate volume: {0}")]
    Validate(#[source] CallError),
    #[error(
        "controller create volume: CSI.ControllerCreateVolume: LimitBytes cannot be less than RequiredBytes"
    )]
    LimitBelowRequired,
    #[error("controller create volume: {0}")]
    Create(#[source] CallError),
    #[error(
        "controller create volume: {error} (volume \"{volume}\" stays in phase creating and is tried again; delete it to give up)"
    )]
    CreateRetried {
        #[source]
        error: CallError,
        volume: VolumeId,
    },
    #[error(
        "controller create volume: each volume of a plugin needs a name of its own, and for the name \"{name}\" the plugin has a storage: {cause}"
    )]
    NameHasStorage {
        name: String,
        #[source]
        cause: Refusal,
    },
    #[error("controller delete volume: {0}")]
    Delete(#[source] CallError),
    #[error(
        "controller delete volume: {error} (volume \"{volume}\" stays in phase deleting and is tried again)"
    )]
    DeleteRetried {
        #[source]
        error: CallError,
        volume: VolumeId,
    },
    #[error("volume {volume} cannot be deleted, only deregistered: {cause}")]
    OnlyDeregistered {
        volume: VolumeId,
        #[source]
        cause: Refusal,
    },
    #[error("unable to expand volume: {0}")]
    Expand(#[source] CallError),
    #[error(
        "unable to expand volume: {error} (the plugin does not grow volume \"{volume}\" while it is used: it stays in phase expanding, and is grown once its last claim has ended)"
    )]
    ExpandWhenUnused {
        #[source]
        error: CallError,
        volume: VolumeId,
    },
    #[error(
        "unable to expand volume: {error} (volume \"{volume}\" stays in phase expanding and is tried again; ask for less to give up)"
    )]
    ExpandRetried {
        #[source]
        error: CallError,
        volume: VolumeId,
    },
    #[error("unable to expand volume: {}", list(.0, "; "))]
    ExpandOnNodes(Vec<CallError>),
    #[error("controller list volumes: {0}")]
    List(#[source] CallError),
    #[error("the controller answered something else to ListVolumes")]
    OtherAnswerToList,
    #[error("could not detach from node: {0}")]
    Detach(#[source] RpcError),
    #[error("volume {0} is being deleted")]
    BeingDeleted(VolumeId),
    #[error("volume {0} was changed by somebody else meanwhile")]
    Changed(VolumeId),
    #[error("another command or call is at work on volume {0}; try again later")]
    Busy(VolumeId),
    #[error("volume in use: {0}")]
    InUse(VolumeId),
    #[error("volume in use: {0}: its storage is still held for another volume")]
    StorageInUse(VolumeId),
    #[error("volume {volume} has no claim on node {node}, which is not known")]
    NotOnNode { volume: VolumeId, node: NodeId },
    #[error(
        "allocation {} of job \"{job}\" still runs with volume {volume} on node {}: stop it first",
        alloc.short(),
        node.short()
    )]
    StillRuns { alloc: AllocId, job: JobId, volume: VolumeId, node: NodeId },
    #[error("the claim of allocation {0} keeps changing")]
    ClaimChanges(AllocId),
    #[error("the claim of allocation {alloc} is not on node {node}")]
    ClaimElsewhere { alloc: AllocId, node: NodeId },
    /// The refusal of an update by a request to create the volume.
    #[error(transparent)]
    Update(UpdateFault),
    /// The refusal of an update by a request to register the volume.
    #[error("unable to update volume: {0}")]
    Reregister(#[source] UpdateFault),
    #[error("volume {origin} cannot be cloned: it is of plugin \"{actual}\", not of \"{expected}\"")]
    CloneOfOtherPlugin { origin: String, actual: PluginId, expected: PluginId },
    #[error("volume {origin} cannot be cloned: it is {}", phase.as_str())]
    CloneUnusable { origin: String, phase: VolumePhase },
}

impl VolumeFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NoDefinition => Kind::BadRequest,
            Self::NotFound(_) | Self::NotOnNode { .. } => Kind::NotFound,
            Self::ClaimElsewhere { .. } => Kind::Forbidden,
            Self::OtherAnswerToList => Kind::Internal,
            Self::Several(errors) => match errors.as_slice() {
                [error] => error.kind(),
                _ => Kind::Refused,
            },
            Self::OnlyDeregistered { cause, .. } | Self::NameHasStorage { cause, .. } => {
                kind_of_refusal(cause)
            }
            Self::NoHealthyController(_)
            | Self::Secrets(_)
            | Self::WaitsForSecrets { .. }
            | Self::CreateRetried { .. }
            | Self::DeleteRetried { .. }
            | Self::ExpandWhenUnused { .. }
            | Self::ExpandRetried { .. }
            | Self::Busy(_)
            | Self::ClaimChanges(_) => Kind::Unavailable,
            Self::Invalid(_)
            | Self::NoNamespace(_)
            | Self::NoPlugin(_)
            | Self::NoPluginToList
            | Self::NoController
            | Self::CannotCreate
            | Self::CannotExpand
            | Self::CannotList
            | Self::CannotDelete { .. }
            | Self::NotValidated { .. }
            | Self::Validate(_)
            | Self::LimitBelowRequired
            | Self::Create(_)
            | Self::Delete(_)
            | Self::Expand(_)
            | Self::ExpandOnNodes(_)
            | Self::List(_)
            | Self::Detach(_)
            | Self::BeingDeleted(_)
            | Self::Changed(_)
            | Self::InUse(_)
            | Self::StorageInUse(_)
            | Self::StillRuns { .. }
            | Self::Update(_)
            | Self::Reregister(_)
            | Self::CloneOfOtherPlugin { .. }
            | Self::CloneUnusable { .. } => Kind::Refused,
        }
    }

    /// Returns the volumes that the failure concerns and that the text does not name.
    pub(crate) fn about(&self) -> Vec<VolumeKey> {
        match self {
            Self::Several(errors) => errors.iter().flat_map(ServerError::about).collect(),
            Self::OnlyDeregistered { cause, .. } | Self::NameHasStorage { cause, .. } => {
                about_refusal(cause).into_iter().cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the text that the volume's row keeps: the plugin's error without the name of the step.
    pub(crate) fn noted(&self) -> String {
        match self {
            Self::Delete(error) => error.to_string(),
            other => other.to_string(),
        }
    }
}

fn texts(items: &[impl fmt::Display]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn list(items: &[impl fmt::Display], separator: &str) -> String {
    texts(items).join(separator)
}

/// A problem of a volume specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecProblem {
    #[error("missing volume id")]
    NoId,
    #[error("missing plugin id")]
    NoPlugin,
    #[error("missing namespace")]
    NoNamespace,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("only one of snapshot_id and clone_id is allowed")]
    SnapshotAndClone,
    #[error("must include at least one capability block")]
    NoCapability,
    #[error("a capability block has no access_mode")]
    NoAccessMode,
    #[error("unknown volume access mode: {0}")]
    UnknownAccessMode(AccessMode),
    #[error("a capability block has no attachment_mode")]
    NoAttachmentMode,
    #[error(
        "CaravanSharedStorage (shared_storage) excludes access mode {0}: storage is shared for reading only"
    )]
    WritesShared(AccessMode),
    #[error("required topology is missing segments field")]
    EmptyRequiredTopology,
    #[error("preferred topology is missing segments field")]
    EmptyPreferredTopology,
    #[error("secret \"{secret}\": {cause}")]
    Reference { secret: String, cause: String },
    #[error("secret \"{0}\" is given both itself and by reference")]
    SecretTwice(String),
    #[error("requested capacity cannot be negative")]
    NegativeCapacity,
    #[error("max requested capacity ({max} bytes) less than min ({min} bytes)")]
    MaxBelowMin { max: i64, min: i64 },
}

/// The reason why a specification cannot update a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateFault {
    /// The field has another value in the specification.
    #[error("volume {0} cannot be updated")]
    Fixed(&'static str),
    #[error("volume requested capabilities update was not compatible with existing capability in use")]
    CapabilityInUse,
    #[error("can not update mount options while volume is in use")]
    MountOptionsInUse,
    #[error("volume cannot begin or end to share its storage (CaravanSharedStorage) while it is in use")]
    SharingInUse,
    #[error("volume topology request update was not compatible with existing topology")]
    Topology,
    #[error("max requested capacity ({}) less than or equal to min ({})", decimal(*.max), decimal(*.min))]
    MaxBelowMin { max: i64, min: i64 },
    #[error("max requested capacity ({}) less than or equal to current ({})", decimal(*.max), decimal(*.current))]
    MaxBelowCurrent { max: i64, current: i64 },
}

/// Formats bytes with decimal units and one digit: `1.0 GB`, as Nomad prints them.
pub(super) fn decimal(bytes: i64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut unit = 0;
    let mut scale: i128 = 1;
    while i128::from(bytes) >= scale * 1000 && unit + 1 < UNITS.len() {
        scale *= 1000;
        unit += 1;
    }
    if unit == 0 {
        return format!("{bytes} B");
    }
    let tenths = (i128::from(bytes) * 10 + scale / 2) / scale;
    if tenths >= 100 {
        format!("{} {}", (tenths + 5) / 10, UNITS[unit])
    } else {
        format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
    }
}
