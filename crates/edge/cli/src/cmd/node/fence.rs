//! `node fence`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;

/// Flags of `node fence`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FenceArgs {
    /// Confirm that the machine is off: other nodes may use its volumes without waiting for its lease
    #[arg(long)]
    confirm_off: bool,
    /// Skip the confirmation prompt
    #[arg(long, short = 'y')]
    yes: bool,
    /// Node id or prefix; a removed node needs its full id
    #[arg(value_name = "NODE", num_args = 0..)]
    args: Vec<String>,
}

/// Confirms that a node's machine is off, after a prompt unless `-yes` is set.
pub(crate) async fn run(ctx: &Ctx, args: &FenceArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <node id>")?;
    if !args.confirm_off {
        return Err(CliError::Usage(
            "The '-confirm-off' flag must be set: it says that the machine is certainly off".into(),
        ));
    }
    let id = match resolve::node(ctx, supplied).await {
        Ok(node) => node.id.to_string(),
        // Volumes may still wait for a node whose record is deleted.
        Err(_) if supplied.len() == 36 => supplied.to_owned(),
        Err(error) => return Err(error),
    };
    let question = format!(
        "Tasks of node \"{id}\" that still run would write to volumes beside others. Is its machine certainly off? [y/N]"
    );
    if !args.yes && !ctx.out.ask(&question, &["y", "Y"]) {
        return Err(CliError::failed("Cancelling node fence"));
    }
    ctx.client.nodes().confirm_off(&id, &ctx.query()).await.doing("Error fencing node")?;
    ctx.out.line(&format!(
        "Node \"{id}\" is confirmed to be off: its volumes are handed on without a wait for its lease"
    ));
    Ok(0)
}
