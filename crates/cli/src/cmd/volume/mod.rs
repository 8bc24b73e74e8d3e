//! `volume …`

pub(crate) mod claim;
pub(crate) mod create;
pub(crate) mod explain;
pub(crate) mod host;
pub(crate) mod init;
pub(crate) mod remove;
pub(crate) mod snapshot;
pub(crate) mod status;

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _};
use crate::resolve::{Found, pick};
use caravan_types::volume::CsiVolumeStub;
use clap::Subcommand;

/// Verbs of volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeVerb {
    /// Have a plugin make a volume
    Create(create::CreateArgs),
    /// Make known a volume that a plugin has already
    Register(create::RegisterArgs),
    /// Show volumes, or one volume with its claims
    Status(status::StatusArgs),
    /// Say where a volume and each of its claims stand, and why
    Explain(explain::ExplainArgs),
    /// Forget a volume; the plugin keeps it
    Deregister(remove::DeregisterArgs),
    /// Have the plugin delete a volume
    Delete(remove::DeleteArgs),
    /// End the claims of a node on a volume
    Detach(remove::DetachArgs),
    /// Write an example of a volume file
    Init(init::InitArgs),
    /// Snapshots: create, delete, list
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotVerb),
    /// Holds of task groups on host volumes: list, delete
    #[command(subcommand)]
    Claim(claim::ClaimVerb),
}

/// The volume that is meant.
pub(crate) async fn meant(ctx: &Ctx, given: &str) -> Result<CsiVolumeStub, CliError> {
    let list =
        ctx.client.volumes().list(&ctx.query().prefix(given)).await.doing("Error listing volumes")?.value;
    match pick(given, list, |volume| volume.id.as_str()) {
        Found::One(volume) => Ok(volume),
        Found::None => Err(CliError::failed(format!(
            "Error listing volumes: no volumes with prefix or ID \"{given}\" found"
        ))),
        Found::Many(list) => {
            Err(CliError::failed(format!("Prefix matched multiple volumes\n\n{}", status::table(&list))))
        }
    }
}

/// The kinds of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of CSI plugins.
    Csi,
    /// Directories of nodes.
    Host,
}

/// The kind that a flag names.
pub(crate) fn kind(flag: Option<&str>) -> Result<Option<Kind>, CliError> {
    match flag {
        None => Ok(None),
        Some("csi") => Ok(Some(Kind::Csi)),
        Some("host") => Ok(Some(Kind::Host)),
        Some(other) => Err(CliError::Usage(format!("Unknown volume type \"{other}\": use csi or host"))),
    }
}
