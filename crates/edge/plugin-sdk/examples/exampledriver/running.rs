//! A task of the driver.

use crate::driver::{TaskConfig, facts};
use crate::supervise::{self, Order, Place, Record, Reply};
use crate::usage::{self, Sample};
use caravan_plugin_sdk::{Cause, ExitResult, Task, TaskError, TaskHandle, TaskStats};
use caravan_sys::process::{PidFd, ProcessIdentity, signal_number};
use caravan_sys::time::wall_now;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::process::Command;
use tokio::sync::watch;

/// A process, which its start time distinguishes from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The start time in clock ticks since boot.
    pub start_time: u64,
}

impl From<Process> for ProcessIdentity {
    fn from(process: Process) -> Self {
        Self { pid: process.pid, start_time: process.start_time }
    }
}

/// The facts by which the driver finds a task again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The process that waits for the task.
    pub supervisor: Process,
    /// The first process of the task.
    pub task: Process,
    /// The start of the task.
    pub started_at: SystemTime,
    /// The name of the exit record in the task's directory.
    pub record: String,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The result of the task.
    pub result: ExitResult,
    /// The time of the end.
    pub at: SystemTime,
}

/// A task that runs or has ended.
pub struct Running {
    /// The task.
    pub task: Task<TaskConfig>,
    /// The facts by which the driver finds the task again.
    pub state: State,
    outcome: watch::Receiver<Option<Outcome>>,
    /// The measurement before the next one.
    last: Mutex<Option<Sample>>,
}

impl Running {
    /// Starts a task under a supervisor.
    pub async fn start(task: Task<TaskConfig>) -> Result<Self, TaskError> {
        let order = order(&task)?;
        let (supervisor, reply) = launch(&order).await.map_err(TaskError::Recoverable)?;
        let child = match reply {
            Reply::Started { pid, start_time } => Process { pid, start_time },
            Reply::Failed { message, errno } => return Err(refusal(&task.config.command, &message, errno)),
        };
        let state = State { supervisor, task: child, started_at: wall_now(), record: order.record };
        let found = Self::watch(task, state);
        if found.is_err() {
            // Without a handle, the agent cannot end the task, which would run forever.
            supervise::kill(child.into()).map_err(TaskError::failed)?;
        }
        found
    }

    /// Finds a task that an earlier plugin started. A task that has ended meanwhile is found by its record.
    pub fn recover(handle: TaskHandle<TaskConfig, State>) -> Result<Self, TaskError> {
        Self::watch(handle.task, handle.state)
    }

    fn watch(task: Task<TaskConfig>, state: State) -> Result<Self, TaskError> {
        let supervisor = PidFd::open_identity(state.supervisor.into()).map_err(TaskError::failed)?;
        let (sender, outcome) = watch::channel(None);
        let Some(supervisor) = supervisor else {
            let record = recorded(&task, &state);
            let found = record.ok_or_else(|| TaskError::failed("the supervisor of the task has ended"))?;
            // A receiver keeps the last value after the sender is gone.
            sender.send_replace(Some(found));
            return Ok(Self { task, state, outcome, last: Mutex::default() });
        };
        let descriptor = supervisor.as_fd().try_clone_to_owned().map_err(TaskError::failed)?;
        #[expect(deprecated, reason = "the other function is unsafe; the value owns its descriptor")]
        let ended = AsyncFd::with_interest(descriptor, Interest::READABLE).map_err(TaskError::failed)?;
        let (its_task, its_state) = (task.clone(), state.clone());
        tokio::spawn(async move {
            if let Err(error) = ended.readable().await {
                tracing::error!(error = &error as &dyn std::error::Error, "a supervisor cannot be watched");
            }
            let found = recorded(&its_task, &its_state).unwrap_or_else(|| abandoned(&its_state));
            tracing::info!(task = its_task.id, code = found.result.code, "the task has ended");
            sender.send_replace(Some(found));
        });
        Ok(Self { task, state, outcome, last: Mutex::default() })
    }

