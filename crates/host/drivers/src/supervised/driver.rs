//! The part of the [`Driver`] trait that all drivers with shims share.

use super::{ShimTasks, end_forgotten};
use crate::driver::{Capabilities, Driver, Fingerprint};
use crate::session::{ExecRequest, ExecStream};
use crate::task::{ExecOutput, ExitResult, Mount, TaskConfig, TaskHandle, TaskId, TaskStatus, Usage};
use crate::{Error, Result};
use async_trait::async_trait;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// A driver that runs its tasks under shims. The methods are those of [`Driver`], except for [`ShimDriver::tasks`].
#[async_trait]
pub trait ShimDriver: Send + Sync + fmt::Debug {
    fn name(&self) -> &'static str;

    fn capabilities(&self) -> Capabilities;

    async fn fingerprint(&self) -> Fingerprint;

    fn validate(&self, config: &Value) -> Result<()>;

    /// Returns the driver's tasks, which exist from their start or recovery until they are destroyed.
    fn tasks(&self) -> &ShimTasks;

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle>;

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        self.tasks().stop(id, timeout, signal).await
    }

    /// Returns whether the driver sends no signals to its tasks and runs no programs in them.
    fn has_sealed_tasks(&self) -> bool {
        false
    }
}

/// Returns an error if the task is sealed. `what` are the words after "cannot".
fn check_open(driver: &impl ShimDriver, id: &TaskId, what: &'static str) -> Result<()> {
    if !driver.has_sealed_tasks() {
        return Ok(());
    }
    driver.tasks().inspect(id)?;
    Err(Error::Unsupported { driver: ShimDriver::name(driver).to_owned(), what })
}

#[async_trait]
impl<D: ShimDriver> Driver for D {
    fn name(&self) -> &str {
        ShimDriver::name(self)
    }

    fn capabilities(&self) -> Capabilities {
        ShimDriver::capabilities(self)
    }

    async fn fingerprint(&self) -> Fingerprint {
        ShimDriver::fingerprint(self).await
    }

    fn validate(&self, config: &Value) -> Result<()> {
        ShimDriver::validate(self, config)
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        ShimDriver::start(self, config).await
    }

    async fn recover(&self, handle: TaskHandle) -> Result<()> {
        self.tasks().recover(handle)
    }

    async fn wait(&self, id: &TaskId) -> Result<ExitResult> {
        self.tasks().wait(id).await
    }

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        ShimDriver::stop(self, id, timeout, signal).await
    }

    async fn destroy(&self, id: &TaskId, force: bool) -> Result<()> {
        self.tasks().destroy(id, force).await
    }

    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus> {
        self.tasks().inspect(id)
    }

    async fn usage(&self, id: &TaskId) -> Result<Usage> {
        self.tasks().usage(id).await
    }

    async fn signal(&self, id: &TaskId, signal: &str) -> Result<()> {
        check_open(self, id, "send signals to its tasks")?;
        self.tasks().signal(id, signal).await
    }

    async fn exec(&self, id: &TaskId, command: &[String], timeout: Duration) -> Result<ExecOutput> {
        check_open(self, id, "run programs in its tasks")?;
        self.tasks().exec(id, command, timeout).await
    }

    async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        check_open(self, id, "run programs in its tasks")?;
        self.tasks().exec_stream(id, request).await
    }

    async fn end_lost(&self, id: &TaskId, state_dir: &Path) -> Result<()> {
        end_forgotten(id, state_dir).await
    }

    async fn remount(&self, id: &TaskId, mount: &Mount) -> Result<()> {
        if !ShimDriver::capabilities(self).mounts {
            let what = "mount anew in a task that runs";
            return Err(Error::Unsupported { driver: ShimDriver::name(self).to_owned(), what });
        }
        self.tasks().remount(id, mount).await
    }
}
