//! The task's own root: a mount namespace that a small process holds.
//!
//! This process, the holder, is also the first process of the task's PID namespace. Orphans in the namespace
//! therefore have a parent, and killing the holder kills all processes. The task gets signals as programs expect,
//! because the first process of a namespace ignores signals that it does not handle (pid_namespaces(7)). The holder
//! dies with the shim.
//!
//! Nothing is copied. All sources are first taken as detached copies of the host's mounts. Then the root is changed,
//! and only then are the copies attached. So no link that a task left in its directory can lead a mount or a new
//! directory outside, or to another place inside ([`crate::targets`]).

use crate::launch::report_pipe;
use crate::spec::{DeviceSpec, IsolationSpec, MountPropagation, MountSpec};
use crate::targets::Targets;
use crate::{Error, Result};
use caravan_sys::dir::{Access, Dir, Mounts, Owner};
use caravan_sys::mount::{self, DetachedTree, Propagation, Restrictions, Unmount, mount_id};
use caravan_sys::mountinfo::MountTable;
use caravan_sys::process::{self, Namespaces, PidFd};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Device files that every program may need, bind-mounted from the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that concern the whole machine: readable, not writable.
const PROC_READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

/// Parts of `/proc` and `/sys` with information about the machine that a task need not see.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];

const NO_DEVICES: Restrictions =
    Restrictions { read_only: false, no_devices: true, no_setuid: false, no_exec: false };
const INERT: Restrictions =
    Restrictions { read_only: false, no_devices: true, no_setuid: true, no_exec: true };

/// Starts the holder, in new namespaces, with the task's root built. With private process ids, all later children of
/// the caller are in the new PID namespace. The holder starts in the control group `group`, or else calls `join`.
pub(crate) fn build(
    spec: &IsolationSpec,
    group: Option<OwnedFd>,
    join: impl FnOnce() -> Result<()>,
) -> Result<PidFd> {
    process::unshare(Namespaces { pid: spec.private_pids, ..Namespaces::default() })?;
    let (reader, writer) = report_pipe()?;
    let mut writer = File::from(writer);
    let pid = process::fork_into(group.as_ref().map(AsFd::as_fd), |is_in_group| {
        let result = process::die_with_parent()
            .map_err(Into::into)
            .and_then(|()| if is_in_group { Ok(()) } else { join() })
            .and_then(|()| build_in_holder(spec));
        let text = result.as_ref().map_or_else(|error| caravan_sys::describe(error), |()| "ok".to_owned());
        if writer.write_all(text.as_bytes()).is_err()
            || result.is_err()
            || process::close_from(0, false).is_err()
        {
            return 1;
        }
        loop {
            nix::unistd::pause();
        }
    })?;
    let holder = PidFd::open(pid)?.ok_or_else(|| Error::Launch("the task's root vanished".into()))?;
    drop(writer);
    let mut text = String::new();
    // The holder keeps its end until its last step, which closes all descriptors.
    File::from(reader)
        .read_to_string(&mut text)
        .map_err(|source| Error::Io { doing: "hear from the holder of the task's root", source })?;
    match text.as_str() {
        "ok" => Ok(holder),
        "" => Err(Error::Launch("the process that holds the task's root died".into())),
        error => Err(Error::Launch(format!("cannot build the task's root: {error}"))),
    }
}

fn build_in_holder(spec: &IsolationSpec) -> Result<()> {
    let _name = process::set_name(c"caravan-hold");
    rustix::process::setsid().map_err(|e| Error::Io { doing: "begin a session", source: e.into() })?;
    process::ignore_children();
    process::hide()?;
    let uts = spec.hostname.is_some();
    process::unshare(Namespaces { mount: true, ipc: spec.private_ipc, pid: false, uts })?;
    if let Some(name) = &spec.hostname {
        nix::unistd::sethostname(name)
            .map_err(|e| Error::Io { doing: "set the hostname of the task", source: e.into() })?;
    }
    rustix::process::umask(rustix::fs::Mode::empty());

    let parts = Parts::collect(spec)?;
    mount::set_propagation(Path::new("/"), Propagation::Private, true)?;
    parts.root.attach(&spec.root)?;
    change_root(&spec.root)?;

    let mut targets = Targets::default();
    for (at, target) in &parts.links {
        targets.link(at, target)?;
    }
    for part in parts.trees {
        targets.trust(part.attach(&targets)?);
    }
    // Mounted from inside: a new `/proc` shows the processes of the namespace of the mounting process.
    mount_on(&targets.directory(Path::new("/proc"))?, "proc", INERT, "")?;
    let of_system = Restrictions { read_only: !spec.privileged, ..INERT };
    mount_on(&targets.directory(Path::new("/sys"))?, "sysfs", of_system, "")?;
    let dev = targets.directory(Path::new("/dev"))?;
    match parts.devices {
        Devices::Host(tree) => tree.attach_to(&dev, dev.shown())?,
        Devices::Basic(devices) => make_devices(&dev, devices)?,
    }
    for hidden in &spec.hidden {
        if let Some(dir) = targets.existing(hidden) {
            hide_dir(&dir)?;
        }
    }
    if !spec.privileged {
        for name in PROC_READ_ONLY {
            let path = Path::new("/proc").join(name);
            if path.exists() {
                let copy = DetachedTree::copy(&path, true)?;
                copy.restrict(Restrictions { read_only: true, ..INERT }, true)?;
                copy.attach(&path)?;
            }
        }
        for path in MASKED.iter().map(Path::new) {
            match std::fs::metadata(path) {
                Ok(meta) if meta.is_dir() => hide_dir(&Dir::open(path)?)?,
                Ok(_) => mount::bind(Path::new("/dev/null"), path, false)?,
                Err(_) => {}
            }
        }
    }
    // Last, because the task's own mounts cover everything above.
    for part in parts.mounts {
        part.attach_checked(&targets)?;
    }
    Ok(())
}

