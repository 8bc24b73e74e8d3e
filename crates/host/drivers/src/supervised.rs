//! Tasks under shims: the common part of raw_exec, exec, java and qemu.
//!
//! One watcher per task waits for the shim to report the end. If the shim has ended without a report, its exit record
//! is used. Without a record, the shim was killed: the watcher kills the task's remaining processes before it reports
//! the end.

mod connection;
pub(crate) mod convert;
mod driver;
mod exec;
mod fork_server;
mod helper;
mod watch;

pub use driver::ShimDriver;
pub use fork_server::{ForkServer, ShimCommand};
pub use helper::Helper;

use crate::task::{ExecOutput, ExitResult, Mount, TaskHandle, TaskId, TaskState, TaskStatus, Usage};
use crate::{Error, Result};
use caravan_shim::protocol::{FrameBuffer, ProcessRef, Reply, Request, Started, encode};
use caravan_shim::spec::MountSpec;
use caravan_shim::{Opening, RECORD_FILE, SOCKET_FILE, StartReport, TaskSpec, VERSION};
use caravan_sys::cgroup::{Cgroup, DeviceRule, Hierarchy};
use caravan_sys::mount::device_number;
use caravan_sys::process::{PidFd, ProcessIdentity, signal_number};
use caravan_sys::tree::{self, Seals};
use connection::Connection;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch as channel;

/// Version of [`State`].
const HANDLE_VERSION: u32 = 1;

/// The signal of a stop if the job names none (docs/reference/drivers.md, section 4.3).
const STOP_SIGNAL: &str = "SIGINT";
/// The longest time for a start, which usually takes milliseconds. A slower shim hangs, for example on a dead mount.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The time that a task may take to end after it was killed, before its shim counts as stuck.
const STOP_SLACK: Duration = Duration::from_secs(10);

/// The time that a shim may take for an answer that does not wait for the task.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Name of the file with a shim's messages, in its directory.
const LOG_FILE: &str = "shim.log";

/// SIGKILL has this number on every Linux architecture (signal(7)).
const SIGKILL: i32 = 9;

/// Bytes kept of each output stream of an executed program.
const EXEC_OUTPUT: usize = 1 << 20;

/// Returns the running program under a name, for the `bundled` option of the drivers. A job can then run the agent's
/// own plugins as `caravan plugin ...`, regardless of its `PATH` or root. Empty if the program's file cannot be
/// found.
pub fn own_program(name: &str) -> BTreeMap<String, PathBuf> {
    std::env::current_exe().map(|path| (name.to_owned(), path)).into_iter().collect()
}

/// This driver's data in a task handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    state_dir: PathBuf,
    shim: ProcessRef,
    task: ProcessRef,
    boot_id: String,
    cgroup: Option<PathBuf>,
}

#[derive(Debug)]
struct Task {
    handle: TaskHandle,
    state: State,
    exit: channel::Receiver<Option<ExitResult>>,
}

/// All tasks of one driver.
#[derive(Debug)]
pub struct ShimTasks {
    driver: &'static str,
    shims: ForkServer,
    tasks: Mutex<HashMap<TaskId, Arc<Task>>>,
}

impl ShimTasks {
    pub(crate) fn new(driver: &'static str, shims: ForkServer) -> Self {
        Self { driver, shims, tasks: Mutex::default() }
    }

    pub(crate) async fn start(&self, id: TaskId, spec: TaskSpec) -> Result<TaskHandle> {
        self.start_with(id, spec, |_| {}).await
    }

    /// Starts a task whose driver adds data to the handle, by `complete`.
    pub(crate) async fn start_with(
        &self,
        id: TaskId,
        spec: TaskSpec,
        complete: impl FnOnce(&mut TaskHandle) + Send,
    ) -> Result<TaskHandle> {
        if let Ok(task) = self.get(&id)
            && task.exit.borrow().is_none()
        {
            return Err(Error::TaskExists(id));
        }
        let failed = |error: caravan_sys::Error| Error::Start {
            message: caravan_sys::describe(&error),
            recoverable: true,
        };
        caravan_sys::files::private_dir(&spec.state_dir).map_err(failed)?;
        end_forgotten(&id, &spec.state_dir).await?;
        let boot_id = caravan_sys::time::boot_id()?;
        let started = self.launch(&id, &spec).await?;
        let state = State {
            state_dir: spec.state_dir,
            shim: started.shim,
            task: started.task,
            boot_id,
            cgroup: spec.cgroup.map(|cgroup| cgroup.path),
        };
        let value = serde_json::to_value(&state)
            .map_err(|e| Error::Handle { id: id.clone(), reason: e.to_string() })?;
        let mut handle = TaskHandle {
            version: HANDLE_VERSION,
            driver: self.driver.to_owned(),
            task_id: id,
            started_unix_ns: started.started_unix_ns,
            pid: Some(started.task.pid),
            degraded: started.degraded,
            network: None,
            state: value,
        };
        complete(&mut handle);
        self.adopt(handle.clone(), state);
        Ok(handle)
    }

