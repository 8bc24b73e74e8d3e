//! Mounting, propagation, and the identity of mounts.

use crate::dir::{Dir, Mounts};
use crate::mountinfo::{Device, MountTable};
use crate::process::{Namespaces, PidFd};
use crate::{Error, Result};
use nix::libc;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_bind,
    mount_bind_recursive, mount_change, move_mount, open_tree, unmount as umount2,
};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// `STATX_MNT_ID_UNIQUE` of statx(2), Linux 6.8: an id that is never used again until the next boot.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// `STATX_MNT_ID`, Linux 5.8: the id of mountinfo, reused after an unmount.
const STATX_MNT_ID: u32 = 0x1000;
/// `STATX_ATTR_MOUNT_ROOT`, Linux 5.8.
const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;

/// The identity of a mount, which distinguishes it from a later mount at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MountIdentity {
    /// Device of the file system.
    pub device: Device,
    /// The mount's id.
    pub mount_id: u64,
    /// Whether `mount_id` is never reused within this boot (Linux 6.8); otherwise it is the id of mountinfo.
    pub unique: bool,
}

/// Returns the identity of the mount that contains a path. Follows no symbolic link, and requests no fresh attributes
/// from a remote file system, so that a dead server does not block the caller.
pub fn mount_identity(path: &Path) -> Result<MountIdentity> {
    let stat = stat_mount(path)?;
    Ok(MountIdentity {
        device: Device { major: stat.stx_dev_major, minor: stat.stx_dev_minor },
        mount_id: stat.stx_mnt_id,
        unique: stat.stx_mask & STATX_MNT_ID_UNIQUE != 0,
    })
}

/// Returns whether a path is the root of a mount (a bind mount onto itself included). Follows no symbolic link.
pub fn is_mount_point(path: &Path) -> Result<bool> {
    let stat = stat_mount(path)?;
    Ok(stat.stx_attributes.bits() & STATX_ATTR_MOUNT_ROOT != 0)
}

/// Returns the device number of a device file; `None` for any other file. Follows no symbolic link.
pub fn device_number(path: &Path) -> Result<Option<(DeviceKind, Device)>> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::symlink_metadata(path).map_err(Error::path("look at", path))?;
    let kind = match meta.file_type() {
        kind if kind.is_block_device() => DeviceKind::Block,
        kind if kind.is_char_device() => DeviceKind::Character,
        _ => return Ok(None),
    };
    let number = meta.rdev();
    let device = Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
    Ok(Some((kind, device)))
}

/// The kind of a device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A block device.
    Block,
    /// A character device.
    Character,
}

/// Checks whether the file system mounted at a path answers (statfs(2)). **May block** while its server or daemon
/// hangs, so call it on a thread that may wait.
pub fn ask_file_system(path: &Path) -> Result<()> {
    rustix::fs::statfs(path).map(drop).map_err(Error::errno("ask the file system of", path))
}

/// Returns whether an open directory or file is the root of a mount.
pub(crate) fn is_mount_root(open: impl AsFd) -> Result<bool, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(open, "", flags, StatxFlags::BASIC_STATS)?;
    Ok(stat.stx_attributes.bits() & STATX_ATTR_MOUNT_ROOT != 0)
}

/// Returns the id, as in the mount table, of the mount that contains an open directory or file. `shown` is the path
/// for errors.
pub fn mount_id(open: impl AsFd, shown: &Path) -> Result<u32> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(open, "", flags, StatxFlags::from_bits_retain(STATX_MNT_ID))
        .map_err(Error::errno("stat the mount of", shown))?;
    u32::try_from(stat.stx_mnt_id).map_err(|_| Error::Malformed {
        what: "mount id".into(),
        detail: format!("{} is no id of the mount table", stat.stx_mnt_id),
    })
}

fn stat_mount(path: &Path) -> Result<rustix::fs::Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let ask = |mask| statx(CWD, path, flags, StatxFlags::BASIC_STATS | StatxFlags::from_bits_retain(mask));
    let stat = match ask(STATX_MNT_ID_UNIQUE) {
        // A kernel before 6.8 ignores the unknown bit and returns no mount id for it.
        Ok(stat) if stat.stx_mask & STATX_MNT_ID_UNIQUE == 0 => ask(STATX_MNT_ID),
        other => other,
    };
    stat.map_err(Error::errno("stat the mount of", path))
}

/// The propagation of mount and unmount events between a mount and its copies (mount_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// No propagation.
    Private,
    /// From the original to this mount only.
    Slave,
    /// In both directions.
    Shared,
}

