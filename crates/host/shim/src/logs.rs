//! Log files that rotate by size: `<name>.<n>`, where `n` counts up and the oldest files are removed.
//!
//! Tasks may write to the directory. So the shim works from a descriptor of it and appends only to files that it
//! created itself. It replaces any other entry that has the name of a new file.

use crate::{Error, Result};
use caravan_sys::dir::{Access, Dir, Handle, Kind, Mounts};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The task's sibling tasks and its users may read log files, regardless of their user id.
const ACCESS_MODE: u32 = 0o644;
/// The number of names to skip because a directory has the name of the new file.
const MAX_PASSED_OVER: u64 = 64;

/// The end of a task's output in its log files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Number of the file.
    pub index: u64,
    /// Size of the file in bytes.
    pub size: u64,
}

/// The log files of one output of a task.
#[derive(Debug)]
pub struct LogWriter {
    dir: Dir,
    name: String,
    max_files: u64,
    max_bytes: u64,
    index: u64,
    file: File,
    size: u64,
    lost: u64,
}

impl LogWriter {
    /// Continues the shim's own file with the highest number, or begins with 0.
    pub fn open(dir: Dir, name: &str, max_files: u32, max_bytes: u64) -> Result<Self> {
        let mut index = 0;
        for number in numbers(&dir, name)? {
            if number > index && is_own(&dir, name, number) {
                index = number;
            }
        }
        let (index, file, size) = open_from(&dir, name, index)?;
        let mut writer = Self {
            dir,
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

    /// Writes all data and begins new files at line ends where possible. Data that the disk does not accept is
    /// counted, not retried: a full disk must not block the task.
    pub fn write(&mut self, mut data: &[u8]) {
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
                // A line that does not fit in the rest of this file begins the next file.
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

    /// Returns the number of bytes that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the end of the written data.
    pub fn place(&self) -> Place {
        Place { index: self.index, size: self.size }
    }

    /// Removes the data after a place. Without an own file there, nothing changes.
    pub fn rewind(&mut self, to: Place) -> Result<()> {
        if to >= self.place() {
            return Ok(());
        }
        if to.index < self.index {
            if !is_own(&self.dir, &self.name, to.index) {
                return Ok(());
            }
            for index in to.index + 1..=self.index {
                if is_own(&self.dir, &self.name, index) {
                    self.dir.remove_file(&file_name(&self.name, index))?;
                }
            }
            (self.index, self.file, self.size) = open_from(&self.dir, &self.name, to.index)?;
        }
        if to.size < self.size {
            self.file.set_len(to.size).map_err(|source| Error::Io { doing: "cut a log file", source })?;
            self.size = to.size;
        }
        Ok(())
    }

    fn lose(&mut self, bytes: usize) {
        self.lost = self.lost.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    fn rotate(&mut self) -> Result<()> {
        (self.index, self.file, self.size) = open_from(&self.dir, &self.name, self.index + 1)?;
        self.prune();
        Ok(())
    }

    fn prune(&mut self) {
        let Ok(all) = numbers(&self.dir, &self.name) else { return };
        for index in all.into_iter().filter(|i| i + self.max_files <= self.index) {
            let _kept = self.dir.remove_file(&file_name(&self.name, index));
        }
    }
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Returns the number of bytes of `data` for a file with `room` bytes left: all, or up to the last line end that
/// fits. Without a line end: none if a new file would hold the whole line, otherwise all that fit.
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

/// Opens the directory of log files. Its parent is trusted, but its own name is not: a task may have placed a link
/// there.
pub fn open_dir(path: &Path) -> Result<Dir> {
    // A job file may mount a volume there.
    Ok(Dir::open_last(path, Mounts::Follow)?)
}

/// Opens a log file for appending and returns its size. A file that this user created is continued; any other entry
/// with the name is replaced by a new file.
pub fn append_to(dir: &Dir, name: &str) -> Result<(File, u64)> {
    let name = OsString::from(name);
    if let Some((handle, size)) = own(dir, &name) {
        return Ok((handle.append()?, size));
    }
    Ok((dir.put(&name, Access::mode(ACCESS_MODE))?, 0))
}

/// Opens the file with this number, or with the next number whose name does not belong to a directory.
fn open_from(dir: &Dir, name: &str, first: u64) -> Result<(u64, File, u64)> {
    let mut index = first;
    loop {
        match append_to(dir, &format!("{name}.{index}")) {
            Ok((file, size)) => return Ok((index, file, size)),
            Err(error) => {
                let is_directory = matches!(dir.kind(&file_name(name, index)), Ok(Some(Kind::Directory)));
                if !is_directory || index - first >= MAX_PASSED_OVER {
                    return Err(error);
                }
                index += 1;
            }
        }
    }
}

fn file_name(name: &str, index: u64) -> OsString {
    OsString::from(format!("{name}.{index}"))
}

fn is_own(dir: &Dir, name: &str, index: u64) -> bool {
    own(dir, &file_name(name, index)).is_some()
}

/// Returns a regular file that this user created and that has no other name, and its size.
fn own(dir: &Dir, name: &OsStr) -> Option<(Handle, u64)> {
    let handle = dir.handle(Path::new(name), Mounts::Refuse).ok()?;
    let stat = handle.stat().ok()?;
    let is_own = stat.st_uid == caravan_sys::user::effective_uid() && stat.st_nlink == 1;
    let is_file = matches!(handle.kind(), Ok(Kind::File));
    (is_file && is_own).then_some((handle, u64::try_from(stat.st_size).unwrap_or(0)))
}

/// Returns the numbers of the entries with this name. Absurd numbers, which the shim never creates, are left out.
fn numbers(dir: &Dir, name: &str) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in dir.entries()? {
        let entry = entry?;
        let number = entry
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
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    fn dir_of(path: &Path) -> Dir {
        open_dir(path).unwrap()
    }

    fn open(dir: &Path, max_files: u32, max_bytes: u64) -> LogWriter {
        LogWriter::open(dir_of(dir), "t.stdout", max_files, max_bytes).unwrap()
    }

    fn content(dir: &Path) -> Vec<(u64, String)> {
        let mut indexes = numbers(&dir_of(dir), "t.stdout").unwrap();
        indexes.sort_unstable();
        indexes
            .into_iter()
            .map(|i| (i, std::fs::read_to_string(dir.join(format!("t.stdout.{i}"))).unwrap()))
            .collect()
    }

    #[test]
    fn rotates_at_line_ends_and_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path(), 2, 10);
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
        let mut log = open(dir.path(), 2, 10);
        log.write(b"new\nnext\n");
        assert_eq!(content(dir.path()), [(7, "old\nnew\n".into()), (8, "next\n".into())]);
    }

    #[test]
    fn what_was_written_after_a_place_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path(), 9, 10);
        log.write(b"aaaa\n");
        let place = log.place();
        log.write(b"bbbb\ncccc\ndddd\neeee\n");
        let mut again = open(dir.path(), 9, 10);
        assert_eq!(again.place(), log.place());
        again.rewind(Place { index: 2, size: 99 }).unwrap();
        assert_eq!(content(dir.path()).len(), 3);
        again.rewind(place).unwrap();
        assert_eq!((again.place(), content(dir.path())), (place, vec![(0, "aaaa\n".into())]));
        again.write(b"ffff\ngggg\n");
        assert_eq!(content(dir.path()), [(0, "aaaa\nffff\n".into()), (1, "gggg\n".into())]);
    }

    #[test]
    fn a_long_line_is_cut_rather_than_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path(), 9, 4);
        log.write(b"abcdefghij");
        let all: String = content(dir.path()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(all, "abcdefghij");
    }

