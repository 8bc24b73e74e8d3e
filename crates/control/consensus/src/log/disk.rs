//! The log on disk: one redb file with one writer thread.
//!
//! The thread executes all writes in the order of their requests. It combines all waiting writes (up to a limit) into
//! one transaction. So many writes under load need one flush, while a single write is executed at once.

use super::{Cache, Progress, lock, next};
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::runtime::{now, planted};
use crate::{BoxError, ClusterId, Error, Identity, ServerId};
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const VOTE: &str = "vote";
const PURGED: &str = "purged";
const COMMITTED: &str = "committed";
/// The server's number; absent until the server has one.
const SERVER: &str = "server";
/// The cluster's id; absent in directories that are older than clusters.
const CLUSTER: &str = "cluster";

/// Size of redb's page cache in bytes. It is small, because [`Cache`] holds the recent entries.
const PAGE_CACHE: usize = 2 * 1024 * 1024;
/// Maximum bytes of commands in one transaction.
const MAX_TRANSACTION: usize = 8 * 1024 * 1024;

/// An open and locked log file without a running writer.
#[derive(Debug)]
pub(super) struct Opened {
    db: Database,
    /// The lock of the directory; a virtual disk needs none.
    lock: Option<File>,
    #[cfg(feature = "simulation")]
    simulated: Option<crate::sim::VirtualDisk>,
}

impl Opened {
    fn new(db: Database, lock: File) -> Self {
        Self {
            db,
            lock: Some(lock),
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }
}

/// The content of the file when it was opened.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) identity: Identity,
    pub(super) committed: Option<LogId>,
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
}

/// A handle to the open file and its writer. The order of the fields matters: the database must be dropped before the
/// sender that ends the writer. The writer then drops the last reference, and `closed` means that the file is closed.
#[derive(Debug)]
pub(super) struct Disk {
    db: Arc<Database>,
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

/// Opens `dir`, creates it if absent, and reads the facts needed at the start.
pub(super) fn open(dir: &Path) -> Result<(Opened, Recovered), Error> {
    make_dir(dir)?;
    let lock = lock_dir(dir)?;
    let path = dir.join("raft.redb");
    let log_error = |source: BoxError| Error::Log { path: path.clone(), source };
    if !path.try_exists().map_err(Error::data_dir(&path))? {
        // Create it under another name, so that a crash in between leaves no partial file.
        let fresh = dir.join("raft.redb.new");
        let _ = fs::remove_file(&fresh);
        let db = open_file(&fresh).map_err(open_error(&fresh))?;
        init(&db).map_err(log_error)?;
        drop(db);
        fs::rename(&fresh, &path).and_then(|()| lock.sync_all()).map_err(Error::data_dir(&path))?;
    }
    let db = open_file(&path).map_err(open_error(&path))?;
    let recovered = recover(&db).map_err(log_error)?;
    Ok((Opened::new(db, lock), recovered))
}

/// Opens the log on a virtual disk, and creates it if the disk is empty.
#[cfg(feature = "simulation")]
pub(super) fn open_virtual(disk: &crate::sim::VirtualDisk) -> Result<(Opened, Recovered), Error> {
    let open = || -> Result<_, BoxError> {
        let fresh = disk.is_empty();
        let db = Database::builder().set_cache_size(PAGE_CACHE).create_with_backend(disk.open())?;
        if fresh {
            init(&db)?;
            // As a file that gets its name once it is complete.
            disk.settle();
        }
        let recovered = recover(&db)?;
        Ok((Opened { db, lock: None, simulated: Some(disk.clone()) }, recovered))
    };
    open().map_err(|source| Error::Log { path: PathBuf::from("virtual"), source })
}

/// The log of a server that is not running.
#[derive(Debug)]
pub(crate) struct Offline {
    db: Database,
    path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) vote: Option<Vote>,
    /// The last removed entry.
    pub(crate) purged: Option<LogId>,
    pub(crate) committed: Option<LogId>,
    /// All entries after it.
    pub(crate) entries: Vec<Entry>,
    /// Declared last: released after the file is closed.
    _lock: File,
}

