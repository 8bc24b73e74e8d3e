//! Version 1: one directory per controller.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{DeviceControl, Limits, Usage, cpuset, is_gone, read_keyed, read_number, write};
use crate::{Error, Result};

/// The controllers that this module uses.
pub(super) const CONTROLLERS: [&str; 7] = ["cpu", "cpuacct", CPUSET, DEVICES, "freezer", "memory", "pids"];

/// The controller whose groups accept no process before their processors are set. Only groups with limited processors
/// have a directory here.
pub(super) const CPUSET: &str = "cpuset";

/// The controller without a directory for groups with [`DeviceControl::Off`].
const DEVICES: &str = "devices";

/// Character devices that every program may need: null, zero, full, random, urandom, tty, ptmx, and pseudo terminals.
const BASIC_DEVICES: [&str; 8] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

/// `USER_HZ`, the unit of `cpuacct.stat`: 100 on every supported architecture (time(7)).
const TICKS_PER_SECOND: u64 = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// The group's directory by controller; several controllers may share one.
    dirs: BTreeMap<String, PathBuf>,
    /// Mount by controller.
    mounts: BTreeMap<String, PathBuf>,
}

impl Group {
    pub(super) fn at(mounts: &BTreeMap<String, PathBuf>, relative: &Path) -> Self {
        let dirs = mounts.iter().map(|(name, mount)| (name.clone(), mount.join(relative))).collect();
        Self { dirs, mounts: mounts.clone() }
    }

    pub(super) fn create(&self, devices: DeviceControl) -> Result<bool> {
        let sets = self.dirs.get(CPUSET);
        let wanted = self.dirs.iter().filter(|(name, dir)| {
            Some(*dir) != sets && (devices == DeviceControl::On || name.as_str() != DEVICES)
        });
        let dirs: BTreeSet<&PathBuf> = wanted.map(|(_, dir)| dir).collect();
        let mut is_new = true;
        for dir in dirs {
            is_new &= super::create_dir(dir)?;
        }
        Ok(is_new)
    }

