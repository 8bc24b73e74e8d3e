//! Converts the client's description of a task to a shim's specification.

use crate::task::{DeviceNode, Mount, Pressure, ProcessUsage, Processors, Propagation, Stall, TaskConfig};
use crate::{Error, Result};
use caravan_shim::spec::{CgroupSpec, DeviceSpec, LogSpec, MountPropagation, MountSpec, UserSpec};
use caravan_sys::user::Account;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// Looks up a user on a blocking thread, since the lookup may query a directory service.
pub(crate) async fn account(user: &str) -> Result<Account> {
    let desired = user.to_owned();
    let found = tokio::task::spawn_blocking(move || caravan_sys::user::lookup(&desired)).await;
    match found {
        Ok(found) => found.map_err(|e| Error::Config(caravan_sys::describe(&e))),
        Err(_) => Err(Error::Start {
            message: format!("the search for user {user:?} was cut off"),
            recoverable: true,
        }),
    }
}

pub(crate) fn process_usage(report: caravan_shim::protocol::ProcessReport) -> ProcessUsage {
    ProcessUsage {
        pid: report.pid,
        cpu_user_ns: report.cpu_user_ns,
        cpu_system_ns: report.cpu_system_ns,
        rss: report.rss,
        swap: report.swap,
    }
}

pub(crate) fn pressure(report: caravan_shim::protocol::PressureReport) -> Pressure {
    let stall = |report: caravan_shim::protocol::StallReport| Stall {
        some_avg10: report.some_avg10,
        full_avg10: report.full_avg10,
        some_total_us: report.some_total_us,
        full_total_us: report.full_total_us,
    };
    Pressure { cpu: report.cpu.map(stall), memory: report.memory.map(stall), io: report.io.map(stall) }
}

pub(crate) fn user(account: &Account) -> UserSpec {
    UserSpec { uid: account.uid, gid: account.gid, groups: account.groups.clone() }
}

pub(crate) fn logs(task: &TaskConfig) -> Option<LogSpec> {
    task.logs.as_ref().map(|logs| LogSpec {
        dir: logs.dir.clone(),
        stdout: logs.stdout.clone(),
        stderr: logs.stderr.clone(),
        max_files: logs.max_files,
        max_bytes: logs.max_file_size_mb.saturating_mul(MIB),
    })
}

/// Returns the task's control group: a child of the agent's parent group, named after allocation and task.
pub(crate) fn cgroup(task: &TaskConfig) -> CgroupSpec {
    let resources = &task.resources;
    let reserved = (resources.memory_mb > 0).then(|| resources.memory_mb.saturating_mul(MIB));
    let has_most = resources.memory_max_mb.is_some_and(|mb| mb > 0);
    let (cpus, elsewhere) = match &task.processors {
        Processors::Any => (None, BTreeMap::new()),
        Processors::Only(cpus) | Processors::Own(cpus) => (Some(cpus.clone()), BTreeMap::new()),
        Processors::Group(path) => (None, BTreeMap::from([("cpuset".to_owned(), path.clone())])),
    };
    CgroupSpec {
        path: task.cgroup_parent.join(format!("{}.{}", task.alloc_id, task.task_name)),
        cpu_shares: (resources.cpu_mhz > 0).then_some(resources.cpu_mhz),
        memory_max: resources.memory_limit_mb().map(|mb| mb.saturating_mul(MIB)),
        // A reservation has an effect only below the limit.
        memory_reserved: reserved.filter(|_| has_most),
        // A task that swaps would slow down the node's other tasks, and use more memory than the job requests.
        swap_max: Some(0),
        pids_max: None,
        own_cpus: matches!(task.processors, Processors::Own(_)),
        cpus,
        elsewhere,
    }
}

pub(crate) fn mount(mount: &Mount) -> MountSpec {
    MountSpec {
        host: mount.host_path.clone(),
        task: mount.task_path.clone(),
        read_only: mount.read_only,
        propagation: match mount.propagation {
            Propagation::Private => MountPropagation::Private,
            Propagation::HostToTask => MountPropagation::HostToTask,
            Propagation::Bidirectional => MountPropagation::Bidirectional,
        },
    }
}

/// Converts a device file that a device plugin or the job file names. Symbolic links on the host are resolved.
pub(crate) fn device(node: &DeviceNode) -> Result<DeviceSpec> {
    if node.permissions.chars().any(|letter| !"rwm".contains(letter)) {
        return Err(Error::Config(format!("invalid cgroup permission string: {:?}", node.permissions)));
    }
    let host = node.host_path.canonicalize().map_err(|error| Error::Start {
        message: format!("device {} cannot be used: {error}", node.host_path.display()),
        recoverable: true,
    })?;
    // Without letters, every use is allowed.
    let may = |letter| node.permissions.is_empty() || node.permissions.contains(letter);
    let task = node.task_path.clone();
    Ok(DeviceSpec { host, task, read: may('r'), write: may('w'), create: may('m') })
}

/// Checks an `oom_score_adj` of a task. Negative values are refused: the kernel must not kill the node's own
/// processes before a task.
pub(crate) fn oom_score(value: Option<i64>) -> Result<Option<i32>> {
    let Some(value) = value else { return Ok(None) };
    i32::try_from(value)
        .ok()
        .filter(|score| (0..=1000).contains(score))
        .map(Some)
        .ok_or_else(|| Error::Config(format!("oom_score_adj must be 0 to 1000, not {value}")))
}
