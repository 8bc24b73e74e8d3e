//! The agent's data directory.

use caravan_sys::tree::{self, Seals};
use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Tasks run as other users and traverse this directory to their own ones. Other users need no permission to list
/// it.
const MODE: u32 = 0o711;

/// Creates a private directory of an agent. With `fresh`, the directory must not exist: it lies in a world-writable
/// directory, so an existing one may come from another user.
///
/// # Errors
/// Fails if the directory cannot be created or written, or exists with `fresh`.
pub(crate) fn make(dir: &Path, fresh: bool) -> Result<()> {
    let durable = |dir: &Path, mode| {
        let made = caravan_sys::files::durable_dir(dir, mode);
        made.map_err(|error| Error::other(caravan_sys::describe(&error)))
    };
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        durable(parent, 0o755)?;
    }
    match DirBuilder::new().mode(MODE).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !fresh && dir.is_dir() => {}
        made => made?,
    }
    durable(dir, MODE)?;
    let probe = dir.join(".writable");
    fs::write(&probe, b"")?;
    fs::remove_file(&probe)
}

/// Removes a directory and its content, unless something is mounted below it: a volume that could not be unmounted
/// must never be emptied.
///
/// # Errors
/// Fails if something is mounted there, or the directory cannot be removed.
pub(crate) fn remove(dir: &Path) -> std::result::Result<(), caravan_sys::Error> {
    tree::remove(dir, Seals::Lift).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_sys::mount::{Unmount, mount_tmpfs, unmount};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_fresh_directory_is_never_somebody_elses() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("deep/data");
        make(&dir, true).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o711);
        assert_eq!(make(&dir, true).unwrap_err().kind(), ErrorKind::AlreadyExists);
        make(&dir, false).unwrap();
        fs::write(scratch.path().join("file"), "").unwrap();
        assert!(make(&scratch.path().join("file"), false).is_err());
    }

    #[test]
    fn what_is_mounted_is_not_emptied() {
        let scratch = tempfile::tempdir().unwrap();
        let (dir, volume) = (scratch.path().join("data"), scratch.path().join("data/alloc/volume"));
        fs::create_dir_all(&volume).unwrap();
        mount_tmpfs(&volume, 1 << 20, 0o755).unwrap();
        fs::write(volume.join("precious"), "").unwrap();
        let error = remove(&dir).unwrap_err();
        let kept = volume.join("precious").exists();
        unmount(&volume, Unmount::Now).unwrap();
        assert!(error.to_string().contains("alloc/volume: it is a mount") && kept, "{error}");
        remove(&dir).unwrap();
        assert!(!dir.exists());
    }
}
