//! `job stop`

use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::{monitor, resolve};
use caravan_sdk::DeregisterOptions;

/// Flags of `job stop`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StopArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Priority of the evaluation
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    eval_priority: i64,
    /// Stop the job in all its regions
    #[arg(long)]
    global: bool,
    /// Stop the tasks without their shutdown delay
    #[arg(long)]
    no_shutdown_delay: bool,
    /// Deregister the job and delete it at once
    #[arg(long)]
    purge: bool,
    /// Skip the confirmation prompt
    #[arg(long, short = 'y')]
    yes: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job ids or prefixes
    #[arg(value_name = "JOB", num_args = 0..)]
    jobs: Vec<String>,
}

pub(crate) async fn run(ctx: &Ctx, args: &StopArgs) -> Outcome {
    if args.jobs.is_empty() {
        return Err(CliError::Usage("This command takes at least one argument: <job>".into()));
    }
    let mut worst = 0;
    for supplied in &args.jobs {
        worst = worst.max(one(ctx, args, supplied).await?);
    }
    Ok(worst)
}

async fn one(ctx: &Ctx, args: &StopArgs, supplied: &str) -> Outcome {
    let job = resolve::job(ctx, supplied).await?;
    if job.id != *supplied && !args.yes {
        let question = format!("Are you sure you want to stop job \"{}\"? [y/N]", job.id);
        if !ctx.out.ask(&question, &["y", "Y"]) {
            return Err(CliError::failed("Cancelling job stop"));
        }
    }
    let options = DeregisterOptions {
        purge: args.purge,
        global: args.global,
        no_shutdown_delay: args.no_shutdown_delay,
        eval_priority: args.eval_priority,
    };
    let query = ctx.query().namespace(job.namespace.as_str());
    let answer = ctx
        .client
        .jobs()
        .deregister(job.id.as_str(), options, &query)
        .await
        .doing(format!("Error deregistering job with id {supplied}"))?
        .value;
    if answer.eval_id.is_empty() {
        return Ok(0);
    }
    if args.detach {
        ctx.out.line(answer.eval_id.as_str());
        return Ok(0);
    }
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start: None }).await
}
