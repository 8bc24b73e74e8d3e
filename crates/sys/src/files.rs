//! Files that are either old or new after a crash, and directories for state.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::{Error, Result};

/// Replaces a file's content so that after a crash it is wholly old or wholly new: a temporary file in the same
/// directory is written, synced and renamed over it, then the directory is synced.
///
/// The directory is the agent's own: no task, plugin or user can write there ([`crate::dir::Dir::replace`] is for
/// the others). The temporary name is `.<name>.tmp`: two writers of one path must exclude each other.
pub fn atomic_write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
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
        // A crash may have left one behind.
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        // The umask cuts the mode that is given at creation.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(Error::path("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(|source| Error::Paths {
        operation: "rename",
        from: temporary.clone(),
        to: path.to_owned(),
        source,
    })?;
    sync_dir(dir)
}

/// Makes a directory's entries durable.
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(Error::path("sync directory", dir))
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
    fn private_directories_are_private_even_if_they_were_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        private_dir(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
