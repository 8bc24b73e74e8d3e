//! Snapshots: one file each, verified by checksum, replaced by rename; their transfer to and from other servers.

mod file;

use self::file::Steps;
use crate::Error;
use crate::blocking::blocking;
use crate::log::{LogStore, make_dir};
use crate::machine::Capture;
use crate::raft::{LogId, RaftSnapshot, SnapshotMeta};
use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of snapshots to keep: the newest, and the previous one in case the newest is damaged.
const KEEP: usize = 2;
/// Size of the pieces in which a snapshot is sent.
const CHUNK: usize = 1024 * 1024;
/// Suffix of files that are being received.
const PART: &str = "part";

/// The encoded state of a snapshot, in memory or in a file.
#[derive(Clone, Debug)]
pub(crate) enum SnapshotData {
    /// In pieces: a single growing buffer would be copied repeatedly.
    Memory(Arc<[Bytes]>),
    File(PathBuf),
    /// A snapshot that was received from the leader and is not installed yet.
    Received(Arc<Received>),
}

/// A complete, checked and flushed file under a temporary name. Removed when dropped, unless it was renamed.
#[derive(Debug)]
pub(crate) struct Received(PathBuf);

impl Drop for Received {
    fn drop(&mut self) {
        // The file is absent after a rename. A file that this call does not remove is removed at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

impl SnapshotData {
    pub(crate) fn memory(payload: Bytes) -> Self {
        Self::Memory([payload].into())
    }

    /// Returns the payload, after it was read from the file and verified if it is in a file.
    pub(crate) fn load(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(pieces) => match &**pieces {
                [only] => Ok(only.clone()),
                pieces => Ok(pieces.concat().into()),
            },
            Self::File(path) => Ok(file::read(path)?.1),
            Self::Received(received) => Ok(file::read(&received.0)?.1),
        }
    }

    /// Returns the number of bytes of the payload; for a file, including its front.
    fn bytes(&self) -> io::Result<u64> {
        match self {
            Self::Memory(pieces) => Ok(pieces.iter().map(|piece| piece.len() as u64).sum()),
            Self::File(path) => Ok(fs::metadata(path)?.len()),
            Self::Received(received) => Ok(fs::metadata(&received.0)?.len()),
        }
    }

    /// Returns the number of bytes to send, and a stream of the bytes in pieces.
    pub(crate) async fn chunks(
        &self,
        meta: &SnapshotMeta,
    ) -> io::Result<(u64, BoxStream<'static, io::Result<Bytes>>)> {
        let path = match self {
            Self::Memory(pieces) => {
                let front = file::front(meta, pieces)?;
                let length = (front.len() + pieces.iter().map(Bytes::len).sum::<usize>()) as u64;
                let cut = |piece: Bytes| {
                    (0..piece.len().div_ceil(CHUNK))
                        .map(move |n| piece.slice(n * CHUNK..piece.len().min((n + 1) * CHUNK)))
                };
                let pieces: Vec<Bytes> = pieces.iter().cloned().flat_map(cut).collect();
                let all = std::iter::once(front).chain(pieces).map(Ok);
                return Ok((length, futures::stream::iter(all).boxed()));
            }
            Self::File(path) => path.clone(),
            Self::Received(received) => received.0.clone(),
        };
        // The open file can be read even after a newer snapshot has replaced it.
        let (file, length) = blocking(move || -> io::Result<_> {
            let file = File::open(path)?;
            let length = file.metadata()?.len();
            Ok((file, length))
        })
        .await??;
        let chunks = futures::stream::try_unfold(file, |mut file| async move {
            blocking(move || {
                let mut piece = BytesMut::zeroed(CHUNK);
                let mut filled = 0;
                while filled < CHUNK {
                    match file.read(&mut piece[filled..])? {
                        0 => break,
                        n => filled += n,
                    }
                }
                piece.truncate(filled);
                Ok((filled > 0).then(|| (piece.freeze(), file)))
            })
            .await?
        });
        Ok((length, chunks.boxed()))
    }
}

/// A writer that keeps each write as a piece.
struct Pieces(Vec<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(Bytes::copy_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The part that receives snapshots from the leader. It holds no log, so that the directory does not stay locked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    dir: Option<PathBuf>,
    count: Arc<AtomicU64>,
}

impl Inbox {
    /// Receives one snapshot of `length` bytes; `progress` is called for each piece.
    pub(crate) async fn receive(
        &self,
        length: u64,
        mut chunks: BoxStream<'static, io::Result<Bytes>>,
        mut progress: impl FnMut() + Send,
    ) -> io::Result<SnapshotData> {
        let excess = || io::Error::new(io::ErrorKind::InvalidData, "the snapshot is longer than announced");
        let mut left = length;
        let Some(dir) = &self.dir else {
            let mut whole = BytesMut::new();
            while let Some(piece) = chunks.next().await {
                let piece = piece?;
                progress();
                left = left.checked_sub(piece.len() as u64).ok_or_else(excess)?;
                whole.extend_from_slice(&piece);
            }
            return Ok(SnapshotData::memory(file::parse(whole.freeze())?.1));
        };
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!("incoming-{number}.{PART}"));
        // From here on, the file is removed unless it is complete.
        let received = Arc::new(Received(path.clone()));
        let mut parts = blocking(move || file::create(&path))
            .await?
            .map(|file| (file, file::Check::default(), Steps::default()))?;
        while let Some(piece) = chunks.next().await {
            let piece = piece?;
            progress();
            left = left.checked_sub(piece.len() as u64).ok_or_else(excess)?;
            let (mut file, mut check, mut steps) = parts;
            parts = blocking(move || -> io::Result<_> {
                file.write_all(&piece)?;
                check.add(&piece);
                steps.advance(&file, piece.len())?;
                Ok((file, check, steps))
            })
            .await??;
        }
        let (file, check, _) = parts;
        blocking(move || check.finish().and_then(|_| file.sync_all())).await??;
        Ok(SnapshotData::Received(received))
    }
}

/// The storage of snapshots. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotStore {
    dir: Option<PathBuf>,
    newest: Arc<Mutex<Option<(SnapshotMeta, SnapshotData)>>>,
    /// The log of the same directory. A snapshot may still be written while the log shuts down; until then the
    /// directory stays locked.
    _log: Option<LogStore>,
    #[cfg(feature = "simulation")]
    simulated: Option<crate::sim::VirtualDisk>,
}

