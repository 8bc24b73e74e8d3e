//! Tests of the log across ends of the process, damage and removal.

use super::*;
use crate::log::files::Directory;
use crate::raft::{Command, TypeConfig};
use crate::{ClusterId, ServerId};
use bytes::Bytes;
use openraft::entry::EntryPayload;
use openraft::testing::log_id;
use std::fs;
use std::path::{Path, PathBuf};

fn id(index: u64) -> LogId {
    log_id::<TypeConfig>(1, 1, index)
}

fn entry_of(index: u64, size: usize) -> Entry {
    let byte = u8::try_from(index % 251).unwrap();
    let command = Command::new(Bytes::from(vec![byte; size]), None);
    Entry { log_id: id(index), payload: EntryPayload::Normal(command) }
}

fn open(dir: &Path) -> Result<Store, BoxError> {
    Store::open(Box::new(Directory::open(dir).unwrap()))
}

fn append(store: &mut Store, indexes: std::ops::Range<u64>, size: usize) {
    for index in indexes {
        store.write([Record::Entry(&entry_of(index, size))].into_iter()).unwrap();
    }
}

fn fact(store: &mut Store, fact: Fact) {
    store.write([Record::Fact(fact)].into_iter()).unwrap();
}

fn indexes(store: &Store) -> Vec<u64> {
    let entries = store.reader().read(0, u64::MAX, usize::MAX).unwrap();
    entries.iter().map(|entry| entry.log_id.index).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).unwrap().map(|row| row.unwrap().path());
    let mut names: Vec<_> = names.filter(|path| path.extension().is_some_and(|ext| ext == "log")).collect();
    names.sort();
    names
}

/// Returns the error of a log that must not open.
fn refused(dir: &Path) -> String {
    open(dir).unwrap_err().to_string()
}

/// The size of a command that fills more than half of a segment.
const LARGE: usize = 3 * 1024 * 1024;

#[test]
fn replaced_entries_may_begin_in_a_segment_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..3, LARGE);
    fact(&mut store, Fact::TruncatedFrom(1));
    append(&mut store, 1..4, LARGE);
    fact(&mut store, Fact::Purged(id(1)));
    // The oldest remaining segment has the first entry 2, but not the first entry 1.
    assert_eq!(segments(dir.path()).len(), 4);
    assert_eq!(indexes(&store), [2, 3]);
    drop(store);
    assert_eq!(indexes(&open(dir.path()).unwrap()), [2, 3]);
}

#[test]
fn segments_follow_each_other_and_the_removed_ones_are_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    fact(&mut store, Fact::Vote(Vote::new(3, 1)));
    fact(&mut store, Fact::Server(ServerId(7)));
    append(&mut store, 0..5, LARGE);
    assert_eq!(segments(dir.path()).len(), 5);
    for index in 5..30 {
        append(&mut store, index..index + 1, LARGE);
        fact(&mut store, Fact::Purged(id(index - 2)));
    }
    // The two remaining segments. The spare file waits for its next use.
    assert_eq!(segments(dir.path()).len(), 2);
    assert!(dir.path().join("spare.part").exists());
    assert_eq!(indexes(&store), [28, 29]);
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!(indexes(&store), [28, 29]);
    store.reader().with(|index| {
        assert_eq!(index.vote, Some(Vote::new(3, 1)));
        assert_eq!(index.identity.number, Some(ServerId(7)));
        assert_eq!(index.purged, Some(id(27)));
    });
}

#[test]
fn an_entry_that_is_larger_than_a_segment_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..2, 100);
    append(&mut store, 2..3, 3 * LARGE);
    append(&mut store, 3..4, 100);
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!(indexes(&store), [0, 1, 2, 3]);
    assert_eq!(store.reader().read(2, 3, 1).unwrap()[0], entry_of(2, 3 * LARGE));
}

#[test]
fn a_reader_keeps_what_it_reads_while_the_segment_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..1, LARGE);
    let (place, file) = {
        let index = store.index.lock();
        let place = index.places[0];
        (place, Arc::clone(&index.files[&place.segment].file))
    };
    append(&mut store, 1..2, LARGE);
    fact(&mut store, Fact::Purged(id(0)));
    assert!(!dir.path().join("spare.part").exists(), "the file is still read");
    append(&mut store, 2..4, LARGE);
    assert_eq!(entry(0, place, &*file).unwrap(), entry_of(0, LARGE));
}

#[test]
fn what_a_power_loss_tore_ends_the_log_and_never_follows_a_later_entry() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..10, 100);
    let (end, salt, number) = {
        let active = store.active.as_ref().unwrap();
        (active.offset, active.salt, store.number)
    };
    drop(store);
    // The incomplete frame, and bytes within it that imitate the next frame.
    let mut torn = segment::begin_frame(400);
    record::encode(Record::Entry(&entry_of(10, 300)), &mut torn).unwrap();
    segment::end_frame(&mut torn, salt, number).unwrap();
    let mut later = segment::begin_frame(100);
    record::encode(Record::Entry(&entry_of(11, 10)), &mut later).unwrap();
    segment::end_frame(&mut later, salt ^ 1, number + 1).unwrap();
    torn[40..40 + later.len()].copy_from_slice(&later);
    let path = segments(dir.path())[0].clone();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    SegmentFile::write_at(&file, end, &torn).unwrap();

    let mut store = open(dir.path()).unwrap();
    assert_eq!(indexes(&store), (0..10).collect::<Vec<_>>());
    append(&mut store, 10..12, 100);
    drop(store);
    assert_eq!(fs::metadata(&path).unwrap().len(), end, "the torn bytes are removed");
    assert_eq!(indexes(&open(dir.path()).unwrap()), (0..12).collect::<Vec<_>>());
}