    pub(crate) fn recover(&self, handle: TaskHandle) -> Result<()> {
        let unreadable = |reason: String| Error::Handle { id: handle.task_id.clone(), reason };
        if handle.driver != self.driver {
            return Err(unreadable(format!("it is from driver {}", handle.driver)));
        }
        if handle.version != HANDLE_VERSION {
            return Err(unreadable(format!("its version is {}, not {HANDLE_VERSION}", handle.version)));
        }
        let state: State =
            serde_json::from_value(handle.state.clone()).map_err(|e| unreadable(e.to_string()))?;
        if self.get(&handle.task_id).is_ok() {
            return Err(Error::TaskExists(handle.task_id));
        }
        self.adopt(handle, state);
        Ok(())
    }

    fn adopt(&self, handle: TaskHandle, state: State) {
        let (sender, exit) = channel::channel(None);
        let watched = state.clone();
        let id = handle.task_id.clone();
        tokio::spawn(async move {
            let result = watch::until_gone(&id, &watched).await;
            tracing::debug!(task = %id, code = result.exit_code, signal = result.signal, "task ended");
            sender.send_replace(Some(result));
        });
        let task = Arc::new(Task { handle, state, exit });
        self.lock().insert(task.handle.task_id.clone(), task);
    }

    /// Forks a shim, sends it the specification and waits for its report.
    async fn launch(&self, id: &TaskId, spec: &TaskSpec) -> Result<Started> {
        let failed = |what: &str, error: &io::Error| Error::Start {
            message: format!("cannot {what} the task's supervisor: {error}"),
            recoverable: true,
        };
        let mut message = encode(&Opening { version: VERSION })?;
        message.extend(encode(spec)?);
        let log = open_log(&spec.state_dir).map_err(|e| failed("open the log of", &e))?;
        let mut shim = self.shims.fork(log).await.map_err(|e| failed("start", &e))?;
        let conversation = async {
            shim.conversation.write_all(&message).await?;
            connection::receive(&mut shim.conversation, &mut FrameBuffer::default()).await
        };
        let report = tokio::time::timeout(START_LIMIT, conversation).await;
        if !matches!(report, Ok(Ok(_))) {
            // The shim hangs or sent no report: killing it also kills the task that it may have started.
            let _gone = shim.process.send_signal(SIGKILL);
        }
        match report {
            Ok(Ok(StartReport::Started(started))) => Ok(started),
            Ok(Ok(StartReport::Failed { message })) => Err(Error::Start { message, recoverable: false }),
            Ok(Err(error)) => Err(failed("receive the report of", &error)),
            Err(_) => Err(Error::Timeout { what: format!("the start of task {id}"), limit: START_LIMIT }),
        }
    }

    pub(crate) async fn wait(&self, id: &TaskId) -> Result<ExitResult> {
        let task = self.get(id)?;
        wait_exit(&task).await
    }

    pub(crate) async fn stop(&self, id: &TaskId, timeout: Duration, signal: Option<&str>) -> Result<()> {
        let task = self.get(id)?;
        let signal = signal_number(signal.filter(|s| !s.is_empty()).unwrap_or(STOP_SIGNAL))?;
        if task.exit.borrow().is_some() {
            return Ok(());
        }
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let ask = async {
            let mut connection = Connection::open_to(&task.state.state_dir, task.state.shim).await?;
            connection.send(&Request::Stop { signal, timeout_ms }).await?;
            // Hold the connection until the answer. If the shim ends first, the watcher notices that too.
            connection.receive::<Reply>().await
        };
        let all = async {
            if let Err(error) = ask.await {
                tracing::debug!(task = %id, %error, "shim did not answer the stop request");
            }
            wait_exit(&task).await
        };
        let limit = timeout.saturating_add(STOP_SLACK);
        match tokio::time::timeout(limit, all).await {
            Ok(result) => result.map(drop),
            Err(_) => {
                tracing::warn!(task = %id, "shim is stuck: killing it and all processes of the task");
                watch::kill(&task.state);
                tokio::time::timeout(STOP_SLACK, wait_exit(&task))
                    .await
                    .map_err(|_| Error::Timeout { what: format!("the stop of task {id}"), limit })?
                    .map(drop)
            }
        }
    }

