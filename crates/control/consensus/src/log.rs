//! The log: recent entries in memory, and all entries on disk if there is one.
//!
//! openraft reads every entry back to apply it, so the newest ones stay in memory. With
//! [`Storage::Memory`](crate::Storage::Memory) all entries are only in memory.

mod disk;

use self::disk::Disk;
pub(crate) use self::disk::{make_dir, read_offline};
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::{Error, ServerId};
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
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Number of flushed entries kept in memory for applying; older ones are read from disk.
const CACHE_ENTRIES: usize = 256;
/// Maximum bytes of commands in flushed entries kept in memory.
const CACHE_BYTES: usize = 4 * 1024 * 1024;
/// Number of entries per read when many are applied, as after a restart.
const READ_CHUNK: u64 = 128;

/// Log and vote of one server. Clones share the same log.
#[derive(Clone, Debug)]
pub(crate) struct LogStore {
    cache: Arc<Mutex<Cache>>,
    disk: Option<Arc<Disk>>,
}

/// The log's newest entries, and the facts about all others.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Consecutive entries; the last one is the log's last, unless this is empty.
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Entries below this index are on disk. Unused without a disk.
    flushed: u64,
    purged: Option<LogId>,
    last: Option<LogId>,
    vote: Option<Vote>,
}

impl LogStore {
    /// Creates a log that ends with the process.
    pub(crate) fn memory() -> Self {
        Self { cache: Arc::default(), disk: None }
    }

    /// Opens or creates the log in `dir`. `closed` is cancelled once the files are closed and the lock is released,
    /// which happens after the last clone was dropped.
    pub(crate) fn open(dir: &Path, server: ServerId, closed: CancellationToken) -> Result<Self, Error> {
        let (opened, recovered) = disk::open(dir, server)?;
        let cache = Arc::new(Mutex::new(Cache::recovered(recovered)));
        let disk = Disk::start(opened, Arc::clone(&cache), closed).map_err(Error::data_dir(dir))?;
        Ok(Self { cache, disk: Some(Arc::new(disk)) })
    }

    /// Creates an empty log on a disk whose flushes fail once the flag is set.
    #[cfg(test)]
    pub(crate) fn breakable(broken: &Arc<std::sync::atomic::AtomicBool>) -> Self {
        let cache = Arc::<Mutex<Cache>>::default();
        let opened = disk::tests::breakable(broken);
        let disk = Disk::start(opened, Arc::clone(&cache), CancellationToken::new()).unwrap();
        Self { cache, disk: Some(Arc::new(disk)) }
    }

    /// Returns the last entry that was removed from the log.
    pub(crate) fn purged(&self) -> Option<LogId> {
        self.cache().purged
    }

    // Each holder makes one complete change, so a panic leaves no partial change.
    fn cache(&self) -> MutexGuard<'_, Cache> {
        lock(&self.cache)
    }

    fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let (tail, boundary) = {
            let cache = self.cache();
            (cache.read(start, end), cache.boundary())
        };
        match &self.disk {
            Some(disk) if start < boundary => {
                let mut entries = disk.read(start, end.min(boundary))?;
                entries.extend(tail);
                Ok(entries)
            }
            _ => Ok(tail),
        }
    }
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
        Self { flushed: next(last), purged: state.purged, last, vote: state.vote, ..Self::default() }
    }

    /// Returns the first index in this cache; smaller ones are only on disk.
    fn boundary(&self) -> u64 {
        self.entries.front().map_or_else(|| next(self.last), |entry| entry.log_id.index)
    }

    fn read(&self, start: u64, end: u64) -> Vec<Entry> {
        let first = self.boundary();
        let skip = start.saturating_sub(first);
        let take = end.saturating_sub(first).saturating_sub(skip);
        let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        self.entries.iter().skip(to_usize(skip)).take(to_usize(take)).cloned().collect()
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

    /// Records that entries below `upto` are on disk, and evicts old ones from memory.
    pub(crate) fn flushed(&mut self, upto: u64) {
        self.flushed = self.flushed.max(upto);
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

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.cache().vote)
    }

    // Read in chunks. The default reads the whole range at once, which after a restart is the whole log.
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

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        self.cache().append(&entries)?;
        match &self.disk {
            Some(disk) => disk.append(entries, callback),
            None => callback.io_completed(Ok(())),
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
        if let Some(disk) = &self.disk {
            disk.purge(upto).await?;
        }
        self.cache().purge(upto);
        Ok(())
    }
}
