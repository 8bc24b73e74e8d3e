//! openraft's own test suite over both storages, and tests of the log across restarts, which the suite lacks.

use crate::log::LogStore;
use crate::machine::{Capture, Machine, Meaning};
use crate::raft::{Command, Entry, TypeConfig, Vote};
#[cfg(feature = "simulation")]
use crate::snapshot::SnapshotData;
use crate::snapshot::SnapshotStore;
use crate::{BoxError, Error, StateMachine};
use bytes::Bytes;
use openraft::entry::EntryPayload;
#[cfg(feature = "simulation")]
use openraft::storage::RaftStateMachine;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::testing::log_id;
use openraft::{RaftLogReader, StorageError};
use std::path::Path;
#[cfg(feature = "simulation")]
use std::sync::atomic::Ordering;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A state machine that counts its commands.
#[derive(Debug, Default)]
pub(crate) struct Counter(u64);

impl StateMachine for Counter {
    fn apply(
        &mut self,
        _index: u64,
        _command: &[u8],
        _meaning: Option<Meaning>,
    ) -> Result<Vec<u8>, BoxError> {
        self.0 += 1;
        Ok(self.0.to_le_bytes().to_vec())
    }

    fn snapshot(&self) -> Capture {
        let count = self.0;
        Capture::whole(move || Ok(count.to_le_bytes().to_vec()))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), BoxError> {
        self.0 = u64::from_le_bytes(snapshot.try_into()?);
        Ok(())
    }
}

struct InMemory;

impl StoreBuilder<TypeConfig, LogStore, Machine> for InMemory {
    async fn build(&self) -> Result<((), LogStore, Machine), StorageError<TypeConfig>> {
        let log = LogStore::memory();
        let machine = Machine::new(
            Box::<Counter>::default(),
            log.clone(),
            SnapshotStore::memory(),
            (u64::MAX, u64::MAX),
        );
        Ok(((), log, machine))
    }
}

struct OnDisk;

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path()).unwrap().0;
        let snapshots = SnapshotStore::open(dir.path(), None).unwrap();
        let machine =
            Machine::new(Box::<Counter>::default(), LogStore::memory(), snapshots, (u64::MAX, u64::MAX));
        Ok((dir, log, machine))
    }
}

fn open(dir: &Path) -> Result<(LogStore, CancellationToken), Error> {
    let closed = CancellationToken::new();
    Ok((LogStore::open(dir, closed.clone())?.0, closed))
}

fn entry(index: u64, text: &str) -> Entry {
    let command = Command::new(Bytes::copy_from_slice(text.as_bytes()), None);
    Entry { log_id: log_id::<TypeConfig>(1, 1, index), payload: EntryPayload::Normal(command) }
}

async fn indexes(log: &mut LogStore) -> Vec<u64> {
    let entries = log.try_get_log_entries(..).await.unwrap();
    entries.iter().map(|entry| entry.log_id.index).collect()
}

/// Checks that a reader that saw the state of a snapshot does not see an older state after a restart.
#[cfg(feature = "simulation")]
#[tokio::test]
async fn a_received_snapshot_is_on_disk_before_its_state_is_shown() {
    let disk = crate::sim::VirtualDisk::new();
    let snapshots = SnapshotStore::open_virtual(disk.clone(), None).unwrap();
    let mut machine =
        Machine::new(Box::<Counter>::default(), LogStore::memory(), snapshots, (u64::MAX, u64::MAX));
    let (meta, applied) = (crate::snapshot::tests::meta(7), machine.applied_index());
    let received = || SnapshotData::memory(Bytes::copy_from_slice(&9_u64.to_le_bytes()));
    disk.set_fault(Some(crate::sim::DiskFault::Full));
    machine.install_snapshot(&meta, received()).await.unwrap_err();
    assert_eq!(applied.load(Ordering::SeqCst), 0);
    disk.set_fault(None);
    machine.install_snapshot(&meta, received()).await.unwrap();
    assert_eq!(applied.load(Ordering::SeqCst), 7);
}

#[tokio::test]
async fn the_suite_of_openraft_passes_in_memory() {
    Suite::test_all(InMemory).await.unwrap();
}

#[tokio::test]
async fn the_suite_of_openraft_passes_on_disk() {
    Suite::test_all(OnDisk).await.unwrap();
}

