//! The control group and namespaces around a task's processes, and the proof that no process remains.

use crate::filter::Filter;
use crate::spec::{CgroupSpec, DeviceSpec, MountSpec, TaskSpec};
use crate::{Error, Machine, Result, sandbox};
use caravan_sys::caps::CapSet;
use caravan_sys::cgroup::{Cgroup, DeviceAccess, DeviceControl, DeviceRule, Limits};
use caravan_sys::mount::device_number;
use caravan_sys::process::{self, Exit, Namespaces, PidFd, Reaped};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The number of SIGKILL, which no process survives.
const SIGKILL: i32 = nix::libc::SIGKILL;

/// The control group and namespaces of a task.
#[derive(Debug)]
pub(crate) struct Surroundings {
    cgroup: Option<Cgroup>,
    sandbox: Option<PidFd>,
    /// The namespaces of the sandbox that the task's programs enter.
    namespaces: Namespaces,
    filter: Option<Filter>,
    oom_kills_before: u64,
}

impl Surroundings {
    /// Creates the control group and the namespaces. Features that the machine does not offer are left out and added
    /// to `degraded`, but a feature that the task's isolation requires is an error.
    pub(crate) fn make(spec: &TaskSpec, machine: &Machine, degraded: &mut Vec<String>) -> Result<Self> {
        if let Some(network) = &spec.network {
            // Applies to all later children too, including programs that clients run in the task.
            caravan_sys::netns::enter(network)?;
        }
        let cgroup = match &spec.cgroup {
            None => None,
            Some(desired) => make_cgroup(desired, spec, machine, degraded)?,
        };
        let oom_kills_before = cgroup.as_ref().and_then(|c| c.oom_kills().ok()).unwrap_or(0);
        let mut made =
            Self { cgroup, sandbox: None, namespaces: Namespaces::default(), filter: None, oom_kills_before };
        if let Some(isolation) = &spec.isolation {
            made.namespaces = Namespaces {
                mount: true,
                ipc: isolation.private_ipc,
                uts: isolation.hostname.is_some(),
                pid: false,
            };
            if isolation.filtered {
                made.filter = Some(Filter::new(CapSet::from_bits(isolation.capabilities)));
            }
            match sandbox::build(isolation, made.entry(spec), || made.join_cgroup(spec)) {
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

    /// Returns the filter of the system calls that the task's programs may make; `None` allows all.
    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Returns the namespaces of the sandbox that the task's programs enter.
    pub(crate) fn namespaces(&self) -> Namespaces {
        self.namespaces
    }

    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Opens the control group, so that a child can be forked into it; `None` if a child has to join by itself.
    pub(crate) fn entry(&self, spec: &TaskSpec) -> Option<OwnedFd> {
        self.cgroup.as_ref()?.entry(&spec.cgroup.as_ref()?.elsewhere)
    }

    /// Moves the calling process into the control group.
    pub(crate) fn join_cgroup(&self, spec: &TaskSpec) -> Result<()> {
        if let (Some(cgroup), Some(desired)) = (&self.cgroup, &spec.cgroup) {
            // The caller may be in a PID namespace; zero means the caller in any namespace.
            cgroup.add(0, &desired.elsewhere)?;
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

/// Creates the task's control group. Limits that the machine cannot enforce are added to `degraded`, but a task with
/// its own root does not start without limits of its devices.
fn make_cgroup(
    desired: &CgroupSpec,
    spec: &TaskSpec,
    machine: &Machine,
    degraded: &mut Vec<String>,
) -> Result<Option<Cgroup>> {
    let is_confined = spec.isolation.as_ref().is_some_and(|i| !i.privileged);
    let Some(hierarchy) = &machine.cgroups else {
        if is_confined {
            return Err(Error::Launch(
                "the task's devices cannot be limited: the host has no control groups".into(),
            ));
        }
        degraded.push("the host has no control groups: limits are not enforced".into());
        return Ok(None);
    };
    let mut create = || -> caravan_sys::Result<Cgroup> {
        let devices = if is_confined { DeviceControl::On } else { DeviceControl::Off };
        let cgroup = Cgroup::at(hierarchy, &desired.path)?;
        if !cgroup.make(devices)? {
            // The group may be left from an earlier run whose shim was killed; none of its processes may run together
            // with the new task.
            cgroup.kill_until_empty(1000, Duration::from_millis(2))?;
            cgroup.remove()?;
            cgroup.make(devices)?;
        }
        let limits = Limits {
            cpu_shares: desired.cpu_shares,
            memory_max: desired.memory_max,
            memory_reserved: desired.memory_reserved,
            swap_max: desired.swap_max,
            pids_max: desired.pids_max,
            cpus: desired.cpus.clone(),
            own_cpus: desired.own_cpus,
            ..Limits::default()
        };
        let mut refused = cgroup.set_limits(&limits);
        if is_confined {
            match cgroup.restrict_devices(&allowed_devices(spec)) {
                Ok(devices) => refused.extend(devices),
                Err(error) => {
                    let _empty = cgroup.remove();
                    return Err(error);
                }
            }
        }
        for error in refused {
            degraded.push(format!("a limit is not enforced: {}", caravan_sys::describe(&error)));
        }
        Ok(cgroup)
    };
    match create() {
        Ok(cgroup) => Ok(Some(cgroup)),
        Err(error) if is_confined => Err(error.into()),
        Err(error) => {
            degraded.push(format!("limits are not enforced: {}", caravan_sys::describe(&error)));
            Ok(None)
        }
    }
}

/// Returns the task's devices: its assigned ones, and volumes that it uses as block devices.
fn allowed_devices(spec: &TaskSpec) -> Vec<DeviceRule> {
    let mounts = spec.isolation.iter().flat_map(|isolation| &isolation.mounts);
    let rule = |mount: &MountSpec| {
        // If the path cannot be examined, it cannot be mounted either, and the mount reports the error.
        let (kind, device) = device_number(&mount.host).ok()??;
        Some(DeviceRule::using(kind, device, !mount.read_only))
    };
    let devices = spec.isolation.iter().flat_map(|isolation| &isolation.devices);
    let assigned = |spec: &DeviceSpec| {
        let (kind, device) = device_number(&spec.host).ok()??;
        let access = DeviceAccess { read: spec.read, write: spec.write, create: spec.create };
        Some(DeviceRule { access, ..DeviceRule::using(kind, device, spec.write) })
    };
    mounts.filter_map(rule).chain(devices.filter_map(assigned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{CommandSpec, IsolationSpec};
    use caravan_sys::cgroup::Hierarchy;
    use std::collections::BTreeMap;

    fn spec(is_isolated: bool) -> TaskSpec {
        let isolation = IsolationSpec {
            root: "/nonexistent".into(),
            host_paths: BTreeMap::new(),
            mounts: Vec::new(),
            devices: Vec::new(),
            hidden: Vec::new(),
            private_pids: true,
            private_ipc: true,
            hostname: None,
            capabilities: 0,
            ambient: 0,
            privileged: false,
            filtered: true,
            no_new_privileges: true,
        };
        TaskSpec {
            task_id: "t".into(),
            state_dir: "/nonexistent".into(),
            command: CommandSpec {
                program: "true".into(),
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: "/".into(),
                base: None,
                search: Vec::new(),
            },
            user: None,
            logs: None,
            cgroup: Some(CgroupSpec {
                path: "caravan-test/t".into(),
                cpu_shares: None,
                memory_max: None,
                memory_reserved: None,
                swap_max: None,
                pids_max: None,
                cpus: None,
                own_cpus: false,
                elsewhere: BTreeMap::new(),
            }),
            rlimits: Vec::new(),
            oom_score_adj: None,
            isolation: is_isolated.then_some(isolation),
            network: None,
            lease: None,
        }
    }

    #[test]
    fn a_task_with_its_own_root_does_not_start_without_device_rules() {
        let without = Machine { cgroups: Some(Hierarchy::V1(BTreeMap::new())) };
        let none = Machine { cgroups: None };
        let make = |spec: &TaskSpec, machine: &Machine| {
            let mut degraded = Vec::new();
            let made = make_cgroup(spec.cgroup.as_ref().unwrap(), spec, machine, &mut degraded);
            made.map(|_| degraded).map_err(|error| error.to_string())
        };
        let error = make(&spec(true), &without).unwrap_err();
        assert_eq!(error, "the use of devices cannot be limited: the host has no devices controller");
        assert!(make(&spec(true), &none).unwrap_err().contains("the host has no control groups"));
        // Plugins and tasks of raw_exec use the host's devices anyway.
        let mut plugin = spec(true);
        plugin.isolation.as_mut().unwrap().privileged = true;
        for open in [plugin, spec(false)] {
            assert_eq!(make(&open, &without), Ok(Vec::new()));
            assert_eq!(make(&open, &none).unwrap().len(), 1);
        }
    }
}
