//! Paths that may contain symbolic links, as long as these stay below the directory.

use super::handle::Handle;
use super::{Access, DIRECTORY, Dir, Mounts, met, names};
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// The kernel follows links, but neither out of the directory nor the magic links of `/proc`.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

impl Dir {
    /// Opens a directory below this one; follows links that stay below.
    pub fn enter_linked(&self, below: &Path) -> Result<Self> {
        let shown = self.shown.join(below);
        if below.as_os_str().is_empty() {
            return self.try_clone();
        }
        let fd = openat2(&self.fd, below, DIRECTORY, Mode::empty(), WITHIN)
            .map_err(|errno| left(errno, "open", &shown))?;
        Ok(Self { fd, shown })
    }

    /// Opens a regular file or a directory below this one for reading; follows links that stay below.
    pub fn open_linked(&self, below: &Path) -> Result<File> {
        self.handle_linked(below)?.read()
    }

    /// Opens an entry of any kind below this directory; follows links that stay below.
    pub fn handle_linked(&self, below: &Path) -> Result<Handle> {
        let shown = self.shown.join(below);
        let place = OFlags::PATH | OFlags::CLOEXEC;
        let fd = openat2(&self.fd, below, place, Mode::empty(), WITHIN)
            .map_err(|errno| left(errno, "open", &shown))?;
        Ok(Handle { fd, shown })
    }

    /// Opens a directory below this one and creates all missing parts, as [`Dir::make`] does; follows links that stay
    /// below.
    pub fn make_linked(&self, below: &Path, access: Access) -> Result<Self> {
        let mut at = self.try_clone()?;
        let mut way = std::path::PathBuf::new();
        for name in names(below).map_err(Error::path("make", self.shown.join(below)))? {
            way.push(&name);
            match mkdirat(&at.fd, &name, Mode::from_raw_mode(access.mode & 0o700)) {
                Ok(()) => {
                    at = at.enter(Path::new(&name), Mounts::Follow)?;
                    at.set_access(access)?;
                }
                // Start at the top each time, because a link may lead upwards within the directory.
                Err(Errno::EXIST) => at = self.enter_linked(&way)?,
                Err(errno) => return Err(Error::errno("make", at.shown.join(&name))(errno)),
            }
        }
        Ok(at)
    }
}

fn left(errno: Errno, operation: &'static str, shown: &Path) -> Error {
    match errno {
        Errno::XDEV => met(errno, operation, shown),
        errno => Error::errno(operation, shown)(errno),
    }
}
