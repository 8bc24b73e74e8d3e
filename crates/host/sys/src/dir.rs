//! Open directories: work below them by descriptor, safe from processes that change the paths meanwhile.
//!
//! A path that a task, a plugin or a user can influence is never used as text. [`Dir::open`] opens a directory that
//! only the agent can replace. Everything below is reached through that descriptor by openat2(2) with
//! `RESOLVE_BENEATH` and without symbolic links.

use crate::tree::{self, Seals};
use crate::{Error, Result};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, chownat, fchmod, fchown, fstat, fsync, mkdirat,
    openat, openat2, readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

mod handle;
mod linked;

pub use handle::{Handle, open_own, refuse_foreign_link};

const PLAIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const CREATE: OFlags =
    OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The treatment of mounts on a path below a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounts {
    /// Mounts are followed, because the caller made them.
    Follow,
    /// A mount on the path is an error.
    Refuse,
}

/// User and group of a file; `None` leaves that one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub uid: Option<u32>,
    /// Group id.
    pub gid: Option<u32>,
}

impl Owner {
    /// Returns an owner with both ids set.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid: Some(uid), gid: Some(gid) }
    }
}

/// Mode and owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    /// User and group.
    pub owner: Owner,
}

impl Access {
    /// Returns an access that sets the mode and leaves the owner unchanged.
    pub fn mode(mode: u32) -> Self {
        Self { mode, owner: Owner::default() }
    }
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A socket, a FIFO or a device.
    Other,
}

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// The path at the time of opening. Only for error messages, never for access.
    shown: PathBuf,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Opens a trusted directory: no task, plugin or user can replace a part of its path.
    pub fn open(path: &Path) -> Result<Self> {
        let fd = openat(CWD, path, DIRECTORY, Mode::empty()).map_err(Error::errno("open", path))?;
        Ok(Self { fd, shown: path.to_owned() })
    }

    /// Opens a directory whose parent is trusted. The last name is looked up in the parent and must not be a symbolic
    /// link.
    pub fn open_last(path: &Path, mounts: Mounts) -> Result<Self> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
                Self::open(parent)?.enter(Path::new(name), mounts)
            }
            _ => Err(Error::path("open", path)(invalid("the path does not end with a name in a directory"))),
        }
    }

    /// Returns another descriptor of the directory.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(Error::path("open", &self.shown))?;
        Ok(Self { fd, shown: self.shown.clone() })
    }

    /// Returns the path at the time of opening.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// Returns a path that leads to this directory while the value exists, for calls that only take paths.
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// Returns the directory's current path, as the kernel reports it.
    pub fn real_path(&self) -> Result<PathBuf> {
        std::fs::read_link(self.proc_path()).map_err(Error::path("look at", &self.shown))
    }

    /// Opens a directory below this one.
    pub fn enter(&self, below: &Path, mounts: Mounts) -> Result<Self> {
        let shown = self.shown.join(below);
        if below.as_os_str().is_empty() {
            return self.try_clone();
        }
        let fd = openat2(&self.fd, below, DIRECTORY, Mode::empty(), resolve(mounts))
            .map_err(|errno| met(errno, "open", &shown))?;
        Ok(Self { fd, shown })
    }

    /// Opens a directory below this one and creates all missing parts, each with the given access. Existing parts
    /// keep their mode and owner.
    pub fn make(&self, below: &Path, access: Access, mounts: Mounts) -> Result<Self> {
        let mut at = self.try_clone()?;
        for name in names(below).map_err(Error::path("make", self.shown.join(below)))? {
            let fresh = match mkdirat(&at.fd, &name, Mode::from_raw_mode(access.mode & 0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(Error::errno("make", at.shown.join(&name))(errno)),
            };
            at = at.enter(Path::new(&name), mounts)?;
            if fresh {
                at.set_access(access)?;
            }
        }
        Ok(at)
    }

    /// Returns the attributes of the directory itself.
    pub fn stat_self(&self) -> Result<Stat> {
        fstat(&self.fd).map_err(Error::errno("look at", &self.shown))
    }

    /// Sets the owner of the directory itself.
    pub fn set_owner(&self, Owner { uid, gid }: Owner) -> Result<()> {
        fchown(&self.fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))
            .map_err(Error::errno("set owner of", &self.shown))
    }

    /// Sets mode and owner of the directory itself.
    pub fn set_access(&self, access: Access) -> Result<()> {
        set_access(&self.fd, access).map_err(Error::errno("set owner and mode of", &self.shown))
    }

    /// Creates a file that must not exist yet.
    pub fn create(&self, name: &OsStr, access: Access) -> Result<File> {
        let shown = self.shown.join(name);
        let name = single(name).map_err(Error::path("create", &shown))?;
        let fd = openat(&self.fd, name, CREATE, Mode::from_raw_mode(access.mode & 0o600))
            .map_err(Error::errno("create", &shown))?;
        set_access(&fd, access).map_err(Error::errno("set owner and mode of", &shown))?;
        Ok(File::from(fd))
    }

    /// Replaces a file as a whole. A new file with a random name gets content, owner and mode, is synced, and is
    /// renamed to `name`. An existing entry (a link, a hard link, a FIFO) is replaced, never written to.
    pub fn replace(&self, name: &OsStr, bytes: &[u8], access: Access) -> Result<()> {
        let shown = self.shown.join(name);
        let failed = || Error::path("write", &shown);
        let name = single(name).map_err(failed())?;
        let temporary = self.temporary(name)?;
        let mut file = self.create(&temporary, Access { mode: 0o600, ..access })?;
        let written = (|| -> io::Result<()> {
            file.write_all(bytes)?;
            fchmod(&file, Mode::from_raw_mode(access.mode))?;
            file.sync_all()?;
            renameat(&self.fd, &temporary, &self.fd, name)?;
            fsync(&self.fd)?;
            Ok(())
        })();
        written.map_err(|source| {
            // Ignore this error, because the caller receives the first one.
            let _left = unlinkat(&self.fd, &temporary, AtFlags::empty());
            failed()(source)
        })
    }

    /// Creates an empty file at a name and returns it, open for writing. An existing entry is replaced, never written
    /// to.
    pub fn put(&self, name: &OsStr, access: Access) -> Result<File> {
        let temporary = self.temporary(name)?;
        let file = self.create(&temporary, access)?;
        self.rename(&temporary, self, name).inspect_err(|_| {
            // Ignore this error, because the caller receives the first one.
            let _left = self.remove_file(&temporary);
        })?;
        Ok(file)
    }

    /// Creates a symbolic link at a name; replaces an existing entry.
    pub fn link(&self, name: &OsStr, target: &Path, owner: Owner) -> Result<()> {
        let shown = self.shown.join(name);
        single(name).map_err(Error::path("link", &shown))?;
        let temporary = self.temporary(name)?;
        symlinkat(target, &self.fd, &temporary).map_err(Error::errno("link", &shown))?;
        let owned = match owner {
            Owner { uid: None, gid: None } => Ok(()),
            Owner { uid, gid } => {
                let ids = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                chownat(&self.fd, &temporary, ids.0, ids.1, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(Error::errno("set owner of", &shown))
            }
        };
        owned.and_then(|()| self.rename(&temporary, self, name)).inspect_err(|_| {
            // Ignore this error, because the caller receives the first one.
            let _left = self.remove_file(&temporary);
        })
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self, name: &OsStr) -> Result<PathBuf> {
        let shown = self.shown.join(name);
        let name = single(name).map_err(Error::path("read", &shown))?;
        let target = readlinkat(&self.fd, name, Vec::new()).map_err(Error::errno("read", &shown))?;
        Ok(PathBuf::from(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(target.into_bytes())))
    }

    /// Returns an unpredictable name for a temporary file.
    pub fn temporary(&self, name: &OsStr) -> Result<OsString> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(Error::call("draw a random name"))?;
        let mut suffix = String::from(".");
        for byte in random {
            let _infallible = write!(suffix, "{byte:02x}");
        }
        let mut temporary = OsString::from(".");
        // A name may have 255 bytes (NAME_MAX).
        let short = std::os::unix::ffi::OsStrExt::as_bytes(name);
        temporary.push(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&short[..short.len().min(200)]));
        temporary.push(suffix);
        Ok(temporary)
    }

    /// Opens a regular file below this directory for reading. Any other kind of entry is an error.
    pub fn read(&self, below: &Path, mounts: Mounts) -> Result<File> {
        let handle = self.handle(below, mounts)?;
        match handle.kind()? {
            Kind::File => handle.read(),
            _ => Err(Error::path("open", self.shown.join(below))(invalid("it is not a regular file"))),
        }
    }

    /// Returns the content of a regular file below this directory. A file of more than `limit` bytes is an error.
    pub fn read_all(&self, below: &Path, limit: u64, mounts: Mounts) -> Result<Vec<u8>> {
        let failed = || Error::path("read", self.shown.join(below));
        let file = self.read(below, mounts)?;
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed())?;
        if bytes.len() as u64 > limit {
            let source =
                io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {limit} bytes"));
            return Err(failed()(source));
        }
        Ok(bytes)
    }

    /// Returns the kind of an entry; `None` if no entry has that name.
    pub fn kind(&self, name: &OsStr) -> Result<Option<Kind>> {
        Ok(self.stat(name)?.map(|stat| handle::kind_of(&stat)))
    }

    /// Returns the attributes of an entry without following a link; `None` if no entry has that name.
    pub fn stat(&self, name: &OsStr) -> Result<Option<Stat>> {
        let shown = self.shown.join(name);
        let name = single(name).map_err(Error::path("look at", &shown))?;
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::errno("look at", shown)(errno)),
        }
    }

    /// Returns the names of all entries.
    pub fn names(&self) -> Result<Vec<OsString>> {
        self.entries()?.collect()
    }

    /// Opens an iterator over the names of the entries.
    pub fn entries(&self) -> Result<Entries> {
        let inner = rustix::fs::Dir::read_from(&self.fd).map_err(Error::errno("list", &self.shown))?;
        Ok(Entries { inner, shown: self.shown.clone() })
    }

    /// Returns whether this directory is the root of a mount.
    pub fn is_mount(&self) -> Result<bool> {
        crate::mount::is_mount_root(&self.fd).map_err(Error::errno("look at", &self.shown))
    }

    /// Renames an entry to a name in another directory and replaces an existing entry there.
    pub fn rename(&self, name: &OsStr, to: &Self, new_name: &OsStr) -> Result<()> {
        let (from_shown, to_shown) = (self.shown.join(name), to.shown.join(new_name));
        let plain =
            |name: &OsStr| single(name).map(OsStr::to_owned).map_err(Error::path("rename", &from_shown));
        let (old, new) = (plain(name)?, plain(new_name)?);
        renameat(&self.fd, &old, &to.fd, &new).map_err(|errno| Error::Paths {
            operation: "rename",
            from: from_shown.clone(),
            to: to_shown.clone(),
            source: errno.into(),
        })
    }

    /// Removes an entry that is not a directory. Returns `false` if no entry has that name.
    pub fn remove_file(&self, name: &OsStr) -> Result<bool> {
        self.unlink(name, AtFlags::empty())
    }

    /// Removes an empty directory. Returns `false` if no entry has that name.
    pub fn remove_dir(&self, name: &OsStr) -> Result<bool> {
        self.unlink(name, AtFlags::REMOVEDIR)
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> Result<bool> {
        let shown = self.shown.join(name);
        let name = single(name).map_err(Error::path("remove", &shown))?;
        match unlinkat(&self.fd, name, flags) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::BUSY) => Err(Error::Mounted { operation: "remove", path: shown }),
            Err(errno) => Err(Error::errno("remove", shown)(errno)),
        }
    }

    /// Removes an entry with its content; see [`tree::remove`]. Returns `false` if no entry has that name.
    pub fn remove_tree(&self, name: &OsStr, seals: Seals) -> Result<bool> {
        let shown = self.shown.join(name);
        let name = single(name).map_err(Error::path("remove", &shown))?;
        tree::remove_at(&self.fd, name, &shown, seals)
    }

    /// Makes the directory's entries durable (fsync(2)).
    pub fn sync(&self) -> Result<()> {
        fsync(&self.fd).map_err(Error::errno("sync directory", &self.shown))
    }
}

