//! Removal of directory trees. The only function of the project that removes more than one entry.
//!
//! Each directory is opened beneath its parent by openat2(2) with `RESOLVE_NO_SYMLINKS` and `RESOLVE_NO_XDEV`, and
//! each entry is removed relative to an open descriptor. So a removal never leaves its tree: not by a symbolic link,
//! not by a mount, and not by a directory that another process moves during the removal.

use crate::mountinfo::MountTable;
use crate::{Error, Result};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, IFlags, Mode, OFlags, ResolveFlags, fstat, ioctl_getflags, ioctl_setflags,
    openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The flags that refuse symbolic links, `..` and other mounts.
const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);
/// The flags for the way back up, as [`BELOW`]: `..` must be allowed, and the identity of the directory is checked
/// instead.
const UPWARDS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_XDEV);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// The number of times that another process may refill a directory before the removal fails.
const MAX_REFILLS: usize = 64;

/// The treatment of seals ([`crate::seal`]) in a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seals {
    /// An immutable entry ends the removal with an error.
    Keep,
    /// The immutable attribute of directories and empty files is cleared, since the agent seals directories beneath
    /// mounts.
    Lift,
}

/// Removes a file, or a directory with its content. Returns `false` if the path does not exist.
///
/// The parent of `path` is trusted and may be reached through symbolic links; everything below it is not.
///
/// # Errors
///
/// [`Error::Mounted`] names the first mount at or below `path`. If a mount exists when the removal begins, no entry
/// is removed. A mount that appears later is kept with its content; entries of the tree itself may be removed by
/// then.
pub fn remove(path: &Path, seals: Seals) -> Result<bool> {
    match open_parent(path)? {
        Some((parent, name)) => remove_at(&parent, name, path, seals),
        None => Ok(false),
    }
}

/// Fails with [`Error::Mounted`] if a mount is at or below a path, which makes [`remove`] fail. For callers that
/// record their intent before the removal.
pub fn check(path: &Path) -> Result<()> {
    match open_parent(path)? {
        Some((parent, name)) => refuse_mounts(&parent, name),
        None => Ok(()),
    }
}

/// Opens the parent directory of a path, which is trusted. Returns `None` if it does not exist.
fn open_parent(path: &Path) -> Result<Option<(OwnedFd, &OsStr)>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not end with a name");
    let name = path.file_name().ok_or_else(|| Error::path("remove", path)(invalid()))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(opened) => Ok(Some((opened, name))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::errno("open", parent)(errno)),
    }
}

/// Removes an entry of an open directory with its content, as [`remove`] does. `shown` is the path for errors and for
/// the search in the mount table.
pub(crate) fn remove_at(parent: &OwnedFd, name: &OsStr, shown: &Path, seals: Seals) -> Result<bool> {
    refuse_mounts(parent, name)?;
    let name = c_name(name, shown)?;
    let mut removal = Removal { root: parent, shown: shown.to_owned(), levels: Vec::new(), seals };
    removal.run(name)
}

/// Fails if the mount table has a mount at or below an entry of a directory.
fn refuse_mounts(parent: &OwnedFd, name: &OsStr) -> Result<()> {
    // The path as the kernel reports it, to compare it with the mount table.
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(parent));
    let real = std::fs::read_link(&link).map_err(Error::path("read", &link))?.join(name);
    match MountTable::read()?.under(&real).next() {
        Some(mount) => Err(Error::Mounted { operation: "remove", path: mount.target.clone() }),
        None => Ok(()),
    }
}

fn c_name(name: &OsStr, shown: &Path) -> Result<CString> {
    CString::new(name.as_bytes()).map_err(|error| Error::path("remove", shown)(error.into()))
}

/// A directory on the way down.
struct Level {
    /// The name of the directory in its parent.
    name: CString,
    /// Device and inode of the parent: a directory that was moved meanwhile has another parent.
    above: (u64, u64),
    refills: usize,
}

struct Removal<'p> {
    root: &'p OwnedFd,
    shown: PathBuf,
    levels: Vec<Level>,
    seals: Seals,
}