#[test]
fn damage_before_the_last_transaction_is_refused_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..10, 100);
    drop(store);
    let path = segments(dir.path())[0].clone();
    let intact = fs::read(&path).unwrap();
    let mut damaged = intact.clone();
    damaged[HEADER + 300] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert!(refused(dir.path()).contains("later ones are not"), "{}", refused(dir.path()));
    damaged = intact.clone();
    damaged[9] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert!(refused(dir.path()).contains("segment 0: the header is damaged"));
    fs::write(&path, &intact).unwrap();
    assert_eq!(indexes(&open(dir.path()).unwrap()).len(), 10);
}

#[test]
fn damage_while_the_server_runs_is_noticed_by_a_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..2, 100);
    let place = store.index.lock().places[1];
    let file = fs::OpenOptions::new().write(true).open(&segments(dir.path())[0]).unwrap();
    SegmentFile::write_at(&file, place.offset + 60, b"!").unwrap();
    assert_eq!(store.reader().read(0, 1, 10).unwrap().len(), 1);
    let error = store.reader().read(0, 2, usize::MAX).unwrap_err();
    assert_eq!(error.to_string(), "entry 1 is damaged");
}

#[test]
fn a_missing_segment_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..4, LARGE);
    fact(&mut store, Fact::Committed(id(2)));
    drop(store);
    let all = segments(dir.path());
    let kept = fs::read(&all[1]).unwrap();
    fs::remove_file(&all[1]).unwrap();
    assert!(refused(dir.path()).contains("entries are missing"), "{}", refused(dir.path()));
    fs::write(&all[1], &kept).unwrap();
    assert_eq!(indexes(&open(dir.path()).unwrap()), [0, 1, 2, 3]);
    fs::rename(&all[1], &all[0]).unwrap();
    assert!(refused(dir.path()).contains("a file name and the id 1 in its header differ"));
}

#[test]
fn a_missing_newest_segment_with_committed_entries_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..2, LARGE);
    fact(&mut store, Fact::Committed(id(1)));
    append(&mut store, 2..3, LARGE);
    drop(store);
    // The facts at the beginning of the newest segment name entry 1, and its own segment is gone.
    let all = segments(dir.path());
    fs::remove_file(&all[0]).unwrap();
    fs::remove_file(&all[1]).unwrap();
    assert!(refused(dir.path()).contains("entries are missing"), "{}", refused(dir.path()));
}

#[test]
fn damage_at_the_end_of_an_earlier_segment_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..10, 100);
    let last = store.index.lock().places[9];
    drop(store);
    // The next write creates a segment without an entry. No record names a committed entry.
    let mut store = open(dir.path()).unwrap();
    fact(&mut store, Fact::Vote(Vote::new(2, 1)));
    drop(store);
    let file = fs::OpenOptions::new().write(true).open(&segments(dir.path())[0]).unwrap();
    SegmentFile::write_at(&file, last.offset + 60, b"!").unwrap();
    assert!(refused(dir.path()).contains("entries are missing"), "{}", refused(dir.path()));
}

#[test]
fn removed_segments_that_appear_again_are_removed_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..4, LARGE);
    let old = segments(dir.path())[0].clone();
    let content = fs::read(&old).unwrap();
    fact(&mut store, Fact::Purged(id(2)));
    drop(store);
    // The second segment is still missing, so the first one has no successor.
    fs::write(&old, content).unwrap();
    let mut store = open(dir.path()).unwrap();
    assert_eq!(indexes(&store), [3]);
    append(&mut store, 4..5, 100);
    assert!(!old.exists());
    assert_eq!(indexes(&store), [3, 4]);
}

#[test]
fn a_truncated_end_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..10, 100);
    fact(&mut store, Fact::TruncatedFrom(6));
    append(&mut store, 6..8, 50);
    drop(store);
    let store = open(dir.path()).unwrap();
    assert_eq!(indexes(&store), (0..8).collect::<Vec<_>>());
    assert_eq!(store.reader().read(7, 8, 1).unwrap()[0], entry_of(7, 50));
}

#[test]
fn a_gap_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..2, 10);
    let error = store.write([Record::Entry(&entry_of(3, 10))].into_iter()).unwrap_err();
    assert_eq!(error.to_string(), "entry 3 does not follow entry 1");
    drop(store);
    // No part of the refused transaction is on disk.
    assert_eq!(indexes(&open(dir.path()).unwrap()), [0, 1]);
}

#[test]
fn entries_after_a_received_snapshot_follow_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..5, 10);
    fact(&mut store, Fact::Purged(id(99)));
    append(&mut store, 100..102, 10);
    fact(&mut store, Fact::Cluster(ClusterId(uuid::Uuid::from_u128(1))));
    drop(store);
    assert_eq!(indexes(&open(dir.path()).unwrap()), [100, 101]);
}

#[test]
fn an_entry_that_a_later_leader_removed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).unwrap();
    append(&mut store, 0..2, 10);
    let late = Entry { log_id: log_id::<TypeConfig>(3, 1, 2), payload: EntryPayload::Blank };
    store.write([Record::Entry(&late)].into_iter()).unwrap();
    append(&mut store, 3..4, 10);
    drop(store);
    assert!(refused(dir.path()).contains("entry 3 is of term 1, before the term of an earlier entry"));
}
