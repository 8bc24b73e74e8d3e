//! The file with a container's output that podman's monitor (conmon) writes: `ctr.log` in the container's directory.
//!
//! podman's service skips lines for a follower that is slower than the container. The file has all lines. Each line
//! of the file is an entry, `TIME STREAM F|P TEXT`: `F` ends a line of the container, `P` is a part of such a line.

use caravan_drivers::DirWatch;
use caravan_sys::dir::{Dir, Mounts};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The name of the file.
const NAME: &str = "ctr.log";

/// The name of the file's directory, in the directory of the container.
const DIRECTORY: &str = "userdata";

/// Bytes that are read together. conmon writes entries of at most about 8 KiB.
pub(crate) const READ_SIZE: usize = 64 << 10;

/// Bytes in which the time of an entry ends.
const MAX_TIME: usize = 64;

/// Returns the path of a container's file, if an engine's answer names the usual path. A job may set another path by
/// the options of its log driver, and that file may belong to another container. So the path must contain the id,
/// which is new with each container.
pub(crate) fn usual_path(container: &str, reported: &str) -> Option<PathBuf> {
    let path = Path::new(reported);
    let is_usual = path.is_absolute() && path.ends_with(Path::new(container).join(DIRECTORY).join(NAME));
    (is_usual && !container.is_empty()).then(|| path.to_owned())
}

/// An output of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Stdout,
    Stderr,
}

/// An entry of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Nanoseconds since 1970.
    pub(crate) time: i128,
    pub(crate) output: Output,
    /// The bytes of the container, with the line's end if the entry has one.
    pub(crate) data: &'a [u8],
}

/// Reads a line of the file, which includes its end; `None` if the line is no entry.
fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let (time, rest) = word(line)?;
    let (output, rest) = word(rest)?;
    let (flag, text) = word(rest)?;
    let output = match output {
        b"stdout" => Output::Stdout,
        b"stderr" => Output::Stderr,
        _ => return None,
    };
    let data = match flag {
        b"F" => text,
        b"P" => text.strip_suffix(b"\n")?,
        _ => return None,
    };
    Some(Entry { time: nanoseconds(time)?, output, data })
}

/// Splits text at its first blank.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..end], &text[end + 1..]))
}

fn nanoseconds(time: &[u8]) -> Option<i128> {
    let time: Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
    Some(time.as_nanosecond())
}

/// A position in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Time of the file's first entry. A file that replaced this one has another time.
    first: i128,
    /// Bytes before the position.
    offset: u64,
}

/// The open file of a container.
#[derive(Debug)]
pub(crate) struct CtrLog {
    dir: Dir,
    file: File,
    notice: DirWatch,
    /// Bytes before the next entry.
    offset: u64,
    /// Time of the first entry, once that entry was read.
    first: Option<i128>,
    /// Whether the name belongs to a newer file, so that this one grows no more.
    is_replaced: bool,
    /// Whether a line that is no entry was reported.
    is_reported: bool,
}

impl CtrLog {
    /// Opens the file at its beginning. The engine named the path, and only root may write to its directories.
    pub(crate) fn open(path: &Path) -> Result<Self, caravan_sys::Error> {
        let dir = Dir::open_last(path.parent().unwrap_or(path), Mounts::Refuse)?;
        // Before the first read, so that no change is missed.
        let notice = DirWatch::on(Some(&dir));
        let file = dir.read(Path::new(NAME), Mounts::Refuse)?;
        Ok(Self { dir, file, notice, offset: 0, first: None, is_replaced: false, is_reported: false })
    }

    /// Continues at a position; returns whether the file is that of the position.
    pub(crate) fn resume(&mut self, position: Position) -> io::Result<bool> {
        let mut head = [0; MAX_TIME];
        let length = self.file.read_at(&mut head, 0)?;
        let first = word(&head[..length]).and_then(|(time, _)| nanoseconds(time));
        let is_same = first == Some(position.first) && self.file.metadata()?.len() >= position.offset;
        if is_same {
            (self.first, self.offset) = (first, position.offset);
        }
        Ok(is_same)
    }

    /// Returns the position after the last entry that was read.
    pub(crate) fn position(&self) -> Option<Position> {
        self.first.map(|first| Position { first, offset: self.offset })
    }

