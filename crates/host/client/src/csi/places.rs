//! The kernel's view of the stages and targets of claims.

use super::health::diagnose;
use super::prober::answers;
use caravan_sys::mount::is_mount_point;
use caravan_sys::mountinfo::{MountEntry, MountTable, tables};
use caravan_volumes::node::Place;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns the state of a place, and the reason for a dead file system. May block as long as the file system does.
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
        // A path that cannot be read counts as mounted: it must be unmounted, not removed.
        Err(error) => dead(error.raw_os_error().unwrap_or_default()),
    }
}

/// Returns whether a path is a device file that the plugin created, which is how some plugins publish devices.
fn is_device_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// Returns the file system that is mounted at a path, if it is on a block device: such a file system must not be
/// mounted twice. Other file systems are skipped, because the kernel reuses their device numbers immediately.
pub(super) fn file_system(path: &Path) -> Option<(u32, u32, PathBuf)> {
    let table = MountTable::read().ok()?;
    let mount = table.at(path).filter(|mount| mount.device.major != 0)?;
    Some((mount.device.major, mount.device.minor, mount.root.clone()))
}

/// Returns a path at which a file system is mounted in any mount namespace of this machine, except the given paths.
/// Slow on a machine with many processes.
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

/// Returns the mount beneath a path, if its propagation is not shared: then mounts of a plugin at the path do not reach
/// this agent.
pub(super) fn private_mount(path: &Path) -> Option<PathBuf> {
    let table = MountTable::read().ok()?;
    let real = path.ancestors().find_map(|above| above.canonicalize().ok())?;
    table.containing(&real).filter(|mount| mount.shared.is_none()).map(|mount| mount.target.clone())
}
