//! The output of a task: two named pipes that the plugin writes to, and the collector that copies them to the log files
//! (`crates/host/shim/src/collect.rs`).
//!
//! The agent holds both pipes open, so that the task's writes do not fail while a collector that died is replaced.

use crate::PluginError;
use crate::output;
use crate::process::{put, wait_for};
use caravan_drivers::{LogConfig, ShimCommand};
use caravan_shim::protocol::encode;
use caravan_shim::{COLLECT, COLLECTING, CollectSpec, RECORDED, spec::LogSpec};
use caravan_sys::dir::{Dir, Mounts};
use caravan_sys::process::{PidFd, ProcessIdentity};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

pub(crate) const STDOUT: &str = "stdout.pipe";
pub(crate) const STDERR: &str = "stderr.pipe";
const RECORD_FILE: &str = "collector.json";
const LOG_FILE: &str = "collector.log";
/// The longest record in bytes.
const MAX_RECORD: u64 = 4096;
/// The longest time until a collector reads the pipes, which usually takes milliseconds.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a collector for the rest of the output.
const REST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a collector that could not be started is started again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The stored identity of the collector's process.
#[derive(Serialize, Deserialize)]
struct Record {
    pid: u32,
    start_time: u64,
    boot_id: String,
}

/// The supervised collection of a task's output.
#[derive(Debug)]
pub(crate) struct Collection {
    ending: CancellationToken,
    task: Option<tokio::task::JoinHandle<()>>,
}

/// The parts of a collection that do not change.
#[derive(Clone, Debug)]
struct Site {
    shim: ShimCommand,
    state_dir: PathBuf,
    logs: LogConfig,
}

/// Creates the pipes of a task in its state directory.
pub(crate) fn create_pipes(state_dir: &Path) -> Result<[File; 2], PluginError> {
    let dir = Dir::open(state_dir)?;
    Ok([output::open(&dir, STDOUT)?, output::open(&dir, STDERR)?])
}

impl Collection {
    /// Collects the output of a task: by the collector of an earlier agent, if there is one, or by a new one.
    pub(crate) fn begin(shim: &ShimCommand, state_dir: &Path, logs: &LogConfig) -> Result<Self, PluginError> {
        let pipes = create_pipes(state_dir)?;
        let site = Site { shim: shim.clone(), state_dir: state_dir.to_owned(), logs: logs.clone() };
        let ending = CancellationToken::new();
        let task = tokio::spawn(site.run(pipes, ending.clone()));
        Ok(Self { ending, task: Some(task) })
    }

    /// Ends the collection after the rest of the output.
    pub(crate) async fn end(mut self) {
        self.ending.cancel();
        if let Some(task) = self.task.take() {
            let _ended = task.await;
        }
    }
}

impl Drop for Collection {
    /// Ends the supervision and leaves the collector to the next agent. Example: a driver is dropped and another
    /// driver takes over its tasks. Both drivers would replace a collector that ends, and one of the two new
    /// collectors would have no record.
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Ends the collector that an earlier agent left in a state directory, if there is one.
pub(crate) async fn end_recorded(state_dir: &Path) -> Result<(), PluginError> {
    if let Some(collector) = find(state_dir)? {
        let _gone = collector.send_signal(rustix::process::Signal::TERM.as_raw())?;
        if tokio::time::timeout(REST_TIMEOUT, ended(&collector)).await.is_err() {
            let _gone = collector.send_signal(rustix::process::Signal::KILL.as_raw())?;
        }
    }
    Ok(())
}

/// Returns the collector of an earlier agent, if it runs.
fn find(state_dir: &Path) -> Result<Option<PidFd>, PluginError> {
    let dir = Dir::open(state_dir)?;
    if dir.kind(RECORD_FILE.as_ref())?.is_none() {
        return Ok(None);
    }
    let bytes = dir.read_all(Path::new(RECORD_FILE), MAX_RECORD, Mounts::Refuse)?;
    let Ok(record) = serde_json::from_slice::<Record>(&bytes) else { return Ok(None) };
    if record.boot_id != caravan_sys::time::boot_id()? {
        return Ok(None);
    }
    let identity = ProcessIdentity { pid: record.pid, start_time: record.start_time };
    Ok(PidFd::open_identity(identity)?)
}

impl Site {
    async fn run(self, pipes: [File; 2], ending: CancellationToken) {
        loop {
            let collector = match find(&self.state_dir) {
                Ok(Some(collector)) => Ok(collector),
                Ok(None) => self.start().await,
                Err(error) => Err(error),
            };
            let collector = match collector {
                Ok(collector) => collector,
                Err(error) => {
                    let dir = self.state_dir.display();
                    tracing::error!(%dir, %error, "the output of a task cannot be collected");
                    tokio::select! {
                        () = ending.cancelled() => return,
                        () = tokio::time::sleep(RETRY_INTERVAL) => continue,
                    }
                }
            };
            tokio::select! {
                () = ended(&collector) => {
                    tracing::warn!(pid = collector.pid(), "the collector of a task's output ended; it is replaced");
                }
                () = ending.cancelled() => {
                    let _gone = collector.send_signal(rustix::process::Signal::TERM.as_raw());
                    if tokio::time::timeout(REST_TIMEOUT, ended(&collector)).await.is_err() {
                        let _gone = collector.send_signal(rustix::process::Signal::KILL.as_raw());
                    }
                    drop(pipes);
                    return;
                }
            }
        }
    }

    async fn start(&self) -> Result<PidFd, PluginError> {
        let spec = CollectSpec {
            stdout: self.state_dir.join(STDOUT),
            stderr: self.state_dir.join(STDERR),
            logs: LogSpec {
                dir: self.logs.dir.clone(),
                stdout: self.logs.stdout.clone(),
                stderr: self.logs.stderr.clone(),
                max_files: self.logs.max_files,
                max_bytes: self.logs.max_file_size_mb.saturating_mul(1 << 20),
            },
        };
        let bytes = encode(&spec).map_err(|error| PluginError::Io {
            what: "instruct a collector",
            source: io::Error::other(error),
        })?;
        let log = self.state_dir.join(LOG_FILE);
        let started = self.shim.start_helper(COLLECT, &log, &bytes, COLLECTING, READY_TIMEOUT).await;
        let mut started = started.map_err(PluginError::io("start a collector"))?;
        let gone = || PluginError::Io { what: "start a collector", source: io::ErrorKind::BrokenPipe.into() };
        let identity = started.process.ok_or_else(gone)?;
        let handle = PidFd::open_identity(identity)?.ok_or_else(gone)?;
        let record = Record {
            pid: identity.pid,
            start_time: identity.start_time,
            boot_id: caravan_sys::time::boot_id()?,
        };
        let bytes = serde_json::to_vec(&record)
            .map_err(|error| PluginError::Io { what: "encode a record", source: error.into() })?;
        put(&self.state_dir, RECORD_FILE, &bytes)?;
        // The collector reads nothing before this, and ends with an agent that ends before this.
        started.input.write_all(RECORDED).await.map_err(PluginError::io("start a collector"))?;
        Ok(handle)
    }
}

/// Waits until a process has ended.
async fn ended(process: &PidFd) {
    if let Err(error) = wait_for(process).await {
        tracing::warn!(%error, "the end of a collector cannot be observed");
    }
}