    /// Reads the next entries, of this file or of the one that replaced it. Returns whether there may be more.
    pub(crate) fn read(&mut self, buffer: &mut [u8], mut write: impl FnMut(Entry<'_>)) -> io::Result<bool> {
        if self.file.metadata()?.len() < self.offset {
            // Another program emptied the file, and conmon appends at its new end.
            (self.offset, self.first) = (0, None);
        }
        let length = self.file.read_at(buffer, self.offset)?;
        let Some(last) = buffer[..length].iter().rposition(|byte| *byte == b'\n') else {
            if length < buffer.len() {
                return self.advance();
            }
            // No entry is that long.
            self.report();
            self.offset += length as u64;
            return Ok(true);
        };
        let mut is_first = self.offset == 0;
        for line in buffer[..=last].split_inclusive(|byte| *byte == b'\n') {
            let entry = parse(line);
            if is_first {
                self.first = entry.map(|entry| entry.time);
                is_first = false;
            }
            match entry {
                Some(entry) => write(entry),
                None => self.report(),
            }
        }
        self.offset += last as u64 + 1;
        Ok(true)
    }

    /// Continues with the file that has the name now, at the end of an older one. conmon begins a new file at the
    /// size that the job allows, and renames it to this name. Returns whether there is something to read.
    fn advance(&mut self) -> io::Result<bool> {
        let Some(named) = self.dir.stat(NAME.as_ref()).map_err(io::Error::other)? else { return Ok(false) };
        let own = self.file.metadata()?;
        if (named.st_dev, named.st_ino) == (own.dev(), own.ino()) {
            return Ok(false);
        }
        if self.is_replaced {
            self.file = self.dir.read(Path::new(NAME), Mounts::Refuse).map_err(io::Error::other)?;
            (self.offset, self.first) = (0, None);
        }
        // Entries may have arrived in the old file after its last read and before the rename.
        self.is_replaced = !self.is_replaced;
        Ok(true)
    }

    fn report(&mut self) {
        if !std::mem::replace(&mut self.is_reported, true) {
            let path = self.dir.shown().join(NAME);
            tracing::warn!(path = %path.display(), "skipping an invalid line of a container's output file");
        }
    }

    /// Waits until the file may have changed since the last call.
    pub(crate) async fn changed(&self) {
        self.notice.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    const TIME: &str = "2026-01-01T00:00:00.000000001+01:00";

    fn line(text: &str) -> String {
        format!("{TIME} stdout F {text}\n")
    }

    fn all(log: &mut CtrLog) -> String {
        let (mut text, mut buffer) = (Vec::new(), vec![0; 256]);
        while log.read(&mut buffer, |entry| text.extend_from_slice(entry.data)).unwrap() {}
        String::from_utf8(text).unwrap()
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn entries_are_parsed() {
        let entry = |text: &str| {
            let line = format!("{TIME} {text}\n").into_bytes();
            parse(&line).map(|entry| (entry.output, String::from_utf8(entry.data.to_vec()).unwrap()))
        };
        assert_eq!(entry("stdout F a  b "), Some((Output::Stdout, "a  b \n".into())));
        assert_eq!(entry("stderr F "), Some((Output::Stderr, "\n".into())));
        assert_eq!(entry("stderr P part"), Some((Output::Stderr, "part".into())));
        for wrong in ["stdin F x", "stdout X x", "stdout F", "stdout", "", "F stdout x"] {
            assert_eq!(entry(wrong), None, "{wrong:?}");
        }
        for wrong in ["\n", "x stdout F a\n", "2026-13-01T00:00:00Z stdout F a\n", "{\"log\":\"a\"}\n"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(parse(line("\u{0}").as_bytes()).unwrap().time, 1_767_222_000_000_000_001);
        assert_eq!(parse(b"2026-01-01T00:00:00Z stdout F \xff\n").unwrap().data, b"\xff\n");
    }

    #[test]
    fn only_the_path_of_the_container_itself_is_used() {
        assert!(usual_path("c1", "/data/c1/userdata/ctr.log").is_some());
        for other in
            ["", "/etc/shadow", "/data/c2/userdata/ctr.log", "c1/userdata/ctr.log", "/xc1/userdata/ctr.log"]
        {
            assert_eq!(usual_path("c1", other), None, "{other:?}");
        }
    }

    #[tokio::test]
    async fn a_file_is_read_on_in_spite_of_wrong_lines_and_replacement() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        append(&path, &line("a"));
        let mut log = CtrLog::open(&path).unwrap();
        assert_eq!(all(&mut log), "a\n");
        // A line without its end is not yet an entry.
        let next = line("b");
        let (head, tail) = next.split_at(20);
        append(&path, head);
        assert_eq!(all(&mut log), "");
        append(&path, &format!("{tail}wrong\n{}\n{}", "x".repeat(1000), line("c")));
        assert_eq!(all(&mut log), "b\nc\n");
        // The old file gets an entry before the new file replaces it.
        append(&path, &line("d"));
        let new = dir.path().join("new");
        append(&new, &line("e"));
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(all(&mut log), "d\ne\n");
        tokio::time::timeout(Duration::from_secs(30), log.changed()).await.unwrap();
        // Another program empties the file.
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert_eq!(all(&mut log), "");
        append(&path, &line("f"));
        assert_eq!(all(&mut log), "f\n");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(all(&mut log), "");
    }

    #[tokio::test]
    async fn a_position_belongs_to_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        append(&path, &line("a"));
        let mut log = CtrLog::open(&path).unwrap();
        assert_eq!(log.position(), None);
        all(&mut log);
        let position = log.position().unwrap();
        append(&path, &line("b"));
        let mut log = CtrLog::open(&path).unwrap();
        assert!(log.resume(position).unwrap());
        assert_eq!(all(&mut log), "b\n");
        // Another file with the same name, which is as long.
        std::fs::write(&path, "2026-01-02T00:00:00Z stdout F c\n".repeat(9)).unwrap();
        let mut log = CtrLog::open(&path).unwrap();
        assert!(!log.resume(position).unwrap());
        assert_eq!(all(&mut log), "c\n".repeat(9));
    }

    #[tokio::test]
    async fn links_and_other_kinds_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        append(&dir.path().join("other"), &line("a"));
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(CtrLog::open(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(CtrLog::open(&path).is_err());
        assert!(CtrLog::open(&dir.path().join("absent").join(NAME)).is_err());
    }
}