    /// A place that processes other than the shim can write to, with a file that must not change.
    struct World {
        base: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let base = tempfile::tempdir().unwrap();
            for dir in ["alloc/logs", "outside"] {
                std::fs::create_dir_all(base.path().join(dir)).unwrap();
            }
            std::fs::write(base.path().join("outside/canary"), "kept").unwrap();
            Self { base }
        }

        fn logs(&self) -> PathBuf {
            self.base.path().join("alloc/logs")
        }

        fn outside(&self) -> PathBuf {
            self.base.path().join("outside")
        }

        fn plant(&self, what: &str, name: &str) {
            let at = self.logs().join(name);
            let canary = self.outside().join("canary");
            let node =
                |kind| rustix::fs::mknodat(rustix::fs::CWD, &at, kind, rustix::fs::Mode::RWXU, 0).unwrap();
            match what {
                "link" => symlink(canary, at).unwrap(),
                "relative" => symlink("../../outside/canary", at).unwrap(),
                "dangling" => symlink(self.outside().join("new"), at).unwrap(),
                "to a directory" => symlink(self.outside(), at).unwrap(),
                "hard" => std::fs::hard_link(canary, at).unwrap(),
                "fifo" => node(rustix::fs::FileType::Fifo),
                "socket" => drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
                "directory" => std::fs::create_dir(at).unwrap(),
                "foreign" => {
                    std::fs::write(&at, "text of the task").unwrap();
                    std::os::unix::fs::chown(&at, Some(65534), Some(65534)).unwrap();
                }
                other => panic!("{other}"),
            }
        }

