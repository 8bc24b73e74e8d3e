//! The [`Driver`] trait, and the reports of a driver about itself.

use crate::network::{NetworkIsolation, NetworkRequest};
use crate::session::{ExecRequest, ExecStream};
use crate::task::{ExecOutput, ExitResult, Mount, TaskConfig, TaskHandle, TaskId, TaskStatus, Usage};
use crate::{Error, Result};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;

/// A driver: starts tasks of one kind and reports their state.
///
/// Calls for different tasks may run concurrently. Every call except [`Driver::start`] and [`Driver::recover`]
/// returns [`crate::Error::UnknownTask`] for a task that was neither started nor recovered in this process.
#[async_trait]
pub trait Driver: Send + Sync + fmt::Debug {
    /// Returns the driver's name, as in the `driver` field of job files.
    fn name(&self) -> &str;

    /// Returns the capabilities of the driver, which never change while the agent runs.
    fn capabilities(&self) -> Capabilities;

    /// Checks whether the driver can run tasks on this machine now, and returns the node attributes for the
    /// scheduler.
    async fn fingerprint(&self) -> Fingerprint;

    /// Waits until the driver has reason to believe that its fingerprint has changed.
    async fn changed(&self) {
        std::future::pending().await
    }

    /// Returns the events of the driver's tasks. Only the first call returns the receiver.
    fn events(&self) -> Option<mpsc::UnboundedReceiver<DriverEvent>> {
        None
    }

    /// Checks a task's `config` block. The error names the wrong key.
    fn validate(&self, config: &serde_json::Value) -> Result<()>;

    /// Starts a task. A failed start leaves no process, control group or mount behind.
    async fn start(&self, config: TaskConfig) -> Result<TaskHandle>;

    /// Takes over a task that an earlier process of the agent started. A task that ended in between is no error:
    /// [`Driver::wait`] then returns its result as far as it is known.
    async fn recover(&self, handle: TaskHandle) -> Result<()>;

    /// Waits until the task and all its processes have ended. May be called any number of times, before and after the
    /// end; dropping the future is harmless.
    async fn wait(&self, id: &TaskId) -> Result<ExitResult>;

    /// Sends a signal (its name as in job files; the driver's default if absent), and kills the task after the timeout.
    /// Returns when no process of the task remains. Stopping a task that has ended is no error.
    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()>;

    /// Removes an ended task from the driver, with its state directory. With `force`, a running task is killed first;
    /// without `force`, it is an error.
    async fn destroy(&self, id: &TaskId, force: bool) -> Result<()>;

    /// Returns a task's state and handle.
    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus>;

    /// Returns a task's current use of resources and its totals since the start.
    async fn usage(&self, id: &TaskId) -> Result<Usage>;

    /// Sends a signal to the task's first process.
    async fn signal(&self, id: &TaskId, signal: &str) -> Result<()>;

    /// Runs a program in the task's environment (root, namespaces, user) and collects its output. The program is
    /// killed at the timeout.
    async fn exec(&self, id: &TaskId, command: &[String], timeout: Duration) -> Result<ExecOutput>;

    /// Runs a program in the task's environment and exchanges input and output with it while it runs. An error of the
    /// start may arrive as the first item of the stream.
    async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        tracing::debug!(task = %id, command = request.command.first(), "driver does not support exec");
        Err(Error::Unsupported { driver: self.name().to_owned(), what: "run a program in a task" })
    }

    /// Ends a run whose handle was never stored, because the agent died between starting the task and storing the
    /// handle. `state_dir` is that of the run's [`TaskConfig`]. If no such run exists, this is no error. Drivers
    /// whose tasks end with the agent do not implement this.
    async fn end_lost(&self, id: &TaskId, state_dir: &Path) -> Result<()> {
        tracing::trace!(task = %id, state_dir = %state_dir.display(), "tasks of this driver end with the agent");
        Ok(())
    }

    /// Confines the tasks that reserved no processors to a list such as `0-1,4`, now and after later starts. The
    /// client calls this at each change of the list. Only drivers whose tasks are outside of
    /// [`TaskConfig::cgroup_parent`] implement this: the client confines that group itself.
    fn share_processors(&self, cpus: &str) {
        tracing::trace!(cpus, "tasks of this driver are in the agent's control group");
    }

    /// Creates the network of an allocation, which all its tasks join. Returns the network that an earlier call
    /// created, also a call of an earlier agent. Only for drivers with [`Capabilities::creates_networks`].
    async fn create_network(&self, request: &NetworkRequest) -> Result<NetworkIsolation> {
        tracing::debug!(alloc = request.alloc_id, "driver does not create networks");
        Err(Error::Unsupported { driver: self.name().to_owned(), what: "make networks" })
    }

    /// Destroys the network of an allocation, whose tasks have ended. A network that does not exist is no error.
    /// `network` is absent if the agent died before the client stored the result of [`Driver::create_network`].
    async fn destroy_network(&self, alloc_id: &str, network: Option<&NetworkIsolation>) -> Result<()> {
        tracing::debug!(alloc = alloc_id, known = network.is_some(), "driver does not create networks");
        Err(Error::Unsupported { driver: self.name().to_owned(), what: "destroy networks" })
    }

    /// Ends all that the driver runs in addition to tasks, when the agent ends. Tasks continue.
    async fn shutdown(&self) {}

    /// Replaces the mount at `mount.task_path` in a running task. Only drivers that make [`TaskConfig::mounts`]
    /// themselves can support this.
    async fn remount(&self, id: &TaskId, mount: &Mount) -> Result<()> {
        tracing::debug!(task = %id, path = %mount.task_path.display(), "driver cannot replace mounts");
        Err(Error::Unsupported { driver: self.name().to_owned(), what: "mount anew in a task that runs" })
    }
}

