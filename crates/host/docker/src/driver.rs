//! The driver: the implementation of the agent's calls.

use crate::config::Config;
use crate::engine::{Engine, failed, is_absent, is_trouble, status, text, unreachable};
use crate::images::Images;
use crate::options::DockerOptions;
use crate::running::Running;
use crate::tasks::{Shared, State, Task};
use crate::watch::EngineWatch;
use crate::{NAME, container, dangling, exec, fingerprint, guard, measure, network, start};
use async_trait::async_trait;
use bollard::models::ContainerStatsResponse;
use bollard::query_parameters::{
    KillContainerOptionsBuilder, RemoveContainerOptionsBuilder, StatsOptionsBuilder,
};
use caravan_drivers::{
    Capabilities, Driver, DriverEvent, Error, ExecOutput, ExecRequest, ExecStream, ExitResult, Fingerprint,
    FsIsolation, NetworkIsolation, NetworkRequest, Result, ShimCommand, TaskConfig, TaskHandle, TaskId,
    TaskState, TaskStatus, Usage,
};
use caravan_sys::process::signal_number;
use parking_lot::Mutex;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Version of [`State`].
pub(crate) const HANDLE_VERSION: u32 = 1;

/// The time that a container may take to end after SIGKILL.
const STOP_SLACK: Duration = Duration::from_secs(30);

/// Time between two attempts while the engine does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The driver of containers.
#[derive(Debug)]
pub struct DockerDriver {
    shared: Arc<Shared>,
    /// Whether the engine ever answered.
    seen: AtomicBool,
    /// Whether the engine answers, as of the latest fingerprint's beginning.
    examined: Mutex<watch::Receiver<bool>>,
    events: Mutex<Option<mpsc::UnboundedReceiver<DriverEvent>>>,
    /// Whether the search for dangling containers runs.
    searches: AtomicBool,
}

impl DockerDriver {
    /// Creates the driver without tasks; it connects to the engine at the first call.
    pub fn new(options: DockerOptions, node_id: impl Into<String>, shim: ShimCommand) -> Self {
        let engine = Arc::new(Engine::new(&options));
        let (events, received) = mpsc::unbounded_channel();
        let watch = EngineWatch::new(engine.clone());
        let examined = Mutex::new(watch.states());
        let shared = Shared {
            images: Arc::new(Images::new(engine.clone(), watch.clone(), &options)),
            watch,
            node_id: node_id.into(),
            running: Running::default(),
            hierarchy: OnceLock::new(),
            engine,
            options,
            tasks: Mutex::default(),
            failed_starts: Mutex::default(),
            networks: Mutex::default(),
            events,
            shim,
            cpus: watch::Sender::default(),
            workers: TaskTracker::new(),
            end: CancellationToken::new(),
        };
        Self {
            shared: Arc::new(shared),
            seen: AtomicBool::new(false),
            examined,
            events: Mutex::new(Some(received)),
            searches: AtomicBool::new(false),
        }
    }

    async fn kill(&self, task: &Task, signal: &str) -> Result<()> {
        let id = &task.handle.task_id;
        if signal == "SIGKILL" {
            task.killed.store(true, Ordering::Relaxed);
        }
        let client = self.shared.engine.client().await.map_err(|error| unreachable(id, &error))?;
        let options = KillContainerOptionsBuilder::default().signal(signal).build();
        match client.kill_container(&task.state.container, Some(options)).await {
            Ok(()) => Ok(()),
            // The container is gone or has ended.
            Err(error) if matches!(status(&error), Some(404 | 409)) => Err(Error::Ended(id.clone())),
            Err(error) => Err(failed(id, &error)),
        }
    }