/// Opens the log of a server that is not running. Changes nothing, except for the repair when the file is opened after
/// a crash.
pub(crate) fn open_offline(dir: &Path) -> Result<Offline, Error> {
    let lock = lock_dir(dir)?;
    let path = dir.join("raft.redb");
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::data_dir(&path))?;
    let read = || -> Result<_, BoxError> {
        let db = Database::builder().set_cache_size(PAGE_CACHE).create_file(file)?;
        let facts = recover(&db)?;
        let mut entries = Vec::new();
        for row in db.begin_read()?.open_table(LOG)?.iter()? {
            entries.push(decode(row?.1.value())?);
        }
        Ok((db, facts, entries))
    };
    let (db, facts, entries) = read().map_err(|source| Error::Log { path: path.clone(), source })?;
    let Recovered { identity, committed, vote, purged, .. } = facts;
    Ok(Offline { db, path, identity, vote, purged, committed, entries, _lock: lock })
}

impl Offline {
    /// Appends one entry with a new identity and a new vote, in one transaction.
    pub(crate) fn append(&self, entry: &Entry, vote: Vote, identity: Identity) -> Result<(), Error> {
        let write = || -> Result<(), BoxError> {
            let transaction = self.db.begin_write()?;
            {
                transaction.open_table(LOG)?.insert(entry.log_id.index, encode(entry)?.as_slice())?;
                let mut meta = transaction.open_table(META)?;
                meta.insert(VOTE, encode(&vote)?.as_slice())?;
                write_identity(&mut meta, identity)?;
            }
            transaction.commit()?;
            Ok(())
        };
        write().map_err(|source| Error::Log { path: self.path.clone(), source })
    }
}

/// Distinguishes a file that the system refuses to open from a file that is not a log.
fn open_error(path: &Path) -> impl FnOnce(BoxError) -> Error {
    let path = path.to_path_buf();
    move |error| match error.downcast::<io::Error>() {
        Ok(source) => Error::DataDir { path, source: *source },
        Err(source) => Error::Log { path, source },
    }
}

fn open_file(path: &Path) -> Result<Database, BoxError> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    Ok(Database::builder().set_cache_size(PAGE_CACHE).create_file(file)?)
}

fn init(db: &Database) -> Result<(), BoxError> {
    let transaction = db.begin_write()?;
    transaction.open_table(LOG)?;
    transaction.open_table(META)?;
    transaction.commit()?;
    Ok(())
}

fn write_identity(
    meta: &mut redb::Table<'_, &'static str, &'static [u8]>,
    identity: Identity,
) -> Result<(), BoxError> {
    if let Some(ServerId(number)) = identity.number {
        meta.insert(SERVER, encode(&number)?.as_slice())?;
    }
    if let Some(cluster) = identity.cluster {
        meta.insert(CLUSTER, encode(&cluster)?.as_slice())?;
    }
    Ok(())
}

fn recover(db: &Database) -> Result<Recovered, BoxError> {
    let transaction = db.begin_read()?;
    let meta = transaction.open_table(META)?;
    let log = transaction.open_table(LOG)?;
    let identity = Identity {
        cluster: read_meta::<ClusterId>(&meta, CLUSTER)?,
        number: read_meta(&meta, SERVER)?.map(ServerId),
    };
    let last = match log.last()? {
        Some((_, bytes)) => Some(decode::<Entry>(bytes.value())?.log_id),
        None => None,
    };
    Ok(Recovered {
        identity,
        committed: read_meta(&meta, COMMITTED)?,
        vote: read_meta(&meta, VOTE)?,
        purged: read_meta(&meta, PURGED)?,
        last,
    })
}