impl Propagation {
    fn bits(self) -> u64 {
        match self {
            Self::Private => u64::from(MountPropagationFlags::PRIVATE.bits()),
            Self::Slave => u64::from(MountPropagationFlags::DOWNSTREAM.bits()),
            Self::Shared => u64::from(MountPropagationFlags::SHARED.bits()),
        }
    }
}

/// Sets the propagation of the mount at a path.
pub fn set_propagation(path: &Path, propagation: Propagation, recursive: bool) -> Result<()> {
    let mut flags = match propagation {
        Propagation::Private => MountPropagationFlags::PRIVATE,
        Propagation::Slave => MountPropagationFlags::DOWNSTREAM,
        Propagation::Shared => MountPropagationFlags::SHARED,
    };
    if recursive {
        flags |= MountPropagationFlags::REC;
    }
    mount_change(path, flags).map_err(Error::errno("set the propagation of", path))
}

/// Binds a directory or file onto another that exists.
pub fn bind(source: &Path, target: &Path, recursive: bool) -> Result<()> {
    let result = if recursive { mount_bind_recursive(source, target) } else { mount_bind(source, target) };
    result.map_err(|errno| Error::Paths {
        operation: "bind",
        from: source.to_owned(),
        to: target.to_owned(),
        source: errno.into(),
    })
}

/// Restrictions of a mount, in addition to those of its file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// No writing.
    pub read_only: bool,
    /// No device files.
    pub no_devices: bool,
    /// No set-user-id bits and file capabilities.
    pub no_setuid: bool,
    /// No execution of programs.
    pub no_exec: bool,
}

impl Restrictions {
    /// Only `read_only` is set.
    pub const READ_ONLY: Self = Self { read_only: true, no_devices: false, no_setuid: false, no_exec: false };

    fn attributes(self) -> u64 {
        let bit = |on, bit: u64| if on { bit } else { 0 };
        bit(self.read_only, libc::MOUNT_ATTR_RDONLY)
            | bit(self.no_devices, libc::MOUNT_ATTR_NODEV)
            | bit(self.no_setuid, libc::MOUNT_ATTR_NOSUID)
            | bit(self.no_exec, libc::MOUNT_ATTR_NOEXEC)
    }

    fn flags(self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NODEV, self.no_devices);
        flags.set(MountFlags::NOSUID, self.no_setuid);
        flags.set(MountFlags::NOEXEC, self.no_exec);
        flags
    }
}

/// Adds restrictions to the mount at a path and keeps its other flags (mount_setattr(2), Linux 5.12).
pub fn restrict(path: &Path, restrictions: Restrictions, recursive: bool) -> Result<()> {
    let dir = File::options().read(true).custom_flags_path().open(path).map_err(Error::path("open", path))?;
    set_attributes(dir.as_fd(), restrictions.attributes(), 0, recursive)
        .map_err(Error::errno("restrict the mount", path))
}

/// Makes the mount at a path read-only; the file system and its other mounts do not change.
pub fn make_read_only(path: &Path) -> Result<()> {
    restrict(path, Restrictions::READ_ONLY, false)
}

/// Mounts a new file system of a type without a device (`tmpfs`, `proc`, ...). `data` contains its own options.
pub fn mount_fs(fs_type: &str, target: &Path, restrictions: Restrictions, data: &str) -> Result<()> {
    let data = std::ffi::CString::new(data).map_err(|e| Error::path("mount", target)(e.into()))?;
    rustix::mount::mount(fs_type, target, fs_type, restrictions.flags(), data.as_c_str())
        .map_err(Error::errno("mount a file system on", target))
}

/// Mounts a tmpfs of at most `size` bytes whose root has `mode`, without devices, programs and set-user-id bits.
pub fn mount_tmpfs(target: &Path, size: u64, mode: u32) -> Result<()> {
    let restrictions = Restrictions { read_only: false, no_devices: true, no_setuid: true, no_exec: true };
    mount_fs("tmpfs", target, restrictions, &format!("size={size},mode={mode:o}"))
}

/// The way to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unmount {
    /// Unmount now; fail if the mount is in use (`EBUSY`).
    Now,
    /// Remove the mount from the tree now; the kernel ends it when its last user closes it (`MNT_DETACH`).
    Lazy,
}

/// Unmounts the mount at a path; follows no symbolic link. Returns whether a mount was there.
pub fn unmount(path: &Path, how: Unmount) -> Result<bool> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if how == Unmount::Lazy {
        flags |= UnmountFlags::DETACH;
    }
    match umount2(path, flags) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOENT) => Ok(false),
        Err(errno) => Err(Error::errno("unmount", path)(errno)),
    }
}

