//! `operator raft info|logs|state`: reads the replicated log of a stopped server.

use super::at_rest::{Unreadable, command, log_dir, of_log};
use crate::cmd::one;
use crate::ctx::Ctx;
use crate::data::DataArgs;
use crate::error::{CliError, Outcome};
use crate::table::Pairs;
use caravan_consensus::{EntryKind, LogAtRest, LogEntry, log_at_rest};
use caravan_types::command::{Change, Command};
use caravan_types::redact::redact;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const USAGE: &str = "This command takes one argument: <path>";

/// Flags of `operator raft info`.
#[derive(Debug, clap::Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Data directory of a stopped agent, or the directory of its log
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `operator raft logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogsArgs {
    /// Indent each entry over several lines
    #[arg(long)]
    pretty: bool,
    /// Data directory of a stopped agent, or the directory of its log
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

/// Flags of `operator raft state`.
#[derive(Debug, clap::Args)]
pub(crate) struct StateArgs {
    /// Last index to apply; 0 or below: that many before the last
    #[arg(
        long,
        value_name = "INDEX",
        default_value_t = 0,
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    last_index: i64,
    /// Data directory of a stopped agent, or the directory of its log
    #[arg(value_name = "PATH", num_args = 0..)]
    args: Vec<String>,
}

fn failed(error: Unreadable) -> CliError {
    CliError::failed(format!("Error reading the replicated log: {error}"))
}

fn read(path: &str) -> Result<LogAtRest, CliError> {
    let dir = log_dir(Path::new(path)).map_err(failed)?;
    log_at_rest(&dir).map_err(|error| failed(error.into()))
}

/// Shows a summary of the log.
pub(crate) fn info(ctx: &Ctx, args: &InfoArgs) -> Outcome {
    let path = one(&args.args, USAGE)?;
    let log = read(path)?;
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for entry in &log.entries {
        *kinds.entry(kind_of(entry)?.1).or_default() += 1;
    }
    let (first, last) = (log.entries.first(), log.entries.last());
    let index = |entry: Option<&LogEntry>| entry.map_or(0, |entry| entry.index);
    let data = json!({
        "Path": path,
        "Length": log.entries.len(),
        "FirstIndex": index(first),
        "LastIndex": index(last),
        "LastTerm": last.map_or(0, |entry| entry.term),
        "PurgedIndex": log.purged.unwrap_or(0),
        "SnapshotIndex": log.snapshot.unwrap_or(0),
        "CommandTypes": kinds,
    });
    if let Some(shown) = args.data.show(ctx, &data) {
        return shown;
    }
    let none = |index: Option<u64>| index.map_or_else(|| "none".to_owned(), |index| index.to_string());
    let pairs = Pairs::new()
        .pair("Path", path)
        .pair("Length", log.entries.len().to_string())
        .pair("First index", none(first.map(|entry| entry.index)))
        .pair("Last index", none(last.map(|entry| entry.index)))
        .pair("Last term", none(last.map(|entry| entry.term)))
        .pair("Purged index", none(log.purged))
        .pair("Snapshot index", none(log.snapshot));
    ctx.out.line(&pairs.render());
    if !kinds.is_empty() {
        let mut table = crate::table::Table::new(&["Type", "Count"]);
        for (kind, count) in kinds {
            table.row(vec![kind, count.to_string()]);
        }
        ctx.out.line(&format!("\n{}", table.render()));
    }
    Ok(0)
}

/// Prints each entry as JSON.
pub(crate) fn logs(ctx: &Ctx, args: &LogsArgs) -> Outcome {
    let log = read(one(&args.args, USAGE)?)?;
    for entry in &log.entries {
        let render = render(entry)?;
        let text = if args.pretty { serde_json::to_string_pretty(&render)? } else { render.to_string() };
        ctx.out.line(&text);
    }
    Ok(0)
}

/// Prints the state that results from applying the log.
pub(crate) fn state(ctx: &Ctx, args: &StateArgs) -> Outcome {
    let path = one(&args.args, USAGE)?;
    let up_to = match u64::try_from(args.last_index) {
        Ok(0) => None,
        Ok(index) => Some(index),
        Err(_) => {
            let last = read(path)?.entries.last().map_or(0, |entry| entry.index);
            Some(last.saturating_add_signed(args.last_index))
        }
    };
    let root = of_log(Path::new(path), up_to).map_err(failed)?;
    ctx.out.line(&serde_json::to_string_pretty(&caravan_state::dump(&root)?)?);
    Ok(0)
}

/// Returns the type of the entry, and of its command.
fn kind_of(entry: &LogEntry) -> Result<(&'static str, String), CliError> {
    Ok(match &entry.kind {
        EntryKind::Blank => ("LogNoop", "LogNoop".to_owned()),
        EntryKind::Membership(_) => ("LogConfiguration", "LogConfiguration".to_owned()),
        EntryKind::Command(bytes) => {
            ("LogCommand", command(entry.index, bytes).map_err(failed)?.change.kind().to_owned())
        }
    })
}

/// Returns an entry for people, with secrets redacted and snapshots omitted.
fn render(entry: &LogEntry) -> Result<Value, CliError> {
    let (kind, name) = kind_of(entry)?;
    let mut render = json!({"Index": entry.index, "Term": entry.term, "Type": kind});
    match &entry.kind {
        EntryKind::Blank => {}
        EntryKind::Membership(voters) => render["Body"] = json!({"Voters": voters}),
        EntryKind::Command(bytes) => {
            let command = command(entry.index, bytes).map_err(failed)?;
            render["AppendedAt"] = json!(command.now);
            render["CommandType"] = json!(name);
            render["Body"] = body(&command)?;
        }
    }
    Ok(render)
}

fn body(command: &Command) -> Result<Value, CliError> {
    if let Change::Restore { snapshot } = &command.change {
        return Ok(json!({"SnapshotBytes": snapshot.len()}));
    }
    let mut body = match serde_json::to_value(&command.change)? {
        // The only key is the type of the command, which the entry shows already.
        Value::Object(map) if map.len() == 1 => map.into_iter().next().map_or(Value::Null, |(_, body)| body),
        other => other,
    };
    redact(&mut body);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use caravan_types::UnixNanos;
    use caravan_types::packed::Packed as _;
    use caravan_types::sealed::SealedSecrets;
    use caravan_types::variable::{LockUse, Variable, VariableKey};

    fn entry(change: Change) -> LogEntry {
        let command = Command { now: UnixNanos(1), change };
        let bytes = Bytes::from(command.pack().unwrap());
        LogEntry { index: 7, term: 2, kind: EntryKind::Command(bytes) }
    }

    #[test]
    fn entries_are_rendered_without_secrets() {
        let items = SealedSecrets { key: "k".into(), text: "c2VhbGVk".into() };
        let variable = Variable { key: VariableKey::new("default", "app"), items, ..Variable::default() };
        let change = Change::VariableWrite {
            variable: Box::new(variable),
            check_index: None,
            lock: LockUse::default(),
        };
        let shown = render(&entry(change)).unwrap();
        assert_eq!((&shown["CommandType"], &shown["Type"]), (&json!("VariableWrite"), &json!("LogCommand")));
        assert_eq!(shown["Body"]["variable"]["items"], "<redacted>");
        assert!(!shown.to_string().contains("c2VhbGVk"));
        let shown = render(&entry(Change::Restore { snapshot: vec![1, 2, 3] })).unwrap();
        assert_eq!(shown["Body"], json!({"SnapshotBytes": 3}));
        let shown = render(&entry(Change::Noop)).unwrap();
        assert_eq!(shown["Body"], "Noop");
        let shown = render(&LogEntry { index: 1, term: 1, kind: EntryKind::Membership(vec![1]) }).unwrap();
        assert_eq!(shown["Body"]["Voters"], json!([1]));
    }
}