/// Mounts a new file system on an open directory, before `/proc` exists with its links to descriptors.
fn mount_on(dir: &Dir, fs_type: &str, restrictions: Restrictions, data: &str) -> Result<()> {
    let entered = |error: rustix::io::Errno| file("change to", dir.shown())(error.into());
    rustix::process::fchdir(dir).map_err(entered)?;
    mount::mount_fs(fs_type, Path::new("."), restrictions, data)?;
    std::env::set_current_dir("/").map_err(file("change to", Path::new("/")))
}

/// Replaces a mount in the root of a running task. `task` is any process of it. Bidirectional mounts are not
/// replaced, because they follow the host's mounts by propagation.
pub(crate) fn replace(task: &PidFd, spec: &MountSpec, rights: Rights) -> Result<()> {
    let part = Part::new(spec, rights)?;
    Ok(part.tree.replace_in(task, &spec.task)?)
}

/// Copies of the host's mounts, taken while the host's paths are visible.
struct Parts {
    root: DetachedTree,
    links: Vec<(PathBuf, PathBuf)>,
    trees: Vec<Part>,
    devices: Devices,
    mounts: Vec<Part>,
}

enum Devices {
    Host(DetachedTree),
    Basic(Vec<(&'static str, DetachedTree)>),
}

/// The files in a mount that keep their special effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// Device files.
    pub devices: bool,
    /// Set-user-id bits and file capabilities.
    pub set_user_id: bool,
}

struct Part {
    tree: DetachedTree,
    is_dir: bool,
    task: PathBuf,
    propagation: MountPropagation,
    host: PathBuf,
}

impl Parts {
    fn collect(spec: &IsolationSpec) -> Result<Self> {
        let root = DetachedTree::copy(&spec.root, true)?;
        root.set_propagation(Propagation::Private, true)?;
        if !spec.privileged {
            root.restrict(Restrictions { no_setuid: spec.no_new_privileges, ..NO_DEVICES }, true)?;
        }
        let mut links = Vec::new();
        let mut trees = Vec::new();
        for (host, task) in &spec.host_paths {
            let Ok(meta) = std::fs::symlink_metadata(host) else { continue };
            if meta.is_symlink() {
                let target = std::fs::read_link(host).map_err(file("read link", host))?;
                links.push((task.clone(), target));
                continue;
            }
            let tree = DetachedTree::copy(host, true)?;
            // A set-user-id program of the host must not make a user root inside the task.
            tree.restrict(Restrictions { read_only: true, no_setuid: true, ..NO_DEVICES }, true)?;
            tree.set_propagation(Propagation::Private, true)?;
            trees.push(Part {
                tree,
                is_dir: meta.is_dir(),
                task: task.clone(),
                propagation: MountPropagation::Private,
                host: host.clone(),
            });
        }
        let devices = if spec.privileged {
            let tree = DetachedTree::copy(Path::new("/dev"), true)?;
            tree.set_propagation(Propagation::Private, true)?;
            Devices::Host(tree)
        } else {
            let copies = DEVICES.into_iter().map(|name| {
                let copy = DetachedTree::copy(&Path::new("/dev").join(name), false)?;
                copy.set_propagation(Propagation::Private, false)?;
                Ok((name, copy))
            });
            Devices::Basic(copies.collect::<Result<_>>()?)
        };
        let rights = Rights { devices: spec.privileged, set_user_id: !spec.no_new_privileges };
        let mounts = spec.mounts.iter().map(|m| Part::new(m, rights));
        // A privileged task has the host's `/dev`, in which no entry may be made.
        let shown = |device: &&DeviceSpec| !spec.privileged || !device.task.starts_with("/dev");
        let nodes = spec.devices.iter().filter(shown).map(Part::of_device);
        let mounts = mounts.chain(nodes).collect::<Result<_>>()?;
        Ok(Self { root, links, trees, devices, mounts })
    }
}

impl Part {
    fn new(spec: &MountSpec, rights: Rights) -> Result<Self> {
        let meta = std::fs::metadata(&spec.host).map_err(file("find the mounted path", &spec.host))?;
        let tree = DetachedTree::copy(&spec.host, true)?;
        let kind = meta.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        tree.restrict(
            Restrictions {
                read_only: spec.read_only,
                no_devices: !rights.devices && !is_device,
                no_setuid: !rights.set_user_id,
                ..Restrictions::default()
            },
            true,
        )?;
        match spec.propagation {
            MountPropagation::Private => tree.set_propagation(Propagation::Private, true)?,
            MountPropagation::HostToTask => tree.set_propagation(Propagation::Slave, true)?,
            // The copy of a shared mount is its peer already; mounts below any other copy would not reach the host.
            MountPropagation::Bidirectional => {}
        }
        Ok(Self {
            tree,
            is_dir: meta.is_dir(),
            task: spec.task.clone(),
            propagation: spec.propagation,
            host: spec.host.clone(),
        })
    }

