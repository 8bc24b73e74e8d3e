//! The start of tasks, and the return of tasks that an earlier agent started.

use super::calls::{Failed, call, is_recoverable};
use super::logs::{self, Collection};
use super::task::{HANDLE_VERSION, State, Task, now};
use super::{ExternalDriver, client, open_state_dir};
use crate::convert::{self, Output};
use crate::error::describe;
use crate::process::put;
use crate::spec;
use caravan_drivers::{DriverEvent, Error, Result, TaskConfig, TaskHandle, TaskId};
use caravan_proto::plugins::driver::{StartTaskRequest, StartTaskResponse};
use caravan_sys::dir::{Dir, Mounts};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The file with the handle in the state directory, for an agent that dies before the client stored the handle.
const HANDLE_FILE: &str = "handle.json";
/// The longest handle in bytes.
const MAX_HANDLE: u64 = 16 << 20;
/// The timeout of a start that waits for a plugin that is down.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The file that receives the output of a task without log files.
const NULL: &str = "/dev/null";

fn failure(message: String, recoverable: bool) -> Error {
    Error::Start { message, recoverable }
}

impl ExternalDriver {
    /// Decodes a `config` block by the plugin's schema.
    pub(super) fn decode(&self, config: &serde_json::Value) -> Result<Vec<u8>> {
        let schema = self.shared.schema.lock().clone();
        // Without a schema, the plugin accepts no configuration. Without any process, no schema has been received
        // yet.
        if schema.is_none() && self.instance.process().is_err() {
            return Ok(Vec::new());
        }
        let decoded = spec::configure(schema.as_deref(), config);
        let value = decoded.map_err(|error| Error::Config(format!("failed to parse config: {}", error)))?;
        Ok(value.to_msgpack())
    }

    pub(super) async fn start_task(&self, task: TaskConfig) -> Result<TaskHandle> {
        if self.shared.tasks.get(&task.id).is_ok() {
            return Err(Error::TaskExists(task.id));
        }
        if !self.supports.volumes && !task.mounts.is_empty() {
            return Err(Error::Config(format!(
                "task driver {:?} for {:?} does not support host volumes",
                self.name, task.task_name
            )));
        }
        self.wait_for_start(&task).await?;
        let config = self.decode(&task.driver_config)?;
        let _created = open_state_dir(&task.dirs.state_dir)?;
        match self.start_prepared(&task, config).await {
            Ok(handle) => Ok(handle),
            Err(error) => {
                if let Err(error) = remove_state(&task.dirs.state_dir) {
                    tracing::warn!(task = %task.id, %error, "the state of a failed start cannot be removed");
                }
                Err(error)
            }
        }
    }

    /// Waits until the plugin serves calls, and reports the wait.
    async fn wait_for_start(&self, task: &TaskConfig) -> Result<()> {
        let Err(reason) = self.instance.process() else { return Ok(()) };
        let _unread = self.shared.events.send(DriverEvent {
            alloc_id: task.alloc_id.clone(),
            task_name: task.task_name.clone(),
            message: format!("the start waits for driver {}: {reason}", self.name),
            ..Default::default()
        });
        match tokio::time::timeout(START_TIMEOUT, self.instance.up()).await {
            Ok(Some(_)) => Ok(()),
            _ => {
                let reason = self.instance.process().err().unwrap_or(reason);
                Err(failure(format!("driver {} is down: {reason}", self.name), true))
            }
        }
    }

    async fn start_prepared(&self, task: &TaskConfig, config: Vec<u8>) -> Result<TaskHandle> {
        let state_dir = &task.dirs.state_dir;
        let logs = task.logs.clone().filter(|_| !self.supports.own_logs);
        let collection = match &logs {
            Some(logs) => Some(
                Collection::begin(&self.shim, state_dir, logs)
                    .map_err(|error| failure(error.to_string(), true))?,
            ),
            None => None,
        };
        let (stdout, stderr) = match &logs {
            Some(_) => (state_dir.join(logs::STDOUT), state_dir.join(logs::STDERR)),
            None => (NULL.into(), NULL.into()),
        };
        let output = Output { stdout: &stdout, stderr: &stderr };
        let sent = convert::task(task, config, output);
        let found = match self.send_start(&task.id, StartTaskRequest { task: Some(sent) }).await {
            Ok(found) => found,
            Err(error) => {
                if let Some(collection) = collection {
                    collection.end().await;
                }
                return Err(error);
            }
        };
        let state = State {
            handle: State::encode(&found.handle.unwrap_or_default()),
            alloc_id: task.alloc_id.clone(),
            task_name: task.task_name.clone(),
            state_dir: state_dir.clone(),
            logs,
        };
        let mut degraded = Vec::new();
        if task.lease.is_some() {
            degraded.push(format!(
                "driver {} cannot end the task when the node's lease runs out while no agent runs",
                self.name
            ));
        }
        let handle = TaskHandle {
            version: HANDLE_VERSION,
            driver: self.name.clone(),
            task_id: task.id.clone(),
            started_unix_ns: now(),
            pid: None,
            degraded,
            network: found.network_override.map(convert::network_override),
            state: serde_json::to_value(&state).map_err(|error| failure(error.to_string(), false))?,
        };
        let stored = serde_json::to_vec(&handle).map_err(|error| failure(error.to_string(), false))?;
        if let Err(error) = put(state_dir, HANDLE_FILE, &stored) {
            tracing::warn!(task = %task.id, %error, "the handle of a task cannot be written");
        }
        let started = Task::new(handle.clone(), state, collection);
        self.shared.tasks.put(&started);
        started.watch(Arc::clone(&self.instance));
        Ok(handle)
    }

