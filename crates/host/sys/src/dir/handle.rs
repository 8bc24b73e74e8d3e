//! Handles of entries of any kind; opening one has no effect on the entry.

use super::{Access, Dir, Kind, Mounts, Owner, met, resolve};
use crate::{Error, Result};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid, chmodat, chownat, fstat, open, openat, openat2,
};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Flags for opening: `O_PATH` neither waits for the other end of a FIFO nor opens a device.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open entry of any kind: a file, a directory, a socket, a device. Opening it has no effect on the entry.
#[derive(Debug)]
pub struct Handle {
    pub(super) fd: OwnedFd,
    pub(super) shown: PathBuf,
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Handle {
    /// Opens the last name of a path without following it. Its parent directory is trusted.
    pub fn open(path: &Path) -> Result<Self> {
        let fd = openat(CWD, path, PLACE, Mode::empty()).map_err(Error::errno("open", path))?;
        Ok(Self { fd, shown: path.to_owned() })
    }

    /// Returns a path that leads to this entry while the value exists, for calls that only take paths.
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Returns the entry's current path, as the kernel reports it.
    pub fn real_path(&self) -> Result<PathBuf> {
        std::fs::read_link(self.proc_path()).map_err(Error::path("look at", &self.shown))
    }

    /// Returns the attributes of the entry.
    pub fn stat(&self) -> Result<Stat> {
        fstat(&self.fd).map_err(Error::errno("look at", &self.shown))
    }

    /// Returns the kind of the entry.
    pub fn kind(&self) -> Result<Kind> {
        Ok(kind_of(&self.stat()?))
    }

    /// Sets owner and mode of the entry, which must not be a link.
    pub fn set_access(&self, access: Access) -> Result<()> {
        self.set_owner(access.owner)?;
        // The mode is set after the owner, because chown(2) clears the set-id bits.
        self.set_mode(access.mode)
    }

    /// Sets the owner of the entry.
    pub fn set_owner(&self, Owner { uid, gid }: Owner) -> Result<()> {
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        chownat(&self.fd, "", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)
            .map_err(Error::errno("set owner of", &self.shown))
    }

    /// Sets the mode of the entry, which must not be a link.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        chmodat(CWD, self.proc_path(), Mode::from_raw_mode(mode), AtFlags::empty())
            .map_err(Error::errno("set mode of", &self.shown))
    }

    /// Opens the entry for reading if it is a regular file or a directory.
    pub fn read(&self) -> Result<File> {
        match self.kind()? {
            Kind::File | Kind::Directory => self.reopen(OFlags::RDONLY),
            _ => Err(self.unfit()),
        }
    }

    /// Opens the entry for appending if it is a regular file.
    pub fn append(&self) -> Result<File> {
        match self.kind()? {
            Kind::File => self.reopen(OFlags::WRONLY.union(OFlags::APPEND)),
            _ => Err(self.unfit()),
        }
    }

    fn reopen(&self, how: OFlags) -> Result<File> {
        // NONBLOCK: a lease that another process holds on the file (fcntl(2)) must not delay the caller.
        let flags = how | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = open(self.proc_path(), flags, Mode::empty()).map_err(Error::errno("open", &self.shown))?;
        Ok(File::from(fd))
    }

    fn unfit(&self) -> Error {
        Error::path("open", &self.shown)(super::invalid("it is not a regular file"))
    }
}

impl Dir {
    /// Opens an entry of any kind below this directory. A symbolic link is an error.
    pub fn handle(&self, below: &Path, mounts: Mounts) -> Result<Handle> {
        let handle = self.place(below, mounts)?;
        match handle.kind()? {
            Kind::Link => Err(met(Errno::LOOP, "open", &handle.shown)),
            _ => Ok(handle),
        }
    }

    /// Opens an entry below this directory without a request to its file system, which may not answer. If the last
    /// name is a symbolic link, the link itself is opened.
    pub fn place(&self, below: &Path, mounts: Mounts) -> Result<Handle> {
        let shown = self.shown.join(below);
        let fd = openat2(&self.fd, below, PLACE, Mode::empty(), resolve(mounts))
            .map_err(|errno| met(errno, "open", &shown))?;
        Ok(Handle { fd, shown })
    }

    /// Opens a regular file or a directory below this one for reading, by the rules of [`Dir::handle`].
    pub fn open_any(&self, below: &Path, mounts: Mounts) -> Result<File> {
        self.handle(below, mounts)?.read()
    }
}

pub(super) fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

/// The number of times that a file may be replaced between two opens before [`open_own`] fails.
const MAX_REOPENS: usize = 8;

/// Opens a file that a user may have planted, and fails for a hard link to a file of another user
/// ([`refuse_foreign_link`]). `open` opens the path.
///
/// A user may remove the link right after the file was opened: the file then has one name when its links are counted.
/// Therefore the entry that was opened must exist after the count: the only name of the file is then this entry.
/// Both are checked twice, because the kernel counts a removed link before it removes the entry.
pub fn open_own(
    open: impl Fn() -> Result<File>,
    owners: impl Fn() -> Vec<u32>,
    shown: &Path,
) -> Result<File> {
    use std::os::unix::fs::MetadataExt;
    let look = |file: &File| file.metadata().map_err(Error::path("look at", shown));
    for _ in 0..MAX_REOPENS {
        let file = open()?;
        let mut is_stable = true;
        for _ in 0..2 {
            let meta = look(&file)?;
            if !meta.is_file() {
                return Ok(file);
            }
            if meta.nlink() > 1 {
                refuse_foreign_link(&meta, &owners(), shown)?;
                return Ok(file);
            }
            is_stable &= is_entry(&file).map_err(Error::path("look at", shown))?;
        }
        if is_stable || owners().contains(&look(&file)?.uid()) {
            return Ok(file);
        }
    }
    Err(Error::path("open", shown)(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "it is replaced all the time",
    )))
}

/// Returns whether the directory entry by which a file was opened still exists. The kernel appends a word to the path
/// of a removed entry; a file whose name ends with that word counts as removed.
fn is_entry(file: &File) -> io::Result<bool> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(!path.as_os_str().as_bytes().ends_with(b" (deleted)"))
}

/// Fails for a file that has several names and belongs to none of `owners`. Such a file may be a hard link that a
/// user made to another user's file outside of the directory.
pub fn refuse_foreign_link(meta: &Metadata, owners: &[u32], shown: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    if meta.is_file() && meta.nlink() > 1 && !owners.contains(&meta.uid()) {
        let text = "it is a hard link to a file of another user";
        return Err(Error::path("read", shown)(io::Error::new(io::ErrorKind::PermissionDenied, text)));
    }
    Ok(())
}
