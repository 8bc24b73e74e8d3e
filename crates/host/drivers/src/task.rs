//! The data that the client and a driver exchange about a task.

use crate::names::Dns;
use crate::network::NetworkIsolation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The id of one run of a task within a driver: `<allocation>/<task>/<suffix>`, with a suffix that differs for each
/// run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub String);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A task to start. The client has interpolated all texts.
#[derive(Clone, PartialEq)]
pub struct TaskConfig {
    /// The id of this run; unique within the driver.
    pub id: TaskId,
    /// The id of the allocation that the task belongs to.
    pub alloc_id: String,
    /// The task's name in the job file.
    pub task_name: String,
    /// The id of the job.
    pub job_id: String,
    /// The name of the job.
    pub job_name: String,
    /// The id of the job that dispatched or launched the job; empty if there is none.
    pub parent_job_id: String,
    /// The name of the task's group.
    pub group_name: String,
    /// The namespace of the job.
    pub namespace: String,
    /// The id of the node.
    pub node_id: String,
    /// The name of the node.
    pub node_name: String,
    /// The `config` block of the job file; only the driver reads it.
    pub driver_config: serde_json::Value,
    /// The complete environment; the task inherits nothing from the agent.
    pub env: BTreeMap<String, String>,
    /// The resources that the task may use.
    pub resources: Resources,
    /// The processors that the task runs on; drivers without control groups ignore this.
    pub processors: Processors,
    /// The ports of the group.
    pub ports: Vec<Port>,
    /// Volumes and other directories to mount in the task, in this order.
    pub mounts: Vec<Mount>,
    /// Device files that the task may use; drivers whose tasks see the host's root ignore this.
    pub devices: Vec<DeviceNode>,
    /// The part of `env` that device plugins set.
    pub device_env: BTreeMap<String, String>,
    /// The user to run as (`name` or `uid`, either with `:group`); absent means the driver's default.
    pub user: Option<String>,
    /// The task's directories on the host.
    pub dirs: TaskDirs,
    /// The files for the task's output; absent means that the output is discarded.
    pub logs: Option<LogConfig>,
    /// The network of the allocation, which all its tasks share; absent means the host's. Only for drivers with
    /// [`crate::Capabilities::networks`].
    pub network: Option<NetworkIsolation>,
    /// The settings of the task's resolver; absent means those of the node. Only drivers with [`crate::Capabilities::names`]
    /// apply them.
    pub dns: Option<Dns>,
    /// The control group in which the driver creates the task's, relative to the hierarchy's root.
    pub cgroup_parent: PathBuf,
    /// The term of the node's lease, for a task that is the only writer of a volume ([`caravan_shim::lease`]).
    pub lease: Option<caravan_shim::lease::Term>,
    /// Whether the task gets the capabilities, devices and mount propagation to mount on the host for other tasks.
    /// Only for tasks with a `csi_plugin` of type node or monolith.
    pub privileged_mounts: bool,
}

impl fmt::Debug for TaskConfig {
    /// Omits the values of the environment and the driver's configuration, since either may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskConfig")
            .field("id", &self.id)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("resources", &self.resources)
            .field("mounts", &self.mounts)
            .field("devices", &self.devices)
            .field("user", &self.user)
            .field("dirs", &self.dirs)
            .finish_non_exhaustive()
    }
}

/// The resources that a task may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// CPU in MHz, applied as a weight relative to other tasks.
    pub cpu_mhz: u64,
    /// Memory in MB (2^20 bytes).
    pub memory_mb: u64,
    /// Memory limit in MB; `memory_mb` is then only a reservation. Absent means that `memory_mb` is the limit,
    /// [`Self::NO_MEMORY_LIMIT`] that the memory is unlimited.
    pub memory_max_mb: Option<u64>,
    /// CPU of the whole node in MHz; 0 if unknown.
    pub node_cpu_mhz: u64,
}

impl Resources {
    /// The [`Self::memory_max_mb`] of a task without a limit, which job files write as -1.
    pub const NO_MEMORY_LIMIT: u64 = u64::MAX;

    /// Returns the memory limit in MB; `None` if the task has no limit.
    pub fn memory_limit_mb(&self) -> Option<u64> {
        match self.memory_max_mb.filter(|mb| *mb > 0) {
            Some(Self::NO_MEMORY_LIMIT) => None,
            Some(most) => Some(most),
            None => Some(self.memory_mb).filter(|mb| *mb > 0),
        }
    }
}

/// A port of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The name in the job file.
    pub label: String,
    /// The port of the host.
    pub value: u16,
    /// The port in the task's network; 0 if it is the same.
    pub to: u16,
    /// The address of the host that the port belongs to.
    pub host_ip: String,
}

/// The processors of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Processors {
    /// All processors of the host.
    #[default]
    Any,
    /// A list of processors, such as `0-1,4`.
    Only(String),
    /// A list of processors that the task reserved, and uses alone.
    Own(String),
    /// The processors of a group of the cpuset controller (version 1), by its path below the controller's mount.
    Group(PathBuf),
}

/// A directory or file of the host that is mounted in a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path on the host.
    pub host_path: PathBuf,
    /// Path in the task.
    pub task_path: PathBuf,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether later mounts below the path become visible on the other side.
    pub propagation: Propagation,
}

/// A device file of the host that a task may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    /// Path on the host.
    pub host_path: PathBuf,
    /// Path in the task.
    pub task_path: PathBuf,
    /// The permitted uses: some of `r` (read), `w` (write) and `m` (create device files).
    pub permissions: String,
}