    pub(crate) async fn destroy(&self, id: &TaskId, force: bool) -> Result<()> {
        let task = self.get(id)?;
        if task.exit.borrow().is_none() {
            if !force {
                return Err(Error::StillRunning(id.clone()));
            }
            self.stop(id, Duration::ZERO, Some("SIGKILL")).await?;
        }
        self.lock().remove(id);
        let state_dir = task.state.state_dir.clone();
        let removed = tokio::task::spawn_blocking(move || remove_state(&state_dir));
        let failed = |source| Error::Supervisor { id: id.clone(), source };
        match removed.await {
            Ok(removed) => removed.map_err(|error| failed(io::Error::other(error))),
            Err(error) => Err(failed(io::Error::other(error))),
        }
    }

    pub(crate) fn inspect(&self, id: &TaskId) -> Result<TaskStatus> {
        let task = self.get(id)?;
        let state = task.exit.borrow().clone().map_or(TaskState::Running, TaskState::Exited);
        Ok(TaskStatus { state, handle: task.handle.clone() })
    }

    /// Replaces a mount in the root of a running task.
    pub(crate) async fn remount(&self, id: &TaskId, mount: &Mount) -> Result<()> {
        let task = self.get(id)?;
        let identity = ProcessIdentity { pid: task.state.task.pid, start_time: task.state.task.start_time };
        let mount = convert::mount(mount);
        let cgroup = task.state.cgroup.clone();
        let replaced = tokio::task::spawn_blocking(move || -> Result<bool> {
            let Some(process) = PidFd::open_identity(identity)? else { return Ok(false) };
            if let Some(cgroup) = cgroup {
                allow_device(&cgroup, &mount)?;
            }
            let no_new_privileges = caravan_sys::process::has_no_new_privileges(identity.pid)?;
            caravan_shim::replace_mount(&process, &mount, no_new_privileges)?;
            Ok(true)
        });
        match replaced.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(Error::Ended(id.clone())),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Refused(format!("the mount in task {id} was cut off"))),
        }
    }

    pub(crate) async fn usage(&self, id: &TaskId) -> Result<Usage> {
        match self.ask(id, &Request::Usage).await? {
            Reply::Usage(u) => Ok(Usage {
                cpu_total_ns: u.cpu_total_ns,
                cpu_user_ns: u.cpu_user_ns,
                cpu_system_ns: u.cpu_system_ns,
                throttled_periods: u.throttled_periods,
                throttled_ns: u.throttled_ns,
                memory: u.memory,
                memory_peak: u.memory_peak,
                rss: u.rss,
                cache: u.cache,
                swap: u.swap,
                pids: u.pids,
                boot_time_ns: u.boot_time_ns,
                processes: u.processes.into_iter().map(convert::process_usage).collect(),
                pressure: convert::pressure(u.pressure),
            }),
            other => Err(unexpected(id, &other)),
        }
    }

    pub(crate) async fn signal(&self, id: &TaskId, signal: &str) -> Result<()> {
        let signal = signal_number(signal)?;
        match self.ask(id, &Request::Signal { signal }).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(id, &other)),
        }
    }

    pub(crate) async fn exec(
        &self,
        id: &TaskId,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput> {
        let task = self.running(id)?;
        let broken = |source| Error::Supervisor { id: id.clone(), source };
        let run = async {
            let mut connection =
                Connection::open_to(&task.state.state_dir, task.state.shim).await.map_err(broken)?;
            connection
                .send(&Request::Exec { command: command.to_vec(), tty: false })
                .await
                .map_err(broken)?;
            connection.send(&Request::Input { data: Vec::new() }).await.map_err(broken)?;
            let mut output = ExecOutput::default();
            loop {
                match connection.receive().await.map_err(broken)? {
                    Reply::Output { stderr, data } => {
                        let kept = if stderr { &mut output.stderr } else { &mut output.stdout };
                        let room = EXEC_OUTPUT.saturating_sub(kept.len()).min(data.len());
                        kept.extend_from_slice(&data[..room]);
                    }
                    Reply::OutputClosed { .. } => {}
                    Reply::ExecExited { exit_code, signal } => {
                        output.exit_code = if signal == 0 { exit_code } else { 128 + signal };
                        return Ok(output);
                    }
                    other => return Err(unexpected(id, &other)),
                }
            }
        };
        // At the timeout the connection closes, which ends the program.
        tokio::time::timeout(timeout, run)
            .await
            .map_err(|_| Error::Timeout { what: format!("the program run in task {id}"), limit: timeout })?
    }

    async fn ask(&self, id: &TaskId, request: &Request) -> Result<Reply> {
        let task = self.running(id)?;
        let broken = |source| Error::Supervisor { id: id.clone(), source };
        let ask =
            async { Connection::open_to(&task.state.state_dir, task.state.shim).await?.ask(request).await };
        match tokio::time::timeout(ANSWER_LIMIT, ask).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) if task.exit.borrow().is_some() => Err(Error::Ended(id.clone())),
            Ok(Err(error)) => Err(broken(error)),
            Err(_) => Err(broken(io::ErrorKind::TimedOut.into())),
        }
    }

    fn running(&self, id: &TaskId) -> Result<Arc<Task>> {
        let task = self.get(id)?;
        if task.exit.borrow().is_some() { Err(Error::Ended(id.clone())) } else { Ok(task) }
    }

    fn get(&self, id: &TaskId) -> Result<Arc<Task>> {
        self.lock().get(id).cloned().ok_or_else(|| Error::UnknownTask(id.clone()))
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<TaskId, Arc<Task>>> {
        // A panic does not poison this lock, which is safe: nothing panics between two changes of the map.
        self.tasks.lock()
    }
}

