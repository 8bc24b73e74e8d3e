//! The log on disk: segments with one writer thread.
//!
//! The thread executes all writes in the order of their requests. It combines all waiting writes (up to a
//! limit) into one transaction. So many writes under load need one flush, while a single write is executed
//! immediately.

use super::files::Directory;
use super::old;
use super::record::{Fact, Malformed, Record};
use super::store::{Index, Reader, Store};
use super::{Cache, Progress, lock, next};
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::runtime::{now, planted};
use crate::{BoxError, Error, Identity};
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Maximum bytes of commands in one transaction.
const MAX_TRANSACTION: usize = 8 * 1024 * 1024;

/// An open and locked log without a running writer.
#[derive(Debug)]
pub(super) struct Opened {
    store: Store,
    /// The lock of the directory; a virtual disk needs none.
    lock: Option<File>,
    #[cfg(feature = "simulation")]
    simulated: Option<crate::sim::VirtualDisk>,
}

impl Opened {
    fn new(store: Store, lock: File) -> Self {
        Self {
            store,
            lock: Some(lock),
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }
}

/// The content of the log when it was opened.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) identity: Identity,
    pub(super) committed: Option<LogId>,
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
}

/// A handle to the open log and its writer. The order of the fields matters: the reader must be dropped
/// before the sender that ends the writer. So the writer drops the last reference, and `closed` means that
/// the files are closed.
#[derive(Debug)]
pub(super) struct Disk {
    reader: Reader,
    jobs: UnboundedSender<Job>,
    cache: Arc<Mutex<Cache>>,
}

enum Job {
    Append(Vec<Entry>, IOFlushed<TypeConfig>),
    Vote(Vote, Reply),
    TruncateFrom(u64, Reply),
    Purge(LogId),
    Identity(Identity, Reply),
}

type Reply = oneshot::Sender<io::Result<()>>;

/// Creates a directory whose name survives a power loss, because all acknowledged data is below it.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    let made = caravan_sys::files::durable_dir(dir, 0o700);
    made.map_err(|error| Error::data_dir(dir)(io::Error::other(caravan_sys::describe(&error))))
}

fn lock_dir(dir: &Path) -> Result<File, Error> {
    let lock = File::open(dir).map_err(Error::data_dir(dir))?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked { path: dir.into() }),
        Err(errno) => Err(Error::DataDir { path: dir.into(), source: errno.into() }),
    }
}

/// Opens `dir`, creates it if absent, and reads the state of the log.
pub(super) fn open(dir: &Path) -> Result<(Opened, Recovered), Error> {
    make_dir(dir)?;
    let lock = lock_dir(dir)?;
    let store = open_store(dir, &lock)?;
    let recovered = recover(&store).map_err(log_error(dir))?;
    Ok((Opened::new(store, lock), recovered))
}

/// Opens the segments in a locked directory. A log of the older form is converted.
fn open_store(dir: &Path, lock: &File) -> Result<Store, Error> {
    let open = || Store::open(Box::new(Directory::open(dir)?));
    let found = old::find(dir).map_err(open_error(dir))?;
    if matches!(found, old::Found::Database) {
        // The first store finds the segments of an incomplete conversion, and removes them.
        old::convert(dir, lock).map_err(open_error(dir))?;
    }
    let mut store = open().map_err(open_error(dir))?;
    if matches!(found, old::Found::Nothing) {
        // In this order: the sentence in the older file means that there are segments.
        store.begin().and_then(|()| old::mark(dir, lock)).map_err(Error::data_dir(dir))?;
    } else if store.is_empty() {
        return Err(log_error(dir)(Malformed::NoSegments.into()));
    }
    Ok(store)
}

/// Opens the log on a virtual disk, and creates it if the disk is empty.
#[cfg(feature = "simulation")]
pub(super) fn open_virtual(disk: &crate::sim::VirtualDisk) -> Result<(Opened, Recovered), Error> {
    let open = || -> Result<_, BoxError> {
        let store = Store::open(Box::new(disk.open()))?;
        let recovered = recover(&store)?;
        Ok((Opened { store, lock: None, simulated: Some(disk.clone()) }, recovered))
    };
    open().map_err(log_error(Path::new("virtual")))
}

/// The log of a server that is not running.
#[derive(Debug)]
pub(crate) struct Offline {
    store: Store,
    dir: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) vote: Option<Vote>,
    /// The last removed entry.
    pub(crate) purged: Option<LogId>,
    pub(crate) committed: Option<LogId>,
    /// All entries after the last removed entry.
    pub(crate) entries: Vec<Entry>,
    /// Declared last: released after the files are closed.
    _lock: File,
}

/// Opens the log of a server that is not running. Changes no file, except that a log of the older form is
/// converted.
pub(crate) fn open_offline(dir: &Path) -> Result<Offline, Error> {
    let lock = lock_dir(dir)?;
    if matches!(old::find(dir).map_err(open_error(dir))?, old::Found::Nothing) {
        return Err(Error::data_dir(&dir.join(old::FILE))(io::ErrorKind::NotFound.into()));
    }
    let store = open_store(dir, &lock)?;
    let read =
        || -> Result<_, BoxError> { Ok((recover(&store)?, store.reader().read(0, u64::MAX, usize::MAX)?)) };
    let (facts, entries) = read().map_err(log_error(dir))?;
    let Recovered { identity, committed, vote, purged, .. } = facts;
    Ok(Offline { store, dir: dir.into(), identity, vote, purged, committed, entries, _lock: lock })
}

