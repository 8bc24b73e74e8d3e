//! Sticky ephemeral disks: the move of the data of the replaced allocation to its successor
//! (docs/reference/jobspec.md, section 4.2).
//!
//! On the same node the directories are renamed; from another node they are sent as an archive through the servers. If
//! the data cannot be moved, the allocation starts without it and reports that: it must not fail because its
//! predecessor's node is lost.

use super::alloc_state::{AllocState, Stage};
use super::hooks::{AllocHook, HookContext};
use super::plan::Planner;
use super::unpack::{Limits, OutwardLinks, Owners, Tree, Unpack};
use super::users::KnownUsers;
use crate::ClientError;
use crate::alloc_dir::AllocDir;
use crate::fs::pack;
use crate::servers::Link;
use async_trait::async_trait;
use caravan_messages::{DiskChunk, FetchDisk};
use caravan_rpc::{Code, RpcError};
use caravan_sys::dir::{Access, Dir, Mounts};
use caravan_sys::tree::Seals;
use caravan_types::AllocId;
use futures::StreamExt;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The size of a chunk of an archive, in bytes.
const CHUNK: usize = 64 * 1024;
/// The most chunks in flight between sender and receiver.
const AHEAD: usize = 8;
/// The directory in which an archive is unpacked before its parts are moved.
const ARRIVING: &str = ".disk";

/// Timeout for the first chunk: the other node may first unmount volumes below the data.
const FIRST_CHUNK_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Timeout between two chunks.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of the whole transfer.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(2 * 3600);
const MIB: u64 = 1024 * 1024;
/// The entry limit for the smallest disk.
const MIN_ENTRIES: u64 = 4096;
/// The size of a block in bytes: a disk full of small files has one entry for each block.
const BLOCK: u64 = 4096;

/// Returns the limits for a disk of this size in MiB.
fn limits(size_mb: i64) -> Limits {
    let bytes = u64::try_from(size_mb).unwrap_or(0).saturating_mul(MIB);
    let bytes_text = format!("the group's ephemeral_disk, whose size is {size_mb} MiB").into();
    Limits { bytes, bytes_text, entries: (bytes / BLOCK).max(MIN_ENTRIES) }
}

/// Moves the existing parts of one directory into another. Existing files are not overwritten. A part that cannot be
/// moved does not prevent the others; the first error is returned.
fn adopt(from: &Dir, to: &Dir, tasks: &[String]) -> Result<(), caravan_sys::Error> {
    let mut done = Ok(());
    for part in pack::parts(tasks) {
        let moved = adopt_part(from, to, &part);
        done = done.and(moved);
    }
    done
}

fn adopt_part(from: &Dir, to: &Dir, part: &Path) -> Result<(), caravan_sys::Error> {
    let (Some(parent), Some(name)) = (part.parent(), part.file_name()) else { return Ok(()) };
    let there = |dir: Result<Dir, caravan_sys::Error>| match dir {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    };
    let Some(source) = there(from.enter(parent, Mounts::Refuse))? else { return Ok(()) };
    // A link in place of the directory is an error.
    if there(source.enter(Path::new(name), Mounts::Refuse))?.is_none() {
        return Ok(());
    }
    let target = to.make(parent, Access::mode(0o755), Mounts::Refuse)?;
    // Replaces only an empty directory.
    match source.rename(name, &target, name) {
        Err(error) if error.io().is_some_and(|e| e.kind() == ErrorKind::DirectoryNotEmpty) => Ok(()),
        other => other,
    }
}

