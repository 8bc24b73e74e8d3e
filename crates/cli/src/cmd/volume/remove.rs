//! `volume deregister`, `volume delete` and `volume detach`

use super::{meant, only_csi};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;

/// Flags of `volume deregister`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeregisterArgs {
    /// Also while it is in use; asks first
    #[arg(long)]
    force: bool,
    /// Volume
    #[arg(value_name = "VOLUME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `volume delete`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeleteArgs {
    /// Kind of volume, csi
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Volume
    #[arg(value_name = "VOLUME", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `volume detach`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DetachArgs {
    /// Volume, and a node
    #[arg(value_name = "VOLUME> <NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Runs `volume deregister`.
pub(crate) async fn deregister(ctx: &Ctx, args: &DeregisterArgs) -> Outcome {
    let given = one(&args.args, "This command takes one argument: <id>")?;
    let volume = meant(ctx, given).await?;
    let id = volume.id.as_str();
    if args.force {
        let question = format!("Are you sure you want to force deregister volume \"{id}\"? [y/N]");
        if !ctx.out.ask(&question, &["y"]) {
            return Err(CliError::failed("Cancelling volume deregister"));
        }
    }
    let query = ctx.query().namespace(volume.namespace.as_str());
    ctx.client.volumes().deregister(id, args.force, &query).await.doing("Error deregistering volume")?;
    ctx.out.line(&format!("Successfully deregistered volume \"{id}\"!"));
    Ok(0)
}

/// Runs `volume delete`.
pub(crate) async fn delete(ctx: &Ctx, args: &DeleteArgs) -> Outcome {
    only_csi(args.kind.as_deref())?;
    let id = one(&args.args, "This command takes one argument: <vol id>")?;
    ctx.client.volumes().delete(id, &ctx.query()).await.doing("Error deleting volume")?;
    ctx.out.line(&format!("Successfully deleted volume \"{id}\"!"));
    Ok(0)
}

/// Runs `volume detach`. A node that is gone is named by its whole id.
pub(crate) async fn detach(ctx: &Ctx, args: &DetachArgs) -> Outcome {
    let [volume, node] = args.args.as_slice() else {
        return Err(CliError::Usage("This command takes two arguments: <vol id> <node id>".into()));
    };
    let node = match node.len() {
        36 => node.clone(),
        _ => resolve::node(ctx, node).await?.id.to_string(),
    };
    ctx.client.volumes().detach(volume, &node, &ctx.query()).await.doing("Error detaching volume")?;
    Ok(0)
}
