//! The log: recent entries in memory, and all entries on disk if the storage has one.
//!
//! openraft reads every entry back to apply it, so the newest entries stay in memory. With
//! [`Storage::Memory`](crate::Storage::Memory) all entries are only in memory.

mod disk;
mod files;
mod old;
mod record;
mod segment;
mod store;

use self::disk::Disk;
pub(crate) use self::disk::{Offline, make_dir, open_offline};
#[cfg(feature = "simulation")]
pub(crate) use self::files::{SegmentFile, Segments};
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::runtime::now;
use crate::{Error, Identity};
use futures::Stream;
use openraft::entry::EntryPayload;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Number of flushed entries kept in memory for applying; older entries are read from disk.
const CACHE_ENTRIES: usize = 256;
/// Maximum bytes of commands in flushed entries kept in memory.
const CACHE_BYTES: usize = 4 * 1024 * 1024;
/// Number of entries per read when many are applied, as after a restart.
const READ_CHUNK: u64 = 128;
/// Maximum bytes of commands in one message to another server, unless a single command is larger.
const MESSAGE_BYTES: usize = 1024 * 1024;

/// Log and vote of one server. Clones share the same log.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    cache: Arc<Mutex<Cache>>,
    disk: Option<Arc<Disk>>,
    progress: watch::Receiver<Progress>,
}

/// The progress of the writer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Entries below this index are on disk.
    flushed: u64,
    /// Whether a write failed, after which no write succeeds.
    failed: bool,
}

/// Access to the log's writer, which does not keep the files open.
#[derive(Clone, Debug)]
pub(crate) struct WriterHandle {
    cache: Arc<Mutex<Cache>>,
    disk: Option<Weak<Disk>>,
    progress: watch::Receiver<Progress>,
}

/// The state of the disk below the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskHealth {
    /// Age of the oldest write that is not flushed yet.
    pub oldest_write: Option<Duration>,
    /// Number of bytes of commands that are not flushed yet.
    pub unflushed_bytes: u64,
}

impl WriterHandle {
    pub(crate) fn health(&self) -> DiskHealth {
        let cache = lock(&self.cache);
        DiskHealth {
            oldest_write: cache.jobs.front().map(|(since, _)| now().saturating_duration_since(*since)),
            unflushed_bytes: cache.jobs.iter().map(|(_, bytes)| *bytes as u64).sum(),
        }
    }

    /// Waits until a write has failed. Never returns if the writer ends without a failure.
    pub(crate) async fn failed(&self) {
        if self.progress.clone().wait_for(|progress| progress.failed).await.is_err() {
            std::future::pending().await
        }
    }

    /// Records the server's identity durably.
    pub(crate) async fn save_identity(&self, identity: Identity) -> Result<(), Error> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let disk = disk.upgrade().ok_or(Error::Stopped)?;
        disk.save_identity(identity).await.map_err(Error::fatal)
    }
}

/// The newest entries of the log, and the state of all others.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Consecutive entries; the last one is the last entry of the log, unless the list is empty.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Entries below this index are on disk. Unused without a disk.
    flushed: u64,
    purged: Option<LogId>,
    last: Option<LogId>,
    vote: Option<Vote>,
    /// The newest committed entry. The next write to disk includes it, but no flush is requested for it alone.
    committed: Option<LogId>,
    /// The writes that are not flushed yet, oldest first: the time of each request, and its bytes of
    /// commands.
    jobs: VecDeque<(Instant, usize)>,
}

impl LogStore {
    /// Creates a log that ends with the process.
    pub(crate) fn memory() -> Self {
        Self { cache: Arc::default(), disk: None, progress: watch::channel(Progress::default()).1 }
    }

    /// Opens or creates the log in `dir`, and returns the recorded identity of the server. `closed` is
    /// cancelled once the files are closed and the lock is released, which happens after the last clone was
    /// dropped.
    pub(crate) fn open(dir: &Path, closed: CancellationToken) -> Result<(Self, Identity), Error> {
        let (opened, recovered) = disk::open(dir)?;
        let identity = recovered.identity;
        let log = Self::start(opened, Cache::recovered(recovered), closed).map_err(Error::data_dir(dir))?;
        Ok((log, identity))
    }

