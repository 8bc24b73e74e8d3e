//! The shim's only loop: signals, pipes, clients and timers, in one thread.

mod requests;

use crate::launch::{Stdio, launch};
use crate::lease::LeaseReader;
use crate::logs::{LogWriter, open_dir};
use crate::protocol::{ProcessRef, Reply, StartReport, Started, VERSION};
use crate::record::{ExitRecord, RECORD_FILE, SOCKET_FILE};
use crate::session::Client;
use crate::spec::TaskSpec;
use crate::supervise::Surroundings;
use crate::{Error, Machine, Result};
use caravan_sys::process::{self, Exit, PidFd, ProcessIdentity};
use caravan_sys::time::BootTime;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

/// Delay between two kills while a process of an ended task still runs.
const RETRY: Duration = Duration::from_millis(5);

/// The time between signal and kill when the shim itself receives SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Maximum number of connections; further clients wait.
const MAX_CLIENTS: usize = 64;

/// A running task with everything that supervises it.
#[derive(Debug)]
pub(crate) struct Server {
    spec: TaskSpec,
    started: Started,
    task: PidFd,
    around: Surroundings,
    signals: SignalFd,
    timer: OwnedFd,
    listener: UnixListener,
    clients: Vec<Client>,
    /// Standard output and standard error; empty if output is discarded.
    outputs: Vec<Output>,
    lease: Option<LeaseReader>,
    lease_deadline: Option<BootTime>,
    lease_passed: bool,
    kill_at: Option<BootTime>,
    retry_at: Option<BootTime>,
    ended: Option<Ended>,
    reason: Option<String>,
}

/// One of the task's output pipes.
#[derive(Debug)]
struct Output {
    pipe: Option<File>,
    log: LogWriter,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    exit: Exit,
    unix_ns: u64,
}

/// The owner of a ready descriptor.
#[derive(Clone, Copy, Debug)]
enum Source {
    Signals,
    Timer,
    Listener,
    Output(usize),
    Client(usize),
    ExecOutput(usize),
    ExecInput(usize),
}

fn io<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |source| Error::Io { doing, source: source.into() }
}

impl Server {
    /// Starts the task. A failed start leaves no process of it.
    pub(crate) fn start(spec: TaskSpec, machine: &Machine) -> Result<Self> {
        caravan_sys::files::private_dir(&spec.state_dir)?;
        ExitRecord::clear(&spec.state_dir)?;
        process::become_subreaper()?;
        let signals = take_signals()?;
        let clock = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Boottime, clock).map_err(io("make a timer"))?;
        let (lease, lease_deadline) = open_lease(&spec)?;
        let listener = caravan_sys::socket::listen(&spec.state_dir.join(SOCKET_FILE))?;
        listener.set_nonblocking(true).map_err(io("set up the control socket"))?;

