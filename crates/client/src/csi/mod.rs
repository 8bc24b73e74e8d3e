//! CSI on a client: which plugins run here ([`registry`]), an instance for each ([`manager`]), their supervision
//! as tasks ([`supervisor`]), and the volumes they mount ([`volumes`], with the [`ledger`]).

mod controller;
mod expand;
pub(crate) mod health;
mod instance;
pub(crate) mod ledger;
mod left;
mod leftovers;
pub(crate) mod manager;
pub(crate) mod owner;
mod places;
mod probe;
mod prober;
pub(crate) mod registry;
mod releases;
mod remount;
mod reports;
mod stats;
mod steps;
pub(crate) mod supervisor;
pub(crate) mod volumes;
mod watch;

pub(crate) use ledger::{ClaimEntry, Ledger};
pub(crate) use left::LeftMounts;
pub(crate) use manager::Manager;
pub(crate) use registry::{Registrations, Registry};
pub(crate) use volumes::VolumeManager;

use caravan_csi::CsiError;
use caravan_types::job::MountOptions;
use caravan_types::volume::{AccessMode, AttachmentMode, Usage};
use std::path::{Path, PathBuf};

/// Why something about CSI did not work on this node.
#[derive(Debug, thiserror::Error)]
pub enum CsiFault {
    /// The plugin is not here.
    #[error("{role} plugin '{plugin}' did not become ready: {reason}")]
    NoPlugin {
        /// `csi-controller` or `csi-node`.
        role: &'static str,
        /// Plugin id.
        plugin: String,
        /// What is known.
        reason: String,
    },
    /// The plugin refused, or cannot be reached.
    #[error("{source}")]
    Plugin {
        /// In the plugin's words.
        #[from]
        source: CsiError,
    },
    /// The modes of the request say nothing that CSI knows.
    #[error("{0}")]
    Mode(String),
    /// A directory cannot be made, looked at or removed.
    #[error("failed to {what} {}: {source}", path.display())]
    Directory {
        /// Verb phrase.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel refused.
    #[error("failed to {what}: {source}")]
    Kernel {
        /// Verb phrase.
        what: &'static str,
        /// Why.
        source: caravan_sys::Error,
    },
    /// A path would leave its root.
    #[error("{0}")]
    Path(String),
    /// An id cannot be part of a path.
    #[error(transparent)]
    Id(#[from] caravan_volumes::paths::PathError),
    /// The plugin reported success, and the mount is not there.
    #[error("the plugin reported success, but nothing is mounted at {}{}", path.display(), unreached(private.as_deref()))]
    NotMounted {
        /// Where.
        path: PathBuf,
        /// The mount that it lies on, if that is not shared.
        private: Option<PathBuf>,
    },
    /// Something has to happen first.
    #[error("{0}")]
    Waits(String),
    /// The mount is not the one that was made.
    #[error("volume \"{volume}\" is not mounted as it was published: {what}")]
    Changed {
        /// Volume id.
        volume: String,
        /// The difference.
        what: String,
    },
    /// The owner or mode that the job asks for cannot be.
    #[error("{0}")]
    Owner(String),
    /// The plugin cannot do what it is asked.
    #[error("{0}")]
    Unsupported(String),
    /// Nothing is known of the volume here.
    #[error("No CSI Mount Point found for volume: {0}")]
    Unknown(String),
    /// The client state could not be written, so nothing was begun.
    #[error("the ledger of mounts cannot be written")]
    Ledger,
    /// The client ends, or the caller gave up.
    #[error("the operation was given up")]
    GivenUp,
}

impl CsiFault {
    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Plugin { source } => source.is_retryable(),
            Self::NoPlugin { .. } | Self::Waits(_) | Self::Kernel { .. } | Self::Directory { .. } => true,
            _ => false,
        }
    }
    /// Whether the plugin may have done what it was asked although it failed.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Plugin { source } if source.outcome_unknown())
    }
}

/// Why a plugin's mounts may not be seen.
fn unreached(private: Option<&Path>) -> String {
    private.map_or_else(String::new, |mount| {
        let mount = mount.display();
        format!(
            ": the mount at {mount} is not shared, so that mounts which a plugin makes in its own mount namespace do \
             not reach the agent (mount --make-shared {mount})"
        )
    })
}

/// The capability of a use, in the words of the CSI client. `group`: the group of the volume's files, for plugins
/// that take it.
pub(crate) fn capability(
    usage: Usage,
    options: Option<&MountOptions>,
    group: &str,
) -> Result<caravan_csi::VolumeCapability, CsiFault> {
    let attachment_mode = match usage.attachment_mode {
        AttachmentMode::FileSystem => caravan_csi::AttachmentMode::FileSystem,
        AttachmentMode::BlockDevice => caravan_csi::AttachmentMode::BlockDevice,
        AttachmentMode::Unknown => {
            return Err(CsiFault::Mode("unknown volume attachment mode: ".to_owned()));
        }
    };
    let access_mode = match usage.access_mode {
        AccessMode::SingleNodeReaderOnly => caravan_csi::AccessMode::SingleNodeReaderOnly,
        AccessMode::SingleNodeWriter => caravan_csi::AccessMode::SingleNodeWriter,
        AccessMode::MultiNodeReaderOnly => caravan_csi::AccessMode::MultiNodeReaderOnly,
        AccessMode::MultiNodeSingleWriter => caravan_csi::AccessMode::MultiNodeSingleWriter,
        AccessMode::MultiNodeMultiWriter => caravan_csi::AccessMode::MultiNodeMultiWriter,
        other @ (AccessMode::Unknown
        | AccessMode::SingleNodeSingleWriter
        | AccessMode::SingleNodeMultiWriter) => {
            return Err(CsiFault::Mode(format!("unknown volume access mode: {other}")));
        }
    };
    let mut mount = options.map_or_else(Default::default, |o| caravan_csi::MountOptions {
        fs_type: o.fs_type.clone(),
        mount_flags: o.mount_flags.clone().into(),
        volume_mount_group: String::new(),
    });
    group.clone_into(&mut mount.volume_mount_group);
    Ok(caravan_csi::VolumeCapability { access_mode, attachment_mode, mount })
}
