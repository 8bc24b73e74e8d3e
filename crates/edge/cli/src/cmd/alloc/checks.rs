//! `alloc checks`, `alloc signal`, `alloc pause`

use super::exec::check_task;
use crate::cmd::{one, wrong_count};
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, json};
use crate::resolve;
use crate::table::Table;
use caravan_types::UnixNanos;
use caravan_types::alloc::AllocListStub;
use caravan_types::service::CheckResult;

/// Flags of `alloc checks`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ChecksArgs {
    /// Show JSON
    #[arg(long)]
    json: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Allocation id or prefix
    #[arg(value_name = "ALLOCATION", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `alloc signal`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SignalArgs {
    /// Signal to send
    #[arg(short = 's', value_name = "SIGNAL", default_value = "SIGKILL")]
    signal: String,
    /// Send the signal to this task only, instead of to all tasks
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Allocation id or prefix, and optionally a task
    #[arg(value_name = "ALLOCATION", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `alloc pause`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PauseArgs {
    /// State to set: pause, run or scheduled
    #[arg(long, value_name = "STATE", default_value = "pause")]
    state: String,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Task to change
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Allocation id or prefix, and optionally a task
    #[arg(value_name = "ALLOCATION", num_args = 0..)]
    args: Vec<String>,
}

/// Returns the allocation with this id or unique prefix.
pub(crate) async fn stub_of(ctx: &Ctx, supplied: &str) -> Result<AllocListStub, CliError> {
    resolve::alloc(ctx, supplied).await
}

/// Runs `alloc checks`.
pub(crate) async fn checks(ctx: &Ctx, args: &ChecksArgs) -> Outcome {
    let supplied = one(&args.args, "This command takes one argument: <alloc-id>")?;
    let alloc = stub_of(ctx, supplied).await?;
    let checks = ctx.client.on_node().checks(alloc.id.as_str(), &ctx.query()).await;
    let checks = checks.doing("Error querying allocation health checks")?.value;
    if args.json {
        ctx.out.line(&json(&checks)?);
        return Ok(0);
    }
    let clock = ctx.clock();
    ctx.out.line(&format!("Status of {} Nomad Service Checks\n", checks.len()));
    for check in checks.values() {
        ctx.out.line(&format!("{}\n", shown(&clock, check)));
    }
    Ok(0)
}

fn shown(clock: &Clock, check: &CheckResult) -> String {
    let task = if check.task.is_empty() { "(group)" } else { &check.task };
    let code = (check.status_code != 0).then(|| check.status_code.to_string());
    let at = UnixNanos(check.timestamp.saturating_mul(1_000_000_000));
    let pairs = [
        ("ID", Some(check.id.clone())),
        ("Name", Some(check.check.clone())),
        ("Group", Some(check.group.clone())),
        ("Task", Some(task.to_owned())),
        ("Service", Some(check.service.clone())),
        ("Status", Some(check.status.as_str().to_owned())),
        ("StatusCode", code),
        ("Mode", Some(check.mode.clone())),
        ("Timestamp", Some(clock.time(at))),
        ("Output", Some(check.output.clone())),
    ];
    let rows =
        pairs.into_iter().filter_map(|(key, value)| Some(vec![key.to_owned(), "=".to_owned(), value?]));
    let table = Table::default().keep_empty().rows(rows);
    table.render()
}

/// Returns the table of health checks that `alloc status` shows.
pub(crate) fn table<'a>(checks: impl Iterator<Item = &'a CheckResult>) -> Table {
    let row = |check: &CheckResult| {
        let task = if check.task.is_empty() { "(group)" } else { &check.task };
        vec![
            check.service.clone(),
            task.to_owned(),
            check.check.clone(),
            check.mode.clone(),
            check.status.as_str().to_owned(),
        ]
    };
    Table::new(&["Service", "Task", "Name", "Mode", "Status"]).rows(checks.map(row))
}

/// Runs `alloc signal`.
pub(crate) async fn signal(ctx: &Ctx, args: &SignalArgs) -> Outcome {
    let (id, task) = meant(ctx, &args.args, args.task.as_deref()).await?;
    let answer = ctx.client.on_node().signal(&id, &task, &args.signal, &ctx.query()).await;
    answer.doing("Error signalling allocation")?;
    Ok(0)
}

/// Runs `alloc pause`.
pub(crate) async fn pause(ctx: &Ctx, args: &PauseArgs) -> Outcome {
    let (id, task) = meant(ctx, &args.args, args.task.as_deref()).await?;
    let answer = ctx.client.on_node().pause(&id, &task, &args.state, &ctx.query()).await;
    answer.doing("Error setting pause state")?;
    Ok(0)
}

async fn meant(ctx: &Ctx, args: &[String], task: Option<&str>) -> Result<(String, String), CliError> {
    let (supplied, task) = match args {
        [supplied] => (supplied, task.unwrap_or_default().to_owned()),
        [supplied, task] => (supplied, task.clone()),
        _ => return Err(wrong_count(args, 2, "This command takes up to two arguments: <alloc-id> <task>")),
    };
    let stub = stub_of(ctx, supplied).await?;
    if !task.is_empty() {
        let alloc = ctx.client.allocations().info(stub.id.as_str(), &ctx.query()).await;
        check_task(&alloc.doing("Error querying allocation")?.value, &task)?;
    }
    Ok((stub.id.to_string(), task))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::service::CheckStatus;

    #[test]
    fn a_check_is_shown_in_three_columns() {
        let check = CheckResult {
            id: "cddc".into(),
            mode: "healthiness".into(),
            status: CheckStatus::Success,
            status_code: 200,
            output: "nomad: http ok".into(),
            timestamp: 1_795_252_986,
            group: "web.web[2]".into(),
            service: "web-http".into(),
            check: "service: \"web-http\" check".into(),
            ..CheckResult::default()
        };
        let text = shown(&Clock::read(), &check);
        assert!(
            text.starts_with("ID          =  cddc\nName        =  service: \"web-http\" check\n"),
            "{text}"
        );
        assert!(
            text.contains("\nTask        =  (group)\n") && text.contains("\nStatusCode  =  200\n"),
            "{text}"
        );
    }
}
