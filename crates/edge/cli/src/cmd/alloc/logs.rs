//! `alloc logs`

use crate::cmd::wrong_count;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::resolve;
use caravan_sdk::{LogOptions, LogSource, LogStart};
use caravan_types::alloc::{AllocListStub, Allocation, ClientStatus};

/// Flags of `alloc logs`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LogsArgs {
    /// Follow the log as the task writes
    #[arg(short = 'f')]
    follow: bool,
    /// Show standard error
    #[arg(long)]
    stderr: bool,
    /// Show standard output (the default; with -f both streams)
    #[arg(long)]
    stdout: bool,
    /// Show the end of the log
    #[arg(long)]
    tail: bool,
    /// With -tail: number of lines to show [default: 10]
    #[arg(short = 'n', value_name = "LINES")]
    lines: Option<usize>,
    /// With -tail: number of bytes to show
    #[arg(short = 'c', value_name = "BYTES")]
    bytes: Option<u64>,
    /// Task whose log to show
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Take the argument as a job and use one of its allocations
    #[arg(long)]
    job: bool,
    /// With -job: use an allocation of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Allocation or job, and a task
    #[arg(value_name = "ALLOCATION", num_args = 0..)]
    args: Vec<String>,
}

/// The number of lines that `-tail` shows by default.
const LINES: usize = 10;
/// The first guess of how many bytes hold the last lines.
const WINDOW: u64 = 64 * 1024;

pub(crate) async fn run(ctx: &Ctx, args: &LogsArgs) -> Outcome {
    let (supplied, task) = match args.args.as_slice() {
        [supplied] => (supplied.as_str(), args.task.as_deref()),
        [supplied, task] => (supplied.as_str(), Some(task.as_str())),
        _ => {
            return Err(wrong_count(
                &args.args,
                2,
                "This command takes one or two arguments: <allocation> <task>",
            ));
        }
    };
    let id = if args.job {
        of_job(ctx, supplied, args.group.as_deref()).await?
    } else {
        resolve::alloc(ctx, supplied).await?.id
    };
    let alloc = ctx
        .client
        .allocations()
        .info(id.as_str(), &ctx.query())
        .await
        .doing("Error querying allocation")?
        .value;
    let task = choose(&alloc, task)?;
    let sources: &[LogSource] = match (args.stdout, args.stderr) {
        (false, true) => &[LogSource::Stderr],
        (true, true) => &[LogSource::Stdout, LogSource::Stderr],
        (false, false) if args.follow => &[LogSource::Stdout, LogSource::Stderr],
        _ => &[LogSource::Stdout],
    };
    match sources {
        [one] => show(ctx, args, id.as_str(), &task, *one).await?,
        _ => {
            let first = Box::pin(show(ctx, args, id.as_str(), &task, LogSource::Stdout));
            let second = Box::pin(show(ctx, args, id.as_str(), &task, LogSource::Stderr));
            futures::future::try_join(first, second).await?;
        }
    }
    Ok(0)
}

/// Returns the newest running allocation of a job, or its newest allocation if none runs.
pub(crate) async fn of_job(
    ctx: &Ctx,
    supplied: &str,
    group: Option<&str>,
) -> Result<caravan_types::AllocId, CliError> {
    let job = resolve::job(ctx, supplied).await?;
    let query = ctx.query().namespace(job.namespace.as_str());
    let allocs = ctx
        .client
        .jobs()
        .allocations(job.id.as_str(), false, &query)
        .await
        .doing("Error querying job allocations")?
        .value;
    newest(&allocs, group).map(|alloc| alloc.id.clone()).ok_or_else(|| {
        CliError::failed(match group {
            Some(group) => format!("Job \"{}\" has no allocation of group \"{group}\"", job.id),
            None => format!("Job \"{}\" has no allocation", job.id),
        })
    })
}

fn newest<'a>(allocs: &'a [AllocListStub], group: Option<&str>) -> Option<&'a AllocListStub> {
    allocs
        .iter()
        .filter(|alloc| group.is_none_or(|group| alloc.task_group == group))
        .max_by_key(|alloc| (alloc.client_status == ClientStatus::Running, alloc.create_index))
}

/// Returns the named task, or the allocation's only task if `given` is absent.
pub(crate) fn choose(alloc: &Allocation, supplied: Option<&str>) -> Result<String, CliError> {
    if let Some(task) = supplied {
        return Ok(task.to_owned());
    }
    let mut tasks: Vec<String> = match alloc.group() {
        Some(group) => group.tasks.iter().map(|task| task.name.clone()).collect(),
        None => alloc.task_states.keys().cloned().collect(),
    };
    if tasks.len() == 1 {
        return Ok(tasks.remove(0));
    }
    Err(CliError::failed(format!(
        "Allocation \"{}\" is running the following tasks:\n  * {}\n\nPlease specify the task.",
        alloc.id.short(),
        tasks.join("\n  * ")
    )))
}