    /// Returns the end of the task, if it has ended.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.borrow().clone()
    }

    /// Waits for the end of the task.
    pub async fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.clone();
        let found = outcome.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        found.unwrap_or_else(|| Outcome {
            result: ExitResult::lost("the task is not watched"),
            at: wall_now(),
        })
    }

    /// Sends a signal to the first process of the task. A task that has ended receives none.
    pub fn signal(&self, name: &str) -> Result<(), TaskError> {
        let number = signal_number(name).map_err(TaskError::failed)?;
        if let Some(process) = PidFd::open_identity(self.state.task.into()).map_err(TaskError::failed)? {
            process.send_signal(number).map_err(TaskError::failed)?;
        }
        Ok(())
    }

    /// Kills the first process of the task. The supervisor then kills the others.
    pub fn kill(&self) -> Result<(), TaskError> {
        supervise::kill(self.state.task.into()).map_err(TaskError::failed)
    }

    /// Measures the task; `None` after its end.
    pub fn measure(&self) -> Option<TaskStats> {
        if self.outcome().is_some() {
            return None;
        }
        let sample = Sample::take(self.state.supervisor.pid);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = usage::compare(last.as_ref(), &sample);
        *last = Some(sample);
        Some(stats)
    }

    /// Returns facts for users.
    pub fn attributes(&self) -> BTreeMap<String, String> {
        facts([("pid", self.state.task.pid), ("supervisor_pid", self.state.supervisor.pid)])
    }

    /// Removes the record of the task. The agent removes the whole directory later.
    pub fn remove_record(&self) {
        let removed =
            place(&self.task).open().and_then(|dir| dir.remove_file(OsStr::new(&self.state.record)));
        if let Err(error) = removed {
            tracing::debug!(error = &error as &dyn std::error::Error, "a record cannot be removed");
        }
    }
}

fn place(task: &Task<TaskConfig>) -> Place {
    Place { alloc_dir: task.alloc_dir.clone(), task: task.name.clone() }
}

fn order(task: &Task<TaskConfig>) -> Result<Order, TaskError> {
    let user = match task.user.as_str() {
        "" => None,
        name => Some(supervise::account(name).map_err(TaskError::failed)?),
    };
    // The last part of the id is new for each start.
    let start = task.id.rsplit('/').next().unwrap_or_default();
    Ok(Order {
        command: task.config.command.clone(),
        args: task.config.args.clone(),
        env: task.env.clone(),
        user,
        place: place(task),
        network: supervise::namespace(task),
        stdout: task.stdout.clone(),
        stderr: task.stderr.clone(),
        record: format!(".example-{start}"),
    })
}

/// Starts a supervisor: the same program in another role, also after its file was replaced.
async fn launch(order: &Order) -> Result<(Process, Reply), Cause> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(supervise::ROLE).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let pid = child.id().ok_or("the supervisor has no process id")?;
    // The child is not reaped while the variable exists, so the id names the child.
    let start_time = caravan_sys::process::start_time(pid)?.ok_or("the supervisor has ended")?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) else {
        return Err("the supervisor has no pipes".into());
    };
    stdin.write_all(&rmp_serde::to_vec_named(order)?).await?;
    drop(stdin);
    let length = stdout.read_u32().await?;
    let mut bytes = Vec::new();
    stdout.take(length.into()).read_to_end(&mut bytes).await?;
    Ok((Process { pid, start_time }, rmp_serde::from_slice(&bytes)?))
}

/// Returns the error of a program that does not start. The error is recoverable for a shortage of resources, and for
/// a program that is being written.
fn refusal(command: &str, message: &str, errno: Option<i32>) -> TaskError {
    let text = format!("cannot start {command}: {message}");
    let passing = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::TXTBSY];
    if passing.iter().any(|passing| Some(passing.raw_os_error()) == errno) {
        TaskError::recoverable(text)
    } else {
        TaskError::failed(text)
    }
}

fn recorded(task: &Task<TaskConfig>, state: &State) -> Option<Outcome> {
    let record = Record::read(&place(task).open().ok()?, &state.record)?;
    Some(Outcome { result: ExitStatus::from_raw(record.status).into(), at: record.at })
}

/// Ends a task whose supervisor was killed, because no process would record the end of the task.
fn abandoned(state: &State) -> Outcome {
    let message = match supervise::kill(state.task.into()) {
        Ok(()) => "the supervisor of the task was killed".to_owned(),
        Err(error) => format!("the supervisor of the task was killed, and the task runs on: {error}"),
    };
    Outcome { result: ExitResult::lost(message), at: wall_now() }
}
