//! Files that are complete after a crash, either old or new, and directories for state.

use crate::{Error, Result};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces a file's content so that after a crash it is completely old or completely new. Writes and syncs a
/// temporary file in the same directory, renames it over the file, and syncs the directory.
///
/// The directory must belong to the agent: no task, plugin or user may write to it ([`crate::dir::Dir::replace`] is
/// for other directories). The temporary name is `.<name>.tmp`, so two writers of one path must exclude each other.
pub fn atomic_write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    sync_dir(replace(path, bytes, mode, File::sync_all)?)
}

/// Replaces a file's content as [`atomic_write`] does, but without a sync: for files that only matter until the machine
/// restarts. Readers see the old content or the new one, also after the writer was killed.
pub fn atomic_write_until_restart(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    replace(path, bytes, mode, |_| Ok(())).map(drop)
}

/// Replaces a file's content and returns its directory; `sync` gets the complete temporary file.
fn replace<'p>(
    path: &'p Path,
    bytes: &[u8],
    mode: u32,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> Result<&'p Path> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name");
    let name = path.file_name().ok_or_else(|| Error::path("write", path)(invalid()))?;
    let dir = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".tmp");
    let temporary = dir.join(temporary);
    let write = || -> io::Result<()> {
        // A crash may have left a temporary file behind.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        // The umask reduces the mode that is given at creation.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        sync(&file)
    };
    write().map_err(Error::path("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(|source| Error::Paths {
        operation: "rename",
        from: temporary.clone(),
        to: path.to_owned(),
        source,
    })?;
    Ok(dir)
}

/// Makes a directory's entries durable (fsync(2)).
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(Error::path("sync directory", dir))
}

/// Creates a directory and its parents, with a mode for the new ones, and makes its name durable. A sync of a file
/// does not sync the directories above it on every file system, and a lost directory loses all its files.
///
/// The parent is synced even if the directory already exists, because an earlier process may have been interrupted
/// before its sync.
pub fn durable_dir(path: &Path, mode: u32) -> Result<()> {
    durable(path, mode, &mut sync_dir)
}

fn durable(path: &Path, mode: u32, sync: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        // The root directory always exists.
        None => return Ok(()),
    };
    // The tasks of an allocation create the directory of the allocation at the same time.
    let create = || match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    };
    let created = match create() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            durable(parent, mode, sync)?;
            create()
        }
        other => other,
    };
    created.map_err(Error::path("create directory", path))?;
    sync(parent)
}

/// Creates a directory (and its parents) for state that must survive a power loss, and sets its mode to 0700.
pub fn durable_private_dir(path: &Path) -> Result<()> {
    durable_dir(path, 0o700)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(Error::path("set mode of", path))
}

/// Creates a directory (and its parents) for state, and sets its mode to 0700.
pub fn private_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(Error::path("create directory", path))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(Error::path("set mode of", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_may_be_created_at_the_same_time() {
        for _ in 0..100 {
            let dir = tempfile::tempdir().unwrap();
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for n in 0..4 {
                    let (dir, start) = (dir.path(), &start);
                    scope.spawn(move || {
                        start.wait();
                        durable_dir(&dir.join(format!("tasks/alloc/{n}")), 0o700).unwrap();
                    });
                }
            });
        }
    }

    #[test]
    fn replaces_content_and_mode_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        atomic_write(&path, b"one", 0o644).unwrap();
        atomic_write(&path, b"two", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn errors_name_the_path() {
        let error = atomic_write(Path::new("/nonexistent/dir/file"), b"", 0o600).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/dir/.file.tmp"), "{error}");
        assert!(error.is_not_found());
    }

    #[test]
    fn every_new_name_above_a_directory_is_flushed() {
        let scratch = tempfile::tempdir().unwrap();
        let (root, path) = (scratch.path(), scratch.path().join("a/b/c"));
        let mut flushed = Vec::new();
        let mut note = |dir: &Path| {
            flushed.push(dir.to_owned());
            Ok(())
        };
        durable(&path, 0o700, &mut note).unwrap();
        assert_eq!(flushed, [root.to_owned(), root.join("a"), root.join("a/b")]);
        flushed.clear();
        durable_dir(&path, 0o700).unwrap();
        let mut again = Vec::new();
        durable(&path, 0o700, &mut |dir| {
            again.push(dir.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(again, [root.join("a/b")], "an earlier process may not have come that far");
        std::fs::write(root.join("file"), "").unwrap();
        assert!(durable_dir(&root.join("file"), 0o700).is_err());
        assert!(durable_dir(&root.join("file/below"), 0o700).is_err());
    }

    #[test]
    fn private_directories_are_private_even_if_they_were_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        private_dir(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
