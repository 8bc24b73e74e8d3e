//! Unwritable directories: the directory under a mount point is sealed, so that a task without its mount fails
//! instead of writing to the host's disk.

use crate::mount::{DetachedTree, is_mount_point};
use crate::{Error, Result};
use rustix::fs::{
    AtFlags, FileType, IFlags, Mode, OFlags, fchmod, fstat, ioctl_getflags, ioctl_setflags, openat, statat,
};
use rustix::io::Errno;
use std::fs::{File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The means by which a directory was made unwritable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// The immutable attribute (ioctl_iflags(2)), which also stops root.
    Immutable,
    /// Mode 0, on file systems without attributes. It does not stop a process with `CAP_DAC_OVERRIDE`.
    Mode,
}

/// Makes an open directory or file unwritable. Idempotent. `shown` is the path for errors.
pub fn seal_open(open: impl AsFd, shown: &Path) -> Result<Seal> {
    match set_immutable(&open, true) {
        Ok(()) => Ok(Seal::Immutable),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM) => {
            fchmod(&open, Mode::empty()).map_err(Error::errno("set mode of", shown))?;
            Ok(Seal::Mode)
        }
        Err(errno) => Err(Error::errno("set attributes of", shown)(errno)),
    }
}

/// Undoes [`seal_open`] for either kind of seal. Returns whether there was a seal; without one, nothing changes.
pub fn unseal_open(open: impl AsFd, shown: &Path) -> Result<bool> {
    let failed = || Error::errno("set attributes of", shown);
    let stat = fstat(&open).map_err(Error::errno("look at", shown))?;
    if stat.st_mode & 0o7777 == 0 && stat.st_uid == crate::user::effective_uid() {
        fchmod(&open, Mode::RWXU).map_err(Error::errno("set mode of", shown))?;
        return Ok(true);
    }
    let flags = match ioctl_getflags(&open) {
        Ok(flags) => flags,
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL) => return Ok(false),
        Err(errno) => return Err(failed()(errno)),
    };
    let sealed = flags.contains(IFlags::IMMUTABLE);
    if sealed {
        ioctl_setflags(&open, flags.difference(IFlags::IMMUTABLE)).map_err(failed())?;
    }
    Ok(sealed)
}

/// Makes a directory unwritable. Idempotent. Refuses a mount point, since the seal would apply to the mounted file
/// system.
pub fn seal_directory(path: &Path) -> Result<Seal> {
    seal_open(open_unmounted(path, "seal")?, path)
}

/// Undoes [`seal_directory`] for either kind of seal, and sets `mode`. Idempotent; refuses a mount point.
pub fn unseal_directory(path: &Path, mode: u32) -> Result<()> {
    let dir = open_unmounted(path, "unseal")?;
    match set_immutable(&dir, false) {
        Ok(()) | Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL) => {}
        Err(errno) => return Err(Error::errno("set attributes of", path)(errno)),
    }
    dir.set_permissions(Permissions::from_mode(mode)).map_err(Error::path("set mode of", path))
}

/// Makes the directory or file unwritable that a mount at `path` covers: if the mount disappears, no process can
/// write there. The mounted file system is not changed, and a mount need not exist. Idempotent.
///
/// Returns `None` if the path has nothing that can be written to (a missing file, a device, a link).
pub fn seal_beneath(path: &Path) -> Result<Option<Seal>> {
    let Some(covered) = open_covered(path, "seal what lies beneath")? else { return Ok(None) };
    seal_open(covered, path).map(Some)
}

/// Undoes [`seal_beneath`] for either kind of seal. Idempotent; the path need not exist.
pub fn unseal_beneath(path: &Path) -> Result<()> {
    let Some(covered) = open_covered(path, "unseal what lies beneath")? else { return Ok(()) };
    match set_immutable(&covered, false) {
        Ok(()) | Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL) => {}
        Err(errno) => return Err(Error::errno("set attributes of", path)(errno)),
    }
    let mode = covered.metadata().map_err(Error::path("look at", path))?.permissions().mode();
    if mode & 0o7777 == 0 {
        covered.set_permissions(Permissions::from_mode(0o700)).map_err(Error::path("set mode of", path))?;
    }
    Ok(())
}

