//! The node's lease: until when this node may run tasks that are the only writers of a volume (design section 4.4).
//!
//! The agent renews the lease with each heartbeat that the servers answered, counted from when it was sent. The
//! shims of such tasks look at the lease when the deadline that they know has come, and kill their task unless the
//! lease was renewed without a break. This holds when the agent hangs, is stopped or is dead.
//!
//! A lease that ran out and was given anew is another **term**: meanwhile the servers may have handed the volumes on,
//! so what began under the earlier term must not go on, even if whoever should have ended it was asleep.
//!
//! The file has 24 bytes of little-endian nanoseconds of `CLOCK_BOOTTIME` (deadline, beginning of the term, last
//! contact) and the id of the boot that they belong to. Zeros and a file that is too short mean no lease.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use caravan_sys::time::{BootTime, boot_id};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Where the three times and the boot's id lie in the file.
const DEADLINE: u64 = 0;
const BEGAN: u64 = 8;
const HEARD: u64 = 16;
const BOOT: u64 = 24;

/// A lease at one moment. All zero: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// When it runs out.
    pub deadline: BootTime,
    /// When its term began: since then it never ran out.
    pub began: BootTime,
    /// When the newest heartbeat that was answered was sent.
    pub heard: BootTime,
}

impl Lease {
    /// The lease after a heartbeat that was sent at `sent` and whose answer came by `now`.
    #[must_use]
    pub fn renewed(self, sent: BootTime, ttl: Duration, now: BootTime) -> Self {
        // Whoever looked between the deadline and now has ended its task already.
        let began = if self.holds(now) { self.began } else { now };
        Self { deadline: sent.after(ttl), began, heard: sent }
    }

    /// Whether it has not run out.
    pub fn holds(self, now: BootTime) -> bool {
        now < self.deadline
    }
}

/// The lease that a task runs under: which file, and which term of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// The lease file.
    pub file: PathBuf,
    /// [`Lease::began`] of the term, in nanoseconds of `CLOCK_BOOTTIME`.
    pub began: u64,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}

/// Reads the lease. The deadline comes first: the writer puts it last, so that nobody sees the deadline of a new
/// term with the beginning of the one before.
fn read(file: &File) -> std::io::Result<Lease> {
    let time = |at| -> std::io::Result<BootTime> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at)?;
        Ok(BootTime(u64::from_le_bytes(bytes)))
    };
    let deadline = time(DEADLINE)?;
    Ok(Lease { deadline, began: time(BEGAN)?, heard: time(HEARD)? })
}

/// The agent's side. Only one process may write.
#[derive(Debug)]
pub struct LeaseWriter {
    file: File,
    path: PathBuf,
}

impl LeaseWriter {
    /// Opens or creates the file (0600) and answers the lease in it. One of an earlier boot is struck out: its times
    /// mean nothing any more.
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

    /// Writes the lease. Not synced: after a crash of the machine no task is left that it could concern.
    pub fn write(&self, lease: Lease) -> Result<()> {
        for (at, time) in [(BEGAN, lease.began), (HEARD, lease.heard), (DEADLINE, lease.deadline)] {
            self.file.write_all_at(&time.0.to_le_bytes(), at).map_err(failed("write", &self.path))?;
        }
        Ok(())
    }
}

/// The shim's side. The file is kept open, so that removing or replacing it changes nothing.
#[derive(Debug)]
pub struct LeaseReader {
    file: File,
    path: PathBuf,
    began: BootTime,
    last: Lease,
}

impl LeaseReader {
    /// Opens the file of a term.
    pub fn open(term: &Term) -> Result<Self> {
        let file = File::open(&term.file).map_err(failed("open", &term.file))?;
        let began = BootTime(term.began);
        Ok(Self { file, path: term.file.clone(), began, last: Lease::default() })
    }

    /// Until when the term certainly lasts; none if it is over. A file that cannot be read leaves what was read last
    /// in force.
    pub fn holds_until(&mut self, now: BootTime) -> Option<BootTime> {
        if let Ok(lease) = read(&self.file) {
            self.last = lease;
        }
        (self.last.began == self.began && self.last.holds(now)).then_some(self.last.deadline)
    }

    /// The file's path.
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
        // Sent in time, answered too late: tasks were ended in between.
        let third = second.renewed(ms(189), ttl, ms(190));
        assert_eq!(third, Lease { deadline: ms(289), began: ms(190), heard: ms(189) });
        // An answer that comes after its own lease gives none.
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
        // The next agent finds it.
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
