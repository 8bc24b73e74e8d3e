//! Files of templates: read and written within the task's directories only, even if a task planted links.

use crate::alloc_dir::TaskDir;
use crate::runner::users::Users;
use caravan_sys::dir::{Access, Dir, open_own};
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// The largest file that is read, in bytes: a template, or a file that one reads.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The mapping from paths in templates to directories of the task.
#[derive(Clone, Debug)]
pub(in crate::runner) struct Places {
    dirs: TaskDir,
    /// Whether the task sees its directories at `/alloc`, `/local` and `/secrets`.
    own_root: bool,
    users: Users,
}

impl Places {
    /// Creates the mapping; `users` are the users of the allocation's tasks.
    pub(in crate::runner) fn new(dirs: TaskDir, own_root: bool, users: Users) -> Self {
        Self { dirs, own_root, users }
    }

    /// Returns the directories of the task.
    pub(super) fn dirs(&self) -> &TaskDir {
        &self.dirs
    }

    /// Returns a directory of the task and the path below it. Absolute paths refer to the task's directories as it sees
    /// them, or to paths below its own directory.
    fn resolve(&self, path: &str) -> Result<(PathBuf, Vec<OsString>), String> {
        let (base, below) = self.directory(path)?;
        match below.components().next() {
            Some(_) => Ok((base, below.components().map(|part| part.as_os_str().to_owned()).collect())),
            None => Err(format!("\"{path}\" is a directory of the task")),
        }
    }

    /// Resolves a path like [`Places::resolve`], but also accepts a directory of the task itself.
    pub(in crate::runner) fn directory(&self, path: &str) -> Result<(PathBuf, PathBuf), String> {
        let (root, shared) = (&self.dirs.root, &self.dirs.shared);
        let requested = Path::new(path);
        let whole = if requested.starts_with(root) || requested.starts_with(shared) {
            requested.to_owned()
        } else {
            let below: PathBuf =
                requested.components().filter(|part| !matches!(part, Component::RootDir)).collect();
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

    /// Opens a directory that [`Places::directory`] returned.
    pub(in crate::runner) fn open(&self, base: &Path) -> Result<Dir, caravan_sys::Error> {
        if base == self.dirs.shared { self.dirs.open_shared() } else { self.dirs.open() }
    }

    /// Returns the parent directory of a file, with an open descriptor if it exists.
    pub(super) fn parent(&self, path: &str) -> Option<(PathBuf, Option<Dir>)> {
        let (base, names) = self.resolve(path).ok()?;
        let (_, parents) = names.split_last()?;
        let below: PathBuf = parents.iter().collect();
        let opened = self.open(&base).and_then(|dir| dir.enter_linked(&below)).ok();
        Some((base.join(below), opened))
    }

    /// Returns a file's bytes; `None` if it is absent.
    pub(in crate::runner) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        let (base, names) = self.resolve(path)?;
        let below: PathBuf = names.iter().collect();
        let failed = |error: &dyn std::error::Error| {
            format!("\"{path}\" cannot be read: {}", caravan_sys::describe(error))
        };
        let open = || self.open(&base).and_then(|dir| dir.open_linked(&below));
        let file = match open_own(open, || self.users.known().uids(), &base.join(&below)) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let meta = file.metadata().map_err(|error| failed(&error))?;
        if !meta.is_file() {
            return Err(failed(&io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        match u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_FILE_BYTES) {
            true => Ok(Some(bytes)),
            false => Err(failed(&io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 4 MiB"))),
        }
    }

    /// Replaces a file atomically, unless it has that content already. Creates missing directories.
    pub(in crate::runner) fn write(&self, path: &str, bytes: &[u8], access: Access) -> Result<(), String> {
        if matches!(self.read(path), Ok(Some(there)) if there == bytes) {
            return Ok(());
        }
        let (base, names) = self.resolve(path)?;
        let replace = || -> Result<(), caravan_sys::Error> {
            let Some((name, parents)) = names.split_last() else { return Ok(()) };
            let below: PathBuf = parents.iter().collect();
            let dir = self.open(&base)?.make_linked(&below, Access::mode(0o755))?;
            dir.replace(name, bytes, access)
        };
        replace().map_err(|error| format!("\"{path}\" cannot be written: {}", caravan_sys::describe(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::users::TaskUser;
    use caravan_sys::dir::Owner;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    const PLAIN: Access = Access { mode: 0o640, owner: Owner { uid: None, gid: None } };

    fn places(base: &Path, own_root: bool) -> Places {
        let dirs = TaskDir { root: base.join("web"), shared: base.join("alloc") };
        for dir in [dirs.local(), dirs.secrets(), dirs.shared.join("data"), base.join("other")] {
            fs::create_dir_all(dir).unwrap();
        }
        Places::new(dirs, own_root, Users::default())
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
        // A link in place of a file is replaced, and its target stays.
        places.write("local/link", b"new", PLAIN).unwrap();
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(local.join("link")).unwrap(), "new");
        // A FIFO, a hard link and the names of temporary files are replaced too.
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, local.join("fifo"), kind, rustix::fs::Mode::RWXU, 0).unwrap();
        fs::hard_link(other.join("file"), local.join("hard")).unwrap();
        symlink(other.join("file"), local.join(".link.tmp")).unwrap();
        let foreign = Places::new(places.dirs.clone(), false, Users::new(vec![TaskUser::Nobody]));
        assert!(foreign.read("local/hard").unwrap_err().contains("hard link"));
        for path in ["local/fifo", "local/hard", "local/link"] {
            places.write(path, b"newer", PLAIN).unwrap();
            assert_eq!(fs::read_to_string(base.path().join("web").join(path)).unwrap(), "newer");
        }
        assert_eq!(fs::read_to_string(other.join("file")).unwrap(), "kept");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
        // Links within the directory are followed.
        fs::create_dir(local.join("v1")).unwrap();
        symlink("v1", local.join("now")).unwrap();
        places.write("local/now/x", b"x", PLAIN).unwrap();
        assert!(local.join("v1/x").exists());
    }
}
