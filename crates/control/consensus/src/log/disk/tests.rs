//! Tests of the log on a disk that fails.

use super::*;
use crate::log::files::{SegmentFile, Segments};
use openraft::entry::EntryPayload;
use openraft::testing::log_id;
use openraft::type_config::TypeConfigExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Segments in a directory, whose flushes fail while the flag is set.
#[derive(Debug)]
struct Failing {
    inner: Directory,
    _dir: tempfile::TempDir,
    broken: Arc<AtomicBool>,
}

#[derive(Debug)]
struct FailingFile {
    inner: Arc<dyn SegmentFile>,
    broken: Arc<AtomicBool>,
}

impl Segments for Failing {
    fn list(&self) -> io::Result<Vec<u64>> {
        self.inner.list()
    }

    fn open(&self, id: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let (inner, broken) = (self.inner.open(id)?, Arc::clone(&self.broken));
        Ok(Arc::new(FailingFile { inner, broken }))
    }

    fn create(&mut self, id: u64, start: &[u8], size: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let (inner, broken) = (self.inner.create(id, start, size)?, Arc::clone(&self.broken));
        Ok(Arc::new(FailingFile { inner, broken }))
    }

    fn remove(&mut self, id: u64, file: Arc<dyn SegmentFile>) -> io::Result<()> {
        self.inner.remove(id, file)
    }

    fn salt(&self) -> u64 {
        self.inner.salt()
    }
}

impl SegmentFile for FailingFile {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.inner.set_size(size)
    }

    fn sync(&self) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("no space left"));
        }
        self.inner.sync()
    }
}

/// Returns an empty log on a disk that fails when the flag is set.
pub(in crate::log) fn breakable(broken: &Arc<AtomicBool>) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let inner = Directory::open(dir.path()).unwrap();
    let failing = Failing { inner, _dir: dir, broken: Arc::clone(broken) };
    Opened::new(Store::open(Box::new(failing)).unwrap(), tempfile::tempfile().unwrap())
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

    // The disk works again, but the state after the first failure is unknown.
    broken.store(false, Ordering::SeqCst);
    let (done, outcome) = TypeConfig::oneshot();
    let entry = Entry { log_id: log_id::<TypeConfig>(1, 1, 0), payload: EntryPayload::Blank };
    disk.append(vec![entry], IOFlushed::signal(done)).unwrap();
    assert!(outcome.await.unwrap().unwrap_err().to_string().contains("no space left"));
    disk.purge(log_id::<TypeConfig>(1, 1, 0)).unwrap();
    assert!(disk.truncate_from(0).await.is_err());
}
