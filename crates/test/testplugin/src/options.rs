//! The command line.

use crate::endpoint::Services;
use clap::Parser;
use std::path::PathBuf;

/// The options of the plugin.
#[derive(Clone, Debug, Parser)]
#[command(about = "A CSI plugin for tests, with habits")]
pub(crate) struct Options {
    /// URL of the socket.
    #[arg(long)]
    pub(crate) endpoint: String,
    /// The plugin's id of its node.
    #[arg(long)]
    pub(crate) nodeid: String,
    /// The plugin's name.
    #[arg(long, default_value = "habits.csi.test")]
    pub(crate) drivername: String,
    /// The directory of the state and the volumes.
    #[arg(long)]
    pub(crate) statedir: PathBuf,
    /// The services of this process.
    #[arg(long, value_enum, default_value_t = Services::All)]
    pub(crate) services: Services,
    /// Do not offer ControllerPublishVolume.
    #[arg(long)]
    pub(crate) no_attach: bool,
    /// Do not offer NodeStageVolume.
    #[arg(long)]
    pub(crate) no_stage: bool,
    /// Mount in NodeStageVolume, and publish the staged mount; otherwise staging is only recorded.
    #[arg(long)]
    pub(crate) stage_mounts: bool,
    /// Return a context from ControllerPublishVolume, and refuse node calls without exactly this one.
    #[arg(long)]
    pub(crate) context: bool,
    /// Accept any volume id in node calls, because the node service does not know the controller's volumes.
    #[arg(long)]
    pub(crate) stateless: bool,
    /// Delete the records of attached, staged and published volumes at each start.
    #[arg(long)]
    pub(crate) forget: bool,
    /// Return NOT_FOUND instead of success for volumes that are not published or staged.
    #[arg(long)]
    pub(crate) gone_is_not_found: bool,
    /// Return NOT_FOUND for the deletion of a missing volume.
    #[arg(long)]
    pub(crate) strict_delete: bool,
    /// Report capabilities that the specification does not define.
    #[arg(long)]
    pub(crate) unknown_capabilities: bool,
    /// Write hundreds of log lines for each call.
    #[arg(long)]
    pub(crate) chatty: bool,
    /// Listen only after this many milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow_start_ms: u64,
    /// Fail the first calls of a name with UNAVAILABLE: `CreateVolume=2`. Repeatable.
    #[arg(long, value_parser = failures)]
    pub(crate) fail: Vec<(String, u32)>,
    /// Execute the first calls of a name and return UNAVAILABLE nevertheless. Repeatable.
    #[arg(long, value_parser = failures)]
    pub(crate) lose: Vec<(String, u32)>,
}

fn failures(text: &str) -> Result<(String, u32), String> {
    let (call, times) = text.split_once('=').ok_or("it must be CALL=TIMES")?;
    Ok((call.to_owned(), times.parse().map_err(|e| format!("{times:?} is not a number: {e}"))?))
}

impl Options {
    /// Returns the key of the plugin's topology.
    pub(crate) fn topology_key(&self) -> String {
        format!("topology.{}/node", self.drivername)
    }
}