    /// Sends a signal of a stop. Waits for an engine that does not answer, because its containers may still run.
    async fn kill_patiently(&self, task: &Task, signal: &str) -> Result<()> {
        let mut reported = false;
        loop {
            let state = &task.state;
            let sent = self.kill(task, signal);
            match self.shared.patiently(&state.alloc_id, &state.task_name, "the stop", sent).await {
                Err(Error::Supervisor { source, .. }) => {
                    if !reported {
                        reported = true;
                        let words =
                            format!("the stop waits for the Docker engine, which does not answer: {source}");
                        self.shared.report(&task.state.alloc_id, &task.state.task_name, words);
                    }
                    let wait = self.shared.watch.until_up();
                    let _elapsed = tokio::time::timeout(Duration::from_secs(1), wait).await;
                    // The watch may not have noticed yet that the connection broke.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Ok(()) | Err(Error::Ended(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
            if task.result().is_some() {
                return Ok(());
            }
        }
    }

    async fn remove(&self, task: &Task) -> Result<()> {
        let id = &task.handle.task_id;
        let client = self.shared.engine.client().await.map_err(|error| unreachable(id, &error))?;
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        match client.remove_container(&task.state.container, Some(options)).await {
            Ok(()) => Ok(()),
            // The container is gone, or is being removed.
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(failed(id, &error)),
        }
    }
}

#[async_trait]
impl Driver for DockerDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: true,
            exec: true,
            fs_isolation: FsIsolation::Image,
            mounts: true,
            privileged_mounts: true,
            networks: true,
            creates_networks: true,
            dynamic_users: false,
            names: true,
            survives_agent: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        // Later changes are reported by `changed`, also if they come before that call.
        self.examined.lock().mark_unchanged();
        let has_tasks = !self.shared.tasks.lock().is_empty();
        let found = fingerprint::look(&self.shared, has_tasks || self.seen.load(Ordering::Relaxed)).await;
        if found.state == caravan_drivers::Health::Healthy {
            self.seen.store(true, Ordering::Relaxed);
            self.shared.watch.ensure();
            let dangling = self.shared.options.gc.dangling;
            if dangling.enabled && !self.searches.swap(true, Ordering::Relaxed) {
                tokio::spawn(dangling::search(Arc::downgrade(&self.shared)));
            }
        }
        found
    }

    async fn changed(&self) {
        let mut states = self.examined.lock().clone();
        if states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn events(&self) -> Option<mpsc::UnboundedReceiver<DriverEvent>> {
        self.events.lock().take()
    }

    fn validate(&self, config: &Value) -> Result<()> {
        container::check_allowed(&Config::read(config)?, &self.shared.options)
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        if let Ok(task) = self.shared.get(&config.id)
            && task.result().is_none()
        {
            return Err(Error::TaskExists(config.id));
        }
        let id = config.id.clone();
        let started = Box::pin(start::start(&self.shared, config)).await;
        if started.is_err() {
            self.shared.failed_starts.lock().insert(id);
        }
        started
    }

    async fn recover(&self, handle: TaskHandle) -> Result<()> {
        let unreadable = |reason: String| Error::Handle { id: handle.task_id.clone(), reason };
        if handle.driver != NAME {
            return Err(unreadable(format!("it is from driver {}", handle.driver)));
        }
        if handle.version != HANDLE_VERSION {
            return Err(unreadable(format!("its version is {}, not {HANDLE_VERSION}", handle.version)));
        }
        let state: State =
            serde_json::from_value(handle.state.clone()).map_err(|error| unreadable(error.to_string()))?;
        if self.shared.get(&handle.task_id).is_ok() {
            return Err(Error::TaskExists(handle.task_id));
        }
        // The watcher reports a container that has ended or is gone, and waits for an engine that does not answer.
        self.shared.adopt(handle, state, None);
        Ok(())
    }

    async fn wait(&self, id: &TaskId) -> Result<ExitResult> {
        self.shared.get(id)?.wait().await
    }

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        let task = self.shared.get(id)?;
        let signal = signal.filter(|signal| !signal.is_empty());
        if let Some(name) = signal {
            signal_number(name).map_err(|error| Error::Config(format!("failed to parse signal: {error}")))?;
        }
        if task.result().is_some() {
            return Ok(());
        }
        if !timeout.is_zero() {
            self.kill_patiently(&task, signal.unwrap_or(&task.state.stop_signal)).await?;
            if tokio::time::timeout(timeout, task.wait()).await.is_ok() {
                return Ok(());
            }
        }
        self.kill_patiently(&task, "SIGKILL").await?;
        match tokio::time::timeout(STOP_SLACK, task.wait()).await {
            Ok(result) => result.map(drop),
            Err(_) => Err(Error::Timeout {
                what: format!("the end of the killed container of task {id}"),
                limit: STOP_SLACK,
            }),
        }
    }

    async fn destroy(&self, id: &TaskId, force: bool) -> Result<()> {
        let task = self.shared.get(id)?;
        if task.result().is_none() {
            if !force {
                return Err(Error::StillRunning(id.clone()));
            }
            self.stop(id, Duration::ZERO, None).await?;
        }
        self.shared.tasks.lock().remove(id);
        self.shared.images.release(&task.state.image, &id.0);
        crate::logs::clear(&task.state.state_dir);
        guard::clear(&task.state.state_dir);
        container::hosts::clear(&task.state.state_dir);
        // Fails if the directory is absent or contains something else.
        let _kept = std::fs::remove_dir(&task.state.state_dir);
        if self.shared.options.gc.container { self.remove(&task).await } else { Ok(()) }
    }

    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus> {
        let task = self.shared.get(id)?;
        let state = task.result().map_or(TaskState::Running, TaskState::Exited);
        Ok(TaskStatus { state, handle: task.handle.clone() })
    }

