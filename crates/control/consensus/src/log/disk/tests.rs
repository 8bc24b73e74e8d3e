//! Tests of the log on a disk that fails.

use super::*;
use openraft::entry::EntryPayload;
use openraft::testing::log_id;
use openraft::type_config::TypeConfigExt;
use redb::StorageBackend;
use redb::backends::InMemoryBackend;
use std::sync::atomic::{AtomicBool, Ordering};

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
    init(&db).unwrap();
    Opened::new(db, tempfile::tempfile().unwrap())
}

#[tokio::test]
async fn after_a_failed_flush_nothing_succeeds_any_more() {
    let broken = Arc::new(AtomicBool::new(false));
    let disk = Disk::start(
        breakable(&broken),
        Arc::default(),
        watch::channel(Progress::default()).0,
        CancellationToken::new(),
    )
    .unwrap();

    disk.save_vote(Vote::new(1, 1)).await.unwrap();
    broken.store(true, Ordering::SeqCst);
    let error = disk.save_vote(Vote::new(2, 1)).await.unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");

    // The disk recovers, but the state after the first failure is unknown.
    broken.store(false, Ordering::SeqCst);
    let (done, outcome) = TypeConfig::oneshot();
    let entry = Entry { log_id: log_id::<TypeConfig>(1, 1, 0), payload: EntryPayload::Blank };
    disk.append(vec![entry], IOFlushed::signal(done)).unwrap();
    assert!(outcome.await.unwrap().unwrap_err().to_string().contains("no space left"));
    disk.purge(log_id::<TypeConfig>(1, 1, 0)).unwrap();
    assert!(disk.truncate_from(0).await.is_err());
}
