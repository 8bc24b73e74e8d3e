//! The supervisor of one task: a separate process, which outlives the plugin.
//!
//! It reads an [`Order`] from standard input and answers with a [`Reply`] on standard output. When the task has
//! ended, it writes a [`Record`] into the task's directory. All three are MessagePack.

use crate::driver::TaskConfig;
use caravan_plugin_sdk::Task;
use caravan_sys::dir::{Access, Dir, Mounts};
use caravan_sys::process::{self, PidFd, ProcessIdentity, Reaped};
use caravan_sys::time::wall_now;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::SystemTime;

/// The argument that selects this role.
pub const ROLE: &str = "supervise";
/// The maximum size of a record in bytes.
const RECORD_LIMIT: u64 = 4096;

/// A task to start.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The program.
    pub command: String,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// The complete environment of the program.
    pub env: BTreeMap<String, String>,
    /// The user and the group; `None` for those of the plugin.
    pub user: Option<(u32, u32)>,
    /// The directory of the task.
    pub place: Place,
    /// The path of the network namespace; `None` for the host's.
    pub network: Option<PathBuf>,
    /// The FIFO for standard output.
    pub stdout: PathBuf,
    /// The FIFO for standard error.
    pub stderr: PathBuf,
    /// The name of the record.
    pub record: String,
}

/// The directory of a task, below a directory that only the agent can replace.
#[derive(Serialize, Deserialize)]
pub struct Place {
    /// The directory of the allocation.
    pub alloc_dir: PathBuf,
    /// The name of the task.
    pub task: String,
}

impl Place {
    /// Opens the directory.
    pub fn open(&self) -> caravan_sys::Result<Dir> {
        Dir::open(&self.alloc_dir)?.enter(Path::new(&self.task), Mounts::Follow)
    }
}

/// Returns the path of the namespace that a task joins; `None` if it uses the host's network.
pub fn namespace(task: &Task<TaskConfig>) -> Option<PathBuf> {
    task.network.as_ref().map(|network| PathBuf::from(&network.path))
}

/// Returns the user and group of a task. A user that the agent chose has no account: its name contains the number.
pub fn account(user: &str) -> caravan_sys::Result<(u32, u32)> {
    if let Some(number) = user.strip_prefix("nomad-").and_then(|number| number.parse().ok()) {
        return Ok((number, number));
    }
    let account = caravan_sys::user::lookup(user)?;
    Ok((account.uid, account.gid))
}

/// The answer to an order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The task runs.
    Started {
        /// The process id.
        pid: u32,
        /// The start time in clock ticks since boot.
        start_time: u64,
    },
    /// The task does not run.
    Failed {
        /// The reason.
        message: String,
        /// The error number of the system, if the failure has one.
        errno: Option<i32>,
    },
}

/// The record of the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The status as of wait(2).
    pub status: i32,
    /// The time of the end.
    pub at: SystemTime,
}

impl Record {
    /// Reads the record of a task; `None` without one.
    pub fn read(dir: &Dir, name: &str) -> Option<Self> {
        let bytes = dir.read_all(Path::new(name), RECORD_LIMIT, Mounts::Refuse).ok()?;
        rmp_serde::from_slice(&bytes).ok()
    }
}

/// Runs the supervisor.
pub fn main() -> ExitCode {
    match supervise() {
        Ok(()) => ExitCode::SUCCESS,
        // The plugin notices that the record is missing. The standard error leads to `/dev/null`.
        Err(_) => ExitCode::FAILURE,
    }
}

