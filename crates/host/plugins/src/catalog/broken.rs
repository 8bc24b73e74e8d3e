//! The stand-in for a plugin that cannot be used: it reports the reason on the node, and refuses tasks.

use crate::PluginError;
use async_trait::async_trait;
use caravan_drivers::{
    Capabilities, Driver, Error, ExecOutput, ExitResult, Fingerprint, FsIsolation, Result, TaskConfig,
    TaskHandle, TaskId, TaskStatus, Usage,
};
use std::time::Duration;

/// A plugin that cannot be used, under the name of its file.
#[derive(Debug)]
pub(super) struct BrokenDriver {
    file: String,
    reason: String,
}

impl BrokenDriver {
    pub(super) fn new(file: &str, error: &PluginError) -> Self {
        Self { file: file.to_owned(), reason: format!("plugin {file:?} cannot be used: {error}") }
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(Error::Refused(self.reason.clone()))
    }
}

#[async_trait]
impl Driver for BrokenDriver {
    fn name(&self) -> &str {
        &self.file
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: false,
            exec: false,
            fs_isolation: FsIsolation::None,
            mounts: false,
            privileged_mounts: false,
            networks: false,
            creates_networks: false,
            dynamic_users: false,
            names: false,
            survives_agent: false,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        Fingerprint::undetected(self.reason.clone())
    }

    fn validate(&self, _: &serde_json::Value) -> Result<()> {
        self.refuse()
    }

    async fn start(&self, _: TaskConfig) -> Result<TaskHandle> {
        self.refuse()
    }

    async fn recover(&self, _: TaskHandle) -> Result<()> {
        self.refuse()
    }

    async fn wait(&self, id: &TaskId) -> Result<ExitResult> {
        Err(Error::UnknownTask(id.clone()))
    }

    async fn stop(&self, id: &TaskId, _: Duration, _: Option<&str>) -> Result<()> {
        Err(Error::UnknownTask(id.clone()))
    }

    async fn destroy(&self, id: &TaskId, _: bool) -> Result<()> {
        Err(Error::UnknownTask(id.clone()))
    }

    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus> {
        Err(Error::UnknownTask(id.clone()))
    }

    async fn usage(&self, id: &TaskId) -> Result<Usage> {
        Err(Error::UnknownTask(id.clone()))
    }

    async fn signal(&self, id: &TaskId, _: &str) -> Result<()> {
        Err(Error::UnknownTask(id.clone()))
    }

    async fn exec(&self, id: &TaskId, _: &[String], _: Duration) -> Result<ExecOutput> {
        Err(Error::UnknownTask(id.clone()))
    }
}
