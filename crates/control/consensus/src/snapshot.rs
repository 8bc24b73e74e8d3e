//! Snapshots: one file each, verified by checksum, replaced by rename.
//!
//! Layout, integers little-endian: magic (8 bytes), CRC-32 of all that follows (4), length of the header (4), length
//! of the payload (8), header (MessagePack: openraft's snapshot metadata), payload (the state machine's encoded
//! state).

use crate::Error;
use crate::log::{LogStore, make_dir};
use crate::raft::{LogId, RaftSnapshot, SnapshotMeta};
use bytes::Bytes;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"CVNSNAP1";
const PREFIX: usize = 24;
/// Number of snapshots to keep: the newest, and the previous one in case the newest is damaged.
const KEEP: usize = 2;

/// The encoded state of a snapshot, in memory or in a file.
#[derive(Clone, Debug)]
pub(crate) enum SnapshotData {
    Memory(Bytes),
    File(PathBuf),
}

impl SnapshotData {
    /// Returns the payload; reads and verifies it if it is in a file.
    pub(crate) fn load(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File(path) => Ok(read(path)?.1),
        }
    }
}

/// The storage of snapshots. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotStore {
    dir: Option<PathBuf>,
    newest: Arc<Mutex<Option<(SnapshotMeta, SnapshotData)>>>,
    /// The log of the same directory. A snapshot may still be written when the log is shut down; until then the
    /// directory stays locked.
    _log: Option<LogStore>,
}

impl SnapshotStore {
    /// Creates a store that keeps the newest snapshot in memory only.
    pub(crate) fn memory() -> Self {
        Self::default()
    }

    /// Opens `<data_dir>/snapshots` and finds the newest readable snapshot. Fails if the log no longer contains the
    /// entries after it.
    pub(crate) fn open(data_dir: &Path, purged: Option<LogId>) -> Result<Self, Error> {
        let dir = data_dir.join("snapshots");
        make_dir(&dir)?;
        let mut newest = None;
        for (_, path) in list(&dir).map_err(Error::data_dir(&dir))?.into_iter().rev() {
            match read(&path) {
                Ok((meta, _)) => {
                    newest = Some((meta, SnapshotData::File(path)));
                    break;
                }
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a snapshot cannot be read, trying the one before");
                }
            }
        }
        let covers = newest.as_ref().and_then(|(meta, _)| meta.last_log_id).map(|id| id.index);
        if let Some(purged) = purged
            && covers.is_none_or(|index| index < purged.index)
        {
            return Err(Error::SnapshotMissing {
                path: data_dir.into(),
                purged: purged.index,
                newest: covers,
            });
        }
        Ok(Self { dir: Some(dir), newest: Arc::new(Mutex::new(newest)), _log: None })
    }

    /// Keeps a log open as long as the store is used.
    pub(crate) fn with_log(self, log: LogStore) -> Self {
        Self { _log: Some(log), ..self }
    }

    pub(crate) fn newest(&self) -> Option<RaftSnapshot> {
        let newest = self.newest.lock();
        newest.as_ref().map(|(meta, data)| RaftSnapshot { meta: meta.clone(), snapshot: data.clone() })
    }

    /// Stores `payload` as the newest snapshot and removes old ones. Blocks on the disk.
    pub(crate) fn save(&self, meta: SnapshotMeta, payload: Bytes) -> io::Result<RaftSnapshot> {
        let data = match &self.dir {
            None => SnapshotData::Memory(payload),
            Some(dir) => {
                let path = write(dir, &meta, &payload)?;
                let all = list(dir)?;
                for (_, old) in all.iter().rev().skip(KEEP) {
                    fs::remove_file(old)?;
                }
                SnapshotData::File(path)
            }
        };
        let mut newest = self.newest.lock();
        *newest = Some((meta.clone(), data.clone()));
        Ok(RaftSnapshot { meta, snapshot: data })
    }
}

/// Returns the newest readable snapshot in `dir`, with the index of its last entry. Changes nothing.
pub(crate) fn newest_in(dir: &Path) -> io::Result<Option<(u64, Bytes)>> {
    let mut names = Vec::new();
    match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => {
            for entry in entries? {
                let path = entry?.path();
                let key = path.file_name().and_then(|name| name.to_str()).and_then(parse_name);
                names.extend(key.map(|(term, index)| ((index, term), path)));
            }
        }
    }
    names.sort();
    let mut readable = names.iter().rev().filter_map(|(_, path)| read(path).ok());
    Ok(readable.next().map(|(meta, payload)| (meta.last_log_id.map_or(0, |id| id.index), payload)))
}

/// Returns the encoded state in a snapshot file; `None` if the bytes are not a snapshot file.
pub(crate) fn payload(bytes: Bytes) -> io::Result<Option<Bytes>> {
    if !bytes.starts_with(MAGIC) {
        return Ok(None);
    }
    Ok(Some(parse(bytes)?.1))
}

/// Lists snapshot files, oldest first, with their term and index. Files with other names are ignored.
fn list(dir: &Path) -> io::Result<Vec<((u64, u64), PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".new") {
            // Left by a crash while writing.
            fs::remove_file(&path)?;
        } else if let Some(key) = parse_name(name) {
            found.push((key, path));
        }
    }
    // By index first, which alone decides how many entries a snapshot covers.
    found.sort_by_key(|((term, index), _)| (*index, *term));
    Ok(found)
}

fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (term, index) = name.strip_suffix(".snap")?.split_once('-')?;
    Some((term.parse().ok()?, index.parse().ok()?))
}

fn write(dir: &Path, meta: &SnapshotMeta, payload: &[u8]) -> io::Result<PathBuf> {
    let header = rmp_serde::to_vec_named(meta).map_err(io::Error::other)?;
    let header_len = u32::try_from(header.len()).map_err(io::Error::other)?;
    let mut prefix = Vec::with_capacity(PREFIX - 12);
    prefix.extend_from_slice(&header_len.to_le_bytes());
    prefix.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    for part in [&prefix[..], &header, payload] {
        crc.update(part);
    }

    let (term, index) = meta.last_log_id.map_or((0, 0), |id| (id.committed_leader_id().term, id.index));
    let path = dir.join(format!("{term}-{index}.snap"));
    let fresh = dir.join(format!("{term}-{index}.snap.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    for part in [&MAGIC[..], &crc.finalize().to_le_bytes(), &prefix, &header, payload] {
        file.write_all(part)?;
    }
    file.sync_all()?;
    fs::rename(&fresh, &path)?;
    File::open(dir)?.sync_all()?;
    Ok(path)
}

fn read(path: &Path) -> io::Result<(SnapshotMeta, Bytes)> {
    parse(Bytes::from(fs::read(path)?))
}

fn parse(bytes: Bytes) -> io::Result<(SnapshotMeta, Bytes)> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the snapshot {what}"));
    let Some((prefix, _)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(damaged("is too short"));
    };
    let (magic, rest) = prefix.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(damaged("has an unknown format"));
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let (crc, header_len, payload_len) = (number(&rest[..4]), number(&rest[4..8]), number(&rest[8..]));
    let body = (bytes.len() - PREFIX) as u64;
    if payload_len.checked_add(header_len) != Some(body) {
        return Err(damaged("has not the length that it names"));
    }
    if u64::from(crc32fast::hash(&bytes[MAGIC.len() + 4..])) != crc {
        return Err(damaged("does not match its checksum"));
    }
    let header_end = PREFIX + usize::try_from(header_len).map_err(io::Error::other)?;
    let meta = rmp_serde::from_slice(&bytes[PREFIX..header_end]).map_err(io::Error::other)?;
    Ok((meta, bytes.slice(header_end..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::testing::log_id;

    fn meta(index: u64) -> SnapshotMeta {
        let last_log_id = Some(log_id::<crate::raft::TypeConfig>(3, 1, index));
        SnapshotMeta { last_log_id, last_membership: Default::default() }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir.join("snapshots"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_saved_snapshot_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(dir.path(), None).unwrap();
        store.save(meta(7), Bytes::from_static(b"state")).unwrap();
        let again = SnapshotStore::open(dir.path(), None).unwrap().newest().unwrap();
        assert_eq!(again.meta, meta(7));
        assert_eq!(again.snapshot.load().unwrap(), Bytes::from_static(b"state"));
    }

    #[test]
    fn only_the_two_newest_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(dir.path(), None).unwrap();
        for index in [9, 10, 11] {
            store.save(meta(index), Bytes::new()).unwrap();
        }
        assert_eq!(names(dir.path()), ["3-10.snap", "3-11.snap"]);
    }

    #[test]
    fn a_damaged_snapshot_falls_back_to_the_one_before_if_the_log_reaches_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(dir.path(), None).unwrap();
        store.save(meta(5), Bytes::from_static(b"old")).unwrap();
        store.save(meta(9), Bytes::from_static(b"new")).unwrap();
        let newest = dir.path().join("snapshots/3-9.snap");
        let mut bytes = fs::read(&newest).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&newest, bytes).unwrap();

        let purged = log_id::<crate::raft::TypeConfig>(3, 1, 5);
        let again = SnapshotStore::open(dir.path(), Some(purged)).unwrap().newest().unwrap();
        assert_eq!(again.snapshot.load().unwrap(), Bytes::from_static(b"old"));

        let purged = log_id::<crate::raft::TypeConfig>(3, 1, 6);
        let error = SnapshotStore::open(dir.path(), Some(purged)).unwrap_err();
        assert!(matches!(error, Error::SnapshotMissing { purged: 6, newest: Some(5), .. }), "{error}");
    }

    #[test]
    fn a_torn_file_is_refused_at_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), &meta(1), b"some state").unwrap();
        let whole = fs::read(path).unwrap();
        for length in 0..whole.len() {
            assert!(parse(Bytes::copy_from_slice(&whole[..length])).is_err(), "{length} bytes were accepted");
        }
        assert!(parse(Bytes::from(whole)).is_ok());
    }

    #[test]
    fn leftovers_of_a_crash_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        SnapshotStore::open(dir.path(), None).unwrap();
        fs::write(dir.path().join("snapshots/3-9.snap.new"), b"half").unwrap();
        assert!(SnapshotStore::open(dir.path(), None).unwrap().newest().is_none());
        assert!(names(dir.path()).is_empty());
    }
}