    pub(super) fn exists(&self) -> bool {
        self.dirs().any(Path::exists)
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &Path> {
        let mut seen = BTreeSet::new();
        self.dirs.values().map(PathBuf::as_path).filter(move |dir| seen.insert(*dir))
    }

    /// Returns the `cgroup.procs` file of the controller that users are least likely to override.
    pub(super) fn procs_file(&self) -> PathBuf {
        ["freezer", "pids", "memory"]
            .iter()
            .find_map(|name| self.dirs.get(*name))
            .or_else(|| self.dirs.values().next())
            .map(|dir| dir.join("cgroup.procs"))
            .unwrap_or_default()
    }

    pub(super) fn set_limits(&self, limits: &Limits) -> Vec<Error> {
        let mut failed = Vec::new();
        if let Some(cpus) = &limits.cpus {
            failed.extend(self.set_cpus(cpus).err());
        }
        let mut set = |controller: &str, file: &str, value: Option<u64>| {
            if let (Some(dir), Some(value)) = (self.dirs.get(controller), value) {
                failed.extend(write(&dir.join(file), &value.to_string()).err());
            }
        };
        set("cpu", "cpu.shares", limits.cpu_shares.map(|s| s.clamp(2, 262_144)));
        set("memory", "memory.limit_in_bytes", limits.memory_max);
        set("memory", "memory.soft_limit_in_bytes", limits.memory_reserved);
        set("pids", "pids.max", limits.pids_max);
        if let (true, Some(dir)) = (limits.only_basic_devices, self.dirs.get(DEVICES)) {
            let rules = std::iter::once(("devices.deny", "a".to_owned()))
                .chain(BASIC_DEVICES.iter().map(|rule| ("devices.allow", (*rule).to_owned())))
                .chain(limits.devices.iter().map(|rule| ("devices.allow", rule.to_string())));
            for (file, rule) in rules {
                failed.extend(write(&dir.join(file), &rule).err());
            }
        }
        failed
    }

    pub(super) fn allow_device(&self, rule: super::DeviceRule) -> Result<()> {
        match self.dirs.get(DEVICES) {
            Some(dir) if dir.exists() => write(&dir.join("devices.allow"), &rule.to_string()),
            _ => Ok(()),
        }
    }

    /// Gives the group its own processors.
    fn set_cpus(&self, cpus: &str) -> Result<()> {
        let (Some(mount), Some(dir)) = (self.mounts.get(CPUSET), self.dirs.get(CPUSET)) else {
            return Err(Error::Malformed {
                what: format!("processors {cpus}"),
                detail: "the host has no cpuset controller".into(),
            });
        };
        cpuset::make(mount, dir)?;
        let set = write(&dir.join(cpuset::CPUS), cpus);
        if set.is_err() {
            // Without limited processors, the directory would hold the task to all processors of the parent group.
            let _unused = std::fs::remove_dir(dir);
        }
        set
    }

    pub(super) fn add(&self, pid: u32, elsewhere: &BTreeMap<String, PathBuf>) -> Result<()> {
        for (controller, dir) in &self.dirs {
            let own = || dir.clone();
            let target = elsewhere.get(controller).map_or_else(own, |path| {
                let mount = self.mounts.get(controller).cloned().unwrap_or_default();
                mount.join(path.strip_prefix("/").unwrap_or(path))
            });
            match (controller.as_str(), elsewhere.contains_key(controller)) {
                (CPUSET, true) => cpuset::make(self.mounts.get(CPUSET).unwrap_or(&target), &target)?,
                (_, true) => {
                    std::fs::create_dir_all(&target).map_err(Error::path("create cgroup", &target))?;
                }
                (_, false) => {}
            }
            // `0` in `tasks` moves the calling thread, which Linux 5.16 and later do without waiting for an RCU grace period
            // (10 ms and more). The caller has one thread, so this moves the process.
            let file = if pid == 0 { "tasks" } else { "cgroup.procs" };
            match write(&target.join(file), &pid.to_string()) {
                // The group's processors or devices are not limited.
                Err(error)
                    if matches!(controller.as_str(), CPUSET | DEVICES) && error.io().is_some_and(is_gone) => {
                }
                other => other?,
            }
        }
        Ok(())
    }

    pub(super) fn freeze(&self, on: bool) -> Result<()> {
        match self.dirs.get("freezer") {
            Some(dir) if dir.exists() => {
                write(&dir.join("freezer.state"), if on { "FROZEN" } else { "THAWED" })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        let mut usage = Usage::default();
        if let Some(dir) = self.dirs.get("cpuacct") {
            usage.cpu_total = Duration::from_nanos(read_number(&dir.join("cpuacct.usage"))?.unwrap_or(0));
            let stat = read_keyed(&dir.join("cpuacct.stat"))?;
            let ticks =
                |key| Duration::from_millis(stat.get(key).copied().unwrap_or(0) * 1000 / TICKS_PER_SECOND);
            usage.cpu_user = ticks("user");
            usage.cpu_system = ticks("system");
        }
        if let Some(dir) = self.dirs.get("cpu") {
            let stat = read_keyed(&dir.join("cpu.stat"))?;
            usage.throttled_periods = stat.get("nr_throttled").copied().unwrap_or(0);
            usage.throttled = Duration::from_nanos(stat.get("throttled_time").copied().unwrap_or(0));
        }
        if let Some(dir) = self.dirs.get("memory") {
            usage.memory = read_number(&dir.join("memory.usage_in_bytes"))?.unwrap_or(0);
            usage.memory_peak = read_number(&dir.join("memory.max_usage_in_bytes"))?.unwrap_or(0);
            let stat = read_keyed(&dir.join("memory.stat"))?;
            let bytes = |key| stat.get(key).copied().unwrap_or(0);
            usage.rss = bytes("rss");
            usage.cache = bytes("cache");
            usage.swap = bytes("swap");
        }
        if let Some(dir) = self.dirs.get("pids") {
            usage.pids = read_number(&dir.join("pids.current"))?.unwrap_or(0);
        }
        Ok(usage)
    }

    pub(super) fn oom_kills(&self) -> Result<u64> {
        let Some(dir) = self.dirs.get("memory") else { return Ok(0) };
        Ok(read_keyed(&dir.join("memory.oom_control"))?.get("oom_kill").copied().unwrap_or(0))
    }
}