/// Lets a task use the device behind a mount. The device's number may differ from that of the mount it replaces.
fn allow_device(cgroup: &Path, mount: &MountSpec) -> Result<()> {
    let (Some((kind, device)), Some(hierarchy)) = (device_number(&mount.host)?, Hierarchy::detect()?) else {
        return Ok(());
    };
    let rule = DeviceRule::using(kind, device, !mount.read_only);
    Ok(Cgroup::at(&hierarchy, cgroup)?.allow_device(rule)?)
}

async fn wait_exit(task: &Task) -> Result<ExitResult> {
    let mut exit = task.exit.clone();
    let result = exit.wait_for(Option::is_some).await.map(|seen| seen.clone());
    match result {
        Ok(Some(result)) => Ok(result),
        // The watcher ended without a result, which happens only when the runtime shuts down.
        Ok(None) | Err(_) => Err(Error::Supervisor {
            id: task.handle.task_id.clone(),
            source: io::ErrorKind::ConnectionAborted.into(),
        }),
    }
}

/// Ends an earlier run whose handle was lost because the agent died before it stored the handle. Two runs of one task
/// must never overlap.
pub(crate) async fn end_forgotten(id: &TaskId, state_dir: &Path) -> Result<()> {
    let Ok(mut connection) = Connection::open(state_dir).await else { return Ok(()) };
    tracing::warn!(task = %id, "an earlier run of the task still exists: killing it");
    let shim = connection.shim();
    let identity = ProcessIdentity { pid: shim.pid, start_time: shim.start_time };
    let handle = PidFd::open_identity(identity)?;
    let asked = connection.ask(&Request::Stop { signal: SIGKILL, timeout_ms: 0 });
    let _gone = tokio::time::timeout(STOP_SLACK, asked).await;
    match handle {
        Some(handle) => watch::wait_process(id, handle, STOP_SLACK).await,
        None => Ok(()),
    }
}

/// Removes the directory of a shim that has ended. The names are fixed, and only root can enter the directory. To
/// remove any other entry requires the mount table, which is long on a node with many tasks.
fn remove_state(state_dir: &Path) -> caravan_sys::Result<()> {
    for name in [RECORD_FILE, LOG_FILE, SOCKET_FILE] {
        // The removal of the directory fails if a file stays.
        let _absent = std::fs::remove_file(state_dir.join(name));
    }
    match std::fs::remove_dir(state_dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tree::remove(state_dir, Seals::Keep).map(drop)
        }
        _ => Ok(()),
    }
}

fn unexpected(id: &TaskId, reply: &Reply) -> Error {
    match reply {
        Reply::Failed { message } => Error::Refused(message.clone()),
        Reply::Exited(_) => Error::Ended(id.clone()),
        _ => Error::Refused(format!("the supervisor of task {id} gave an answer to something else")),
    }
}

fn open_log(state_dir: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(state_dir.join(LOG_FILE))
}

fn unix_now() -> u64 {
    u64::try_from(caravan_sys::time::wall_nanos()).unwrap_or(0)
}
