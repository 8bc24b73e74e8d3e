//! Control groups, versions 1 and 2 (cgroups(7)), behind one type.
//!
//! A machine with any version 1 controller mounted counts as version 1, even if a version 2 hierarchy is also
//! mounted. The controllers that limits need are then on the version 1 side.

mod cpuset;
mod devices;
mod found;
mod place;
mod pressure;
mod program;
mod tune;
mod v1;
mod v2;

pub use cpuset::SharedCpus;
pub use devices::{BASIC_DEVICES, DeviceAccess, DeviceMechanism, DeviceRefusal, DeviceRule};
pub use place::{Place, Survey, vacate};
pub use pressure::{Pressure, Stall};
pub use tune::favor_quick_moves;

use crate::mountinfo::{MountEntry, MountTable};
use crate::{Error, Result};
use rustix::process::{PidfdFlags, Signal};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The mounts of the machine's control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1: mount by controller; several controllers may share a mount.
    V1(BTreeMap<String, PathBuf>),
    /// Version 2: the single mount.
    V2(PathBuf),
}

impl Hierarchy {
    /// Finds the mounts; `None` without any.
    pub fn detect() -> Result<Option<Self>> {
        Ok(Self::from_mounts(&MountTable::read()?))
    }

    /// Finds the mounts in a mount table; `None` without any.
    pub fn from_mounts(table: &MountTable) -> Option<Self> {
        let mut controllers = BTreeMap::new();
        let mut unified: Option<&MountEntry> = None;
        for entry in table.entries() {
            match entry.fs_type.as_str() {
                "cgroup" => {
                    for option in &entry.super_options {
                        if v1::CONTROLLERS.contains(&option.as_str()) {
                            controllers.entry(option.clone()).or_insert_with(|| entry.target.clone());
                        }
                    }
                }
                // A container may see the same tree twice, once read-only.
                "cgroup2" if unified.is_none_or(|known| known.is_read_only() && !entry.is_read_only()) => {
                    unified = Some(entry);
                }
                _ => {}
            }
        }
        if controllers.is_empty() {
            unified.map(|entry| Self::V2(entry.target.clone()))
        } else {
            Some(Self::V1(controllers))
        }
    }

    /// Returns `v1` or `v2`.
    pub fn version(&self) -> &'static str {
        match self {
            Self::V1(_) => "v1",
            Self::V2(_) => "v2",
        }
    }
}

/// The resources that a task may use; an absent value leaves the kernel's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Weight relative to other groups, in the units of `cpu.shares` (2 to 262144).
    pub cpu_shares: Option<u64>,
    /// Hard limit of processor time.
    pub cpu_quota: Option<CpuQuota>,
    /// Hard memory limit in bytes.
    pub memory_max: Option<u64>,
    /// Memory in bytes above which the kernel slows the group down and reclaims its memory. Version 2 only.
    pub memory_high: Option<u64>,
    /// Memory in bytes that the kernel reclaims last when memory is short.
    pub memory_reserved: Option<u64>,
    /// Swap in bytes, in addition to the memory limit. Version 1 can only switch swapping off.
    pub swap_max: Option<u64>,
    /// Maximum number of processes and threads.
    pub pids_max: Option<u64>,
    /// Weight of input and output relative to other groups (1 to 10000, 100 by default). Version 2 only.
    pub io_weight: Option<u16>,
    /// Processors that the group may use, as a list such as `0-1,4`; absent means all.
    pub cpus: Option<String>,
    /// Whether no other process of the host may use these processors. Applied where the kernel and the manager of the
    /// tree permit it (Linux 6.7 and later, version 2, no systemd); elsewhere they are excluded from other tasks only.
    pub own_cpus: bool,
}

/// A hard limit of processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// Processor time per period, in microseconds; more than the period for more than one processor.
    pub quota_us: u64,
    /// The period in microseconds.
    pub period_us: u64,
}