fn read_meta<T: DeserializeOwned>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<T>, BoxError> {
    match meta.get(key)? {
        Some(bytes) => Ok(Some(decode(bytes.value())?)),
        None => Ok(None),
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, BoxError> {
    Ok(rmp_serde::to_vec_named(value)?)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BoxError> {
    Ok(rmp_serde::from_slice(bytes)?)
}

impl Disk {
    /// Starts the writer. It ends, and cancels `closed`, after the last handle was dropped.
    pub(super) fn start(
        opened: Opened,
        cache: Arc<Mutex<Cache>>,
        progress: watch::Sender<Progress>,
        closed: CancellationToken,
    ) -> io::Result<Self> {
        let db = Arc::new(opened.db);
        let (jobs, queue) = unbounded_channel();
        let last = next(lock(&cache).last);
        let writer = Writer {
            db: Arc::clone(&db),
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
            return Ok(Self { db, jobs, cache });
        }
        std::thread::Builder::new().name(String::from("raft-log")).spawn(move || writer.run())?;
        Ok(Self { db, jobs, cache })
    }

    /// Appends entries to the cache and requests that they are written.
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

    /// Requests that entries are removed, without waiting for it.
    pub(super) fn purge(&self, upto: LogId) -> io::Result<()> {
        self.enqueue(&mut lock(&self.cache), Job::Purge(upto)).map_err(|_| ended())
    }

    async fn ask(&self, job: impl FnOnce(Reply) -> Job) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(&mut lock(&self.cache), job(reply)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Returns the entries on disk from `start` to before `end`, as many as `limit` permits.
    pub(super) fn read(&self, start: u64, end: u64, limit: usize) -> io::Result<Vec<Entry>> {
        let read = || -> Result<Vec<Entry>, BoxError> {
            let log = self.db.begin_read()?.open_table(LOG)?;
            super::take_bytes(log.range(start..end)?.map(|row| decode(row?.1.value())), limit)
        };
        read().map_err(io::Error::other)
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
        // io::Error cannot be cloned, and each waiter needs its own.
        let result = match result {
            Ok(()) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match self {
            Self::Append(_, done) => done.io_completed(result),
            // A waiter that was dropped needs no answer.
            Self::Vote(_, reply) | Self::TruncateFrom(_, reply) | Self::Identity(_, reply) => {
                let _ = reply.send(result);
            }
            Self::Purge(_) => {}
        }
    }
}

/// The writer. Its fields are dropped in this order: the file, the lock, then the guard that reports both as released.
struct Writer {
    db: Arc<Database>,
    _lock: Option<File>,
    _closed: DropGuard,
    cache: Arc<Mutex<Cache>>,
    progress: watch::Sender<Progress>,
    /// The index after the last entry on disk.
    written: u64,
    /// The committed entry that is recorded on disk.
    committed: Option<LogId>,
    /// The first error. After a failed flush the kernel may have dropped the pages, so a later successful flush proves
    /// nothing, and all later writes fail with the first error.
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

    /// Does the same as a task. Nothing is acknowledged before the virtual disk has flushed it.
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

    /// Returns `first` with all jobs that wait, up to a limit.
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

    /// Writes a batch in one transaction and informs all that wait for it.
    fn write(&mut self, batch: Vec<Job>) {
        let result = self.execute(&batch);
        self.report(batch, result);
    }

    fn execute(&mut self, batch: &[Job]) -> io::Result<()> {
        match &self.failed {
            Some(reason) => Err(io::Error::other(reason.clone())),
            None => self.commit(batch).map_err(io::Error::other),
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

    fn commit(&mut self, batch: &[Job]) -> Result<(), BoxError> {
        // redb's default durability: commit returns after the file was flushed.
        let transaction = self.db.begin_write()?;
        let mut written = self.written;
        // An entry may be committed by other servers before this disk has it. What is recorded must be in the log.
        let committed = lock(&self.cache).committed;
        {
            let mut log = transaction.open_table(LOG)?;
            let mut meta = transaction.open_table(META)?;
            for job in batch {
                match job {
                    Job::Append(entries, _) => {
                        for entry in entries {
                            log.insert(entry.log_id.index, encode(entry)?.as_slice())?;
                            written = entry.log_id.index + 1;
                        }
                    }
                    Job::Vote(..) if planted!(VoteNotSaved) => {}
                    Job::Vote(vote, _) => {
                        meta.insert(VOTE, encode(vote)?.as_slice())?;
                    }
                    Job::TruncateFrom(index, _) if planted!(TruncationLost) => {
                        written = written.min(*index);
                    }
                    Job::TruncateFrom(index, _) => {
                        log.retain_in(*index.., |_, _| false)?;
                        written = written.min(*index);
                    }
                    Job::Purge(upto) => {
                        log.retain_in(..=upto.index, |_, _| false)?;
                        meta.insert(PURGED, encode(upto)?.as_slice())?;
                        written = written.max(upto.index + 1);
                    }
                    Job::Identity(identity, _) => write_identity(&mut meta, *identity)?,
                }
            }
            if let Some(id) = committed
                && id.index < written
                && self.committed != committed
            {
                meta.insert(COMMITTED, encode(&id)?.as_slice())?;
                self.committed = committed;
            }
        }
        transaction.commit()?;
        self.written = written;
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
