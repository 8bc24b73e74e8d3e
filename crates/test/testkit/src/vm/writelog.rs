//! The log of a disk's writes and flushes, and images of the disk after a power cut.
//!
//! QEMU's driver `blklogwrites` writes the format of the device-mapper target log-writes (Linux
//! documentation, admin-guide/device-mapper/log-writes): a sector with the superblock, then entries, each a
//! sector with the header and the data. An entry is complete before its write or flush is reported to the
//! machine as complete.
//!
//! A disk keeps all writes before a completed flush. Of the later writes it may keep any sectors, and any one of
//! two writes to the same sector.

use crate::chaos::rng::Rng;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first eight bytes of the superblock.
const MAGIC: u64 = 0x006a_7366_7773_6872;
/// The supported version.
const VERSION: u64 = 1;
/// The flags of an entry.
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
/// The unit that a disk writes completely or not at all, in bytes.
const SECTOR: u64 = 512;

/// The kind of an entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A write to sectors from this one on, in units of the log's sector size.
    Write {
        /// The first sector on the disk.
        sector: u64,
        /// The number of sectors.
        count: u64,
        /// Whether the data is durable when the write is complete.
        durable: bool,
    },
    /// A flush: all earlier writes are durable.
    Flush,
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The operation of the guest on its disk.
    pub kind: Kind,
    /// The offset of the entry in the log, in bytes.
    pub begin: u64,
    /// The offset of the entry's data in the log, in bytes.
    pub data: u64,
}

/// A log that is complete.
#[derive(Debug)]
pub struct WriteLog {
    file: File,
    sector: u64,
    entries: Vec<Entry>,
}

impl WriteLog {
    /// Reads the entries of a log, up to the first one that is not complete.
    ///
    /// # Errors
    /// Fails if the file is no such log.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let length = file.metadata()?.len();
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0).context("read the superblock of the log")?;
        ensure!(number(&head, 0) == MAGIC, "{} is no log of writes", path.display());
        ensure!(number(&head, 8) == VERSION, "version {} of a log of writes", number(&head, 8));
        let sector = u64::from(u32::from_le_bytes(head[24..28].try_into()?));
        ensure!(sector.is_power_of_two() && sector >= SECTOR, "a log with sectors of {sector} bytes");
        let mut entries = Vec::new();
        let mut begin = sector;
        while begin + sector <= length {
            let mut header = [0; 32];
            file.read_exact_at(&mut header, begin)?;
            let [at, count, flags, _] = [0, 8, 16, 24].map(|offset| number(&header, offset));
            let data = begin + sector;
            let end = data + if flags & DISCARD == 0 { count * sector } else { 0 };
            // QEMU reserves the space of an entry before it writes the entry.
            if (count == 0 && flags & FLUSH == 0) || end > length {
                break;
            }
            ensure!(flags & DISCARD == 0, "the log has a discard: the disk should not offer that");
            if flags & FLUSH != 0 {
                entries.push(Entry { kind: Kind::Flush, begin, data });
            }
            if count > 0 {
                let kind = Kind::Write { sector: at, count, durable: flags & FUA != 0 };
                entries.push(Entry { kind, begin, data });
            }
            begin = end;
        }
        Ok(Self { file, sector, entries })
    }

    /// Returns the entries in their order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of entries that a log of the given length contained.
    pub fn entries_within(&self, length: u64) -> usize {
        self.entries.partition_point(|entry| entry.begin < length)
    }

    /// Creates the image that a power cut leaves after the first `cut` entries, in a file with the disk's
    /// first content.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub fn replay(&self, cut: usize, seed: u64, image: &File) -> Result<Outcome> {
        let scale = self.sector / SECTOR;
        let kept = survivors(&self.entries[..cut.min(self.entries.len())], scale, seed);
        let mut buffer = vec![0; usize::try_from(SECTOR)?];
        // Most sectors follow each other, on the disk and in the log.
        let mut run: Option<(u64, u64, u64)> = None;
        let mut flush = |run: Option<(u64, u64, u64)>| -> Result<()> {
            let Some((to, from, count)) = run else { return Ok(()) };
            buffer.resize(usize::try_from(count * SECTOR)?, 0);
            self.file.read_exact_at(&mut buffer, from)?;
            Ok(image.write_all_at(&buffer, to * SECTOR)?)
        };
        for (&to, &(entry, offset)) in &kept.sectors {
            let from = self.entries[entry].data + offset * SECTOR;
            run = match run {
                Some((first, begin, count)) if first + count == to && begin + count * SECTOR == from => {
                    Some((first, begin, count + 1))
                }
                other => {
                    flush(other)?;
                    Some((to, from, 1))
                }
            };
        }
        flush(run)?;
        Ok(kept.outcome)
    }
}

