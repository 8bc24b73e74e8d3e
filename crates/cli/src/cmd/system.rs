//! `system gc`

use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use clap::Subcommand;

/// Chores of the servers.
#[derive(Debug, Subcommand)]
pub(crate) enum SystemVerb {
    /// Forget what is over, now
    Gc,
}

/// Runs it.
pub(crate) async fn run(ctx: &Ctx, verb: &SystemVerb) -> Outcome {
    match verb {
        SystemVerb::Gc => {
            ctx.client.system().gc().await.doing("Error running system garbage-collection")?;
            Ok(0)
        }
    }
}
