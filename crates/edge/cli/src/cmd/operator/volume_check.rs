//! `operator volume-check`: checks all records of volumes and claims, without a running agent.

use crate::cmd::one;
use crate::cmd::operator::at_rest::read;
use crate::ctx::Ctx;
use crate::error::Outcome;
use caravan_state::{check, check_volumes};
use clap::Args;
use std::path::Path;

const USAGE: &str =
    "This command takes one argument: <state snapshot file | data directory of a stopped agent>";
/// The exit status if the check has findings.
const WRONG: u8 = 1;
/// The exit status if no state can be read.
const UNREADABLE: u8 = 2;

/// Flags and arguments of `operator volume-check`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_state::Store;
    use caravan_types::UnixNanos;
    use caravan_types::command::{Change, Command};
    use caravan_types::volume::Volume;

    fn store() -> Store {
        let store = Store::default();
        let volume = Volume {
            namespace: "default".into(),
            id: "data".into(),
            plugin_id: "p".into(),
            ..Volume::default()
        };
        let change =
            Change::VolumeWrite { volume: Box::new(volume), expect_modify_index: 0, exclusive: true };
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