/// Unmounts the mount whose root is open, at any path. `shown` is the path for errors. Returns whether the open
/// directory or file is the root of a mount.
pub fn unmount_open(root: impl AsFd, how: Unmount, shown: &Path) -> Result<bool> {
    let mut flags = UnmountFlags::empty();
    if how == Unmount::Lazy {
        flags |= UnmountFlags::DETACH;
    }
    // The link of a descriptor leads to exactly this mount, even if its path was renamed.
    match umount2(format!("/proc/self/fd/{}", root.as_fd().as_raw_fd()), flags) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(Error::errno("unmount", shown)(errno)),
    }
}

/// Makes a directory part of a shared mount, so that mounts below it propagate to and from the mount namespaces of
/// tasks. Binds the directory onto itself if its mount is not shared. Idempotent.
///
/// Returns whether a mount was made.
pub fn make_shared_tree(path: &Path) -> Result<bool> {
    let path = path.canonicalize().map_err(Error::path("resolve", path))?;
    let table = MountTable::read()?;
    let on = table.containing(&path).ok_or_else(|| Error::Malformed {
        what: "mount table".into(),
        detail: format!("{} is on no mount", path.display()),
    })?;
    if on.shared.is_some() {
        return Ok(false);
    }
    let bound = on.target != path;
    if bound {
        bind(&path, &path, true)?;
    }
    set_propagation(&path, Propagation::Shared, true)?;
    Ok(bound)
}

/// A copy of a mount tree that is not mounted yet (open_tree(2), Linux 5.2). Dropping it removes the copy.
///
/// A copy of a shared mount is its peer: unless its propagation is changed, mounts propagate in both directions.
#[derive(Debug)]
pub struct DetachedTree(OwnedFd);

impl AsFd for DetachedTree {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl DetachedTree {
    /// Copies the mount tree that is visible at a path; follows symbolic links.
    pub fn copy(path: &Path, recursive: bool) -> Result<Self> {
        let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        if recursive {
            flags |= OpenTreeFlags::AT_RECURSIVE;
        }
        open_tree(CWD, path, flags).map(Self).map_err(Error::errno("copy the mounts at", path))
    }

    /// Adds restrictions to the copy only.
    pub fn restrict(&self, restrictions: Restrictions, recursive: bool) -> Result<()> {
        set_attributes(self.0.as_fd(), restrictions.attributes(), 0, recursive)
            .map_err(Error::call("restrict a copied mount"))
    }

    /// Sets the propagation between the copy and its origin.
    pub fn set_propagation(&self, propagation: Propagation, recursive: bool) -> Result<()> {
        set_attributes(self.0.as_fd(), 0, propagation.bits(), recursive)
            .map_err(Error::call("set the propagation of a copied mount"))
    }

    /// Mounts the copy in the mount namespace of another process and replaces the mount at the target there. The
    /// target is a path in that process's view and must exist. A process that uses the old mount keeps it until it
    /// closes its files; every new use gets the new mount.
    ///
    /// Runs in a separate thread, since a thread that shares its root with others may not change namespaces
    /// (setns(2)).
    pub fn replace_in(self, process: &PidFd, target: &Path) -> Result<()> {
        let replace = || -> Result<()> {
            crate::process::unshare_root()?;
            crate::process::enter(process, Namespaces { mount: true, ..Namespaces::default() })?;
            // The task is running: a link that it places on the path must not lead to another mount.
            let below = target.strip_prefix("/").unwrap_or(target);
            let parent =
                Dir::open(Path::new("/"))?.enter(below.parent().unwrap_or(Path::new("")), Mounts::Follow)?;
            let name = Path::new(below.file_name().unwrap_or_default());
            // Change to the directory and use a relative name: in this thread, the paths of `/proc` belong to another
            // process.
            rustix::process::fchdir(&parent).map_err(Error::errno("change to", parent.shown()))?;
            unmount(name, Unmount::Lazy)?;
            self.attach_to(parent.handle(name, Mounts::Follow)?, target)
        };
        std::thread::scope(|scope| {
            scope.spawn(replace).join().unwrap_or_else(|_| {
                let source = std::io::Error::other("the thread that mounts panicked");
                Err(Error::Call { operation: "mount in another namespace", source })
            })
        })
    }

    /// Mounts the copy on an open directory or file of the same kind (directory or not). From then on the value
    /// refers to the mount: restrictions and propagation can still be set, and dropping it keeps the mount. `shown`
    /// is the path for errors.
    pub fn attach_to(&self, target: impl AsFd, shown: &Path) -> Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.0, "", target, "", flags).map_err(Error::errno("attach a copied mount on", shown))
    }

    /// Mounts the copy on an existing target of the same kind (directory or not).
    pub fn attach(self, target: &Path) -> Result<()> {
        move_mount(&self.0, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(Error::errno("attach a copied mount on", target))
    }
}

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

