//! The form of a snapshot in a file and on the wire.
//!
//! Integers are little-endian. The parts: magic (8 bytes), CRC-32 of the rest (4), length of the header (4), length
//! of the payload (8), header (MessagePack: openraft's snapshot metadata), payload (the state machine's encoded
//! state).

use crate::machine::Capture;
use crate::raft::SnapshotMeta;
use bytes::{Bytes, BytesMut};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) const MAGIC: &[u8; 8] = b"CVNSNAP1";
const PREFIX: usize = 24;
/// Offset of the first byte that the checksum covers.
const CHECKED: usize = MAGIC.len() + 4;

/// The bytes of a snapshot that may wait for a flush. The log shares the disk: while one flush wrote 400 MiB, a flush of the log
/// took up to 218 ms. With steps of this size it takes at most 9 ms, and the duration of the snapshot is unchanged.
const FLUSH_STEP: usize = 8 * 1024 * 1024;

/// The progress of a file that is flushed in steps while it is written.
#[derive(Debug, Default)]
pub(super) struct Steps {
    unflushed: usize,
}

impl Steps {
    /// Counts written bytes, and flushes the file if a step is complete.
    pub(super) fn advance(&mut self, file: &File, written: usize) -> io::Result<()> {
        self.unflushed += written;
        if self.unflushed >= FLUSH_STEP {
            self.unflushed = 0;
            file.sync_data()?;
        }
        Ok(())
    }
}

/// Returns all bytes before a payload with the given checksum and length.
fn front_with(meta: &SnapshotMeta, payload: &crc32fast::Hasher, length: u64) -> io::Result<Bytes> {
    let header = rmp_serde::to_vec_named(meta).map_err(io::Error::other)?;
    let header_len = u32::try_from(header.len()).map_err(io::Error::other)?;
    let mut checked = Vec::with_capacity(PREFIX - CHECKED + header.len());
    checked.extend_from_slice(&header_len.to_le_bytes());
    checked.extend_from_slice(&length.to_le_bytes());
    checked.extend_from_slice(&header);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&checked);
    crc.combine(payload);
    let mut front = BytesMut::with_capacity(CHECKED + checked.len());
    front.extend_from_slice(MAGIC);
    front.extend_from_slice(&crc.finalize().to_le_bytes());
    front.extend_from_slice(&checked);
    Ok(front.freeze())
}

/// Returns all bytes before the payload.
pub(super) fn front(meta: &SnapshotMeta, payload: &[Bytes]) -> io::Result<Bytes> {
    let mut crc = crc32fast::Hasher::new();
    payload.iter().for_each(|piece| crc.update(piece));
    front_with(meta, &crc, payload.iter().map(|piece| piece.len() as u64).sum())
}

/// Returns the name of the file of a snapshot.
pub(super) fn name(meta: &SnapshotMeta) -> String {
    let (term, index) = meta.last_log_id.map_or((0, 0), |id| (id.committed_leader_id().term, id.index));
    format!("{term}-{index}.snap")
}

/// Encodes a state into a snapshot file, durably and under its final name.
pub(super) fn write(dir: &Path, meta: &SnapshotMeta, capture: Capture) -> io::Result<PathBuf> {
    let path = dir.join(name(meta));
    let fresh = dir.join(format!("{}.new", name(meta)));
    let mut file = create(&fresh)?;
    // The bytes that depend on the rest of the payload are written last. The length of the front is constant.
    let start = front(meta, &[])?.len() + capture.head();
    file.seek(SeekFrom::Start(start as u64))?;
    let mut body =
        Checked { file: &mut file, crc: crc32fast::Hasher::new(), length: 0, steps: Steps::default() };
    let head = capture.encode(&mut body)?;
    let Checked { crc, length, .. } = body;
    let mut payload = crc32fast::Hasher::new();
    payload.update(&head);
    payload.combine(&crc);
    let front = front_with(meta, &payload, head.len() as u64 + length)?;
    file.write_all_at(&[&front, &head[..]].concat(), 0)?;
    file.sync_all()?;
    rename(dir, &fresh, &path)?;
    Ok(path)
}

/// A file whose writes are counted, checked and flushed in steps.
struct Checked<'f> {
    file: &'f mut File,
    crc: crc32fast::Hasher,
    length: u64,
    steps: Steps,
}

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.crc.update(&bytes[..written]);
        self.length += written as u64;
        self.steps.advance(self.file, written)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Renames a file so that the new name survives a power loss.
