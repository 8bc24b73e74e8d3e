//! The plugin: a table of tasks, and the calls of the agent.

use crate::exec;
use crate::running::{Running, State};
use caravan_plugin_sdk::hclspec::{Spec, Type, attr, object};
use caravan_plugin_sdk::messages::{NetworkIsolationMode, NetworkIsolationSpec};
use caravan_plugin_sdk::{
    Capabilities, DriverPlugin, ExecInput, ExecOutput, ExecRequest, ExecResult, ExitResult, Fingerprint,
    FsIsolation, Health, Host, Info, MountConfigs, Network, NetworkMode, Started, StopRequest, Task,
    TaskError, TaskEvent, TaskHandle, TaskState, TaskStats, TaskStatus, async_trait,
};
use caravan_sys::netns;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// The signal of a stop whose request names none.
const STOP_SIGNAL: &str = "SIGTERM";

/// The configuration of the plugin.
#[derive(Debug, Deserialize)]
pub struct Config {
    /// Whether jobs may use the driver.
    enabled: bool,
    /// Whether tasks without a user run as a user that the agent chooses.
    #[serde(default)]
    dynamic_users: bool,
    /// Whether the agent shows the directories of a task at places that other users can reach.
    #[serde(default)]
    unveil: bool,
    /// The directory of the networks that the driver creates for allocations; empty if it creates none.
    #[serde(default)]
    network_dir: PathBuf,
}

/// The configuration of a task.
#[derive(Clone, Debug, Deserialize)]
pub struct TaskConfig {
    /// The program: a path, or a name that is found by the task's `PATH`.
    pub command: String,
    /// The arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
}

/// The driver.
#[derive(Default)]
pub struct Example {
    host: Mutex<Option<(Config, Host)>>,
    tasks: Mutex<HashMap<String, Arc<Running>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Example {
    fn find(&self, id: &str) -> Result<Arc<Running>, TaskError> {
        lock(&self.tasks).get(id).cloned().ok_or(TaskError::NotFound)
    }

    /// Returns the path at which the network of an allocation is held.
    fn network_of(&self, alloc_id: &str) -> Result<PathBuf, TaskError> {
        let dir = lock(&self.host).as_ref().map(|(config, _)| config.network_dir.clone()).unwrap_or_default();
        if dir.as_os_str().is_empty() || alloc_id.contains('/') {
            return Err(TaskError::failed("the driver makes no network for this allocation"));
        }
        Ok(dir.join(alloc_id))
    }

    fn announce(&self, running: &Running) {
        let Some(events) = lock(&self.host).as_ref().map(|(_, host)| host.events.clone()) else { return };
        events.send(TaskEvent {
            task_id: running.task.id.clone(),
            task_name: running.task.name.clone(),
            alloc_id: running.task.alloc_id.clone(),
            message: "Process started".to_owned(),
            annotations: running.attributes(),
        });
    }
}

#[async_trait]
impl DriverPlugin for Example {
    type Config = Config;
    type TaskConfig = TaskConfig;
    type State = State;

    fn info(&self) -> Info {
        Info::new("example", env!("CARGO_PKG_VERSION"))
    }

    fn config_schema(&self) -> Option<Spec> {
        let schema = object()
            .field("enabled", attr(Type::Bool).or(true))
            .field("dynamic_users", attr(Type::Bool).or(false))
            .field("unveil", attr(Type::Bool).or(false))
            .field("network_dir", attr(Type::String).or(""));
        Some(schema.into())
    }

    fn task_schema(&self) -> Spec {
        object()
            .field("command", attr(Type::String).required())
            .field("args", attr(Type::list(Type::String)))
            .into()
    }

    fn capabilities(&self) -> Capabilities {
        let host = lock(&self.host);
        let is_set = |key: fn(&Config) -> bool| host.as_ref().is_some_and(|(config, _)| key(config));
        Capabilities {
            send_signals: true,
            exec: true,
            fs_isolation: if is_set(|config| config.unveil) {
                FsIsolation::Unveil
            } else {
                FsIsolation::None
            },
            network_modes: vec![NetworkMode::Host, NetworkMode::Group],
            must_create_network: is_set(|config| !config.network_dir.as_os_str().is_empty()),
            mount_configs: MountConfigs::None,
            dynamic_workload_users: is_set(|config| config.dynamic_users),
            ..Capabilities::default()
        }
    }

    async fn configure(&self, config: Config, host: Host) -> Result<(), TaskError> {
        tracing::info!(enabled = config.enabled, "the driver is configured");
        *lock(&self.host) = Some((config, host));
        Ok(())
    }

