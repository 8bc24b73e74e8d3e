//! Start, use, stop, and start again.

use crate::{DEADLINE, Journal, Server, small, unlocked};
use caravan_consensus::{Config, Error, Leadership, MAX_COMMAND, ServerId, Start, StateMachine, Timing};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

#[tokio::test]
async fn a_fresh_server_leads_at_once_and_answers() {
    let server = Server::start(Config::memory(ServerId(1))).await.unwrap();
    assert!(server.handle.is_leader());
    assert!(matches!(*server.handle.leadership().borrow(), Leadership::Leader { .. }));
    let applied = server.handle.propose(b"one".to_vec()).await.unwrap();
    assert_eq!(applied.response, b"ok one");
    let next = server.handle.propose(b"two".to_vec()).await.unwrap();
    assert!(next.index > applied.index);
    assert!(server.handle.read_quorum().await.unwrap() >= next.index);
    assert_eq!(server.journal.values(), ["one", "two"]);
    server.stop().await;
}

#[tokio::test]
async fn many_proposals_at_once_are_all_applied_with_their_own_answers() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Config::dir(ServerId(1), "x", dir.path())).await.unwrap();
    let proposals = (0..500).map(|n| {
        let handle = server.handle.clone();
        async move { (n, handle.propose(format!("{n}").into_bytes()).await.unwrap()) }
    });
    for (n, applied) in futures::future::join_all(proposals).await {
        assert_eq!(applied.response, format!("ok {n}").into_bytes());
    }
    assert_eq!(server.journal.values().len(), 500);
    server.stop().await;
}

#[tokio::test]
async fn state_and_indexes_survive_a_restart_with_snapshots_and_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    let mut last = 0;
    for round in 0..4 {
        let server = Server::start(small(dir.path())).await.unwrap();
        assert_eq!(server.journal.values(), expected, "in round {round}");
        for n in 0..33 {
            let value = format!("{round}.{n}");
            let applied = server.handle.propose(value.clone().into_bytes()).await.unwrap();
            assert!(applied.index > last);
            last = applied.index;
            expected.push(value);
        }
        // A snapshot that is due only because of the number of entries may be deferred.
        server.handle.snapshot_now().await.unwrap();
        server.stop().await;
    }
    let server = Server::start(small(dir.path())).await.unwrap();
    let metrics = server.handle.metrics();
    assert!(metrics.snapshot_index.is_some(), "{metrics:?}");
    assert!(metrics.purged_index.is_some(), "{metrics:?}");
    server.stop().await;
    assert_eq!(std::fs::read_dir(dir.path().join("snapshots")).unwrap().count(), 2);
}

/// Damages the newest of two snapshots.
fn damage_newest(dir: &Path) {
    let mut snapshots: Vec<_> =
        std::fs::read_dir(dir.join("snapshots")).unwrap().map(|row| row.unwrap().path()).collect();
    snapshots.sort_by_key(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap();
        name.split_once('-').unwrap().1.parse::<u64>().unwrap()
    });
    let [_, newest] = &snapshots[..] else { panic!("{snapshots:?}") };
    std::fs::write(newest, "damaged").unwrap();
}

#[tokio::test]
async fn a_large_state_is_not_written_for_little_and_the_previous_snapshot_stays_usable() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { snapshot_after_entries: 20, keep_entries: 20, ..small(dir.path()) };
    let server = Server::start(config.clone()).await.unwrap();
    let mut expected = vec!["x".repeat(64 * 1024)];
    server.handle.propose(expected[0].clone().into_bytes()).await.unwrap();
    server.handle.snapshot_now().await.unwrap();
    let mut covered = std::collections::BTreeSet::new();
    for n in 0..600 {
        server.handle.propose(n.to_string().into_bytes()).await.unwrap();
        expected.push(n.to_string());
        covered.extend(server.handle.metrics().snapshot_index);
    }
    // A snapshot is written after 140 to 160 entries, concurrently with the proposals.
    assert!((2..=6).contains(&covered.len()), "{covered:?}");
    // A caller that requests a snapshot gets a new one.
    let newest = server.handle.snapshot_now().await.unwrap();
    assert!(newest > 600, "{newest}");
    let purged = server.handle.metrics().purged_index.expect("the log was shortened");
    assert!(Some(&purged) < covered.last(), "{purged} {covered:?}");
    server.stop().await;

    damage_newest(dir.path());
    let server = Server::start(config).await.unwrap();
    assert!(server.journal.values() == expected, "{} of {}", server.journal.values().len(), expected.len());
    server.stop().await;
}