        fn check(&self, what: &str) {
            let canary = self.outside().join("canary");
            let meta = std::fs::metadata(&canary).unwrap();
            assert_eq!(std::fs::read_to_string(canary).unwrap(), "kept", "{what}");
            assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o644, 0), "{what}");
            assert_eq!(std::fs::read_dir(self.outside()).unwrap().count(), 1, "{what}");
        }
    }

    const PLANTS: [&str; 9] =
        ["link", "relative", "dangling", "to a directory", "hard", "fifo", "socket", "directory", "foreign"];

    #[test]
    fn nothing_that_a_task_plants_is_written_to() {
        for what in PLANTS {
            let world = World::new();
            // At the start, and at the names of the next two files.
            for index in 0..3 {
                world.plant(what, &format!("t.stdout.{index}"));
            }
            let mut log = open(&world.logs(), 9, 4);
            log.write(b"aaa\nbbb\nccc\n");
            assert_eq!(log.lost(), 0, "{what}");
            world.check(what);
            let first = if what == "directory" { 3 } else { 0 };
            for (index, text) in (first..).zip(["aaa\n", "bbb\n", "ccc\n"]) {
                let path = world.logs().join(format!("t.stdout.{index}"));
                assert!(path.symlink_metadata().unwrap().is_file(), "{what} {index}");
                assert_eq!(std::fs::read_to_string(path).unwrap(), text, "{what} {index}");
            }
        }
    }

    #[test]
    fn a_file_with_a_higher_number_that_a_task_planted_is_not_continued() {
        for what in PLANTS {
            let world = World::new();
            open(&world.logs(), 9, 100).write(b"old\n");
            world.plant(what, "t.stdout.7");
            open(&world.logs(), 9, 100).write(b"new\n");
            assert_eq!(
                std::fs::read_to_string(world.logs().join("t.stdout.0")).unwrap(),
                "old\nnew\n",
                "{what}"
            );
            world.check(what);
        }
    }

    #[test]
    fn the_directory_is_the_one_that_was_opened() {
        let world = World::new();
        let mut log = open(&world.logs(), 1, 4);
        log.write(b"aaa\n");
        std::fs::write(world.outside().join("t.stdout.0"), "theirs").unwrap();
        std::fs::rename(world.logs(), world.base.path().join("alloc/l")).unwrap();
        symlink(world.outside(), world.logs()).unwrap();
        log.write(b"bbb\nccc\n");
        assert_eq!(std::fs::read_to_string(world.base.path().join("alloc/l/t.stdout.2")).unwrap(), "ccc\n");
        assert_eq!(std::fs::read_to_string(world.outside().join("t.stdout.0")).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(world.outside()).unwrap().count(), 2);
        // The next shim does not follow the link to a directory, and its error names the link.
        let error = caravan_sys::describe(&open_dir(&world.logs()).unwrap_err());
        assert!(error.contains("alloc/logs") && error.contains("symbolic link"), "{error}");
    }

    #[test]
    fn a_task_that_replaces_names_while_logs_rotate_wins_nothing() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let world = World::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let canary = world.outside().join("canary");
                while !stop.load(Ordering::Relaxed) {
                    for index in 0..400 {
                        let at = world.logs().join(format!("t.stdout.{index}"));
                        // A step that fails now works in a later round.
                        let _gone = std::fs::remove_file(&at);
                        let _there = match index % 3 {
                            0 => symlink(&canary, &at),
                            1 => std::fs::hard_link(&canary, &at),
                            _ => rustix::fs::mknodat(
                                rustix::fs::CWD,
                                &at,
                                rustix::fs::FileType::Fifo,
                                rustix::fs::Mode::RWXU,
                                0,
                            )
                            .map_err(Into::into),
                        };
                    }
                }
            });
            for _ in 0..4 {
                let mut log = open(&world.logs(), 1000, 8);
                for line in 0..100 {
                    log.write(format!("{line:07}\n").as_bytes());
                }
                assert_eq!(log.lost(), 0);
            }
            stop.store(true, Ordering::Relaxed);
        });
        world.check("race");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_file_is_too_long(
            pieces in proptest::collection::vec("[ab\n]{0,30}", 0..12),
            max in 1u64..20,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut log = open(dir.path(), 1000, max);
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