pub(super) fn rename(dir: &Path, from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    File::open(dir)?.sync_all()
}

pub(super) fn read(path: &Path) -> io::Result<(SnapshotMeta, Bytes)> {
    parse(Bytes::from(fs::read(path)?))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the snapshot {what}"))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Checks a whole snapshot and splits it.
pub(super) fn parse(bytes: Bytes) -> io::Result<(SnapshotMeta, Bytes)> {
    let mut check = Check::default();
    check.add(&bytes);
    let header_len = check.finish()?;
    let header_end = PREFIX + header_len;
    let meta = rmp_serde::from_slice(&bytes[PREFIX..header_end]).map_err(io::Error::other)?;
    Ok((meta, bytes.slice(header_end..)))
}

/// The check of a snapshot that arrives in pieces.
#[derive(Default)]
pub(super) struct Check {
    prefix: Vec<u8>,
    crc: crc32fast::Hasher,
    length: u64,
}

impl Check {
    pub(super) fn add(&mut self, mut piece: &[u8]) {
        self.length += piece.len() as u64;
        let missing = CHECKED.saturating_sub(self.prefix.len()).min(piece.len());
        self.prefix.extend_from_slice(&piece[..missing]);
        piece = &piece[missing..];
        let missing = PREFIX.saturating_sub(self.prefix.len()).min(piece.len());
        self.prefix.extend_from_slice(&piece[..missing]);
        self.crc.update(piece);
    }

    /// Checks the length and the checksum, and returns the length of the header.
    pub(super) fn finish(self) -> io::Result<usize> {
        let Some((prefix, _)) = self.prefix.split_first_chunk::<PREFIX>() else {
            return Err(damaged("is too short"));
        };
        let (magic, rest) = prefix.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(damaged("has an unknown format"));
        }
        let (crc, header_len, payload_len) = (number(&rest[..4]), number(&rest[4..8]), number(&rest[8..]));
        if payload_len.checked_add(header_len) != Some(self.length - PREFIX as u64) {
            return Err(damaged("has not the length that it names"));
        }
        if u64::from(self.crc.finalize()) != crc {
            return Err(damaged("does not match its checksum"));
        }
        usize::try_from(header_len).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::meta;

    #[test]
    fn a_torn_file_is_refused_at_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), &meta(1), Capture::whole(|| Ok(b"some state".to_vec()))).unwrap();
        let whole = fs::read(path).unwrap();
        for length in 0..whole.len() {
            assert!(parse(Bytes::copy_from_slice(&whole[..length])).is_err(), "{length} bytes were accepted");
        }
        assert!(parse(Bytes::from(whole)).is_ok());
    }

    #[test]
    fn a_state_in_pieces_is_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let pieces = Capture::pieces(4, |out| {
            out.write_all(b" st")?;
            out.write_all(b"ate")?;
            Ok(b"some".to_vec())
        });
        let path = write(dir.path(), &meta(1), pieces).unwrap();
        let whole =
            [&front(&meta(1), &[Bytes::from_static(b"some state")]).unwrap()[..], b"some state"].concat();
        assert_eq!(fs::read(path).unwrap(), whole);
        assert_eq!(&parse(whole.into()).unwrap().1[..], b"some state");
        let wrong = Capture::pieces(4, |_| Ok(Vec::new()));
        assert!(write(dir.path(), &meta(2), wrong).is_err());
    }

    #[test]
    fn a_step_begins_after_each_flush() {
        let file = tempfile::tempfile().unwrap();
        let mut steps = Steps::default();
        steps.advance(&file, FLUSH_STEP - 1).unwrap();
        assert_eq!(steps.unflushed, FLUSH_STEP - 1);
        steps.advance(&file, 1).unwrap();
        assert_eq!(steps.unflushed, 0);
        // A snapshot whose flush fails is not complete.
        let unflushable = File::open("/proc/self/status").unwrap();
        assert!(steps.advance(&unflushable, FLUSH_STEP).is_err());
    }

    #[test]
    fn pieces_of_any_size_are_checked_alike() {
        let payload = Bytes::from_static(b"some state");
        let whole = [&front(&meta(1), std::slice::from_ref(&payload)).unwrap()[..], &payload].concat();
        for size in 1..whole.len() {
            let mut check = Check::default();
            whole.chunks(size).for_each(|piece| check.add(piece));
            check.finish().unwrap();
        }
    }
}
