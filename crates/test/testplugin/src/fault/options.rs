//! The command line.

use crate::endpoint::Services;
use clap::{Args, Parser, ValueEnum};
use std::path::PathBuf;

/// The answer to a request to undo an unknown step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unknown {
    /// Success, as the specification requires.
    #[default]
    Ok,
    /// The code INTERNAL.
    Internal,
    /// The code NOT_FOUND.
    NotFound,
    /// The code FAILED_PRECONDITION.
    FailedPrecondition,
}

/// The role of the program.
#[derive(Clone, Debug, Parser)]
#[command(about = "A CSI plugin for tests that fails on command, and a writer that stamps its volumes")]
pub(crate) enum Command {
    /// Serve as a CSI plugin.
    Serve(Serve),
    /// Stamp a file until killed.
    Write(Write),
}

/// The options of the plugin.
#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    /// URL of the socket.
    #[arg(long)]
    pub(crate) endpoint: String,
    /// The plugin's id of its node.
    #[arg(long)]
    pub(crate) nodeid: String,
    /// The plugin's name.
    #[arg(long, default_value = "fault.csi.test")]
    pub(crate) drivername: String,
    /// The directory that all instances share.
    #[arg(long)]
    pub(crate) san: PathBuf,
    /// The services of this process.
    #[arg(long, value_enum, default_value_t = Services::All)]
    pub(crate) services: Services,
    /// Do not offer ControllerPublishVolume.
    #[arg(long)]
    pub(crate) no_attach: bool,
    /// Do not offer NodeStageVolume.
    #[arg(long)]
    pub(crate) no_stage: bool,
    /// Create volumes as ext4 images on loop devices instead of directories.
    #[arg(long = "loop")]
    pub(crate) images: bool,
    /// The maximum number of volumes on a node; 0 means no limit.
    #[arg(long, default_value_t = 0)]
    pub(crate) max_volumes: i64,
    /// Answer of NodeUnpublishVolume and NodeUnstageVolume to unknown volumes or paths.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) unknown: Unknown,
    /// Answer of ControllerUnpublishVolume to unknown attachments.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) unknown_attachment: Unknown,
    /// Return the nodes of each volume in ListVolumes.
    #[arg(long)]
    pub(crate) list_nodes: bool,
    /// Know only the mounts that this process created.
    #[arg(long)]
    pub(crate) forget: bool,
    /// Refuse to mount over an existing mount.
    #[arg(long)]
    pub(crate) once: bool,
    /// Create volumes as FUSE file systems whose daemon dies with the plugin.
    #[arg(long)]
    pub(crate) fuse: bool,
    /// Mount each volume in the plugin's own directory first, and bind-mount it from there.
    #[arg(long)]
    pub(crate) outside: bool,
    /// Report each capability twice.
    #[arg(long)]
    pub(crate) capabilities_twice: bool,
    /// Report a topology, and a volume's topology only if CreateVolume requests one.
    #[arg(long)]
    pub(crate) topology: bool,
}

/// The options of the writer.
#[derive(Clone, Debug, Args)]
pub(crate) struct Write {
    /// A directory on the volume.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The writer's name in each stamp.
    #[arg(long)]
    pub(crate) id: String,
    /// Milliseconds between stamps.
    #[arg(long, default_value_t = 25)]
    pub(crate) every_ms: u64,
}