/// An iterator over the names of a directory's entries.
#[derive(Debug)]
pub struct Entries {
    inner: rustix::fs::Dir,
    shown: PathBuf,
}

impl Iterator for Entries {
    type Item = Result<OsString>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.inner.next()? {
                Ok(entry) => entry,
                Err(errno) => return Some(Err(Error::errno("list", &self.shown)(errno))),
            };
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                return Some(Ok(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name).to_owned()));
            }
        }
    }
}

fn resolve(mounts: Mounts) -> ResolveFlags {
    match mounts {
        Mounts::Follow => PLAIN,
        Mounts::Refuse => PLAIN.union(ResolveFlags::NO_XDEV),
    }
}

fn met(errno: Errno, operation: &'static str, shown: &Path) -> Error {
    match errno {
        Errno::XDEV => {
            let text = "it leads through a mount or out of its directory";
            Error::path(operation, shown)(io::Error::new(io::ErrorKind::CrossesDevices, text))
        }
        Errno::LOOP => {
            let text = "a part of it is a symbolic link";
            Error::path(operation, shown)(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        errno => Error::errno(operation, shown)(errno),
    }
}

fn set_access(fd: impl AsFd, access: Access) -> Result<(), Errno> {
    let Owner { uid, gid } = access.owner;
    if uid.is_some() || gid.is_some() {
        fchown(&fd, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
    }
    // The mode is set after the owner, because chown(2) clears the set-id bits.
    fchmod(&fd, Mode::from_raw_mode(access.mode))
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Returns the parts of a relative path; refuses `..` and absolute paths.
fn names(below: &Path) -> io::Result<Vec<OsString>> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(Ok(name.to_owned())),
        Component::CurDir => None,
        _ => Some(Err(invalid("the path leads out of its directory"))),
    };
    below.components().filter_map(part).collect()
}

/// Returns a name if it has no separator and is neither `.` nor `..`.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(invalid("it is not the name of an entry")),
    }
}

#[cfg(test)]
mod tests;
