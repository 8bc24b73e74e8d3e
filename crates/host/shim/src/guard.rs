//! The guard of a container: one small process per container that is the only writer of a volume. The guard enforces
//! the node's lease, as a shim does for a process (`docs/design/shim.md`).
//!
//! A container engine does not enforce a lease, and the agent may hang or be dead when the lease runs out. The guard
//! then kills the container's first process, and with that all processes of its PID namespace. Other processes of the
//! container's control group are killed too.
//!
//! The driver starts the guard before the container. If the driver dies before it has sent the process's identity, the
//! guard removes the container through the engine's socket.

use crate::lease::{LeaseReader, Term};
use crate::protocol::{FrameBuffer, ProcessRef};
use crate::{Error, Result};
use caravan_sys::cgroup::{Cgroup, Hierarchy};
use caravan_sys::process::{self, PidFd, ProcessIdentity};
use caravan_sys::time::BootTime;
use rustix::event::{PollFd, PollFlags, Timespec as PollTime, poll};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The argument that makes [`crate::main`] a guard.
pub const GUARD: &str = "guard";

/// The byte that a guard writes to its standard output once it enforces the lease.
pub const READY: u8 = b'r';

/// SIGKILL has this number on every Linux architecture (signal(7)).
const SIGKILL: i32 = 9;

/// Time between two attempts to remove or kill.
const RETRY: Duration = Duration::from_millis(200);

/// Attempts to remove a container whose start was cut off. The engine may still be starting it.
const REMOVALS: u32 = 300;

/// The longest time for an answer of the engine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The container to guard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardSpec {
    /// The lease that the container runs under.
    pub term: Term,
    /// The engine's socket.
    pub engine: PathBuf,
    /// The container's id.
    pub container: String,
}

/// The driver's report that the guarded container has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarded {
    /// The first process of the container; absent if the container has already ended.
    pub process: Option<ProcessRef>,
}

/// Runs the guard until the container has ended. Reads a [`GuardSpec`] and a [`Guarded`] from standard input.
pub(crate) fn run() -> Result<()> {
    let _name = process::set_name(c"caravan-guard");
    // Signals of the agent's terminal must not end the guard.
    let _already_leader = nix::unistd::setsid();
    let mut input = Messages::new();
    let spec: GuardSpec = input.next(None)?.ok_or_else(|| Error::Message("no container to guard".into()))?;
    let mut lease = LeaseReader::open(&spec.term)?;
    // Without the byte, the driver does not start the container.
    if lease.holds_until(BootTime::now()).is_none() {
        return Err(Error::LeasePassed(spec.term.file));
    }
    let clock = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, clock).map_err(io("make a timer"))?;
    let _driver_is_gone = std::io::stdout().write_all(&[READY]).and_then(|()| std::io::stdout().flush());
    let guarded: Option<Guarded> = loop {
        let Some(until) = lease.holds_until(BootTime::now()) else { break None };
        arm(&timer, until)?;
        match input.next(Some(timer.as_fd())) {
            Ok(found) => break found,
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
    };
    // The agent and its pipes may end now.
    crate::leave_standard_streams()?;
    let Some(Guarded { process }) = guarded else {
        remove(&spec);
        return Ok(());
    };
    let Some(process) = process else { return Ok(()) };
    let identity = ProcessIdentity { pid: process.pid, start_time: process.start_time };
    let Some(first) = PidFd::open_identity(identity)? else { return Ok(()) };
    let cgroup = cgroup_of(process.pid, &spec.container)?;
    while let Some(until) = lease.holds_until(BootTime::now()) {
        arm(&timer, until)?;
        if has_ended(&first, &timer)? {
            return Ok(());
        }
    }
    eprintln!("the node's lease ran out: killing container {}", spec.container);
    while !first.wait_exit(Some(Duration::ZERO))? {
        first.send_signal(SIGKILL)?;
        if let Some(cgroup) = &cgroup {
            let _gone = cgroup.kill();
        }
        first.wait_exit(Some(RETRY))?;
    }
    Ok(())
}

fn io<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Io { doing, source: source.into() }
}

/// Arms a timer of CLOCK_BOOTTIME, which counts while the machine sleeps.
fn arm(timer: &OwnedFd, until: BootTime) -> Result<()> {
    let at = Duration::from_nanos(until.0.max(1));
    let at = Timespec {
        tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(at.subsec_nanos()),
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map_err(io("set a timer"))?;
    Ok(())
}

/// Waits until the process has ended or the timer is due. Returns whether the process has ended.
fn has_ended(first: &PidFd, timer: &OwnedFd) -> Result<bool> {
    loop {
        let mut sources = [PollFd::new(first, PollFlags::IN), PollFd::new(timer, PollFlags::IN)];
        match poll(&mut sources, None::<&PollTime>) {
            Ok(_) => return Ok(!sources[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io("wait for the container")(error)),
        }
    }
}

/// The messages on standard input.
struct Messages {
    buffer: FrameBuffer,
}

impl Messages {
    fn new() -> Self {
        Self { buffer: FrameBuffer::default() }
    }

    /// Returns the next message; `None` at the end of the input. Fails with `TimedOut` when the timer is due.
    fn next<T: for<'de> Deserialize<'de>>(&mut self, timer: Option<BorrowedFd<'_>>) -> Result<Option<T>> {
        let stdin = std::io::stdin();
        let mut chunk = [0; 4096];
        loop {
            if let Some(message) = self.buffer.take()? {
                return Ok(Some(message));
            }
            if let Some(timer) = timer {
                let mut sources =
                    [PollFd::new(&stdin, PollFlags::IN), PollFd::from_borrowed_fd(timer, PollFlags::IN)];
                match poll(&mut sources, None::<&PollTime>) {
                    Ok(_) if sources[0].revents().is_empty() => {
                        return Err(io("read a message")(std::io::Error::from(ErrorKind::TimedOut)));
                    }
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(io("read a message")(error)),
                }
            }
            let read = stdin.lock().read(&mut chunk).map_err(io("read a message"))?;
            if read == 0 {
                return Ok(None);
            }
            self.buffer.push(&chunk[..read]);
        }
    }
}

/// Returns the control group of a container. A group whose path does not name the container is not its own.
fn cgroup_of(pid: u32, container: &str) -> Result<Option<Cgroup>> {
    let Some(hierarchy) = Hierarchy::detect()? else { return Ok(None) };
    // The process may have ended.
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let own = paths.map(|path| path.trim_start_matches('/')).find(|path| path.contains(container));
    Ok(own.map(|path| Cgroup::at(&hierarchy, Path::new(path))).transpose()?)
}

/// Removes a container by the engine's API, until the engine reports that the container does not exist.
fn remove(spec: &GuardSpec) {
    for _ in 0..REMOVALS {
        match request_removal(spec) {
            Ok(status) if status == "404" => return,
            Ok(_) => {}
            Err(error) => eprintln!("the engine does not remove container {}: {error}", spec.container),
        }
        std::thread::sleep(RETRY);
    }
}

/// Sends one request for the removal, and returns the status of the answer.
fn request_removal(spec: &GuardSpec) -> std::io::Result<String> {
    let mut engine = UnixStream::connect(&spec.engine)?;
    engine.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    engine.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let path = format!("/containers/{}?force=1", spec.container);
    write!(engine, "DELETE {path} HTTP/1.0\r\nHost: engine\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = Vec::new();
    let _cut = engine.take(4096).read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    Ok(text.split(' ').nth(1).unwrap_or_default().to_owned())
}