    /// Sends the start to the plugin, and sends it again if the plugin's process ends.
    async fn send_start(&self, id: &TaskId, request: StartTaskRequest) -> Result<StartTaskResponse> {
        let mut process = self.up(id).await?;
        let mut is_repeated = false;
        loop {
            let mut client = client(process.channel());
            let status = match call(&process, client.start_task(request.clone())).await {
                Ok(found) => return Ok(found),
                Err(Failed::Ended) if !is_repeated => {
                    is_repeated = true;
                    let next = self.instance.up_after(&process).await;
                    process = next.ok_or_else(|| failure("the agent ends".into(), true))?;
                    // The process that ended may have started the task.
                    self.destroy_in_plugin(id, true).await?;
                    continue;
                }
                Err(Failed::Ended) => {
                    let words = format!("driver {} ended twice while it started the task", self.name);
                    return Err(failure(words, true));
                }
                Err(Failed::UnknownTask) => {
                    let words = format!("driver {} does not know the task that it was to start", self.name);
                    return Err(failure(words, false));
                }
                Err(Failed::Refused(status)) => status,
            };
            return Err(failure(describe(&status), is_recoverable(&status)));
        }
    }

    pub(super) async fn recover_task(&self, handle: TaskHandle) -> Result<()> {
        let id = handle.task_id.clone();
        if self.shared.tasks.get(&id).is_ok() {
            return Err(Error::TaskExists(id));
        }
        let state = State::read(&handle, &self.name)?;
        let collection = match &state.logs {
            Some(logs) if state.state_dir.is_dir() => Collection::begin(&self.shim, &state.state_dir, logs)
                .inspect_err(|error| tracing::error!(task = %id, %error, "task output cannot be collected"))
                .ok(),
            _ => None,
        };
        let task = Task::new(handle, state, collection);
        // From now on, each process of the plugin recovers the task before its first call. A plugin that is down
        // therefore delays the recovery, and does not make it fail.
        self.shared.tasks.put(&task);
        if let Ok(process) = self.instance.process() {
            match task.recover(&process).await {
                Ok(()) => {}
                Err(_) if process.has_ended() => {}
                Err(reason) => {
                    self.shared.tasks.remove(&id);
                    let collection = task.collection.lock().take();
                    if let Some(collection) = collection {
                        collection.end().await;
                    }
                    return Err(Error::Refused(format!(
                        "driver {} cannot recover the task: {reason}",
                        self.name
                    )));
                }
            }
        }
        task.watch(Arc::clone(&self.instance));
        Ok(())
    }

    pub(super) async fn end_lost_task(&self, id: &TaskId, state_dir: &Path) -> Result<()> {
        if !state_dir.is_dir() {
            return Ok(());
        }
        let dir = Dir::open(state_dir)?;
        let mut id = id.clone();
        if dir.kind(HANDLE_FILE.as_ref())?.is_some() {
            let bytes = dir.read_all(Path::new(HANDLE_FILE), MAX_HANDLE, Mounts::Refuse)?;
            if let Ok(handle) = serde_json::from_slice::<TaskHandle>(&bytes) {
                id = handle.task_id.clone();
                let state = State::read(&handle, &self.name)?;
                let task = Task::new(handle, state, None);
                let process = self.up(&id).await?;
                if let Err(reason) = task.recover(&process).await {
                    tracing::info!(task = %id, reason, "the plugin cannot recover a run that was not stored");
                }
            }
        }
        self.destroy_in_plugin(&id, true).await?;
        logs::end_recorded(state_dir).await.map_err(|error| Error::Refused(error.to_string()))?;
        remove_state(state_dir)
    }
}

/// Removes the state directory of a task.
pub(super) fn remove_state(state_dir: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (state_dir.parent(), state_dir.file_name()) else { return Ok(()) };
    if parent.is_dir() {
        Dir::open(parent)?.remove_tree(name, caravan_sys::tree::Seals::Keep)?;
    }
    Ok(())
}
