//! mock: simulates tasks with a timer, for tests of the code around drivers.

use crate::config::Reader;
use crate::driver::{Capabilities, Driver, Fingerprint, FsIsolation};
use crate::session::{ExecEvent, ExecRequest, ExecStream, QUEUE};
use crate::task::{
    ExecOutput, ExitResult, LogConfig, TaskConfig, TaskHandle, TaskId, TaskState, TaskStatus, Usage,
};
use crate::{Error, Result};
use async_trait::async_trait;
use caravan_sys::dir::{Dir, Mounts};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

const NAME: &str = "mock_driver";
const HANDLE_VERSION: u32 = 1;

/// A driver that simulates tasks: their `config` sets the run time, the result and the failures.
#[derive(Debug, Default)]
pub struct MockDriver {
    tasks: Mutex<HashMap<TaskId, Arc<Task>>>,
}

/// A task's `config` block. Absent times are zero: a task without `run_for` ends immediately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Config {
    run_for: Duration,
    exit_code: i32,
    exit_signal: i32,
    exit_err_msg: Option<String>,
    kill_after: Duration,
    signal_error: Option<String>,
    exec_output: Option<String>,
    exec_exit_code: i32,
    start_error: Option<String>,
    start_error_recoverable: bool,
    start_block_for: Duration,
    stdout_string: Option<String>,
    stdout_repeat: u64,
    stdout_repeat_duration: Duration,
    stderr_string: Option<String>,
}

impl Config {
    fn read(value: &Value) -> Result<Self> {
        let mut reader = Reader::new(NAME, value)?;
        let config = Self {
            run_for: reader.duration("run_for")?.unwrap_or_default(),
            exit_code: small(&mut reader, "exit_code")?,
            exit_signal: small(&mut reader, "exit_signal")?,
            exit_err_msg: reader.string("exit_err_msg")?,
            kill_after: reader.duration("kill_after")?.unwrap_or_default(),
            signal_error: reader.string("signal_error")?,
            exec_output: reader.string("exec_output")?,
            exec_exit_code: small(&mut reader, "exec_exit_code")?,
            start_error: reader.string("start_error")?,
            start_error_recoverable: reader.boolean("start_error_recoverable")?,
            start_block_for: reader.duration("start_block_for")?.unwrap_or_default(),
            stdout_string: reader.string("stdout_string")?,
            stdout_repeat: u64::try_from(reader.integer("stdout_repeat")?.unwrap_or(0)).unwrap_or(0),
            stdout_repeat_duration: reader.duration("stdout_repeat_duration")?.unwrap_or_default(),
            stderr_string: reader.string("stderr_string")?,
        };
        reader.finish()?;
        Ok(config)
    }
}

fn small(reader: &mut Reader<'_>, key: &'static str) -> Result<i32> {
    i32::try_from(reader.integer(key)?.unwrap_or(0))
        .map_err(|_| Error::Config(format!("config key {key:?} of driver {NAME} is out of range")))
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    config: Config,
    logs: Option<LogConfig>,
}

#[derive(Debug)]
struct Task {
    handle: TaskHandle,
    config: Config,
    stop: watch::Sender<Option<i32>>,
    exit: watch::Receiver<Option<ExitResult>>,
}

