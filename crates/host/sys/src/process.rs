//! Processes: identity, pidfd, fork and exec, reaping, signals, namespaces.

use crate::{Error, Result};
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
pub use rustix::process::Pid;
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};
use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Returns a process id as a plain number.
pub fn pid_number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

fn pid_from_number(pid: u32) -> Result<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Error::Process {
        operation: "address",
        pid,
        source: Errno::SRCH.into(),
    })
}

/// Returns the start time of a process, in clock ticks since boot (field 22 of proc_pid_stat(5)); `None` if it does
/// not exist.
pub fn start_time(pid: u32) -> Result<Option<u64>> {
    Ok(read_stat(pid)?.map(|stat| stat.start_time))
}

/// Returns whether set-user-id bits and file capabilities have no effect in a process (`NoNewPrivs` of
/// proc_pid_status(5)). Returns `true` for a process that has ended.
pub fn has_no_new_privileges(pid: u32) -> Result<bool> {
    let path = format!("/proc/{pid}/status");
    match std::fs::read_to_string(&path) {
        Ok(status) => {
            Ok(status.lines().any(|line| line.strip_prefix("NoNewPrivs:").is_some_and(|v| v.trim() == "1")))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::path("read", path)(error)),
    }
}

/// The identity of a process, which distinguishes it from a later one with the same id (within one boot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
}

impl ProcessIdentity {
    /// Returns the identity of a process that is running or a zombie now.
    pub fn read(pid: u32) -> Result<Option<Self>> {
        Ok(start_time(pid)?.map(|start_time| Self { pid, start_time }))
    }
}

struct Stat {
    state: char,
    threads: u64,
    start_time: u64,
}

fn read_stat(pid: u32) -> Result<Option<Stat>> {
    let path = format!("/proc/{pid}/stat");
    match std::fs::read(&path) {
        Ok(text) => parse_stat(&String::from_utf8_lossy(&text)).map(Some),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            Ok(None)
        }
        Err(e) => Err(Error::path("read", path)(e)),
    }
}

fn parse_stat(text: &str) -> Result<Stat> {
    let bad = |detail: &str| Error::Malformed { what: "process status".into(), detail: detail.into() };
    // The name is in parentheses and may itself contain parentheses; the last one ends it.
    let (_, rest) = text.rsplit_once(')').ok_or_else(|| bad("no name"))?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let state = fields.first().and_then(|s| s.chars().next()).ok_or_else(|| bad("no state"))?;
    let number = |index: usize, name: &str| {
        fields.get(index).and_then(|f| f.parse().ok()).ok_or_else(|| bad(&format!("no {name}")))
    };
    // `fields` starts at the state, which is field 3 in the manual page.
    Ok(Stat { state, threads: number(17, "thread count")?, start_time: number(19, "start time")? })
}

/// A handle that refers to one process even after its id was reused (pidfd_open(2)).
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: u32,
}

impl PidFd {
    /// Opens the process that has this id now; `None` without one. Safe only for a child that was not reaped.
    pub fn open(pid: u32) -> Result<Option<Self>> {
        match pidfd_open(pid_from_number(pid)?, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self { fd, pid })),
            Err(Errno::SRCH) => Ok(None),
            Err(errno) => Err(Error::process("open", pid)(errno)),
        }
    }

    /// Opens the process with this identity; `None` if it has ended (another process may have its id by now).
    pub fn open_identity(identity: ProcessIdentity) -> Result<Option<Self>> {
        let Some(handle) = Self::open(identity.pid)? else { return Ok(None) };
        // Read the start time after opening the handle. If the id was reused before, the start time differs. If it is
        // reused later, the handle still refers to the ended process.
        match read_stat(identity.pid)? {
            Some(stat) if stat.start_time == identity.start_time && !matches!(stat.state, 'Z' | 'X') => {
                Ok(Some(handle))
            }
            _ => Ok(None),
        }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal by number. Returns whether the process still existed.
    pub fn send_signal(&self, signal: i32) -> Result<bool> {
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| Error::UnknownName { kind: "signal", name: signal.to_string() })?;
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(Error::process("signal", self.pid)(errno)),
        }
    }

    /// Reaps the process, a child of the caller, if it has ended. Returns whether it has.
    pub fn reap(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::PidFd(self.fd.as_fd()), options) {
                Ok(status) => return Ok(status.is_some()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::process("reap", self.pid)(errno)),
            }
        }
    }

    /// Waits until the process has ended, at most this long (`None`: forever). Returns whether it has ended.
    pub fn wait_exit(&self, timeout: Option<Duration>) -> Result<bool> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::process("wait for", self.pid)(errno)),
            }
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Forks the calling process. The child runs `child` and exits with its result, without destructors or exit handlers.
///
/// Fails in a process with more than one thread: only the calling thread would exist in the child, while locks of the
/// other threads would stay locked.
pub fn fork(child: impl FnOnce() -> i32) -> Result<u32> {
    require_one_thread()?;
    // SAFETY: the process has one thread (checked just above, and only this thread could start another), so no lock
    // can be held by a thread that does not exist in the child; any code may run there.
    match unsafe { nix::unistd::fork() } {
        Ok(nix::unistd::ForkResult::Parent { child }) => Ok(child.as_raw().unsigned_abs()),
        Ok(nix::unistd::ForkResult::Child) => run_and_exit(child),
        Err(errno) => Err(Error::Call { operation: "fork", source: errno.into() }),
    }
}

