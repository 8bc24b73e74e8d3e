//! The unpacking of untrusted archives: nothing is written outside of the destination, and every size is limited.

mod tree;

pub(super) use tree::{Owners, Tree};

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use tree::{Named, leads_out, plain};

/// The most bytes before an entry's content: its header, and long names.
const HEADERS: u64 = 1024 * 1024;

/// The limits of unpacking.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// The most bytes of content.
    pub(super) bytes: u64,
    /// The byte limit as text for errors.
    pub(super) bytes_text: Cow<'static, str>,
    /// The most entries.
    pub(super) entries: u64,
}

/// The handling of links that lead out of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutwardLinks {
    /// The link is an error.
    Refuse,
    /// The link is left out and counted.
    LeaveOut,
}

/// The state of unpacking one archive.
#[derive(Debug)]
pub(super) struct Unpack<'a> {
    to: &'a Tree,
    /// The path in the archive below which entries are unpacked.
    inner: &'a Path,
    stop: &'a AtomicBool,
    limits: Limits,
    outward: OutwardLinks,
    left: u64,
    entries: u64,
    left_out: u64,
}

fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// A reader that limits the bytes that an archive reader consumes in one step, because it keeps long names in memory.
struct Bounded<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        let left = self.left.get().checked_sub(read as u64);
        self.left.set(left.ok_or_else(|| wrong("the header of an entry is larger than 1 MiB"))?);
        Ok(read)
    }
}

impl<'a> Unpack<'a> {
    pub(super) fn new(
        to: &'a Tree,
        inner: &'a Path,
        stop: &'a AtomicBool,
        limits: Limits,
        outward: OutwardLinks,
    ) -> Self {
        let left = limits.bytes;
        Self { to, inner, stop, limits, outward, left, entries: 0, left_out: 0 }
    }

    /// Returns the number of links that led out and were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Writes one file that is not an archive.
    pub(super) fn single(&mut self, mut from: impl Read, name: &Path) -> io::Result<()> {
        let mut out = self.to.file(name, Named::mode(0o644))?;
        self.copy(&mut from, &mut out)
    }

    /// Unpacks a tar archive.
    pub(super) fn tar(&mut self, from: impl Read) -> io::Result<()> {
        let headers = Rc::new(Cell::new(0));
        let mut archive = tar::Archive::new(Bounded { inner: from, left: Rc::clone(&headers) });
        let mut entries = archive.entries()?;
        loop {
            headers.set(HEADERS);
            let Some(entry) = entries.next() else { return Ok(()) };
            let mut entry = entry?;
            headers.set(u64::MAX);
            self.tar_entry(&mut entry)?;
            // Reads the rest here, so that it counts against the limit.
            self.copy(&mut entry, &mut io::sink())?;
        }
    }

    fn tar_entry(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> io::Result<()> {
        let Some(path) = self.target(&entry.path()?)? else { return Ok(()) };
        let header = entry.header();
        let id = |id: io::Result<u64>| id.ok().and_then(|id| u32::try_from(id).ok());
        let named =
            Named { mode: header.mode().unwrap_or(0o644), owner: id(header.uid()).zip(id(header.gid())) };
        let kind = header.entry_type();
        if kind.is_dir() {
            self.to.directory(&path, named)?;
        } else if kind.is_symlink() {
            let target = entry.link_name()?.ok_or_else(|| wrong("a link leads nowhere"))?;
            if self.outward == OutwardLinks::LeaveOut && leads_out(&path, &target) {
                self.left_out += 1;
            } else {
                self.to.link(&path, &target, named)?;
            }
        } else if kind.is_hard_link() {
            // Copied to a separate file: the linked file came earlier in the archive.
            let target = entry.link_name()?.ok_or_else(|| wrong("a link leads nowhere"))?;
            let target = self.below(&target)?.ok_or_else(|| wrong("a link leads out of what is taken"))?;
            let mut source = self.to.read(&target)?;
            if target != path {
                let mut out = self.to.file(&path, named)?;
                self.copy(&mut source, &mut out)?;
            }
        } else if kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() {
            let mut out = self.to.file(&path, named)?;
            self.copy(entry, &mut out)?;
        } else if !kind.is_pax_global_extensions() && !kind.is_pax_local_extensions() {
            return Err(wrong(format!("{} is neither a file nor a directory nor a link", path.display())));
        }
        Ok(())
    }

    /// Unpacks a zip archive.
    pub(super) fn zip(&mut self, from: impl Read + Seek) -> io::Result<()> {
        let mut archive = zip::ZipArchive::new(from).map_err(io::Error::from)?;
        for i in 0..archive.len() {
            let mut entry = archive.by_index(i).map_err(io::Error::from)?;
            let Some(path) = self.target(Path::new(entry.name()))? else { continue };
            let mode = entry.unix_mode().unwrap_or(0o644);
            if entry.is_dir() {
                self.to.directory(&path, Named::mode(0o755))?;
            } else if entry.is_symlink() {
                let mut target = String::new();
                (&mut entry).take(4096).read_to_string(&mut target)?;
                self.to.link(&path, Path::new(&target), Named::mode(0o777))?;
            } else {
                let mode = if mode & 0o777 == 0 { 0o644 } else { mode };
                let mut out = self.to.file(&path, Named::mode(mode))?;
                self.copy(&mut entry, &mut out)?;
            }
        }
        Ok(())
    }

    /// Returns the destination of an entry, if the entry is extracted.
    fn target(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(wrong(format!("the archive has more than {} files", self.limits.entries)));
        }
        self.below(path)
    }

    fn below(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let path = plain(path)?;
        let below = path.strip_prefix(self.inner).map(Path::to_owned);
        Ok(below.ok().filter(|below| below.components().next().is_some()))
    }

    fn copy(&mut self, from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the extraction was cancelled"));
            }
            let n = from.read(&mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
                wrong(format!("what is unpacked is larger than {}", self.limits.bytes_text))
            })?;
            to.write_all(&buffer[..n])?;
        }
    }
}

#[cfg(test)]
mod tests;