    fn start(opened: disk::Opened, cache: Cache, closed: CancellationToken) -> io::Result<Self> {
        let (report, progress) = watch::channel(Progress { flushed: cache.flushed, failed: false });
        let cache = Arc::new(Mutex::new(cache));
        let disk = Disk::start(opened, Arc::clone(&cache), report, closed)?;
        Ok(Self { cache, disk: Some(Arc::new(disk)), progress })
    }

    /// Opens or creates the log on a virtual disk.
    #[cfg(feature = "simulation")]
    pub(crate) fn open_virtual(
        disk: &crate::sim::VirtualDisk,
        closed: CancellationToken,
    ) -> Result<(Self, Identity), Error> {
        let (opened, recovered) = disk::open_virtual(disk)?;
        let identity = recovered.identity;
        let log = Self::start(opened, Cache::recovered(recovered), closed).map_err(Error::fatal)?;
        Ok((log, identity))
    }

    /// Creates an empty log on a disk whose flushes fail once the flag is set.
    #[cfg(test)]
    pub(crate) fn breakable(broken: &Arc<std::sync::atomic::AtomicBool>) -> Self {
        let opened = disk::tests::breakable(broken);
        Self::start(opened, Cache::default(), CancellationToken::new()).unwrap()
    }

    /// Returns access to the writer, which does not keep the files open.
    pub(crate) fn writer(&self) -> WriterHandle {
        WriterHandle {
            cache: Arc::clone(&self.cache),
            disk: self.disk.as_ref().map(Arc::downgrade),
            progress: self.progress.clone(),
        }
    }

    /// Returns the index of the last entry.
    pub(crate) fn last_index(&self) -> Option<u64> {
        self.cache().last.map(|id| id.index)
    }

    /// Returns whether the log is empty and has no vote either.
    pub(crate) fn is_pristine(&self) -> bool {
        let cache = self.cache();
        cache.last.is_none() && cache.vote.is_none()
    }

    /// Waits until the entry at `index` is on disk.
    ///
    /// So the applied state never contains an entry that this server could lose in a power loss. A state
    /// that a server showed to readers before a restart is also shown afterwards.
    pub(crate) async fn flushed(&mut self, index: u64) -> io::Result<()> {
        if self.disk.is_none() {
            return Ok(());
        }
        let reached = self.progress.wait_for(|progress| progress.failed || progress.flushed > index).await;
        match reached {
            Ok(progress) if !progress.failed => Ok(()),
            _ => Err(io::Error::other("the log writer has failed")),
        }
    }

    /// Returns the last entry that was removed from the log.
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.cache().purged
    }

    // Each holder completes its change under the lock, so a panic leaves no partial change.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        lock(&self.cache)
    }

    /// Returns the index at which the range begins in the log, its entries in memory, and the index below
    /// which entries are only on disk. Entries that were purged may still be on disk for a moment.
    fn cached(&self, start: u64, end: u64, limit: usize) -> (u64, Vec<Entry>, u64) {
        let cache = self.cache();
        let start = start.max(next(cache.purged));
        (start, cache.read(start, end, limit), cache.boundary())
    }

    fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let (start, tail, boundary) = self.cached(start, end, usize::MAX);
        match &self.disk {
            Some(disk) if start < boundary => {
                let mut entries = disk.read(start, end.min(boundary), usize::MAX)?;
                entries.extend(tail);
                Ok(entries)
            }
            _ => Ok(tail),
        }
    }

    /// Returns the first entries of the range up to [`MESSAGE_BYTES`], and at least one entry.
    fn read_limited(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let (start, tail, boundary) = self.cached(start, end, MESSAGE_BYTES);
        match &self.disk {
            Some(disk) if start < boundary => disk.read(start, end.min(boundary), MESSAGE_BYTES),
            _ => Ok(tail),
        }
    }
}

/// Returns the first entries until their commands have `limit` bytes; the last entry may exceed the limit.
fn take_bytes<E>(entries: impl Iterator<Item = Result<Entry, E>>, limit: usize) -> Result<Vec<Entry>, E> {
    let mut taken = Vec::new();
    let mut bytes = 0usize;
    for entry in entries {
        let entry = entry?;
        bytes = bytes.saturating_add(size(&entry));
        taken.push(entry);
        if bytes >= limit {
            break;
        }
    }
    Ok(taken)
}

pub(crate) fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock()
}

fn size(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(command) => command.bytes.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    }
}

impl Cache {
    fn recovered(state: disk::Recovered) -> Self {
        let last = state.last.or(state.purged);
        Self {
            flushed: next(last),
            purged: state.purged,
            last,
            vote: state.vote,
            committed: state.committed,
            ..Self::default()
        }
    }