#[tokio::test]
async fn few_large_commands_shorten_the_log_and_the_previous_snapshot_stays_usable() {
    let dir = tempfile::tempdir().unwrap();
    let few = 10_000;
    let config = Config {
        snapshot_after_entries: few,
        keep_entries: few,
        snapshot_after_bytes: 16 * 1024,
        ..small(dir.path())
    };
    let server = Server::start(config.clone()).await.unwrap();
    let mut expected = Vec::new();
    let began = Instant::now();
    // Snapshots are written concurrently with the proposals, so more than two may be due meanwhile.
    while server.handle.metrics().purged_index.is_none() {
        assert!(began.elapsed() < DEADLINE, "nothing was removed: {:?}", server.handle.metrics());
        let value = format!("{:04096}", expected.len());
        server.handle.propose(value.clone().into_bytes()).await.unwrap();
        expected.push(value);
    }
    let metrics = server.handle.metrics();
    assert!(metrics.purged_index < metrics.snapshot_index, "{metrics:?}");
    server.stop().await;

    damage_newest(dir.path());
    let server = Server::start(config).await.unwrap();
    assert!(server.journal.values() == expected, "{} of {}", server.journal.values().len(), expected.len());
    server.stop().await;
}

#[tokio::test]
async fn a_server_at_rest_is_read_without_starting_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(small(dir.path())).await.unwrap();
    let mut expected = std::collections::BTreeMap::new();
    for n in 0..33 {
        let value = n.to_string().into_bytes();
        expected.insert(server.handle.propose(value.clone()).await.unwrap().index, value);
    }
    let error = caravan_consensus::at_rest(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    server.wait_for_snapshot().await;
    server.stop().await;

    let rest = unlocked(async || caravan_consensus::at_rest(dir.path())).await.unwrap();
    let mut journal = Journal::default();
    journal.restore(&rest.snapshot.expect("there was one")).unwrap();
    assert!(!journal.values().is_empty() && !rest.commands.is_empty());
    for (index, command) in rest.commands {
        journal.apply(index, &command, None).unwrap();
    }
    assert_eq!(*journal.0.lock().unwrap(), expected);
    // Entry by entry, including entries that a snapshot covers.
    let log = unlocked(async || caravan_consensus::log_at_rest(dir.path())).await.unwrap();
    assert!(log.snapshot.is_some() && log.purged < log.snapshot, "{log:?}");
    assert!(log.entries.is_sorted_by_key(|entry| entry.index) && log.entries.iter().all(|e| e.term > 0));
    let last = log.entries.iter().rev().find_map(|entry| match &entry.kind {
        caravan_consensus::EntryKind::Command(bytes) => Some(bytes.to_vec()),
        _ => None,
    });
    assert_eq!(last, expected.values().next_back().cloned());
    // Snapshot files are read as well, and other files are recognized.
    let newest = std::fs::read_dir(dir.path().join("snapshots")).unwrap().next().unwrap().unwrap().path();
    let payload = caravan_consensus::snapshot_payload(std::fs::read(newest).unwrap().into()).unwrap();
    assert!(payload.is_some_and(|payload| !payload.is_empty()));
    assert_eq!(caravan_consensus::snapshot_payload("something else".into()).unwrap(), None);
    let nothing = tempfile::tempdir().unwrap();
    assert!(matches!(caravan_consensus::at_rest(nothing.path()), Err(Error::DataDir { .. })));
}

#[tokio::test]
async fn a_snapshot_on_demand_covers_what_was_proposed() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { keep_entries: 0, ..Config::dir(ServerId(1), "x", dir.path()) };
    let server = Server::start(config.clone()).await.unwrap();
    let applied = server.handle.propose(b"kept".to_vec()).await.unwrap();
    assert!(server.handle.snapshot_now().await.unwrap() >= applied.index);
    let again = server.handle.snapshot_now().await.unwrap();
    assert!(again >= applied.index);
    server.stop().await;
    let server = Server::start(config).await.unwrap();
    assert_eq!(server.journal.values(), ["kept"]);
    server.stop().await;
}

