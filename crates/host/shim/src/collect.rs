//! The collector of a task's output: one small process per task of an external driver. The driver's program writes the
//! output to two named pipes (fifo(7)), and the collector copies it to the log files.
//!
//! The collector outlives the agent, as the task does. It holds both ends of the pipes, so a writer that ends and
//! starts again, such as a restarted plugin, loses nothing.
//!
//! A collector reads nothing before the agent has recorded its process. An agent that ends in between leaves no
//! record, and the next agent starts another collector. Two collectors would divide the output, and no process would
//! end the first one.

use crate::logs::{LogWriter, open_dir};
use crate::protocol::FrameBuffer;
use crate::spec::LogSpec;
use crate::{Error, Result};
use caravan_sys::process;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;

/// The argument that makes [`crate::main`] a collector.
pub const COLLECT: &str = "collect";

/// The byte that a collector writes to its standard output once it reads the pipes.
pub const COLLECTING: u8 = b'c';

/// The byte that a collector waits for on its standard input: the agent has recorded the collector's process.
pub const RECORDED: &[u8] = b"r";

/// The pipes and the log files of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectSpec {
    /// The pipe of standard output.
    pub stdout: PathBuf,
    /// The pipe of standard error.
    pub stderr: PathBuf,
    /// The log files.
    pub logs: LogSpec,
}

/// Copies output until SIGTERM, then the rest that is in the pipes. Reads a [`CollectSpec`] and [`RECORDED`] from standard
/// input; without the second, copies nothing.
pub(crate) fn run() -> Result<()> {
    let _name = process::set_name(c"caravan-collect");
    // Signals of the agent's terminal must not end the collector.
    let _already_leader = nix::unistd::setsid();
    let spec = receive()?;
    let mut ending = SigSet::empty();
    ending.add(Signal::SIGTERM);
    ending.thread_block().map_err(io("block signals"))?;
    let signals = SignalFd::with_flags(&ending, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(io("watch signals"))?;
    let dir = open_dir(&spec.logs.dir)?;
    let mut outputs = Vec::new();
    for (pipe, name) in [(&spec.stdout, &spec.logs.stdout), (&spec.stderr, &spec.logs.stderr)] {
        let log = LogWriter::open(dir.try_clone()?, name, spec.logs.max_files, spec.logs.max_bytes)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let pipe = rustix::fs::open(pipe, flags, Mode::empty()).map_err(io("open a pipe"))?;
        outputs.push((File::from(pipe), log));
    }
    let _driver_is_gone = std::io::stdout().write_all(&[COLLECTING]).and_then(|()| std::io::stdout().flush());
    if !is_recorded()? {
        return Ok(());
    }
    crate::leave_standard_streams()?;
    loop {
        let has_to_end = {
            let mut sources = [
                PollFd::new(&signals, PollFlags::IN),
                PollFd::new(&outputs[0].0, PollFlags::IN),
                PollFd::new(&outputs[1].0, PollFlags::IN),
            ];
            match poll(&mut sources, None::<&Timespec>) {
                Ok(_) => !sources[0].revents().is_empty(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(io("wait for output")(error)),
            }
        };
        for (pipe, log) in &mut outputs {
            copy(pipe, log)?;
        }
        if has_to_end {
            return Ok(());
        }
    }
}

fn io<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Io { doing, source: source.into() }
}

fn receive() -> Result<CollectSpec> {
    let mut buffer = FrameBuffer::default();
    let mut chunk = [0; 4096];
    loop {
        if let Some(spec) = buffer.take()? {
            return Ok(spec);
        }
        let read = std::io::stdin().lock().read(&mut chunk).map_err(io("read the specification"))?;
        if read == 0 {
            return Err(Error::Message("no output to collect".into()));
        }
        buffer.push(&chunk[..read]);
    }
}

/// Waits until the agent has recorded this process. Returns `false` if the agent ends before.
fn is_recorded() -> Result<bool> {
    let mut byte = [0];
    let read = std::io::stdin().lock().read(&mut byte).map_err(io("wait for the agent's record"))?;
    Ok(byte[..read] == *RECORDED)
}

/// Copies the output that is in a pipe.
fn copy(pipe: &mut File, log: &mut LogWriter) -> Result<()> {
    let mut chunk = [0; 64 * 1024];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => log.write(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(io("read output")(error)),
        }
    }
}
