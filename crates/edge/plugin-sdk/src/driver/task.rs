//! The inputs and outputs of a driver.

use super::Events;
use crate::messages;
use crate::value::Attribute;
use caravan_proto::plugins::driver as wire;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The separation of the files of a driver's tasks from the host's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsIsolation {
    /// No separation. Paths in the environment are those of the host.
    #[default]
    None,
    /// The agent builds a root directory below the task's directory.
    Chroot,
    /// The driver has a separate root directory for each task.
    Image,
    /// The host's files, of which only some are visible.
    Unveil,
}

/// A kind of network of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    /// The network of the host.
    Host,
    /// One network for all tasks of an allocation.
    Group,
    /// A network for each task.
    Task,
    /// No network.
    None,
}

/// The support of a driver for volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountConfigs {
    /// The driver mounts everything in [`Task::mounts`].
    #[default]
    Any,
    /// The driver mounts nothing. Jobs with volumes do not use the driver.
    None,
}

/// The features of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the protocol's set of flags")]
pub struct Capabilities {
    /// Whether signals can be sent to tasks.
    pub send_signals: bool,
    /// Whether commands can run next to tasks.
    pub exec: bool,
    /// The separation of files.
    pub fs_isolation: FsIsolation,
    /// The networks that tasks can use.
    pub network_modes: Vec<NetworkMode>,
    /// Whether the driver creates the networks of allocations.
    pub must_create_network: bool,
    /// The support for volumes.
    pub mount_configs: MountConfigs,
    /// Whether the agent should not collect the output of tasks.
    pub disable_log_collection: bool,
    /// Whether tasks without a user run as a user that the agent chooses.
    pub dynamic_workload_users: bool,
}

/// The health of a driver on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The node has no use for the driver.
    Undetected,
    /// The driver should work, but does not.
    Unhealthy,
    /// The driver works.
    Healthy,
}

/// The state of a driver on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Fingerprint {
    /// Attributes of the node, by full name (`driver.example.version`).
    pub attributes: BTreeMap<String, Attribute>,
    /// The health of the driver.
    pub health: Health,
    /// The reason for the health, shown to users.
    pub description: String,
}

impl Fingerprint {
    /// Returns a state without attributes.
    pub fn new(health: Health, description: impl Into<String>) -> Self {
        Self { attributes: BTreeMap::new(), health, description: description.into() }
    }

    /// Adds an attribute of the node.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Attribute>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }
}

/// The agent of a driver.
#[derive(Clone, Debug)]
pub struct Host {
    /// The lowest port that the driver may use for itself.
    pub min_port: u32,
    /// The highest port that the driver may use for itself.
    pub max_port: u32,
    /// The processors of the node, if the agent describes them.
    pub topology: Option<messages::ClientTopology>,
    /// The sender of events of tasks.
    pub events: Events,
}

/// A task to start. `Debug` shows no environment and no configuration, which may contain secrets.
#[derive(Clone, PartialEq)]
pub struct Task<C> {
    /// The id in all later calls, new for each start.
    pub id: String,
    /// The task's name in its group.
    pub name: String,
    /// The name of the group.
    pub group: String,
    /// The job's name.
    pub job_name: String,
    /// The job's id.
    pub job_id: String,
    /// The id of the job's parent, if the agent sends it.
    pub parent_job_id: String,
    /// The namespace of the job.
    pub namespace: String,
    /// The id of the allocation.
    pub alloc_id: String,
    /// The node's name.
    pub node_name: String,
    /// The node's id.
    pub node_id: String,
    /// The job's configuration of the task.
    pub config: C,
    /// The complete environment.
    pub env: BTreeMap<String, String>,
    /// The part of the environment that device plugins set.
    pub device_env: BTreeMap<String, String>,
    /// The user to run as; empty for the driver's default.
    pub user: String,
    /// The directory of the allocation.
    pub alloc_dir: PathBuf,
    /// The FIFO or file for standard output.
    pub stdout: PathBuf,
    /// The FIFO or file for standard error.
    pub stderr: PathBuf,
    /// Processor time, memory and ports.
    pub resources: messages::Resources,
    /// Directories and files to mount.
    pub mounts: Vec<messages::Mount>,
    /// Devices of the host.
    pub devices: Vec<messages::Device>,
    /// The network of the allocation, if it is not the host's.
    pub network: Option<messages::NetworkIsolationSpec>,
    /// Name servers, if the job sets them.
    pub dns: Option<messages::DnsConfig>,
}

