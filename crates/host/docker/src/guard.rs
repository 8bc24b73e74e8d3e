//! The guard of a container that is the only writer of a volume (`crates/host/shim/src/guard.rs`).
//!
//! The driver watches the guard, because no other process would end the container with the lease. A guard that ended
//! before its container is replaced, also by the next agent. Two guards of one container do no harm: both enforce the
//! same lease.

use crate::tasks::Shared;
use bollard::models::ContainerInspectResponse;
use caravan_drivers::{Error, ExitResult, Helper, Result, TaskConfig};
use caravan_shim::lease::{LeaseReader, Term};
use caravan_shim::protocol::{ProcessRef, encode};
use caravan_shim::{GUARD, GuardSpec, Guarded, READY};
use caravan_sys::process::{PidFd, ProcessIdentity};
use caravan_sys::time::BootTime;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::process::ChildStdin;
use tokio::sync::watch;

/// Name of the file with a guard's messages, in the task's state directory.
const LOG_FILE: &str = "guard.log";

/// Name of the file with the guard's process.
const RECORD: &str = "guard.json";

/// The longest time until a guard is ready, which usually takes milliseconds.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two attempts to replace a guard.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// SIGKILL has this number on every Linux architecture (signal(7)).
const SIGKILL: i32 = 9;

/// A container that must end with the node's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnderLease {
    term: Term,
    /// The container's first process.
    process: ProcessRef,
}

/// A guard that is ready. If the value is dropped before [`Guard::begin`], the guard removes the container.
#[derive(Debug)]
pub(crate) struct Guard {
    input: ChildStdin,
    process: Option<ProcessRef>,
    term: Term,
}

fn fault(what: &str, error: &io::Error) -> Error {
    Error::Start { message: format!("cannot {what} the guard of the container: {error}"), recoverable: true }
}

fn reference(identity: ProcessIdentity) -> ProcessRef {
    ProcessRef { pid: identity.pid, start_time: identity.start_time }
}

fn open(process: ProcessRef) -> Result<Option<PidFd>> {
    let identity = ProcessIdentity { pid: process.pid, start_time: process.start_time };
    Ok(PidFd::open_identity(identity)?)
}

impl Guard {
    /// Starts the guard of a container that is created and not started; `None` if the task has no lease.
    pub(crate) async fn start(shared: &Shared, task: &TaskConfig, container: &str) -> Result<Option<Self>> {
        let Some(term) = &task.lease else { return Ok(None) };
        Self::launch(shared, term, &task.dirs.state_dir, container, None).await
    }

    /// Starts a guard. The guard of a running container receives the first process together with the specification,
    /// because a guard that loses the driver before that report removes the container.
    async fn launch(
        shared: &Shared,
        term: &Term,
        state_dir: &Path,
        container: &str,
        running: Option<ProcessRef>,
    ) -> Result<Option<Self>> {
        let Some(engine) = shared.engine.socket() else { return Ok(None) };
        let spec =
            GuardSpec { term: term.clone(), engine: engine.to_owned(), container: container.to_owned() };
        let mut messages = encode(&spec)?;
        if running.is_some() {
            messages.extend(encode(&Guarded { process: running })?);
        }
        let log = state_dir.join(LOG_FILE);
        let started = shared.shim.start_helper(GUARD, &log, &messages, READY, READY_TIMEOUT).await;
        let Helper { input, process } = started.map_err(|error| fault("start", &error))?;
        Ok(Some(Self { input, process: process.map(reference), term: term.clone() }))
    }

    /// Reports the container's first process to the guard. Returns the container for [`keep`]; `None` if the
    /// container has ended.
    pub(crate) async fn begin(
        mut self,
        found: &ContainerInspectResponse,
        state_dir: &Path,
    ) -> Result<Option<UnderLease>> {
        let pid = found.state.as_ref().and_then(|state| state.pid).and_then(|pid| u32::try_from(pid).ok());
        let identity = match pid.filter(|pid| *pid > 0) {
            Some(pid) => ProcessIdentity::read(pid)?,
            None => None,
        };
        let term = self.term.clone();
        let process = identity.map(reference);
        self.send(&encode(&Guarded { process })?).await?;
        self.record(state_dir)?;
        Ok(process.map(|process| UnderLease { term, process }))
    }