/// Resources that a task uses now, and totals since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time.
    pub cpu_total: Duration,
    /// CPU time in user mode.
    pub cpu_user: Duration,
    /// CPU time in the kernel.
    pub cpu_system: Duration,
    /// Number of scheduler periods in which the task was throttled.
    pub throttled_periods: u64,
    /// Total time of throttling.
    pub throttled: Duration,
    /// Memory charged now, page cache included, in bytes.
    pub memory: u64,
    /// Peak of the memory charged, in bytes; 0 if the kernel does not report it.
    pub memory_peak: u64,
    /// Anonymous memory in bytes.
    pub rss: u64,
    /// Page cache in bytes.
    pub cache: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Number of processes and threads.
    pub pids: u64,
    /// The share of time in which processes wait for resources.
    pub pressure: Pressure,
}

/// A control group of the agent: on version 1 the same relative path under every controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    kind: Kind,
}

/// Whether a group limits the use of devices. On version 1, a group without limits stays in the parent's group of the
/// `devices` controller, which saves a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceControl {
    /// The group has its own rules.
    On,
    /// The rules of the parent apply.
    Off,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    V1(v1::Group),
    V2(v2::Group),
}

impl Cgroup {
    /// Returns the group at a relative path, without checking that it exists.
    pub fn at(hierarchy: &Hierarchy, relative: &Path) -> Result<Self> {
        if relative.as_os_str().is_empty()
            || relative.components().any(|c| !matches!(c, Component::Normal(_)))
        {
            return Err(Error::Malformed {
                what: format!("cgroup path {:?}", relative.display().to_string()),
                detail: "it must be relative, without `..`".into(),
            });
        }
        let kind = match hierarchy {
            Hierarchy::V1(controllers) => Kind::V1(v1::Group::at(controllers, relative)),
            Hierarchy::V2(root) => Kind::V2(v2::Group::at(root, relative)),
        };
        Ok(Self { kind })
    }

    /// Creates the group and its parents. On version 2, enables the controllers that limits need in each parent.
    pub fn create(hierarchy: &Hierarchy, relative: &Path) -> Result<Self> {
        let group = Self::at(hierarchy, relative)?;
        group.make(DeviceControl::On)?;
        Ok(group)
    }

    /// Creates the group as [`Cgroup::create`] does. Returns whether the group is new: `false` means that a part of it
    /// existed, with unknown processes and limits.
    pub fn make(&self, devices: DeviceControl) -> Result<bool> {
        match &self.kind {
            Kind::V1(g) => g.create(devices),
            Kind::V2(g) => g.create(),
        }
    }

    /// Returns whether the group exists.
    pub fn exists(&self) -> bool {
        match &self.kind {
            Kind::V1(g) => g.exists(),
            Kind::V2(g) => g.exists(),
        }
    }

    /// Sets limits. Returns an error for each limit that the kernel refuses, so that the caller can report it.
    pub fn set_limits(&self, limits: &Limits) -> Vec<Error> {
        match &self.kind {
            Kind::V1(g) => g.set_limits(limits),
            Kind::V2(g) => g.set_limits(limits),
        }
    }

    /// Limits the group to [`BASIC_DEVICES`] and the granted devices. The group must be created with
    /// [`DeviceControl::On`]. Fails with [`Error::Devices`] if the machine cannot limit devices; then the group is not
    /// limited. The returned errors are of rules that the kernel refused: their devices stay forbidden.
    pub fn restrict_devices(&self, granted: &[DeviceRule]) -> Result<Vec<Error>> {
        match &self.kind {
            Kind::V1(g) => g.restrict_devices(granted),
            Kind::V2(g) => g.restrict_devices(granted).map(|()| Vec::new()),
        }
    }