/// Unpacks an archive below a new directory of the allocation. Nothing is written outside of that directory. Returns
/// the number of links that were left out because they lead out of the allocation.
fn unpack(
    archive: impl Read,
    alloc: &Dir,
    name: &OsStr,
    limits: Limits,
    users: KnownUsers,
) -> io::Result<u64> {
    let failed = |error: caravan_sys::Error| io::Error::other(caravan_sys::describe(&error));
    alloc.remove_tree(name, Seals::Keep).map_err(failed)?;
    let into = alloc.make(Path::new(name), Access::mode(0o700), Mounts::Refuse).map_err(failed)?;
    let tree = Tree::make(&into, Path::new(""), Owners::Of(users))?;
    let mut source = Watched { inner: archive, ended: false };
    // If the sender disappears, the archive ends early, so no separate stop flag is needed.
    let stop = AtomicBool::new(false);
    let mut unpack = Unpack::new(&tree, Path::new(""), &stop, limits, OutwardLinks::LeaveOut);
    unpack.tar(&mut source)?;
    // The final blocks of an archive prove that it is complete; an archive that is cut between two files has none.
    match source.ended {
        true => Err(io::Error::new(ErrorKind::UnexpectedEof, "the archive breaks off")),
        false => Ok(unpack.left_out()),
    }
}

/// A reader that records whether it was read to the end.
struct Watched<R> {
    inner: R,
    ended: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.ended |= read == 0 && !into.is_empty();
        Ok(read)
    }
}

/// A writer that sends chunks to a channel.
struct Chunks(mpsc::Sender<Result<DiskChunk, RpcError>>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(ErrorKind::BrokenPipe, "nobody takes the archive any more");
        self.0.blocking_send(Ok(DiskChunk { data: bytes.to_vec() })).map_err(gone)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader of received chunks.
struct Arriving {
    chunks: mpsc::Receiver<io::Result<Vec<u8>>>,
    rest: io::Cursor<Vec<u8>>,
}

impl Read for Arriving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.rest.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            match self.chunks.blocking_recv() {
                Some(chunk) => self.rest = io::Cursor::new(chunk?),
                None => return Ok(0),
            }
        }
    }
}

/// Runs blocking work on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(error.to_string()),
    }
}

fn words(error: caravan_sys::Error) -> String {
    caravan_sys::describe(&error)
}

/// The allocations on this node.
pub(crate) trait FindAlloc: std::fmt::Debug + Send + Sync {
    /// Returns the state of an allocation, if it is on this node.
    fn find(&self, id: &AllocId) -> Option<AllocState>;
}

/// The hook that takes over the data of the replaced allocation.
#[derive(Debug)]
pub(super) struct DiskHook {
    pub(super) allocs: Arc<dyn FindAlloc>,
    pub(super) link: Link,
    pub(super) planner: Arc<Planner>,
}

#[async_trait]
impl AllocHook for DiskHook {
    /// Takes over the data of the predecessor of the allocation, if the group requires that. A failure is an event of
    /// the tasks.
    async fn prepare(&self, cx: &HookContext<'_>) -> Result<(), String> {
        self.take_over(cx).await;
        Ok(())
    }
}

impl DiskHook {
    async fn take_over(&self, cx: &HookContext<'_>) {
        let alloc = cx.alloc();
        let disk = alloc.group().and_then(|group| group.ephemeral_disk).unwrap_or_default();
        if alloc.previous_allocation.is_empty() || !(disk.sticky || disk.migrate) || cx.has_begun() {
            return;
        }
        let taken = match self.allocs.find(&alloc.previous_allocation) {
            Some(previous) if previous.alloc().server_terminal() || previous.status().is_terminal() => {
                // Only after this stage, no volume is mounted below the directories that move.
                previous.reached(Stage::Over).await;
                let (from, to, tasks) = (previous.dir().clone(), cx.dir().clone(), cx.task_names());
                let open = |dir: &AllocDir| Dir::open(dir.root()).map_err(words);
                blocking(move || adopt(&open(&from)?, &open(&to)?, &tasks).map_err(words)).await.map(|()| 0)
            }
            Some(_) => return,
            None if disk.migrate => self.fetch(cx, limits(disk.size_mb)).await,
            None => return,
        };
        // The moved directories have the owners and modes of the other allocation.
        let built = cx.dir().build().map_err(|error| caravan_sys::describe(&error));
        let previous = alloc.previous_allocation.short();
        let text = match taken.and_then(|left_out| built.map(|()| left_out)) {
            Ok(0) => return,
            Ok(left_out) => format!(
                "Of the data of allocation {previous}, {left_out} links that lead out of the allocation were left out"
            ),
            Err(why) => format!("The data of allocation {previous} could not be taken over: {why}"),
        };
        tracing::warn!(alloc = %alloc.id, %previous, why = text, "the ephemeral disk was not fully moved");
        cx.note(&text);
    }