    /// Records the guard's process for the next agent.
    fn record(&self, state_dir: &Path) -> Result<()> {
        let Some(own) = self.process else { return Ok(()) };
        let text = serde_json::to_vec(&own).map_err(|error| fault("record", &error.into()))?;
        Ok(caravan_sys::files::atomic_write_until_restart(&state_dir.join(RECORD), &text, 0o600)?)
    }

    async fn send(&mut self, messages: &[u8]) -> Result<()> {
        let sent = async {
            self.input.write_all(messages).await?;
            self.input.flush().await
        };
        sent.await.map_err(|error| fault("instruct", &error))
    }
}

/// A container whose guard is watched.
#[derive(Debug)]
pub(crate) struct Ward {
    pub(crate) under: UnderLease,
    pub(crate) container: String,
    pub(crate) state_dir: std::path::PathBuf,
    pub(crate) alloc_id: String,
    pub(crate) task_name: String,
}

/// Replaces the guard of a container whenever it ends before the container, until the task has ended.
pub(crate) async fn keep(shared: Arc<Shared>, ward: Ward, mut exit: watch::Receiver<Option<ExitResult>>) {
    tokio::select! {
        _ = exit.wait_for(Option::is_some) => {}
        watched = watch_over(&shared, &ward) => if let Err(error) = watched {
            let error = caravan_sys::describe(&error);
            tracing::error!(container = ward.container, error, "the guard of a container cannot be watched");
        }
    }
}

async fn watch_over(shared: &Shared, ward: &Ward) -> Result<()> {
    loop {
        if let Some(guard) = recorded(&ward.state_dir)? {
            until_ended(&guard).await?;
        }
        let Some(first) = open(ward.under.process)? else { return Ok(()) };
        if first.wait_exit(Some(Duration::ZERO))? {
            return Ok(());
        }
        let words = "the guard of the container ended early, a new one is started";
        shared.report(&ward.alloc_id, &ward.task_name, words);
        let replaced = async {
            let UnderLease { term, process } = &ward.under;
            match Guard::launch(shared, term, &ward.state_dir, &ward.container, Some(*process)).await? {
                Some(guard) => guard.record(&ward.state_dir),
                None => Ok(()),
            }
        };
        if let Err(error) = replaced.await {
            tracing::warn!(container = ward.container, %error, "the guard of a container cannot be replaced");
            if !holds(&ward.under.term) {
                first.send_signal(SIGKILL)?;
                return Ok(());
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Returns whether the lease holds. A lease that cannot be read does not hold.
fn holds(term: &Term) -> bool {
    LeaseReader::open(term).is_ok_and(|mut lease| lease.holds_until(BootTime::now()).is_some())
}

/// Returns the guard that an agent started for the container, if it runs.
fn recorded(state_dir: &Path) -> Result<Option<PidFd>> {
    let text = std::fs::read(state_dir.join(RECORD)).unwrap_or_default();
    match serde_json::from_slice(&text) {
        Ok(process) => open(process),
        // Absent: the agent died before it wrote the record.
        Err(_) => Ok(None),
    }
}

async fn until_ended(process: &PidFd) -> Result<()> {
    let failed = |error: io::Error| fault("watch", &error);
    let fd = process.as_fd().try_clone_to_owned().map_err(failed)?;
    #[expect(
        deprecated,
        reason = "the replacement is unsafe for the sake of types that close early, which an OwnedFd never does"
    )]
    let register = |fd: OwnedFd| AsyncFd::with_interest(fd, Interest::READABLE);
    let watched = register(fd).map_err(failed)?;
    // A descriptor of a process becomes readable at its end (pidfd_open(2)).
    watched.readable().await.map(drop).map_err(failed)
}

/// Removes the guard's files.
pub(crate) fn clear(state_dir: &Path) {
    for name in [LOG_FILE, RECORD] {
        let _absent = std::fs::remove_file(state_dir.join(name));
    }
}