/// Forks the calling process as [`fork`] does, if possible into a control group of version 2
/// ([`crate::cgroup::Cgroup::entry`]). The child then is in the group from its first instruction, and no process
/// moves between groups. `child` receives whether it is in the group. Kernels before 5.7 cannot fork into a group,
/// and some groups accept no process.
pub fn fork_into(group: Option<BorrowedFd<'_>>, child: impl FnOnce(bool) -> i32) -> Result<u32> {
    let Some(group) = group else { return fork(|| child(false)) };
    require_one_thread()?;
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    arguments.cgroup = u64::from(group.as_raw_fd().cast_unsigned());
    let size = std::mem::size_of_val(&arguments);
    // SAFETY: as in `fork_sibling`: without CLONE_VM and without a stack, clone3(2) copies the process as fork(2) does.
    match unsafe { libc::syscall(libc::SYS_clone3, std::ptr::from_mut(&mut arguments), size) } {
        0 => run_and_exit(|| child(true)),
        pid if pid > 0 => Ok(u32::try_from(pid).expect("a process id is a positive int")),
        // The child joins the group itself; an error then names the file that refuses.
        _ => fork(|| child(false)),
    }
}

/// The flag of clone3(2) for the field `cgroup` (linux/sched.h).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Forks the calling process on behalf of its parent, as [`fork`] does. The new process is a child of the caller's
/// parent (`CLONE_PARENT` of clone(2)), which also reaps it.
pub fn fork_sibling(child: impl FnOnce() -> i32) -> Result<u32> {
    require_one_thread()?;
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: as in `fork`. Without CLONE_VM and without a stack, clone(2) copies the process as fork(2) does. The C
    // library's copy of the thread id becomes stale, which only its mutexes that record their owner use; one thread
    // cannot contend for them.
    match unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) } {
        0 => run_and_exit(child),
        pid if pid > 0 => Ok(u32::try_from(pid).expect("a process id is a positive int")),
        _ => Err(Error::Call { operation: "fork", source: std::io::Error::last_os_error() }),
    }
}

fn require_one_thread() -> Result<()> {
    let threads = read_stat(std::process::id())?.map_or(1, |stat| stat.threads);
    if threads == 1 {
        return Ok(());
    }
    Err(Error::Malformed {
        what: "the forking process".into(),
        detail: format!("it has {threads} threads instead of one"),
    })
}

/// Runs the code of a forked child, and ends the process.
fn run_and_exit(child: impl FnOnce() -> i32) -> ! {
    let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(101);
    // SAFETY: _exit ends the process and does not return.
    unsafe { libc::_exit(code) }
}

/// Replaces the calling process by a program. Returns only on error.
pub fn exec(program: &Path, args: &[CString], env: &[CString]) -> Result<Infallible> {
    let path = CString::new(program.as_os_str().as_bytes())
        .map_err(|e| Error::path("execute", program)(e.into()))?;
    nix::unistd::execve(&path, args, env).map_err(|errno| Error::path("execute", program)(errno.into()))
}

/// The result of a child that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code; 0 if a signal ended it.
    pub code: i32,
    /// Number of the signal that ended it; 0 if it exited.
    pub signal: i32,
}

/// Reaps one ended child (or adopted process) without waiting.
pub fn reap() -> Result<Reaped> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let exit = Exit {
                    code: status.exit_status().unwrap_or(0),
                    signal: status.terminating_signal().unwrap_or(0),
                };
                return Ok(Reaped::Ended(pid_number(pid), exit));
            }
            Ok(None) => return Ok(Reaped::NoneEnded),
            Err(Errno::CHILD) => return Ok(Reaped::NoChildren),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::call("wait for children")(errno)),
        }
    }
}

/// The result of [`reap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// This child has ended and was reaped.
    Ended(u32, Exit),
    /// There are children, but none has ended.
    NoneEnded,
    /// There are no children.
    NoChildren,
}

