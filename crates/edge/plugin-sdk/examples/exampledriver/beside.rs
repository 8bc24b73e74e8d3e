//! The role of the program between the plugin and a command next to a task. It enters the task's directory, takes
//! over the terminal, changes to the task's user, and executes the command.
//!
//! The plugin's environment for this role has all variables of the task, with a prefix: variables such as
//! `LD_PRELOAD` must not have an effect before the user changes.

use crate::driver::TaskConfig;
use crate::supervise::{self, Place};
use caravan_plugin_sdk::Task;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// The argument that selects this role.
pub const ROLE: &str = "beside";
/// The prefix of the task's variables.
const PREFIX: &str = "EXAMPLE_TASK_";
/// The exit code of shells for a command that cannot be started.
const NOT_STARTED: u8 = 127;

/// The standard streams of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Three pipes, or nothing.
    Pipes,
    /// One terminal.
    Terminal,
}

impl Streams {
    fn name(self) -> &'static str {
        match self {
            Self::Pipes => "pipes",
            Self::Terminal => "terminal",
        }
    }
}

/// Returns a command that runs next to a task, and is killed when its process value is dropped.
pub fn command(task: &Task<TaskConfig>, words: &[String], streams: Streams) -> tokio::process::Command {
    let mut command = tokio::process::Command::new("/proc/self/exe");
    command.args([ROLE, streams.name()]).arg(&task.alloc_dir).args([&task.name, &task.user]);
    command.arg(supervise::namespace(task).unwrap_or_default()).args(words);
    command.env_clear().envs(task.env.iter().map(|(name, value)| (format!("{PREFIX}{name}"), value)));
    command.kill_on_drop(true);
    command
}

/// Executes the command in place of this process.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Err(error) = run(arguments);
    // A user who has disconnected reads no message.
    let _unread = writeln!(io::stderr(), "{error}");
    ExitCode::from(NOT_STARTED)
}

fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<std::convert::Infallible, Box<dyn Error>> {
    let mut next = || arguments.next().ok_or("an argument is missing");
    let (streams, alloc_dir, task, user) = (next()?, next()?, next()?, next()?);
    let (network, program) = (next()?, next()?);
    let task = task.into_string().map_err(|_| "the name of the task is no text")?;
    let dir = Place { alloc_dir: alloc_dir.into(), task }.open()?;
    // The directory is entered before the user changes, because the path may lead through directories that the user
    // cannot enter.
    rustix::process::fchdir(&dir)?;
    if !network.is_empty() {
        caravan_sys::netns::enter(network.as_ref())?;
    }
    if streams == Streams::Terminal.name() {
        rustix::process::setsid()?;
        rustix::process::ioctl_tiocsctty(io::stdin())?;
    }
    let mut command = Command::new(&program);
    command.args(arguments).env_clear().envs(std::env::vars_os().filter_map(|(name, value)| {
        let name = name.as_bytes().strip_prefix(PREFIX.as_bytes())?.to_vec();
        Some((OsString::from_vec(name), value))
    }));
    if let Some(user) = user.to_str().filter(|user| !user.is_empty()) {
        let (uid, gid) = supervise::account(user)?;
        command.uid(uid).gid(gid);
    }
    Err(format!("cannot start {}: {}", program.display(), command.exec()).into())
}