/// The propagation of mounts below a mount between host and task. Serialized with the names of job files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Propagation {
    /// No propagation.
    #[default]
    Private,
    /// From the host to the task.
    HostToTask,
    /// In both directions.
    Bidirectional,
}

/// A task's directories on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDirs {
    /// The directory that all tasks of the allocation share: `<allocation>/alloc`.
    pub shared_alloc_dir: PathBuf,
    /// The task's own directory, which contains `local`, `secrets`, `tmp` and `private`.
    pub task_dir: PathBuf,
    /// The driver's directory for this task, which the task cannot see; created by the driver (0700). It is the same
    /// for each run of the task, so that a run without a stored handle is found.
    pub state_dir: PathBuf,
}

/// The files for a task's output: `<dir>/<stdout>.<n>` and `<dir>/<stderr>.<n>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogConfig {
    /// Directory of all log files.
    pub dir: PathBuf,
    /// Name of the standard output's files, without the number (`web.stdout`).
    pub stdout: String,
    /// Name of the standard error's files, without the number.
    pub stderr: String,
    /// Number of files to keep of each.
    pub max_files: u32,
    /// Maximum size of each file in MB (2^20 bytes).
    pub max_file_size_mb: u64,
}

/// The data that finds a task again after a restart of the agent. The client stores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskHandle {
    /// Version of `state`, set by the driver.
    pub version: u32,
    /// Name of the driver that created the handle.
    pub driver: String,
    /// The id of the run.
    pub task_id: TaskId,
    /// Time of the start, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Process id of the task's first process, for display only; absent for drivers without processes.
    pub pid: Option<u32>,
    /// The settings that the kernel refused and that the task runs without, one sentence each; for the task's events.
    pub degraded: Vec<String>,
    /// The network that the driver made for the task; absent if the task has the network of its group.
    #[serde(default)]
    pub network: Option<DriverNetwork>,
    /// The driver's own data; the client does not read it.
    pub state: serde_json::Value,
}

/// A network that a driver made for a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverNetwork {
    /// The task's address.
    pub ip: String,
    /// Ports in the task by label.
    pub ports: BTreeMap<String, u16>,
    /// Whether services without an address mode advertise the address.
    pub advertise: bool,
}

/// The result of a task that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitResult {
    /// Exit code; 0 if a signal ended the task.
    pub exit_code: i32,
    /// Number of the signal that ended the task; 0 if it exited.
    pub signal: i32,
    /// Whether the kernel killed one of its processes for lack of memory.
    pub oom_killed: bool,
    /// The reason that the exit code is not known or that the driver ended the task, or the driver's words for the
    /// exit code.
    pub err: Option<String>,
    /// Whether the task was ended because the node's lease ran out.
    #[serde(default)]
    pub lease_passed: bool,
    /// Time of the end in nanoseconds since 1970; the time of its detection if the end was not observed.
    pub finished_unix_ns: u64,
}

impl ExitResult {
    /// Returns whether the task exited with 0 and without an error.
    pub fn is_success(&self) -> bool {
        self.exit_code == 0 && self.signal == 0 && self.err.is_none()
    }
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The task is running.
    Running,
    /// The task has ended, with this result.
    Exited(ExitResult),
}

/// A task's state and handle.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStatus {
    /// The task's state.
    pub state: TaskState,
    /// The handle that [`crate::Driver::start`] returned.
    pub handle: TaskHandle,
}

/// Resources that one process of a task uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Process id in the host's namespace.
    pub pid: u32,
    /// CPU time in user mode since the process started, in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel since the process started, in nanoseconds.
    pub cpu_system_ns: u64,
    /// Resident memory in bytes.
    pub rss: u64,
    /// Swap in bytes.
    pub swap: u64,
}

/// Resources that a task uses now, and totals since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time since the start, in nanoseconds.
    pub cpu_total_ns: u64,
    /// CPU time in user mode, in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub cpu_system_ns: u64,
    /// Number of scheduler periods in which the task was throttled.
    pub throttled_periods: u64,
    /// Total time of throttling, in nanoseconds.
    pub throttled_ns: u64,
    /// Memory charged to the task now, in bytes.
    pub memory: u64,
    /// Peak of the memory charged, in bytes.
    pub memory_peak: u64,
    /// Anonymous memory in bytes.
    pub rss: u64,
    /// Page cache in bytes.
    pub cache: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Number of processes and threads.
    pub pids: u64,
    /// Time of the measurement, in nanoseconds of the boot clock. Two measurements give the share of a CPU.
    pub boot_time_ns: u64,
    /// Use of each process; empty if the driver does not measure them.
    #[serde(default)]
    pub processes: Vec<ProcessUsage>,
    /// The share of time in which processes wait for resources.
    #[serde(default)]
    pub pressure: Pressure,
}

/// The pressure of a task. A resource is absent if the kernel or the driver does not measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Waiting for a processor.
    pub cpu: Option<Stall>,
    /// Waiting for memory.
    pub memory: Option<Stall>,
    /// Waiting for input and output.
    pub io: Option<Stall>,
}

/// The time in which processes wait for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Percentage of the last 10 seconds in which at least one process waited.
    pub some_avg10: f64,
    /// Percentage of the last 10 seconds in which all processes waited.
    pub full_avg10: f64,
    /// Time in which at least one process waited, in microseconds.
    pub some_total_us: u64,
    /// Time in which all processes waited, in microseconds.
    pub full_total_us: u64,
}

/// The output and exit code of a program that [`crate::Driver::exec`] ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// The first MiB of its standard output.
    pub stdout: Vec<u8>,
    /// The first MiB of its standard error.
    pub stderr: Vec<u8>,
    /// The program's exit code, or 128 plus the signal's number if a signal ended it.
    pub exit_code: i32,
}