impl MockDriver {
    /// Creates the driver without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    fn run(&self, handle: TaskHandle, state: State, fresh: bool) {
        let (stop, stopped) = watch::channel(None);
        let (ended, exit) = watch::channel(None);
        let config = state.config.clone();
        let end = handle.started_unix_ns.saturating_add(nanos(config.run_for));
        tokio::spawn(async move {
            if fresh {
                write_output(&state);
            }
            let repeats = repeat_output(&state, if fresh { state.config.stdout_repeat } else { 0 });
            let left = Duration::from_nanos(end.saturating_sub(unix_now()));
            let lives = async {
                tokio::time::sleep(left).await;
                (state.config.exit_code, state.config.exit_signal, state.config.exit_err_msg.clone())
            };
            let (exit_code, signal, err) = tokio::select! {
                natural = lives => natural,
                () = async { repeats.await; std::future::pending().await } => (0, 0, None),
                signal = killed(stopped) => {
                    tokio::time::sleep(state.config.kill_after).await;
                    (0, signal, None)
                }
            };
            let finished_unix_ns = unix_now();
            ended.send_replace(Some(ExitResult {
                exit_code,
                signal,
                oom_killed: false,
                err,
                finished_unix_ns,
                ..ExitResult::default()
            }));
        });
        let task = Arc::new(Task { handle, config, stop, exit });
        self.lock().insert(task.handle.task_id.clone(), task);
    }

    fn get(&self, id: &TaskId) -> Result<Arc<Task>> {
        self.lock().get(id).cloned().ok_or_else(|| Error::UnknownTask(id.clone()))
    }

    fn running(&self, id: &TaskId) -> Result<Arc<Task>> {
        let task = self.get(id)?;
        if task.exit.borrow().is_some() { Err(Error::Ended(id.clone())) } else { Ok(task) }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<TaskId, Arc<Task>>> {
        self.tasks.lock()
    }
}

/// Waits for the signal that stops the task and returns it. Never returns if the driver was dropped.
async fn killed(mut stopped: watch::Receiver<Option<i32>>) -> i32 {
    let signal = stopped.wait_for(Option::is_some).await.ok().and_then(|signal| *signal);
    match signal {
        Some(signal) => signal,
        None => std::future::pending().await,
    }
}

fn append(logs: &LogConfig, name: &str, text: &str) {
    let write = || -> Result<()> {
        let dir = Dir::open_last(&logs.dir, Mounts::Follow)?;
        let (mut file, _) = caravan_shim::append_to(&dir, &format!("{name}.0"))
            .map_err(|error| Error::Refused(caravan_sys::describe(&error)))?;
        file.write_all(text.as_bytes()).map_err(|error| Error::Refused(error.to_string()))
    };
    if let Err(error) = write() {
        tracing::warn!(path = %logs.dir.display(), %error, "mock output cannot be written");
    }
}

fn write_output(state: &State) {
    let Some(logs) = &state.logs else { return };
    if let Some(text) = &state.config.stdout_string {
        append(logs, &logs.stdout, text);
    }
    if let Some(text) = &state.config.stderr_string {
        append(logs, &logs.stderr, text);
    }
}

async fn repeat_output(state: &State, times: u64) {
    let (Some(logs), Some(text)) = (&state.logs, &state.config.stdout_string) else { return };
    for _ in 0..times {
        tokio::time::sleep(state.config.stdout_repeat_duration).await;
        append(logs, &logs.stdout, text);
    }
}

