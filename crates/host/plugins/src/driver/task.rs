//! The live tasks of an external driver: one watcher per task, which waits for the task's end over restarts of the
//! plugin.

use super::calls::{Failed, call};
use super::logs::Collection;
use super::stats::Stats;
use crate::convert;
use crate::error::describe;
use crate::instance::Instance;
use crate::process::Process;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use caravan_drivers::{Error, ExitResult, LogConfig, Result, TaskHandle, TaskId};
use caravan_proto::plugins::driver::{self, RecoverTaskRequest, WaitTaskRequest};
use parking_lot::Mutex;
use prost::Message;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The version of [`State`].
pub(super) const HANDLE_VERSION: u32 = 1;
/// The longest time for the recovery of a task.
const RECOVER_TIMEOUT: Duration = Duration::from_secs(60);
/// The unit of the pause after a plugin refused to wait for a task; the pause grows with each refusal.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The number of refusals of a plugin to wait for a task after which the task counts as ended.
const MAX_REFUSALS: u32 = 5;

/// The driver's data in a task handle. The plugin's own handle contains the environment, which may hold secrets; client
/// state and state directories are private to the agent (0600).
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct State {
    /// The plugin's handle, encoded.
    pub(super) handle: String,
    pub(super) alloc_id: String,
    pub(super) task_name: String,
    pub(super) state_dir: PathBuf,
    pub(super) logs: Option<LogConfig>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("state_dir", &self.state_dir).finish_non_exhaustive()
    }
}

impl State {
    pub(super) fn encode(handle: &driver::TaskHandle) -> String {
        BASE64.encode(handle.encode_to_vec())
    }

    /// Reads the state of a handle.
    pub(super) fn read(handle: &TaskHandle, driver: &str) -> Result<Self> {
        let bad = |reason: String| Error::Handle { id: handle.task_id.clone(), reason };
        if handle.driver != driver || handle.version != HANDLE_VERSION {
            return Err(bad(format!("it belongs to driver {} version {}", handle.driver, handle.version)));
        }
        serde_json::from_value(handle.state.clone()).map_err(|error| bad(error.to_string()))
    }

    /// Returns the plugin's own handle.
    fn plugin_handle(&self) -> Option<driver::TaskHandle> {
        driver::TaskHandle::decode(BASE64.decode(&self.handle).ok()?.as_slice()).ok()
    }
}

/// A task of the driver.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) handle: TaskHandle,
    pub(super) state: State,
    pub(super) stats: Stats,
    pub(super) collection: Mutex<Option<Collection>>,
    exit: watch::Sender<Option<ExitResult>>,
    watcher: Mutex<Option<DropGuard>>,
}

impl Task {
    pub(super) fn new(handle: TaskHandle, state: State, collection: Option<Collection>) -> Arc<Self> {
        Arc::new(Self {
            handle,
            state,
            stats: Stats::default(),
            collection: Mutex::new(collection),
            exit: watch::Sender::new(None),
            watcher: Mutex::default(),
        })
    }

    /// Returns the result if the task has ended.
    pub(super) fn result(&self) -> Option<ExitResult> {
        self.exit.borrow().clone()
    }

    /// Waits for the task's end.
    pub(super) async fn wait(&self) -> Result<ExitResult> {
        let mut exit = self.exit.subscribe();
        // The sender is a field of this value.
        let result = exit.wait_for(Option::is_some).await.map(|result| result.clone());
        result.ok().flatten().ok_or_else(|| Error::UnknownTask(self.handle.task_id.clone()))
    }

    /// Begins to wait for the task's end.
    pub(super) fn watch(self: &Arc<Self>, instance: Arc<Instance>) {
        let token = CancellationToken::new();
        *self.watcher.lock() = Some(token.clone().drop_guard());
        let task = Arc::downgrade(self);
        let id = self.handle.task_id.0.clone();
        tokio::spawn(token.run_until_cancelled_owned(async move {
            let waited = instance.until_stop(wait_over_restarts(&instance, &id)).await;
            let Some(result) = waited.flatten() else { return };
            if let Some(task) = task.upgrade() {
                task.end(result);
            }
        }));
    }

