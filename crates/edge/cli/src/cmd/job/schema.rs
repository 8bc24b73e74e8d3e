//! `job schema`

use crate::cmd::none;
use crate::ctx::Ctx;
use crate::error::Outcome;
use crate::format::json;

/// Flags of `job schema`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SchemaArgs {
    /// Rejected: the command takes no arguments
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Runs `job schema`, without a request to an agent.
pub(crate) fn run(ctx: &Ctx, args: &SchemaArgs) -> Outcome {
    none(&args.args)?;
    ctx.out.line(&json(&caravan_hcl::describe::json_schema())?);
    Ok(0)
}
