//! `operator client-state`: shows the state of a stopped client.

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use std::path::Path;

/// Arguments of `operator client-state`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientStateArgs {
    /// Data directory of a stopped agent, or the client's part of it
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) fn run(ctx: &Ctx, args: &ClientStateArgs) -> Outcome {
    let path = one(&args.args, "This command takes one argument: <path>")?;
    let state = (ctx.local.client_state)(Path::new(path))
        .map_err(|error| CliError::failed(format!("Error reading the client's state: {error}")))?;
    ctx.out.line(&serde_json::to_string_pretty(&state)?);
    Ok(0)
}
