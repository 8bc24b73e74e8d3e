//! The usage of the host's file systems.

use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// A mounted file system, in the shape of `DiskStats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Disk {
    /// The block device; empty if the query was about a directory.
    pub(crate) device: String,
    /// The directory of the mount.
    pub(crate) mountpoint: String,
    /// The total size in bytes.
    pub(crate) size: u64,
    /// The bytes in use.
    pub(crate) used: u64,
    /// The bytes that unprivileged users may still use.
    pub(crate) available: u64,
    /// The percentage in use of the bytes that unprivileged users may use.
    pub(crate) used_percent: f64,
    /// The percentage of inodes in use.
    pub(crate) inodes_used_percent: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a percentage needs no more than the digits of a float")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Returns the file system that holds a directory.
pub(crate) fn read(dir: &Path) -> Option<Disk> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    let used = bytes(stat.f_blocks.saturating_sub(stat.f_bfree));
    let available = bytes(stat.f_bavail);
    Some(Disk {
        size: bytes(stat.f_blocks),
        used,
        available,
        used_percent: share(used, used.saturating_add(available)),
        inodes_used_percent: share(stat.f_files.saturating_sub(stat.f_ffree), stat.f_files),
        ..Disk::default()
    })
}

/// Returns every file system on a block device, at its first mount.
pub(crate) fn all() -> Vec<Disk> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounted(&mounts)
        .into_iter()
        .filter_map(|(device, mountpoint)| {
            Some(Disk { device, mountpoint: mountpoint.clone(), ..read(Path::new(&mountpoint))? })
        })
        .collect()
}

/// Returns devices and the first mount of each, from the lines of `/proc/self/mounts`.
fn mounted(mounts: &str) -> Vec<(String, String)> {
    let mut seen = BTreeSet::new();
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let device = words
                .next()
                .filter(|device| device.starts_with("/dev/") && !device.starts_with("/dev/loop"))?;
            let place = words.next()?;
            seen.insert(device.to_owned()).then(|| (device.to_owned(), place.replace("\\040", " ")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_is_counted_once() {
        let text = "/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/vda /run/netns ext4 rw 0 0\n/dev/vdb /a\\040b xfs rw 0 0\n";
        let want = [("/dev/vda", "/"), ("/dev/vdb", "/a b")].map(|(d, p)| (d.to_owned(), p.to_owned()));
        assert_eq!(mounted(text), want);
        assert!(read(Path::new("/")).unwrap().size > 0);
    }
}
