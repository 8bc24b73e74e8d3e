//! `system gc`, `system reconcile summaries`

use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use clap::Subcommand;

/// Subcommands of `system`.
#[derive(Debug, Subcommand)]
pub(crate) enum SystemVerb {
    /// Collect garbage now, instead of at the next interval
    Gc,
    /// Recompute derived data: summaries
    #[command(subcommand)]
    Reconcile(ReconcileVerb),
}

/// Subcommands of `system reconcile`.
#[derive(Debug, Subcommand)]
pub(crate) enum ReconcileVerb {
    /// Recompute the allocation counts of all jobs
    Summaries,
}

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
