//! Mount points in the task's own root.
//!
//! The root is the task's directory, where an earlier run of the task, perhaps as root, may have left links. Such a
//! link would lead a mount to another place of the task's root. Examples are the agent's own mounts, or a volume
//! whose mounts propagate to the host. So only two kinds of links are followed: links that the shim created, and
//! links in the host's directories that the task sees read-only.

use crate::{Error, Result};
use caravan_sys::dir::{Access, Dir, Handle, Kind, Mounts, Owner};
use caravan_sys::mount::mount_id;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on the path to one mount point, as in path_resolution(7).
const MAX_LINKS: u32 = 40;
const MADE: Access = Access { mode: 0o755, owner: Owner { uid: None, gid: None } };

/// The root of a task, in its own view.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// Links that the shim created, with their targets.
    links: BTreeMap<PathBuf, PathBuf>,
    /// Ids of the mounts of the host's own directories.
    host: BTreeSet<u32>,
}

impl Targets {
    /// Creates a link, unless the name is taken: if the task placed another entry there, only the task is affected.
    pub(crate) fn link(&mut self, at: &Path, target: &Path) -> Result<()> {
        let (parent, name) = split(at)?;
        let dir = self.directory(&parent)?;
        if dir.kind(&name)?.is_none() {
            dir.link(&name, target, Owner::default())?;
        }
        self.links.insert(dir.shown().join(name), target.to_owned());
        Ok(())
    }

    /// Trusts the links on a mount of the host's own directories.
    pub(crate) fn trust(&mut self, mount: u32) {
        self.host.insert(mount);
    }

    /// Opens a directory of the task's root and creates all missing parts.
    pub(crate) fn directory(&self, path: &Path) -> Result<Dir> {
        self.walk(path, true)
    }

    /// Opens an existing directory of the task's root.
    pub(crate) fn existing(&self, path: &Path) -> Option<Dir> {
        self.walk(path, false).ok()
    }

    /// Opens a file of the task's root, of any kind except a directory. A trusted link is followed: a host's
    /// `/etc/resolv.conf` often is one. Creates an empty file if absent.
    pub(crate) fn file(&self, path: &Path) -> Result<Handle> {
        let (parent, mut name) = split(path)?;
        let mut dir = self.directory(&parent)?;
        for _ in 0..=MAX_LINKS {
            match dir.kind(&name)? {
                None => {
                    let access = Access { mode: 0o644, ..MADE };
                    drop(dir.create(&name, access).map_err(|error| no_place(error, path))?);
                }
                Some(Kind::Link) => {
                    let target = self.trusted(&dir, &name)?;
                    let start = if target.is_absolute() { Dir::open(Path::new("/"))? } else { dir };
                    let mut parts = parts_as_given(&target);
                    let no_file = || {
                        Error::Launch(format!(
                            "{} is a link to {}, which is no file",
                            path.display(),
                            target.display()
                        ))
                    };
                    name = parts.pop().filter(|part| part != "..").ok_or_else(no_file)?;
                    dir = self.walk_from(start, parts, path, true)?;
                    continue;
                }
                Some(_) => {}
            }
            return Ok(dir.handle(Path::new(&name), Mounts::Follow)?);
        }
        Err(too_many(path))
    }

    fn walk(&self, path: &Path, make: bool) -> Result<Dir> {
        self.walk_from(Dir::open(Path::new("/"))?, parts(path), path, make)
    }

    fn walk_from(&self, mut at: Dir, left: Vec<OsString>, path: &Path, make: bool) -> Result<Dir> {
        let mut left = VecDeque::from(left);
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                at = self.above(&at)?;
                continue;
            }
            match at.kind(&name)? {
                None if make => {
                    at = at
                        .make(Path::new(&name), MADE, Mounts::Follow)
                        .map_err(|error| no_place(error, path))?;
                }
                Some(Kind::Link) => {
                    let target = self.trusted(&at, &name)?;
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(too_many(path));
                    }
                    if target.is_absolute() {
                        at = Dir::open(Path::new("/"))?;
                    }
                    for part in parts_as_given(&target).into_iter().rev() {
                        left.push_front(part);
                    }
                }
                _ => at = at.enter(Path::new(&name), Mounts::Follow)?,
            }
        }
        Ok(at)
    }

    /// Returns the parent directory. The path of an open directory contains no link.
    fn above(&self, dir: &Dir) -> Result<Dir> {
        let way = dir.shown().parent().unwrap_or(Path::new("/")).to_owned();
        let below = way.strip_prefix("/").unwrap_or(&way);
        Ok(Dir::open(Path::new("/"))?.enter(below, Mounts::Follow)?)
    }

    fn trusted(&self, dir: &Dir, name: &OsStr) -> Result<PathBuf> {
        let at = dir.shown().join(name);
        let target = dir.read_link(name)?;
        let is_own = self.links.get(&at) == Some(&target);
        if is_own || self.host.contains(&mount_id(dir, dir.shown())?) {
            return Ok(target);
        }
        Err(Error::Launch(format!("{} is a symbolic link that the task may have put there", at.display())))
    }
}

