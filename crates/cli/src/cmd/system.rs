//! `system gc`, `system reconcile summaries`

use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use clap::Subcommand;

/// Chores of the servers.
#[derive(Debug, Subcommand)]
pub(crate) enum SystemVerb {
    /// Forget what is over, now
    Gc,
    /// Bring derived figures into step
    #[command(subcommand)]
    Reconcile(ReconcileVerb),
}

/// What is brought into step.
#[derive(Debug, Subcommand)]
pub(crate) enum ReconcileVerb {
    /// Counts of the allocations of jobs
    Summaries,
}

/// Runs it.
pub(crate) async fn run(ctx: &Ctx, verb: &SystemVerb) -> Outcome {
    match verb {
        SystemVerb::Gc => {
            ctx.client.system().gc().await.doing("Error running system garbage-collection")?;
            Ok(0)
        }
        SystemVerb::Reconcile(ReconcileVerb::Summaries) => {
            let done = ctx.client.system().reconcile_summaries().await;
            done.doing("Error running system summary reconciliation")?;
            Ok(0)
        }
    }
}
