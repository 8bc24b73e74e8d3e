//! The command line.

use crate::endpoint::Services;
use clap::{Args, Parser, ValueEnum};
use std::path::PathBuf;

/// What the plugin answers when it is asked to undo what it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unknown {
    /// Success, as the specification asks for.
    #[default]
    Ok,
    /// INTERNAL.
    Internal,
    /// NOT_FOUND.
    NotFound,
    /// FAILED_PRECONDITION.
    FailedPrecondition,
}

/// What the program is to be.
#[derive(Clone, Debug, Parser)]
#[command(about = "A CSI plugin for tests that fails on command, and a writer that stamps its volumes")]
pub(crate) enum Command {
    /// Serve as a plugin.
    Serve(Serve),
    /// Stamp a file for ever.
    Write(Write),
}

/// Everything that the plugin is told.
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
    /// Do without ControllerPublishVolume.
    #[arg(long)]
    pub(crate) no_attach: bool,
    /// Do without NodeStageVolume.
    #[arg(long)]
    pub(crate) no_stage: bool,
    /// Volumes are ext4 images on loop devices rather than directories.
    #[arg(long = "loop")]
    pub(crate) images: bool,
    /// How many volumes a node may have; 0 is any number.
    #[arg(long, default_value_t = 0)]
    pub(crate) max_volumes: i64,
    /// Answer of NodeUnpublishVolume and NodeUnstageVolume about what the plugin does not know.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) unknown: Unknown,
    /// Answer of ControllerUnpublishVolume about what is not attached.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) unknown_attachment: Unknown,
    /// Know only what this process has mounted itself, whatever is mounted.
    #[arg(long)]
    pub(crate) forget: bool,
    /// Refuse to mount where something is mounted.
    #[arg(long)]
    pub(crate) once: bool,
    /// Volumes are FUSE file systems whose daemon dies with the plugin.
    #[arg(long)]
    pub(crate) fuse: bool,
    /// Mount each volume at a place of the plugin's own first, and bind it from there.
    #[arg(long)]
    pub(crate) outside: bool,
    /// Name each capability twice.
    #[arg(long)]
    pub(crate) capabilities_twice: bool,
    /// Have a topology, and tell a volume's only if CreateVolume asks for one.
    #[arg(long)]
    pub(crate) topology: bool,
}

/// Everything that the writer is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Write {
    /// Directory that is on the volume.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Who writes, in each stamp.
    #[arg(long)]
    pub(crate) id: String,
    /// Milliseconds between stamps.
    #[arg(long, default_value_t = 25)]
    pub(crate) every_ms: u64,
}