    /// Returns the first index in this cache; entries below it are only on disk.
    fn boundary(&self) -> u64 {
        self.entries.front().map_or_else(|| next(self.last), |entry| entry.log_id.index)
    }

    fn read(&self, start: u64, end: u64, limit: usize) -> Vec<Entry> {
        let first = self.boundary();
        let skip = start.saturating_sub(first);
        let take = end.saturating_sub(first).saturating_sub(skip);
        let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let entries = self.entries.iter().skip(to_usize(skip)).take(to_usize(take)).cloned();
        let Ok(taken) = take_bytes(entries.map(Ok::<_, std::convert::Infallible>), limit);
        taken
    }

    fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let expected = next(self.last);
            if !self.entries.is_empty() && entry.log_id.index != expected {
                let got = entry.log_id.index;
                return Err(io::Error::other(format!("entry {got} does not follow entry {expected}")));
            }
            self.bytes += size(entry);
            self.last = Some(entry.log_id);
            self.entries.push_back(entry.clone());
        }
        Ok(())
    }

    /// Records that the oldest `jobs` writes are done, and that the log on disk now ends before `written`. Evicts old
    /// entries from memory.
    fn flushed(&mut self, jobs: usize, written: u64) {
        self.jobs.drain(..jobs.min(self.jobs.len()));
        self.flushed = written;
        while self.entries.len() > CACHE_ENTRIES || self.bytes > CACHE_BYTES {
            match self.entries.front() {
                Some(entry) if entry.log_id.index < self.flushed => self.drop_first(),
                _ => break,
            }
        }
    }

    fn drop_first(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= size(&entry);
        }
    }

    fn truncate_after(&mut self, last: Option<LogId>) {
        if next(last) >= next(self.last) {
            return;
        }
        while self.entries.back().is_some_and(|entry| entry.log_id.index >= next(last)) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= size(&entry);
            }
        }
        self.last = last.or(self.purged);
        self.flushed = self.flushed.min(next(self.last));
    }

    fn purge(&mut self, upto: LogId) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= upto.index) {
            self.drop_first();
        }
        self.purged = self.purged.max(Some(upto));
        self.last = self.last.max(Some(upto));
        self.flushed = self.flushed.max(next(self.purged));
    }
}

/// Returns the index after `log_id`.
fn next(log_id: Option<LogId>) -> u64 {
    log_id.map_or(0, |id| id.index + 1)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (start, end) = bounds(&range);
        self.read(start, end)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read_limited(start, end)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.cache().vote)
    }

    // Reads in chunks. The default reads the whole range in one step, which after a restart is the whole
    // log.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend + use<'_, RB>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = bounds(&range);
        let chunks = Chunks { log: self.clone(), next: start, end, ready: VecDeque::new() };
        Box::pin(futures::stream::unfold(chunks, |mut chunks| async move {
            let item = chunks.next()?;
            Some((item, chunks))
        }))
    }
}

struct Chunks {
    log: LogStore,
    next: u64,
    end: u64,
    ready: VecDeque<Entry>,
}

impl Chunks {
    fn next(&mut self) -> Option<io::Result<Entry>> {
        if self.ready.is_empty() && self.next < self.end {
            let upto = self.end.min(self.next + READ_CHUNK);
            match self.log.read(self.next, upto) {
                Ok(entries) => self.ready = entries.into(),
                Err(error) => {
                    self.next = self.end;
                    return Some(Err(error));
                }
            }
            self.next = upto;
        }
        self.ready.pop_front().map(Ok)
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end + 1,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let cache = self.cache();
        Ok(LogState { last_purged_log_id: cache.purged, last_log_id: cache.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        if let Some(disk) = &self.disk {
            disk.save_vote(*vote).await?;
        }
        self.cache().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.cache().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.cache().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        match &self.disk {
            Some(disk) => disk.append(entries, callback)?,
            None => {
                self.cache().append(&entries)?;
                callback.io_completed(Ok(()));
            }
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        if let Some(disk) = &self.disk {
            disk.truncate_from(next(last)).await?;
        }
        self.cache().truncate_after(last);
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        // The entries are covered by a snapshot, so the caller need not wait for their removal. The next
        // write returns an error of the removal.
        if let Some(disk) = &self.disk {
            disk.purge(upto)?;
        }
        self.cache().purge(upto);
        Ok(())
    }
}