impl<C> Task<C> {
    /// Returns the task's own directory, which contains `local` and `secrets`.
    pub fn dir(&self) -> PathBuf {
        self.alloc_dir.join(&self.name)
    }
}

impl<C> fmt::Debug for Task<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("id", &self.id).field("job_id", &self.job_id).finish_non_exhaustive()
    }
}

/// The result of a start.
#[derive(Clone, Debug, PartialEq)]
pub struct Started<S> {
    /// The facts by which the driver finds the task again.
    pub state: S,
    /// The address of a task with a separate network.
    pub network: Option<NetworkOverride>,
}

impl<S> Started<S> {
    /// Returns the result of a task on the host's network.
    pub fn new(state: S) -> Self {
        Self { state, network: None }
    }
}

/// The address of a task that has a separate network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkOverride {
    /// The ports in that network, by label.
    pub port_map: BTreeMap<String, i32>,
    /// The task's address.
    pub addr: String,
    /// Whether services are registered with this address.
    pub auto_advertise: bool,
}

impl From<NetworkOverride> for wire::NetworkOverride {
    fn from(from: NetworkOverride) -> Self {
        Self { port_map: from.port_map, addr: from.addr, auto_advertise: from.auto_advertise }
    }
}

/// A network that a driver created.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The network.
    pub spec: messages::NetworkIsolationSpec,
    /// Whether this call created the network. Otherwise the network existed.
    pub created: bool,
}

/// A task that an earlier process started.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskHandle<C, S> {
    /// The task at its start.
    pub task: Task<C>,
    /// The driver's state at its start.
    pub state: S,
}

/// The phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The driver cannot determine the phase.
    Unknown,
    /// The task runs.
    Running,
    /// The task has ended.
    Exited,
}

/// The end of a task or a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitResult {
    /// The exit code; 128 plus the signal's number after a signal.
    pub code: i32,
    /// The signal that ended the program; 0 without one.
    pub signal: i32,
    /// Whether the kernel ended the program for lack of memory.
    pub oom_killed: bool,
    /// The reason why the result is unknown, or another message for users.
    pub message: Option<String>,
}

impl ExitResult {
    /// Returns the result of a program that exited by itself.
    pub fn code(code: i32) -> Self {
        Self { code, ..Self::default() }
    }

    /// Returns the result of a program that a signal ended.
    pub fn signal(signal: i32) -> Self {
        Self { code: 128 + signal, signal, ..Self::default() }
    }

    /// Returns the result of a program whose end was not seen.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::default() }
    }
}

impl From<std::process::ExitStatus> for ExitResult {
    fn from(status: std::process::ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::code(code),
            (None, Some(signal)) => Self::signal(signal),
            (None, None) => Self::lost("the status is neither an exit code nor a signal"),
        }
    }
}

/// A description of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStatus {
    /// The task's name.
    pub name: String,
    /// The phase of the task.
    pub state: TaskState,
    /// The time of the start.
    pub started_at: SystemTime,
    /// The time of the end, if the task has ended.
    pub completed_at: Option<SystemTime>,
    /// The result, if the task has ended.
    pub result: Option<ExitResult>,
    /// Further facts, such as the process id.
    pub attributes: BTreeMap<String, String>,
    /// The address of a task with a separate network.
    pub network: Option<NetworkOverride>,
}

/// A request to stop a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopRequest {
    /// The time for which the task may react to the signal.
    pub timeout: Duration,
    /// The signal's name; `None` for the driver's default.
    pub signal: Option<String>,
}
