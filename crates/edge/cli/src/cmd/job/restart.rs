//! `job restart`

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{id, plural};
use crate::monitor::pace;
use crate::resolve;
use caravan_sdk::Watch;
use caravan_types::alloc::{AllocListStub, ClientStatus, DesiredStatus};
use std::time::{Duration, Instant};

/// Flags of `job restart`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RestartArgs {
    /// Also restart tasks that have ended
    #[arg(long)]
    all_tasks: bool,
    /// Number of allocations to restart at once: a number, or a percentage
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true)]
    batch_size: String,
    /// Wait between two batches: a duration, or ask for a confirmation
    #[arg(long, value_name = "DURATION", default_value = "0s", hide_default_value = true)]
    batch_wait: String,
    /// Restart only allocations of this group; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// With -reschedule: stop the tasks without their shutdown delay
    #[arg(long)]
    no_shutdown_delay: bool,
    /// Reaction to an allocation that cannot be restarted: ask or fail
    #[arg(long, value_name = "WHAT", default_value = "ask", hide_default_value = true)]
    on_error: String,
    /// Stop the allocations and wait for their replacements, instead of restarting them in place
    #[arg(long)]
    reschedule: bool,
    /// Restart only this task; may be repeated
    #[arg(long = "task", value_name = "TASK")]
    tasks: Vec<String>,
    /// Skip the confirmation prompt
    #[arg(long, short = 'y')]
    yes: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Job id or prefix
    #[arg(value_name = "JOB", num_args = 0..)]
    args: Vec<String>,
}

/// The action between two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Wait(Duration),
    Ask,
}

/// Runs `job restart`. Returns 1 if an allocation could not be restarted.
pub(crate) async fn run(ctx: &Ctx, args: &RestartArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <job>")?;
    let between = between(&args.batch_wait)?;
    if !matches!(args.on_error.as_str(), "ask" | "fail") {
        return Err(usage("-on-error must be ask or fail"));
    }
    if args.reschedule && (args.all_tasks || !args.tasks.is_empty()) {
        return Err(usage("-reschedule cannot be used with -all-tasks or -task"));
    }
    if args.all_tasks && !args.tasks.is_empty() {
        return Err(usage("-all-tasks cannot be used with -task"));
    }
    if args.yes && between == Between::Ask {
        return Err(usage("-batch-wait=ask cannot be used with -yes"));
    }
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let allocs = ctx
        .client
        .jobs()
        .allocations(job.id.as_str(), false, &query)
        .await
        .doing("Error retrieving allocations")?;
    let mut allocs = allocs.value;
    allocs.retain(|alloc| is_selected(alloc, args));
    allocs.sort_by(|a, b| (&a.task_group, &a.name).cmp(&(&b.task_group, &b.name)));
    let size = batch_size(&args.batch_size, allocs.len())?;
    let say = |text: String| ctx.out.line(&format!("==> {}: {text}", ctx.clock().stamp()));
    if allocs.is_empty() {
        say("No allocations to restart".to_owned());
        return Ok(0);
    }
    let count = allocs.len();
    let batches = count.div_ceil(size);
    let of = if batches > 1 { format!(" in {batches} batches") } else { String::new() };
    say(format!("Restarting {count} allocation{}{of}", plural(count as u64)));
    for (n, batch) in allocs.chunks(size).enumerate() {
        if n > 0 {
            match between {
                Between::Ask => {
                    if !ctx.out.ask("Proceed with next batch? [y/N]", &["y", "Y"]) {
                        return Err(CliError::failed("Job restart canceled"));
                    }
                }
                Between::Wait(time) if !time.is_zero() => {
                    say(format!("Waiting {time:?} before restarting the next batch"));
                    tokio::time::sleep(time).await;
                }
                Between::Wait(_) => {}
            }
        }
        let done = futures::future::join_all(batch.iter().map(|alloc| restart(ctx, args, alloc))).await;
        for (alloc, done) in batch.iter().zip(done) {
            let Err(error) = done else { continue };
            let text =
                format!("Error restarting allocation \"{}\": {error}", id(alloc.id.as_str(), args.verbose));
            if args.on_error == "fail" || args.yes {
                return Err(CliError::failed(text));
            }
            ctx.out.note(&text);
            if !ctx.out.ask("Do you want to proceed with the restart? [y/N]", &["y", "Y"]) {
                return Err(CliError::failed("Job restart canceled"));
            }
        }
    }
    say("Job restart finished".to_owned());
    ctx.out.line("\nJob restarted successfully!");
    Ok(0)
}

fn usage(text: &str) -> CliError {
    CliError::Usage(text.to_owned())
}

/// Returns whether the flags select an allocation.
fn is_selected(alloc: &AllocListStub, args: &RestartArgs) -> bool {
    let has_task = |task: &String| alloc.task_states.contains_key(task);
    alloc.desired_status == DesiredStatus::Run
        && (alloc.client_status == ClientStatus::Running
            || args.all_tasks && alloc.client_status == ClientStatus::Pending)
        && (args.groups.is_empty() || args.groups.iter().any(|group| alloc.task_group == *group))
        && (args.tasks.is_empty() || args.tasks.iter().any(has_task))
}

