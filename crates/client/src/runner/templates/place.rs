//! Files of templates: read and written within the task's directories only, whatever a task left there.

use crate::alloc_dir::TaskDir;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, fchmod, fchown, mkdirat, openat, openat2, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Largest file that is read: a template, or what one reads.
const MOST: u64 = 4 * 1024 * 1024;
/// The kernel follows links, but not out of the directory.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Where the paths of a task's templates lead.
#[derive(Clone, Debug)]
pub(in crate::runner) struct Places {
    dirs: TaskDir,
    /// The task sees its directories at `/alloc`, `/local` and `/secrets`.
    own_root: bool,
}

/// Who may do what with a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) mode: u32,
    pub(super) owner: (Option<u32>, Option<u32>),
}

impl Places {
    pub(in crate::runner) fn new(dirs: TaskDir, own_root: bool) -> Self {
        Self { dirs, own_root }
    }

    /// The directories of the task.
    pub(super) fn dirs(&self) -> &TaskDir {
        &self.dirs
    }

    /// A directory of the task, and where below it a path leads: absolute ones to the task's directories as it sees
    /// them, or below its own.
    fn resolve(&self, path: &str) -> Result<(PathBuf, Vec<OsString>), String> {
        let (base, below) = self.directory(path)?;
        match below.components().next() {
            Some(_) => Ok((base, below.components().map(|part| part.as_os_str().to_owned()).collect())),
            None => Err(format!("\"{path}\" is a directory of the task")),
        }
    }

    /// The same for what may be a directory of the task itself.
    pub(in crate::runner) fn directory(&self, path: &str) -> Result<(PathBuf, PathBuf), String> {
        let (root, shared) = (&self.dirs.root, &self.dirs.shared);
        let given = Path::new(path);
        let whole = if given.starts_with(root) || given.starts_with(shared) {
            given.to_owned()
        } else {
            let below: PathBuf =
                given.components().filter(|part| !matches!(part, Component::RootDir)).collect();
            match below.strip_prefix("alloc") {
                Ok(rest) if self.own_root => shared.join(rest),
                _ => root.join(below),
            }
        };
        let mut plain = PathBuf::new();
        for part in whole.components() {
            match part {
                Component::ParentDir => drop(plain.pop()),
                Component::CurDir => {}
                part => plain.push(part),
            }
        }
        for base in [root, shared] {
            if let Ok(below) = plain.strip_prefix(base) {
                return Ok((base.clone(), below.to_owned()));
            }
        }
        Err(format!("\"{path}\" leads out of the directories of the task"))
    }

    /// The directory that a file lies in.
    pub(super) fn parent(&self, path: &str) -> Option<PathBuf> {
        let (base, names) = self.resolve(path).ok()?;
        let (_, parents) = names.split_last()?;
        Some(parents.iter().fold(base, |dir, name| dir.join(name)))
    }

    /// A file's bytes; none if it is not there.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        let (base, names) = self.resolve(path)?;
        let below: PathBuf = names.iter().collect();
        let failed = |error: io::Error| format!("\"{path}\" cannot be read: {error}");
        let open = || -> io::Result<Vec<u8>> {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = File::from(openat2(directory(&base)?, &below, flags, Mode::empty(), WITHIN)?);
            if !file.metadata()?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
            }
            let mut bytes = Vec::new();
            file.take(MOST + 1).read_to_end(&mut bytes)?;
            match u64::try_from(bytes.len()).is_ok_and(|length| length <= MOST) {
                true => Ok(bytes),
                false => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB")),
            }
        };
        match open() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Replaces a file as a whole, unless it is as wished already. Directories are made.
    pub(super) fn write(&self, path: &str, bytes: &[u8], access: Access) -> Result<(), String> {
        if matches!(self.read(path), Ok(Some(there)) if there == bytes) {
            return Ok(());
        }
        let (base, names) = self.resolve(path)?;
        replace(&base, &names, bytes, access)
            .map_err(|error| format!("\"{path}\" cannot be written: {error}"))
    }
}