impl Offline {
    /// Appends one entry with a new identity and a new vote, in one transaction. `last` is the entry before
    /// the new one; it may be in a snapshot only.
    pub(crate) fn append(
        &mut self,
        entry: &Entry,
        last: Option<LogId>,
        vote: Vote,
        identity: Identity,
    ) -> Result<(), Error> {
        let next = self.store.reader().with(Index::next);
        let purged = last.filter(|last| last.index >= next).map(Fact::Purged);
        let facts = Fact::identity(identity).chain([Fact::Vote(vote)]).map(Record::Fact);
        let records = purged.map(Record::Fact).into_iter().chain([Record::Entry(entry)]).chain(facts);
        self.store.write(records).map_err(|error| log_error(&self.dir)(error.into()))
    }
}

fn log_error(dir: &Path) -> impl FnOnce(BoxError) -> Error {
    let path = dir.to_path_buf();
    move |source| Error::Log { path, source }
}

/// Distinguishes files that the system refuses to open from files that are not a log.
fn open_error(dir: &Path) -> impl FnOnce(BoxError) -> Error {
    let path = dir.to_path_buf();
    move |error| match error.downcast::<io::Error>() {
        Ok(source) if source.kind() != io::ErrorKind::InvalidData => Error::DataDir { path, source: *source },
        Ok(source) => Error::Log { path, source },
        Err(source) => Error::Log { path, source },
    }
}

fn recover(store: &Store) -> Result<Recovered, BoxError> {
    let reader = store.reader();
    let last = reader.last()?.map(|entry| entry.log_id);
    Ok(reader.with(|index| Recovered {
        identity: index.identity,
        committed: index.committed,
        vote: index.vote,
        purged: index.purged,
        last,
    }))
}

impl Disk {
    /// Starts the writer. The writer ends, and cancels `closed`, after the last handle was dropped.
    pub(super) fn start(
        opened: Opened,
        cache: Arc<Mutex<Cache>>,
        progress: watch::Sender<Progress>,
        closed: CancellationToken,
    ) -> io::Result<Self> {
        let reader = opened.store.reader();
        let (jobs, queue) = unbounded_channel();
        let last = next(lock(&cache).last);
        let writer = Writer {
            store: opened.store,
            _lock: opened.lock,
            _closed: closed.drop_guard(),
            cache: Arc::clone(&cache),
            progress,
            written: last,
            committed: None,
            failed: None,
            queue,
        };
        #[cfg(feature = "simulation")]
        if let Some(disk) = opened.simulated {
            crate::sim::spawn(writer.run_virtual(disk));
            return Ok(Self { reader, jobs, cache });
        }
        std::thread::Builder::new().name(String::from("raft-log")).spawn(move || writer.run())?;
        Ok(Self { reader, jobs, cache })
    }

    /// Appends entries to the cache and requests their write.
    pub(super) fn append(&self, entries: Vec<Entry>, done: IOFlushed<TypeConfig>) -> io::Result<()> {
        let mut cache = lock(&self.cache);
        cache.append(&entries)?;
        if let Err(job) = self.enqueue(&mut cache, Job::Append(entries, done)) {
            job.finish(&Err(ended()));
        }
        Ok(())
    }

    /// Requests a write. The list of outstanding writes has the order of the queue, because both change under the lock
    /// of the cache.
    fn enqueue(&self, cache: &mut Cache, job: Job) -> Result<(), Job> {
        let bytes = job.size();
        self.jobs.send(job).map_err(|rejected| rejected.0)?;
        cache.jobs.push_back((now(), bytes));
        Ok(())
    }

    pub(super) async fn save_vote(&self, vote: Vote) -> io::Result<()> {
        self.ask(|reply| Job::Vote(vote, reply)).await
    }

    pub(super) async fn truncate_from(&self, index: u64) -> io::Result<()> {
        self.ask(|reply| Job::TruncateFrom(index, reply)).await
    }

    pub(super) async fn save_identity(&self, identity: Identity) -> io::Result<()> {
        self.ask(|reply| Job::Identity(identity, reply)).await
    }

    /// Requests the removal of entries, without waiting for it.
    pub(super) fn purge(&self, upto: LogId) -> io::Result<()> {
        self.enqueue(&mut lock(&self.cache), Job::Purge(upto)).map_err(|_| ended())
    }

    async fn ask(&self, job: impl FnOnce(Reply) -> Job) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(&mut lock(&self.cache), job(reply)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Returns the entries on disk from `start` to before `end`, up to `limit` bytes.
    pub(super) fn read(&self, start: u64, end: u64, limit: usize) -> io::Result<Vec<Entry>> {
        self.reader.read(start, end, limit).map_err(io::Error::other)
    }
}

fn ended() -> io::Error {
    io::Error::other("the log writer has ended")
}

impl Job {
    fn size(&self) -> usize {
        match self {
            Self::Append(entries, _) => entries.iter().map(super::size).sum(),
            Self::Vote(..) | Self::TruncateFrom(..) | Self::Purge(..) | Self::Identity(..) => 0,
        }
    }

