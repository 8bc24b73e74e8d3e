//! The guard of a container that is the only writer of a volume (`crates/host/shim/src/guard.rs`).

use crate::tasks::Shared;
use bollard::models::ContainerInspectResponse;
use caravan_drivers::{Error, Result, TaskConfig};
use caravan_shim::protocol::{ProcessRef, encode};
use caravan_shim::{GUARD, GuardSpec, Guarded, READY};
use caravan_sys::process::ProcessIdentity;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;

/// Name of the file with a guard's messages, in the task's state directory.
const LOG_FILE: &str = "guard.log";

/// The longest time until a guard is ready, which usually takes milliseconds.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// A guard that is ready. If the value is dropped before [`Guard::begin`], the guard removes the container.
#[derive(Debug)]
pub(crate) struct Guard {
    input: ChildStdin,
}

fn fault(what: &str, error: &io::Error) -> Error {
    Error::Start { message: format!("cannot {what} the guard of the container: {error}"), recoverable: true }
}

impl Guard {
    /// Starts the guard of a container that is created and not started; `None` if the task has no lease.
    pub(crate) async fn start(shared: &Shared, task: &TaskConfig, container: &str) -> Result<Option<Self>> {
        let (Some(term), Some(engine)) = (&task.lease, shared.engine.socket()) else { return Ok(None) };
        let failed = |error: io::Error| fault("start", &error);
        let log = task.dirs.state_dir.join(LOG_FILE);
        let log = File::options().append(true).create(true).mode(0o600).open(log).map_err(failed)?;
        let mut child = tokio::process::Command::new(&shared.shim.program)
            .args(&shared.shim.args)
            .arg(GUARD)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        tokio::spawn(async move {
            let status = child.wait().await;
            tracing::debug!(?status, "guard ended");
        });
        let (Some(input), Some(mut output)) = (input, output) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let mut guard = Self { input };
        let spec =
            GuardSpec { term: term.clone(), engine: engine.to_owned(), container: container.to_owned() };
        guard.send(&spec).await?;
        match tokio::time::timeout(READY_TIMEOUT, output.read_u8()).await {
            Ok(Ok(READY)) => Ok(Some(guard)),
            Ok(Ok(_)) => Err(failed(io::ErrorKind::InvalidData.into())),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Reports the container's first process to the guard.
    pub(crate) async fn begin(mut self, found: &ContainerInspectResponse) -> Result<()> {
        let pid = found.state.as_ref().and_then(|state| state.pid).and_then(|pid| u32::try_from(pid).ok());
        let identity = match pid.filter(|pid| *pid > 0) {
            Some(pid) => ProcessIdentity::of(pid)?,
            None => None,
        };
        let process = identity.map(|found| ProcessRef { pid: found.pid, start_time: found.start_time });
        self.send(&Guarded { process }).await
    }

    async fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let bytes = encode(message)?;
        let sent = async {
            self.input.write_all(&bytes).await?;
            self.input.flush().await
        };
        sent.await.map_err(|error| fault("instruct", &error))
    }
}

/// Removes the guard's messages.
pub(crate) fn clear(state_dir: &Path) {
    let _absent = std::fs::remove_file(state_dir.join(LOG_FILE));
}
