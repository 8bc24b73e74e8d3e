//! [`ExternalDriver`]: a driver whose tasks run under an external plugin.

mod calls;
mod exec;
mod health;
mod logs;
mod network;
mod start;
mod stats;
mod task;

use crate::PluginError;
use crate::convert::{self, Supports};
use crate::instance::{Instance, Prepare, Status};
use crate::process::{MAX_MESSAGE, Process, Program};
use crate::setup::{Configured, Setup};
use async_trait::async_trait;
use calls::{Failed, call, refused};
use caravan_drivers::{
    Capabilities, Driver, DriverEvent, Error, ExecOutput, ExecRequest, ExecStream, Fingerprint,
    NetworkIsolation, NetworkRequest, Result, ShimCommand, TaskConfig, TaskHandle, TaskId, TaskState,
    TaskStatus, Usage,
};
use caravan_proto::plugins::driver::driver_client::DriverClient;
use caravan_proto::plugins::driver::{
    DestroyTaskRequest, ShutdownRequest, SignalTaskRequest, StopTaskRequest,
};
use caravan_schema::Spec;
use caravan_sys::dir::Dir;
use health::Fingerprints;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use task::{Task, Tasks};
use tokio::sync::mpsc;
use tonic::transport::Channel;

/// The additional time in which a task must end after its kill timeout.
const STOP_SLACK: Duration = Duration::from_secs(30);
/// The longest time for calls that do not wait for tasks.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of the plugin's shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a client of the driver service.
pub(crate) fn client(channel: Channel) -> DriverClient<Channel> {
    DriverClient::new(channel).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

/// A driver whose tasks run under an external plugin.
#[derive(Debug)]
pub struct ExternalDriver {
    name: String,
    supports: Supports,
    instance: Arc<Instance>,
    shared: Arc<Shared>,
    fingerprints: Fingerprints,
    shim: ShimCommand,
    events: Mutex<Option<mpsc::UnboundedReceiver<DriverEvent>>>,
}

/// The parts of a driver that its supervisor uses too.
#[derive(Debug)]
struct Shared {
    setup: Setup,
    tasks: Tasks,
    /// The schema of the tasks' `config` block, as the latest process reported it.
    schema: Mutex<Option<Arc<Spec>>>,
    /// The plugin's configuration with defaults.
    shown: Mutex<Option<serde_json::Value>>,
    events: mpsc::UnboundedSender<DriverEvent>,
}

#[async_trait]
impl Prepare for Shared {
    async fn prepare(&self, process: &Arc<Process>) -> std::result::Result<(), PluginError> {
        self.accept(self.setup.configure(process).await?);
        let live = self.tasks.live();
        let recovered = live.iter().map(|task| async move { (task, task.recover(process).await) });
        for (task, outcome) in futures::future::join_all(recovered).await {
            match outcome {
                Ok(()) => {}
                Err(_) if process.has_ended() => {
                    return Err(PluginError::Ended {
                        how: process.end_reason().await,
                        output: "while it recovered tasks".into(),
                    });
                }
                Err(reason) => {
                    tracing::error!(task = %task.handle.task_id, reason, "the plugin cannot recover a task");
                    task.lose(&reason);
                }
            }
        }
        Ok(())
    }

    fn keeps_processes(&self) -> bool {
        true
    }
}

impl Shared {
    fn accept(&self, configured: Configured) {
        *self.shown.lock() = Some(configured.shown);
        *self.schema.lock() = configured.task_schema.map(Arc::new);
    }

    fn report(&self, task: &Task, message: String) {
        // Without a receiver, no client reads events.
        let _unread = self.events.send(DriverEvent {
            alloc_id: task.state.alloc_id.clone(),
            task_name: task.state.task_name.clone(),
            message,
            ..Default::default()
        });
    }
}

impl Drop for ExternalDriver {
    /// Ends the supervision, which live tasks would keep alive otherwise. The process continues.
    fn drop(&mut self) {
        let _process = self.instance.stop();
    }
}

impl ExternalDriver {
    /// Creates the driver of a plugin. Without a running process, the supervisor starts one.
    pub(crate) fn new(
        name: String,
        supports: Supports,
        setup: Setup,
        program: Program,
        first: Option<(Arc<Process>, Configured)>,
        shim: ShimCommand,
    ) -> Self {
        let (events, received) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            setup,
            tasks: Tasks::default(),
            schema: Mutex::default(),
            shown: Mutex::default(),
            events,
        });
        let first = first.map(|(process, configured)| {
            shared.accept(configured);
            process
        });
        let instance = Arc::new(Instance::supervise(program, first, Arc::clone(&shared) as Arc<dyn Prepare>));
        health::report_outages(&instance, &shared);
        health::forward_events(&instance, &shared);
        let fingerprints = Fingerprints::begin(&name, &instance);
        Self { name, supports, instance, shared, fingerprints, shim, events: Mutex::new(Some(received)) }
    }

    /// Waits until the plugin serves calls, at most this long. Returns its configuration with defaults.
    pub(crate) async fn shown(&self, limit: Duration) -> Option<serde_json::Value> {
        let _late = tokio::time::timeout(limit, self.instance.up()).await;
        self.shared.shown.lock().clone()
    }

    /// Waits until the plugin serves calls.
    async fn up(&self, id: &TaskId) -> Result<Arc<Process>> {
        self.instance.up().await.ok_or_else(|| refused(&self.name, id, Failed::Ended))
    }

    /// Returns the process of the plugin, without a wait.
    fn process(&self) -> Result<Arc<Process>> {
        self.instance
            .process()
            .map_err(|reason| Error::Refused(format!("driver {} is down: {reason}", self.name)))
    }

    fn error(&self, id: &TaskId, failed: Failed) -> Error {
        refused(&self.name, id, failed)
    }

    /// Returns a task that runs.
    fn running(&self, id: &TaskId) -> Result<Arc<Task>> {
        let task = self.shared.tasks.get(id)?;
        if task.result().is_some() { Err(Error::Ended(id.clone())) } else { Ok(task) }
    }

    /// Removes a task from the plugin. A task that the plugin does not have is no error. Waits for a plugin that is
    /// down, because the task may still run.
    async fn destroy_in_plugin(&self, id: &TaskId, force: bool) -> Result<()> {
        loop {
            let process = self.up(id).await?;
            let mut client = client(process.channel());
            let request = DestroyTaskRequest { task_id: id.0.clone(), force };
            match call(&process, client.destroy_task(request)).await {
                Ok(_) | Err(Failed::UnknownTask) => return Ok(()),
                Err(Failed::Ended) => {
                    let _next = self.instance.up_after(&process).await;
                }
                Err(failed) => return Err(self.error(id, failed)),
            }
        }
    }
}