/// The number of writes that a power cut affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of writes after the last flush.
    pub volatile: usize,
    /// The number of these writes that were lost completely.
    pub dropped: usize,
    /// The number of these writes of which a part was lost.
    pub torn: usize,
}

/// The content of a disk after a power cut.
#[derive(Debug, Default)]
struct Survivors {
    /// For each sector of 512 bytes that was written: the entry, and the sector's number in the entry's data.
    sectors: BTreeMap<u64, (usize, u64)>,
    outcome: Outcome,
}

/// Returns the surviving writes. `scale` is the number of sectors of 512 bytes in one sector of the log.
fn survivors(entries: &[Entry], scale: u64, seed: u64) -> Survivors {
    let mut rng = Rng::new(seed);
    let mut survivors = Survivors::default();
    let flushed = entries.iter().rposition(|entry| entry.kind == Kind::Flush).unwrap_or(0);
    let mut volatile = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        if let Kind::Write { sector, count, durable } = entry.kind {
            if number < flushed || durable {
                for offset in 0..count * scale {
                    survivors.sectors.insert(sector * scale + offset, (number, offset));
                }
            } else {
                volatile.push((number, sector * scale, count * scale));
            }
        }
    }
    survivors.outcome.volatile = volatile.len();
    // A cut right after a busy time loses all writes, a cut after an idle time almost none.
    let lost = *rng.pick(&[0, 10, 50, 90, 100]);
    let mut in_order = volatile;
    if rng.percent(50) {
        for place in (1..in_order.len()).rev() {
            let other = rng.index(place + 1);
            in_order.swap(place, other);
        }
    }
    for (number, sector, count) in in_order {
        if rng.percent(lost) {
            survivors.outcome.dropped += 1;
            continue;
        }
        let is_torn = count > 1 && rng.percent(25);
        survivors.outcome.torn += usize::from(is_torn);
        for offset in 0..count {
            // A later write that was durable when it was complete is kept.
            let newer = survivors.sectors.get(&(sector + offset)).filter(|(other, _)| *other > number);
            let is_outdated = newer.is_some_and(|(other, _)| is_durable(&entries[*other]));
            if !is_outdated && (!is_torn || rng.percent(50)) {
                survivors.sectors.insert(sector + offset, (number, offset));
            }
        }
    }
    survivors
}

fn is_durable(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::Write { durable: true, .. })
}

