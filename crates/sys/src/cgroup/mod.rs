//! Control groups, versions 1 and 2 (cgroups(7)), behind one type.
//!
//! A machine that has any version 1 controller mounted is treated as version 1, also when a version 2 hierarchy is
//! mounted beside it: the controllers that limits need are then on the version 1 side.

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

/// Where the machine's control groups are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1: a mount per controller (or per few of them).
    V1(BTreeMap<String, PathBuf>),
    /// Version 2: one mount.
    V2(PathBuf),
}

impl Hierarchy {
    /// Looks the mounts up; `None` when there are none.
    pub fn detect() -> Result<Option<Self>> {
        Ok(Self::from_mounts(&MountTable::read()?))
    }

    /// Decides from a mount table.
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

    /// `v1` or `v2`.
    pub fn version(&self) -> &'static str {
        match self {
            Self::V1(_) => "v1",
            Self::V2(_) => "v2",
        }
    }
}

/// What a task may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Weight against others, in the units of `cpu.shares` (2 to 262144).
    pub cpu_shares: Option<u64>,
    /// Hard memory limit in bytes.
    pub memory_max: Option<u64>,
    /// Memory in bytes below which the task is spared when memory is short.
    pub memory_reserved: Option<u64>,
    /// Number of processes and threads.
    pub pids_max: Option<u64>,
    /// Processors that it may use, as a list such as `0-1,4`; all when absent.
    pub cpus: Option<String>,
    /// Whether device files other than the harmless ones (null, zero, full, random, urandom, tty, pts) are refused.
    /// Only version 1 has files for that.
    pub only_basic_devices: bool,
    /// Devices that are allowed besides, where others are refused.
    pub devices: Vec<DeviceRule>,
}

/// A device that a control group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRule {
    /// Block or character.
    pub kind: DeviceKind,
    /// Its number.
    pub device: Device,
    /// Whether it may be written to.
    pub write: bool,
}

impl std::fmt::Display for DeviceRule {
    /// As `devices.allow` of cgroups version 1 takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            DeviceKind::Block => 'b',
            DeviceKind::Character => 'c',
        };
        write!(f, "{kind} {} {}", self.device, if self.write { "rw" } else { "r" })
    }
}

/// What a task has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// CPU time.
    pub cpu_total: Duration,
    /// CPU time in user mode.
    pub cpu_user: Duration,
    /// CPU time in the kernel.
    pub cpu_system: Duration,
    /// Times that it was throttled.
    pub throttled_periods: u64,
    /// Time that it was throttled.
    pub throttled: Duration,
    /// Memory charged now, page cache included, in bytes.
    pub memory: u64,
    /// The most memory charged at once, in bytes; 0 when the kernel does not tell.
    pub memory_peak: u64,
    /// Anonymous memory in bytes.
    pub rss: u64,
    /// Page cache in bytes.
    pub cache: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// A control group of ours: on version 1 the same relative path under every controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    V1(v1::Group),
    V2(v2::Group),
}

impl Cgroup {
    /// Names the group at a relative path, without looking whether it exists.
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

    /// Creates the group and its parents, on version 2 with the controllers that limits need handed down.
    pub fn create(hierarchy: &Hierarchy, relative: &Path) -> Result<Self> {
        let group = Self::at(hierarchy, relative)?;
        match &group.kind {
            Kind::V1(g) => g.create()?,
            Kind::V2(g) => g.create()?,
        }
        Ok(group)
    }

    /// Whether it exists.
    pub fn exists(&self) -> bool {
        match &self.kind {
            Kind::V1(g) => g.exists(),
            Kind::V2(g) => g.exists(),
        }
    }

    /// Sets limits. What the kernel refuses is left out and returned, so that the caller can tell the user.
    pub fn set_limits(&self, limits: &Limits) -> Vec<Error> {
        match &self.kind {
            Kind::V1(g) => g.set_limits(limits),
            Kind::V2(g) => g.set_limits(limits),
        }
    }

    /// Allows a device besides those of [`Limits`]. Does nothing where device files are not limited.
    pub fn allow_device(&self, rule: DeviceRule) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => g.allow_device(rule),
            Kind::V2(_) => Ok(()),
        }
    }

    /// Moves a process in (0: the caller), with the controllers of `elsewhere` moved to those paths instead. Paths
    /// are relative to the controller's mount; on version 2 the key is empty.
    pub fn add(&self, pid: u32, elsewhere: &BTreeMap<String, PathBuf>) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => g.add(pid, elsewhere),
            Kind::V2(g) => g.add(pid, elsewhere),
        }
    }

    /// The processes in it; empty when it is gone.
    pub fn pids(&self) -> Result<Vec<u32>> {
        let file = self.procs_file();
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
            Err(e) if is_gone(&e) => Ok(Vec::new()),
            Err(e) => Err(Error::path("read", file)(e)),
        }
    }

    /// Whether no process is in it.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.pids()?.is_empty())
    }

    /// Kills every process in it: in one step on version 2 (`cgroup.kill`, Linux 5.14); on version 1 frozen first,
    /// so that none escapes by forking. Some may still be dying when this returns.
    pub fn kill(&self) -> Result<()> {
        match &self.kind {
            Kind::V1(g) => {
                let frozen = g.freeze(true);
                let killed = self.signal_all(Signal::KILL);
                // Thawed in any case: a frozen process does not die.
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

    /// Kills until no process is left, at most this many times with this pause in between. Answers whether it is
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
            // The list was read from the group, so these ids were alive in it a moment ago; the group is checked
            // again through the handle, whose process cannot change any more.
            let Ok(handle) = rustix::process::pidfd_open(raw, PidfdFlags::empty()) else { continue };
            if self.pids()?.contains(&pid) {
                let _gone = rustix::process::pidfd_send_signal(&handle, signal);
            }
        }
        Ok(())
    }

    /// What it uses and used.
    pub fn usage(&self) -> Result<Usage> {
        match &self.kind {
            Kind::V1(g) => g.usage(),
            Kind::V2(g) => g.usage(),
        }
    }

    /// How many of its processes were killed for want of memory.
    pub fn oom_kills(&self) -> Result<u64> {
        match &self.kind {
            Kind::V1(g) => g.oom_kills(),
            Kind::V2(g) => g.oom_kills(),
        }
    }

    /// Removes it; it must be empty. Idempotent.
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
    // Not truncated, not created: these files are the kernel's.
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

/// A file of lines `key value`; empty when there is no such file.
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
