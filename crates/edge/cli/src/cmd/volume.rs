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

/// Subcommands of `volume`.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeVerb {
    /// Create a volume with a plugin and register it
    Create(create::CreateArgs),
    /// Register a volume that already exists in a plugin
    Register(create::RegisterArgs),
    /// Show volumes, or one volume with its claims
    Status(status::StatusArgs),
    /// Explain the state and the wait reason of a volume and of each of its claims
    Explain(explain::ExplainArgs),
    /// Deregister a volume; its storage stays
    Deregister(remove::DeregisterArgs),
    /// Delete a volume and its storage
    Delete(remove::DeleteArgs),
    /// Release the claims of a node on a volume
    Detach(remove::DetachArgs),
    /// Write an example volume file
    Init(init::InitArgs),
    /// Snapshots: create, delete, list
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotVerb),
    /// Claims of task groups on host volumes: list, delete
    #[command(subcommand)]
    Claim(claim::ClaimVerb),
}

/// Returns the CSI volume with this id or unique prefix.
pub(crate) async fn meant(ctx: &Ctx, supplied: &str) -> Result<CsiVolumeStub, CliError> {
    let list =
        ctx.client.volumes().list(&ctx.query().prefix(supplied)).await.doing("Error listing volumes")?.value;
    match pick(supplied, list, |volume| volume.id.as_str()) {
        Found::One(volume) => Ok(volume),
        Found::None => Err(CliError::failed(format!(
            "Error listing volumes: no volumes with prefix or ID \"{supplied}\" found"
        ))),
        Found::Many(list) => {
            Err(CliError::failed(format!("Prefix matched multiple volumes\n\n{}", status::table(&list))))
        }
    }
}

/// The types of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Volumes of CSI plugins.
    Csi,
    /// Host volumes, which are directories of nodes.
    Host,
}

/// Parses the value of `-type`; `None` if the flag is absent.
pub(crate) fn kind(flag: Option<&str>) -> Result<Option<Kind>, CliError> {
    match flag {
        None => Ok(None),
        Some("csi") => Ok(Some(Kind::Csi)),
        Some("host") => Ok(Some(Kind::Host)),
        Some(other) => Err(CliError::Usage(format!("Unknown volume type \"{other}\": use csi or host"))),
    }
}