impl SnapshotStore {
    /// Creates a store that keeps the newest snapshot in memory only.
    pub(crate) fn memory() -> Self {
        Self::default()
    }

    /// Opens `<data_dir>/snapshots` and finds the newest readable snapshot. Fails if the log no longer contains the
    /// entries after that snapshot.
    pub(crate) fn open(data_dir: &Path, purged: Option<LogId>) -> Result<Self, Error> {
        let dir = data_dir.join("snapshots");
        make_dir(&dir)?;
        remove_parts(&dir).map_err(Error::data_dir(&dir))?;
        let mut newest = None;
        for (_, path) in list(&dir).map_err(Error::data_dir(&dir))?.into_iter().rev() {
            match file::read(&path) {
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
        Ok(Self { dir: Some(dir), newest: Arc::new(Mutex::new(newest)), ..Self::default() })
    }

    /// Opens the snapshot on a virtual disk, with the same check.
    #[cfg(feature = "simulation")]
    pub(crate) fn open_virtual(disk: crate::sim::VirtualDisk, purged: Option<LogId>) -> Result<Self, Error> {
        let newest = disk.snapshot().map(|(meta, payload)| (meta, SnapshotData::memory(payload)));
        let covers = newest.as_ref().and_then(|(meta, _)| meta.last_log_id).map(|id| id.index);
        match purged {
            Some(purged) if covers.is_none_or(|index| index < purged.index) => Err(Error::SnapshotMissing {
                path: PathBuf::from("virtual"),
                purged: purged.index,
                newest: covers,
            }),
            _ => Ok(Self { newest: Arc::new(Mutex::new(newest)), simulated: Some(disk), ..Self::default() }),
        }
    }

    /// Keeps a log open as long as the store is used.
    pub(crate) fn with_log(self, log: LogStore) -> Self {
        Self { _log: Some(log), ..self }
    }

    /// Returns the part that receives snapshots.
    pub(crate) fn inbox(&self) -> Inbox {
        Inbox { dir: self.dir.clone(), count: Arc::default() }
    }

    pub(crate) fn newest(&self) -> Option<RaftSnapshot> {
        let newest = self.newest.lock();
        newest.as_ref().map(|(meta, data)| RaftSnapshot { meta: meta.clone(), snapshot: data.clone() })
    }

    /// Returns the size of the newest snapshot in bytes; 0 without a readable snapshot.
    pub(crate) fn newest_bytes(&self) -> u64 {
        let newest = self.newest.lock();
        newest.as_ref().and_then(|(_, data)| data.bytes().ok()).unwrap_or(0)
    }

    /// Encodes a state as the newest snapshot and removes old ones. Blocks on the disk.
    pub(crate) fn write(&self, meta: SnapshotMeta, capture: Capture) -> io::Result<RaftSnapshot> {
        let data = match &self.dir {
            None => {
                let mut pieces = Pieces(vec![Bytes::new()]);
                let head = capture.encode(&mut pieces)?;
                pieces.0[0] = head.into();
                SnapshotData::Memory(pieces.0.into())
            }
            Some(dir) => SnapshotData::File(file::write(dir, &meta, capture)?),
        };
        self.keep(meta, data)
    }

    /// Stores `payload` as the newest snapshot and removes old ones. Blocks on the disk.
    pub(crate) fn save(&self, meta: SnapshotMeta, payload: Bytes) -> io::Result<RaftSnapshot> {
        self.write(meta, Capture::whole(move || Ok(payload.into())))
    }

    /// Stores a received snapshot as the newest one. Blocks on the disk.
    pub(crate) fn adopt(&self, meta: SnapshotMeta, data: SnapshotData) -> io::Result<RaftSnapshot> {
        let data = match (&self.dir, data) {
            (Some(dir), SnapshotData::Received(received)) => {
                let path = dir.join(file::name(&meta));
                file::rename(dir, &received.0, &path)?;
                SnapshotData::File(path)
            }
            (_, data) => return self.save(meta, data.load()?),
        };
        self.keep(meta, data)
    }

    fn keep(&self, meta: SnapshotMeta, data: SnapshotData) -> io::Result<RaftSnapshot> {
        let mut newest = self.newest.lock();
        if let Some(dir) = &self.dir {
            for (_, old) in list(dir)?.iter().rev().skip(KEEP) {
                fs::remove_file(old)?;
            }
        }
        // A snapshot of the leader may have been installed while an older one was being written.
        if newest.as_ref().is_none_or(|(kept, _)| kept.last_log_id <= meta.last_log_id) {
            #[cfg(feature = "simulation")]
            if let Some(disk) = &self.simulated {
                disk.keep_snapshot(meta.clone(), data.load()?)?;
            }
            *newest = Some((meta.clone(), data.clone()));
        }
        Ok(RaftSnapshot { meta, snapshot: data })
    }
}

/// Returns the newest readable snapshot in `dir`, with its metadata. Changes no file.
pub(crate) fn newest_in(dir: &Path) -> io::Result<Option<(SnapshotMeta, Bytes)>> {
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
    Ok(names.iter().rev().find_map(|(_, path)| file::read(path).ok()))
}

/// Returns the encoded state in a snapshot file; `None` if the bytes are not a snapshot file.
pub(crate) fn payload(bytes: Bytes) -> io::Result<Option<Bytes>> {
    if !bytes.starts_with(file::MAGIC) {
        return Ok(None);
    }
    Ok(Some(file::parse(bytes)?.1))
}

/// Removes snapshots that were not received completely before the last end of the process.
fn remove_parts(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == PART) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Lists snapshot files, oldest first, with their term and index. Files with other names are ignored.
fn list(dir: &Path) -> io::Result<Vec<((u64, u64), PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".new") {
            // A crash during a write left this file.
            fs::remove_file(&path)?;
        } else if let Some(key) = parse_name(name) {
            found.push((key, path));
        }
    }
    // Sorted by index first, because only the index decides how many entries a snapshot covers.
    found.sort_by_key(|((term, index), _)| (*index, *term));
    Ok(found)
}

fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (term, index) = name.strip_suffix(".snap")?.split_once('-')?;
    Some((term.parse().ok()?, index.parse().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use openraft::testing::log_id;

    pub(crate) fn meta(index: u64) -> SnapshotMeta {
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
    fn leftovers_of_a_crash_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        SnapshotStore::open(dir.path(), None).unwrap();
        fs::write(dir.path().join("snapshots/3-9.snap.new"), b"half").unwrap();
        assert!(SnapshotStore::open(dir.path(), None).unwrap().newest().is_none());
        assert!(names(dir.path()).is_empty());
    }

    #[tokio::test]
    async fn a_snapshot_is_transferred_in_pieces() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let payload = Bytes::from(b"state".repeat(CHUNK / 2));
        let stores = [SnapshotStore::open(from.path(), None).unwrap(), SnapshotStore::memory()];
        for source in &stores {
            let (head, body) = (payload[..3].to_vec(), payload.slice(3..));
            let capture = Capture::pieces(3, move |out| {
                body.chunks(2 * CHUNK / 3).try_for_each(|piece| out.write_all(piece))?;
                Ok(head)
            });
            let sent = source.write(meta(7), capture).unwrap();
            for target in [SnapshotStore::open(to.path(), None).unwrap(), SnapshotStore::memory()] {
                let (length, chunks) = sent.snapshot.chunks(&sent.meta).await.unwrap();
                let mut pieces = 0;
                let data = target.inbox().receive(length, chunks, || pieces += 1).await.unwrap();
                assert!(pieces > 2);
                assert_eq!(data.load().unwrap(), payload);
                target.adopt(meta(7), data).unwrap();
                assert_eq!(target.newest().unwrap().snapshot.load().unwrap(), payload);
            }
        }
        assert_eq!(names(to.path()), ["3-7.snap"]);
    }

    #[tokio::test]
    async fn a_damaged_transfer_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::open(dir.path(), None).unwrap();
        let sent = SnapshotStore::memory().save(meta(7), Bytes::from_static(b"state")).unwrap();
        for damage in 0..3 {
            let (length, chunks) = sent.snapshot.chunks(&sent.meta).await.unwrap();
            let mut pieces: Vec<_> = chunks.collect().await;
            match damage {
                0 => drop(pieces.pop()),
                1 => pieces.push(Ok(Bytes::from_static(b"more"))),
                _ => pieces.push(Err(io::Error::other("cut"))),
            }
            let chunks = futures::stream::iter(pieces).boxed();
            store.inbox().receive(length, chunks, || ()).await.unwrap_err();
            assert!(names(dir.path()).is_empty());
        }
    }
}
