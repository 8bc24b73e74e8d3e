//! Loop devices: finding, creating and detaching them for volumes that are devices. A mounted image needs none of
//! this: its loop device is created and detached with the mount.
//!
//! Devices have no records. losetup(8) lists the existing devices with the inodes of their files, and the mount table
//! shows which are in use. So a crash of the plugin cannot lose a device.

use crate::{error::Error, mountinfo, tool::run};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// The number of checks whether a device has been detached, and the delay between checks.
const LOOKS: u32 = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// One loop device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    /// Path of the device file, `/dev/loop<number>`.
    pub(crate) path: PathBuf,
    /// The major and minor number of the device.
    pub(crate) number: (u32, u32),
    readonly: bool,
    /// Whether the kernel detaches the device with its last user.
    autoclear: bool,
    /// Inode and device number of the device's file.
    file: (u64, (u32, u32)),
}

/// Returns the loop devices of a file, found by inode: the file's path may differ from that at the device's creation.
pub(crate) fn find(file: &Path) -> Result<Vec<Loop>, Error> {
    let metadata = match fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("look at", file)(error)),
    };
    let device = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let mut losetup = Command::new("losetup");
    losetup.args([
        "--list",
        "--noheadings",
        "--raw",
        "--output",
        "NAME,RO,AUTOCLEAR,BACK-INO,BACK-MAJ:MIN,MAJ:MIN",
    ]);
    let output = run(&mut losetup, "losetup", "util-linux", &[])?;
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok(lines.lines().filter_map(parse).filter(|found| found.file == (metadata.ino(), device)).collect())
}

/// Parses one line of losetup's raw columns. They are padded, and raw output writes the padding as `\\x20`.
fn parse(line: &str) -> Option<Loop> {
    let line = line.replace("\\x20", " ");
    let mut columns = line.split_whitespace();
    let mut next = || columns.next();
    let (path, readonly, autoclear) = (PathBuf::from(next()?), next()? == "1", next()? == "1");
    let inode = next()?.parse().ok()?;
    let (behind, number) = (pair(next()?)?, pair(next()?)?);
    Some(Loop { path, number, readonly, autoclear, file: (inode, behind) })
}

fn pair(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the device of a file, and creates one if it has none.
pub(crate) fn attach(file: &Path, readonly: bool) -> Result<PathBuf, Error> {
    if let Some(found) = find(file)?.into_iter().find(|found| found.readonly == readonly && !found.autoclear)
    {
        return Ok(found.path);
    }
    let mut losetup = Command::new("losetup");
    losetup.args(["--find", "--show"]);
    if readonly {
        losetup.arg("--read-only");
    }
    let output = run(losetup.arg(file), "losetup", "util-linux", &[])?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Detaches the devices of a file that are not mounted. If a process has one open, the kernel detaches it when that
/// process closes it.
pub(crate) fn free(file: &Path) -> Result<(), Error> {
    let found = find(file)?;
    if found.iter().all(|found| found.autoclear) {
        return Ok(());
    }
    let mounted: BTreeSet<PathBuf> = mountinfo::all()?.into_iter().map(|mount| mount.root).collect();
    let in_use = |found: &Loop| {
        found.path.file_name().is_some_and(|name| mounted.iter().any(|root| root.file_name() == Some(name)))
    };
    for unused in found.iter().filter(|found| !found.autoclear && !in_use(found)) {
        let mut losetup = Command::new("losetup");
        run(losetup.arg("--detach").arg(&unused.path), "losetup", "util-linux", &[])?;
    }
    Ok(())
}

/// Returns whether a file has no device. A device that was detached with its last unmount exists while a process such
/// as losetup(8) has it open, so this waits for a moment.
pub(crate) fn is_free(file: &Path) -> Result<bool, Error> {
    for _ in 0..LOOKS {
        let found = find(file)?;
        if found.is_empty() {
            return Ok(true);
        }
        let mounts = mountinfo::all()?;
        let is_mounted = |found: &Loop| mounts.iter().any(|mount| Path::new(&mount.source) == found.path);
        if found.iter().any(|found| !found.autoclear || is_mounted(found)) {
            return Ok(false);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(false)
}

/// Makes the devices of a file use its new size.
pub(crate) fn resize(file: &Path) -> Result<(), Error> {
    for found in find(file)? {
        let mut losetup = Command::new("losetup");
        run(losetup.arg("--set-capacity").arg(&found.path), "losetup", "util-linux", &[])?;
    }
    Ok(())
}

/// Writes buffered data of a file's devices to the file. Returns whether it has writable devices.
pub(crate) fn flush(file: &Path) -> Result<bool, Error> {
    let mut any = false;
    for found in find(file)?.into_iter().filter(|found| !found.readonly) {
        let device = File::open(&found.path).map_err(Error::io("open", &found.path))?;
        device.sync_all().map_err(Error::io("flush", &found.path))?;
        any = true;
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_and_plain_columns_are_read() {
        let found =
            parse("/dev/loop3\\x20\\x20 0 1 10002753 \\x20\\x20254:0\\x20 \\x207:3").expect("it is a device");
        assert_eq!(found.path, Path::new("/dev/loop3"));
        assert_eq!((found.file, found.number), ((10_002_753, (254, 0)), (7, 3)));
        assert!(found.autoclear && !found.readonly);
        assert!(parse("/dev/loop0 1 0 17 8:1 7:0").expect("it is a device").readonly);
        assert_eq!(parse(""), None);
        assert_eq!(parse("/dev/loop0 0 0"), None);
    }
}
