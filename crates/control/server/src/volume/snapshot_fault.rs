//! Failures of requests about snapshots.

use super::controller::CallError;
use crate::admission::joined;
use crate::error::{Kind, ServerError};
use caravan_types::volume::VolumePhase;
use caravan_types::{PluginId, VolumeId};
use caravan_volumes::wait::MissingSecret;

/// The failure of a request about snapshots.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SnapshotFault {
    #[error("missing snapshot definition")]
    NoDefinition,
    /// The failures of some of several requests; the others may have succeeded.
    #[error("{}", joined(&.0.iter().map(ToString::to_string).collect::<Vec<_>>()))]
    Several(Vec<ServerError>),
    /// A failure that clients expect as a list with one entry.
    #[error("{}", joined(&[.0.to_string()]))]
    Listed(#[source] Box<SnapshotFault>),
    #[error("snapshot cannot be nil")]
    Nil,
    #[error("no such volume \"{0}\"")]
    NoVolume(VolumeId),
    #[error("no such plugin \"{0}\"")]
    NoPlugin(PluginId),
    #[error("no such plugin")]
    NoPluginToAsk,
    #[error("volume \"{volume}\" is of plugin \"{actual}\", not of \"{expected}\"")]
    OtherPlugin { volume: VolumeId, actual: PluginId, expected: PluginId },
    #[error("the snapshot of volume \"{0}\" needs a name")]
    NoName(VolumeId),
    #[error("missing snapshot id")]
    NoId,
    #[error("plugin \"{0}\" does not support snapshot")]
    CannotCreate(PluginId),
    #[error("plugin does not support snapshot")]
    CannotDelete,
    #[error("plugin does not support listing snapshots")]
    CannotList,
    #[error("could not create snapshot: volume \"{volume}\" is in phase {}", phase.as_str())]
    Phase { volume: VolumeId, phase: VolumePhase },
    #[error("could not create snapshot: {0}")]
    Secrets(#[source] MissingSecret),
    #[error("could not create snapshot: {0}")]
    Create(#[source] CallError),
    #[error(
        "could not create snapshot: {0} (it may have been made; the same command again finds it by its name)"
    )]
    MaybeCreated(#[source] CallError),
    #[error("could not delete \"{snapshot}\": {error}")]
    Delete {
        snapshot: String,
        #[source]
        error: CallError,
    },
    #[error("controller list snapshots: {0}")]
    List(#[source] CallError),
}

impl SnapshotFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Secrets(_) | Self::Create(_) | Self::MaybeCreated(_) => Kind::Unavailable,
            Self::NoDefinition
            | Self::Several(_)
            | Self::Listed(_)
            | Self::Nil
            | Self::NoVolume(_)
            | Self::NoPlugin(_)
            | Self::NoPluginToAsk
            | Self::OtherPlugin { .. }
            | Self::NoName(_)
            | Self::NoId
            | Self::CannotCreate(_)
            | Self::CannotDelete
            | Self::CannotList
            | Self::Phase { .. }
            | Self::Delete { .. }
            | Self::List(_) => Kind::Refused,
        }
    }
}
