//! The command line.

use crate::endpoint::Services;
use clap::{Args, Parser};
use std::path::PathBuf;

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
