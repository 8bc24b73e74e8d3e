//! The files of an allocation, as far as users may see them (docs/reference/http-api.md, sections 3.4 and 4.1).
//!
//! The kernel resolves every path beneath the allocation's directory (openat2(2), `RESOLVE_BENEATH`), so that no link
//! of a task leads out of it. Files in a task's `secrets` or `private` are never read.

mod frames;
pub(crate) mod pack;
mod snapshot;

pub use frames::{FileEvent, Frame, Frames, LogKind, LogPlace, LogStart, Origin};
pub use snapshot::Archive;

use crate::runner::users::Users;
use caravan_sys::dir::{Dir, open_own};
use caravan_types::Time;
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The reason that a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The path does not exist.
    #[error("stat {}: no such file or directory", .0.display())]
    NotFound(PathBuf),
    /// The directory to be listed does not exist.
    #[error("open {}: no such file or directory", .0.display())]
    NoDirectory(PathBuf),
    /// The path leads out of the allocation's directory.
    #[error("Path escapes the alloc directory")]
    Escapes,
    /// The file is in a task's `secrets`.
    #[error("Reading secret file prohibited: {0}")]
    Secret(String),
    /// The file is in a task's `private`.
    #[error("Reading private file prohibited: {0}")]
    Private(String),
    /// The path is a directory, but a file is needed.
    #[error("file \"{0}\" is a directory")]
    IsDirectory(String),
    /// The path is not a directory, but one is needed.
    #[error("\"{0}\" is not a directory")]
    NotDirectory(String),
    /// The allocation has no such task.
    #[error("unknown task name \"{0}\"")]
    UnknownTask(String),
    /// No log files exist yet.
    #[error("task \"{0}\" not started yet. No logs available")]
    NoLogs(String),
    /// The system call failed.
    #[error("{path}: {source}")]
    Io {
        /// The path of the request.
        path: String,
        /// The error of the system call.
        source: std::io::Error,
    },
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Last part of the path.
    pub name: String,
    /// Whether the entry is a directory.
    pub is_dir: bool,
    /// Size in bytes.
    pub size: u64,
    /// `-rw-r--r--`, with `d` and `L` first for directories and links.
    pub mode: String,
    /// Time of the last modification.
    pub modified: Time,
    /// The content type, guessed from the first bytes; only for a file that was requested by name.
    pub content_type: Option<&'static str>,
}

/// The files of one allocation.
#[derive(Clone, Debug)]
pub struct AllocFs {
    root: PathBuf,
    tasks: Vec<String>,
    users: Users,
}

impl AllocFs {
    /// Creates the value; `users` are the users of the tasks.
    pub(crate) fn new(root: &Path, tasks: Vec<String>, users: Users) -> Self {
        Self { root: root.to_owned(), tasks, users }
    }

    /// Creates the value for a directory whose files all belong to the agent's user.
    pub fn of_agent(root: &Path, tasks: Vec<String>) -> Self {
        Self::new(root, tasks, Users::default())
    }

