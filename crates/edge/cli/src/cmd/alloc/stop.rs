//! `alloc stop` and `alloc restart`

use crate::cmd::{one, wrong_count};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::{monitor, resolve};

/// Flags of `alloc stop`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StopArgs {
    /// Return at once instead of following the evaluation
    #[arg(long)]
    detach: bool,
    /// Stop the tasks without their shutdown delay
    #[arg(long)]
    no_shutdown_delay: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Allocation id or prefix
    #[arg(value_name = "ALLOCATION", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `alloc restart`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RestartArgs {
    /// Also restart tasks that have ended
    #[arg(long)]
    all_tasks: bool,
    /// Restart this task only
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Allocation id or prefix, and optionally a task
    #[arg(value_name = "ALLOCATION", num_args = 0..)]
    args: Vec<String>,
}

/// Runs `alloc stop`.
pub(crate) async fn stop(ctx: &Ctx, args: &StopArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one alloc ID argument: <alloc-id>")?;
    let alloc = resolve::alloc(ctx, supplied).await?;
    let answer = ctx
        .client
        .allocations()
        .stop(alloc.id.as_str(), args.no_shutdown_delay, &ctx.query())
        .await
        .doing("Error stopping allocation")?
        .value;
    if args.detach || answer.eval_id.is_empty() {
        ctx.out.line(answer.eval_id.as_str());
        return Ok(0);
    }
    monitor::run(ctx, &answer.eval_id, monitor::Options { verbose: args.verbose, start: None }).await
}

/// Runs `alloc restart`.
pub(crate) async fn restart(ctx: &Ctx, args: &RestartArgs) -> Outcome {
    let (supplied, task) = match args.args.as_slice() {
        [supplied] => (supplied, args.task.clone().unwrap_or_default()),
        [supplied, task] => (supplied, task.clone()),
        _ => {
            return Err(wrong_count(
                &args.args,
                2,
                "This command takes one or two arguments: <alloc-id> <task>",
            ));
        }
    };
    let alloc = resolve::alloc(ctx, supplied).await?;
    if !task.is_empty() && !alloc.task_states.is_empty() && !alloc.task_states.contains_key(&task) {
        let names: Vec<&str> = alloc.task_states.keys().map(String::as_str).collect();
        return Err(CliError::failed(format!(
            "Could not find task named: {task}, found:\n{}",
            names.join("\n")
        )));
    }
    ctx.client
        .allocations()
        .restart(alloc.id.as_str(), &task, args.all_tasks, &ctx.query())
        .await
        .doing("Failed to restart allocation")?;
    Ok(0)
}
