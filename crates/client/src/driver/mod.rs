//! What the client needs of a task driver. The drivers of `caravan-drivers` are adapted in [`adapter`]; tests
//! bring their own.

mod adapter;
pub(crate) mod manager;

pub use adapter::adapt;

use async_trait::async_trait;
use caravan_types::job::{LogConfig, PropagationMode};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

/// How a driver shuts its tasks off from the host's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Not at all: host paths are task paths.
    #[default]
    None,
    /// A root of its own, made of host directories.
    Chroot,
    /// An image.
    Image,
}

/// What a driver can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCapabilities {
    /// Send signals.
    pub signals: bool,
    /// Run a command next to a task.
    pub exec: bool,
    /// File system isolation.
    pub isolation: Isolation,
    /// Mount host paths into a task. Without it the client mounts them itself.
    pub mounts: bool,
    /// Pass the host's environment on.
    pub host_env: bool,
}

/// What a driver found out about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFingerprint {
    /// It is there.
    pub detected: bool,
    /// It works.
    pub healthy: bool,
    /// One sentence.
    pub description: String,
    /// Attributes, `driver.<name>.…` among them.
    pub attributes: BTreeMap<String, String>,
}

/// A host path in a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMount {
    /// On the host.
    pub host: PathBuf,
    /// In the task.
    pub task: String,
    /// Only reads.
    pub read_only: bool,
    /// Propagation.
    pub propagation: PropagationMode,
}

/// Everything a driver needs to start a task. Texts are interpolated.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// Unique among all starts of all tasks: `<alloc>/<task>/<suffix>`.
    pub id: String,
    /// Allocation.
    pub alloc_id: String,
    /// Job.
    pub job: String,
    /// Group.
    pub group: String,
    /// Task.
    pub task: String,
    /// Namespace.
    pub namespace: String,
    /// The driver's configuration in the job file.
    pub config: serde_json::Value,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// User, empty for the driver's default.
    pub user: String,
    /// MHz.
    pub cpu_shares: i64,
    /// MB.
    pub memory_mb: i64,
    /// MB, 0 when it is `memory_mb`, negative for no limit.
    pub memory_max_mb: i64,
    /// Mounts, for drivers that can mount.
    pub mounts: Vec<TaskMount>,
    /// The shared `alloc` directory on the host.
    pub alloc_dir: PathBuf,
    /// The task's directory on the host.
    pub task_dir: PathBuf,
    /// `local` on the host.
    pub local_dir: PathBuf,
    /// `secrets` on the host.
    pub secrets_dir: PathBuf,
    /// Where log files go.
    pub log_dir: PathBuf,
    /// Rotation.
    pub logs: LogConfig,
    /// Parent of the control group.
    pub cgroup_parent: String,
    /// The task mounts for others: all capabilities, the host's devices, mounts that reach the host.
    pub privileged: bool,
}

/// How a task ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskExit {
    /// Exit code, 0 when a signal ended it.
    pub code: i32,
    /// Signal, 0 for none.
    pub signal: i32,
    /// The memory limit ended it.
    pub oom_killed: bool,
    /// What kept it from ending properly.
    pub error: Option<String>,
}

impl TaskExit {
    /// Ended by itself with code 0.
    pub fn success(&self) -> bool {
        self.code == 0 && self.signal == 0 && self.error.is_none()
    }
}

/// What a task uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskUsage {
    /// CPU time in nanoseconds.
    pub cpu_total: u64,
    /// Of it in user mode.
    pub cpu_user: u64,
    /// Of it in the kernel.
    pub cpu_system: u64,
    /// Bytes of memory in use.
    pub memory: u64,
    /// Bytes of resident memory.
    pub memory_rss: u64,
    /// Bytes of cache.
    pub memory_cache: u64,
    /// Most bytes ever in use, where known.
    pub memory_peak: u64,
    /// Processes.
    pub processes: u64,
}

/// What a command next to a task answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Why a driver did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DriverFault {
    /// One sentence.
    pub message: String,
    /// Trying again may help.
    pub recoverable: bool,
}

impl DriverFault {
    /// A fault that stays.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), recoverable: false }
    }
    /// A fault that may pass.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), recoverable: true }
    }
}

/// A task driver. `id` is that of [`TaskSpec`].
#[async_trait]
pub trait TaskDriver: Debug + Send + Sync + 'static {
    /// Its name in job files.
    fn name(&self) -> &str;
    /// What it can do.
    fn capabilities(&self) -> DriverCapabilities;
    /// Looks whether it works.
    async fn fingerprint(&self) -> DriverFingerprint;
    /// Starts a task. The answer is a handle for [`TaskDriver::recover`] in another life of the agent.
    async fn start(&self, spec: TaskSpec) -> Result<Vec<u8>, DriverFault>;
    /// Takes back a task started earlier, whether it still runs or ended meanwhile.
    async fn recover(&self, id: &str, handle: &[u8]) -> Result<(), DriverFault>;
    /// Takes back a task of whose start only the intent is known. `false`: it was never started.
    async fn recover_intent(&self, spec: &TaskSpec) -> Result<bool, DriverFault>;
    /// Waits for the end.
    async fn wait(&self, id: &str) -> Result<TaskExit, DriverFault>;
    /// Ends it: signal, then force after the timeout. Answers when nothing of it runs.
    async fn stop(&self, id: &str, timeout: Duration, signal: &str) -> Result<(), DriverFault>;
    /// Forgets it, ending it by force where it still runs.
    async fn destroy(&self, id: &str) -> Result<(), DriverFault>;
    /// Sends a signal.
    async fn signal(&self, id: &str, signal: &str) -> Result<(), DriverFault>;
    /// What it uses.
    async fn stats(&self, id: &str) -> Result<TaskUsage, DriverFault>;
    /// Runs a command next to it.
    async fn exec(&self, id: &str, command: &[String], timeout: Duration) -> Result<ExecOutput, DriverFault>;
}
