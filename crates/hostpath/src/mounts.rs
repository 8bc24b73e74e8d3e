//! Making and ending mounts, and telling whose they are.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    process::Command,
};

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::{
    error::Error,
    loops, mountinfo,
    record::{Backing, Record},
    request::FsKind,
    store::Store,
    tool::{run, run_until},
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

/// A directory is known by device and inode. An image or device is known by those of the file behind the loop
/// device: its path may read differently here than where it was mounted.
fn is_of(store: &Store, record: &Record, mount: &mountinfo::Mount) -> Result<bool, Error> {
    let data = store.data_path(record.id.as_str(), record.backing);
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
            Ok(loops::of(&data)?.iter().any(|found| found.path == Path::new(&mount.source)))
        }
        Backing::Image { .. } => Ok(false),
        Backing::Block => {
            let there = fs::metadata(&mount.path).map_err(Error::io("look at", &mount.path))?;
            if !there.file_type().is_block_device() {
                return Ok(false);
            }
            let number = (rustix::fs::major(there.rdev()), rustix::fs::minor(there.rdev()));
            Ok(loops::of(&data)?.iter().any(|found| found.number == number))
        }
    }
}

/// Where the file system of an image is mounted such that it can be written to, whoever sees it there.
pub(crate) fn writable_mount(store: &Store, record: &Record) -> Result<Option<mountinfo::Mount>, Error> {
    for mount in mountinfo::all()?.into_iter().filter(|mount| mount.source.starts_with("/dev/loop")) {
        let writable = !mount.flags.contains(MountFlags::RDONLY) && !mount.readonly_file_system;
        if writable && is_of(store, record, &mount)? {
            return Ok(Some(mount));
        }
    }
    Ok(None)
}

/// Holds the file system at a mount still (fsfreeze(8)): what is written waits, what was written is on disk.
pub(crate) fn freeze(path: &Path) -> Result<(), Error> {
    run(Command::new("fsfreeze").arg("--freeze").arg(path), "fsfreeze", "util-linux", &[]).map(|_| ())
}

/// Lets a file system go that is held still.
pub(crate) fn thaw(path: &Path) -> Result<(), Error> {
    run(Command::new("fsfreeze").arg("--unfreeze").arg(path), "fsfreeze", "util-linux", &[]).map(|_| ())
}

/// Grows the file system that is mounted at a path to the size of its device.
pub(crate) fn grow(fs: FsKind, mount: &mountinfo::Mount) -> Result<(), Error> {
    match fs {
        // resize2fs(8) takes the device, and finds by itself that it is mounted.
        FsKind::Ext4 => run(Command::new("resize2fs").arg(&mount.source), "resize2fs", "e2fsprogs", &[]),
        FsKind::Xfs => run(Command::new("xfs_growfs").arg(&mount.path), "xfs_growfs", "xfsprogs", &[]),
    }
    .map(|_| ())
}

/// Grows an ext4 file system that is mounted nowhere to the size of its image. resize2fs(8) wants it checked
/// first; e2fsck(8) ends with 1 when it put something right.
pub(crate) fn grow_unmounted(image: &Path) -> Result<(), Error> {
    run_until(Command::new("e2fsck").args(["-f", "-p"]).arg(image), "e2fsck", "e2fsprogs", &[], 1)?;
    run(Command::new("resize2fs").arg(image), "resize2fs", "e2fsprogs", &[]).map(|_| ())
}

/// Gives the top directory at a path to a group, with all that is made in it from now on.
pub(crate) fn give_to_group(path: &Path, group: u32) -> Result<(), Error> {
    let metadata = fs::metadata(path).map_err(Error::io("look at", path))?;
    let mode = metadata.mode() & 0o7777 | 0o2070;
    if metadata.gid() == group && metadata.mode() & 0o7777 == mode {
        return Ok(());
    }
    std::os::unix::fs::chown(path, None, Some(group)).map_err(Error::io("set the group of", path))?;
    // After the group: chown(2) may take the bit off.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(Error::io("set the permissions of", path))
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
    if fs == FsKind::Xfs {
        // A copy has the id of its original, and both may be mounted.
        options.push("nouuid");
    }
    options.extend(flags.iter().map(String::as_str).filter(|flag| !flag.is_empty()));
    let mut mount = Command::new("mount");
    mount.args(["-t", fs.name(), "-o", &options.join(",")]).arg(image).arg(target);
    run(&mut mount, "mount", "util-linux", flags).map(|_| ())
}

/// Makes a sparse image, with a file system if one is named; it is on disk when this returns.
pub(crate) fn make_image(image: &Path, fs: Option<FsKind>, bytes: u64) -> Result<(), Error> {
    let file = fs::File::create_new(image).map_err(Error::io("create", image))?;
    file.set_len(bytes).map_err(Error::io("set the size of", image))?;
    let Some(fs) = fs else {
        return file.sync_all().map_err(Error::io("write", image));
    };
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

/// Makes what a volume is going to be mounted on, a file for a device and a directory for all others; answers
/// whether it was made.
pub(crate) fn make_target(path: &Path, backing: Backing) -> Result<bool, Error> {
    if backing == Backing::Block {
        return make_file(path);
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(Error::io("create the directory", path)(error)),
    }
}

fn make_file(path: &Path) -> Result<bool, Error> {
    // A caller may have made a directory; an empty one is as good as none.
    if path.is_dir() {
        fs::remove_dir(path).map_err(Error::io("replace the directory", path))?;
    }
    match fs::File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => Ok(false),
        Err(error) => Err(Error::io("create the file", path)(error)),
    }
}

/// Removes what is left of a target after its unmount. A directory or file with something in it stays, and is
/// an error: what is in it is nobody's to delete.
pub(crate) fn remove_target(path: &Path) -> Result<(), Error> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("look at", path)(error)),
    };
    if metadata.is_file() && metadata.len() != 0 {
        return Err(Error::Inconsistent(format!(
            "{} is not mounted and not empty: it is kept",
            path.display()
        )));
    }
    let removed = if metadata.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    removed.map_err(Error::io("remove", path))
}
