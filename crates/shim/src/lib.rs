//! One small process per task: starts it, owns its pipes, rotates its logs, holds its cgroup, is its watchdog,
//! writes the exit record.
//!
//! The agent starts `caravan shim`, gives it a [`TaskSpec`] on standard input, reads a [`StartReport`] from its
//! standard output, and from then on talks to it over a socket ([`protocol`]). The shim belongs to no one: the
//! agent may die and come back. `docs/design/shim.md` tells the whole story.
//!
//! This crate starts no thread and no runtime: [`main`] must be the first thing that a process does.

mod error;
mod filter;
mod launch;
pub mod lease;
mod logs;
pub mod protocol;
mod record;
mod sandbox;
mod server;
mod session;
pub mod spec;
mod supervise;
mod targets;
mod usage;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

pub use error::{Error, Result};
pub use logs::append_to;
pub use protocol::{Opening, StartReport, VERSION};
pub use record::{ExitRecord, RECORD_FILE, SOCKET_FILE};
pub use spec::TaskSpec;

/// Runs the shim's role to its end: the process lives as long as its task. Takes no arguments.
///
/// Must be called while the process has one thread. Its standard input carries the [`Opening`] and the
/// [`TaskSpec`], its standard output takes the [`StartReport`].
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    if let Some(arg) = args.into_iter().next() {
        eprintln!("unexpected argument {arg:?}: the shim is started by the agent and takes none");
        return ExitCode::from(2);
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", caravan_sys::describe(&error));
            ExitCode::FAILURE
        }
    }
}

/// Mounts something anew in the root of a task that runs, in place of what is mounted on the same path there: what
/// used the old mount keeps it until it lets go, every new use is of the new one. `task` is any process of the task.
/// With `no_new_privileges`, as the task has them, set-user-id bits in the mount have no effect. For the agent; blocks
/// as long as the mounted path takes to look at.
pub fn replace_mount(
    task: &caravan_sys::process::PidFd,
    mount: &spec::MountSpec,
    no_new_privileges: bool,
) -> Result<()> {
    sandbox::replace(task, mount, sandbox::Rights { devices: false, set_user_id: !no_new_privileges })
}

fn run() -> Result<()> {
    let _name = caravan_sys::process::set_name(c"caravan-shim");
    // Out of the agent's session and process group: neither its terminal's signals nor its end reach us.
    let _already_leader = nix::unistd::setsid();
    let spec = read_spec()?;
    let started = server::Server::start(spec);
    let report = match &started {
        Ok(server) => server.report(),
        Err(error) => StartReport::Failed { message: caravan_sys::describe(error) },
    };
    let frame = protocol::encode(&report)?;
    // An agent that died meanwhile does not read it; the task runs all the same and is found over its socket.
    let _unread = io::stdout().write_all(&frame).and_then(|()| io::stdout().flush());
    let server = started?;
    leave_standard_streams()?;
    server.run()
}

fn read_spec() -> Result<TaskSpec> {
    let mut input = io::stdin().lock();
    let opening: Opening = protocol::read_message(&mut input)?;
    if opening.version != VERSION {
        return Err(Error::Version { theirs: opening.version, ours: VERSION });
    }
    protocol::read_message(&mut input)
}

/// Lets go of what the agent gave us, so that it sees the end of our output and holds nothing of ours.
fn leave_standard_streams() -> Result<()> {
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|source| Error::Io { doing: "open /dev/null", source })?;
    let failed = |source: nix::Error| Error::Io { doing: "replace a standard stream", source: source.into() };
    nix::unistd::dup2_stdin(&null).map_err(failed)?;
    nix::unistd::dup2_stdout(&null).map_err(failed)
}