    fn end(&self, result: ExitResult) {
        self.stats.close();
        self.exit.send_if_modified(|exit| {
            let is_first = exit.is_none();
            if is_first {
                *exit = Some(result);
            }
            is_first
        });
    }

    /// Sends the stored handle to a process of the plugin, which finds the task by it.
    pub(super) async fn recover(&self, process: &Process) -> std::result::Result<(), String> {
        let handle = self.state.plugin_handle().ok_or("the stored handle of the plugin cannot be read")?;
        let request = RecoverTaskRequest { task_id: self.handle.task_id.0.clone(), handle: Some(handle) };
        let mut client = super::client(process.channel());
        let recovered =
            tokio::time::timeout(RECOVER_TIMEOUT, call(process, client.recover_task(request))).await;
        match recovered {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(Failed::Ended)) => Err("the plugin ended".into()),
            Ok(Err(Failed::UnknownTask)) => Err("the plugin does not find the task".into()),
            Ok(Err(Failed::Refused(status))) => Err(describe(&status)),
            Err(_) => Err(format!("the plugin did not answer within {} s", RECOVER_TIMEOUT.as_secs())),
        }
    }

    /// Ends a task that a restarted plugin could not recover: the state of the task is unknown.
    pub(super) fn lose(&self, reason: &str) {
        self.end(ExitResult {
            err: Some(format!("the driver's plugin ended, and could not recover the task: {reason}")),
            finished_unix_ns: now(),
            ..Default::default()
        });
    }
}

/// Returns the time in nanoseconds since 1970.
pub(super) fn now() -> u64 {
    u64::try_from(caravan_sys::time::wall_nanos()).unwrap_or(0)
}

/// Waits for the end of a task. When the plugin ends, waits for the next process, which has the task: the supervisor
/// recovers all live tasks before it announces a process. Returns `None` when the agent ends.
async fn wait_over_restarts(instance: &Instance, id: &str) -> Option<ExitResult> {
    let mut process = instance.up().await?;
    let mut refusals = 0;
    loop {
        let mut client = super::client(process.channel());
        match call(&process, client.wait_task(WaitTaskRequest { task_id: id.to_owned() })).await {
            Ok(found) => return Some(convert::exit(found, now())),
            Err(Failed::Ended) => process = instance.up_after(&process).await?,
            Err(Failed::UnknownTask) => {
                let err = Some("the driver's plugin no longer knows the task".into());
                return Some(ExitResult { err, finished_unix_ns: now(), ..Default::default() });
            }
            Err(Failed::Refused(status)) => {
                refusals += 1;
                if refusals >= MAX_REFUSALS {
                    let err = Some(format!("the driver's plugin refuses to wait: {}", describe(&status)));
                    return Some(ExitResult { err, finished_unix_ns: now(), ..Default::default() });
                }
                tokio::time::sleep(RETRY_INTERVAL * refusals).await;
                process = instance.up().await?;
            }
        }
    }
}

/// The tasks of a driver by id.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<HashMap<TaskId, Arc<Task>>>);

impl Tasks {
    pub(super) fn get(&self, id: &TaskId) -> Result<Arc<Task>> {
        self.0.lock().get(id).cloned().ok_or_else(|| Error::UnknownTask(id.clone()))
    }

    pub(super) fn put(&self, task: &Arc<Task>) {
        self.0.lock().insert(task.handle.task_id.clone(), Arc::clone(task));
    }

    pub(super) fn remove(&self, id: &TaskId) {
        self.0.lock().remove(id);
    }

    /// Returns the tasks that have not ended.
    pub(super) fn live(&self) -> Vec<Arc<Task>> {
        self.0.lock().values().filter(|task| task.result().is_none()).cloned().collect()
    }
}
