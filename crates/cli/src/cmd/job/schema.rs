//! `job schema`

use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use crate::format::json;

/// Flags of `job schema`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SchemaArgs {
    /// Nothing
    #[arg(hide = true, num_args = 0..)]
    args: Vec<String>,
}

/// Runs it. No agent is asked.
pub(crate) fn run(ctx: &Ctx, args: &SchemaArgs) -> Outcome {
    if !args.args.is_empty() {
        return Err(CliError::Usage("This command takes no arguments".into()));
    }
    ctx.out.line(&json(&caravan_hcl::describe::json_schema())?);
    Ok(0)
}
