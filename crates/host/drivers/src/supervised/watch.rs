//! Waits for a task's end, even if its shim was killed.

use super::connection::Connection;
use super::{State, unix_now};
use crate::task::{ExitResult, TaskId};
use crate::{Error, Result};
use caravan_shim::ExitRecord;
use caravan_shim::protocol::{Reply, Request};
use caravan_sys::cgroup::{Cgroup, Hierarchy};
use caravan_sys::process::{PidFd, ProcessIdentity};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Delay between two attempts to reach a shim that runs but does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Returns when no process of the task remains, with the best available result.
pub(super) async fn until_gone(id: &TaskId, state: &State) -> ExitResult {
    match caravan_sys::time::boot_id() {
        Ok(boot) if boot != state.boot_id => return lost("the machine was restarted"),
        _ => {}
    }
    let identity = ProcessIdentity { pid: state.shim.pid, start_time: state.shim.start_time };
    // Open the process before the first use of the socket: an end in between is then noticed on one of the two.
    while let Ok(Some(shim)) = PidFd::open_identity(identity) {
        match wait_on_socket(state).await {
            Ok(record) => return result_of(record),
            Err(error) => {
                tracing::debug!(task = %id, %error, "the shim does not answer");
                // The shim is about to end after writing its record, or was killed, or has no free file descriptors.
                if wait_process(id, shim, RETRY).await.is_ok() {
                    break;
                }
            }
        }
    }
    match ExitRecord::read(&state.state_dir) {
        Ok(Some(record)) if record.shim == state.shim => result_of(record),
        found => {
            if let Err(error) = found {
                tracing::warn!(task = %id, error = %caravan_sys::describe(&error), "exit record is unreadable");
            }
            end_remains(id, state).await;
            lost("the task's supervisor was killed, and the task with it")
        }
    }
}

async fn wait_on_socket(state: &State) -> io::Result<ExitRecord> {
    let mut connection = Connection::open_to(&state.state_dir, state.shim).await?;
    match connection.ask(&Request::Wait).await? {
        Reply::Exited(record) => Ok(record),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Waits until a process has ended. Blocks a thread, so use it only for the rare case of a shim that does not answer.
pub(super) async fn wait_process(id: &TaskId, process: PidFd, limit: Duration) -> Result<()> {
    let waited = tokio::task::spawn_blocking(move || process.wait_exit(Some(limit))).await;
    match waited {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => {
            Err(Error::Timeout { what: format!("the end of the supervisor of task {id}"), limit })
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Error::Supervisor { id: id.clone(), source: io::ErrorKind::ConnectionAborted.into() }),
    }
}

/// Kills the shim, and with it the task's first process.
pub(super) fn kill(state: &State) {
    let identity = ProcessIdentity { pid: state.shim.pid, start_time: state.shim.start_time };
    if let Ok(Some(shim)) = PidFd::open_identity(identity) {
        let _gone = shim.send_signal(super::SIGKILL);
    }
}

/// Kills the processes that a dead shim left in its task's control group, and waits until they have ended. The client
/// relies on this when it receives the end of the task.
async fn end_remains(id: &TaskId, state: &State) {
    let identity = ProcessIdentity { pid: state.task.pid, start_time: state.task.start_time };
    if let Ok(Some(task)) = PidFd::open_identity(identity) {
        let _gone = task.send_signal(super::SIGKILL);
        let _still_there = wait_process(id, task, super::STOP_SLACK).await;
    }
    let Some(path) = state.cgroup.clone() else { return };
    let task = id.clone();
    let end = move || loop {
        match end_cgroup(&path) {
            Ok(true) => return,
            Ok(false) => {
                tracing::warn!(task = %task, "processes of the task still run after SIGKILL; retrying")
            }
            Err(error) => {
                tracing::warn!(task = %task, error = %caravan_sys::describe(&error), "cannot end the task's processes");
                return;
            }
        }
    };
    let _cancelled_at_shutdown = tokio::task::spawn_blocking(end).await;
}

fn end_cgroup(path: &Path) -> caravan_sys::Result<bool> {
    let Some(hierarchy) = Hierarchy::detect()? else { return Ok(true) };
    let cgroup = Cgroup::at(&hierarchy, path)?;
    let empty = cgroup.kill_until_empty(2000, Duration::from_millis(5))?;
    if empty {
        cgroup.remove()?;
    }
    Ok(empty)
}

/// Returns the result of a task. The code after a signal is that of a shell (docs/reference/drivers.md, section 4.3).
fn result_of(record: ExitRecord) -> ExitResult {
    ExitResult {
        exit_code: if record.signal == 0 { record.exit_code } else { 128 + record.signal },
        signal: record.signal,
        oom_killed: record.oom_killed,
        err: record.reason,
        lease_passed: record.lease_passed,
        finished_unix_ns: record.finished_unix_ns,
    }
}

fn lost(reason: &str) -> ExitResult {
    ExitResult { err: Some(reason.to_owned()), finished_unix_ns: unix_now(), ..ExitResult::default() }
}
