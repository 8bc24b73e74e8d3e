//! Task drivers: the trait, and the service that calls it.

use crate::hclspec::Spec;
use crate::{Info, TaskError};
use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

mod convert;
mod events;
mod exec;
mod service;
mod stats;
mod task;

pub(crate) use convert::{duration, time};
pub use events::{Events, TaskEvent};
pub use exec::{ExecInput, ExecOutput, ExecRequest, ExecResult};
pub(crate) use service::DriverService;
pub use stats::{CpuUsage, MemoryUsage, TaskStats, Usage};
pub use task::{
    Capabilities, ExitResult, Fingerprint, FsIsolation, Health, Host, MountConfigs, Network, NetworkMode,
    NetworkOverride, Started, StopRequest, Task, TaskHandle, TaskState, TaskStatus,
};

/// A task driver.
///
/// Calls run in parallel, also for one task. [`start_task`](Self::start_task) receives the id of a task. Every call
/// with an id that the driver does not have returns [`TaskError::NotFound`]. When the agent cancels a call, its
/// future is dropped, which must not change the task.
///
/// Programs other than the plugin should run the tasks: after the plugin ends, a new one finds them by
/// [`recover_task`](Self::recover_task).
#[async_trait]
pub trait DriverPlugin: Send + Sync + 'static {
    /// The configuration of the plugin, from the agent's `plugin` block. [`NoConfig`](crate::NoConfig) is an empty
    /// one.
    type Config: DeserializeOwned + Send;
    /// The configuration of a task, from the job's `config` block.
    type TaskConfig: DeserializeOwned + Send + Sync;
    /// The facts by which the driver finds a task again. The agent stores them.
    type State: Serialize + DeserializeOwned + Send + Sync;

    /// Returns name and version.
    fn info(&self) -> Info;

    /// Returns the schema of the plugin's configuration; `None` if the plugin has no configuration.
    fn config_schema(&self) -> Option<Spec> {
        None
    }

    /// Returns the schema of the tasks' configuration.
    fn task_schema(&self) -> Spec;

    /// Returns the features of the driver.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Receives the configuration, once before any task.
    async fn configure(&self, config: Self::Config, host: Host) -> Result<(), TaskError>;

    /// Examines whether the driver works on this node.
    async fn fingerprint(&self) -> Fingerprint;

    /// Returns the time between two fingerprints.
    fn fingerprint_interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Starts a task.
    async fn start_task(&self, task: Task<Self::TaskConfig>) -> Result<Started<Self::State>, TaskError>;

    /// Finds a task that an earlier process started. Succeeds without effect for a known task. An error means that
    /// the task cannot be found.
    async fn recover_task(&self, handle: TaskHandle<Self::TaskConfig, Self::State>) -> Result<(), TaskError>;

    /// Waits until a task has ended. Also returns after the end, until the task is destroyed.
    async fn wait_task(&self, id: &str) -> Result<ExitResult, TaskError>;

    /// Stops a task: sends a signal, and kills the task after a timeout.
    async fn stop_task(&self, id: &str, request: StopRequest) -> Result<(), TaskError>;

    /// Removes a task from the driver. A running task is an error, or is killed if `force` is set.
    async fn destroy_task(&self, id: &str, force: bool) -> Result<(), TaskError>;

    /// Describes a task.
    async fn inspect_task(&self, id: &str) -> Result<TaskStatus, TaskError>;

    /// Measures a task; `None` after its end. The agent calls this method at its own interval.
    async fn task_stats(&self, _id: &str) -> Result<Option<TaskStats>, TaskError> {
        // Agents compare this text, and do not call again.
        Err(TaskError::failed("stats not implemented for driver"))
    }

    /// Sends a signal, by a name such as `SIGHUP`, to a task.
    async fn signal_task(&self, _id: &str, _signal: &str) -> Result<(), TaskError> {
        Err(TaskError::failed("the driver does not support signals"))
    }

    /// Runs a command next to a task and returns its output.
    async fn exec_task(
        &self,
        _id: &str,
        _command: Vec<String>,
        _timeout: Duration,
    ) -> Result<ExecResult, TaskError> {
        Err(TaskError::failed("the driver does not run commands in tasks"))
    }

    /// Runs a command next to a task and exchanges input and output with its user. When the user disconnects, the
    /// future is dropped: the command should then end.
    async fn exec_task_streaming(
        &self,
        _request: ExecRequest,
        _input: Receiver<ExecInput>,
        _output: ExecOutput,
    ) -> Result<ExitResult, TaskError> {
        Err(TaskError::failed("the driver does not run commands in tasks"))
    }

    /// Creates the network of an allocation, for drivers that set [`Capabilities::must_create_network`]. Succeeds for
    /// an allocation that already has one.
    async fn create_network(&self, _alloc_id: &str, _hostname: &str) -> Result<Network, TaskError> {
        Err(TaskError::failed("the driver does not make networks"))
    }

    /// Removes the network of an allocation.
    async fn destroy_network(
        &self,
        _alloc_id: &str,
        _network: Option<crate::messages::NetworkIsolationSpec>,
    ) -> Result<(), TaskError> {
        Err(TaskError::failed("the driver does not make networks"))
    }

    /// Prepares for the end of the process. Tasks continue.
    async fn shutdown(&self) {}
}
