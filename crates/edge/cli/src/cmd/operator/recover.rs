//! `operator raft recover`: founds a new cluster whose only member is the server in a data directory. This recovers a
//! cluster whose other servers were lost permanently.

use super::at_rest::log_dir;
use crate::ctx::Ctx;
use crate::error::{CliError, Outcome};
use crate::table::Pairs;
use caravan_consensus::{ClusterId, ServerId, Survivor, recover_alone, survivor};
use std::path::{Path, PathBuf};

/// Flags of `operator raft recover`.
#[derive(Debug, clap::Args)]
pub(crate) struct RecoverArgs {
    /// Data directory of the stopped agent that goes on alone
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    data_dir: String,
    /// Data directory of another stopped server, or a copy, whose log must not be newer; may be repeated
    #[arg(long, value_name = "DIR")]
    compare: Vec<String>,
    /// Recover although another log is or may be newer: entries that only the other log has are lost
    #[arg(long)]
    lose_newer: bool,
    /// Skip the confirmation prompt
    #[arg(long, short = 'y')]
    yes: bool,
}

/// A stopped server and its directory.
struct Stopped {
    path: String,
    dir: PathBuf,
    known: Survivor,
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("Error recovering the cluster: {error}"))
}

fn read(path: &str) -> Result<Stopped, CliError> {
    let dir = log_dir(Path::new(path)).map_err(failed)?;
    let known = survivor(&dir).map_err(|error| failed(caravan_sys::describe(&error)))?;
    Ok(Stopped { path: path.to_owned(), dir, known })
}

/// Recovers the cluster with one server.
pub(crate) fn run(ctx: &Ctx, args: &RecoverArgs) -> Outcome {
    if args.data_dir.is_empty() {
        return Err(CliError::Usage("The data directory of a stopped server is missing: -data-dir".into()));
    }
    let own = read(&args.data_dir)?;
    let number = own.known.identity.number.filter(|number| own.known.members.contains_key(number));
    let Some(number) = number else {
        return Err(failed(format!(
            "the server in {} was never a member of a cluster, so it has nothing to go on with",
            own.path
        )));
    };
    let others: Vec<Stopped> = args.compare.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    ctx.out.line(&described(&own, number, &others));
    let newer = newer(&own, number, &others);
    if let (Some(reason), false) = (&newer, args.lose_newer) {
        return Err(failed(format!(
            "{reason}. To recover with this server all the same, and to lose what only the newer log has, use -lose-newer"
        )));
    }
    let cluster = ClusterId(uuid::Uuid::new_v4());
    ctx.out.line(&format!("\n{}", consequences(&own, number, &others, newer.as_deref(), cluster)));
    if !args.yes && !ctx.out.ask("\nRecover the cluster with this server alone? [y/N]", &["y", "Y", "yes"]) {
        return Err(CliError::failed("Cancelling the recovery; nothing was changed"));
    }
    recover_alone(&own.dir, cluster).map_err(|error| failed(caravan_sys::describe(&error)))?;
    ctx.out.line(&format!(
        "Recovered: server {number} is the only member of cluster {cluster}. Start its agent, then the other servers \
         with empty data directories."
    ));
    Ok(0)
}

/// Names a server by its name, or by its number in logs that do not name their servers.
fn name(known: &Survivor, number: ServerId) -> String {
    match known.members.get(&number) {
        Some((peer, _)) if !peer.name.is_empty() => peer.name.clone(),
        Some((peer, _)) => format!("server {number} at {}", peer.addr),
        None => format!("server {number}"),
    }
}

fn end(known: &Survivor) -> String {
    match known.last {
        Some((term, index)) => format!("ends with entry {index} of term {term}"),
        None => "is empty".to_owned(),
    }
}

fn described(own: &Stopped, number: ServerId, others: &[Stopped]) -> String {
    let known = &own.known;
    let members = known.members.iter().map(|(number, (_, voter))| {
        format!("{}{}", name(known, *number), if *voter { "" } else { " (does not vote)" })
    });
    let committed = known.committed.map_or_else(String::new, |index| format!(", committed up to {index}"));
    let mut pairs = Pairs::new()
        .pair("Server", format!("{}, number {number}", name(known, number)))
        .pair("Cluster", known.identity.cluster.map_or_else(|| "none".to_owned(), |id| id.to_string()))
        .pair("Log", format!("{}{committed}", end(known)))
        .pair("Members", members.collect::<Vec<_>>().join(", "));
    for other in others {
        pairs = pairs.pair("Compared", format!("{} {}", other.path, end(&other.known)));
    }
    pairs.render()
}

