//! Volumes that nobody has written to yet. Plugins make their root directory for the superuser and usually for nobody
//! else (a new file system has it so, too); a task of another user could never use such a volume. It is given to the
//! user of the first task that may write to it, as long as it is empty: whatever is in it stays as it is.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::Path;

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// User.
    pub(super) uid: u32,
    /// Group.
    pub(super) gid: u32,
}

/// Whom tasks with a root of their own run as, unless the job says otherwise.
pub(super) const NOBODY: Owner = Owner { uid: 65534, gid: 65534 };

/// What a new ext file system has in its root.
const MADE_WITH_THE_FILE_SYSTEM: &str = "lost+found";

/// Gives the root of an empty volume of the superuser to a user who could not write to it otherwise. When that does
/// not work, the task will say so in its own words.
pub(super) fn give(root: &Path, owner: Owner) {
    match try_give(root, owner) {
        Ok(true) => {
            tracing::info!(path = %root.display(), uid = owner.uid, gid = owner.gid, "gave a new volume to the task's user");
        }
        Ok(false) => {}
        Err(error) => {
            tracing::debug!(path = %root.display(), %error, "a new volume stays with the superuser");
        }
    }
}

fn try_give(root: &Path, owner: Owner) -> std::io::Result<bool> {
    let meta = fs::symlink_metadata(root)?;
    let writable = meta.mode() & 0o002 != 0 || (meta.mode() & 0o020 != 0 && meta.gid() == owner.gid);
    if !meta.is_dir() || meta.uid() != 0 || writable {
        return Ok(false);
    }
    for entry in fs::read_dir(root)? {
        if entry?.file_name() != MADE_WITH_THE_FILE_SYSTEM {
            return Ok(false);
        }
    }
    lchown(root, Some(owner.uid), Some(owner.gid))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_empty_roots_of_the_superuser_that_are_closed_are_given_away() {
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
        assert_eq!(fs::metadata(root).unwrap().uid(), NOBODY.uid);
        assert!(!try_give(root, Owner { uid: 7, gid: 7 }).unwrap(), "it is somebody's now");
    }
}
