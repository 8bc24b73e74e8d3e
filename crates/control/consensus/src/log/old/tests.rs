//! Tests of the conversion of older logs.

use super::*;
use crate::log::LogStore;
use crate::raft::{Command, TypeConfig};
use crate::{Error, Identity};
use bytes::Bytes;
use openraft::RaftLogReader;
use openraft::entry::EntryPayload;
use openraft::storage::RaftLogStorage;
use openraft::testing::log_id;
use tokio_util::sync::CancellationToken;

fn entry(index: u64) -> Entry {
    let command = Command::new(Bytes::from(format!("command {index} {}", "x".repeat(2000))), None);
    Entry { log_id: log_id::<TypeConfig>(1, 1, index), payload: EntryPayload::Normal(command) }
}

fn encoded(value: &impl serde::Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

/// Writes a log as earlier versions did.
fn older(dir: &Path) {
    let db = Database::create(dir.join(FILE)).unwrap();
    let transaction = db.begin_write().unwrap();
    {
        let mut log = transaction.open_table(LOG).unwrap();
        for index in 10..2000 {
            log.insert(index, encoded(&entry(index)).as_slice()).unwrap();
        }
        let mut meta = transaction.open_table(META).unwrap();
        meta.insert("vote", encoded(&Vote::new(4, 1)).as_slice()).unwrap();
        meta.insert("purged", encoded(&log_id::<TypeConfig>(1, 1, 9)).as_slice()).unwrap();
        meta.insert("committed", encoded(&log_id::<TypeConfig>(1, 1, 1990)).as_slice()).unwrap();
        meta.insert("server", encoded(&5u64).as_slice()).unwrap();
        meta.insert("cluster", encoded(&ClusterId(uuid::Uuid::from_u128(9))).as_slice()).unwrap();
    }
    transaction.commit().unwrap();
}

async fn check(dir: &Path) {
    let closed = CancellationToken::new();
    let (mut log, identity) = LogStore::open(dir, closed.clone()).unwrap();
    let number = Some(ServerId(5));
    assert_eq!(identity, Identity { cluster: Some(ClusterId(uuid::Uuid::from_u128(9))), number });
    assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(4, 1)));
    assert_eq!(log.read_committed().await.unwrap().unwrap().index, 1990);
    let entries = log.try_get_log_entries(..).await.unwrap();
    assert_eq!(entries, (10..2000).map(entry).collect::<Vec<_>>());
    drop(log);
    closed.cancelled().await;
}

#[tokio::test]
async fn an_older_log_is_converted_once_and_completely() {
    let dir = tempfile::tempdir().unwrap();
    older(dir.path());
    check(dir.path()).await;
    assert_eq!(find(dir.path()).unwrap(), Found::Mark);
    check(dir.path()).await;
}

#[tokio::test]
async fn a_conversion_that_was_interrupted_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    older(dir.path());
    // An earlier attempt wrote another record.
    let mut store = Store::open(Box::new(Directory::open(dir.path()).unwrap())).unwrap();
    store.write([Record::Fact(Fact::Server(ServerId(77)))].into_iter()).unwrap();
    drop(store);
    check(dir.path()).await;
}

#[tokio::test]
async fn a_directory_whose_segments_are_gone_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let closed = CancellationToken::new();
    drop(LogStore::open(dir.path(), closed.clone()).unwrap());
    closed.cancelled().await;
    for row in fs::read_dir(dir.path()).unwrap() {
        let path = row.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(path).unwrap();
        }
    }
    let error = LogStore::open(dir.path(), CancellationToken::new()).unwrap_err();
    assert!(matches!(error, Error::Log { .. }), "{error}");
    // A program that supports only the older form does not open the directory either.
    assert!(Database::open(dir.path().join(FILE)).is_err());
}