    /// Returns the path on the host of a user's path; the file system is not read.
    pub fn on_host(&self, path: &str) -> PathBuf {
        below(path).map_or_else(|_| self.root.clone(), |below| self.root.join(below))
    }

    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn ls(&self, path: &str) -> Result<Vec<FileInfo>, FsError> {
        let dir = self.open(path).map_err(|error| match error {
            FsError::NotFound(path) => FsError::NoDirectory(path),
            other => other,
        })?;
        if !dir.metadata().map_err(io(path))?.is_dir() {
            return Err(FsError::NotDirectory(path.to_owned()));
        }
        let entries = std::fs::read_dir(fd_path(&dir)).map_err(io(path))?;
        let mut all = Vec::new();
        for entry in entries.flatten() {
            // An entry that was removed meanwhile is skipped.
            if let Ok(meta) = entry.path().symlink_metadata() {
                all.push(info(entry.file_name().to_string_lossy().into_owned(), &meta));
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Describes one file or directory.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn stat(&self, path: &str) -> Result<FileInfo, FsError> {
        let mut file = self.open(path)?;
        let meta = file.metadata().map_err(io(path))?;
        let name = Path::new(path).file_name().map_or("/".into(), |n| n.to_string_lossy().into_owned());
        let mut found = info(name, &meta);
        if meta.is_file() && self.forbid_secrets(&file, path).is_ok() {
            let mut head = [0; 512];
            let n = file.read(&mut head).map_err(io(path))?;
            found.content_type = Some(sniff(&head[..n]));
        }
        Ok(found)
    }

    /// Opens a file for reading, positioned at an offset.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn read_from(&self, path: &str, offset: u64) -> Result<File, FsError> {
        let mut file = self.open_file(path)?;
        file.seek(SeekFrom::Start(offset)).map_err(io(path))?;
        Ok(file)
    }

    /// Reads at most `limit` bytes of a file from an offset into memory, for display (the whole rest without a limit).
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn read_at(&self, path: &str, offset: u64, limit: Option<u64>) -> Result<Vec<u8>, FsError> {
        let file = self.read_from(path, offset)?;
        let mut bytes = Vec::new();
        file.take(limit.unwrap_or(u64::MAX)).read_to_end(&mut bytes).map_err(io(path))?;
        Ok(bytes)
    }

    /// Streams a file as frames; with `follow`, the stream continues with appended data.
    ///
    /// # Errors
    /// See [`FsError`]; returned before the first frame.
    pub fn stream(&self, path: &str, offset: u64, origin: Origin, follow: bool) -> Result<Frames, FsError> {
        frames::of_file(self, path, offset, origin, follow)
    }

    /// Streams the log of a task as frames, across its files; with `follow`, the stream continues with new data, across
    /// rotations.
    ///
    /// # Errors
    /// See [`FsError`]; returned before the first frame.
    pub fn logs(&self, task: &str, kind: LogKind, start: LogStart, follow: bool) -> Result<Frames, FsError> {
        if !self.tasks.iter().any(|t| t == task) {
            return Err(FsError::UnknownTask(task.to_owned()));
        }
        frames::of_logs(self, task, kind, start, follow)
    }

    fn open_file(&self, path: &str) -> Result<File, FsError> {
        let file = self.open(path)?;
        if file.metadata().map_err(io(path))?.is_dir() {
            return Err(FsError::IsDirectory(path.to_owned()));
        }
        self.forbid_secrets(&file, path)?;
        Ok(file)
    }

    fn open(&self, path: &str) -> Result<File, FsError> {
        let below = below(path)?;
        let open = || Dir::open(&self.root).and_then(|root| root.open_linked(&below));
        // A task may create hard links to files of other users of the host in its directories.
        open_own(open, || self.users.known().uids(), Path::new(path))
            .map_err(|error| self.fault(path, &below, &error))
    }

    fn directory(&self, path: &str) -> Result<Dir, FsError> {
        let below = below(path)?;
        let opened = Dir::open(&self.root).and_then(|root| root.enter_linked(&below));
        opened.map_err(|error| self.fault(path, &below, &error))
    }

    fn fault(&self, path: &str, below: &Path, error: &caravan_sys::Error) -> FsError {
        let failed = |source| FsError::Io { path: path.to_owned(), source };
        let Some(source) = error.io() else { return failed(std::io::Error::other(error.to_string())) };
        match (source.kind(), source.raw_os_error()) {
            (ErrorKind::NotFound | ErrorKind::NotADirectory, _) => FsError::NotFound(self.root.join(below)),
            (ErrorKind::CrossesDevices, _) => FsError::Escapes,
            (_, Some(number)) if number == Errno::LOOP.raw_os_error() => FsError::Escapes,
            (_, Some(number)) => failed(std::io::Error::from_raw_os_error(number)),
            (kind @ (ErrorKind::PermissionDenied | ErrorKind::ResourceBusy), None) => {
                failed(std::io::Error::new(kind, caravan_sys::describe(error)))
            }
            (kind, None) => failed(std::io::Error::new(kind, "not a regular file")),
        }
    }

    /// Checks the real path of the file: a link into `secrets` is refused too.
    fn forbid_secrets(&self, file: &File, asked: &str) -> Result<(), FsError> {
        let real = std::fs::read_link(fd_path(file)).map_err(io(asked))?;
        let root = self.root.canonicalize().map_err(io(asked))?;
        let inside = real.strip_prefix(&root).map_err(|_| FsError::Escapes)?;
        let mut parts = inside.components().filter_map(|c| c.as_os_str().to_str());
        let (Some(task), Some(dir)) = (parts.next(), parts.next()) else { return Ok(()) };
        if !self.tasks.iter().any(|t| t.eq_ignore_ascii_case(task)) {
            return Ok(());
        }
        match dir.to_ascii_lowercase().as_str() {
            "secrets" => Err(FsError::Secret(asked.to_owned())),
            "private" => Err(FsError::Private(asked.to_owned())),
            _ => Ok(()),
        }
    }
}

/// Converts a user's path to one below the root; `..` may not climb above the root.
fn below(path: &str) -> Result<PathBuf, FsError> {
    let mut plain = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                if !plain.pop() {
                    return Err(FsError::Escapes);
                }
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    if plain.as_os_str().is_empty() {
        plain.push(".");
    }
    Ok(plain)
}

fn fd_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn io(path: &str) -> impl FnOnce(std::io::Error) -> FsError + '_ {
    move |source| FsError::Io { path: path.to_owned(), source }
}

fn info(name: String, meta: &Metadata) -> FileInfo {
    let nanos = meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec());
    FileInfo {
        name,
        is_dir: meta.is_dir(),
        size: meta.len(),
        mode: mode_text(meta.mode()),
        modified: Time(nanos),
        content_type: None,
    }
}

/// Returns a file mode, with the file type in it, in Go's notation.
fn mode_text(mode: u32) -> String {
    let kind = mode & 0o17_0000;
    let mut text = String::new();
    for (on, letter) in [
        (kind == 0o04_0000, 'd'),
        (kind == 0o12_0000, 'L'),
        (kind == 0o06_0000 || kind == 0o02_0000, 'D'),
        (kind == 0o01_0000, 'p'),
        (kind == 0o14_0000, 'S'),
        (mode & 0o4000 != 0, 'u'),
        (mode & 0o2000 != 0, 'g'),
        (kind == 0o02_0000, 'c'),
        (mode & 0o1000 != 0, 't'),
    ] {
        if on {
            text.push(letter);
        }
    }
    if text.is_empty() {
        text.push('-');
    }
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        text.push(if mode & (1 << bit) != 0 { letter } else { '-' });
    }
    text
}

/// Guesses the content type. Text that a browser would execute is reported as plain text.
fn sniff(head: &[u8]) -> &'static str {
    let starts = |magic: &[u8]| head.starts_with(magic);
    if starts(b"\x89PNG\r\n\x1a\n") {
        "image/png"
    } else if starts(b"\xff\xd8\xff") {
        "image/jpeg"
    } else if starts(b"GIF8") {
        "image/gif"
    } else if starts(b"%PDF-") {
        "application/pdf"
    } else if starts(b"\x1f\x8b") {
        "application/x-gzip"
    } else if starts(b"PK\x03\x04") {
        "application/zip"
    } else if head.iter().any(|b| matches!(b, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f)) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

#[cfg(test)]
mod tests;
