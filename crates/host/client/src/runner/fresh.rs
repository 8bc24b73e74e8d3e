//! Ownership of empty volumes. Plugins often create a volume's root directory for root only, and so does a new file
//! system. A task of another user could never use the volume. An empty volume is therefore given to the user of
//! the first task that may write to it. A volume with content keeps its owner.

use caravan_sys::Error;
use caravan_sys::dir::{Dir, Mounts, Owner};
use std::path::Path;

/// The only entry in the root of a new ext file system.
const MADE_WITH_THE_FILE_SYSTEM: &str = "lost+found";

/// Gives the root of an empty volume of root to a user who could not write to it otherwise. On failure, the task's own
/// error reports the problem.
pub(super) fn give(root: &Path, owner: Owner) {
    match try_give(root, owner) {
        Ok(true) => {
            tracing::info!(path = %root.display(), ?owner, "set the task's user as owner of an empty volume");
        }
        Ok(false) => {}
        Err(error) => {
            tracing::debug!(path = %root.display(), %error, "the owner of a volume cannot be changed");
        }
    }
}

fn try_give(root: &Path, owner: Owner) -> Result<bool, Error> {
    let dir = Dir::open_last(root, Mounts::Follow)?;
    let stat = dir.stat_self()?;
    let writable = stat.st_mode & 0o002 != 0 || (stat.st_mode & 0o020 != 0 && Some(stat.st_gid) == owner.gid);
    if stat.st_uid != 0 || writable {
        return Ok(false);
    }
    for name in dir.entries()? {
        if name? != MADE_WITH_THE_FILE_SYSTEM {
            return Ok(false);
        }
    }
    dir.set_owner(owner)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const NOBODY: Owner = Owner { uid: Some(65534), gid: Some(65534) };

    #[test]
    fn only_empty_private_roots_of_the_superuser_change_their_owner() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path();
        let mode = |mode| fs::set_permissions(root, Permissions::from_mode(mode)).unwrap();
        if fs::metadata(root).unwrap().uid() != 0 {
            assert!(!try_give(root, NOBODY).unwrap(), "it is somebody's");
            return;
        }
        mode(0o777);
        assert!(!try_give(root, NOBODY).unwrap(), "everybody may write to it");
        mode(0o755);
        fs::write(root.join("data"), "").unwrap();
        assert!(!try_give(root, NOBODY).unwrap(), "it is in use");
        fs::remove_file(root.join("data")).unwrap();
        fs::create_dir(root.join(MADE_WITH_THE_FILE_SYSTEM)).unwrap();
        assert!(try_give(root, NOBODY).unwrap());
        assert_eq!(fs::metadata(root).unwrap().uid(), 65534);
        assert!(!try_give(root, Owner::new(7, 7)).unwrap(), "it is somebody's now");
    }
}