/// The kind of root directory that a driver's tasks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsIsolation {
    /// The host's root.
    None,
    /// A separate root, assembled from directories of the host and of the task.
    Chroot,
    /// The root of an image.
    Image,
    /// The host's root, of which the driver shows the task only the directories that the client binds for it.
    Unveil,
}

impl FsIsolation {
    /// Returns whether the task's paths are those of the host.
    pub fn shows_host_paths(self) -> bool {
        matches!(self, Self::None | Self::Unveil)
    }
}

/// The capabilities of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Whether [`Driver::signal`] is supported.
    pub send_signals: bool,
    /// Whether [`Driver::exec`] is supported.
    pub exec: bool,
    /// The tasks' root; decides which paths `NOMAD_ALLOC_DIR` and similar variables contain.
    pub fs_isolation: FsIsolation,
    /// Whether the driver makes [`TaskConfig::mounts`] itself. If not, the caller must have made them on the host,
    /// and the driver refuses a task with mounts.
    pub mounts: bool,
    /// Whether the driver can run tasks that mount on the host for other tasks ([`TaskConfig::privileged_mounts`]).
    pub privileged_mounts: bool,
    /// Whether the driver can run tasks in their own network namespace ([`TaskConfig::network`]).
    pub networks: bool,
    /// Whether the driver creates the network of an allocation that runs a task of it ([`Driver::create_network`]).
    #[serde(default)]
    pub creates_networks: bool,
    /// Whether a task without a user in the job runs as a user that the client chooses ([`TaskConfig::user`]).
    #[serde(default)]
    pub dynamic_users: bool,
    /// Whether tasks get the settings of their resolver ([`TaskConfig::dns`]), and the names of the allocation's network.
    #[serde(default)]
    pub names: bool,
    /// Whether tasks keep running when the agent stops.
    pub survives_agent: bool,
}

/// An event of a task that its driver reports: progress of a start, or the reason of a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverEvent {
    /// The id of the task's allocation.
    pub alloc_id: String,
    /// The task's name in the job file.
    pub task_name: String,
    /// The event in one sentence.
    pub message: String,
    /// Further facts by name.
    pub details: BTreeMap<String, String>,
}

/// A driver's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Not available on this machine, or disabled.
    Undetected,
    /// Available, but unable to run tasks now.
    Unhealthy,
    /// Able to run tasks.
    Healthy,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Undetected => "undetected",
            Self::Unhealthy => "unhealthy",
            Self::Healthy => "healthy",
        })
    }
}

/// The state of a driver on this machine, for the node's attributes and the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The driver's health.
    pub state: Health,
    /// Node attributes by full key (`driver.exec`). Empty unless the driver is healthy.
    pub attributes: BTreeMap<String, String>,
    /// A short explanation for operators.
    pub description: String,
}

impl Fingerprint {
    /// Returns the fingerprint of a healthy driver, with its attribute `driver.<name>`.
    pub fn healthy(driver: &str) -> Self {
        Self {
            state: Health::Healthy,
            attributes: [(format!("driver.{driver}"), "1".to_owned())].into(),
            description: "Healthy".into(),
        }
    }

    /// Returns the fingerprint of a driver that is not available on this machine.
    pub fn undetected(description: impl Into<String>) -> Self {
        Self { state: Health::Undetected, attributes: BTreeMap::new(), description: description.into() }
    }
}