fn directory(base: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, base, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn replace(base: &Path, names: &[OsString], bytes: &[u8], access: Access) -> io::Result<()> {
    let (name, parents) = names.split_last().ok_or(Errno::INVAL)?;
    let base = directory(base)?;
    let mut within = base.try_clone()?;
    let mut below = PathBuf::new();
    for parent in parents {
        match mkdirat(&within, parent.as_os_str(), Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        below.push(parent);
        // From the base each time: a link may lead upwards, but not out.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        within = openat2(&base, &below, flags, Mode::empty(), WITHIN)?;
    }
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(".tmp");
    let remove = |name: &OsStr| match unlinkat(&within, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(io::Error::from(error)),
    };
    remove(&temporary)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fresh = openat(&within, &temporary, flags, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(fresh);
    let fill = || -> io::Result<()> {
        file.write_all(bytes)?;
        fchmod(&file, Mode::from_raw_mode(access.mode))?;
        let (uid, gid) = (access.owner.0.map(Uid::from_raw), access.owner.1.map(Gid::from_raw));
        if uid.is_some() || gid.is_some() {
            fchown(&file, uid, gid)?;
            // Giving a file away takes bits of its mode.
            fchmod(&file, Mode::from_raw_mode(access.mode))?;
        }
        renameat(&within, &temporary, &within, name.as_os_str())?;
        Ok(())
    };
    let mut fill = fill;
    fill().inspect_err(|_| {
        // What is half made is of no use; the error that is told is the first.
        let _ = remove(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    const PLAIN: Access = Access { mode: 0o640, owner: (None, None) };

    fn places(base: &Path, own_root: bool) -> Places {
        let dirs = TaskDir { root: base.join("web"), shared: base.join("alloc") };
        for dir in [dirs.local(), dirs.secrets(), dirs.shared.join("data"), base.join("other")] {
            fs::create_dir_all(dir).unwrap();
        }
        Places::new(dirs, own_root)
    }

    #[test]
    fn files_lie_in_the_directories_of_the_task() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path(), false);
        let shared = format!("{}/data/x", base.path().join("alloc").display());
        for (path, place) in [
            ("local/a/b/x", "web/local/a/b/x"),
            ("/etc/x", "web/etc/x"),
            ("../alloc/x", "alloc/x"),
            ("alloc/x", "web/alloc/x"),
            (shared.as_str(), "alloc/data/x"),
        ] {
            for text in ["one", "two", "two"] {
                places.write(path, text.as_bytes(), PLAIN).unwrap();
                assert_eq!(fs::read_to_string(base.path().join(place)).unwrap(), text, "{path}");
                assert_eq!(places.read(path).unwrap().unwrap(), text.as_bytes());
            }
            assert_eq!(fs::metadata(base.path().join(place)).unwrap().mode() & 0o7777, 0o640);
        }
        assert_eq!(places.read("local/none"), Ok(None));
        let isolated = self::places(base.path(), true);
        isolated.write("/alloc/data/y", b"y", PLAIN).unwrap();
        isolated.write("/secrets/z", b"z", PLAIN).unwrap();
        assert!(base.path().join("alloc/data/y").exists() && base.path().join("web/secrets/z").exists());
        assert!(fs::read_dir(base.path().join("web/local")).unwrap().count() == 1, "nothing is left over");
    }

    #[test]
    fn nothing_leads_out() {
        let base = tempfile::tempdir().unwrap();
        let places = places(base.path(), false);
        let (local, other) = (base.path().join("web/local"), base.path().join("other"));
        fs::write(other.join("file"), "kept").unwrap();
        symlink(&other, local.join("way")).unwrap();
        symlink("../../other", local.join("near")).unwrap();
        symlink(other.join("file"), local.join("link")).unwrap();
        for path in ["../other/file", "../../x", "", "local/..", "way/x", "local/way/file", "local/near/file"]
        {
            if path != "way/x" {
                assert!(places.write(path, b"bad", PLAIN).is_err(), "{path}");
            }
            assert!(!matches!(places.read(path), Ok(Some(_))), "{path}");
        }
        // A link in the place of a file is replaced, and what it leads to stays.
        places.write("local/link", b"new", PLAIN).unwrap();
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(local.join("link")).unwrap(), "new");
        // Within the directory links are followed.
        fs::create_dir(local.join("v1")).unwrap();
        symlink("v1", local.join("now")).unwrap();
        places.write("local/now/x", b"x", PLAIN).unwrap();
        assert!(local.join("v1/x").exists());
    }
}