#[async_trait]
impl Driver for ExternalDriver {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.supports.client
    }

    async fn fingerprint(&self) -> Fingerprint {
        match self.instance.status() {
            Status::Up(_) => self.fingerprints.latest(&self.instance).await,
            Status::Silent(process) => {
                health::unhealthy(format!("the plugin's process {} does not answer", process.identity.pid))
            }
            Status::Down(reason) => health::unhealthy(reason),
            Status::Stopped => health::unhealthy("the agent ends".into()),
        }
    }

    async fn changed(&self) {
        self.fingerprints.changed().await;
    }

    fn events(&self) -> Option<mpsc::UnboundedReceiver<DriverEvent>> {
        self.events.lock().take()
    }

    fn validate(&self, config: &serde_json::Value) -> Result<()> {
        self.decode(config).map(drop)
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        Box::pin(self.start_task(config)).await
    }

    async fn recover(&self, handle: TaskHandle) -> Result<()> {
        self.recover_task(handle).await
    }

    async fn wait(&self, id: &TaskId) -> Result<caravan_drivers::ExitResult> {
        self.shared.tasks.get(id)?.wait().await
    }

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        let task = self.shared.tasks.get(id)?;
        let request = StopTaskRequest {
            task_id: id.0.clone(),
            timeout: Some(convert::duration(timeout)),
            signal: signal.unwrap_or_default().to_owned(),
        };
        let mut is_reported = false;
        while task.result().is_none() {
            if !is_reported && let Err(reason) = self.instance.process() {
                is_reported = true;
                self.shared.report(&task, format!("the stop waits for driver {}: {reason}", self.name));
            }
            let process = self.up(id).await?;
            let mut client = client(process.channel());
            let stopped = tokio::select! {
                stopped = call(&process, client.stop_task(request.clone())) => stopped,
                _ = task.wait() => return Ok(()),
            };
            match stopped {
                Ok(_) => {
                    let limit = timeout + STOP_SLACK;
                    let ended = tokio::time::timeout(limit, task.wait()).await;
                    return ended
                        .map_or(Err(Error::Timeout { what: "the end of the task".into(), limit }), |_| {
                            Ok(())
                        });
                }
                Err(Failed::UnknownTask) => return Ok(()),
                Err(Failed::Ended) => {
                    let _next = self.instance.up_after(&process).await;
                }
                Err(failed) => return Err(self.error(id, failed)),
            }
        }
        Ok(())
    }

    async fn destroy(&self, id: &TaskId, force: bool) -> Result<()> {
        let task = self.shared.tasks.get(id)?;
        if task.result().is_none() && !force {
            return Err(Error::StillRunning(id.clone()));
        }
        self.destroy_in_plugin(id, force).await?;
        let collection = task.collection.lock().take();
        if let Some(collection) = collection {
            collection.end().await;
        }
        if task.result().is_none() {
            task.lose("it was destroyed");
        }
        self.shared.tasks.remove(id);
        start::remove_state(&task.state.state_dir)
    }

    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus> {
        let task = self.shared.tasks.get(id)?;
        let state = task.result().map_or(TaskState::Running, TaskState::Exited);
        Ok(TaskStatus { state, handle: task.handle.clone() })
    }

    async fn usage(&self, id: &TaskId) -> Result<Usage> {
        let task = self.running(id)?;
        let process = self.process()?;
        let measured = task.stats.usage(process, &id.0).await;
        measured.map_err(|reason| Error::Refused(format!("driver {}: {reason}", self.name)))
    }

    async fn signal(&self, id: &TaskId, signal: &str) -> Result<()> {
        let _running = self.running(id)?;
        let process = self.process()?;
        let mut client = client(process.channel());
        let request = SignalTaskRequest { task_id: id.0.clone(), signal: signal.to_owned() };
        let sent = tokio::time::timeout(CALL_TIMEOUT, call(&process, client.signal_task(request))).await;
        match sent {
            Ok(sent) => sent.map(drop).map_err(|failed| self.error(id, failed)),
            Err(_) => Err(Error::Timeout { what: "the signal".into(), limit: CALL_TIMEOUT }),
        }
    }

    async fn exec(&self, id: &TaskId, command: &[String], timeout: Duration) -> Result<ExecOutput> {
        let _running = self.running(id)?;
        let process = self.process()?;
        match exec::collect(&process, &id.0, command, timeout).await {
            Ok(output) => Ok(output),
            Err(failure) => exec::error(failure, timeout, |failed| self.error(id, failed)),
        }
    }

    async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        let _running = self.running(id)?;
        let process = self.process()?;
        let opened = exec::stream(process, &self.name, &id.0, request).await;
        opened.map_err(|failed| self.error(id, failed))
    }

    async fn end_lost(&self, id: &TaskId, state_dir: &Path) -> Result<()> {
        self.end_lost_task(id, state_dir).await
    }

    async fn create_network(&self, request: &NetworkRequest) -> Result<NetworkIsolation> {
        self.create_network_in_plugin(request).await
    }

    async fn destroy_network(&self, alloc_id: &str, network: Option<&NetworkIsolation>) -> Result<()> {
        self.destroy_network_in_plugin(alloc_id, network).await
    }

    async fn shutdown(&self) {
        let Some(process) = self.instance.stop() else { return };
        for task in self.shared.tasks.live() {
            task.stats.close();
        }
        let mut client = client(process.channel());
        let _answer = tokio::time::timeout(SHUTDOWN_TIMEOUT, client.shutdown(ShutdownRequest {})).await;
        process.shut_down(self.instance.program()).await;
    }
}

/// Returns the state directory of a task by descriptor, created if it does not exist (0700).
fn open_state_dir(state_dir: &Path) -> Result<Dir> {
    caravan_sys::files::durable_private_dir(state_dir)?;
    Ok(Dir::open(state_dir)?)
}