fn number(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Appends an entry of sectors of 512 bytes that are filled with a number.
    fn write(log: &mut Vec<u8>, sector: u64, count: u64, fill: u8, flags: u64) {
        let begin = log.len();
        for value in [sector, count, flags, 0] {
            log.extend(value.to_le_bytes());
        }
        log.resize(begin + 512, 0);
        log.resize(begin + 512 + usize::try_from(count).unwrap() * 512, fill);
    }

    fn superblock() -> Vec<u8> {
        let mut log = Vec::new();
        // QEMU updates the number of entries only occasionally, so the reader ignores it.
        for value in [MAGIC, VERSION, 0] {
            log.extend(value.to_le_bytes());
        }
        log.extend(512_u32.to_le_bytes());
        log.resize(512, 0);
        log
    }

    struct Fixture {
        directory: tempfile::TempDir,
        log: WriteLog,
    }

    impl Fixture {
        fn new(bytes: &[u8]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            std::fs::write(&path, bytes).unwrap();
            Self { log: WriteLog::open(&path).unwrap(), directory }
        }

        /// Returns the first byte of each sector of a disk of four sectors.
        fn replay(&self, cut: usize, seed: u64) -> [u8; 4] {
            let path = self.directory.path().join("image");
            std::fs::write(&path, [0; 2048]).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            self.log.replay(cut, seed, &file).unwrap();
            let image = std::fs::read(&path).unwrap();
            assert!(image.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            [0, 512, 1024, 1536].map(|offset| image[offset])
        }

        fn images(&self, cut: usize) -> BTreeSet<[u8; 4]> {
            (0..1500).map(|seed| self.replay(cut, seed)).collect()
        }
    }

    #[test]
    fn flushed_writes_stay_and_later_ones_may_be_lost() {
        let mut log = superblock();
        write(&mut log, 0, 2, 1, 0);
        write(&mut log, 1, 1, 2, 0);
        write(&mut log, 0, 0, 0, FLUSH);
        write(&mut log, 0, 1, 3, 0);
        write(&mut log, 2, 2, 4, 0);
        let fixture = Fixture::new(&log);
        assert_eq!(fixture.log.entries().len(), 5);
        // Before any flush all writes may be lost.
        assert!(fixture.images(2).contains(&[0, 0, 0, 0]));
        // The flush keeps the newest write of each sector.
        assert_eq!(fixture.images(3), BTreeSet::from([[1, 2, 0, 0]]));
        let mut expected = BTreeSet::new();
        for first in [1, 3] {
            for rest in [[0, 0], [4, 4], [0, 4], [4, 0]] {
                expected.insert([first, 2, rest[0], rest[1]]);
            }
        }
        assert_eq!(fixture.images(5), expected);
    }

    #[test]
    fn of_two_writes_to_a_sector_either_may_stay() {
        let mut log = superblock();
        write(&mut log, 0, 0, 0, FLUSH);
        write(&mut log, 3, 1, 1, 0);
        write(&mut log, 3, 1, 2, 0);
        let images = Fixture::new(&log).images(3);
        assert_eq!(images, BTreeSet::from([[0; 4], [0, 0, 0, 1], [0, 0, 0, 2]]));
    }

    #[test]
    fn a_durable_write_needs_no_flush() {
        let mut log = superblock();
        write(&mut log, 0, 1, 2, 0);
        write(&mut log, 0, 1, 1, FUA);
        assert_eq!(Fixture::new(&log).images(2), BTreeSet::from([[1, 0, 0, 0]]));
    }

    #[test]
    fn a_flush_with_data_keeps_the_writes_before_its_data() {
        let mut log = superblock();
        write(&mut log, 0, 1, 1, 0);
        write(&mut log, 1, 1, 2, FLUSH | FUA);
        let fixture = Fixture::new(&log);
        assert_eq!(fixture.log.entries().len(), 3);
        assert_eq!(fixture.images(3), BTreeSet::from([[1, 2, 0, 0]]));
    }

    #[test]
    fn a_log_ends_before_an_entry_that_is_not_complete() {
        let mut log = superblock();
        write(&mut log, 0, 1, 1, 0);
        let length = u64::try_from(log.len()).unwrap();
        // The space of an entry is reserved, but not written.
        log.resize(log.len() + 1024, 0);
        let fixture = Fixture::new(&log);
        assert_eq!(fixture.log.entries().len(), 1);
        assert_eq!((fixture.log.entries_within(512), fixture.log.entries_within(length)), (0, 1));
        let mut log = superblock();
        write(&mut log, 0, 2, 1, 0);
        log.truncate(log.len() - 512);
        assert!(Fixture::new(&log).log.entries().is_empty());
    }

    #[test]
    fn the_same_seed_gives_the_same_image() {
        let mut log = superblock();
        for sector in 0..4 {
            write(&mut log, sector, 1, 1, 0);
        }
        let fixture = Fixture::new(&log);
        assert!((0..50).all(|seed| fixture.replay(4, seed) == fixture.replay(4, seed)));
        assert!(fixture.images(4).len() > 8);
    }

    #[test]
    fn another_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, [0; 1024]).unwrap();
        let error = WriteLog::open(&path).unwrap_err().to_string();
        assert!(error.ends_with("is no log of writes"), "{error}");
    }
}
