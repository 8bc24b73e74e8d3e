//! The log on disk: one redb file with one writer thread.
//!
//! The thread executes all writes in the order of their requests. It combines all waiting writes (up to a limit) into
//! one transaction. So many writes under load need one flush, while a single write is executed at once.

use super::{Cache, lock};
use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::{BoxError, Error, ServerId};
use openraft::storage::IOFlushed;
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const VOTE: &str = "vote";
const PURGED: &str = "purged";
const SERVER: &str = "server";

/// Size of redb's page cache in bytes. It is small, because [`Cache`] holds the recent entries.
const PAGE_CACHE: usize = 2 * 1024 * 1024;
/// Maximum bytes of commands in one transaction.
const MAX_TRANSACTION: usize = 8 * 1024 * 1024;

/// An open and locked log file without a running writer.
#[derive(Debug)]
pub(super) struct Opened {
    db: Database,
    lock: File,
}

/// The content of the file when it was opened.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
}

/// A handle to the open file and its writer. The order of the fields matters: the database must be dropped before the
/// sender that ends the writer. The writer then drops the last reference, and `closed` means that the file is closed.
#[derive(Debug)]
pub(super) struct Disk {
    db: Arc<Database>,
    jobs: Sender<Job>,
}

enum Job {
    Append(Vec<Entry>, IOFlushed<TypeConfig>),
    Vote(Vote, Reply),
    TruncateFrom(u64, Reply),
    Purge(LogId, Reply),
}

type Reply = oneshot::Sender<io::Result<()>>;

/// Creates a directory whose name survives a power loss, because all acknowledged data is below it.
pub(crate) fn make_dir(dir: &Path) -> Result<(), Error> {
    let made = caravan_sys::files::durable_dir(dir, 0o700);
    made.map_err(|error| Error::data_dir(dir)(io::Error::other(caravan_sys::describe(&error))))
}

/// Opens `dir`, creates it if absent, and reads the facts needed at the start.
pub(super) fn open(dir: &Path, server: ServerId) -> Result<(Opened, Recovered), Error> {
    make_dir(dir)?;
    let lock = File::open(dir).map_err(Error::data_dir(dir))?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked { path: dir.into() }),
        Err(errno) => return Err(Error::DataDir { path: dir.into(), source: errno.into() }),
    }

    let path = dir.join("raft.redb");
    let log_error = |source: BoxError| Error::Log { path: path.clone(), source };
    if !path.try_exists().map_err(Error::data_dir(&path))? {
        // Create it under another name, so that a crash in between leaves no partial file.
        let fresh = dir.join("raft.redb.new");
        let _ = fs::remove_file(&fresh);
        let db = open_file(&fresh).map_err(open_error(&fresh))?;
        init(&db, server).map_err(log_error)?;
        drop(db);
        fs::rename(&fresh, &path).and_then(|()| lock.sync_all()).map_err(Error::data_dir(&path))?;
    }
    let db = open_file(&path).map_err(open_error(&path))?;
    let (found, recovered) = recover(&db).map_err(log_error)?;
    if found != server {
        return Err(Error::WrongServer { path: dir.into(), found, expected: server });
    }
    Ok((Opened { db, lock }, recovered))
}

/// Reads a log that no agent uses: the last removed entry, and all entries after it. Changes nothing, except for the
/// repair when the file is opened after a crash.
pub(crate) fn read_offline(dir: &Path) -> Result<(Option<LogId>, Vec<Entry>), Error> {
    let lock = File::open(dir).map_err(Error::data_dir(dir))?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked { path: dir.into() }),
        Err(errno) => return Err(Error::DataDir { path: dir.into(), source: errno.into() }),
    }
    let path = dir.join("raft.redb");
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::data_dir(&path))?;
    let read = || -> Result<_, BoxError> {
        let db = Database::builder().set_cache_size(PAGE_CACHE).create_file(file)?;
        let transaction = db.begin_read()?;
        let purged = read_meta(&transaction.open_table(META)?, PURGED)?;
        let mut entries = Vec::new();
        for row in transaction.open_table(LOG)?.iter()? {
            entries.push(decode(row?.1.value())?);
        }
        Ok((purged, entries))
    };
    let read = read().map_err(|source| Error::Log { path: path.clone(), source });
    drop(lock);
    read
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

