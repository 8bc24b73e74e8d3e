//! The fork server: one process per agent, which forks the shims.
//!
//! A start of the program costs milliseconds (loading and relocating it) and megabytes of memory that belong to one
//! process. A fork shares all of that. The server has one thread and never reads a task's specification, so a new shim
//! has no data of other tasks.
//!
//! A request is one byte with two descriptors: the shim's conversation with the agent, and its log. The answer is the
//! shim's process id (four bytes, big endian; 0 if the fork failed). The shim is a child of the agent, not of the
//! server, so it outlives the server. The server ends when the agent closes the socket or dies.
//!
//! A shim first writes the same number to its conversation. If the server ends between the fork and its answer, the
//! agent learns from the conversation which child it must reap.

use crate::{Error, Machine, Result};
use caravan_sys::{limits, process, socket};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Serves the requests on the standard input, a socket, until its other end is closed. `open_files` is the soft limit
/// on open files of tasks: the limit with which the agent was started, before the agent raised its own.
pub(crate) fn serve(open_files: Option<OsString>) -> Result<()> {
    if let Some(soft) = open_files {
        let number = soft.to_str().and_then(|text| text.parse().ok());
        let number =
            number.ok_or_else(|| Error::Message(format!("{soft:?} is not a limit on open files")))?;
        limits::lower_open_files(number)?;
    }
    let failed = |doing| move |source: io::Error| Error::Io { doing, source };
    let _name = process::set_name(c"caravan-fork");
    // As for a shim: signals of the agent's terminal do not end the server before the agent.
    let _already_leader = nix::unistd::setsid();
    let requests = io::stdin().as_fd().try_clone_to_owned().map_err(failed("keep the requests"))?;
    let requests = UnixStream::from(requests);
    crate::leave_standard_streams()?;
    let machine = Machine::detect()?;
    while let Some(descriptors) =
        socket::receive_descriptors(&requests).map_err(failed("receive a request"))?
    {
        let [conversation, log] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|found| {
            Error::Message(format!("a request has {} descriptors instead of 2", found.len()))
        })?;
        let forked = process::fork_sibling(|| become_shim(&conversation, &log, &machine));
        let pid = forked.unwrap_or_else(|error| {
            report(&log, &error);
            0
        });
        (&requests).write_all(&pid.to_be_bytes()).map_err(failed("answer a request"))?;
    }
    Ok(())
}

/// Runs in the forked process: it has the streams of a shim that was started as a program.
fn become_shim(conversation: &OwnedFd, log: &OwnedFd, machine: &Machine) -> i32 {
    let begin = || -> Result<()> {
        let failed =
            |source: nix::Error| Error::Io { doing: "replace a standard stream", source: source.into() };
        nix::unistd::dup2_stdin(conversation).map_err(failed)?;
        nix::unistd::dup2_stdout(conversation).map_err(failed)?;
        nix::unistd::dup2_stderr(log).map_err(failed)?;
        process::close_from(3, false)?;
        // If the agent has ended, the shim reads the end of the conversation next.
        let _unread =
            io::stdout().write_all(&std::process::id().to_be_bytes()).and_then(|()| io::stdout().flush());
        Ok(())
    };
    match begin().and_then(|()| crate::run(machine)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}", caravan_sys::describe(&error));
            1
        }
    }
}

fn report(log: &OwnedFd, error: &caravan_sys::Error) {
    let line = format!("the shim cannot be forked: {}\n", caravan_sys::describe(error));
    // The agent reports the failure anyway.
    let _unwritten = log.try_clone().map(File::from).and_then(|mut log| log.write_all(line.as_bytes()));
}
