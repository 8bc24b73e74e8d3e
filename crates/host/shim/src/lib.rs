//! The shim: one small process per task. It starts the task, owns its pipes, rotates its logs, holds its control
//! group, enforces its lease and writes its exit record.
//!
//! The agent's fork server (`caravan shim fork-server`) forks the shim. The agent sends it a [`TaskSpec`] on standard
//! input, and reads a [`StartReport`] from its standard output. Then both communicate over a socket ([`protocol`]).
//! The shim is independent of the agent, which may die and restart. See `docs/design/shim.md`.
//!
//! This crate starts no thread and no runtime: [`main`] must be the first thing that a process does.

mod collect;
mod error;
mod filter;
mod fork_server;
mod guard;
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

use caravan_sys::cgroup::Hierarchy;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

pub use collect::{COLLECT, COLLECTING, CollectSpec, RECORDED};
pub use error::{Error, Result};
pub use guard::{GUARD, GuardSpec, Guarded, READY};
pub use logs::{LogWriter, Place, append_to, open_dir};
pub use protocol::{Opening, StartReport, VERSION};
pub use record::{ExitRecord, RECORD_FILE, SOCKET_FILE};
pub use spec::TaskSpec;

/// The argument that makes [`main`] a fork server instead of a shim.
pub const FORK_SERVER: &str = "fork-server";

/// Runs one of four processes. A shim runs until its task has ended, a fork server until its agent has ended
/// ([`FORK_SERVER`]), and a guard until its container has ended ([`GUARD`]). A collector runs until the end of a
/// task's output ([`COLLECT`]).
///
/// Must be called while the process has one thread. A shim reads the [`Opening`] and the [`TaskSpec`] from its standard
/// input, and writes the [`StartReport`] to its standard output.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let done = match args.next() {
        None => Machine::detect().and_then(|machine| run(&machine)),
        Some(arg) if arg == FORK_SERVER => fork_server::serve(args.next()),
        Some(arg) if arg == GUARD => guard::run(),
        Some(arg) if arg == COLLECT => collect::run(),
        Some(arg) => {
            eprintln!(
                "unexpected argument {arg:?}: the agent starts shims, without arguments or as {FORK_SERVER:?}"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", caravan_sys::describe(&error));
            ExitCode::FAILURE
        }
    }
}

/// The facts about the machine that all shims of a fork server share.
#[derive(Debug)]
struct Machine {
    /// The control groups; `None` on a machine without them.
    cgroups: Option<Hierarchy>,
}

impl Machine {
    fn detect() -> Result<Self> {
        Ok(Self { cgroups: Hierarchy::detect()? })
    }
}

/// Replaces a mount in the root of a running task. Processes that use the old mount keep it until they close its
/// files; every new use gets the new mount. `task` is any process of the task. Pass the task's own
/// `no_new_privileges`; with it, set-user-id bits in the mount have no effect. For the agent; blocks while the
/// mounted path's file system does not answer.
pub fn replace_mount(
    task: &caravan_sys::process::PidFd,
    mount: &spec::MountSpec,
    no_new_privileges: bool,
) -> Result<()> {
    sandbox::replace(task, mount, sandbox::Rights { devices: false, set_user_id: !no_new_privileges })
}

fn run(machine: &Machine) -> Result<()> {
    let _name = caravan_sys::process::set_name(c"caravan-shim");
    // Leave the agent's session and process group, so that signals of its terminal and its end do not reach the shim.
    let _already_leader = nix::unistd::setsid();
    let spec = read_spec()?;
    let started = server::Server::start(spec, machine);
    let report = match &started {
        Ok(server) => server.report(),
        Err(error) => StartReport::Failed { message: caravan_sys::describe(error) },
    };
    let frame = protocol::encode(&report)?;
    // If the agent died meanwhile, no process reads the report. The task runs nevertheless, and the next agent finds
    // it over its socket.
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

/// Closes the streams from the agent, so that it sees the end of the shim's output and shares no descriptor with it.
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
