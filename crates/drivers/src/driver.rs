//! What a driver is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::session::{ExecRequest, ExecStream};
use crate::task::{ExecOutput, ExitResult, Mount, TaskConfig, TaskHandle, TaskId, TaskStatus, Usage};
use crate::{Error, Result};

/// Starts tasks of one kind and answers about them.
///
/// Calls about different tasks run beside each other. Every call but [`Driver::start`] and [`Driver::recover`]
/// answers [`crate::Error::UnknownTask`] for a task that neither of the two brought in.
#[async_trait]
pub trait Driver: Send + Sync + fmt::Debug {
    /// The name that job files use.
    fn name(&self) -> &'static str;

    /// What it can do, which does not change.
    fn capabilities(&self) -> Capabilities;

    /// Whether it can run tasks on this machine now, and what to tell the scheduler.
    async fn fingerprint(&self) -> Fingerprint;

    /// Whether a task's `config` block is right. The error names the key.
    fn validate(&self, config: &serde_json::Value) -> Result<()>;

    /// Starts a task. When this fails, nothing of it is left.
    async fn start(&self, config: TaskConfig) -> Result<TaskHandle>;

    /// Takes a task back that an earlier process of the agent started. A task that ended meanwhile is no error:
    /// [`Driver::wait`] tells how it ended, as far as anyone can know.
    async fn recover(&self, handle: TaskHandle) -> Result<()>;

    /// Waits until the task has ended and nothing of it is left. May be called any number of times, before and
    /// after the end; dropping the future is harmless.
    async fn wait(&self, id: &TaskId) -> Result<ExitResult>;

    /// Sends a signal (the name as job files write it; `SIGTERM` when absent), kills after the timeout, and returns
    /// when nothing of the task is left. Stopping a task that has ended is no error.
    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()>;

    /// Forgets a task that has ended and removes what it left with the driver. With `force`, one that runs is
    /// killed first.
    async fn destroy(&self, id: &TaskId, force: bool) -> Result<()>;

    /// What is known about a task.
    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus>;

    /// What a task uses and used.
    async fn usage(&self, id: &TaskId) -> Result<Usage>;

    /// Sends a signal to the task's first process.
    async fn signal(&self, id: &TaskId, signal: &str) -> Result<()>;

    /// Runs a program in the task's surroundings and collects its output. It is killed at the timeout.
    async fn exec(&self, id: &TaskId, command: &[String], timeout: Duration) -> Result<ExecOutput>;

    /// Runs a program in the task's surroundings and talks to it while it runs. Errors of its start may come as the
    /// first item of the stream.
    async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        tracing::debug!(task = %id, command = request.command.first(), "driver runs no programs");
        Err(Error::Unsupported { driver: self.name(), what: "run a program in a task" })
    }

    /// Ends a run of which no handle was stored, because the agent died between its start and that. `state_dir` is
    /// that of its [`TaskConfig`]. Nothing there is no error. Drivers whose tasks end with the agent have nothing to
    /// do.
    async fn end_lost(&self, id: &TaskId, state_dir: &Path) -> Result<()> {
        tracing::trace!(task = %id, state_dir = %state_dir.display(), "tasks of this driver end with the agent");
        Ok(())
    }

    /// Mounts something anew in a task that runs, in place of what it has at `mount.task_path`. Only drivers that
    /// make [`TaskConfig::mounts`] themselves may be able to.
    async fn remount(&self, id: &TaskId, mount: &Mount) -> Result<()> {
        tracing::debug!(task = %id, path = %mount.task_path.display(), "driver replaces no mounts");
        Err(Error::Unsupported { driver: self.name(), what: "mount anew in a task that runs" })
    }
}

/// What tasks of a driver have as their root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsIsolation {
    /// The host's.
    None,
    /// One of their own, made of the host's directories and the task's.
    Chroot,
    /// That of an image.
    Image,
}

/// What a driver can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Whether [`Driver::signal`] works.
    pub send_signals: bool,
    /// Whether [`Driver::exec`] works.
    pub exec: bool,
    /// The tasks' root; decides which paths `NOMAD_ALLOC_DIR` and its like show.
    pub fs_isolation: FsIsolation,
    /// Whether it makes [`TaskConfig::mounts`] itself. If not, the caller must have made them on the host, and a
    /// task with any is refused.
    pub mounts: bool,
    /// Whether it can give a task what mounting for others takes ([`TaskConfig::privileged_mounts`]).
    pub privileged_mounts: bool,
    /// Whether it can run tasks in a network of their own ([`TaskConfig::network`]).
    pub networks: bool,
    /// Whether tasks live on when the agent ends.
    pub survives_agent: bool,
}

/// A driver's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Not on this machine, or switched off.
    Undetected,
    /// There, and not able to run tasks now.
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

/// What a driver finds on the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Whether it can run tasks.
    pub state: Health,
    /// Node attributes, whole keys (`driver.exec`). Empty unless detected.
    pub attributes: BTreeMap<String, String>,
    /// A few words for people.
    pub description: String,
}

impl Fingerprint {
    /// Able to run tasks.
    pub fn healthy(driver: &str) -> Self {
        Self {
            state: Health::Healthy,
            attributes: [(format!("driver.{driver}"), "1".to_owned())].into(),
            description: "Healthy".into(),
        }
    }

    /// Not on this machine.
    pub fn undetected(description: impl Into<String>) -> Self {
        Self { state: Health::Undetected, attributes: BTreeMap::new(), description: description.into() }
    }
}
