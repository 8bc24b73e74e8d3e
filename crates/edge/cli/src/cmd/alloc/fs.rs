//! `alloc fs`

use super::logs::{of_job, tail};
use crate::cmd::alloc::checks::stub_of;
use crate::cmd::wrong_count;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use crate::format::{Clock, bytes};
use crate::table::Table;
use caravan_sdk::AllocFile;

/// Flags of `alloc fs`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FsArgs {
    /// Show sizes in bytes
    #[arg(short = 'H')]
    machine: bool,
    /// Show full ids
    #[arg(long)]
    verbose: bool,
    /// Take the argument as a job and use one of its allocations
    #[arg(long)]
    job: bool,
    /// With -job: use an allocation of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Show a file's metadata instead of its content
    #[arg(long)]
    stat: bool,
    /// Follow the file as it grows
    #[arg(short = 'f')]
    follow: bool,
    /// Show the end of the file
    #[arg(long)]
    tail: bool,
    /// With -tail: number of lines to show [default: 10]
    #[arg(short = 'n', value_name = "LINES")]
    lines: Option<usize>,
    /// With -tail: number of bytes to show
    #[arg(short = 'c', value_name = "BYTES")]
    bytes: Option<u64>,
    /// Allocation or job, and a path
    #[arg(value_name = "ALLOCATION", num_args = 0..)]
    args: Vec<String>,
}

/// The number of lines that `-tail` shows by default.
const LINES: usize = 10;
/// The first guess of how many bytes hold the last lines.
const WINDOW: u64 = 64 * 1024;

pub(crate) async fn run(ctx: &Ctx, args: &FsArgs) -> Outcome {
    let (supplied, path) = match args.args.as_slice() {
        [supplied] => (supplied, "/"),
        [supplied, path] => (supplied, path.as_str()),
        _ => {
            return Err(wrong_count(
                &args.args,
                2,
                "This command takes one or two arguments: <allocation> <path>",
            ));
        }
    };
    let id = match args.job {
        true => of_job(ctx, supplied, args.group.as_deref()).await?,
        false => stub_of(ctx, supplied).await?.id,
    };
    let node = ctx.client.on_node();
    let reported = |error: caravan_sdk::Error| CliError::failed(error.to_string());
    let file = node.stat(id.as_str(), path, &ctx.query()).await.map_err(reported)?.value;
    if args.stat {
        ctx.out.line(&stat_table(&ctx.clock(), &file, args.machine));
        return Ok(0);
    }
    if file.is_dir {
        let files = node.list(id.as_str(), path, &ctx.query()).await.map_err(reported)?.value;
        ctx.out.line(&list(&ctx.clock(), &files, args.machine));
        return Ok(0);
    }
    if !args.tail && !args.follow {
        node.cat(id.as_str(), path, &ctx.query(), |data| ctx.out.raw(data))
            .await
            .doing("Error reading file")?;
        return Ok(0);
    }
    let from = match (args.tail, args.bytes) {
        (false, _) => (false, 0),
        (true, Some(bytes)) => (true, bytes),
        (true, None) => {
            let text = last_lines(ctx, id.as_str(), path, args.lines.unwrap_or(LINES)).await?;
            if !args.follow {
                ctx.out.raw(&text);
                return Ok(0);
            }
            (true, text.len() as u64)
        }
    };
    let frames = node.stream(id.as_str(), path, from, args.follow, &ctx.query()).await;
    let mut frames = frames.doing("Error tailing file")?;
    while let Some(frame) = frames.next().await.doing("Error reading file")? {
        if !frame.file_event.is_empty() {
            ctx.out.note(&format!("caravan: FileEvent: {}", frame.file_event));
        }
        ctx.out.raw(&frame.data);
    }
    Ok(0)
}

/// Reads backwards from the end in growing windows until `lines` lines are found or the file begins.
async fn last_lines(ctx: &Ctx, id: &str, path: &str, lines: usize) -> Result<Vec<u8>, CliError> {
    let mut window = WINDOW;
    loop {
        let frames = ctx.client.on_node().stream(id, path, (true, window), false, &ctx.query()).await;
        let mut frames = frames.doing("Error tailing file")?;
        let mut text = Vec::new();
        while let Some(frame) = frames.next().await.doing("Error reading file")? {
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

fn size(file: &AllocFile, machine: bool) -> String {
    if machine { file.size.to_string() } else { bytes(file.size) }
}

fn stat_table(clock: &Clock, file: &AllocFile, machine: bool) -> String {
    let row = vec![
        file.file_mode.clone(),
        size(file, machine),
        clock.time(file.mod_time.to_unix()),
        file.content_type.clone(),
        named(file),
    ];
    Table::new(&["Mode", "Size", "Modified Time", "Content Type", "Name"]).rows([row]).render()
}

fn list(clock: &Clock, files: &[AllocFile], machine: bool) -> String {
    let row = |file: &AllocFile| {
        vec![file.file_mode.clone(), size(file, machine), clock.time(file.mod_time.to_unix()), named(file)]
    };
    Table::new(&["Mode", "Size", "Modified Time", "Name"]).rows(files.iter().map(row)).render()
}

fn named(file: &AllocFile) -> String {
    if file.is_dir { format!("{}/", file.name) } else { file.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::time::Time;

    #[test]
    fn directories_end_in_a_slash() {
        let file = |name: &str, is_dir, size| AllocFile {
            name: name.into(),
            is_dir,
            size,
            file_mode: if is_dir { "drwxrwxrwx".into() } else { "-rw-r--r--".into() },
            mod_time: Time(1_795_252_980_000_000_000),
            content_type: "text/plain; charset=utf-8".into(),
        };
        let clock = Clock::read();
        let text = list(&clock, &[file("alloc", true, 4096), file("words.txt", false, 17)], false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("Mode        Size     Modified Time"), "{text}");
        assert!(lines[1].contains("4.0 KiB") && lines[1].ends_with("alloc/"), "{text}");
        assert!(lines[2].contains("17 B") && lines[2].ends_with("words.txt"), "{text}");
        assert!(list(&clock, &[file("a", false, 50)], true).contains("  50  "));
        assert!(stat_table(&clock, &file("a", false, 1), false).contains("Content Type"));
    }
}
