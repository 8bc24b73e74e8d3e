//! Mounts of the fault plugin.

use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::path::Path;
use std::process::Command;
use tonic::Status;

fn refused(what: &str, path: &Path, error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("cannot {what} {}: {error}", path.display()))
}

/// Returns all mount points of this mount namespace (proc_pid_mountinfo(5)).
pub(crate) fn mount_points() -> Result<Vec<String>, Status> {
    let table = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| Status::internal(format!("cannot read the mount table: {e}")))?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.map(|p| p.replace("\\040", " ").replace("\\134", "\\")).collect())
}

/// Returns whether a path is a mount whose daemon has ended.
pub(crate) fn is_dead(path: &str) -> bool {
    rustix::fs::statvfs(path).is_err_and(|errno| errno == rustix::io::Errno::NOTCONN)
}

/// Returns whether a path is a mount point.
pub(crate) fn is_mounted(path: &str) -> Result<bool, Status> {
    Ok(mount_points()?.iter().any(|point| point == path))
}

/// Bind-mounts a directory.
pub(crate) fn bind(from: &Path, to: &Path, read_only: bool) -> Result<(), Status> {
    rustix::mount::mount_bind(from, to).map_err(|e| refused("mount at", to, &e))?;
    if read_only {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        let made = rustix::mount::mount_remount(to, flags, c"");
        made.map_err(|e| refused("make read-only", to, &e))?;
    }
    Ok(())
}

/// Mounts an image by a loop device that is removed with the mount (mount(8), `loop`).
pub(crate) fn mount_image(image: &Path, to: &Path) -> Result<(), Status> {
    let output = Command::new("mount").args(["-o", "loop"]).arg(image).arg(to).output();
    let output = output.map_err(|e| refused("run mount for", to, &e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused("mount at", to, &String::from_utf8_lossy(&output.stderr).trim()))
}

/// Creates a file with an ext4 file system.
pub(crate) fn make_image(image: &Path, bytes: i64) -> Result<(), Status> {
    let file = fs::File::create(image).map_err(|e| refused("create", image, &e))?;
    file.set_len(u64::try_from(bytes).unwrap_or_default()).map_err(|e| refused("size", image, &e))?;
    let output = Command::new("mkfs.ext4").arg("-q").arg(image).output();
    let output = output.map_err(|e| refused("run mkfs.ext4 for", image, &e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused("format", image, &String::from_utf8_lossy(&output.stderr).trim()))
}

/// Removes all mounts at a path. Returns whether there were any.
pub(crate) fn unmount(path: &str) -> Result<bool, Status> {
    let mut any = false;
    while is_mounted(path)? {
        rustix::mount::unmount(path, UnmountFlags::NOFOLLOW)
            .map_err(|e| refused("unmount", Path::new(path), &e))?;
        any = true;
    }
    Ok(any)
}
