//! Starts a program: all steps between fork(2) and execve(2).

use crate::spec::{CommandSpec, IsolationSpec, RlimitResource, TaskSpec, UserSpec};
use crate::supervise::Surroundings;
use crate::{Error, Result};
use caravan_sys::caps::{self, CapSet};
use caravan_sys::process;
use caravan_sys::seccomp;
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use rustix::pipe::{PipeFlags, pipe_with};
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The search path for a program whose environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The mark of a note, as opposed to an error, on the pipe from the forked child.
const NOTE: char = '~';
const ERROR: char = '!';

/// A program that was executed.
#[derive(Debug)]
pub(crate) struct Launched {
    /// The program's process id.
    pub(crate) pid: u32,
    /// The settings that could not be applied to the program, one sentence each.
    pub(crate) notes: Vec<String>,
}

/// Standard input, output and error of a program.
#[derive(Debug)]
pub(crate) struct Stdio<'a> {
    pub(crate) input: BorrowedFd<'a>,
    pub(crate) output: BorrowedFd<'a>,
    pub(crate) error: BorrowedFd<'a>,
    /// Whether the three are one terminal, which becomes the program's controlling terminal.
    pub(crate) tty: bool,
}

/// Starts a program in the task's environment. Returns once it was executed, or with the step that failed.
pub(crate) fn launch(
    spec: &TaskSpec,
    around: &Surroundings,
    command: &CommandSpec,
    stdio: &Stdio<'_>,
) -> Result<Launched> {
    let args = arguments(command)?;
    let env = environment(command)?;
    let (reader, writer) = report_pipe()?;
    let entry = around.entry(spec);
    let pid = process::fork_into(entry.as_ref().map(AsFd::as_fd), |is_in_group| {
        // Send notes as they arise, because this code no longer runs after the execve(2).
        let mut note = |text: String| send_line(&writer, NOTE, &text);
        let Err(error) = become_program(spec, around, is_in_group, command, stdio, (&args, &env), &mut note);
        send_line(&writer, ERROR, &caravan_sys::describe(&error));
        127
    })?;
    drop(writer);
    let mut text = String::new();
    File::from(reader)
        .read_to_string(&mut text)
        .map_err(|source| Error::Io { doing: "hear from the started process", source })?;
    let mut notes = Vec::new();
    for line in text.lines() {
        if let Some(message) = line.strip_prefix(ERROR) {
            return Err(Error::Launch(message.to_owned()));
        }
        notes.extend(line.strip_prefix(NOTE).map(str::to_owned));
    }
    Ok(Launched { pid, notes })
}

/// Returns a pipe whose ends are closed when a program is executed.
pub(crate) fn report_pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::Io { doing: "make a pipe", source: e.into() })
}

fn send_line(report: &OwnedFd, kind: char, text: &str) {
    let line = format!("{kind}{}\n", text.replace('\n', " "));
    // A line fits in the pipe. If the shim has ended, the kernel kills this process as well.
    let _unheard = rustix::io::write(report, line.as_bytes());
}

fn arguments(command: &CommandSpec) -> Result<Vec<CString>> {
    std::iter::once(&command.program)
        .chain(&command.args)
        .map(|arg| CString::new(arg.as_bytes()))
        .collect::<Result<_, _>>()
        .map_err(|_| Error::Launch("an argument of the command holds a zero byte".into()))
}

fn environment(command: &CommandSpec) -> Result<Vec<CString>> {
    command
        .env
        .iter()
        .map(|(key, value)| {
            CString::new(format!("{key}={value}"))
                .map_err(|_| Error::Launch(format!("the environment variable {key:?} holds a zero byte")))
        })
        .collect()
}

