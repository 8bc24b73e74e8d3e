//! Directories that nothing can be written into: what lies beneath a mount point, so that a task that starts
//! without its mount fails instead of writing to the host's disk.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

use crate::mount::is_mount_point;
use crate::{Error, Result};

/// How a directory was made unwritable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seal {
    /// The immutable attribute (ioctl_iflags(2)): holds for root too.
    Immutable,
    /// Mode 0, where the file system knows no attributes: does not hold for a process with `CAP_DAC_OVERRIDE`.
    Mode,
}

/// Makes a directory unwritable. Idempotent. A directory that is a mount point now is refused, since the seal
/// would go to the mounted file system.
pub fn seal_directory(path: &Path) -> Result<Seal> {
    let dir = open_unmounted(path, "seal")?;
    match set_immutable(&dir, true) {
        Ok(()) => Ok(Seal::Immutable),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::PERM) => {
            dir.set_permissions(Permissions::from_mode(0o0)).map_err(Error::path("set mode of", path))?;
            Ok(Seal::Mode)
        }
        Err(errno) => Err(Error::errno("set attributes of", path)(errno)),
    }
}

/// Undoes [`seal_directory`], whichever way it was done, and sets `mode`. Idempotent; a mount point is refused.
pub fn unseal_directory(path: &Path, mode: u32) -> Result<()> {
    let dir = open_unmounted(path, "unseal")?;
    match set_immutable(&dir, false) {
        Ok(()) | Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL) => {}
        Err(errno) => return Err(Error::errno("set attributes of", path)(errno)),
    }
    dir.set_permissions(Permissions::from_mode(mode)).map_err(Error::path("set mode of", path))
}

fn open_unmounted(path: &Path, operation: &'static str) -> Result<File> {
    if is_mount_point(path)? {
        let source = std::io::Error::new(std::io::ErrorKind::ResourceBusy, "something is mounted there");
        return Err(Error::path(operation, path)(source));
    }
    File::open(path).map_err(Error::path("open", path))
}

fn set_immutable(dir: &File, on: bool) -> Result<(), Errno> {
    let flags = ioctl_getflags(dir)?;
    let mut wanted = flags;
    wanted.set(IFlags::IMMUTABLE, on);
    if wanted == flags { Ok(()) } else { ioctl_setflags(dir, wanted) }
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

    #[test]
    fn mount_points_are_refused() {
        let error = seal_directory(Path::new("/proc")).unwrap_err();
        assert!(error.to_string().contains("cannot seal /proc"), "{error}");
    }
}
