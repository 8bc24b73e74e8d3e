//! Virtual disks: writes stay in a cache until a flush; a power loss drops or tears writes that were not flushed.

use super::lots::Lots;
use super::runtime;
use crate::log::{SegmentFile, Segments};
use crate::raft::SnapshotMeta;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes that a power loss writes completely or not at all.
const SECTOR: usize = 512;

/// The fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Flushes take this time.
    Slow(Duration),
    /// Flushes do not return.
    Hung,
    /// Flushes fail.
    Broken,
    /// Writes fail, because no space is left.
    Full,
}

/// A change of the segment with an id.
#[derive(Debug)]
enum Write {
    Bytes { id: u64, offset: u64, bytes: Vec<u8> },
    Size { id: u64, size: u64 },
    Create { id: u64, bytes: Vec<u8> },
    Remove { id: u64 },
}

/// The segments' content by id.
type Files = BTreeMap<u64, Vec<u8>>;

#[derive(Default)]
struct State {
    /// The content that survives a power loss.
    durable: Files,
    /// The content that reads return.
    cached: Files,
    /// The writes that are not durable, in groups that are separated by flushes.
    pending: Vec<Vec<Write>>,
    fault: Option<DiskFault>,
    /// The number of the current start of the server; files that were opened before are closed.
    start: u64,
    snapshot: Option<(SnapshotMeta, Bytes)>,
    flushes: u64,
}

/// The disk of one server; clones are the same disk.
#[derive(Clone, Default)]
pub struct VirtualDisk {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl fmt::Debug for VirtualDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualDisk").field("fault", &self.state.lock().fault).finish_non_exhaustive()
    }
}

impl PartialEq for VirtualDisk {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}
impl Eq for VirtualDisk {}

