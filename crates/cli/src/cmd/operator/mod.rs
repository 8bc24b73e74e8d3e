//! `operator ...`: looking into an agent's state.

pub(crate) mod volume_check;

use clap::Subcommand;

/// What operators do with an agent's state.
#[derive(Debug, Subcommand)]
pub(crate) enum OperatorVerb {
    /// Check volumes and claims in a state snapshot or a stopped agent's data directory
    VolumeCheck(volume_check::VolumeCheckArgs),
}