fn between(text: &str) -> Result<Between, CliError> {
    if text == "ask" {
        return Ok(Between::Ask);
    }
    let nanos = caravan_hcl::duration::parse_duration(text)
        .map_err(|e| usage(&format!("Invalid -batch-wait: {e}")))?;
    let nanos = u64::try_from(nanos).map_err(|_| usage("-batch-wait must not be negative"))?;
    Ok(Between::Wait(Duration::from_nanos(nanos)))
}

/// Parses a batch size: a number, or a percentage of `count`, at least 1.
fn batch_size(text: &str, count: usize) -> Result<usize, CliError> {
    let wrong = || usage("-batch-size must be a number above 0 or a percentage up to 100%");
    let size = match text.strip_suffix('%') {
        Some(part) => {
            let part: usize =
                part.trim().parse().ok().filter(|part| (1..=100).contains(part)).ok_or_else(wrong)?;
            (count * part).div_ceil(100)
        }
        None => text.parse().ok().filter(|size| *size > 0).ok_or_else(wrong)?,
    };
    Ok(size.max(1))
}

async fn restart(ctx: &Ctx, args: &RestartArgs, alloc: &AllocListStub) -> Result<(), CliError> {
    let short = |alloc: &str| id(alloc, args.verbose);
    let say = |text: String| ctx.out.line(&format!("    {}: {text}", ctx.clock().stamp()));
    let what = format!("allocation \"{}\" for group \"{}\"", short(alloc.id.as_str()), alloc.task_group);
    let allocs = ctx.client.allocations();
    if args.reschedule {
        say(format!("Rescheduling {what}"));
        let stopped = allocs.stop(alloc.id.as_str(), args.no_shutdown_delay, &ctx.query()).await;
        stopped.doing("Failed to stop allocation")?;
        return replaced(ctx, args, alloc).await;
    }
    if args.tasks.is_empty() {
        let tasks = if args.all_tasks { "all tasks" } else { "running tasks" };
        say(format!("Restarting {tasks} in {what}"));
        let done = allocs.restart(alloc.id.as_str(), "", args.all_tasks, &ctx.query()).await;
        return done.map(drop).doing("Failed to restart allocation");
    }
    for task in args.tasks.iter().filter(|task| alloc.task_states.contains_key(*task)) {
        say(format!("Restarting task \"{task}\" in {what}"));
        allocs.restart(alloc.id.as_str(), task, false, &ctx.query()).await.doing("Failed to restart task")?;
    }
    Ok(())
}

/// Waits until the replacement of an allocation runs.
async fn replaced(ctx: &Ctx, args: &RestartArgs, alloc: &AllocListStub) -> Result<(), CliError> {
    let say = |text: String| ctx.out.line(&format!("    {}: {text}", ctx.clock().stamp()));
    let short = |alloc: &str| id(alloc, args.verbose);
    let allocs = ctx.client.allocations();
    let mut watch = Watch::new(ctx.query());
    let next = loop {
        let asked = Instant::now();
        let answer =
            allocs.info(alloc.id.as_str(), watch.query()).await.doing("Error retrieving allocation")?;
        if !answer.value.next_allocation.is_empty() {
            break answer.value.next_allocation;
        }
        pace(watch.saw(&answer.meta), asked).await;
    };
    let (old, new) = (short(alloc.id.as_str()), short(next.as_str()));
    say(format!("Allocation \"{old}\" replaced by \"{new}\", waiting for \"{new}\" to start running"));
    let mut watch = Watch::new(ctx.query());
    loop {
        let asked = Instant::now();
        let answer = allocs.info(next.as_str(), watch.query()).await.doing("Error retrieving allocation")?;
        let status = answer.value.client_status;
        match status {
            ClientStatus::Pending => {}
            ClientStatus::Running | ClientStatus::Complete => {
                say(format!("Allocation \"{new}\" is \"{}\"", status.as_str()));
                return Ok(());
            }
            _ => {
                return Err(CliError::failed(format!("Allocation \"{new}\" is \"{}\"", status.as_str())));
            }
        }
        pace(watch.saw(&answer.meta), asked).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_numbers_or_parts() {
        assert_eq!(batch_size("3", 10).unwrap(), 3);
        assert_eq!(batch_size("25%", 10).unwrap(), 3);
        assert_eq!(batch_size("1%", 0).unwrap(), 1);
        for wrong in ["0", "x", "0%", "101%", "-1", ""] {
            assert!(batch_size(wrong, 10).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_wait_is_a_duration_or_a_question() {
        assert_eq!(between("ask").unwrap(), Between::Ask);
        assert_eq!(between("1m30s").unwrap(), Between::Wait(Duration::from_secs(90)));
        assert!(between("soon").is_err() && between("-1s").is_err());
    }
}