/// Returns the running children of the calling process, from `/proc/self/task/<tid>/children` of all threads.
pub fn children() -> Result<Vec<u32>> {
    let mut all = Vec::new();
    let tasks = "/proc/self/task";
    for task in std::fs::read_dir(tasks).map_err(Error::path("read", tasks))? {
        let path = task.map_err(Error::path("read", tasks))?.path().join("children");
        let text = std::fs::read_to_string(&path).map_err(Error::path("read", &path))?;
        all.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(all)
}

/// Signals by name, for the numbers that are the same on every supported architecture.
const SIGNALS: [(&str, i32); 31] = [
    ("SIGHUP", libc::SIGHUP),
    ("SIGINT", libc::SIGINT),
    ("SIGQUIT", libc::SIGQUIT),
    ("SIGILL", libc::SIGILL),
    ("SIGTRAP", libc::SIGTRAP),
    ("SIGABRT", libc::SIGABRT),
    ("SIGBUS", libc::SIGBUS),
    ("SIGFPE", libc::SIGFPE),
    ("SIGKILL", libc::SIGKILL),
    ("SIGUSR1", libc::SIGUSR1),
    ("SIGSEGV", libc::SIGSEGV),
    ("SIGUSR2", libc::SIGUSR2),
    ("SIGPIPE", libc::SIGPIPE),
    ("SIGALRM", libc::SIGALRM),
    ("SIGTERM", libc::SIGTERM),
    ("SIGSTKFLT", libc::SIGSTKFLT),
    ("SIGCHLD", libc::SIGCHLD),
    ("SIGCONT", libc::SIGCONT),
    ("SIGSTOP", libc::SIGSTOP),
    ("SIGTSTP", libc::SIGTSTP),
    ("SIGTTIN", libc::SIGTTIN),
    ("SIGTTOU", libc::SIGTTOU),
    ("SIGURG", libc::SIGURG),
    ("SIGXCPU", libc::SIGXCPU),
    ("SIGXFSZ", libc::SIGXFSZ),
    ("SIGVTALRM", libc::SIGVTALRM),
    ("SIGPROF", libc::SIGPROF),
    ("SIGWINCH", libc::SIGWINCH),
    ("SIGIO", libc::SIGIO),
    ("SIGPWR", libc::SIGPWR),
    ("SIGSYS", libc::SIGSYS),
];

/// Returns the number of a signal given as `SIGTERM`, `term` or `15`.
pub fn signal_number(text: &str) -> Result<i32> {
    let unknown = || Error::UnknownName { kind: "signal", name: text.to_owned() };
    if let Ok(number) = text.parse::<i32>() {
        return SIGNALS.iter().find(|(_, n)| *n == number).map(|(_, n)| *n).ok_or_else(unknown);
    }
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    SIGNALS.iter().find(|(name, _)| name[3..] == *bare).map(|(_, n)| *n).ok_or_else(unknown)
}

/// Returns the name of a signal (`SIGTERM`), if it has one.
pub fn signal_name(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(_, n)| *n == number).map(|(name, _)| *name)
}

/// Sets every signal to its default action and unblocks all signals, as a program expects at its start. Rust's
/// runtime ignores `SIGPIPE`, and both an ignored signal and the mask survive execve(2).
pub fn reset_signals() -> Result<()> {
    for (_, number) in SIGNALS {
        if number != libc::SIGKILL && number != libc::SIGSTOP {
            // SAFETY: SIG_DFL installs no handler, and this program relies on none.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
    }
    nix::sys::signal::SigSet::empty()
        .thread_set_mask()
        .map_err(|errno| Error::Call { operation: "unblock signals", source: errno.into() })
}

/// Makes the kernel reap the caller's children.
pub fn ignore_children() {
    // SAFETY: SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Closes all descriptors from `first` on, now or at the next execve(2).
pub fn close_from(first: u32, at_exec: bool) -> Result<()> {
    let flags = if at_exec { libc::CLOSE_RANGE_CLOEXEC } else { 0 };
    // SAFETY: takes numbers only. With `at_exec` nothing is closed yet; otherwise the callers are forked children
    // that exit without using a descriptor that they own.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::Call { operation: "close descriptors", source: std::io::Error::last_os_error() })
    }
}

/// Makes the caller the parent of orphans among its descendants (`PR_SET_CHILD_SUBREAPER`).
pub fn become_subreaper() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(Error::call("become the reaper of orphans"))
}

/// Makes the kernel kill the caller when its parent dies. A parent that died before this call is not noticed, so
/// compare [`parent`] with the expected process afterwards.
pub fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Error::call("tie the process to its parent"))
}

/// Returns the parent's process id; 0 if the parent is in another PID namespace.
pub fn parent() -> u32 {
    rustix::process::getppid().map_or(0, pid_number)
}

/// Hides the caller's memory and `/proc` entries from other processes of its user (`PR_SET_DUMPABLE`).
pub fn hide() -> Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(Error::call("hide the process"))
}

