//! Mounting and unmounting volumes, and finding out which volume a mount belongs to.

use crate::{
    error::Error,
    loops, mountinfo,
    record::{Backing, Record},
    request::FsKind,
    store::Store,
    tool::{run, run_until},
};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    process::Command,
};

/// The most mounts at one path that this plugin could have made; it does not unmount more.
const MAX_LAYERS: usize = 16;

/// Returns whether the volume is mounted at `path`.
pub(crate) fn is_mounted(store: &Store, record: &Record, path: &Path) -> Result<bool, Error> {
    match mountinfo::at(path)? {
        Some(mount) => is_of(store, record, &mount),
        None => Ok(false),
    }
}

/// The content of a path, for one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// The path is not a mount point.
    Nothing,
    /// The volume is mounted there.
    Volume,
}

/// Checks whether the volume is mounted at `path`; a mount of anything else is an error.
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

/// Returns whether a mount is of this volume. A directory is identified by device and inode. An image or device is
/// identified by those of the loop device's file, whose path may differ from that at the mount.
fn is_of(store: &Store, record: &Record, mount: &mountinfo::Mount) -> Result<bool, Error> {
    let data = store.data_path(record.id.as_str(), record.backing);
    let ours = match fs::metadata(&data) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("look at", data)(error)),
    };
    match record.backing {
        Backing::Directory | Backing::Quota => {
            let there = fs::metadata(&mount.path).map_err(Error::io("look at", &mount.path))?;
            Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        }
        Backing::Image { .. } if mount.source.starts_with("/dev/loop") => {
            Ok(loops::find(&data)?.iter().any(|found| found.path == Path::new(&mount.source)))
        }
        Backing::Image { .. } => Ok(false),
        Backing::Thin { fs: Some(_) } => {
            let there = fs::metadata(&mount.path).map_err(Error::io("look at", &mount.path))?;
            Ok(there.dev() == ours.rdev())
        }
        Backing::Block | Backing::Thin { fs: None } => {
            let there = fs::metadata(&mount.path).map_err(Error::io("look at", &mount.path))?;
            if !there.file_type().is_block_device() {
                return Ok(false);
            }
            let number = (rustix::fs::major(there.rdev()), rustix::fs::minor(there.rdev()));
            let is_itself = ours.file_type().is_block_device() && there.rdev() == ours.rdev();
            Ok(is_itself || loops::find(&data)?.iter().any(|found| found.number == number))
        }
    }
}

/// Returns a writable mount of a volume's own file system, at any path.
pub(crate) fn writable_mount(store: &Store, record: &Record) -> Result<Option<mountinfo::Mount>, Error> {
    find(store, record, |mount| !mount.flags.contains(MountFlags::RDONLY) && !mount.readonly_file_system)
}

/// Returns a mount of a volume's own file system, at any path, that `fits` accepts.
pub(crate) fn find(
    store: &Store,
    record: &Record,
    fits: impl Fn(&mountinfo::Mount) -> bool,
) -> Result<Option<mountinfo::Mount>, Error> {
    // Skip the mounts of other file systems: the server of a network file system may not answer.
    let source = if record.backing.is_file() { "/dev/loop" } else { "/dev/" };
    for mount in mountinfo::all()?.into_iter().filter(|mount| mount.source.starts_with(source)) {
        if fits(&mount) && is_of(store, record, &mount)? {
            return Ok(Some(mount));
        }
    }
    Ok(None)
}

/// Freezes the file system at a mount (fsfreeze(8)): earlier writes are on disk, later writes wait.
pub(crate) fn freeze(path: &Path) -> Result<(), Error> {
    run(Command::new("fsfreeze").arg("--freeze").arg(path), "fsfreeze", "util-linux", &[]).map(|_| ())
}

/// Thaws a frozen file system.
pub(crate) fn thaw(path: &Path) -> Result<(), Error> {
    run(Command::new("fsfreeze").arg("--unfreeze").arg(path), "fsfreeze", "util-linux", &[]).map(|_| ())
}

/// Expands the mounted file system at a path to the size of its device.
pub(crate) fn grow(fs: FsKind, mount: &mountinfo::Mount) -> Result<(), Error> {
    match fs {
        // resize2fs(8) takes the device and detects that it is mounted.
        FsKind::Ext4 => run(Command::new("resize2fs").arg(&mount.source), "resize2fs", "e2fsprogs", &[]),
        FsKind::Xfs => run(Command::new("xfs_growfs").arg(&mount.path), "xfs_growfs", "xfsprogs", &[]),
    }
    .map(|_| ())
}

/// Expands an unmounted ext4 file system to the size of its image. resize2fs(8) requires a check first; e2fsck(8)
/// exits with 1 if it repaired something.
pub(crate) fn grow_unmounted(image: &Path) -> Result<(), Error> {
    run_until(Command::new("e2fsck").args(["-f", "-p"]).arg(image), "e2fsck", "e2fsprogs", &[], 1)?;
    run(Command::new("resize2fs").arg(image), "resize2fs", "e2fsprogs", &[]).map(|_| ())
}

