//! Control groups, versions 1 and 2 (cgroups(7)), behind one type.
//!
//! A machine with any version 1 controller mounted counts as version 1, even if a version 2 hierarchy is also
//! mounted. The controllers that limits need are then on the version 1 side.

mod cpuset;
mod tune;
mod v1;
mod v2;

pub use cpuset::SharedCpus;
pub use tune::favor_quick_moves;

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::process::{PidfdFlags, Signal};

use crate::mount::DeviceKind;
use crate::mountinfo::{Device, MountTable};
use crate::{Error, Result};

/// The mounts of the machine's control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        let mut unified = None;
        for entry in table.entries() {
            match entry.fs_type.as_str() {
                "cgroup" => {
                    for option in &entry.super_options {
                        if v1::CONTROLLERS.contains(&option.as_str()) {
                            controllers.entry(option.clone()).or_insert_with(|| entry.target.clone());
                        }
                    }
                }
                "cgroup2" if unified.is_none() => unified = Some(entry.target.clone()),
                _ => {}
            }
        }
        if controllers.is_empty() { unified.map(Self::V2) } else { Some(Self::V1(controllers)) }
    }

    /// Returns `v1` or `v2`.
    pub fn version(&self) -> &'static str {
        match self {
            Self::V1(_) => "v1",
            Self::V2(_) => "v2",
        }
    }
}

/// The resources that a task may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Weight relative to other groups, in the units of `cpu.shares` (2 to 262144).
    pub cpu_shares: Option<u64>,
    /// Hard memory limit in bytes.
    pub memory_max: Option<u64>,
    /// Memory in bytes that the kernel reclaims last when memory is short.
    pub memory_reserved: Option<u64>,
    /// Maximum number of processes and threads.
    pub pids_max: Option<u64>,
    /// Processors that the group may use, as a list such as `0-1,4`; absent means all.
    pub cpus: Option<String>,
    /// Whether device files are refused, except null, zero, full, random, urandom, tty and pts. Only version 1 has
    /// files for this.
    pub only_basic_devices: bool,
    /// Further devices that are allowed if `only_basic_devices` refuses others.
    pub devices: Vec<DeviceRule>,
}

/// A device that a control group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRule {
    /// Block or character device.
    pub kind: DeviceKind,
    /// Major and minor number.
    pub device: Device,
    /// Whether the group may write to the device.
    pub write: bool,
}

impl std::fmt::Display for DeviceRule {
    /// Writes the rule in the format of `devices.allow` of cgroups version 1.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            DeviceKind::Block => 'b',
            DeviceKind::Character => 'c',
        };
        write!(f, "{kind} {} {}", self.device, if self.write { "rw" } else { "r" })
    }
}

/// Resources that a task uses now, and totals since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
}

/// A control group of the agent: on version 1 the same relative path under every controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    kind: Kind,
}

/// Whether a group limits the use of devices. On version 1, a group without limits stays in the parent's group of the
/// `devices` controller, which saves a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceControl {
    /// The group has its own rules.
    On,
    /// The rules of the parent apply.
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// Allows a device in addition to those of [`Limits`]. Does nothing if device files are not limited.
    pub fn allow_device(&self, rule: DeviceRule) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => g.allow_device(rule),
            Kind::V2(_) => Ok(()),
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

    /// Returns the processes in the group; empty if the group does not exist.
    pub fn pids(&self) -> Result<Vec<u32>> {
        let file = self.procs_file();
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
            Err(e) if is_gone(&e) => Ok(Vec::new()),
            Err(e) => Err(Error::path("read", file)(e)),
        }
    }

    /// Returns whether the group has no process.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.pids()?.is_empty())
    }

    /// Kills every process in the group: in one step on version 2 (`cgroup.kill`, Linux 5.14); on version 1 after
    /// freezing it, so that none escapes by forking. Processes may still be exiting when this returns.
    pub fn kill(&self) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => {
                let frozen = g.freeze(true);
                let killed = self.signal_all(Signal::KILL);
                // Thaw even after an error: a frozen process does not die.
                let thawed = g.freeze(false);
                frozen.and(killed).and(thawed)
            }
            Kind::V2(g) => {
                if g.kill()? {
                    return Ok(());
                }
                let frozen = g.freeze(true);
                let killed = self.signal_all(Signal::KILL);
                let thawed = g.freeze(false);
                frozen.and(killed).and(thawed)
            }
        }
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

    /// Returns how many of the group's processes were killed for lack of memory.
    pub fn oom_kills(&self) -> Result<u64> {
        match &self.kind {
            Kind::V1(g) => g.oom_kills(),
            Kind::V2(g) => g.oom_kills(),
        }
    }

    /// Removes the group, which must be empty. Idempotent.
    pub fn remove(&self) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => g.dirs().try_for_each(remove_dir),
            Kind::V2(g) => remove_dir(g.dir()),
        }
    }

    fn procs_file(&self) -> PathBuf {
        match &self.kind {
            Kind::V1(g) => g.procs_file(),
            Kind::V2(g) => g.dir().join("cgroup.procs"),
        }
    }
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

fn remove_dir(dir: &Path) -> Result<()> {
    match std::fs::remove_dir(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::path("remove", dir)(e)),
    }
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