    fn of_device(spec: &DeviceSpec) -> Result<Self> {
        if mount::device_number(&spec.host)?.is_none() {
            return Err(Error::Launch(format!("{} is not a device file", spec.host.display())));
        }
        // The control group decides whether the task may write.
        let rights = Rights { devices: true, set_user_id: false };
        let mount = MountSpec {
            host: spec.host.clone(),
            task: spec.task.clone(),
            read_only: false,
            propagation: MountPropagation::Private,
        };
        Self::new(&mount, rights)
    }

    /// Mounts the part at its path in the task's root. Returns the id of the mount.
    fn attach(&self, targets: &Targets) -> Result<u32> {
        if self.is_dir {
            let target = targets.directory(&self.task)?;
            self.tree.attach_to(&target, &self.task)?;
        } else {
            let target = targets.file(&self.task)?;
            self.tree.attach_to(&target, &self.task)?;
        }
        Ok(mount_id(&self.tree, &self.task)?)
    }

    fn attach_checked(self, targets: &Targets) -> Result<()> {
        let id = self.attach(targets)?;
        if self.propagation == MountPropagation::Bidirectional {
            let table = own_mounts()?;
            if !table.entries().iter().any(|entry| entry.id == id && entry.shared.is_some()) {
                return Err(Error::Launch(format!(
                    "the mount of {} cannot be bidirectional: the host's side is not a shared mount",
                    self.host.display()
                )));
            }
        }
        Ok(())
    }
}

/// Returns the mount table of this process; `/proc` is mounted by then.
fn own_mounts() -> Result<MountTable> {
    Ok(MountTable::read()?)
}

/// Makes a mount point the root and unmounts the old root (pivot_root(2), the form with one directory for both).
fn change_root(root: &Path) -> Result<()> {
    std::env::set_current_dir(root).map_err(file("change to", root))?;
    rustix::process::pivot_root(".", ".").map_err(|e| Error::File {
        doing: "make the task's root of",
        path: root.to_owned(),
        source: e.into(),
    })?;
    if !mount::unmount(Path::new("."), Unmount::Lazy)? {
        return Err(Error::Launch("the host's root could not be taken out of the task's".into()));
    }
    std::env::set_current_dir("/").map_err(file("change to", Path::new("/")))
}

fn hide_dir(dir: &Dir) -> Result<()> {
    mount_on(dir, "tmpfs", Restrictions { read_only: true, ..INERT }, "size=4k,mode=755")
}

/// Fills `/dev`. Once its own file system is mounted there, the task controls none of its entries.
fn make_devices(dev: &Dir, devices: Vec<(&'static str, DetachedTree)>) -> Result<()> {
    let no_setuid = Restrictions { no_setuid: true, ..Restrictions::default() };
    mount_on(dev, "tmpfs", no_setuid, "size=64k,mode=755")?;
    let path = dev.shown().to_owned();
    let dev = Dir::open(&path)?;
    for (name, device) in devices {
        drop(dev.create(OsStr::new(name), Access::mode(0o644))?);
        device.attach_to(dev.handle(Path::new(name), Mounts::Follow)?, &path.join(name))?;
    }
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ];
    for (name, target) in links {
        dev.link(OsStr::new(name), Path::new(target), Owner::default())?;
    }
    let no_exec = Restrictions { no_setuid: true, no_exec: true, ..Restrictions::default() };
    for (name, fs_type, restrictions, data) in [
        ("pts", "devpts", no_exec, "newinstance,ptmxmode=0666,mode=0620"),
        ("shm", "tmpfs", INERT, "size=64m,mode=1777"),
        ("mqueue", "mqueue", INERT, ""),
    ] {
        let at = dev.make(Path::new(name), Access::mode(0o755), Mounts::Refuse)?;
        mount_on(&at, fs_type, restrictions, data)?;
    }
    // With CAP_MKNOD a task could create any device here; the bound devices are separate mounts and stay usable.
    mount::restrict(&path, NO_DEVICES, false)?;
    Ok(())
}

fn file<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + use<'a> {
    move |source| Error::File { doing, path: path.to_owned(), source }
}
