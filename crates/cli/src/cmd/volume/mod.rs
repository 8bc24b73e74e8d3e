//! `volume …`

pub(crate) mod create;
pub(crate) mod explain;
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

/// Refuses kinds that are not there.
pub(crate) fn only_csi(kind: Option<&str>) -> Result<(), CliError> {
    match kind {
        None | Some("csi") => Ok(()),
        Some("host") => Err(CliError::failed("Dynamic host volumes are not supported yet: use -type csi")),
        Some(other) => Err(CliError::Usage(format!("Unknown volume type \"{other}\": use csi"))),
    }
}