        let mut degraded = Vec::new();
        let around = Surroundings::make(&spec, machine, &mut degraded)?;
        let launched = (|| -> Result<_> {
            let null =
                File::options().read(true).write(true).open("/dev/null").map_err(io("open /dev/null"))?;
            let (outputs, far) = open_outputs(&spec)?;
            let stdio = match &far {
                Some([output, error]) => {
                    Stdio { input: null.as_fd(), output: output.as_fd(), error: error.as_fd(), tty: false }
                }
                None => Stdio { input: null.as_fd(), output: null.as_fd(), error: null.as_fd(), tty: false },
            };
            let started_unix_ns = unix_now();
            let launched = launch(&spec, &around, &spec.command, &stdio)?;
            let lost = || Error::Launch("the task's process vanished".into());
            let task = PidFd::open(launched.pid)?.ok_or_else(lost)?;
            let identity = identity(launched.pid)?;
            Ok((launched.notes, task, identity, outputs, started_unix_ns))
        })();
        let (notes, task, identity, outputs, started_unix_ns) = match launched {
            Ok(parts) => parts,
            Err(error) => {
                around.end();
                let _already_gone = std::fs::remove_file(spec.state_dir.join(SOCKET_FILE));
                return Err(error);
            }
        };
        degraded.extend(notes);
        let started =
            Started { shim: self::identity(std::process::id())?, task: identity, started_unix_ns, degraded };
        Ok(Self {
            spec,
            started,
            task,
            around,
            signals,
            timer,
            listener,
            clients: Vec::new(),
            outputs,
            lease,
            lease_deadline,
            lease_passed: false,
            kill_at: None,
            retry_at: None,
            ended: None,
            reason: None,
        })
    }

    /// Returns the report for the agent.
    pub(crate) fn report(&self) -> StartReport {
        StartReport::Started(self.started.clone())
    }

    /// Serves until no process of the task remains and its record is written.
    pub(crate) fn run(mut self) -> Result<()> {
        loop {
            self.set_timer()?;
            let ready = self.wait()?;
            for (source, flags) in ready {
                self.handle(source, flags);
            }
            self.check_deadlines();
            let empty = self.reap()?;
            for client in &mut self.clients {
                if client.gone
                    && let Some(exec) = &client.exec
                {
                    let _gone = exec.process.send_signal(nix::libc::SIGKILL);
                }
            }
            self.clients.retain(|client| !client.gone);
            if let (Some(ended), true) = (self.ended, empty) {
                return self.finish(ended);
            }
        }
    }

    fn wait(&self) -> Result<Vec<(Source, PollFlags)>> {
        let mut sources: Vec<(Source, BorrowedFd<'_>, PollFlags)> = vec![
            (Source::Signals, self.signals.as_fd(), PollFlags::IN),
            (Source::Timer, self.timer.as_fd(), PollFlags::IN),
        ];
        if self.clients.len() < MAX_CLIENTS {
            sources.push((Source::Listener, self.listener.as_fd(), PollFlags::IN));
        }
        for (index, output) in self.outputs.iter().enumerate() {
            if let Some(pipe) = &output.pipe {
                sources.push((Source::Output(index), pipe.as_fd(), PollFlags::IN));
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, client.has_output());
            sources.push((Source::Client(index), client.stream.as_fd(), flags));
            let Some(exec) = &client.exec else { continue };
            if !client.is_behind() {
                for pipe in exec.outputs.iter().flatten() {
                    sources.push((Source::ExecOutput(index), pipe.as_fd(), PollFlags::IN));
                }
            }
            if let Some(input) = exec.blocked_input() {
                sources.push((Source::ExecInput(index), input.as_fd(), PollFlags::OUT));
            }
        }
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(io("wait for events")(errno)),
        }
        Ok(sources
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((source, ..), fd)| (*source, fd.revents()))
            .collect())
    }

    fn handle(&mut self, source: Source, flags: PollFlags) {
        match source {
            Source::Signals => self.read_signals(),
            // Read only to clear its readiness; deadlines are checked after every event.
            Source::Timer => {
                let _count = rustix::io::read(&self.timer, &mut [0_u8; 8][..]);
            }
            Source::Listener => {
                if let Ok((stream, _)) = self.listener.accept()
                    && let Ok(client) = Client::new(stream)
                {
                    self.clients.push(client);
                }
            }
            Source::Output(index) => self.outputs[index].pump(false),
            Source::ExecOutput(index) => self.clients[index].pump_exec(false),
            Source::ExecInput(index) => {
                if let Some(exec) = &mut self.clients[index].exec {
                    exec.flush_input();
                }
            }
            Source::Client(index) => {
                if flags.contains(PollFlags::OUT) {
                    self.clients[index].flush();
                }
                if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    self.clients[index].read();
                    self.answer(index);
                }
            }
        }
    }

    fn read_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            // Ended children are collected after every event. Of the other signals, only SIGTERM ends the shim, and
            // its sender expects that the task ends as well.
            if i32::try_from(info.ssi_signo) == Ok(nix::libc::SIGTERM) {
                self.reason.get_or_insert_with(|| "the task's shim was told to end".into());
                self.stop(nix::libc::SIGTERM, GRACE);
            }
        }
    }

    fn reap(&mut self) -> Result<bool> {
        let mut exits = Vec::new();
        let empty = self.around.reap(|pid, exit| exits.push((pid, exit)))?;
        for (pid, exit) in exits {
            if pid == self.task.pid() && self.ended.is_none() {
                self.ended = Some(Ended { exit, unix_ns: unix_now() });
                if !empty {
                    self.around.kill();
                }
                self.retry_at = Some(BootTime::now().after(RETRY));
            }
            for client in &mut self.clients {
                if client.exec.as_ref().is_some_and(|exec| exec.process.pid() == pid) {
                    client.exec_ended(exit);
                }
            }
        }
        if self.ended.is_some() && !empty {
            // Reap again: the kill above may have taken effect already.
            return self.around.reap(|_, _| {});
        }
        Ok(empty)
    }

    fn check_deadlines(&mut self) {
        let now = BootTime::now();
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.around.kill();
        }
        if self.ended.is_some() && self.retry_at.is_some_and(|at| at <= now) {
            self.around.kill();
            self.retry_at = Some(now.after(RETRY));
        }
        if let (Some(lease), Some(known)) = (&mut self.lease, self.lease_deadline)
            && known <= now
        {
            // The known deadline has passed, but the agent may have renewed the lease meanwhile.
            if let Some(deadline) = lease.holds_until(now) {
                self.lease_deadline = Some(deadline);
            } else {
                if self.ended.is_none() {
                    self.lease_passed = true;
                    let path = lease.path().to_owned();
                    self.reason.get_or_insert_with(|| Error::LeasePassed(path).to_string());
                }
                self.around.kill();
                self.lease_deadline = Some(now.after(RETRY));
            }
        }
    }

    fn set_timer(&self) -> Result<()> {
        let next = [self.kill_at, self.retry_at, self.lease_deadline].into_iter().flatten().min();
        // Zero disarms the timer. A deadline that has passed must fire immediately, so it becomes one nanosecond.
        let nanos = next.map_or(0, |at| at.0.max(1));
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
        };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
            .map(drop)
            .map_err(io("set the timer"))
    }

    fn stop(&mut self, signal: i32, timeout: Duration) {
        if self.ended.is_some() {
            return;
        }
        let at = BootTime::now().after(timeout);
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
        let _gone = self.task.send_signal(signal);
    }

    fn finish(mut self, ended: Ended) -> Result<()> {
        for output in &mut self.outputs {
            output.pump(true);
        }
        let record = ExitRecord {
            version: VERSION,
            task_id: self.spec.task_id.clone(),
            shim: self.started.shim,
            task: self.started.task,
            exit_code: ended.exit.code,
            signal: ended.exit.signal,
            oom_killed: self.around.oom_killed(),
            reason: self.reason.take(),
            lease_passed: self.lease_passed,
            finished_unix_ns: ended.unix_ns,
            lost_log_bytes: self.outputs.iter().map(|output| output.log.lost()).sum(),
        };
        self.around.remove();
        let written = record.write(&self.spec.state_dir);
        // Do this before any answer: a caller that received the end may start the next shim in this directory, whose
        // socket has the same name.
        let _already_gone = std::fs::remove_file(self.spec.state_dir.join(SOCKET_FILE));
        for client in &mut self.clients {
            for _ in 0..client.waiting {
                client.send(&Reply::Exited(record.clone()));
            }
            client.finish();
        }
        written.inspect_err(|_| eprintln!("the exit record {RECORD_FILE} could not be written"))
    }
}

