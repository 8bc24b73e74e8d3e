//! CSI on a client: the plugins that run here ([`registry`]), an instance for each ([`manager`]), their supervision
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
pub(crate) mod prober;
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

/// The reason that a CSI operation failed on this node.
#[derive(Debug, thiserror::Error)]
pub enum CsiFault {
    /// The plugin is not available on this node.
    #[error("{role} plugin '{plugin}' did not become ready: {reason}")]
    NoPlugin {
        /// The role: `csi-controller` or `csi-node`.
        role: &'static str,
        /// Id of the plugin.
        plugin: String,
        /// The description of the plugin's health, or a sentence that the plugin does not run on this node.
        reason: String,
    },
    /// The plugin returned an error, or cannot be reached.
    #[error("{source}")]
    Plugin {
        /// The plugin's error.
        #[from]
        source: CsiError,
    },
    /// The modes of the request do not exist in CSI.
    #[error("{0}")]
    Mode(String),
    /// A directory cannot be created, read or removed.
    #[error("failed to {what} {}: {source}", path.display())]
    Directory {
        /// The operation, as a verb phrase.
        what: &'static str,
        /// The path of the directory.
        path: PathBuf,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// A kernel call failed.
    #[error("failed to {what}: {source}")]
    Kernel {
        /// The operation, as a verb phrase.
        what: &'static str,
        /// The error of the kernel call.
        source: caravan_sys::Error,
    },
    /// A path would lead out of its root.
    #[error("{0}")]
    Path(String),
    /// An id cannot be part of a path.
    #[error(transparent)]
    Id(#[from] caravan_volumes::paths::PathError),
    /// The plugin reported success, but nothing is mounted.
    #[error("the plugin reported success, but nothing is mounted at {}{}", path.display(), unreached(private.as_deref()))]
    NotMounted {
        /// The path that should be a mount point.
        path: PathBuf,
        /// The mount beneath the path, if its propagation is private.
        private: Option<PathBuf>,
    },
    /// The operation must wait for another event.
    #[error("{0}")]
    Waits(String),
    /// The mount differs from its proof.
    #[error("volume \"{volume}\" is not mounted as it was published: {what}")]
    Changed {
        /// Id of the volume.
        volume: String,
        /// The difference between mount and proof.
        what: String,
    },
    /// The requested owner or mode is invalid.
    #[error("{0}")]
    Owner(String),
    /// The plugin does not support the operation.
    #[error("{0}")]
    Unsupported(String),
    /// The volume is unknown on this node.
    #[error("No CSI Mount Point found for volume: {0}")]
    Unknown(String),
    /// The client state could not be written, so the operation was not started.
    #[error("the ledger of mounts cannot be written")]
    Ledger,
    /// The client ends, or the caller has stopped waiting.
    #[error("the operation was given up")]
    GivenUp,
}

impl CsiFault {
    /// Returns whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Plugin { source } => source.is_retryable(),
            Self::NoPlugin { .. } | Self::Waits(_) | Self::Kernel { .. } | Self::Directory { .. } => true,
            _ => false,
        }
    }
    /// Returns whether the plugin may have completed the operation although it failed.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Plugin { source } if source.outcome_unknown())
    }
}

/// Explains why a plugin's mounts may not be visible.
fn unreached(private: Option<&Path>) -> String {
    private.map_or_else(String::new, |mount| {
        let mount = mount.display();
        format!(
            ": the mount at {mount} is not shared, so that mounts which a plugin makes in its own mount namespace do \
             not reach the agent (mount --make-shared {mount})"
        )
    })
}

/// Returns the CSI capability of a use. `group` is the group of the volume's files, for plugins that support it.
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