#[tokio::test]
async fn after_the_end_every_call_says_so() {
    let server = Server::start(Config::memory(ServerId(1))).await.unwrap();
    let handle = server.handle.clone();
    handle.shutdown().await;
    server.service.await.unwrap().unwrap();
    assert!(matches!(handle.propose(Vec::new()).await, Err(Error::Stopped)));
    assert!(matches!(handle.read_quorum().await, Err(Error::Stopped)));
    assert!(matches!(handle.snapshot_now().await, Err(Error::Stopped)));
    assert_eq!(*handle.leadership().borrow(), Leadership::Unknown);
}

#[tokio::test]
async fn a_command_that_panics_ends_the_service_with_an_error() {
    let server = Server::start(Config::memory(ServerId(1))).await.unwrap();
    let error = server.handle.propose(b"panic".to_vec()).await.unwrap_err();
    assert!(matches!(error, Error::Fatal { .. }), "{error}");
    assert!(matches!(server.service.await.unwrap(), Err(Error::Fatal { .. })));
}

#[tokio::test]
async fn a_committed_command_that_cannot_be_read_is_fatal_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(small(dir.path())).await.unwrap();
    let error = server.handle.propose(b"unreadable".to_vec()).await.unwrap_err();
    assert!(matches!(error, Error::Fatal { .. }), "{error}");
    let Err(Error::Fatal { source }) = server.service.await.unwrap() else { panic!("it went on") };
    assert!(source.to_string().contains("it needs a newer version"), "{source}");
    let Err(Error::Fatal { source }) = Server::start(small(dir.path())).await else { panic!("it started") };
    assert!(source.to_string().contains("it needs a newer version"), "{source}");
}

#[tokio::test]
async fn a_command_that_is_too_large_is_refused() {
    let server = Server::start(Config::memory(ServerId(1))).await.unwrap();
    let error = server.handle.propose(vec![0; MAX_COMMAND + 1]).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert!(server.journal.values().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn files_are_for_the_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("server/raft");
    let server = Server::start(small(&dir)).await.unwrap();
    server.handle.propose(b"x".to_vec()).await.unwrap();
    server.handle.snapshot_now().await.unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(mode(&dir.join("raft.redb")), 0o600);
    assert_eq!(mode(&dir.join("snapshots")), 0o700);
    for file in std::fs::read_dir(dir.join("snapshots")).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(small(dir.path())).await.unwrap();
    let Err(error) = Server::try_start(small(dir.path())).await else { panic!("it started") };
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn bad_configurations_and_directories_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let refused = async |config: Config| match Server::start(config).await {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    };

    let slow = Config { timing: Timing { multiplier: 11 }, ..Config::memory(ServerId(1)) };
    assert!(refused(slow).await.to_string().contains("raft_multiplier"));

    let never = Config { snapshot_after_entries: 0, ..Config::memory(ServerId(1)) };
    assert!(refused(never).await.to_string().contains("snapshot_after_entries"));
    let never = Config { snapshot_after_bytes: 0, ..Config::memory(ServerId(1)) };
    assert!(refused(never).await.to_string().contains("snapshot_after_bytes"));

    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let below_a_file = refused(small(&file.join("raft"))).await;
    assert!(matches!(below_a_file, Error::DataDir { .. }), "{below_a_file}");

    let data = dir.path().join("data");
    Server::start(small(&data)).await.unwrap().stop().await;
    // The directory has a record of the number.
    let other = Server::start(Config { start: Start::Alone(ServerId(7)), ..small(&data) }).await.unwrap();
    assert_eq!(other.handle.identity().number, Some(ServerId(1)));
    other.stop().await;

    std::fs::write(data.join("raft.redb"), b"this is not a log").unwrap();
    let damaged = refused(small(&data)).await;
    assert!(matches!(damaged, Error::Log { .. }), "{damaged}");
}

#[tokio::test]
async fn the_machine_is_handed_what_was_proposed_here() {
    let server = Server::start(Config::memory(ServerId(1))).await.unwrap();
    let command = b"known".to_vec();
    let applied = server.handle.propose_known(command.clone(), Box::new(command)).await.unwrap();
    assert_eq!(applied.response, b"ok known");
    server.stop().await;
}