/// Sets the caller's process name (15 bytes at most).
pub fn set_name(name: &std::ffi::CStr) -> Result<()> {
    rustix::thread::set_name(name).map_err(Error::call("set the process name"))
}

/// Namespaces to enter or leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Mount namespace.
    pub mount: bool,
    /// IPC namespace: System V IPC and POSIX queues.
    pub ipc: bool,
    /// UTS namespace: the hostname.
    pub uts: bool,
    /// PID namespace; applies to later children.
    pub pid: bool,
}

/// Moves the caller into new namespaces.
pub fn unshare(namespaces: Namespaces) -> Result<()> {
    let mut flags = UnshareFlags::empty();
    flags.set(UnshareFlags::NEWNS, namespaces.mount);
    flags.set(UnshareFlags::NEWIPC, namespaces.ipc);
    flags.set(UnshareFlags::NEWUTS, namespaces.uts);
    flags.set(UnshareFlags::NEWPID, namespaces.pid);
    // SAFETY: UnshareFlags::FILES is not among the flags, which is all that the function requires.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Error::call("make new namespaces"))
}

/// Gives the calling thread its own root and working directory, which no other thread shares.
pub fn unshare_root() -> Result<()> {
    // SAFETY: UnshareFlags::FILES is not among the flags, which is all that the function requires.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
        .map_err(Error::call("part with a shared root"))
}

/// Moves the caller into the namespaces of another process; the root of the mount namespace becomes the caller's
/// root.
pub fn enter(process: &PidFd, namespaces: Namespaces) -> Result<()> {
    let mut flags = ThreadNameSpaceType::empty();
    flags.set(ThreadNameSpaceType::MOUNT, namespaces.mount);
    flags.set(ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION, namespaces.ipc);
    flags.set(ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME, namespaces.uts);
    flags.set(ThreadNameSpaceType::PROCESS_ID, namespaces.pid);
    if flags.is_empty() {
        return Ok(());
    }
    rustix::thread::move_into_thread_name_spaces(process.as_fd(), flags)
        .map_err(Error::process("enter the namespaces of", process.pid))
}

/// Changes the caller's groups, then its group, then its user.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<()> {
    use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
    let call = |operation| move |errno: nix::Error| Error::Call { operation, source: errno.into() };
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(call("set supplementary groups"))?;
    setgid(Gid::from_raw(gid)).map_err(call("set the group"))?;
    setuid(Uid::from_raw(uid)).map_err(call("set the user"))
}

/// Keeps permitted capabilities across the next change of user.
pub fn keep_capabilities() -> Result<()> {
    rustix::thread::set_keep_capabilities(true).map_err(Error::call("keep capabilities"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn identity_outlives_the_id() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = ProcessIdentity::read(child.id()).unwrap().unwrap();
        let other = ProcessIdentity { start_time: identity.start_time + 1, ..identity };
        assert!(PidFd::open_identity(other).unwrap().is_none());
        let handle = PidFd::open_identity(identity).unwrap().unwrap();
        assert!(!handle.wait_exit(Some(Duration::ZERO)).unwrap());
        assert!(handle.send_signal(libc::SIGTERM).unwrap());
        assert!(handle.wait_exit(Some(Duration::from_secs(10))).unwrap());
        // The process has ended but was not reaped: it no longer counts as running.
        assert!(PidFd::open_identity(identity).unwrap().is_none());
        child.wait().unwrap();
        assert!(!handle.send_signal(libc::SIGTERM).unwrap());
        assert!(PidFd::open_identity(identity).unwrap().is_none());
    }

    #[test]
    fn status_lines_with_odd_names_are_read() {
        let tail = "S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9 9";
        let stat = parse_stat(&format!("42 (a) b (c)) {tail}")).unwrap();
        assert_eq!((stat.state, stat.threads, stat.start_time), ('S', 1, 777));
        assert!(parse_stat("42 (sh) S 1").is_err());
    }

    #[test]
    fn a_process_with_threads_does_not_fork() {
        // The test harness runs each test on its own thread.
        let error = fork(|| 0).unwrap_err().to_string();
        assert!(error.contains("threads instead of one"), "{error}");
    }

    #[test]
    fn signals_have_names() {
        for text in ["SIGTERM", "sigterm", "term", "15"] {
            assert_eq!(signal_number(text).unwrap(), 15);
        }
        assert_eq!(signal_name(2), Some("SIGINT"));
        assert_eq!(signal_number("SIGFOO").unwrap_err().to_string(), "unknown signal \"SIGFOO\"");
        assert!(signal_number("99").is_err());
    }

    #[test]
    fn there_is_no_process_zero() {
        assert!(PidFd::open(0).is_err());
        assert!(start_time(u32::MAX).unwrap().is_none());
    }
}