fn set_attributes(
    fd: std::os::fd::BorrowedFd<'_>,
    attr_set: u64,
    propagation: u64,
    recursive: bool,
) -> Result<(), Errno> {
    let attr = MountAttr { attr_set, attr_clr: 0, propagation, userns_fd: 0 };
    let recurse = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static empty C string, `attr` is a live struct of the kernel's layout whose size is
    // passed with it, and the descriptor is borrowed for the call; the kernel keeps none of them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recurse,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

trait PathOnly {
    /// Opens only the path (`O_PATH`), not its content: this also works for a device or a socket.
    fn custom_flags_path(&mut self) -> &mut Self;
}

impl PathOnly for std::fs::OpenOptions {
    fn custom_flags_path(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt;
        self.custom_flags(libc::O_PATH | libc::O_CLOEXEC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory whose mounts are unmounted when the test ends, also after a failure.
    struct Scratch(tempfile::TempDir);

    impl Scratch {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn dir(&self, name: &str) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let root = self.0.path().canonicalize().unwrap();
            if let Ok(table) = MountTable::read() {
                for entry in table.under(&root).rev() {
                    let _ = unmount(&entry.target, Unmount::Lazy);
                }
            }
        }
    }

    #[test]
    fn a_mount_that_replaces_another_has_another_identity() {
        let scratch = Scratch::new();
        let at = scratch.dir("m");
        assert!(!is_mount_point(&at).unwrap());
        let bare = mount_identity(&at).unwrap();
        mount_tmpfs(&at, 1 << 20, 0o700).unwrap();
        assert!(is_mount_point(&at).unwrap());
        let first = mount_identity(&at).unwrap();
        assert_ne!(bare, first);
        assert_eq!(first, mount_identity(&at).unwrap());
        assert!(unmount(&at, Unmount::Now).unwrap());
        assert!(!unmount(&at, Unmount::Now).unwrap());
        mount_tmpfs(&at, 1 << 20, 0o700).unwrap();
        assert_ne!(first, mount_identity(&at).unwrap());
    }

    #[test]
    fn a_bind_can_be_read_only_while_its_source_is_not() {
        let scratch = Scratch::new();
        let (source, target) = (scratch.dir("s"), scratch.dir("t"));
        bind(&source, &target, false).unwrap();
        assert!(is_mount_point(&target).unwrap());
        make_read_only(&target).unwrap();
        assert!(std::fs::write(target.join("f"), b"").is_err());
        std::fs::write(source.join("f"), b"x").unwrap();
        assert_eq!(std::fs::read(target.join("f")).unwrap(), b"x");
        let error = bind(Path::new("/nonexistent"), &target, false).unwrap_err();
        assert!(error.to_string().contains("cannot bind /nonexistent on"), "{error}");
    }

    #[test]
    fn copies_of_a_shared_tree_follow_their_propagation() {
        let scratch = Scratch::new();
        let tree = scratch.dir("tree");
        assert!(make_shared_tree(&tree).unwrap());
        assert!(!make_shared_tree(&tree).unwrap());
        assert!(!make_shared_tree(&scratch.dir("tree/below")).unwrap());

        let source = scratch.dir("tree/source");
        let targets = [Propagation::Private, Propagation::Slave, Propagation::Shared].map(|propagation| {
            let target = scratch.dir(&format!("{propagation:?}"));
            let copy = DetachedTree::copy(&source, true).unwrap();
            copy.set_propagation(propagation, true).unwrap();
            copy.attach(&target).unwrap();
            target
        });
        mount_tmpfs(&scratch.dir("tree/source/down"), 1 << 20, 0o755).unwrap();
        let seen: Vec<bool> = targets.iter().map(|t| is_mount_point(&t.join("down")).unwrap()).collect();
        assert_eq!(seen, [false, true, true]);

        for (target, reaches) in targets.iter().zip([false, false, true]) {
            let made = target.join("up");
            std::fs::create_dir_all(&made).unwrap();
            mount_tmpfs(&made, 1 << 20, 0o755).unwrap();
            assert_eq!(is_mount_point(&source.join("up")).unwrap(), reaches, "{}", target.display());
            unmount(&made, Unmount::Now).unwrap();
        }
    }

    #[test]
    fn restrictions_of_a_copy_leave_the_origin_alone() {
        let scratch = Scratch::new();
        let (source, target) = (scratch.dir("s"), scratch.dir("t"));
        mount_tmpfs(&source, 1 << 20, 0o755).unwrap();
        let copy = DetachedTree::copy(&source, true).unwrap();
        copy.restrict(Restrictions::READ_ONLY, true).unwrap();
        copy.attach(&target).unwrap();
        assert!(std::fs::create_dir(target.join("x")).is_err());
        std::fs::create_dir(source.join("x")).unwrap();
    }
}
