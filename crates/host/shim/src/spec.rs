//! The task of a shim: the first message that a shim reads after [`crate::protocol::Opening`].

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A task that is ready to start: names are resolved, texts are interpolated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The task's id, for records only.
    pub task_id: String,
    /// The shim's own directory (0700, not visible to the task): control socket and exit record.
    pub state_dir: PathBuf,
    /// The program to run.
    pub command: CommandSpec,
    /// The user to run as; absent means the shim's own user.
    pub user: Option<UserSpec>,
    /// The files for the task's output; absent means that the output is discarded.
    pub logs: Option<LogSpec>,
    /// The task's control group; absent means none.
    pub cgroup: Option<CgroupSpec>,
    /// Resource limits of setrlimit(2).
    pub rlimits: Vec<RlimitSpec>,
    /// `oom_score_adj` of proc(5), -1000 to 1000; absent means unchanged.
    pub oom_score_adj: Option<i32>,
    /// The task's own root, namespaces and capabilities; absent means the host's.
    pub isolation: Option<IsolationSpec>,
    /// The path at which the task's network is held ([`caravan_sys::netns`]); absent means the host's.
    #[serde(default)]
    pub network: Option<PathBuf>,
    /// A term of the node's lease ([`crate::lease`]); when the term has ended, the shim kills the task.
    pub lease: Option<crate::lease::Term>,
}

/// A program and its environment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpec {
    /// An absolute path, or a name to search in `search` and then in the environment's `PATH`.
    pub program: String,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// The complete environment.
    pub env: BTreeMap<String, String>,
    /// Working directory in the task's view. The task's user enters it; it is relative to `base` if there is one.
    pub cwd: PathBuf,
    /// A directory whose path only root can change. Root enters it before the task's user enters `cwd`, because the
    /// user may lack the right to enter its parents.
    #[serde(default)]
    pub base: Option<PathBuf>,
    /// Directories to search before `PATH`, in the task's view.
    pub search: Vec<PathBuf>,
}

impl fmt::Debug for CommandSpec {
    /// Omits the environment's values and the arguments, since either may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandSpec")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// A user by its ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSpec {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Log files `<dir>/<stdout>.<n>` and `<dir>/<stderr>.<n>`, where `n` counts up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSpec {
    /// Directory of all log files. Tasks may write to it and replace it, but cannot change its parent.
    pub dir: PathBuf,
    /// Name of the standard output's files, without the number.
    pub stdout: String,
    /// Name of the standard error's files, without the number.
    pub stderr: String,
    /// Number of files to keep of each.
    pub max_files: u32,
    /// Maximum size of a file in bytes.
    pub max_bytes: u64,
}

/// A control group and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSpec {
    /// Path below the hierarchy's root.
    pub path: PathBuf,
    /// Weight relative to other groups, as `cpu.shares`.
    pub cpu_shares: Option<u64>,
    /// Hard memory limit in bytes.
    pub memory_max: Option<u64>,
    /// Memory in bytes that the kernel reclaims last when memory is short.
    pub memory_reserved: Option<u64>,
    /// Swap in bytes, in addition to the memory limit.
    #[serde(default)]
    pub swap_max: Option<u64>,
    /// Maximum number of processes and threads.
    pub pids_max: Option<u64>,
    /// Processors that the task may use, as a list such as `0-1,4`; absent means all.
    #[serde(default)]
    pub cpus: Option<String>,
    /// Whether no other process of the host may use these processors, if the kernel can exclude them.
    #[serde(default)]
    pub own_cpus: bool,
    /// Paths that the task joins instead, by controller (version 1) or by the empty name (version 2).
    pub elsewhere: BTreeMap<String, PathBuf>,
}

/// A limit of setrlimit(2); `None` means unlimited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RlimitSpec {
    /// The limited resource.
    pub resource: RlimitResource,
    /// Soft limit.
    pub soft: Option<u64>,
    /// Hard limit.
    pub hard: Option<u64>,
}

/// The resources of setrlimit(2) that can be limited for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The task's own root and namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationSpec {
    /// The host directory that becomes the task's root (its task directory).
    pub root: PathBuf,
    /// Host directories (and files, and links) that the task sees read-only, with their paths in the task. Missing
    /// ones are left out.
    pub host_paths: BTreeMap<PathBuf, PathBuf>,
    /// All further mounts, in this order.
    pub mounts: Vec<MountSpec>,
    /// Device files of the host that the task may use, in this order.
    #[serde(default)]
    pub devices: Vec<DeviceSpec>,
    /// Directories below the root that appear empty to the task.
    pub hidden: Vec<PathBuf>,
    /// Whether the task has its own PID namespace.
    pub private_pids: bool,
    /// Whether the task has its own IPC namespace (System V IPC and message queues).
    pub private_ipc: bool,
    /// The name that programs see as that of their host, in a separate UTS namespace; absent means the host's.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Bits of all capabilities that the task may have.
    pub capabilities: u64,
    /// Bits of the capabilities that the task keeps if its user is not root.
    pub ambient: u64,
    /// Whether the task gets the host's devices and writable `/sys` and `/proc/sys`, which a program needs to mount
    /// for other tasks.
    pub privileged: bool,
    /// Whether the task may only make the system calls that container engines allow by default.
    #[serde(default)]
    pub filtered: bool,
    /// Whether set-user-id bits and file capabilities have no effect (`PR_SET_NO_NEW_PRIVS`).
    #[serde(default)]
    pub no_new_privileges: bool,
}

/// A directory or file of the host that is mounted in the task's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// Path on the host.
    pub host: PathBuf,
    /// Path in the task's root.
    pub task: PathBuf,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Propagation of later mounts below the mount.
    pub propagation: MountPropagation,
}

/// A device file of the host in the task's root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// Path on the host, without symbolic links.
    pub host: PathBuf,
    /// Path in the task's root.
    pub task: PathBuf,
    /// Whether the task may read the device.
    pub read: bool,
    /// Whether the task may write to the device.
    pub write: bool,
    /// Whether the task may create files for the device (mknod(2)).
    pub create: bool,
}

/// The propagation of mounts below a mount between host and task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountPropagation {
    /// No propagation.
    Private,
    /// From the host to the task.
    HostToTask,
    /// In both directions; the host's side must be a shared mount.
    Bidirectional,
}