/// Runs in the child. Order matters: first the host's files (control group, `/proc`), then the namespaces, then the
/// steps that need root, then the user.
fn become_program(
    spec: &TaskSpec,
    around: &Surroundings,
    is_in_group: bool,
    command: &CommandSpec,
    stdio: &Stdio<'_>,
    (args, env): (&[CString], &[CString]),
    degraded: &mut dyn FnMut(String),
) -> Result<Infallible> {
    process::die_with_parent()?;
    let io = |doing| move |source: rustix::io::Errno| Error::Io { doing, source: source.into() };
    let nix_io = |doing| move |source: nix::Error| Error::Io { doing, source: source.into() };
    rustix::process::setsid().map_err(io("begin a session"))?;
    nix::unistd::dup2_stdin(stdio.input).map_err(nix_io("set the standard input"))?;
    nix::unistd::dup2_stdout(stdio.output).map_err(nix_io("set the standard output"))?;
    nix::unistd::dup2_stderr(stdio.error).map_err(nix_io("set the standard error"))?;
    if stdio.tty {
        rustix::process::ioctl_tiocsctty(stdio.input).map_err(io("take the terminal"))?;
    }
    process::close_from(3, true)?;

    if !is_in_group {
        around.join_cgroup(spec)?;
    }
    if let Some(score) = spec.oom_score_adj
        && let Err(error) = std::fs::write("/proc/self/oom_score_adj", score.to_string())
    {
        degraded(format!("oom_score_adj {score} could not be set: {error}"));
    }
    for limit in &spec.rlimits {
        let (soft, hard) = (limit.soft.unwrap_or(RLIM_INFINITY), limit.hard.unwrap_or(RLIM_INFINITY));
        if let Err(errno) = setrlimit(resource(limit.resource), soft, hard) {
            degraded(format!("limit {:?} could not be set: {}", limit.resource, errno.desc()));
        }
    }
    if let Some(sandbox) = around.sandbox() {
        process::enter(sandbox, around.namespaces())?;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(base) = &command.base {
        enter(base)?;
    }
    match (&spec.isolation, &spec.user) {
        (Some(isolation), user) => confine(isolation, user.as_ref(), around)?,
        (None, Some(user)) => process::become_user(user.uid, user.gid, &user.groups)?,
        (None, None) => {}
    }
    // Enter as the task's user: the task may have placed a link there to a directory that only root may enter.
    enter(&command.cwd)?;
    // Repeated, because a change of user clears it.
    process::die_with_parent()?;
    process::reset_signals()?;
    execute(command, args, env)
}

/// Changes to a directory; an empty path keeps the current one.
fn enter(dir: &Path) -> Result<()> {
    if dir.as_os_str().is_empty() {
        return Ok(());
    }
    std::env::set_current_dir(dir).map_err(|source| Error::File {
        doing: "change to the working directory",
        path: dir.to_owned(),
        source,
    })
}

fn confine(isolation: &IsolationSpec, user: Option<&UserSpec>, around: &Surroundings) -> Result<()> {
    let allowed = CapSet::from_bits(isolation.capabilities);
    caps::limit_bounding(allowed)?;
    if isolation.no_new_privileges {
        seccomp::forbid_new_privileges()?;
    }
    // Load while this process still has the capability for it; the filter allows every later step.
    if let Some(filter) = around.filter() {
        filter.load()?;
    }
    match user {
        Some(user) if user.uid != 0 => {
            process::keep_capabilities()?;
            process::become_user(user.uid, user.gid, &user.groups)?;
            caps::keep_only(allowed.intersection(CapSet::from_bits(isolation.ambient)), true)?;
        }
        Some(user) => {
            process::become_user(user.uid, user.gid, &user.groups)?;
            caps::keep_only(allowed, false)?;
        }
        None => caps::keep_only(allowed, false)?,
    }
    Ok(())
}

fn resource(resource: RlimitResource) -> Resource {
    match resource {
        RlimitResource::Core => Resource::RLIMIT_CORE,
        RlimitResource::Cpu => Resource::RLIMIT_CPU,
        RlimitResource::FileSize => Resource::RLIMIT_FSIZE,
        RlimitResource::LockedMemory => Resource::RLIMIT_MEMLOCK,
        RlimitResource::OpenFiles => Resource::RLIMIT_NOFILE,
        RlimitResource::Processes => Resource::RLIMIT_NPROC,
        RlimitResource::Stack => Resource::RLIMIT_STACK,
    }
}

/// Executes the first existing candidate.
fn execute(command: &CommandSpec, args: &[CString], env: &[CString]) -> Result<Infallible> {
    let mut refused = None;
    for candidate in candidates(command) {
        let Err(error) = process::exec(&candidate, args, env);
        match error.raw_os_error() {
            Some(nix::libc::ENOENT | nix::libc::ENOTDIR) if !candidate.exists() => {}
            Some(nix::libc::EACCES) => refused = refused.or(Some(error)),
            _ => return Err(error.into()),
        }
    }
    Err(refused.map_or_else(
        || {
            Error::Launch(format!(
                "executable file {:?} not found in the task's directory or PATH",
                command.program
            ))
        },
        Into::into,
    ))
}

fn candidates(command: &CommandSpec) -> Vec<PathBuf> {
    let program = Path::new(&command.program);
    if program.is_absolute() {
        return vec![program.to_owned()];
    }
    let mut dirs = command.search.clone();
    if command.program.contains('/') {
        // The working directory, which the process has entered by now.
        dirs.push(PathBuf::new());
    } else {
        let path = command.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
        // A shell takes an empty entry as the current directory; here it is ignored.
        dirs.extend(path.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from));
    }
    dirs.into_iter().map(|dir| dir.join(program)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &str) -> CommandSpec {
        CommandSpec {
            program: program.into(),
            args: vec![],
            env: [("PATH".to_owned(), "/a::/b".to_owned())].into(),
            cwd: "/cwd".into(),
            base: None,
            search: vec!["/task/local".into()],
        }
    }

    #[test]
    fn programs_are_looked_for_in_the_task_first() {
        let found = |program| -> Vec<String> {
            candidates(&command(program)).iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(found("/bin/x"), ["/bin/x"]);
        assert_eq!(found("x"), ["/task/local/x", "/a/x", "/b/x"]);
        assert_eq!(found("bin/x"), ["/task/local/bin/x", "bin/x"]);
    }

    #[test]
    fn zero_bytes_are_named() {
        let mut bad = command("x");
        bad.env.insert("KEY".into(), "a\0b".into());
        let error = environment(&bad).unwrap_err().to_string();
        assert_eq!(error, "the environment variable \"KEY\" holds a zero byte");
        assert!(!format!("{bad:?}").contains("a\\0b"));
    }
}