fn apply(files: &mut Files, write: &Write) {
    match write {
        Write::Create { id, bytes } => {
            files.insert(*id, bytes.clone());
        }
        Write::Remove { id } => {
            files.remove(id);
        }
        Write::Size { id, size } => {
            if let Some(content) = files.get_mut(id) {
                content.resize(*size as usize, 0);
            }
        }
        Write::Bytes { id, offset, bytes } => {
            let offset = *offset as usize;
            if let Some(content) = files.get_mut(id) {
                if content.len() < offset + bytes.len() {
                    content.resize(offset + bytes.len(), 0);
                }
                content[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl State {
    fn make_durable(&mut self, groups: usize) {
        for group in self.pending.drain(..groups) {
            group.iter().for_each(|write| apply(&mut self.durable, write));
        }
    }
}

impl VirtualDisk {
    /// Creates an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a fault, or ends it if `fault` is `None`.
    pub fn set_fault(&self, fault: Option<DiskFault>) {
        self.state.lock().fault = fault;
        self.changed.notify_waiters();
    }

    /// Ends the process that uses the disk: its writes are kept, including writes that were not flushed.
    pub fn end_process(&self) {
        let mut state = self.state.lock();
        let all = state.pending.len();
        state.make_durable(all);
        state.start += 1;
    }

    /// Ends the machine: some first groups of the writes that were not flushed are kept, and a part of the next
    /// group.
    pub fn lose_power(&self, lots: &mut Lots) {
        let mut state = self.state.lock();
        state.pending.retain(|group| !group.is_empty());
        let whole = lots.below(state.pending.len() as u64 + 1) as usize;
        state.make_durable(whole);
        if let Some(torn) = std::mem::take(&mut state.pending).into_iter().next() {
            for write in torn {
                match write {
                    Write::Bytes { id, offset, bytes } => {
                        for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                            if lots.chance(50) {
                                let (offset, bytes) = (offset + (n * SECTOR) as u64, sector.to_vec());
                                apply(&mut state.durable, &Write::Bytes { id, offset, bytes });
                            }
                        }
                    }
                    // Names and sizes are changed with the file system's journal.
                    other => apply(&mut state.durable, &other),
                }
            }
        }
        state.cached = state.durable.clone();
        state.start += 1;
    }

    /// Erases the disk.
    pub fn wipe(&self) {
        let mut state = self.state.lock();
        let (start, fault) = (state.start + 1, state.fault);
        *state = State { start, fault, ..State::default() };
    }

    /// Returns the number of flushes so far.
    pub fn flushes(&self) -> u64 {
        self.state.lock().flushes
    }

    /// Opens the disk for one start of a server.
    pub(crate) fn open(&self) -> Opened {
        Opened { disk: self.clone(), start: self.state.lock().start }
    }

    /// Waits until all earlier writes are durable.
    pub(crate) async fn flush(&self, lots: &mut Lots) -> io::Result<()> {
        let groups = self.state.lock().pending.len();
        loop {
            let changed = self.changed.notified();
            let fault = self.state.lock().fault;
            match fault {
                Some(DiskFault::Hung) => changed.await,
                Some(DiskFault::Broken) => return Err(io::Error::other("the disk failed")),
                Some(DiskFault::Slow(delay)) => {
                    runtime::sleep(delay).await;
                    break;
                }
                Some(DiskFault::Full) | None => {
                    runtime::sleep(lots.between(Duration::from_micros(200), Duration::from_millis(4))).await;
                    break;
                }
            }
        }
        let mut state = self.state.lock();
        let groups = groups.min(state.pending.len());
        state.make_durable(groups);
        state.flushes += 1;
        Ok(())
    }

    pub(crate) fn snapshot(&self) -> Option<(SnapshotMeta, Bytes)> {
        self.state.lock().snapshot.clone()
    }

    /// Stores a snapshot durably.
    pub(crate) fn keep_snapshot(&self, meta: SnapshotMeta, payload: Bytes) -> io::Result<()> {
        let mut state = self.state.lock();
        writable(&state)?;
        state.snapshot = Some((meta, payload));
        Ok(())
    }
}

fn writable(state: &State) -> io::Result<()> {
    match state.fault {
        Some(DiskFault::Full) => Err(io::ErrorKind::StorageFull.into()),
        Some(DiskFault::Broken) => Err(io::Error::other("the disk failed")),
        Some(DiskFault::Slow(_) | DiskFault::Hung) | None => Ok(()),
    }
}

/// The log's segments on a virtual disk, opened by one start of the server.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    disk: VirtualDisk,
    start: u64,
}

impl Opened {
    fn with<T>(&self, with: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state.lock();
        if state.start != self.start {
            return Err(io::Error::other("the process has ended"));
        }
        with(&mut state)
    }

    fn write(&self, write: Write) -> io::Result<()> {
        self.with(|state| {
            writable(state)?;
            apply(&mut state.cached, &write);
            if state.pending.is_empty() {
                state.pending.push(Vec::new());
            }
            if let Some(group) = state.pending.last_mut() {
                group.push(write);
            }
            Ok(())
        })
    }

    /// Begins another group of writes. The log's writer waits in [`VirtualDisk::flush`] before it continues.
    fn separate(&self) -> io::Result<()> {
        self.with(|state| {
            if state.fault == Some(DiskFault::Broken) {
                return Err(io::Error::other("the disk failed"));
            }
            state.pending.push(Vec::new());
            Ok(())
        })
    }
}

impl Segments for Opened {
    fn list(&self) -> io::Result<Vec<u64>> {
        self.with(|state| Ok(state.cached.keys().copied().collect()))
    }

    fn open(&self, id: u64) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(Segment { opened: self.clone(), id }))
    }

    fn create(&mut self, id: u64, start: &[u8], _size: u64) -> io::Result<Arc<dyn SegmentFile>> {
        self.separate()?;
        self.write(Write::Create { id, bytes: start.to_vec() })?;
        self.separate()?;
        self.open(id)
    }

    fn remove(&mut self, id: u64, _file: Arc<dyn SegmentFile>) -> io::Result<()> {
        self.write(Write::Remove { id })
    }

    fn salt(&self) -> u64 {
        // The same salt in each run of a seed.
        self.start
    }
}

/// A segment on a virtual disk.
#[derive(Debug)]
struct Segment {
    opened: Opened,
    id: u64,
}

impl SegmentFile for Segment {
    fn size(&self) -> io::Result<u64> {
        self.opened.with(|state| Ok(state.cached.get(&self.id).map_or(0, |content| content.len() as u64)))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.opened.with(|state| {
            let offset = offset as usize;
            let content = state.cached.get(&self.id).ok_or(io::ErrorKind::NotFound)?;
            let found = content.get(offset..offset + out.len());
            out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.opened.write(Write::Bytes { id: self.id, offset, bytes: bytes.to_vec() })
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.opened.write(Write::Size { id: self.id, size })
    }

    fn sync(&self) -> io::Result<()> {
        self.opened.separate()
    }
}
