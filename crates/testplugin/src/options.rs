//! The command line.

use crate::endpoint::Services;
use clap::Parser;
use std::path::PathBuf;

/// Everything that the plugin is told.
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
    /// Where state and volumes are.
    #[arg(long)]
    pub(crate) statedir: PathBuf,
    /// The services of this process.
    #[arg(long, value_enum, default_value_t = Services::All)]
    pub(crate) services: Services,
    /// Do without ControllerPublishVolume.
    #[arg(long)]
    pub(crate) no_attach: bool,
    /// Do without NodeStageVolume.
    #[arg(long)]
    pub(crate) no_stage: bool,
    /// Mount in NodeStageVolume, and publish what is staged; otherwise staging is only noted.
    #[arg(long)]
    pub(crate) stage_mounts: bool,
    /// Answer ControllerPublishVolume with a context, and refuse node calls without exactly this one.
    #[arg(long)]
    pub(crate) context: bool,
    /// The node part knows nothing of the controller's volumes: any id is good.
    #[arg(long)]
    pub(crate) stateless: bool,
    /// Forget at each start what is attached, staged and published.
    #[arg(long)]
    pub(crate) forget: bool,
    /// Answer NOT_FOUND where nothing is published or staged, rather than success.
    #[arg(long)]
    pub(crate) gone_is_not_found: bool,
    /// Answer NOT_FOUND to the deletion of a volume that is not there.
    #[arg(long)]
    pub(crate) strict_delete: bool,
    /// Claim capabilities that no specification knows.
    #[arg(long)]
    pub(crate) unknown_capabilities: bool,
    /// Write hundreds of lines for each call.
    #[arg(long)]
    pub(crate) chatty: bool,
    /// Listen only after so many milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow_start_ms: u64,
    /// Fail the first calls of a name with UNAVAILABLE: `CreateVolume=2`. Repeatable.
    #[arg(long, value_parser = failures)]
    pub(crate) fail: Vec<(String, u32)>,
    /// Carry out the first calls of a name and answer UNAVAILABLE all the same. Repeatable.
    #[arg(long, value_parser = failures)]
    pub(crate) lose: Vec<(String, u32)>,
}

fn failures(text: &str) -> Result<(String, u32), String> {
    let (call, times) = text.split_once('=').ok_or("it must be CALL=TIMES")?;
    Ok((call.to_owned(), times.parse().map_err(|e| format!("{times:?} is not a number: {e}"))?))
}

impl Options {
    /// The key of the topology, which is the plugin's own.
    pub(crate) fn topology_key(&self) -> String {
        format!("topology.{}/node", self.drivername)
    }
}