    async fn fetch(&self, cx: &HookContext<'_>, limits: Limits) -> Result<u64, String> {
        let identity = &self.link.identity;
        let request =
            FetchDisk { node_id: identity.node_id.clone(), secret: identity.secret.clone(), alloc: cx.id() };
        let mut answers = self.link.servers.fetch_disk(request).await;
        let (sender, chunks) = mpsc::channel(AHEAD);
        let (to, tasks, users) =
            (cx.dir().clone(), cx.task_names(), self.planner.users(&cx.alloc(), cx.dir(), &cx.task_names()));
        let unpacked = blocking(move || {
            let archive = Arriving { chunks, rest: io::Cursor::default() };
            let arriving = OsStr::new(ARRIVING);
            let alloc = Dir::open(to.root()).map_err(words)?;
            let done = unpack(archive, &alloc, arriving, limits, users.known())
                .map_err(|error| error.to_string())
                .and_then(|left_out| {
                    let from = alloc.enter(Path::new(arriving), Mounts::Refuse).map_err(words)?;
                    adopt(&from, &alloc, &tasks).map(|()| left_out).map_err(words)
                });
            alloc.remove_tree(arriving, Seals::Keep).map_err(words)?;
            done
        });
        let sent = async move {
            let mut patience = FIRST_CHUNK_TIMEOUT;
            loop {
                let chunk = match timeout(patience, answers.next()).await {
                    Ok(Some(Ok(chunk))) => chunk.data,
                    Ok(Some(Err(error))) => {
                        // The receiver sees that the archive is cut.
                        let _gone = sender.send(Err(io::Error::other(error.to_string()))).await;
                        return Err(error.to_string());
                    }
                    Ok(None) => return Ok(()),
                    Err(_) => {
                        return Err(format!("the other node sends nothing for {} s", patience.as_secs()));
                    }
                };
                patience = CHUNK_TIMEOUT;
                if sender.send(Ok(chunk)).await.is_err() {
                    // The receiver's own error states why it stopped.
                    return Ok(());
                }
            }
        };
        let late = format!("it takes longer than {} s", WHOLE_TIMEOUT.as_secs());
        let sent = async { timeout(WHOLE_TIMEOUT, sent).await.unwrap_or(Err(late)) };
        let (unpacked, sent) = tokio::join!(unpacked, sent);
        sent.and(unpacked)
    }
}

/// Returns the data of a terminal allocation as an archive, once no task runs and no volume is mounted.
pub(super) async fn give(
    state: &AllocState,
    planner: &Planner,
) -> Result<mpsc::Receiver<Result<DiskChunk, RpcError>>, RpcError> {
    if !state.status().is_terminal() {
        let text = ClientError::StillRuns(state.id().to_string()).to_string();
        return Err(RpcError::new(Code::Unavailable, text));
    }
    state.reached(Stage::Over).await;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let (dir, tasks, users) = (state.dir().clone(), state.task_names(), planner.users_of(state));
    tokio::task::spawn_blocking(move || {
        let out = io::BufWriter::with_capacity(CHUNK, Chunks(sender.clone()));
        if let Err(error) = pack::write(dir.root(), &tasks, &users, out) {
            // The requester may have disconnected.
            let _ =
                sender.blocking_send(Err(RpcError::internal(format!("the data cannot be read: {error}"))));
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests;