#[async_trait]
impl Driver for MockDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            send_signals: true,
            exec: true,
            fs_isolation: FsIsolation::None,
            mounts: true,
            privileged_mounts: true,
            networks: true,
            creates_networks: false,
            dynamic_users: false,
            names: false,
            survives_agent: true,
        }
    }

    async fn fingerprint(&self) -> Fingerprint {
        Fingerprint::healthy(NAME)
    }

    fn validate(&self, config: &Value) -> Result<()> {
        Config::read(config).map(drop)
    }

    async fn start(&self, config: TaskConfig) -> Result<TaskHandle> {
        let desired = Config::read(&config.driver_config)?;
        if self.running(&config.id).is_ok() {
            return Err(Error::TaskExists(config.id));
        }
        tokio::time::sleep(desired.start_block_for).await;
        if let Some(message) = desired.start_error {
            return Err(Error::Start { message, recoverable: desired.start_error_recoverable });
        }
        let state = State { config: desired, logs: config.logs };
        let value = serde_json::to_value(&state)
            .map_err(|e| Error::Handle { id: config.id.clone(), reason: e.to_string() })?;
        let handle = TaskHandle {
            version: HANDLE_VERSION,
            driver: NAME.into(),
            task_id: config.id,
            started_unix_ns: unix_now(),
            pid: None,
            degraded: Vec::new(),
            network: None,
            state: value,
        };
        self.run(handle.clone(), state, true);
        Ok(handle)
    }

    async fn recover(&self, handle: TaskHandle) -> Result<()> {
        let unreadable = |reason: String| Error::Handle { id: handle.task_id.clone(), reason };
        if handle.driver != NAME || handle.version != HANDLE_VERSION {
            return Err(unreadable(format!(
                "it is version {} from driver {}",
                handle.version, handle.driver
            )));
        }
        let state = serde_json::from_value(handle.state.clone()).map_err(|e| unreadable(e.to_string()))?;
        if self.get(&handle.task_id).is_ok() {
            return Err(Error::TaskExists(handle.task_id));
        }
        self.run(handle, state, false);
        Ok(())
    }

    async fn wait(&self, id: &TaskId) -> Result<ExitResult> {
        let mut exit = self.get(id)?.exit.clone();
        let seen = exit.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
        seen.ok_or_else(|| Error::Supervisor {
            id: id.clone(),
            source: std::io::ErrorKind::ConnectionAborted.into(),
        })
    }

    async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        let task = self.get(id)?;
        let mut signal = caravan_sys::process::signal_number(signal.unwrap_or("SIGTERM"))?;
        if task.config.kill_after > timeout {
            signal = caravan_sys::process::signal_number("SIGKILL")?;
        }
        task.stop.send_if_modified(|sent| sent.is_none() && sent.replace(signal).is_none());
        self.wait(id).await.map(drop)
    }

    async fn destroy(&self, id: &TaskId, force: bool) -> Result<()> {
        if self.running(id).is_ok() {
            if !force {
                return Err(Error::StillRunning(id.clone()));
            }
            self.stop(id, Duration::ZERO, Some("SIGKILL")).await?;
        }
        self.lock().remove(id).map(drop).ok_or_else(|| Error::UnknownTask(id.clone()))
    }

    async fn inspect(&self, id: &TaskId) -> Result<TaskStatus> {
        let task = self.get(id)?;
        let state = task.exit.borrow().clone().map_or(TaskState::Running, TaskState::Exited);
        Ok(TaskStatus { state, handle: task.handle.clone() })
    }

    async fn usage(&self, id: &TaskId) -> Result<Usage> {
        self.running(id)?;
        Ok(Usage { boot_time_ns: caravan_sys::time::BootTime::now().0, ..Usage::default() })
    }

    async fn signal(&self, id: &TaskId, signal: &str) -> Result<()> {
        caravan_sys::process::signal_number(signal)?;
        match &self.running(id)?.config.signal_error {
            Some(message) => Err(Error::Refused(message.clone())),
            None => Ok(()),
        }
    }

    async fn exec(&self, id: &TaskId, command: &[String], _timeout: Duration) -> Result<ExecOutput> {
        let task = self.running(id)?;
        let text = task.config.exec_output.clone().unwrap_or_else(|| format!("{}\n", command.join(" ")));
        Ok(ExecOutput {
            stdout: text.into_bytes(),
            stderr: Vec::new(),
            exit_code: task.config.exec_exit_code,
        })
    }

    async fn exec_stream(&self, id: &TaskId, request: ExecRequest) -> Result<ExecStream> {
        let reported = self.exec(id, &request.command, Duration::ZERO).await?;
        let (input, _nobody_reads) = mpsc::channel(QUEUE);
        let (outputs, output) = mpsc::channel(QUEUE);
        let events = [
            ExecEvent::Stdout(reported.stdout),
            ExecEvent::StderrClosed,
            ExecEvent::StdoutClosed,
            ExecEvent::Exited(reported.exit_code),
        ];
        for event in events {
            // Cannot fail: the queue is longer than the events, and this function still holds the receiver.
            let _ = outputs.try_send(Ok(event));
        }
        Ok(ExecStream { input, output })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn unix_now() -> u64 {
    u64::try_from(caravan_sys::time::wall_nanos()).unwrap_or(0)
}
