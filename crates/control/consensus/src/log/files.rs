//! The files of the log: segments in a directory.

use super::segment::SEGMENT;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment's file.
pub(crate) trait SegmentFile: fmt::Debug + Send + Sync {
    fn size(&self) -> io::Result<u64>;
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn set_size(&self, size: u64) -> io::Result<()>;
    /// Flushes all writes to the disk.
    fn sync(&self) -> io::Result<()>;
}

/// All segments of one log, by id.
pub(crate) trait Segments: fmt::Debug + Send {
    /// Returns the ids in ascending order.
    fn list(&self) -> io::Result<Vec<u64>>;

    fn open(&self, id: u64) -> io::Result<Arc<dyn SegmentFile>>;

    /// Creates a segment that begins with `start` and has room for `size` bytes. It is durable once this returns.
    fn create(&mut self, id: u64, start: &[u8], size: u64) -> io::Result<Arc<dyn SegmentFile>>;

    /// Removes a segment without needed entries. The segment may appear again after a power loss.
    fn remove(&mut self, id: u64, file: Arc<dyn SegmentFile>) -> io::Result<()>;

    /// Returns an unpredictable number.
    fn salt(&self) -> u64;
}

/// The name of a segment that is being created.
const NEW: &str = "new.part";
/// The name of a removed segment that waits for its next use.
const SPARE: &str = "spare.part";

/// The segments in a directory, as files `<id>.log`.
///
/// One removed segment is kept: a file whose blocks are allocated and written is the fastest to write
/// again.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    handle: File,
    has_spare: bool,
}

impl Directory {
    /// Opens the directory. Remaining files of an earlier process are replaced when their names are needed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), handle: File::open(path)?, has_spare: false })
    }

    fn segment(&self, id: u64) -> PathBuf {
        self.path.join(format!("{id:020}.log"))
    }
}

/// Returns the id in a segment's name.
fn id_in(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    (digits.len() == 20).then(|| digits.parse().ok())?
}

/// Allocates the blocks of a file, so that later writes change no metadata and need no space.
fn allocate(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        // A file system without allocation.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(size),
        other => Ok(other?),
    }
}

impl Segments for Directory {
    fn list(&self) -> io::Result<Vec<u64>> {
        let mut ids = Vec::new();
        for row in fs::read_dir(&self.path)? {
            ids.extend(row?.file_name().to_str().and_then(id_in));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn open(&self, id: u64) -> io::Result<Arc<dyn SegmentFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(self.segment(id))?))
    }

    fn create(&mut self, id: u64, start: &[u8], size: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let recycled = size == SEGMENT && std::mem::take(&mut self.has_spare);
        let (from, file) = if recycled {
            let from = self.path.join(SPARE);
            (from.clone(), OpenOptions::new().read(true).write(true).open(from)?)
        } else {
            let from = self.path.join(NEW);
            let mut new = OpenOptions::new();
            let file = new.read(true).write(true).create(true).truncate(true).mode(0o600).open(&from)?;
            allocate(&file, size)?;
            (from, file)
        };
        file.write_all_at(start, 0)?;
        file.sync_all()?;
        fs::rename(from, self.segment(id))?;
        self.handle.sync_all()?;
        Ok(Arc::new(file))
    }

    fn remove(&mut self, id: u64, file: Arc<dyn SegmentFile>) -> io::Result<()> {
        let path = self.segment(id);
        // A reader that still has the file must not see new content.
        if self.has_spare || Arc::strong_count(&file) > 1 || file.size()? != SEGMENT {
            return fs::remove_file(path);
        }
        fs::rename(path, self.path.join(SPARE))?;
        // The old name must be gone before the content changes.
        self.handle.sync_all()?;
        self.has_spare = true;
        Ok(())
    }

    fn salt(&self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().0
    }
}

impl SegmentFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
