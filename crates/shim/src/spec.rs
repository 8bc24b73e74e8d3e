//! What the agent wants run: the message that a shim reads first.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A task, ready to be started: names are resolved, texts are interpolated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The task's id, for records only.
    pub task_id: String,
    /// The shim's own directory (0700, not visible to the task): control socket and exit record.
    pub state_dir: PathBuf,
    /// The program.
    pub command: CommandSpec,
    /// Who runs it; the shim's own user when absent.
    pub user: Option<UserSpec>,
    /// Where its output goes; discarded when absent.
    pub logs: Option<LogSpec>,
    /// Its control group; none when absent.
    pub cgroup: Option<CgroupSpec>,
    /// Resource limits of setrlimit(2).
    pub rlimits: Vec<RlimitSpec>,
    /// `oom_score_adj` of proc(5), -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// A root, namespaces and capabilities of its own; the host's when absent.
    pub isolation: Option<IsolationSpec>,
    /// Where its network is held ([`caravan_sys::netns`]); the host's when absent.
    #[serde(default)]
    pub network: Option<PathBuf>,
    /// A term of the node's lease ([`crate::lease`]): when it is over, the task is killed.
    pub lease: Option<crate::lease::Term>,
}

/// A program and its surroundings.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    /// An absolute path, or a name that is looked for in `search` and then in the environment's `PATH`.
    pub program: String,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Working directory, as the task sees it. The task's user enters it; relative to `base` if there is one.
    pub cwd: PathBuf,
    /// A directory whose path only root can change. Root enters it before the task's user enters `cwd`: the user may
    /// have no right to what lies above.
    #[serde(default)]
    pub base: Option<PathBuf>,
    /// Directories that come before `PATH`, as the task sees them.
    pub search: Vec<PathBuf>,
}

impl fmt::Debug for CommandSpec {
    /// Leaves out the environment's values and the arguments: either may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSpec")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// A user by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSpec {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Log files `<dir>/<stdout>.<n>` and `<dir>/<stderr>.<n>`, `n` counting up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSpec {
    /// Directory. Tasks may write to it and replace it; its parent is out of their reach.
    pub dir: PathBuf,
    /// Name of the standard output's files, without the number.
    pub stdout: String,
    /// Name of the standard error's files, without the number.
    pub stderr: String,
    /// How many files are kept of each.
    pub max_files: u32,
    /// Size of a file in bytes.
    pub max_bytes: u64,
}

/// A control group and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSpec {
    /// Path below the hierarchy's root.
    pub path: PathBuf,
    /// `cpu.shares`.
    pub cpu_shares: Option<u64>,
    /// Hard memory limit in bytes.
    pub memory_max: Option<u64>,
    /// Memory below which it is spared, in bytes.
    pub memory_reserved: Option<u64>,
    /// Most processes and threads.
    pub pids_max: Option<u64>,
    /// Processors that it may use, as a list such as `0-1,4`; all when absent.
    #[serde(default)]
    pub cpus: Option<String>,
    /// Controllers (version 1), or the empty name (version 2), that the task joins at another path instead.
    pub elsewhere: BTreeMap<String, PathBuf>,
}

/// A limit of setrlimit(2). `None` is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RlimitSpec {
    /// Which.
    pub resource: RlimitResource,
    /// Soft limit.
    pub soft: Option<u64>,
    /// Hard limit.
    pub hard: Option<u64>,
}

/// The resources of setrlimit(2) that a task may be limited in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of the manual page")]
pub enum RlimitResource {
    Core,
    Cpu,
    FileSize,
    LockedMemory,
    OpenFiles,
    Processes,
    Stack,
}

/// A root of its own for the task, in namespaces of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationSpec {
    /// The host directory that is the task's root (its task directory).
    pub root: PathBuf,
    /// Host directories (and files, and links) that the task sees read-only: host path to task path. Those that do
    /// not exist are left out.
    pub host_paths: BTreeMap<PathBuf, PathBuf>,
    /// Everything else that it sees, in order.
    pub mounts: Vec<MountSpec>,
    /// Directories below the root that it sees empty.
    pub hidden: Vec<PathBuf>,
    /// Whether it has process ids of its own.
    pub private_pids: bool,
    /// Whether it has System V IPC and message queues of its own.
    pub private_ipc: bool,
    /// Bits of the capabilities that it may have at most.
    pub capabilities: u64,
    /// Those of them that it keeps when its user is not root.
    pub ambient: u64,
    /// The host's devices, writable `/sys` and `/proc/sys`: what a program needs that mounts for others.
    pub privileged: bool,
    /// Whether only the system calls are allowed that container engines allow by default.
    #[serde(default)]
    pub filtered: bool,
    /// Whether set-user-id bits and capabilities of files count for nothing (`PR_SET_NO_NEW_PRIVS`).
    #[serde(default)]
    pub no_new_privileges: bool,
}

/// A directory or file of the host in the task's root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// Path on the host.
    pub host: PathBuf,
    /// Path that the task sees.
    pub task: PathBuf,
    /// Only for reading.
    pub read_only: bool,
    /// How later mounts below it travel.
    pub propagation: MountPropagation,
}

/// How mounts below a mount travel between host and task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountPropagation {
    /// Not at all.
    Private,
    /// From the host to the task.
    HostToTask,
    /// Both ways; the host's side must be a shared mount.
    Bidirectional,
}