fn too_many(path: &Path) -> Error {
    Error::Launch(format!("{} has too many links", path.display()))
}

/// Splits a path of the task's root into its parts; `..` does not lead above the root.
fn parts(path: &Path) -> Vec<OsString> {
    let mut plain = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name.to_owned()),
            Component::ParentDir => drop(plain.pop()),
            _ => {}
        }
    }
    plain
}

/// Splits the target of a link into its parts and keeps each `..`.
fn parts_as_given(path: &Path) -> Vec<OsString> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

fn split(path: &Path) -> Result<(PathBuf, OsString)> {
    let mut parts = parts(path);
    let name =
        parts.pop().ok_or_else(|| Error::Launch(format!("{} is no place for a file", path.display())))?;
    Ok((parts.iter().collect(), name))
}

fn no_place(error: caravan_sys::Error, path: &Path) -> Error {
    if error.io().is_some_and(|e| e.kind() == std::io::ErrorKind::ReadOnlyFilesystem) {
        return Error::Launch(format!(
            "{} does not exist on the host and cannot be made, since the task sees what is above it read-only",
            path.display()
        ));
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// The walk begins at `/`, and all of the test's files are in one directory.
    #[test]
    fn links_of_the_task_are_refused_and_those_of_the_shim_are_followed() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let mut targets = Targets::default();
        let made = targets.directory(&base.join("a/b")).unwrap();
        assert_eq!(made.shown(), base.join("a/b"));
        assert_eq!(targets.directory(&base.join("a/../a/./b")).unwrap().shown(), base.join("a/b"));
        targets.link(&base.join("own"), Path::new("a/../a")).unwrap();
        targets.link(&base.join("absolute"), &base.join("a")).unwrap();
        for way in ["own/b", "absolute/b"] {
            assert_eq!(targets.directory(&base.join(way)).unwrap().shown(), base.join("a/b"), "{way}");
        }
        // The link has another target than the shim's.
        fs::remove_file(base.join("own")).unwrap();
        symlink(&base, base.join("own")).unwrap();
        symlink("a", base.join("planted")).unwrap();
        symlink("/nonexistent", base.join("dangling")).unwrap();
        fs::write(base.join("file"), "").unwrap();
        for way in ["own/x", "planted", "planted/b/x", "dangling", "dangling/x", "file", "file/x"] {
            let error = caravan_sys::describe(&targets.directory(&base.join(way)).unwrap_err());
            assert!(error.contains(way.split('/').next().unwrap()), "{error}");
            assert!(targets.existing(&base.join(way)).is_none());
        }
        assert!(
            targets.file(&base.join("planted/new")).is_err() && targets.file(&base.join("dangling")).is_err()
        );
        assert!(targets.file(Path::new("/")).is_err());
        targets.file(&base.join("a/new")).unwrap();
        targets.file(&base.join("a/new")).unwrap();
        assert!(targets.existing(&base.join("none")).is_none() && !base.join("none").exists());
        assert_eq!(fs::read_dir(base.join("a")).unwrap().count(), 2);
    }

    #[test]
    fn links_on_the_hosts_own_mounts_are_followed() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("real")).unwrap();
        symlink("real", base.join("link")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let mut targets = Targets::default();
        let dir = Dir::open(&base).unwrap();
        targets.trust(mount_id(&dir, &base).unwrap());
        assert_eq!(targets.directory(&base.join("link")).unwrap().shown(), base.join("real"));
        assert!(targets.directory(&base.join("loop")).unwrap_err().to_string().contains("too many links"));
        // As a host's `/etc/resolv.conf` leads to the file of systemd.
        fs::create_dir(base.join("etc")).unwrap();
        fs::write(base.join("real/stub"), "").unwrap();
        symlink("../real/stub", base.join("etc/file")).unwrap();
        assert!(targets.file(&base.join("etc/file")).is_ok());
        symlink("../real/made", base.join("etc/new")).unwrap();
        assert!(targets.file(&base.join("etc/new")).is_ok() && base.join("real/made").exists());
        assert!(targets.file(&base.join("loop")).unwrap_err().to_string().contains("too many links"));
        symlink("..", base.join("etc/up")).unwrap();
        assert!(targets.file(&base.join("etc/up")).unwrap_err().to_string().contains("no file"));
    }
}
