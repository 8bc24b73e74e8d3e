//! Version 1: one directory per controller.

use super::devices::{BASIC_DEVICES, DeviceRefusal, DeviceRule};
use super::{DeviceControl, Limits, Usage, cpuset, is_gone, nested, read_keyed, read_number, write};
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The controllers that this module uses.
pub(super) const CONTROLLERS: [&str; 7] = ["cpu", "cpuacct", CPUSET, DEVICES, "freezer", "memory", "pids"];

/// The controller whose groups accept no process before their processors are set. Only groups with limited processors
/// have a directory here.
pub(super) const CPUSET: &str = "cpuset";

/// The controller without a directory for groups with [`DeviceControl::Off`].
pub(super) const DEVICES: &str = "devices";

/// `USER_HZ`, the unit of `cpuacct.stat`: 100 on every supported architecture (time(7)).
const TICKS_PER_SECOND: u64 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
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
        let desired = self.dirs.iter().filter(|(name, dir)| {
            Some(*dir) != sets && (devices == DeviceControl::On || name.as_str() != DEVICES)
        });
        let dirs: BTreeSet<&PathBuf> = desired.map(|(_, dir)| dir).collect();
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

    /// Returns the directory of the controller of processors, if the host has one.
    pub(super) fn cpuset_dir(&self) -> Option<&Path> {
        self.dirs.get(CPUSET).map(PathBuf::as_path)
    }

    /// Returns the directory of the controller that users are least likely to override.
    pub(super) fn procs_dir(&self) -> PathBuf {
        ["freezer", "pids", "memory"]
            .iter()
            .find_map(|name| self.dirs.get(*name))
            .or_else(|| self.dirs.values().next())
            .cloned()
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
        if let Some(quota) = limits.cpu_quota {
            set("cpu", "cpu.cfs_period_us", Some(quota.period_us));
            set("cpu", "cpu.cfs_quota_us", Some(quota.quota_us));
        }
        if limits.swap_max == Some(0) {
            set("memory", "memory.swappiness", Some(0));
        }
        for (what, value) in
            [("memory_high", limits.memory_high), ("io_weight", limits.io_weight.map(u64::from))]
        {
            failed.extend(value.map(|value| Error::Malformed {
                what: format!("limit {what} = {value}"),
                detail: "control groups version 1 have no such limit".into(),
            }));
        }
        failed
    }

    pub(super) fn restrict_devices(&self, granted: &[DeviceRule]) -> Result<Vec<Error>> {
        let Some(dir) = self.dirs.get(DEVICES) else {
            return Err(Error::Devices(DeviceRefusal::NoController));
        };
        write(&dir.join("devices.deny"), "a")?;
        let allow = |rule: &DeviceRule| write(&dir.join("devices.allow"), &rule.to_string()).err();
        Ok(BASIC_DEVICES.iter().chain(granted).filter_map(allow).collect())
    }

    pub(super) fn allow_device(&self, rule: DeviceRule) -> Result<()> {
        match self.dirs.get(DEVICES) {
            Some(dir) if dir.exists() => write(&dir.join("devices.allow"), &rule.to_string()),
            _ => Ok(()),
        }
    }

    /// Limits the group to processors.
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
            // Without limited processors, the directory would limit the task to all processors of the parent group.
            let _unused = std::fs::remove_dir(dir);
        }
        set
    }

    pub(super) fn add(&self, pid: u32, elsewhere: &BTreeMap<String, PathBuf>) -> Result<()> {
        for (controller, dir) in &self.dirs {
            let own = || dir.clone();
            let target = elsewhere.get(controller).map_or_else(own, |path| {
                let mount = self.mounts.get(controller).cloned().unwrap_or_default();
                super::below_mount(&mount, path)
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
        let count = |dir: &Path| {
            let text = read_keyed(&dir.join("memory.oom_control"))?;
            Ok::<_, Error>(text.get("oom_kill").copied().unwrap_or(0))
        };
        // Each group counts its own processes only.
        nested(dir).iter().try_fold(count(dir)?, |sum, below| Ok(sum + count(below)?))
    }
}
