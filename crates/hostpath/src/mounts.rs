//! Making and ending mounts, and telling whose they are.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::Path,
    process::{Command, Output},
};

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::{
    error::Error,
    mountinfo,
    record::{Backing, Record},
    request::FsKind,
    store::Store,
};

/// More mounts than this on one path are not ours to take off.
const MOST_LAYERS: usize = 16;

/// Whether the volume is mounted at `path`.
pub(crate) fn is_mounted(store: &Store, record: &Record, path: &Path) -> Result<bool, Error> {
    match mountinfo::at(path)? {
        Some(mount) => is_of(store, record, &mount),
        None => Ok(false),
    }
}

/// What is at a path, as far as one volume is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// It is not a mount point.
    Nothing,
    /// The volume.
    Volume,
}

/// What is mounted at `path`; a mount of something else is an error.
pub(crate) fn occupant(store: &Store, record: &Record, path: &Path) -> Result<Occupant, Error> {
    match mountinfo::at(path)? {
        None => Ok(Occupant::Nothing),
        Some(mount) if is_of(store, record, &mount)? => Ok(Occupant::Volume),
        Some(_) => Err(Error::Inconsistent(format!(
            "{} is a mount of something else than the volume {}",
            path.display(),
            record.id
        ))),
    }
}

/// A directory is known by device and inode. An image is known by those of the file behind the loop
/// device: its path may read differently here than where it was mounted.
fn is_of(store: &Store, record: &Record, mount: &mountinfo::Mount) -> Result<bool, Error> {
    let data = store.data_path(&record.id, record.backing);
    let ours = match fs::metadata(&data) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("look at", data)(error)),
    };
    match record.backing {
        Backing::Directory => {
            let there = fs::metadata(&mount.path).map_err(Error::io("look at", &mount.path))?;
            Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        }
        Backing::Image { .. } if mount.source.starts_with("/dev/loop") => {
            let mut losetup = Command::new("losetup");
            losetup.args(["--list", "--noheadings", "--raw", "--output", "BACK-INO,BACK-MAJ:MIN"]);
            let output = run(losetup.arg(&mount.source), "losetup", "util-linux", &[])?;
            let backed_by = (ours.ino(), rustix::fs::major(ours.dev()), rustix::fs::minor(ours.dev()));
            Ok(backing_file(&String::from_utf8_lossy(&output.stdout)) == Some(backed_by))
        }
        Backing::Image { .. } => Ok(false),
    }
}

/// Inode, major and minor number out of `losetup`'s raw columns. They are padded, and in raw output the
/// padding is written as `\\x20`.
fn backing_file(columns: &str) -> Option<(u64, u32, u32)> {
    let columns = columns.replace("\\x20", " ");
    let (inode, device) = columns.trim().split_once(' ')?;
    let (major, minor) = device.trim().split_once(':')?;
    Some((inode.parse().ok()?, major.parse().ok()?, minor.parse().ok()?))
}

/// Binds `source` to `target` and adds per-mount flags.
pub(crate) fn bind(source: &Path, target: &Path, flags: MountFlags) -> Result<(), Error> {
    mount_bind(source, target).map_err(Error::io("bind-mount to", target))?;
    if let Err(error) = add_flags(target, flags) {
        // The mount is without the flags that were asked for: nobody may use it.
        let _ = unmount(target, UnmountFlags::NOFOLLOW);
        return Err(error);
    }
    Ok(())
}

/// Adds per-mount flags to the mount at `target`, keeping those it has.
pub(crate) fn add_flags(target: &Path, flags: MountFlags) -> Result<(), Error> {
    if flags.is_empty() {
        return Ok(());
    }
    let has = mountinfo::at(target)?.map_or(MountFlags::empty(), |mount| mount.flags);
    if has.contains(flags) {
        return Ok(());
    }
    mount_remount(target, MountFlags::BIND | has | flags, c"")
        .map_err(Error::io("set the mount flags of", target))
}

/// Mounts an image. The loop device frees itself with the last unmount.
pub(crate) fn mount_image(image: &Path, fs: FsKind, target: &Path, flags: &[String]) -> Result<(), Error> {
    let mut options = vec!["loop"];
    options.extend(flags.iter().map(String::as_str).filter(|flag| !flag.is_empty()));
    let mut mount = Command::new("mount");
    mount.args(["-t", fs.name(), "-o", &options.join(",")]).arg(image).arg(target);
    run(&mut mount, "mount", "util-linux", flags).map(|_| ())
}

