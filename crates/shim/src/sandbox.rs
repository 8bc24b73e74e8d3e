//! The task's own root: a mount namespace held by a small process that does nothing else.
//!
//! That process, the holder, is also the first of the task's pid namespace, so that orphans in it have a parent,
//! the task itself gets signals as programs expect (the first process of a namespace ignores those it does not
//! handle, pid_namespaces(7)), and killing the holder ends everything. It dies with the shim.
//!
//! Nothing is copied. All that the task sees is first taken as detached copies of the host's mounts, then the root
//! is changed, and only then are the copies attached: no link that a task left in its directory can lead a mount,
//! or a directory that we make, outside.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use caravan_sys::mount::{self, DetachedTree, Propagation, Restrictions, Unmount};
use caravan_sys::mountinfo::MountTable;
use caravan_sys::process::{self, Namespaces, PidFd};

use crate::launch::report_pipe;
use crate::spec::{IsolationSpec, MountPropagation, MountSpec};
use crate::{Error, Result};

/// Device files that every program may need, bound from the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that concern the whole machine: readable, not writable.
const PROC_READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

/// Parts of `/proc` and `/sys` that tell about the machine what a task need not know.
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

/// Starts the holder, in new namespaces, with the task's root built. With private process ids, all later children
/// of the caller are in the new pid namespace. `prepare` runs in the holder first.
pub(crate) fn build(spec: &IsolationSpec, prepare: impl FnOnce() -> Result<()>) -> Result<PidFd> {
    process::unshare(Namespaces { pid: spec.private_pids, ..Namespaces::default() })?;
    let (reader, writer) = report_pipe()?;
    let mut writer = File::from(writer);
    let pid = process::fork(|| {
        let result = process::die_with_parent()
            .map_err(Into::into)
            .and_then(|()| prepare())
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
    // The holder keeps its end until it closes everything, which is its last step.
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
    process::unshare(Namespaces { mount: true, ipc: spec.private_ipc, pid: false })?;
    rustix::process::umask(rustix::fs::Mode::empty());

    let parts = Parts::collect(spec)?;
    mount::set_propagation(Path::new("/"), Propagation::Private, true)?;
    parts.root.attach(&spec.root)?;
    change_root(&spec.root)?;

    for link in &parts.links {
        make_link(link)?;
    }
    for part in parts.trees {
        part.attach()?;
    }
    // Only visible from inside: a fresh one shows the processes of the namespace that we are in.
    let proc = make_dir(Path::new("/proc"))?;
    mount::mount_fs("proc", proc, INERT, "")?;
    let sys = make_dir(Path::new("/sys"))?;
    mount::mount_fs("sysfs", sys, Restrictions { read_only: !spec.privileged, ..INERT }, "")?;
    match parts.devices {
        Devices::Host(tree) => tree.attach(make_dir(Path::new("/dev"))?)?,
        Devices::Basic(devices) => make_devices(devices)?,
    }
    for hidden in &spec.hidden {
        hide_dir(hidden)?;
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
                Ok(meta) if meta.is_dir() => hide_dir(path)?,
                Ok(_) => mount::bind(Path::new("/dev/null"), path, false)?,
                Err(_) => {}
            }
        }
    }
    // Last, since the task's own mounts come on top of everything above.
    for part in parts.mounts {
        part.attach()?;
    }
    Ok(())
}

/// Mounts something anew in the root of a task that runs, in place of what is mounted there. `task` is any process
/// of it. Bidirectional mounts are not replaced: they follow the host by themselves.
pub(crate) fn replace(task: &PidFd, spec: &MountSpec, privileged: bool) -> Result<()> {
    let part = Part::of(spec, privileged)?;
    Ok(part.tree.replace_in(task, &spec.task)?)
}

/// Copies of the host's mounts, taken while the host's paths are in sight.
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
            root.restrict(NO_DEVICES, true)?;
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
            // A set-user-id program of the host must make nobody root in here.
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
        let mounts = spec.mounts.iter().map(|m| Part::of(m, spec.privileged)).collect::<Result<_>>()?;
        Ok(Self { root, links, trees, devices, mounts })
    }
}