async fn show(ctx: &Ctx, args: &LogsArgs, id: &str, task: &str, source: LogSource) -> Result<(), CliError> {
    let options = |start, follow| LogOptions { task: task.to_owned(), source, start, follow };
    let start = if !args.tail {
        LogStart::Start(0)
    } else if let Some(bytes) = args.bytes {
        LogStart::End(bytes)
    } else {
        let text = last_lines(ctx, id, &options, source, args.lines.unwrap_or(LINES)).await?;
        if !args.follow {
            write(ctx, args, source, &text);
            return Ok(());
        }
        LogStart::End(text.len() as u64)
    };
    let mut logs = open(ctx, id, &options(start, args.follow), source).await?;
    while let Some(frame) = logs.next().await.doing(reading(source))? {
        if frame.file_event == "file deleted" {
            ctx.out.note(&format!("{} was deleted", frame.file));
        }
        write(ctx, args, source, &frame.data);
    }
    Ok(())
}

/// Reads backwards from the end in growing windows until `lines` lines are found or the log begins.
async fn last_lines(
    ctx: &Ctx,
    id: &str,
    options: &impl Fn(LogStart, bool) -> LogOptions,
    source: LogSource,
    lines: usize,
) -> Result<Vec<u8>, CliError> {
    let mut window = WINDOW;
    loop {
        let mut logs = open(ctx, id, &options(LogStart::End(window), false), source).await?;
        let mut text = Vec::new();
        while let Some(frame) = logs.next().await.doing(reading(source))? {
            text.extend(frame.data);
        }
        let whole = (text.len() as u64) < window;
        let kept = tail(&text, lines);
        if whole || kept.len() < text.len() {
            return Ok(kept.to_vec());
        }
        window = window.saturating_mul(4);
    }
}

/// Returns the last lines of a text. The final line may lack its newline.
pub(crate) fn tail(text: &[u8], lines: usize) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let cut = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    match lines {
        0 => &[],
        lines => cut.clone().nth(lines - 1).map_or(text, |at| &text[at..]),
    }
}

async fn open(
    ctx: &Ctx,
    id: &str,
    options: &LogOptions,
    source: LogSource,
) -> Result<caravan_sdk::LogStream, CliError> {
    ctx.client
        .allocations()
        .logs(id, options, &ctx.query())
        .await
        .doing(format!("{}: error reading file", reading(source)))
}

fn reading(source: LogSource) -> String {
    format!("Failed to read {} file", source.as_str())
}

/// Writes log data. With both streams, each goes to its own output, as if the task ran here. A single stream is what
/// the user asked for, so it goes to standard output.
fn write(ctx: &Ctx, args: &LogsArgs, source: LogSource, data: &[u8]) {
    match source {
        LogSource::Stderr if args.stderr == args.stdout => ctx.out.raw_note(data),
        _ => ctx.out.raw(data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_cut_off() {
        let text = b"one\ntwo\nthree\n";
        assert_eq!(tail(text, 2), b"two\nthree\n");
        assert_eq!(tail(text, 9), text);
        assert_eq!(tail(b"one\ntwo", 1), b"two");
        assert_eq!(tail(text, 0), b"");
        assert_eq!(tail(b"", 3), b"");
    }

    #[test]
    fn a_running_allocation_is_preferred_to_a_newer_one() {
        let alloc = |id: &str, status, index| AllocListStub {
            id: id.into(),
            client_status: status,
            create_index: index,
            task_group: "g".into(),
            ..Default::default()
        };
        let allocs = [alloc("a", ClientStatus::Running, 1), alloc("b", ClientStatus::Failed, 2)];
        assert_eq!(newest(&allocs, None).unwrap().id, "a");
        assert_eq!(newest(&allocs[1..], Some("g")).unwrap().id, "b");
        assert!(newest(&allocs, Some("other")).is_none());
    }

    #[test]
    fn the_only_task_needs_no_name() {
        let mut alloc = Allocation::default();
        alloc.task_states.insert("t".into(), Default::default());
        assert_eq!(choose(&alloc, None).unwrap(), "t");
        alloc.task_states.insert("u".into(), Default::default());
        assert!(choose(&alloc, None).unwrap_err().to_string().contains("  * t\n  * u"));
        assert_eq!(choose(&alloc, Some("u")).unwrap(), "u");
    }
}