    async fn usage(&self, id: &TaskId) -> Result<Usage> {
        let task = self.shared.live(id)?;
        if let Some(usage) = measure::usage(&self.shared, &task.state) {
            return Ok(usage);
        }
        let client = self.shared.engine.client().await.map_err(|error| unreachable(id, &error))?;
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let mut samples = client.stats(&task.state.container, Some(options));
        match futures::StreamExt::next(&mut samples).await {
            Some(Ok(sample)) => Ok(usage(&sample)),
            Some(Err(error)) if is_absent(&error) => Err(Error::Ended(id.clone())),
            Some(Err(error)) => Err(failed(id, &error)),
            None => Err(Error::Ended(id.clone())),
        }
    }

    async fn signal(&self, id: &TaskId, signal: &str) -> Result<()> {
        let task = self.shared.live(id)?;
        signal_number(signal)?;
        self.kill(&task, signal).await
    }

    async fn exec(&self, id: &TaskId, command: &[String], timeout: Duration) -> Result<ExecOutput> {
        let task = self.shared.live(id)?;
        exec::run(&self.shared, &task, command, timeout).await
    }

    async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        let task = self.shared.live(id)?;
        exec::stream(&self.shared, &task, request).await
    }

    fn share_processors(&self, cpus: &str) {
        // Another machine has other processors.
        if !self.shared.engine.is_local() {
            return;
        }
        self.shared.cpus.send_if_modified(|known| {
            let is_new = known.as_deref() != Some(cpus);
            *known = Some(cpus.to_owned());
            is_new
        });
    }

    async fn create_network(&self, request: &NetworkRequest) -> Result<NetworkIsolation> {
        Box::pin(network::create(&self.shared, request)).await
    }

    async fn destroy_network(&self, alloc_id: &str, _network: Option<&NetworkIsolation>) -> Result<()> {
        network::destroy(&self.shared, alloc_id).await
    }

    async fn shutdown(&self) {
        self.shared.end.cancel();
        self.shared.workers.close();
        self.shared.workers.wait().await;
    }

    /// Waits for an engine that does not answer, since the lost container may still run.
    async fn end_lost(&self, id: &TaskId, _state_dir: &Path) -> Result<()> {
        if self.shared.failed_starts.lock().remove(id) {
            return Ok(());
        }
        self.shared.watch.ensure();
        let mut reported = false;
        loop {
            let reason = match self.shared.engine.client().await {
                Ok(client) => match dangling::remove_run(&client, id).await {
                    Ok(()) => return Ok(()),
                    Err(error) if is_trouble(&error) => text(&error),
                    Err(error) => return Err(Error::Refused(text(&error))),
                },
                Err(error) => error.to_string(),
            };
            if !reported && let Some((alloc, task)) = dangling::names(id) {
                reported = true;
                let words = format!(
                    "a container of an earlier agent may run: waiting for the Docker engine: {reason}"
                );
                self.shared.report(alloc, task, words);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

fn usage(sample: &ContainerStatsResponse) -> Usage {
    let cpu = sample.cpu_stats.clone().unwrap_or_default();
    let used = cpu.cpu_usage.unwrap_or_default();
    let throttled = cpu.throttling_data.unwrap_or_default();
    let memory = sample.memory_stats.clone().unwrap_or_default();
    let stats = memory.stats.unwrap_or_default();
    // The names of version 1 of control groups, then those of version 2.
    let stat = |names: [&str; 2]| names.iter().find_map(|name| stats.get(*name)).copied().unwrap_or_default();
    Usage {
        cpu_total_ns: used.total_usage.unwrap_or_default(),
        cpu_user_ns: used.usage_in_usermode.unwrap_or_default(),
        cpu_system_ns: used.usage_in_kernelmode.unwrap_or_default(),
        throttled_periods: throttled.throttled_periods.unwrap_or_default(),
        throttled_ns: throttled.throttled_time.unwrap_or_default(),
        memory: memory.usage.unwrap_or_default(),
        memory_peak: memory.max_usage.unwrap_or_default(),
        rss: stat(["rss", "anon"]),
        cache: stat(["cache", "file"]),
        swap: stat(["swap", "swap"]),
        pids: sample.pids_stats.clone().unwrap_or_default().current.unwrap_or_default(),
        boot_time_ns: caravan_sys::time::BootTime::now().0,
        ..Usage::default()
    }
}
