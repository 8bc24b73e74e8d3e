//! The control group and namespaces around a task's processes, and the proof that no process remains.

use std::time::Duration;

use caravan_sys::caps::CapSet;
use caravan_sys::cgroup::{Cgroup, DeviceControl, DeviceRule, Limits};
use caravan_sys::mount::device_number;
use caravan_sys::process::{self, Exit, PidFd, Reaped};

use crate::filter::Filter;
use crate::spec::{CgroupSpec, MountSpec, TaskSpec};
use crate::{Machine, Result, sandbox};

/// The number of SIGKILL, which no process survives.
const SIGKILL: i32 = nix::libc::SIGKILL;

/// The control group and namespaces of a task.
#[derive(Debug)]
pub(crate) struct Surroundings {
    cgroup: Option<Cgroup>,
    sandbox: Option<PidFd>,
    private_ipc: bool,
    filter: Option<Filter>,
    oom_kills_before: u64,
}

impl Surroundings {
    /// Creates them. Features that the machine does not offer are left out and added to `degraded`, but a feature
    /// that the task's isolation requires is an error.
    pub(crate) fn make(spec: &TaskSpec, machine: &Machine, degraded: &mut Vec<String>) -> Result<Self> {
        if let Some(network) = &spec.network {
            // Applies to all later children too, including programs that clients run in the task.
            caravan_sys::netns::enter(network)?;
        }
        let cgroup = match &spec.cgroup {
            None => None,
            Some(wanted) => make_cgroup(wanted, spec, machine, degraded),
        };
        let oom_kills_before = cgroup.as_ref().and_then(|c| c.oom_kills().ok()).unwrap_or(0);
        let mut made = Self { cgroup, sandbox: None, private_ipc: false, filter: None, oom_kills_before };
        if let Some(isolation) = &spec.isolation {
            made.private_ipc = isolation.private_ipc;
            if isolation.filtered {
                made.filter = Some(Filter::of(CapSet::from_bits(isolation.capabilities)));
            }
            match sandbox::build(isolation, || made.join_cgroup(spec)) {
                Ok(holder) => made.sandbox = Some(holder),
                Err(error) => {
                    made.end();
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    /// Returns the process that holds the namespaces.
    pub(crate) fn sandbox(&self) -> Option<&PidFd> {
        self.sandbox.as_ref()
    }

    /// Returns the filter of the system calls that its programs may make; `None` allows all.
    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    pub(crate) fn private_ipc(&self) -> bool {
        self.private_ipc
    }

    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Moves the calling process into the control group.
    pub(crate) fn join_cgroup(&self, spec: &TaskSpec) -> Result<()> {
        if let (Some(cgroup), Some(wanted)) = (&self.cgroup, &spec.cgroup) {
            // The caller may be in a PID namespace; zero means the caller in any namespace.
            cgroup.add(0, &wanted.elsewhere)?;
        }
        Ok(())
    }

    /// Kills every process of the task: its control group, the holder of its namespaces, and every other child of the
    /// shim. An orphan that joined another control group is such a child, because the shim is the subreaper.
    pub(crate) fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            let _retried_by_caller = cgroup.kill();
        }
        if let Some(holder) = &self.sandbox {
            let _gone = holder.send_signal(SIGKILL);
        }
        for pid in process::children().unwrap_or_default() {
            // An unreaped child of the shim, so the id cannot belong to another process.
            if let Ok(Some(child)) = PidFd::open(pid) {
                let _gone = child.send_signal(SIGKILL);
            }
        }
    }

    /// Reaps all ended children. Returns whether no process of the task remains.
    pub(crate) fn reap(&self, mut ended: impl FnMut(u32, Exit)) -> Result<bool> {
        loop {
            match process::reap()? {
                Reaped::Ended(pid, exit) => ended(pid, exit),
                Reaped::NoneEnded => return Ok(false),
                Reaped::NoChildren => {
                    return Ok(match &self.cgroup {
                        Some(cgroup) => cgroup.is_empty()?,
                        None => true,
                    });
                }
            }
        }
    }

    /// Returns whether a process of the task was killed for lack of memory.
    pub(crate) fn oom_killed(&self) -> bool {
        self.cgroup
            .as_ref()
            .and_then(|c| c.oom_kills().ok())
            .is_some_and(|kills| kills > self.oom_kills_before)
    }

    /// Kills all remaining processes, waits until they have ended, and removes the control group. For a start that
    /// failed.
    pub(crate) fn end(&self) {
        for _ in 0..1000 {
            self.kill();
            if self.reap(|_, _| {}).unwrap_or(true) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.remove();
    }

    /// Removes the control group.
    pub(crate) fn remove(&self) {
        if let Some(cgroup) = &self.cgroup {
            // A group that is not empty stays visible for the operator.
            let _not_empty = cgroup.remove();
        }
    }
}

fn make_cgroup(
    wanted: &CgroupSpec,
    spec: &TaskSpec,
    machine: &Machine,
    degraded: &mut Vec<String>,
) -> Option<Cgroup> {
    let mut create = || -> caravan_sys::Result<Option<Cgroup>> {
        let Some(hierarchy) = &machine.cgroups else {
            degraded.push("the host has no control groups: limits are not enforced".into());
            return Ok(None);
        };
        let is_confined = spec.isolation.as_ref().is_some_and(|i| !i.privileged);
        let devices = if is_confined { DeviceControl::On } else { DeviceControl::Off };
        let cgroup = Cgroup::at(hierarchy, &wanted.path)?;
        if !cgroup.make(devices)? {
            // The group may be left from an earlier run whose shim was killed; none of its processes may run beside
            // the new task.
            cgroup.kill_until_empty(1000, Duration::from_millis(2))?;
            cgroup.remove()?;
            cgroup.make(devices)?;
        }
        let limits = Limits {
            cpu_shares: wanted.cpu_shares,
            memory_max: wanted.memory_max,
            memory_reserved: wanted.memory_reserved,
            pids_max: wanted.pids_max,
            cpus: wanted.cpus.clone(),
            only_basic_devices: is_confined,
            devices: mounted_devices(spec),
        };
        for error in cgroup.set_limits(&limits) {
            degraded.push(format!("a limit is not enforced: {}", caravan_sys::describe(&error)));
        }
        Ok(Some(cgroup))
    };
    match create() {
        Ok(cgroup) => cgroup,
        Err(error) => {
            degraded.push(format!("limits are not enforced: {}", caravan_sys::describe(&error)));
            None
        }
    }
}

/// Returns the devices among the task's mounts: volumes that it uses as block devices.
fn mounted_devices(spec: &TaskSpec) -> Vec<DeviceRule> {
    let mounts = spec.isolation.iter().flat_map(|isolation| &isolation.mounts);
    let rule = |mount: &MountSpec| {
        // If the path cannot be examined, it cannot be mounted either, and the mount reports the error.
        let (kind, device) = device_number(&mount.host).ok()??;
        Some(DeviceRule { kind, device, write: !mount.read_only })
    };
    mounts.filter_map(rule).collect()
}
