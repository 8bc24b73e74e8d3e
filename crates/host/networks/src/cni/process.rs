//! The run of a plugin's program, with a separate environment, input and output in memory, and a timeout.

use caravan_sys::process::PidFd;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// The search path of plugins, which start `iptables`, `nft` and the like.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The most bytes of standard output that are read.
const MAX_OUTPUT: u64 = 4 << 20;
/// The most bytes of standard error that are read.
const MAX_ERRORS: u64 = 4 << 10;

/// The end of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit status of the program; `None` if the program was killed at its timeout.
    pub(crate) status: Option<ExitStatus>,
    /// The standard output of the program.
    pub(crate) output: String,
    /// The beginning of the program's standard error.
    pub(crate) errors: String,
}

/// Runs a program to its end. The program inherits only the search path; after `limit` its whole process group is
/// killed. Blocks.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn run(
    program: &Path,
    variables: &[(&str, OsString)],
    input: &[u8],
    limit: Duration,
) -> io::Result<Ended> {
    // Files in memory: a helper that the plugin leaves running may keep them open.
    let (mut stdin, stdout, stderr) = (memory()?, memory()?, memory()?);
    stdin.write_all(input)?;
    stdin.rewind()?;
    let mut child = Command::new(program)
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .process_group(0)
        .stdin(stdin)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()?;
    let has_ended = ends_within(&child, limit);
    if !matches!(has_ended, Ok(true)) {
        // The group exists until its leader is reaped.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
    let status = child.wait()?;
    let is_whole = has_ended?;
    Ok(Ended {
        status: is_whole.then_some(status),
        output: text(stdout, MAX_OUTPUT)?,
        errors: text(stderr, MAX_ERRORS)?.trim().to_owned(),
    })
}

fn ends_within(child: &Child, limit: Duration) -> io::Result<bool> {
    let failed = |error: caravan_sys::Error| io::Error::other(caravan_sys::describe(&error));
    match PidFd::open(child.id()).map_err(failed)? {
        Some(process) => process.wait_exit(Some(limit)).map_err(failed),
        None => Ok(true),
    }
}

fn memory() -> io::Result<File> {
    Ok(memfd_create("caravan-cni", MemfdFlags::CLOEXEC)?.into())
}

fn text(mut file: File, most: u64) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the exit status of a program, in words.
pub(crate) fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
