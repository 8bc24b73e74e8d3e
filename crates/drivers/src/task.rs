//! What the client and a driver tell each other about a task.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A task's id within a driver: one per run of a task, `<allocation>/<task>/<anything>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub String);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A task to start. All texts are interpolated.
#[derive(Clone, PartialEq)]
pub struct TaskConfig {
    /// Its id.
    pub id: TaskId,
    /// The allocation.
    pub alloc_id: String,
    /// The task's name.
    pub task_name: String,
    /// The job's id.
    pub job_id: String,
    /// The group's name.
    pub group_name: String,
    /// The job's namespace.
    pub namespace: String,
    /// The `config` block, for the driver alone.
    pub driver_config: serde_json::Value,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// What it may use.
    pub resources: Resources,
    /// On which processors it runs, for drivers that can say so.
    pub processors: Processors,
    /// Volumes and other directories to appear in the task, in order.
    pub mounts: Vec<Mount>,
    /// The user it runs as (`name`, `uid`, either with `:group`); the driver's default when absent.
    pub user: Option<String>,
    /// Its directories.
    pub dirs: TaskDirs,
    /// Where its output goes; discarded when absent.
    pub logs: Option<LogConfig>,
    /// Where a network of its own is held ([`caravan_sys::netns`]), which it shares with its allocation; the host's
    /// when absent. Only for drivers that can ([`crate::Capabilities::networks`]).
    pub network: Option<PathBuf>,
    /// The control group below which its own is made, relative to the hierarchy's root.
    pub cgroup_parent: PathBuf,
    /// The term of the node's lease, for a task that is the only writer of a volume
    /// ([`caravan_shim::lease`]).
    pub lease: Option<caravan_shim::lease::Term>,
    /// Gives the task what mounting for others takes: capabilities, devices, propagation. Only for tasks with a node
    /// or monolith `csi_plugin`.
    pub privileged_mounts: bool,
}

impl fmt::Debug for TaskConfig {
    /// Leaves out the values of the environment and the driver's configuration: either may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskConfig")
            .field("id", &self.id)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("resources", &self.resources)
            .field("mounts", &self.mounts)
            .field("user", &self.user)
            .field("dirs", &self.dirs)
            .finish_non_exhaustive()
    }
}

/// What a task may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    /// CPU in MHz, a weight against other tasks.
    pub cpu_mhz: u64,
    /// Memory in MB (2^20 bytes).
    pub memory_mb: u64,
    /// Memory that it may use beyond that when there is some, in MB.
    pub memory_max_mb: Option<u64>,
}

/// The processors of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Processors {
    /// All of the host.
    #[default]
    Any,
    /// These, as a list such as `0-1,4`.
    Only(String),
    /// Those of a group of the cpuset controller (version 1), by its path below the controller's mount.
    Group(PathBuf),
}

/// A directory or file of the host that a task sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path on the host.
    pub host_path: PathBuf,
    /// Path in the task.
    pub task_path: PathBuf,
    /// Only for reading.
    pub read_only: bool,
    /// How mounts below it travel.
    pub propagation: Propagation,
}

/// How mounts below a mount travel between host and task, with the names of job files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Propagation {
    /// Not at all.
    #[default]
    Private,
    /// From the host to the task.
    HostToTask,
    /// Both ways.
    Bidirectional,
}

/// A task's directories on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDirs {
    /// What the allocation's tasks share: `<allocation>/alloc`.
    pub shared_alloc_dir: PathBuf,
    /// The task's own directory, which holds `local`, `secrets`, `tmp` and `private`.
    pub task_dir: PathBuf,
    /// The driver's directory for this task, outside of what the task sees; made by the driver (0700). The same at
    /// each run of the task, so that a run that was forgotten is found.
    pub state_dir: PathBuf,
}

/// Where a task's output goes: `<dir>/<stdout>.<n>`, `<dir>/<stderr>.<n>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogConfig {
    /// Directory.
    pub dir: PathBuf,
    /// Name of the standard output's files without the number (`web.stdout`).
    pub stdout: String,
    /// Name of the standard error's files without the number.
    pub stderr: String,
    /// How many of each are kept.
    pub max_files: u32,
    /// Size of each in MB (2^20 bytes).
    pub max_file_size_mb: u64,
}

/// What finds a task again after the agent was restarted; the client stores it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskHandle {
    /// Version of `state`, by driver.
    pub version: u32,
    /// The driver that made it.
    pub driver: String,
    /// The task.
    pub task_id: TaskId,
    /// When it was started, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Its first process, for people.
    pub pid: Option<u32>,
    /// What the kernel did not grant and the task does without, a sentence each; for the task's events.
    pub degraded: Vec<String>,
    /// For the driver alone.
    pub state: serde_json::Value,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExitResult {
    /// Exit code; 0 when a signal ended it.
    pub exit_code: i32,
    /// Signal; 0 when it exited.
    pub signal: i32,
    /// Whether one of its processes was killed for want of memory.
    pub oom_killed: bool,
    /// Why nothing better is known, or why the driver ended it.
    pub err: Option<String>,
    /// Whether it was ended because the node's lease ran out.
    #[serde(default)]
    pub lease_passed: bool,
    /// When it ended, in nanoseconds since 1970; when the end was noticed, if nobody saw it.
    pub finished_unix_ns: u64,
}

impl ExitResult {
    /// Whether it did what it was meant to.
    pub fn is_success(&self) -> bool {
        self.exit_code == 0 && self.signal == 0 && self.err.is_none()
    }
}

/// Whether a task runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// It does.
    Running,
    /// It does not any more.
    Exited(ExitResult),
}

/// What is known about a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskStatus {
    /// Whether it runs.
    pub state: TaskState,
    /// Its handle.
    pub handle: TaskHandle,
}

/// What a process of a task uses and used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Process id, as the host sees it.
    pub pid: u32,
    /// CPU time in user mode in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel in nanoseconds.
    pub cpu_system_ns: u64,
    /// Resident memory in bytes.
    pub rss: u64,
    /// Swap in bytes.
    pub swap: u64,
}

/// What a task uses and used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in nanoseconds.
    pub cpu_total_ns: u64,
    /// CPU time in user mode in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in the kernel in nanoseconds.
    pub cpu_system_ns: u64,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Time that it was throttled, in nanoseconds.
    pub throttled_ns: u64,
    /// Memory charged, in bytes.
    pub memory: u64,
    /// The most memory charged, in bytes.
    pub memory_peak: u64,
    /// Anonymous memory in bytes.
    pub rss: u64,
    /// Page cache in bytes.
    pub cache: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Processes and threads.
    pub pids: u64,
    /// When it was measured, in nanoseconds of the boot clock: two measurements give the share of a CPU.
    pub boot_time_ns: u64,
    /// Its processes, where the driver knows them.
    #[serde(default)]
    pub processes: Vec<ProcessUsage>,
}

/// What a program run beside a task said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecOutput {
    /// Its standard output, the first MiB of it.
    pub stdout: Vec<u8>,
    /// Its standard error, the first MiB of it.
    pub stderr: Vec<u8>,
    /// Exit code; 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
}