/// Makes a sparse image with a file system; it is on disk when this returns.
pub(crate) fn make_image(image: &Path, fs: FsKind, bytes: u64) -> Result<(), Error> {
    let file = fs::File::create_new(image).map_err(Error::io("create", image))?;
    file.set_len(bytes).map_err(Error::io("set the size of", image))?;
    let (mut mkfs, program, package) = match fs {
        // No blocks kept back for root: the size asked for is for the task.
        FsKind::Ext4 => {
            let mut mkfs = Command::new("mkfs.ext4");
            mkfs.args(["-q", "-F", "-m", "0"]);
            (mkfs, "mkfs.ext4", "e2fsprogs")
        }
        FsKind::Xfs => {
            let mut mkfs = Command::new("mkfs.xfs");
            mkfs.args(["-q", "-f"]);
            (mkfs, "mkfs.xfs", "xfsprogs")
        }
    };
    run(mkfs.arg(image), program, package, &[])?;
    file.sync_all().map_err(Error::io("write", image))
}

/// Ends all mounts of the volume at `path`.
pub(crate) fn unmount_volume(store: &Store, record: &Record, path: &Path) -> Result<(), Error> {
    for _ in 0..MOST_LAYERS {
        if occupant(store, record, path)? == Occupant::Nothing {
            return Ok(());
        }
        unmount(path, UnmountFlags::NOFOLLOW).map_err(Error::io("unmount", path))?;
    }
    Err(Error::Inconsistent(format!(
        "{} has more than {MOST_LAYERS} mounts on top of each other",
        path.display()
    )))
}

/// Ends the mount at `path`, whatever it is of: for a volume without a record.
pub(crate) fn unmount_any(path: &Path) -> Result<bool, Error> {
    let mut found = false;
    for _ in 0..MOST_LAYERS {
        if mountinfo::at(path)?.is_none() {
            break;
        }
        found = true;
        unmount(path, UnmountFlags::NOFOLLOW).map_err(Error::io("unmount", path))?;
    }
    Ok(found)
}

/// Makes the directory that a volume is going to be mounted on; answers whether it was made.
pub(crate) fn make_target(path: &Path) -> Result<bool, Error> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(Error::io("create the directory", path)(error)),
    }
}

/// Removes what is left of a target after its unmount. A directory with something in it stays, and is
/// an error: what is in it is nobody's to delete.
pub(crate) fn remove_target(path: &Path) -> Result<(), Error> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("look at", path)(error)),
    };
    let removed = if metadata.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    removed.map_err(Error::io("remove", path))
}

fn run(
    command: &mut Command,
    program: &'static str,
    package: &str,
    hidden: &[String],
) -> Result<Output, Error> {
    let output = command.env("LC_ALL", "C").output().map_err(|error| {
        let problem = if error.kind() == io::ErrorKind::NotFound {
            format!("it is not installed here (package {package})")
        } else {
            error.to_string()
        };
        Error::Tool { program, problem }
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = words.trim().lines().map(str::trim).collect::<Vec<_>>().join(" ");
    // Mount flags may hold a password.
    let words =
        hidden.iter().filter(|flag| flag.contains('=')).fold(words, |words, flag| words.replace(flag, "***"));
    Err(Error::Tool { program, problem: if words.is_empty() { output.status.to_string() } else { words } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_and_plain_columns_are_read() {
        assert_eq!(backing_file("10002753 \\x20\\x20254:0\\x20\n"), Some((10_002_753, 254, 0)));
        assert_eq!(backing_file("17 8:1\n"), Some((17, 8, 1)));
        assert_eq!(backing_file(""), None);
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let mut command = Command::new("/nowhere/mkfs.none");
        let error = run(&mut command, "mkfs.none", "nonefs", &[]).expect_err("it is missing");
        assert_eq!(error.to_string(), "mkfs.none failed: it is not installed here (package nonefs)");
    }

    #[test]
    fn words_of_a_program_lose_the_flags() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'bad option password=hunter2' >&2; exit 32"]);
        let error =
            run(&mut command, "mount", "util-linux", &["password=hunter2".to_owned()]).expect_err("it fails");
        assert_eq!(error.to_string(), "mount failed: bad option ***");
    }
}
