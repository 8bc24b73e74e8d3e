//! Writes below a directory and nowhere else: neither written entries nor existing links lead out.

use super::wrong;
use crate::runner::users::KnownUsers;
use caravan_sys::dir::{Access, Dir, Kind, Mounts, Owner};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The owner of written entries.
#[derive(Clone, Debug)]
pub(in crate::runner) enum Owners {
    /// One owner; by default the agent's user.
    One(Owner),
    /// The owner in the archive, limited to the users of the allocation.
    Of(KnownUsers),
}

/// A directory to write below.
#[derive(Debug)]
pub(in crate::runner) struct Tree {
    base: Dir,
    owners: Owners,
}

/// Mode and owner of an entry, as in the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) mode: u32,
    pub(super) owner: Option<(u32, u32)>,
}

impl Named {
    pub(super) fn mode(mode: u32) -> Self {
        Self { mode, owner: None }
    }
}

fn outside(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} leads out of the destination", path.display()))
}

fn failed(error: caravan_sys::Error) -> io::Error {
    let kind = error.io().map_or(io::ErrorKind::Other, io::Error::kind);
    io::Error::new(kind, caravan_sys::describe(&error))
}

/// Returns a path of plain names only; anything else is an error.
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

/// Returns whether a link at a path leads out of the tree.
pub(super) fn leads_out(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return true,
        }
    }
    false
}

impl Tree {
    /// Creates the directory `below` a base, unless it exists.
    pub(in crate::runner) fn make(base: &Dir, below: &Path, owners: Owners) -> io::Result<Self> {
        let at_base = Self { base: base.try_clone().map_err(failed)?, owners };
        let base = at_base.directory(&plain(below)?, Named::mode(0o755))?;
        Ok(Self { base, owners: at_base.owners })
    }

    /// Returns the access of an entry, without set-user-ID and set-group-ID bits.
    fn access(&self, named: Named, bits: u32) -> Access {
        let owner = match (&self.owners, named.owner) {
            (Owners::One(owner), _) => *owner,
            (Owners::Of(users), Some((uid, gid))) => users.limit(uid, gid),
            (Owners::Of(_), None) => Owner::default(),
        };
        Access { mode: named.mode & bits, owner }
    }

    /// Creates a directory with its parents. Created parents have the default mode.
    pub(super) fn directory(&self, path: &Path, named: Named) -> io::Result<Dir> {
        let path = plain(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return self.base.try_clone().map_err(failed);
        };
        let above = self.access(Named { mode: 0o755, ..named }, 0o777);
        let mut access = self.access(named, 0o1777);
        access.mode |= 0o700;
        let made = self.base.make(parent, above, Mounts::Follow);
        made.and_then(|dir| dir.make(Path::new(name), access, Mounts::Follow)).map_err(failed)
    }

    /// Opens the parent directory of a path; returns it with the last name.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Dir, &'p OsStr)> {
        let name = path.file_name().ok_or_else(|| outside(path))?;
        let dir = self.directory(path.parent().unwrap_or(Path::new("")), Named::mode(0o755))?;
        Ok((dir, name))
    }

    /// Creates a file, replacing an existing entry.
    pub(super) fn file(&self, path: &Path, named: Named) -> io::Result<File> {
        let path = plain(path)?;
        let (dir, name) = self.place(&path)?;
        dir.put(name, self.access(named, 0o777)).map_err(failed)
    }

    /// Creates a link to a path in the tree, replacing an existing entry.
    pub(super) fn link(&self, path: &Path, target: &Path, named: Named) -> io::Result<()> {
        let path = plain(path)?;
        if leads_out(&path, target) {
            return Err(outside(target));
        }
        let (dir, name) = self.place(&path)?;
        dir.link(name, target, self.access(named, 0o777).owner).map_err(failed)
    }

    /// Opens a file that was written before.
    pub(super) fn read(&self, path: &Path) -> io::Result<File> {
        let path = plain(path)?;
        let handle = self.base.handle(&path, Mounts::Follow).map_err(failed)?;
        if !matches!(handle.kind(), Ok(Kind::File)) {
            return Err(outside(&path));
        }
        let file = handle.read().map_err(failed)?;
        match file.metadata()?.nlink() {
            1 => Ok(file),
            _ => Err(wrong(format!("{} was replaced meanwhile", path.display()))),
        }
    }
}