    fn finish(self, result: &io::Result<()>) {
        // `io::Error` cannot be cloned, and each waiter needs a separate value.
        let result = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match self {
            Self::Append(_, done) => done.io_completed(result),
            // A waiter that was dropped needs no result.
            Self::Vote(_, reply) | Self::TruncateFrom(_, reply) | Self::Identity(_, reply) => {
                let _ = reply.send(result);
            }
            Self::Purge(_) => {}
        }
    }
}

/// The writer. Its fields are dropped in this order: the files, the lock, then the guard that reports both as released.
struct Writer {
    store: Store,
    _lock: Option<File>,
    _closed: DropGuard,
    cache: Arc<Mutex<Cache>>,
    progress: watch::Sender<Progress>,
    /// The index after the last entry on disk.
    written: u64,
    /// The committed entry that is recorded on disk.
    committed: Option<LogId>,
    /// The first error. After a failed flush the kernel may have dropped the pages, so a later successful
    /// flush is no proof. All later writes fail with the first error.
    failed: Option<String>,
    queue: UnboundedReceiver<Job>,
}

impl Writer {
    fn run(mut self) {
        while let Some(first) = self.queue.blocking_recv() {
            let batch = self.batch(first);
            self.write(batch);
        }
    }

    /// Executes the writes in a task. No write is acknowledged before the virtual disk has flushed it.
    #[cfg(feature = "simulation")]
    async fn run_virtual(mut self, disk: crate::sim::VirtualDisk) {
        use openraft::rt::AsyncRuntime as _;
        let crate::sim::RuntimeLots::World(mut lots) = crate::sim::Runtime::thread_rng() else { return };
        while let Some(first) = self.queue.recv().await {
            let batch = self.batch(first);
            let result = self.execute(&batch);
            if planted!(AckBeforeFlush) {
                self.report(batch, result);
                let _ = disk.flush(&mut lots).await;
                continue;
            }
            let result = match result {
                Ok(()) => disk.flush(&mut lots).await,
                failed => failed,
            };
            self.report(batch, result);
        }
    }

    /// Returns `first` with all waiting jobs, up to a limit.
    fn batch(&mut self, first: Job) -> Vec<Job> {
        let mut size = first.size();
        let mut batch = vec![first];
        while size < MAX_TRANSACTION {
            let Ok(job) = self.queue.try_recv() else { break };
            size += job.size();
            batch.push(job);
        }
        batch
    }

    /// Writes a batch in one transaction and sends the result to all waiting callers.
    fn write(&mut self, batch: Vec<Job>) {
        let result = self.execute(&batch);
        self.report(batch, result);
    }

    fn execute(&mut self, batch: &[Job]) -> io::Result<()> {
        match &self.failed {
            Some(reason) => Err(io::Error::other(reason.clone())),
            None => self.commit(batch),
        }
    }

    fn report(&mut self, batch: Vec<Job>, result: io::Result<()>) {
        match &result {
            Ok(()) => {
                lock(&self.cache).flushed(batch.len(), self.written);
                self.progress.send_modify(|progress| progress.flushed = self.written);
            }
            Err(error) if self.failed.is_none() => {
                tracing::error!(%error, "writing the replicated log failed");
                self.failed = Some(error.to_string());
                self.progress.send_modify(|progress| progress.failed = true);
            }
            Err(_) => {}
        }
        for job in batch {
            job.finish(&result);
        }
    }

    fn commit(&mut self, batch: &[Job]) -> io::Result<()> {
        let mut written = self.written;
        // An entry may be committed by other servers before this disk has it. The recorded entry must be in
        // the log.
        let committed = lock(&self.cache).committed;
        let mut records = Vec::with_capacity(batch.len() + 1);
        for job in batch {
            match job {
                Job::Append(entries, _) => {
                    records.extend(entries.iter().map(Record::Entry));
                    written = entries.last().map_or(written, |entry| entry.log_id.index + 1);
                }
                Job::Vote(..) if planted!(VoteNotSaved) => {}
                Job::Vote(vote, _) => records.push(Record::Fact(Fact::Vote(*vote))),
                Job::TruncateFrom(index, _) => {
                    if !planted!(TruncationLost) {
                        records.push(Record::Fact(Fact::TruncatedFrom(*index)));
                    }
                    written = written.min(*index);
                }
                Job::Purge(upto) => {
                    records.push(Record::Fact(Fact::Purged(*upto)));
                    written = written.max(upto.index + 1);
                }
                Job::Identity(identity, _) => {
                    records.extend(Fact::identity(*identity).map(Record::Fact));
                }
            }
        }
        if let Some(id) = committed
            && id.index < written
            && self.committed != committed
        {
            records.push(Record::Fact(Fact::Committed(id)));
            self.committed = committed;
        }
        self.store.write(records.into_iter())?;
        self.written = written;
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
