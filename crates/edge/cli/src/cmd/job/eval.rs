//! `job eval`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{Doing as _, Outcome};
use crate::format::id;
use crate::{monitor, resolve};

/// Flags of `job eval`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct EvalArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Reschedule failed allocations at once, even if their reschedule policy delays it
    #[arg(long)]
    force_reschedule: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &EvalArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <job>")?;
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let jobs = ctx.client.jobs();
    let made =
        jobs.evaluate(job.id.as_str(), args.force_reschedule, &query).await.doing("Error evaluating job")?;
    let eval_id = made.value.eval_id;
    if args.detach {
        // The trailing space is part of Nomad's output, which scripts parse.
        ctx.out.line(&format!("Created eval ID: \"{}\" ", id(eval_id.as_str(), args.verbose)));
        return Ok(0);
    }
    monitor::run(ctx, &eval_id, monitor::Options { verbose: args.verbose, start: None }).await
}