impl Output {
    /// Moves output to the log; with `to_the_end`, until the pipe is empty.
    fn pump(&mut self, to_the_end: bool) {
        let mut buffer = [0; 16384];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    self.log.write(&buffer[..n]);
                    if !to_the_end {
                        return;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // At the end, either no writer remains, or a process that is not the task's holds the pipe.
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }
}

fn identity(pid: u32) -> Result<ProcessRef> {
    let found =
        ProcessIdentity::read(pid)?.ok_or_else(|| Error::Launch(format!("process {pid} vanished")))?;
    Ok(ProcessRef { pid: found.pid, start_time: found.start_time })
}

/// Receives signals as events. Signals of a terminal or of a session's end do not concern a shim.
fn take_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    set.thread_block().map_err(io("block signals"))?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(io("watch signals"))
}

fn open_lease(spec: &TaskSpec) -> Result<(Option<LeaseReader>, Option<BootTime>)> {
    let Some(term) = &spec.lease else { return Ok((None, None)) };
    let mut lease = LeaseReader::open(term)?;
    let deadline = lease.holds_until(BootTime::now());
    let deadline = deadline.ok_or_else(|| Error::LeasePassed(term.file.clone()))?;
    Ok((Some(lease), Some(deadline)))
}

/// Creates the task's output pipes: the shim's ends with their logs, and the task's ends; none if output is
/// discarded.
fn open_outputs(spec: &TaskSpec) -> Result<(Vec<Output>, Option<[OwnedFd; 2]>)> {
    let Some(logs) = &spec.logs else {
        return Ok((Vec::new(), None));
    };
    let dir = open_dir(&logs.dir)?;
    let open = |name: &str| -> Result<(Output, OwnedFd)> {
        let log = LogWriter::open(dir.try_clone()?, name, logs.max_files, logs.max_bytes)?;
        let (near, far) = pipe_with(PipeFlags::CLOEXEC).map_err(io("make a pipe"))?;
        rustix::io::ioctl_fionbio(&near, true).map_err(io("set up a pipe"))?;
        Ok((Output { pipe: Some(near.into()), log }, far))
    };
    let (output, output_far) = open(&logs.stdout)?;
    let (error, error_far) = open(&logs.stderr)?;
    Ok((vec![output, error], Some([output_far, error_far])))
}

fn unix_now() -> u64 {
    u64::try_from(caravan_sys::time::wall_nanos()).unwrap_or(0)
}