    /// Allows a device in addition to those of [`Cgroup::restrict_devices`]. Does nothing if devices are not limited.
    pub fn allow_device(&self, rule: DeviceRule) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => g.allow_device(rule),
            Kind::V2(g) => g.allow_device(rule),
        }
    }

    /// Opens the group for [`crate::process::fork_into`]; `None` on version 1, and if the group does not exist.
    /// `elsewhere` is that of [`Cgroup::add`].
    pub fn entry(&self, elsewhere: &BTreeMap<String, PathBuf>) -> Option<OwnedFd> {
        match &self.kind {
            Kind::V1(_) => None,
            Kind::V2(g) => g.entry(elsewhere),
        }
    }

    /// Moves a process (0: the caller) into the group, except for the controllers in `elsewhere`, which move it to
    /// those paths. Paths are relative to the controller's mount; on version 2 the key is empty.
    pub fn add(&self, pid: u32, elsewhere: &BTreeMap<String, PathBuf>) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => g.add(pid, elsewhere),
            Kind::V2(g) => g.add(pid, elsewhere),
        }
    }

    /// Returns the processes in the group and in groups below it; empty if the group does not exist.
    pub fn pids(&self) -> Result<Vec<u32>> {
        let own = self.procs_dir();
        let mut pids = Vec::new();
        for dir in std::iter::once(own.clone()).chain(nested(&own)) {
            let file = dir.join("cgroup.procs");
            match std::fs::read_to_string(&file) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
                Err(e) if is_gone(&e) => {}
                // A group of threads lists no processes; its domain does.
                Err(e) if e.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {}
                Err(e) => return Err(Error::path("read", file)(e)),
            }
        }
        Ok(pids)
    }

    /// Returns whether the group has no process, and no group below has one.
    pub fn is_empty(&self) -> Result<bool> {
        match &self.kind {
            Kind::V1(_) => Ok(self.pids()?.is_empty()),
            Kind::V2(g) => g.is_empty(),
        }
    }

    /// Kills every process in the group and in groups below. On version 2 this is one step (`cgroup.kill`, Linux
    /// 5.14). On version 1 the group is frozen first, so that no process escapes by forking. Processes may still be
    /// exiting when this returns.
    pub fn kill(&self) -> Result<()> {
        match &self.kind {
            Kind::V2(g) if g.kill()? => Ok(()),
            _ => self.kill_one_by_one(),
        }
    }

    /// Kills every process after freezing the group.
    fn kill_one_by_one(&self) -> Result<()> {
        let freeze = |on| match &self.kind {
            Kind::V1(g) => g.freeze(on),
            Kind::V2(g) => g.freeze(on),
        };
        let frozen = freeze(true);
        let killed = self.signal_all(Signal::KILL);
        // Thaw even after an error: a frozen process of version 1 does not die.
        let thawed = freeze(false);
        frozen.and(killed).and(thawed)
    }

    /// Kills until no process remains, at most `tries` times with this pause in between. Returns whether the group is
    /// empty.
    pub fn kill_until_empty(&self, tries: u32, pause: Duration) -> Result<bool> {
        for _ in 0..tries {
            if self.is_empty()? {
                return Ok(true);
            }
            self.kill()?;
            if self.is_empty()? {
                return Ok(true);
            }
            std::thread::sleep(pause);
        }
        self.is_empty()
    }

    fn signal_all(&self, signal: Signal) -> Result<()> {
        for pid in self.pids()? {
            let Some(raw) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
                continue;
            };
            // The id was read from the group, and the group is read again now that the handle is open. The handle's
            // process cannot change any more, so this is a process of the group.
            let Ok(handle) = rustix::process::pidfd_open(raw, PidfdFlags::empty()) else { continue };
            if self.pids()?.contains(&pid) {
                let _gone = rustix::process::pidfd_send_signal(&handle, signal);
            }
        }
        Ok(())
    }

    /// Returns the group's usage of resources.
    pub fn usage(&self) -> Result<Usage> {
        match &self.kind {
            Kind::V1(g) => g.usage(),
            Kind::V2(g) => g.usage(),
        }
    }

    /// Returns the number of processes of the group and of groups below that were killed for lack of memory.
    pub fn oom_kills(&self) -> Result<u64> {
        match &self.kind {
            Kind::V1(g) => g.oom_kills(),
            Kind::V2(g) => g.oom_kills(),
        }
    }

    /// Removes the group with groups that its processes made below; none may have a process. Idempotent.
    pub fn remove(&self) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => g.dirs().try_for_each(remove_dirs),
            Kind::V2(g) => remove_dirs(g.dir()),
        }
    }

    fn procs_dir(&self) -> PathBuf {
        match &self.kind {
            Kind::V1(g) => g.procs_dir(),
            Kind::V2(g) => g.dir().to_owned(),
        }
    }
}

