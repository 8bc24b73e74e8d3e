//! Writing below a directory and nowhere else: nothing that is written, and no link that was there, leads out.

use crate::runner::fresh::Owner;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, chownat, fchmod, mkdirat, openat, openat2, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// No link is followed.
const PLAINLY: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// A directory to write below.
#[derive(Debug)]
pub(super) struct Tree {
    base: OwnedFd,
    owner: Option<Owner>,
}

fn outside(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} leads out of the destination", path.display()))
}

/// A path without anything that leads elsewhere.
pub(super) fn plain(path: &Path) -> io::Result<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::CurDir => {}
            _ => return Err(outside(path)),
        }
    }
    Ok(out)
}

impl Tree {
    /// The directory `below` a base, made if it is not there.
    pub(super) fn make(base: &OwnedFd, below: &Path, owner: Option<Owner>) -> io::Result<Self> {
        let at_base = Self { base: base.try_clone()?, owner };
        let base = at_base.directory(&plain(below)?, 0o777)?;
        Ok(Self { base, owner })
    }

    fn give(&self, dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let Some(Owner { uid, gid }) = self.owner else { return Ok(()) };
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        Ok(chownat(dir, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// A directory, made with all above it.
    pub(super) fn directory(&self, path: &Path, mode: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut within = self.base.try_clone()?;
        let mut below = PathBuf::new();
        for name in plain(path)?.iter() {
            match mkdirat(&within, name, Mode::from_raw_mode(mode & 0o777 | 0o700)) {
                Ok(()) => self.give(&within, name)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            below.push(name);
            within = openat2(&self.base, &below, flags, Mode::empty(), PLAINLY)?;
        }
        Ok(within)
    }

    /// The directory of a path and its last name, with what had that name gone.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or_else(|| outside(path))?;
        let dir = self.directory(path.parent().unwrap_or(Path::new("")), 0o777)?;
        match unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((dir, name)),
            Err(error) => Err(error.into()),
        }
    }

    /// A new file.
    pub(super) fn file(&self, path: &Path, mode: u32) -> io::Result<File> {
        let path = plain(path)?;
        let (dir, name) = self.place(&path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&dir, name, flags, Mode::from_raw_mode(0o600))?);
        self.give(&dir, name)?;
        // No bits that lend somebody's rights.
        fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
        Ok(file)
    }

    /// A link to something in the tree.
    pub(super) fn link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let path = plain(path)?;
        let mut depth = path.components().count().saturating_sub(1);
        for part in target.components() {
            match part {
                Component::Normal(_) => depth += 1,
                Component::CurDir => {}
                Component::ParentDir if depth > 0 => depth -= 1,
                _ => return Err(outside(target)),
            }
        }
        let (dir, name) = self.place(&path)?;
        symlinkat(target, &dir, name)?;
        self.give(&dir, name)
    }

    /// A file that was written before.
    pub(super) fn read(&self, path: &Path) -> io::Result<File> {
        let path = plain(path)?;
        let kind = statat(&self.base, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(kind.st_mode) != FileType::RegularFile {
            return Err(outside(&path));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(File::from(openat2(&self.base, &path, flags, Mode::empty(), PLAINLY)?))
    }
}
