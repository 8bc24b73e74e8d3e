//! `operator volume-check`: everything that is wrong with the records of volumes, without an agent.

use crate::cmd::one;
use crate::ctx::Ctx;
use crate::error::Outcome;
use bytes::Bytes;
use caravan_state::{Root, SnapshotError, Store, check, check_volumes};
use caravan_types::command::Command;
use clap::Args;
use std::path::{Path, PathBuf};

const USAGE: &str =
    "This command takes one argument: <state snapshot file | data directory of a stopped agent>";
/// Exit status when something is wrong.
const WRONG: u8 = 1;
/// Exit status when there is nothing to check.
const UNREADABLE: u8 = 2;

/// Flags and arguments.
#[derive(Debug, Args)]
#[command(after_help = "Prints each dangling reference and each broken rule on a line.\n\
                        Exit status: 0 all is sound, 1 something is wrong, 2 the input cannot be read.")]
pub(crate) struct VolumeCheckArgs {
    /// Show the findings as JSON
    #[arg(long)]
    json: bool,
    /// State snapshot file, or data directory of a stopped agent
    #[arg(value_name = "snapshot file | data directory")]
    args: Vec<String>,
}

/// Why there is nothing to check.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("{} cannot be read: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("there is no server's state in {}: none of {looked} has a raft.redb", path.display())]
    NoState { path: PathBuf, looked: String },
    #[error("{}", with_sources(.0))]
    Log(#[from] caravan_consensus::Error),
    #[error("{}", with_sources(.0))]
    Snapshot(#[from] SnapshotError),
    #[error("the command at index {index} cannot be read: {source}")]
    Command { index: u64, source: rmp_serde::decode::Error },
}

/// An error with what is beneath it; nobody else would say it.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(source) = inner {
        text.push_str(": ");
        text.push_str(&source.to_string());
        inner = source.source();
    }
    text
}

/// Runs it.
pub(crate) fn run(ctx: &Ctx, args: &VolumeCheckArgs) -> Outcome {
    let path = Path::new(one(&args.args, USAGE)?);
    let root = match read(path) {
        Ok(root) => root,
        Err(error) => {
            ctx.out.note(&format!("Error reading the state: {error}"));
            return Ok(UNREADABLE);
        }
    };
    let mut wrong = check(&root);
    wrong.extend(check_volumes(&root));
    let (volumes, claims) = (root.volumes().count(), root.claims().filter(|c| c.phase.holds()).count());
    if args.json {
        let report = serde_json::json!({
            "Index": root.index(),
            "Volumes": volumes,
            "Claims": claims,
            "Findings": wrong,
        });
        ctx.out.line(&serde_json::to_string_pretty(&report)?);
    } else if wrong.is_empty() {
        ctx.out.line(&format!("Sound at index {}: {volumes} volumes, {claims} claims", root.index()));
    } else {
        wrong.iter().for_each(|finding| ctx.out.line(finding));
    }
    Ok(if wrong.is_empty() { 0 } else { WRONG })
}

fn read(path: &Path) -> Result<Root, Unreadable> {
    let file = |source| Unreadable::File { path: path.to_owned(), source };
    let store = Store::default();
    if path.is_dir() {
        let rest = caravan_consensus::at_rest(&log_dir(path)?)?;
        if let Some(snapshot) = rest.snapshot {
            store.restore(&snapshot)?;
        }
        for (index, bytes) in rest.commands {
            let command: Command =
                rmp_serde::from_slice(&bytes).map_err(|source| Unreadable::Command { index, source })?;
            store.apply(index, &command);
        }
    } else {
        let bytes = Bytes::from(std::fs::read(path).map_err(file)?);
        let payload = caravan_consensus::snapshot_payload(bytes.clone()).map_err(file)?;
        store.restore(&payload.unwrap_or(bytes))?;
    }
    Ok((*store.snapshot()).clone())
}

/// Where the log lies: in an agent's data directory, in the server's part of it, or here.
fn log_dir(path: &Path) -> Result<PathBuf, Unreadable> {
    let places = [path.join("server/raft"), path.join("raft"), path.to_owned()];
    let found = places.iter().find(|dir| dir.join("raft.redb").is_file());
    found.cloned().ok_or_else(|| Unreadable::NoState {
        path: path.to_owned(),
        looked: places.map(|dir| dir.display().to_string()).join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::UnixNanos;
    use caravan_types::command::Change;
    use caravan_types::volume::Volume;

    fn store() -> Store {
        let store = Store::default();
        let volume = Volume {
            namespace: "default".into(),
            id: "data".into(),
            plugin_id: "p".into(),
            ..Volume::default()
        };
        let change = Change::VolumeWrite { volume: Box::new(volume), expect_modify_index: 0 };
        let outcome = store.apply(7, &Command { now: UnixNanos(1), change });
        assert_eq!(outcome.refused, None);
        store
    }

    #[test]
    fn a_state_snapshot_file_is_read_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.snap");
        std::fs::write(&path, caravan_state::encode(&store().snapshot())).unwrap();
        let root = read(&path).unwrap();
        assert_eq!((root.index(), check(&root), check_volumes(&root)), (7, vec![], vec![]));
    }

    #[test]
    fn what_is_no_state_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("there is no server's state in "), "{error}");
        let path = dir.path().join("file");
        std::fs::write(&path, "something else").unwrap();
        assert_eq!(read(&path).unwrap_err().to_string(), "the data is not a state snapshot");
        let error = read(&dir.path().join("nothing")).unwrap_err().to_string();
        assert!(error.contains("cannot be read: No such file"), "{error}");
    }
}
