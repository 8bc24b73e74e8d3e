//! What the kernel says of the places of claims.

use super::health::diagnose;
use super::prober::answers;
use caravan_sys::mount::is_mount_point;
use caravan_sys::mountinfo::{MountEntry, MountTable, tables};
use caravan_volumes::node::Place;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What is at a place, and why a dead file system is dead. May block as long as a file system does.
pub(super) fn look(path: &Path) -> (Place, Option<String>) {
    let dead = |errno: i32| match diagnose(Some(Err(errno))) {
        Some((_, why)) => (Place::Dead, Some(why)),
        None => (Place::Mounted, None),
    };
    match is_mount_point(path) {
        Ok(true) => answers(path).map_or_else(dead, |()| (Place::Mounted, None)),
        Ok(false) if is_device_file(path) => (Place::Mounted, None),
        Ok(false) => (Place::Empty, None),
        Err(error) if error.is_not_found() => (Place::Empty, None),
        // What cannot be looked at counts as mounted: it must be ended, not removed.
        Err(error) => dead(error.raw_os_error().unwrap_or_default()),
    }
}

/// Whether a path is a device file of the plugin's own, which is how some plugins publish devices.
fn is_device_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// The file system that is mounted at a path, if it lies on a block device: such a file system must not be mounted
/// twice. The kernel reuses the device numbers of other file systems at once.
pub(super) fn file_system(path: &Path) -> Option<(u32, u32, PathBuf)> {
    let table = MountTable::read().ok()?;
    let mount = table.at(path).filter(|mount| mount.device.major != 0)?;
    Some((mount.device.major, mount.device.minor, mount.root.clone()))
}

/// Where a file system is mounted in any mount namespace of this machine, apart from the places that are excepted.
/// May take long on a machine with many processes.
pub(super) fn find_file_system(
    (major, minor, root): &(u32, u32, PathBuf),
    except: &[PathBuf],
) -> Option<PathBuf> {
    let is_it = |mount: &MountEntry| {
        (mount.device.major, mount.device.minor) == (*major, *minor)
            && mount.root == *root
            && !except.contains(&mount.target)
    };
    let all = tables().ok()?;
    all.iter().flat_map(MountTable::entries).find(|mount| is_it(mount)).map(|mount| mount.target.clone())
}

/// Why mounts that a plugin makes at a path may not reach this agent: the mount that the path lies on, if it is not
/// shared.
pub(super) fn private_mount(path: &Path) -> Option<PathBuf> {
    let table = MountTable::read().ok()?;
    let real = path.ancestors().find_map(|above| above.canonicalize().ok())?;
    table.containing(&real).filter(|mount| mount.shared.is_none()).map(|mount| mount.target.clone())
}