/// Returns the mechanism by which the kernel enforces device rules on a machine, or the reason that it cannot.
pub fn device_mechanism(hierarchy: &Hierarchy) -> Result<DeviceMechanism, DeviceRefusal> {
    match hierarchy {
        Hierarchy::V1(controllers) if controllers.contains_key(v1::DEVICES) => {
            Ok(DeviceMechanism::Controller)
        }
        Hierarchy::V1(_) => Err(DeviceRefusal::NoController),
        Hierarchy::V2(_) => program::probe().map(|()| DeviceMechanism::Program),
    }
}

/// Returns the groups below a directory, parents first. Tasks create such groups, which may appear and end meanwhile.
fn nested(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut unread = vec![dir.to_owned()];
    while let Some(dir) = unread.pop() {
        // A directory of a control group has two links and one for each directory in it.
        if !std::fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir() && meta.nlink() > 2) {
            continue;
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
                unread.push(entry.path());
            }
        }
    }
    found
}

/// Returns the directory of a group that a job names: relative to a mount, or a path of the host in that mount.
fn below_mount(mount: &Path, path: &Path) -> PathBuf {
    let relative = path.strip_prefix(mount).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
    mount.join(relative)
}

/// Creates a directory with its parents. Returns whether it is new.
fn create_dir(dir: &Path) -> Result<bool> {
    let made = match std::fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            dir.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::create_dir(dir))
        }
        other => other,
    };
    match made {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(Error::path("create cgroup", dir)(e)),
    }
}

fn remove_dirs(dir: &Path) -> Result<()> {
    for below in nested(dir).iter().rev() {
        remove_dir(below)?;
    }
    remove_dir(dir)
}

/// The maximum number of waits for the exit of processes that a group no longer lists. An exit takes milliseconds, on
/// a busy machine more than 500 of them.
const MAX_EXIT_WAITS: u32 = 10_000;
const EXIT_WAIT: Duration = Duration::from_millis(1);

/// Removes the directory of a group. A process that ends is no longer listed some time before it leaves its group, and
/// until then the kernel refuses with `EBUSY`. Version 1 has no notification of that moment.
fn remove_dir(dir: &Path) -> Result<()> {
    let mut waits = 0;
    loop {
        match std::fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e)
                if e.kind() == io::ErrorKind::ResourceBusy
                    && waits < MAX_EXIT_WAITS
                    && lists_nothing(dir) =>
            {
                waits += 1;
                std::thread::sleep(EXIT_WAIT);
            }
            Err(e) => return Err(Error::path("remove", dir)(e)),
        }
    }
}

/// Returns whether a group has neither listed processes nor groups below.
fn lists_nothing(dir: &Path) -> bool {
    nested(dir).is_empty()
        && std::fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

fn write(path: &Path, text: &str) -> Result<()> {
    // Neither truncate nor create: the kernel provides these files.
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(Error::path("write", path))
}

fn read_number(path: &Path) -> Result<Option<u64>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(Error::path("read", path)(e)),
    }
}

/// Reads a file of lines `key value`; empty if the file does not exist.
fn read_keyed(path: &Path) -> Result<BTreeMap<String, u64>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(key, value)| Some((key.to_owned(), value.trim().parse().ok()?)))
            .collect()),
        Err(e) if is_gone(&e) => Ok(BTreeMap::new()),
        Err(e) => Err(Error::path("read", path)(e)),
    }
}

#[cfg(test)]
mod tests;