fn init(db: &Database, server: ServerId) -> Result<(), BoxError> {
    let transaction = db.begin_write()?;
    transaction.open_table(LOG)?;
    transaction.open_table(META)?.insert(SERVER, encode(&server.0)?.as_slice())?;
    transaction.commit()?;
    Ok(())
}

fn recover(db: &Database) -> Result<(ServerId, Recovered), BoxError> {
    let transaction = db.begin_read()?;
    let meta = transaction.open_table(META)?;
    let log = transaction.open_table(LOG)?;
    let server = read_meta(&meta, SERVER)?.ok_or("the log does not name its server")?;
    let last = match log.last()? {
        Some((_, bytes)) => Some(decode::<Entry>(bytes.value())?.log_id),
        None => None,
    };
    let recovered = Recovered { vote: read_meta(&meta, VOTE)?, purged: read_meta(&meta, PURGED)?, last };
    Ok((ServerId(server), recovered))
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
        closed: CancellationToken,
    ) -> io::Result<Self> {
        let db = Arc::new(opened.db);
        let (jobs, queue) = channel();
        let writer =
            Writer { db: Arc::clone(&db), _lock: opened.lock, _closed: closed.drop_guard(), cache, queue };
        std::thread::Builder::new().name(String::from("raft-log")).spawn(move || writer.run())?;
        Ok(Self { db, jobs })
    }

    pub(super) fn append(&self, entries: Vec<Entry>, done: IOFlushed<TypeConfig>) {
        if let Err(rejected) = self.jobs.send(Job::Append(entries, done)) {
            rejected.0.finish(&Err(ended()));
        }
    }

    pub(super) async fn save_vote(&self, vote: Vote) -> io::Result<()> {
        self.ask(|reply| Job::Vote(vote, reply)).await
    }

    pub(super) async fn truncate_from(&self, index: u64) -> io::Result<()> {
        self.ask(|reply| Job::TruncateFrom(index, reply)).await
    }

    pub(super) async fn purge(&self, upto: LogId) -> io::Result<()> {
        self.ask(|reply| Job::Purge(upto, reply)).await
    }

    async fn ask(&self, job: impl FnOnce(Reply) -> Job) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Returns the entries on disk from `start` to before `end`.
    pub(super) fn read(&self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let read = || -> Result<Vec<Entry>, BoxError> {
            let log = self.db.begin_read()?.open_table(LOG)?;
            let mut entries = Vec::new();
            for row in log.range(start..end)? {
                entries.push(decode(row?.1.value())?);
            }
            Ok(entries)
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
            Self::Vote(..) | Self::TruncateFrom(..) | Self::Purge(..) => 0,
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
            Self::Vote(_, reply) | Self::TruncateFrom(_, reply) | Self::Purge(_, reply) => {
                let _ = reply.send(result);
            }
        }
    }
}

/// The writer thread. Its fields are dropped in this order: the file, the lock, then the guard that reports both as
/// released.
struct Writer {
    db: Arc<Database>,
    _lock: File,
    _closed: DropGuard,
    cache: Arc<Mutex<Cache>>,
    queue: Receiver<Job>,
}

