//! Version 2: one directory (`Documentation/admin-guide/cgroup-v2.rst` of the kernel).

use super::devices::{BASIC_DEVICES, DeviceRule};
use super::place::{is_delegated, is_managed};
use super::pressure::Pressure;
use super::{Limits, Usage, cpuset, is_gone, nested, program, read_keyed, read_number, write};
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The controllers that limits and usage need.
pub(super) const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// The file with the controllers that a group passes to its children.
const PASSED: &str = "cgroup.subtree_control";

/// The file with the memory that the kernel reclaims last.
const LOW: &str = "memory.low";

/// The attribute with the device rules of a group, one a line. The kernel does not return the rules of a program.
const RULES: &CStr = c"trusted.caravan.devices";

/// The maximum number of bytes of [`RULES`].
const MAX_RULES: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    root: PathBuf,
    dir: PathBuf,
}

impl Group {
    pub(super) fn at(root: &Path, relative: &Path) -> Self {
        Self { root: root.to_owned(), dir: root.join(relative) }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn exists(&self) -> bool {
        self.dir.exists()
    }

    pub(super) fn create(&self) -> Result<bool> {
        let is_new = super::create_dir(&self.dir)?;
        let mut above: Vec<&Path> =
            self.dir.ancestors().skip(1).take_while(|dir| dir.starts_with(&self.root)).collect();
        above.reverse();
        for dir in above {
            pass_controllers(&self.root, dir);
        }
        Ok(is_new)
    }

    pub(super) fn set_limits(&self, limits: &Limits) -> Vec<Error> {
        let plain = |value: Option<u64>| value.map(|value| value.to_string());
        let values = [
            ("cpu.weight", plain(limits.cpu_shares.map(weight))),
            ("cpu.max", limits.cpu_quota.map(|quota| format!("{} {}", quota.quota_us, quota.period_us))),
            (LOW, plain(limits.memory_reserved)),
            ("memory.high", plain(limits.memory_high)),
            ("memory.max", plain(limits.memory_max)),
            ("pids.max", plain(limits.pids_max)),
        ];
        let mut failed: Vec<Error> = values
            .into_iter()
            .filter_map(|(file, value)| write(&self.dir.join(file), &value?).err())
            .collect();
        if limits.memory_reserved.is_some() {
            self.reserve_above();
        }
        if let Some(swap) = limits.swap_max {
            // A kernel without swap, or without its accounting, lacks the file.
            failed.extend(
                write(&self.dir.join("memory.swap.max"), &swap.to_string())
                    .err()
                    .filter(|error| !error.is_not_found()),
            );
        }
        failed.extend(limits.io_weight.and_then(|weight| self.set_io_weight(weight).err()));
        if let Some(cpus) = &limits.cpus {
            failed.extend(write(&self.dir.join(cpuset::CPUS), cpus).err());
            if limits.own_cpus && failed.is_empty() {
                cpuset::isolate(&self.root, &self.dir, cpus);
            }
        }
        failed
    }

    /// Sets the reserved memory of the groups above to the sum of their children's: the kernel protects no more
    /// memory of a group than the groups above reserve. A failure only costs protection.
    fn reserve_above(&self) {
        let low = |dir: &Path| read_number(&dir.join(LOW)).ok().flatten().unwrap_or(0);
        for dir in self.dir.ancestors().skip(1).take_while(|dir| *dir != self.root) {
            let is_ours = !is_managed() || dir.parent().is_some_and(|above| is_delegated(&self.root, above));
            let (true, Ok(children)) = (is_ours, std::fs::read_dir(dir)) else { return };
            let sum: u64 = children.flatten().map(|child| low(&child.path())).fold(0, u64::saturating_add);
            if sum == low(dir) || write(&dir.join(LOW), &sum.to_string()).is_err() {
                return;
            }
        }
    }

    /// Sets the weight for input and output, of the kernel's cost model or else of the BFQ scheduler.
    fn set_io_weight(&self, weight: u16) -> Result<()> {
        match write(&self.dir.join("io.weight"), &format!("default {weight}")) {
            Err(error) if error.is_not_found() => {
                write(&self.dir.join("io.bfq.weight"), &weight.min(1000).to_string())
            }
            outcome => outcome,
        }
    }

    /// Limits devices to the basic ones and the granted ones.
    pub(super) fn restrict_devices(&self, granted: &[DeviceRule]) -> Result<()> {
        let rules: Vec<DeviceRule> = BASIC_DEVICES.iter().chain(granted).copied().collect();
        self.set_devices(&rules)
    }

    /// Adds a rule, if the group has rules.
    pub(super) fn allow_device(&self, rule: DeviceRule) -> Result<()> {
        let Some(mut rules) = self.devices()? else { return Ok(()) };
        if rules.contains(&rule) {
            return Ok(());
        }
        rules.push(rule);
        self.set_devices(&rules)
    }

    fn set_devices(&self, rules: &[DeviceRule]) -> Result<()> {
        let lines: Vec<String> = rules.iter().map(ToString::to_string).collect();
        // Write the text first: a program without its rules in the text would lose rules at the next change.
        rustix::fs::setxattr(&self.dir, RULES, lines.join("\n").as_bytes(), XattrFlags::empty())
            .map_err(Error::errno("keep the device rules of", &self.dir))?;
        program::limit(&self.dir, rules)
    }

    /// Returns the device rules of the group; `None` if its devices are not limited.
    fn devices(&self) -> Result<Option<Vec<DeviceRule>>> {
        let mut buffer = vec![0; MAX_RULES];
        let length = match rustix::fs::getxattr(&self.dir, RULES, &mut buffer[..]) {
            Ok(length) => length,
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOENT | rustix::io::Errno::OPNOTSUPP) => {
                return Ok(None);
            }
            Err(errno) => return Err(Error::errno("read the device rules of", &self.dir)(errno)),
        };
        buffer.truncate(length);
        let text = String::from_utf8_lossy(&buffer);
        text.lines().map(str::parse).collect::<Result<Vec<_>>>().map(Some)
    }