/// Returns why another log is newer, or may be.
fn newer(own: &Stopped, number: ServerId, others: &[Stopped]) -> Option<String> {
    let ahead = others.iter().filter(|other| other.known.last > own.known.last);
    if let Some(other) = ahead.max_by_key(|other| other.known.last) {
        return Some(format!(
            "the log in {} is newer: it {}, while this one {}. Recover with that server instead",
            other.path,
            end(&other.known),
            end(&own.known)
        ));
    }
    let votes = own.known.members.get(&number).is_some_and(|(_, voter)| *voter);
    (!votes).then(|| {
        "this server did not vote, so the servers that did may have acknowledged entries that it does not have"
            .to_owned()
    })
}

fn consequences(
    own: &Stopped,
    number: ServerId,
    others: &[Stopped],
    newer: Option<&str>,
    cluster: ClusterId,
) -> String {
    let known = &own.known;
    let lost: Vec<String> =
        known.members.keys().filter(|other| **other != number).map(|other| name(known, *other)).collect();
    let mut lines = vec![format!(
        "A recovery makes {} the only member, under the new cluster id {cluster}.",
        name(known, number)
    )];
    if !lost.is_empty() {
        lines.push(format!(
            "- Removed: {}. They cannot return with their data: move the directory \"server\" in the data directory of each \
             away before it starts again.",
            lost.join(", ")
        ));
        let index = known.last.map_or(0, |(_, index)| index);
        lines.push(match newer {
            Some(_) => {
                format!("- LOST: entries that a newer log has after entry {index}, although they were acknowledged.")
            }
            None if others.is_empty() => format!(
                "- Lost: entries after {index} that the removed servers acknowledged, if there are any. Compare with \
                 their logs by -compare DIR, or with `caravan operator raft info DIR` on each."
            ),
            None => format!("- The compared logs have no entry after {index}."),
        });
    }
    if let (Some(committed), Some((_, last))) = (known.committed, known.last)
        && committed < last
    {
        lines.push(format!(
            "- Entries {} to {last} take effect, although nobody may have acknowledged them.",
            committed + 1
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_consensus::{Identity, Peer};
    use std::collections::BTreeMap;

    fn stopped(path: &str, last: (u64, u64), votes: bool) -> Stopped {
        let peer = |number: u64| Peer { name: format!("s{number}.global"), ..Peer::at("10.0.0.1:4647") };
        let member = |number: u64| (ServerId(number), (peer(number), votes || number != 1));
        Stopped {
            path: path.to_owned(),
            dir: path.into(),
            known: Survivor {
                identity: Identity { cluster: Some(ClusterId(uuid::Uuid::nil())), number: Some(ServerId(1)) },
                last: Some(last),
                committed: Some(last.1 - 1),
                members: BTreeMap::from([member(1), member(2)]),
            },
        }
    }

    #[test]
    fn a_newer_log_is_named_before_anything_is_lost() {
        let own = stopped("/a", (3, 10), true);
        let [longer, later, older] =
            [("/b", (3, 11)), ("/c", (4, 2)), ("/d", (2, 90))].map(|(path, last)| stopped(path, last, true));
        assert_eq!(newer(&own, ServerId(1), std::slice::from_ref(&older)), None);
        let reason = newer(&own, ServerId(1), &[older, longer, later]).unwrap();
        assert!(reason.starts_with("the log in /c is newer: it ends with entry 2 of term 4"), "{reason}");
        let learner = stopped("/a", (3, 10), false);
        assert!(newer(&learner, ServerId(1), &[]).unwrap().contains("did not vote"));
        let text = consequences(&own, ServerId(1), &[], None, ClusterId(uuid::Uuid::nil()));
        for words in ["Removed: s2.global.", "Lost: entries after 10", "Entries 10 to 10 take effect"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = consequences(&own, ServerId(1), &[], Some("x"), ClusterId(uuid::Uuid::nil()));
        assert!(text.contains("- LOST: entries that a newer log has after entry 10"), "{text}");
    }
}