/// Sets the group of the top directory at a path, with setgid, so that new files belong to the group as well.
pub(crate) fn give_to_group(path: &Path, group: u32) -> Result<(), Error> {
    let metadata = fs::metadata(path).map_err(Error::io("look at", path))?;
    let mode = metadata.mode() & 0o7777 | 0o2070;
    if metadata.gid() == group && metadata.mode() & 0o7777 == mode {
        return Ok(());
    }
    std::os::unix::fs::chown(path, None, Some(group)).map_err(Error::io("set the group of", path))?;
    // Set the mode after the group, because chown(2) may clear the bit.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(Error::io("set the permissions of", path))
}

/// Bind-mounts `source` to `target` and adds per-mount flags.
pub(crate) fn bind(source: &Path, target: &Path, flags: MountFlags) -> Result<(), Error> {
    mount_bind(source, target).map_err(Error::io("bind-mount to", target))?;
    if let Err(error) = add_flags(target, flags) {
        // The mount lacks the requested flags, so no task may use it.
        let _ = unmount(target, UnmountFlags::NOFOLLOW);
        return Err(error);
    }
    Ok(())
}

/// Adds per-mount flags to the mount at `target` and keeps its other flags.
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

/// Mounts the file system in an image or device. The kernel detaches the loop device of an image with the last unmount.
pub(crate) fn mount_data(
    data: &Path,
    is_file: bool,
    fs: FsKind,
    target: &Path,
    flags: &[String],
) -> Result<(), Error> {
    let mut options = if is_file { vec!["loop"] } else { Vec::new() };
    if fs == FsKind::Xfs {
        // A copy has the same UUID as its original, and both may be mounted.
        options.push("nouuid");
    }
    options.extend(flags.iter().map(String::as_str).filter(|flag| !flag.is_empty()));
    let mut mount = Command::new("mount");
    mount.args(["-t", fs.name()]);
    if !options.is_empty() {
        mount.args(["-o", &options.join(",")]);
    }
    mount.arg(data).arg(target);
    run(&mut mount, "mount", "util-linux", flags).map(|_| ())
}

/// Creates a sparse image, with a file system if one is named; it is on disk when this returns.
pub(crate) fn make_image(image: &Path, fs: Option<FsKind>, bytes: u64) -> Result<(), Error> {
    let file = fs::File::create_new(image).map_err(Error::io("create", image))?;
    file.set_len(bytes).map_err(Error::io("set the size of", image))?;
    if let Some(fs) = fs {
        make_file_system(image, fs)?;
    }
    file.sync_all().map_err(Error::io("write", image))
}

/// Creates a file system in an empty image or device.
pub(crate) fn make_file_system(data: &Path, fs: FsKind) -> Result<(), Error> {
    let (mut mkfs, program, package) = match fs {
        // Reserve no blocks for root: the whole requested size is for the task.
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
    run(mkfs.arg(data), program, package, &[]).map(drop)
}

/// Unmounts all mounts of the volume at `path`.
pub(crate) fn unmount_volume(store: &Store, record: &Record, path: &Path) -> Result<(), Error> {
    for _ in 0..MAX_LAYERS {
        if occupant(store, record, path)? == Occupant::Nothing {
            return Ok(());
        }
        unmount(path, UnmountFlags::NOFOLLOW).map_err(Error::io("unmount", path))?;
    }
    Err(Error::Inconsistent(format!(
        "{} has more than {MAX_LAYERS} mounts on top of each other",
        path.display()
    )))
}

/// Unmounts any mount at `path`: for a volume without a record.
pub(crate) fn unmount_any(path: &Path) -> Result<bool, Error> {
    let mut found = false;
    for _ in 0..MAX_LAYERS {
        if mountinfo::at(path)?.is_none() {
            break;
        }
        found = true;
        unmount(path, UnmountFlags::NOFOLLOW).map_err(Error::io("unmount", path))?;
    }
    Ok(found)
}

/// Creates the mount point for a volume: a file for a device, otherwise a directory. Returns whether it was created.
pub(crate) fn make_target(path: &Path, backing: Backing) -> Result<bool, Error> {
    if backing.is_device() {
        return make_file(path);
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(Error::io("create the directory", path)(error)),
    }
}

fn make_file(path: &Path) -> Result<bool, Error> {
    // A caller may have created a directory; an empty one can be replaced.
    if path.is_dir() {
        fs::remove_dir(path).map_err(Error::io("replace the directory", path))?;
    }
    match fs::File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => Ok(false),
        Err(error) => Err(Error::io("create the file", path)(error)),
    }
}

/// Removes a mount point after its unmount. A directory or file with content remains and is an error, because its
/// content does not belong to this plugin.
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