impl Part {
    fn of(spec: &MountSpec, privileged: bool) -> Result<Self> {
        let meta = std::fs::metadata(&spec.host).map_err(file("find the mounted path", &spec.host))?;
        let tree = DetachedTree::copy(&spec.host, true)?;
        let kind = meta.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        tree.restrict(
            Restrictions {
                read_only: spec.read_only,
                no_devices: !privileged && !is_device,
                ..Restrictions::default()
            },
            true,
        )?;
        match spec.propagation {
            MountPropagation::Private => tree.set_propagation(Propagation::Private, true)?,
            MountPropagation::HostToTask => tree.set_propagation(Propagation::Slave, true)?,
            // The copy of a shared mount is its peer already; of any other, nothing would reach the host.
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

    fn attach(self) -> Result<()> {
        let target = if self.is_dir { make_dir(&self.task)? } else { make_file(&self.task)? };
        self.tree.attach(target)?;
        if self.propagation == MountPropagation::Bidirectional {
            let table = own_mounts()?;
            if table.at(target).is_none_or(|entry| entry.shared.is_none()) {
                return Err(Error::Launch(format!(
                    "the mount of {} cannot be bidirectional: the host's side is not a shared mount",
                    self.host.display()
                )));
            }
        }
        Ok(())
    }
}

/// The mount table as seen from here; `/proc` is mounted by then.
fn own_mounts() -> Result<MountTable> {
    Ok(MountTable::read()?)
}

/// Makes a mount point the root, and takes the old one out of the tree (pivot_root(2), the form with one directory
/// for both).
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

fn make_dir(path: &Path) -> Result<&Path> {
    match std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path) {
        Ok(()) => Ok(path),
        Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => Err(Error::Launch(format!(
            "{} does not exist on the host and cannot be made, since the task sees what is above it read-only",
            path.display()
        ))),
        Err(e) => Err(file("create mount point", path)(e)),
    }
}

fn make_file(path: &Path) -> Result<&Path> {
    if path.exists() {
        return Ok(path);
    }
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)
        .map_err(file("create mount point", path))?;
    Ok(path)
}

fn make_link((at, target): &(PathBuf, PathBuf)) -> Result<()> {
    if let Some(parent) = at.parent() {
        make_dir(parent)?;
    }
    match std::os::unix::fs::symlink(target, at) {
        // Of an earlier run; a task that put something else there misleads only itself.
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(file("create link", at)(e)),
        _ => Ok(()),
    }
}

fn hide_dir(path: &Path) -> Result<()> {
    if path.is_dir() {
        mount::mount_fs("tmpfs", path, Restrictions { read_only: true, ..INERT }, "size=4k,mode=755")?;
    }
    Ok(())
}

fn make_devices(devices: Vec<(&'static str, DetachedTree)>) -> Result<()> {
    let dev = make_dir(Path::new("/dev"))?;
    mount::mount_fs(
        "tmpfs",
        dev,
        Restrictions { no_setuid: true, ..Restrictions::default() },
        "size=64k,mode=755",
    )?;
    for (name, device) in devices {
        device.attach(make_file(&dev.join(name))?)?;
    }
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ];
    for (name, target) in links {
        make_link(&(dev.join(name), PathBuf::from(target)))?;
    }
    let pts = dev.join("pts");
    let no_exec = Restrictions { no_setuid: true, no_exec: true, ..Restrictions::default() };
    mount::mount_fs("devpts", make_dir(&pts)?, no_exec, "newinstance,ptmxmode=0666,mode=0620")?;
    let shm = dev.join("shm");
    mount::mount_fs("tmpfs", make_dir(&shm)?, INERT, "size=64m,mode=1777")?;
    let queues = dev.join("mqueue");
    mount::mount_fs("mqueue", make_dir(&queues)?, INERT, "")?;
    // With CAP_MKNOD a task could make any device here; the bound ones are mounts of their own and stay usable.
    mount::restrict(dev, NO_DEVICES, false)?;
    Ok(())
}

fn file<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + use<'a> {
    move |source| Error::File { doing, path: path.to_owned(), source }
}