#[tokio::test]
async fn log_and_vote_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let vote = Vote::new(4, 1);
    let (mut log, closed) = open(dir.path()).unwrap();
    log.save_vote(&vote).await.unwrap();
    // More entries than stay in memory, so that a read spans disk and memory.
    log.blocking_append((0..1000).map(|index| entry(index, "x"))).await.unwrap();
    log.truncate_after(Some(log_id::<TypeConfig>(1, 1, 899))).await.unwrap();
    log.purge(log_id::<TypeConfig>(1, 1, 99)).await.unwrap();
    log.blocking_append([entry(900, "again")]).await.unwrap();
    let before = log.try_get_log_entries(..).await.unwrap();
    drop(log);
    closed.cancelled().await;

    let (mut log, _closed) = open(dir.path()).unwrap();
    assert_eq!(log.read_vote().await.unwrap(), Some(vote));
    let state = log.get_log_state().await.unwrap();
    assert_eq!(state.last_purged_log_id, Some(log_id::<TypeConfig>(1, 1, 99)));
    assert_eq!(state.last_log_id, Some(log_id::<TypeConfig>(1, 1, 900)));
    assert_eq!(log.try_get_log_entries(..).await.unwrap(), before);
    assert_eq!(indexes(&mut log).await, (100..=900).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_long_range_streams_whole_and_in_order() {
    use futures::TryStreamExt;

    let dir = tempfile::tempdir().unwrap();
    let (mut log, _closed) = open(dir.path()).unwrap();
    log.blocking_append((0..1000).map(|index| entry(index, "x"))).await.unwrap();
    let entries: Vec<Entry> = log.entries_stream(3..=997).await.try_collect().await.unwrap();
    let indexes: Vec<u64> = entries.iter().map(|entry| entry.log_id.index).collect();
    assert_eq!(indexes, (3..=997).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_gap_in_the_log_is_refused() {
    let mut log = LogStore::memory();
    log.blocking_append([entry(0, "a"), entry(1, "b")]).await.unwrap();
    assert!(log.blocking_append([entry(3, "d")]).await.is_err());
}

#[tokio::test]
async fn a_command_is_never_shown_in_debug_output() {
    let shown = format!("{:?}", entry(0, "topsecret"));
    assert!(!shown.contains("topsecret"), "{shown}");
    assert!(!shown.contains(&format!("{:?}", b"topsecret")), "{shown}");
}

mod model {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(u64),
        /// Truncates this many entries at the end.
        Truncate(u64),
        /// Purges this many entries at the front.
        Purge(u64),
        Reopen,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..150u64).prop_map(Step::Append),
            1 => (0..20u64).prop_map(Step::Truncate),
            1 => (1..200u64).prop_map(Step::Purge),
            1 => Just(Step::Reopen),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that after any steps, the log contains the indexes after `purged` up to `last`.
        #[test]
        fn the_log_is_what_was_done_to_it(steps in proptest::collection::vec(step(), 1..25)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let dir = tempfile::tempdir().unwrap();
                let (mut log, mut closed) = open(dir.path()).unwrap();
                let (mut first, mut next) = (0, 0);
                let id = |index| log_id::<TypeConfig>(1, 1, index);
                for step in steps {
                    match step {
                        Step::Append(count) => {
                            log.blocking_append((next..next + count).map(|index| entry(index, "x"))).await.unwrap();
                            next += count;
                        }
                        Step::Truncate(count) => {
                            // openraft never removes applied entries, and therefore no purged entries.
                            let keep = next.saturating_sub(count).max(first);
                            log.truncate_after(keep.checked_sub(1).map(id)).await.unwrap();
                            next = keep;
                        }
                        Step::Purge(count) => {
                            let upto = (first + count).min(next);
                            if let Some(last) = upto.checked_sub(1) {
                                log.purge(id(last)).await.unwrap();
                                first = upto;
                            }
                        }
                        Step::Reopen => {
                            drop(log);
                            closed.cancelled().await;
                            (log, closed) = open(dir.path()).unwrap();
                        }
                    }
                    let state = log.get_log_state().await.unwrap();
                    assert_eq!(state.last_purged_log_id, first.checked_sub(1).map(id));
                    assert_eq!(state.last_log_id, next.checked_sub(1).map(id));
                    assert_eq!(indexes(&mut log).await, (first..next).collect::<Vec<_>>());
                }
            });
        }
    }
}