/// Unseals the directories and empty files below a directory that are on the same mount, so that it can be removed. A
/// file with content was never beneath a mount. Failures are ignored here: the removal reports them.
pub fn unseal_tree(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        let is_empty_file = kind.is_file() && entry.metadata().is_ok_and(|meta| meta.len() == 0);
        if !(kind.is_dir() || is_empty_file) {
            continue;
        }
        let mounted = is_mount_point(&path).unwrap_or(true);
        let _left = unseal_beneath(&path);
        if kind.is_dir() && !mounted {
            unseal_tree(&path);
        }
    }
}

/// Opens the directory or file that a mount at `path` covers, through a copy of the parent's mount, which has no
/// mounts below it.
fn open_covered(path: &Path, operation: &'static str) -> Result<Option<File>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let tree = match DetachedTree::copy(parent, false) {
        Ok(tree) => tree,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let kind = match statat(&tree, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(Error::errno(operation, path)(errno)),
    };
    // Opening a device may have effects, and its ioctl(2) calls go to the device's driver, not to the file system.
    if !matches!(kind, FileType::Directory | FileType::RegularFile) {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = openat(&tree, name, flags, Mode::empty()).map_err(Error::errno(operation, path))?;
    Ok(Some(File::from(opened)))
}

fn open_unmounted(path: &Path, operation: &'static str) -> Result<File> {
    if is_mount_point(path)? {
        let source = std::io::Error::new(std::io::ErrorKind::ResourceBusy, "something is mounted there");
        return Err(Error::path(operation, path)(source));
    }
    File::open(path).map_err(Error::path("open", path))
}

fn set_immutable(dir: impl AsFd, on: bool) -> Result<(), Errno> {
    let flags = ioctl_getflags(&dir)?;
    let mut desired = flags;
    desired.set(IFlags::IMMUTABLE, on);
    if desired == flags { Ok(()) } else { ioctl_setflags(dir, desired) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_directory_takes_no_file_until_it_is_unsealed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("target");
        std::fs::create_dir(&path).unwrap();
        let seal = seal_directory(&path).unwrap();
        assert_eq!(seal_directory(&path).unwrap(), seal);
        match seal {
            Seal::Immutable => assert!(std::fs::write(path.join("x"), b"").is_err()),
            Seal::Mode => {
                assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0);
            }
        }
        unseal_directory(&path, 0o750).unwrap();
        unseal_directory(&path, 0o750).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
        std::fs::write(path.join("x"), b"").unwrap();
    }

    /// Without a seal, a task whose mount disappeared would fill the host's disk.
    #[test]
    fn what_lies_beneath_a_mount_is_sealed_and_the_mount_is_not() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("target");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(seal_beneath(&base.path().join("none")).unwrap(), None);
        crate::mount::mount_tmpfs(&path, 1 << 20, 0o755).unwrap();
        let seal = seal_beneath(&path).unwrap().unwrap();
        assert_eq!(seal_beneath(&path).unwrap(), Some(seal));
        std::fs::write(path.join("on-the-mount"), "x").unwrap();
        crate::mount::unmount(&path, crate::mount::Unmount::Now).unwrap();
        if seal == Seal::Immutable {
            // The seal stops root as well.
            assert!(std::fs::write(path.join("lost"), "x").is_err());
            assert!(std::fs::remove_dir(&path).is_err());
        }
        // Mounting there again works, and unsealing does not need an unmount.
        crate::mount::mount_tmpfs(&path, 1 << 20, 0o755).unwrap();
        unseal_beneath(&path).unwrap();
        unseal_beneath(&path).unwrap();
        crate::mount::unmount(&path, crate::mount::Unmount::Now).unwrap();
        std::fs::write(path.join("x"), "x").unwrap();
    }

    #[test]
    fn sealed_files_and_directories_of_a_tree_are_unsealed() {
        let base = tempfile::tempdir().unwrap();
        let (dir, file) = (base.path().join("a/b"), base.path().join("a/file"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&file, "").unwrap();
        assert!(seal_beneath(&dir).unwrap().is_some() && seal_beneath(&file).unwrap().is_some());
        unseal_tree(base.path());
        assert!(crate::tree::remove(&base.path().join("a"), crate::tree::Seals::Keep).unwrap());
    }

    #[test]
    fn mount_points_are_refused() {
        let error = seal_directory(Path::new("/proc")).unwrap_err();
        assert!(error.to_string().contains("cannot seal /proc"), "{error}");
    }
}
