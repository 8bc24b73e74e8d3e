//! The node's lease: the time until which this node may run tasks that are the only writers of a volume
//! (`docs/design/shim.md`).
//!
//! The agent renews the lease with each heartbeat that the servers answered, counted from the time of sending. When
//! the deadline that a shim has read passes, the shim reads the lease again. It kills its task unless the lease was
//! renewed without a break. This works even if the agent hangs, is stopped or is dead.
//!
//! A lease that ran out and was granted again begins a new **term**. In between, the servers may have given the
//! volumes to another node. So a task of the earlier term must end, even if its shim was asleep when the lease ran
//! out.
//!
//! The file has 24 bytes of little-endian nanoseconds of `CLOCK_BOOTTIME` (deadline, beginning of the term, last
//! contact). Then follows the id of the boot to which they belong. Zeros and a file that is too short mean no lease.

use crate::{Error, Result};
use caravan_sys::time::{BootTime, boot_id};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Offsets of the three times and the boot's id in the file.
const DEADLINE: u64 = 0;
const BEGAN: u64 = 8;
const HEARD: u64 = 16;
const BOOT: u64 = 24;

/// The state of a lease at one moment. All zero means no lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The time at which the lease runs out.
    pub deadline: BootTime,
    /// The beginning of the term: the lease has not run out since then.
    pub began: BootTime,
    /// The time at which the newest answered heartbeat was sent.
    pub heard: BootTime,
}

impl Lease {
    /// Returns the lease after a heartbeat that was sent at `sent` and answered by `now`.
    #[must_use]
    pub fn renewed(self, sent: BootTime, ttl: Duration, now: BootTime) -> Self {
        // If the old deadline has passed, shims may already have killed their tasks, so a new term begins.
        let began = if self.holds(now) { self.began } else { now };
        Self { deadline: sent.after(ttl), began, heard: sent }
    }

    /// Returns whether the lease has not run out.
    pub fn holds(self, now: BootTime) -> bool {
        now < self.deadline
    }
}

/// The lease that a task runs under: its file and its term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// Path of the lease file.
    pub file: PathBuf,
    /// [`Lease::began`] of the term, in nanoseconds of `CLOCK_BOOTTIME`.
    pub began: u64,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}

/// Reads the lease, the deadline first. The writer writes it last, so a reader never combines the deadline of a new
/// term with the beginning of the previous one.
fn read(file: &File) -> std::io::Result<Lease> {
    let time = |at| -> std::io::Result<BootTime> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at)?;
        Ok(BootTime(u64::from_le_bytes(bytes)))
    };
    let deadline = time(DEADLINE)?;
    Ok(Lease { deadline, began: time(BEGAN)?, heard: time(HEARD)? })
}

/// The agent's side of the lease file. Only one process may write.
#[derive(Debug)]
pub struct LeaseWriter {
    file: File,
    path: PathBuf,
}

impl LeaseWriter {
    /// Opens or creates the file (0600) and returns its lease. A lease of an earlier boot is cleared, because its
    /// times have no meaning in this boot.
    pub fn open(path: &Path) -> Result<(Self, Lease)> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed("open", path))?;
        let this = Self { file, path: path.to_owned() };
        let boot = boot_id()?;
        let mut known = vec![0; boot.len()];
        if this.file.read_exact_at(&mut known, BOOT).is_ok() && known == boot.as_bytes() {
            let lease = read(&this.file).map_err(failed("read", path))?;
            return Ok((this, lease));
        }
        this.write(Lease::default())?;
        this.file.write_all_at(boot.as_bytes(), BOOT).map_err(failed("write", path))?;
        Ok((this, Lease::default()))
    }

    /// Writes the lease. Not synced: after a crash of the machine, no task remains that depends on it.
    pub fn write(&self, lease: Lease) -> Result<()> {
        for (at, time) in [(BEGAN, lease.began), (HEARD, lease.heard), (DEADLINE, lease.deadline)] {
            self.file.write_all_at(&time.0.to_le_bytes(), at).map_err(failed("write", &self.path))?;
        }
        Ok(())
    }
}

/// The shim's side of the lease file. The file is kept open, so that removing or replacing it has no effect.
#[derive(Debug)]
pub struct LeaseReader {
    file: File,
    path: PathBuf,
    began: BootTime,
    last: Lease,
}

impl LeaseReader {
    /// Opens the lease file of a term.
    pub fn open(term: &Term) -> Result<Self> {
        let file = File::open(&term.file).map_err(failed("open", &term.file))?;
        let began = BootTime(term.began);
        Ok(Self { file, path: term.file.clone(), began, last: Lease::default() })
    }

    /// Returns the time until which the term certainly lasts; `None` if the term has ended. If the file cannot be
    /// read, the last values remain valid.
    pub fn holds_until(&mut self, now: BootTime) -> Option<BootTime> {
        if let Ok(lease) = read(&self.file) {
            self.last = lease;
        }
        (self.last.began == self.began && self.last.holds(now)).then_some(self.last.deadline)
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> BootTime {
        BootTime(n * 1_000_000)
    }

    #[test]
    fn a_lease_counts_from_the_moment_of_sending_and_a_gap_begins_a_new_term() {
        let ttl = Duration::from_millis(100);
        let first = Lease::default().renewed(ms(10), ttl, ms(30));
        assert_eq!(first, Lease { deadline: ms(110), began: ms(30), heard: ms(10) });
        let second = first.renewed(ms(90), ttl, ms(109));
        assert_eq!(second, Lease { deadline: ms(190), began: ms(30), heard: ms(90) });
        // Sent in time but answered too late: tasks may have been killed in between.
        let third = second.renewed(ms(189), ttl, ms(190));
        assert_eq!(third, Lease { deadline: ms(289), began: ms(190), heard: ms(189) });
        // An answer that arrives after its own lease's deadline grants no lease.
        let late = third.renewed(ms(280), ttl, ms(500));
        assert!(!late.holds(ms(500)));
    }

    #[test]
    fn a_reader_sees_its_own_term_only_and_outlives_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let (writer, none) = LeaseWriter::open(&path).unwrap();
        assert_eq!(none, Lease::default());
        let lease = Lease { deadline: ms(7), began: ms(3), heard: ms(5) };
        writer.write(lease).unwrap();
        let mut reader = LeaseReader::open(&Term { file: path.clone(), began: ms(3).0 }).unwrap();
        assert_eq!(reader.holds_until(ms(6)), Some(ms(7)));
        assert_eq!(reader.holds_until(ms(7)), None);
        // The next agent finds the lease.
        assert_eq!(LeaseWriter::open(&path).unwrap().1, lease);
        std::fs::remove_file(&path).unwrap();
        writer.write(Lease { deadline: ms(9), ..lease }).unwrap();
        assert_eq!(reader.holds_until(ms(8)), Some(ms(9)));
        writer.write(lease.renewed(ms(20), Duration::from_secs(1), ms(21))).unwrap();
        assert_eq!(reader.holds_until(ms(22)), None, "the lease of another term");
    }

    #[test]
    fn a_lease_of_an_earlier_boot_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let (writer, _) = LeaseWriter::open(&path).unwrap();
        writer.write(Lease { deadline: BootTime(u64::MAX), began: ms(1), heard: ms(1) }).unwrap();
        writer.file.write_all_at(b"00000000", BOOT).unwrap();
        assert_eq!(LeaseWriter::open(&path).unwrap().1, Lease::default());
        assert_eq!(LeaseReader::open(&Term { file: path, began: ms(1).0 }).unwrap().holds_until(ms(0)), None);
    }
}
