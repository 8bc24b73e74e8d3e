//! The node's lease: until when this node may run tasks that are the only writers of a volume.
//!
//! The agent writes a deadline into a small file with each heartbeat that it sends; the shims of such tasks look
//! there when the deadline that they know has come, and kill their task if there is no later one. This holds when
//! the agent hangs or is stopped. The file is eight bytes, a little-endian number of nanoseconds of
//! `CLOCK_BOOTTIME`; zero and a file that is too short mean no lease.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use caravan_sys::time::BootTime;

use crate::{Error, Result};

/// The agent's side.
#[derive(Debug)]
pub struct LeaseWriter {
    file: File,
    path: PathBuf,
}

impl LeaseWriter {
    /// Opens or creates the file (0600), leaving a deadline in it as it is.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|source| Error::File { doing: "open", path: path.to_owned(), source })?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Sets the deadline. Not synced: after a crash of the machine no task is left that it could concern.
    pub fn renew(&self, deadline: BootTime) -> Result<()> {
        self.file.write_all_at(&deadline.0.to_le_bytes(), 0).map_err(|source| Error::File {
            doing: "write",
            path: self.path.clone(),
            source,
        })
    }
}

/// The shim's side. The file is kept open, so that removing or replacing it changes nothing.
#[derive(Debug)]
pub struct LeaseReader {
    file: File,
    path: PathBuf,
    last: BootTime,
}

impl LeaseReader {
    /// Opens the file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::File {
            doing: "open",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { file, path: path.to_owned(), last: BootTime(0) })
    }

    /// The deadline now. A file that cannot be read leaves the last one in force.
    pub fn deadline(&mut self) -> BootTime {
        let mut bytes = [0; 8];
        if self.file.read_exact_at(&mut bytes, 0).is_ok() {
            self.last = BootTime(u64::from_le_bytes(bytes));
        }
        self.last
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_newest_deadline_and_outlives_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let writer = LeaseWriter::open(&path).unwrap();
        let mut reader = LeaseReader::open(&path).unwrap();
        assert_eq!(reader.deadline(), BootTime(0));
        writer.renew(BootTime(7)).unwrap();
        assert_eq!(reader.deadline(), BootTime(7));
        LeaseWriter::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        writer.renew(BootTime(9)).unwrap();
        assert_eq!(reader.deadline(), BootTime(9));
    }
}