fn supervise() -> Result<(), Box<dyn std::error::Error>> {
    // Neither the terminal nor the end of the agent's session reaches the task.
    rustix::process::setsid()?;
    process::become_subreaper()?;
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    let order: Order = rmp_serde::from_slice(&bytes)?;
    let dir = order.place.open();
    let started = dir.map_err(|error| (caravan_sys::describe(&error), None)).and_then(|dir| {
        let child = start(&order, &dir).map_err(|error| (error.to_string(), error.raw_os_error()))?;
        Ok((dir, child))
    });
    let (dir, child) = match started {
        Ok(started) => started,
        Err((message, errno)) => return answer(&Reply::Failed { message, errno }),
    };
    let pid = child.id();
    let reply = Reply::Started { pid, start_time: process::start_time(pid)?.unwrap_or_default() };
    if let Err(error) = answer(&reply) {
        // The plugin ended meanwhile, and the next one cannot find the task, because no handle was stored.
        if let Some(task) = PidFd::open(pid)? {
            task.send_signal(Signal::KILL.as_raw())?;
        }
        finish(child)?;
        end_orphans()?;
        return Err(error);
    }
    let status = finish(child)?;
    let record = Record { status: status.into_raw(), at: wall_now() };
    dir.replace(OsStr::new(&order.record), &rmp_serde::to_vec_named(&record)?, Access::mode(0o600))?;
    end_orphans()?;
    Ok(())
}

/// Sends the plugin the length in four bytes, then the reply.
fn answer(reply: &Reply) -> Result<(), Box<dyn std::error::Error>> {
    let mut stdout = io::stdout().lock();
    let bytes = rmp_serde::to_vec_named(reply)?;
    stdout.write_all(&u32::try_from(bytes.len())?.to_be_bytes())?;
    stdout.write_all(&bytes)?;
    Ok(stdout.flush()?)
}

fn start(order: &Order, dir: &Dir) -> io::Result<Child> {
    // The task inherits the directory and the network. Its user may have no access to the paths.
    rustix::process::fchdir(dir)?;
    if let Some(network) = &order.network {
        caravan_sys::netns::enter(network).map_err(io::Error::other)?;
    }
    let mut command = Command::new(&order.command);
    command.args(&order.args).env_clear().envs(&order.env);
    command.stdin(Stdio::null()).stdout(output(order, &order.stdout)?).stderr(output(order, &order.stderr)?);
    if let Some((uid, gid)) = order.user {
        command.uid(uid).gid(gid);
    }
    command.process_group(0).spawn()
}

/// Opens a FIFO for both directions: opening does not wait for a reader, and the task does not end by SIGPIPE while
/// the agent restarts. Tasks may change directories below that of the allocation, so that no link is followed there.
fn output(order: &Order, path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, openat};
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path for output has no directory"));
    };
    let alloc_dir = &order.place.alloc_dir;
    let dir = match parent.strip_prefix(alloc_dir) {
        Ok(below) => Dir::open(alloc_dir).and_then(|dir| dir.enter(below, Mounts::Follow)),
        Err(_) => Dir::open(parent),
    };
    let dir = dir.map_err(io::Error::other)?;
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(openat(&dir, name, flags, Mode::empty())?))
}

/// Waits for the task, and kills the rest of its group. The group's id is not reused before the task is reaped.
fn finish(mut child: Child) -> io::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a process id is out of range"))?;
    loop {
        match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // The group may have no other member.
    let _empty = kill_process_group(pid, Signal::KILL);
    child.wait()
}

/// Kills processes that left the group, and their children, until none is left.
fn end_orphans() -> caravan_sys::Result<()> {
    loop {
        for child in process::children()? {
            if let Some(orphan) = ProcessIdentity::read(child)? {
                kill(orphan)?;
            }
        }
        loop {
            match process::reap()? {
                Reaped::Ended(..) => {}
                Reaped::NoChildren => return Ok(()),
                Reaped::NoneEnded => break,
            }
        }
        if let Some(first) = process::children()?.first().copied()
            && let Some(orphan) = PidFd::open(first)?
        {
            orphan.wait_exit(None)?;
        }
    }
}

/// Kills a process, if the id still names the same process.
pub fn kill(process: ProcessIdentity) -> caravan_sys::Result<()> {
    if let Some(process) = PidFd::open_identity(process)? {
        process.send_signal(Signal::KILL.as_raw())?;
    }
    Ok(())
}
