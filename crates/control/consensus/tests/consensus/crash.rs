//! A child process proposes in a loop and is repeatedly killed with SIGKILL. Every acknowledged command
//! must be in the log afterwards, exactly once.

use crate::{Server, small};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const DIR: &str = "CARAVAN_TEST_CONSENSUS_DIR";
const ROUND: &str = "CARAVAN_TEST_CONSENSUS_ROUND";

/// Runs the body of the child process, which is not a separate test. Returns immediately without the variable.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let round = std::env::var(ROUND).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Server::start(small(dir.as_ref())).await.unwrap();
        let proposers = (0..4).map(|proposer| {
            let (handle, round) = (server.handle.clone(), round.clone());
            tokio::spawn(async move {
                for n in 0u64.. {
                    let value = format!("{round}/{proposer}/{n}");
                    handle.propose(value.clone().into_bytes()).await.unwrap();
                    // One write per line, so that a line is either complete or missing.
                    std::io::stdout().write_all(format!("acked {value}\n").as_bytes()).unwrap();
                }
            })
        });
        futures::future::join_all(proposers).await;
    });
}

#[tokio::test]
async fn no_acknowledged_command_is_lost_by_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut acked = BTreeSet::new();
    for (round, expected) in [1, 7, 40, 3, 150, 19, 400, 60].into_iter().enumerate() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen < expected {
            let line = lines.next().expect("the child ended by itself").unwrap();
            seen += usize::from(note(&mut acked, &line));
        }
        child.kill().unwrap();
        // Lines written before the kill count as well.
        for line in lines {
            note(&mut acked, &line.unwrap());
        }
        child.wait().unwrap();

        let server = Server::start(small(dir.path())).await.unwrap();
        let values = server.journal.values();
        let found: BTreeSet<String> = values.iter().cloned().collect();
        assert_eq!(found.len(), values.len(), "a command was applied twice in round {round}");
        let lost: Vec<_> = acked.difference(&found).collect();
        assert!(lost.is_empty(), "lost in round {round}: {lost:?}");
        server.stop().await;
    }
}

fn note(acked: &mut BTreeSet<String>, line: &str) -> bool {
    // The test harness prints the name of the test before the first line.
    match line.split_once("acked ") {
        Some((_, value)) => acked.insert(value.to_owned()),
        None => false,
    }
}
