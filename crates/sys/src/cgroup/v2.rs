//! Version 2: one directory (`Documentation/admin-guide/cgroup-v2.rst` of the kernel).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Limits, Usage, cpuset, read_keyed, read_number, write};
use crate::{Error, Result};

/// The controllers that limits and usage need.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

#[derive(Debug, Clone, PartialEq, Eq)]
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
            for controller in CONTROLLERS {
                // A controller may be unavailable: mounted as version 1, or not enabled in the parent. If a limit
                // needs it, setting that limit reports the error.
                let _unavailable = write(&dir.join("cgroup.subtree_control"), &format!("+{controller}"));
            }
        }
        Ok(is_new)
    }

    pub(super) fn set_limits(&self, limits: &Limits) -> Vec<Error> {
        let cpus = limits.cpus.as_ref().and_then(|cpus| write(&self.dir.join(cpuset::CPUS), cpus).err());
        let values = [
            ("cpu.weight", limits.cpu_shares.map(weight)),
            ("memory.max", limits.memory_max),
            ("memory.low", limits.memory_reserved),
            ("pids.max", limits.pids_max),
        ];
        values
            .into_iter()
            .filter_map(|(file, value)| write(&self.dir.join(file), &value?.to_string()).err())
            .chain(cpus)
            .collect()
    }

    pub(super) fn add(&self, pid: u32, elsewhere: &BTreeMap<String, PathBuf>) -> Result<()> {
        let dir = match elsewhere.get("") {
            Some(path) => {
                let dir = self.root.join(path.strip_prefix("/").unwrap_or(path));
                std::fs::create_dir_all(&dir).map_err(Error::path("create cgroup", &dir))?;
                dir
            }
            None => self.dir.clone(),
        };
        write(&dir.join("cgroup.procs"), &pid.to_string())
    }

    /// Kills all processes of the group. Returns `false` if the kernel has no `cgroup.kill`; a missing group counts
    /// as killed.
    pub(super) fn kill(&self) -> Result<bool> {
        match write(&self.dir.join("cgroup.kill"), "1") {
            Ok(()) => Ok(true),
            Err(e) if e.is_not_found() => Ok(!self.dir.exists()),
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
        })
    }

    pub(super) fn oom_kills(&self) -> Result<u64> {
        Ok(read_keyed(&self.dir.join("memory.events"))?.get("oom_kill").copied().unwrap_or(0))
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