impl Removal<'_> {
    /// Removes the entry `name` of the root directory.
    fn run(&mut self, name: CString) -> Result<bool> {
        let mut current = match self.remove_entry(self.root, &name)? {
            Removed::Gone => return Ok(true),
            Removed::Missing => return Ok(false),
            Removed::Directory(dir) => self.enter(self.root, name, dir)?,
        };
        // Only the current directory is open, regardless of the tree's depth.
        while !self.levels.is_empty() {
            if let Some((name, below)) = self.empty(&current)? {
                current = self.enter(&current, name, below)?;
                continue;
            }
            current = self.leave(current)?;
        }
        Ok(true)
    }

    /// Removes entries of a directory until it is empty or contains a directory to descend into.
    fn empty(&self, dir: &OwnedFd) -> Result<Option<(CString, OwnedFd)>> {
        let entries = Dir::read_from(dir).map_err(|errno| Error::errno("list", self.path())(errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| Error::errno("list", self.path())(errno))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if let Removed::Directory(below) = self.remove_entry(dir, name)? {
                return Ok(Some((name.to_owned(), below)));
            }
        }
        Ok(None)
    }

    fn enter(&mut self, above: &OwnedFd, name: CString, dir: OwnedFd) -> Result<OwnedFd> {
        let above = identity(above).map_err(|errno| Error::errno("look at", self.path())(errno))?;
        self.levels.push(Level { name, above, refills: 0 });
        Ok(dir)
    }

    /// Removes the directory that is empty now. Returns its parent, or the same directory if it was filled again.
    fn leave(&mut self, current: OwnedFd) -> Result<OwnedFd> {
        let Some(level) = self.levels.last() else { return Ok(current) };
        let failed = |errno| Error::errno("remove", self.path())(errno);
        let above = match openat2(&current, "..", DIRECTORY, Mode::empty(), UPWARDS) {
            Ok(above) => above,
            Err(Errno::XDEV) => return Err(mounted(self.path().parent().unwrap_or(&self.shown))),
            Err(errno) => return Err(failed(errno)),
        };
        if identity(&above).map_err(failed)? != level.above {
            let source = io::Error::new(io::ErrorKind::ResourceBusy, "it was moved while it was removed");
            return Err(Error::path("remove", self.path())(source));
        }
        match unlinkat(&above, level.name.as_c_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {
                self.levels.pop();
                Ok(above)
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) if level.refills < MAX_REFILLS => {
                if let Some(level) = self.levels.last_mut() {
                    level.refills += 1;
                }
                Ok(current)
            }
            // A mount appeared above the directory, which is empty and remains beneath it.
            Err(Errno::BUSY) => Err(mounted(&self.path())),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Removes an entry that is not a directory; opens a directory.
    fn remove_entry(&self, dir: &OwnedFd, name: &CStr) -> Result<Removed> {
        let failed = |errno| Error::errno("remove", self.entry(name))(errno);
        for lifted in [false, true] {
            match unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) => return Ok(Removed::Gone),
                Err(Errno::NOENT) => return Ok(Removed::Missing),
                Err(Errno::ISDIR) => return self.open(dir, name, DIRECTORY).map(Removed::Directory),
                Err(Errno::BUSY) => return Err(mounted(&self.entry(name))),
                // unlink(2) returns EPERM for directories on some file systems, and for immutable files.
                Err(Errno::PERM) if !lifted => {
                    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                    match FileType::from_raw_mode(stat.st_mode) {
                        FileType::Directory => {
                            return self.open(dir, name, DIRECTORY).map(Removed::Directory);
                        }
                        FileType::RegularFile if self.seals == Seals::Lift && stat.st_size == 0 => {
                            self.open(dir, name, FILE)?;
                        }
                        _ => return Err(failed(Errno::PERM)),
                    }
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::PERM))
    }

    /// Opens an entry and lifts its seal.
    fn open(&self, dir: &OwnedFd, name: &CStr, flags: OFlags) -> Result<OwnedFd> {
        let opened = match openat2(dir, name, flags, Mode::empty(), BELOW) {
            Ok(opened) => opened,
            Err(Errno::XDEV) => return Err(mounted(&self.entry(name))),
            Err(errno) => return Err(Error::errno("open", self.entry(name))(errno)),
        };
        if self.seals == Seals::Lift {
            lift(&opened).map_err(|errno| Error::errno("set attributes of", self.entry(name))(errno))?;
        }
        Ok(opened)
    }

    /// Returns the path of an entry of the current directory, for errors.
    fn entry(&self, name: &CStr) -> PathBuf {
        match self.levels.is_empty() {
            true => self.shown.clone(),
            false => self.path().join(OsStr::from_bytes(name.to_bytes())),
        }
    }

    /// Returns the path of the current directory, for errors.
    fn path(&self) -> PathBuf {
        let below = self.levels.iter().skip(1).map(|level| OsStr::from_bytes(level.name.to_bytes()));
        below.fold(self.shown.clone(), |path, name| path.join(name))
    }
}

enum Removed {
    Gone,
    Missing,
    Directory(OwnedFd),
}

fn mounted(path: &Path) -> Error {
    Error::Mounted { operation: "remove", path: path.to_owned() }
}

fn identity(dir: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(dir)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Clears the immutable attribute, if the file system has attributes.
fn lift(file: &OwnedFd) -> Result<(), Errno> {
    let flags = match ioctl_getflags(file) {
        Ok(flags) => flags,
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    match flags.contains(IFlags::IMMUTABLE) {
        true => ioctl_setflags(file, flags.difference(IFlags::IMMUTABLE)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