    async fn fingerprint(&self) -> Fingerprint {
        let is_enabled = lock(&self.host).as_ref().is_none_or(|(config, _)| config.enabled);
        if !is_enabled {
            return Fingerprint::new(Health::Undetected, "disabled");
        }
        Fingerprint::new(Health::Healthy, "Healthy")
            .attribute("driver.example.version", env!("CARGO_PKG_VERSION"))
    }

    async fn start_task(&self, task: Task<TaskConfig>) -> Result<Started<State>, TaskError> {
        if lock(&self.tasks).contains_key(&task.id) {
            return Err(TaskError::failed("a task with this id exists"));
        }
        let running = Running::start(task).await?;
        let state = running.state.clone();
        tracing::info!(task = running.task.id, pid = state.task.pid, "the task runs");
        self.announce(&running);
        lock(&self.tasks).insert(running.task.id.clone(), Arc::new(running));
        Ok(Started::new(state))
    }

    async fn recover_task(&self, handle: TaskHandle<TaskConfig, State>) -> Result<(), TaskError> {
        let id = handle.task.id.clone();
        if lock(&self.tasks).contains_key(&id) {
            return Ok(());
        }
        let running = Running::recover(handle)?;
        tracing::info!(task = id, pid = running.state.task.pid, "the task was found again");
        lock(&self.tasks).insert(id, Arc::new(running));
        Ok(())
    }

    async fn wait_task(&self, id: &str) -> Result<ExitResult, TaskError> {
        Ok(self.find(id)?.wait().await.result)
    }

    async fn stop_task(&self, id: &str, request: StopRequest) -> Result<(), TaskError> {
        let running = self.find(id)?;
        running.signal(request.signal.as_deref().unwrap_or(STOP_SIGNAL))?;
        if tokio::time::timeout(request.timeout, running.wait()).await.is_err() {
            running.kill()?;
            running.wait().await;
        }
        Ok(())
    }

    async fn destroy_task(&self, id: &str, force: bool) -> Result<(), TaskError> {
        let running = self.find(id)?;
        if running.outcome().is_none() {
            if !force {
                return Err(TaskError::failed("the task runs: stop it first, or use force"));
            }
            running.kill()?;
            running.wait().await;
        }
        running.remove_record();
        lock(&self.tasks).remove(id);
        Ok(())
    }

    async fn inspect_task(&self, id: &str) -> Result<TaskStatus, TaskError> {
        let running = self.find(id)?;
        let outcome = running.outcome();
        Ok(TaskStatus {
            name: running.task.name.clone(),
            state: if outcome.is_some() { TaskState::Exited } else { TaskState::Running },
            started_at: running.state.started_at,
            completed_at: outcome.as_ref().map(|outcome| outcome.at),
            result: outcome.map(|outcome| outcome.result),
            attributes: running.attributes(),
            network: None,
        })
    }

    async fn task_stats(&self, id: &str) -> Result<Option<TaskStats>, TaskError> {
        Ok(self.find(id)?.measure())
    }

    async fn signal_task(&self, id: &str, signal: &str) -> Result<(), TaskError> {
        self.find(id)?.signal(signal)
    }

    async fn exec_task(
        &self,
        id: &str,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<ExecResult, TaskError> {
        exec::once(&self.find(id)?.task, &command, timeout).await
    }

    async fn create_network(&self, alloc_id: &str, hostname: &str) -> Result<Network, TaskError> {
        let path = self.network_of(alloc_id)?;
        let created = !netns::is_held(&path).map_err(TaskError::failed)?;
        netns::hold(&path).map_err(TaskError::failed)?;
        tracing::info!(alloc_id, created, "the network is there");
        let spec = NetworkIsolationSpec {
            mode: NetworkIsolationMode::Group.into(),
            path: path.display().to_string(),
            labels: [("example_hostname".to_owned(), hostname.to_owned())].into(),
            hosts_config: None,
        };
        Ok(Network { spec, created })
    }

    async fn destroy_network(
        &self,
        alloc_id: &str,
        _network: Option<NetworkIsolationSpec>,
    ) -> Result<(), TaskError> {
        netns::let_go(&self.network_of(alloc_id)?).map_err(TaskError::failed)
    }

    async fn exec_task_streaming(
        &self,
        request: ExecRequest,
        input: Receiver<ExecInput>,
        output: ExecOutput,
    ) -> Result<ExitResult, TaskError> {
        let running = self.find(&request.task_id)?;
        if request.tty {
            exec::on_terminal(&running.task, &request.command, input, output).await
        } else {
            exec::on_pipes(&running.task, &request.command, input, output).await
        }
    }
}

/// Facts about a process, for users.
pub fn facts<'a>(all: impl IntoIterator<Item = (&'a str, u32)>) -> BTreeMap<String, String> {
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
}
