//! Log files that rotate by size: `<name>.<n>`, `n` counting up, the oldest removed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Log files may be read by the task's siblings and users, whichever user they run as.
const MODE: u32 = 0o644;

/// One output of a task on disk.
#[derive(Debug)]
pub(crate) struct LogWriter {
    dir: PathBuf,
    name: String,
    max_files: u64,
    max_bytes: u64,
    index: u64,
    file: File,
    size: u64,
    lost: u64,
}

impl LogWriter {
    /// Continues the file with the highest number, or begins with 0.
    pub(crate) fn open(dir: &Path, name: &str, max_files: u32, max_bytes: u64) -> Result<Self> {
        let index = existing(dir, name)?.into_iter().max().unwrap_or(0);
        let (file, size) = open_file(dir, name, index)?;
        let mut writer = Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            max_files: u64::from(max_files.max(1)),
            max_bytes: max_bytes.max(1),
            index,
            file,
            size,
            lost: 0,
        };
        writer.prune();
        Ok(writer)
    }

    /// Writes all of it, beginning new files at line ends where possible. What the disk does not take is counted,
    /// not waited for: a full disk must not stop the task.
    pub(crate) fn write(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            while self.size >= self.max_bytes {
                if self.rotate().is_err() {
                    self.lose(data.len());
                    return;
                }
            }
            let room = usize::try_from(self.max_bytes - self.size).unwrap_or(usize::MAX);
            let part = &data[..cut(data, room, self.size > 0)];
            if part.is_empty() {
                // A line that does not fit the rest of this file begins the next.
                self.size = self.max_bytes;
                continue;
            }
            if self.file.write_all(part).is_err() {
                self.lose(part.len());
            }
            self.size += len(part);
            data = &data[part.len()..];
        }
    }

    /// Bytes that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    fn lose(&mut self, bytes: usize) {
        self.lost = self.lost.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    fn rotate(&mut self) -> Result<()> {
        (self.file, self.size) = open_file(&self.dir, &self.name, self.index + 1)?;
        self.index += 1;
        self.prune();
        Ok(())
    }

    fn prune(&mut self) {
        let Ok(all) = existing(&self.dir, &self.name) else { return };
        for index in all.into_iter().filter(|i| i + self.max_files <= self.index) {
            let _kept = std::fs::remove_file(self.dir.join(format!("{}.{index}", self.name)));
        }
    }
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// How much of `data` goes into a file with `room` bytes left: all, or up to the last line end in the room, or
/// nothing when a new file would take the line whole, or as much as fits.
fn cut(data: &[u8], room: usize, begun: bool) -> usize {
    if data.len() <= room {
        return data.len();
    }
    match data[..room].iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None if begun && data.iter().take(room.saturating_add(4096)).any(|byte| *byte == b'\n') => 0,
        None => room,
    }
}

fn open_file(dir: &Path, name: &str, index: u64) -> Result<(File, u64)> {
    let path = dir.join(format!("{name}.{index}"));
    let failed = |source| Error::File { doing: "open log file", path: path.clone(), source };
    // The directory is writable for tasks: a link that one of them left must not lead us elsewhere.
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(&path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "it is not a regular file",
        )));
    }
    Ok((file, metadata.len()))
}

/// The numbers of the files of this name; absurd ones, which we never made, are left out.
fn existing(dir: &Path, name: &str) -> Result<Vec<u64>> {
    let failed = |source| Error::File { doing: "list", path: dir.to_owned(), source };
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name();
        let number = file
            .to_str()
            .and_then(|f| f.strip_prefix(name))
            .and_then(|f| f.strip_prefix('.'))
            .map(str::parse::<u32>);
        if let Some(Ok(number)) = number {
            all.push(u64::from(number));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(dir: &Path) -> Vec<(u64, String)> {
        let mut indexes = existing(dir, "t.stdout").unwrap();
        indexes.sort_unstable();
        indexes
            .into_iter()
            .map(|i| (i, std::fs::read_to_string(dir.join(format!("t.stdout.{i}"))).unwrap()))
            .collect()
    }

    #[test]
    fn rotates_at_line_ends_and_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(dir.path(), "t.stdout", 2, 10).unwrap();
        log.write(b"aaaa\nbbbb\ncccc\n");
        log.write(b"dd\neeeeee\n");
        assert_eq!(content(dir.path()), [(1, "cccc\ndd\n".into()), (2, "eeeeee\n".into())]);
    }

    #[test]
    fn continues_the_highest_file_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.stdout.7"), "old\n").unwrap();
        std::fs::write(dir.path().join("t.stdout.x"), "not ours").unwrap();
        std::fs::write(dir.path().join("t.stderr.9"), "not ours").unwrap();
        let mut log = LogWriter::open(dir.path(), "t.stdout", 2, 10).unwrap();
        log.write(b"new\nnext\n");
        assert_eq!(content(dir.path()), [(7, "old\nnew\n".into()), (8, "next\n".into())]);
    }

    #[test]
    fn a_long_line_is_cut_rather_than_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = LogWriter::open(dir.path(), "t.stdout", 9, 4).unwrap();
        log.write(b"abcdefghij");
        let all: String = content(dir.path()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(all, "abcdefghij");
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp/elsewhere", dir.path().join("t.stdout.0")).unwrap();
        let error = LogWriter::open(dir.path(), "t.stdout", 2, 10).unwrap_err().to_string();
        assert!(error.contains("t.stdout.0"), "{error}");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_file_is_too_long(
            pieces in proptest::collection::vec("[ab\n]{0,30}", 0..12),
            max in 1u64..20,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut log = LogWriter::open(dir.path(), "t.stdout", 1000, max).unwrap();
            for piece in &pieces {
                log.write(piece.as_bytes());
            }
            let files = content(dir.path());
            prop_assert!(files.iter().all(|(_, text)| len(text.as_bytes()) <= max));
            let all: String = files.into_iter().map(|(_, text)| text).collect();
            prop_assert_eq!(all, pieces.concat());
            prop_assert_eq!(log.lost(), 0);
        }
    }
}