impl Writer {
    fn run(self) {
        // After a failed flush the kernel may have dropped the pages, so a later successful flush proves nothing. All
        // later writes fail with the first error.
        let mut failed: Option<String> = None;
        while let Ok(first) = self.queue.recv() {
            let mut size = first.size();
            let mut batch = vec![first];
            while size < MAX_TRANSACTION {
                let Ok(job) = self.queue.try_recv() else { break };
                size += job.size();
                batch.push(job);
            }
            let result = match &failed {
                Some(reason) => Err(io::Error::other(reason.clone())),
                None => commit(&self.db, &batch).map_err(io::Error::other),
            };
            match &result {
                Ok(()) => lock(&self.cache).flushed(flushed_to(&batch)),
                Err(error) if failed.is_none() => {
                    tracing::error!(%error, "writing the replicated log failed");
                    failed = Some(error.to_string());
                }
                Err(_) => {}
            }
            for job in batch {
                job.finish(&result);
            }
        }
    }
}

fn flushed_to(batch: &[Job]) -> u64 {
    batch
        .iter()
        .filter_map(|job| match job {
            Job::Append(entries, _) => entries.last().map(|entry| entry.log_id.index + 1),
            _ => None,
        })
        .next_back()
        .unwrap_or(0)
}

fn commit(db: &Database, batch: &[Job]) -> Result<(), BoxError> {
    // redb's default durability: commit returns after the file was flushed.
    let transaction = db.begin_write()?;
    {
        let mut log = transaction.open_table(LOG)?;
        let mut meta = transaction.open_table(META)?;
        for job in batch {
            match job {
                Job::Append(entries, _) => {
                    for entry in entries {
                        log.insert(entry.log_id.index, encode(entry)?.as_slice())?;
                    }
                }
                Job::Vote(vote, _) => {
                    meta.insert(VOTE, encode(vote)?.as_slice())?;
                }
                Job::TruncateFrom(index, _) => log.retain_in(*index.., |_, _| false)?,
                Job::Purge(upto, _) => {
                    log.retain_in(..=upto.index, |_, _| false)?;
                    meta.insert(PURGED, encode(upto)?.as_slice())?;
                }
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use openraft::entry::EntryPayload;
    use openraft::testing::log_id;
    use openraft::type_config::TypeConfigExt;
    use redb::StorageBackend;
    use redb::backends::InMemoryBackend;

    use super::*;

    /// A disk whose flushes fail while the flag is set.
    #[derive(Debug)]
    struct Failing {
        inner: InMemoryBackend,
        broken: Arc<AtomicBool>,
    }

    impl StorageBackend for Failing {
        fn len(&self) -> io::Result<u64> {
            self.inner.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.inner.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.inner.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            if self.broken.load(Ordering::SeqCst) {
                return Err(io::Error::other("no space left"));
            }
            self.inner.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.inner.write(offset, data)
        }
    }

    /// Returns an empty log on a disk that fails when the flag is set.
    pub(in crate::log) fn breakable(broken: &Arc<AtomicBool>) -> Opened {
        let backend = Failing { inner: InMemoryBackend::new(), broken: Arc::clone(broken) };
        let db = Database::builder().create_with_backend(backend).unwrap();
        init(&db, ServerId(1)).unwrap();
        Opened { db, lock: tempfile::tempfile().unwrap() }
    }

    #[tokio::test]
    async fn after_a_failed_flush_nothing_succeeds_any_more() {
        let broken = Arc::new(AtomicBool::new(false));
        let disk = Disk::start(breakable(&broken), Arc::default(), CancellationToken::new()).unwrap();

        disk.save_vote(Vote::new(1, 1)).await.unwrap();
        broken.store(true, Ordering::SeqCst);
        let error = disk.save_vote(Vote::new(2, 1)).await.unwrap_err();
        assert!(error.to_string().contains("no space left"), "{error}");

        // The disk recovers, but the state after the first failure is unknown.
        broken.store(false, Ordering::SeqCst);
        let (done, outcome) = TypeConfig::oneshot();
        let entry = Entry { log_id: log_id::<TypeConfig>(1, 1, 0), payload: EntryPayload::Blank };
        disk.append(vec![entry], IOFlushed::signal(done));
        assert!(outcome.await.unwrap().unwrap_err().to_string().contains("no space left"));
        assert!(disk.purge(log_id::<TypeConfig>(1, 1, 0)).await.is_err());
    }
}