    /// Opens the directory that a process joins; `None` if it does not exist.
    pub(super) fn entry(&self, elsewhere: &BTreeMap<String, PathBuf>) -> Option<OwnedFd> {
        let dir = self.entered(elsewhere);
        rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
    }

    fn entered(&self, elsewhere: &BTreeMap<String, PathBuf>) -> PathBuf {
        elsewhere.get("").map_or_else(|| self.dir.clone(), |path| super::below_mount(&self.root, path))
    }

    pub(super) fn add(&self, pid: u32, elsewhere: &BTreeMap<String, PathBuf>) -> Result<()> {
        let dir = self.entered(elsewhere);
        if dir != self.dir {
            std::fs::create_dir_all(&dir).map_err(Error::path("create cgroup", &dir))?;
        }
        write(&dir.join("cgroup.procs"), &pid.to_string())
    }

    /// Returns whether no process is in the group or below.
    pub(super) fn is_empty(&self) -> Result<bool> {
        Ok(read_keyed(&self.dir.join("cgroup.events"))?.get("populated").is_none_or(|count| *count == 0))
    }

    /// Kills all processes of the group and the groups below. Returns `false` if the kernel has no `cgroup.kill`; a
    /// missing group counts as killed.
    pub(super) fn kill(&self) -> Result<bool> {
        match write(&self.dir.join("cgroup.kill"), "1") {
            Ok(()) => Ok(true),
            Err(e) if e.is_not_found() => Ok(!self.dir.exists()),
            Err(e) if e.io().is_some_and(is_gone) => Ok(true),
            Err(e) => Err(e),
        }
    }

    pub(super) fn freeze(&self, on: bool) -> Result<()> {
        match write(&self.dir.join("cgroup.freeze"), if on { "1" } else { "0" }) {
            Err(e) if !matches!(e.io().map(io::Error::kind), Some(io::ErrorKind::NotFound)) => Err(e),
            _ => Ok(()),
        }
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        let cpu = read_keyed(&self.dir.join("cpu.stat"))?;
        let micros = |key| Duration::from_micros(cpu.get(key).copied().unwrap_or(0));
        let memory = read_keyed(&self.dir.join("memory.stat"))?;
        let bytes = |key| memory.get(key).copied().unwrap_or(0);
        let number = |file| Ok::<_, Error>(read_number(&self.dir.join(file))?.unwrap_or(0));
        Ok(Usage {
            cpu_total: micros("usage_usec"),
            cpu_user: micros("user_usec"),
            cpu_system: micros("system_usec"),
            throttled_periods: cpu.get("nr_throttled").copied().unwrap_or(0),
            throttled: micros("throttled_usec"),
            memory: number("memory.current")?,
            memory_peak: number("memory.peak")?,
            rss: bytes("anon"),
            cache: bytes("file"),
            swap: number("memory.swap.current")?,
            pids: number("pids.current")?,
            pressure: Pressure::of_group(&self.dir),
        })
    }

    /// Counts the processes that were killed for lack of memory, in the group and in groups below, also removed ones.
    pub(super) fn oom_kills(&self) -> Result<u64> {
        let count = |dir: &Path, file: &str| {
            Ok::<_, Error>(read_keyed(&dir.join(file))?.get("oom_kill").copied().unwrap_or(0))
        };
        let mut below = 0;
        for dir in nested(&self.dir) {
            below += count(&dir, "memory.events.local")?;
        }
        // `memory.events` counts the groups below, unless the hierarchy is mounted with `memory_localevents`.
        Ok(count(&self.dir, "memory.events")?.max(below))
    }
}

/// Passes the controllers from a group to its children, as far as the group has them and the agent may change the
/// group. If a limit needs a controller that is missing, setting that limit reports the error.
fn pass_controllers(root: &Path, dir: &Path) {
    let words = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap_or_default();
    let (available, passed) = (words("cgroup.controllers"), words(PASSED));
    let has = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
    let missing: Vec<&str> =
        CONTROLLERS.into_iter().filter(|name| has(&available, name) && !has(&passed, name)).collect();
    if missing.is_empty() || (is_managed() && !is_delegated(root, dir)) {
        return;
    }
    for controller in missing {
        let _unavailable = write(&dir.join(PASSED), &format!("+{controller}"));
    }
}

/// Converts `cpu.shares` (2 to 262144, default 1024) to `cpu.weight` (1 to 10000, default 100), by the linear map
/// that container runtimes use.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

#[cfg(test)]
mod tests {
    use super::weight;

    #[test]
    fn shares_map_onto_weights() {
        assert_eq!(weight(0), 1);
        assert_eq!(weight(2), 1);
        assert_eq!(weight(262_144), 10_000);
        assert_eq!(weight(1024), 39);
    }
}
