//! Mounts, by the system's programs.

use std::fs;
use std::path::Path;
use std::process::Command;
use tonic::Status;

fn run(program: &str, args: &[&str]) -> Result<(), Status> {
    eprintln!("running {program} {args:?}");
    let output = Command::new(program)
        .args(args)
        .output()
        .map_err(|e| Status::internal(format!("cannot run {program}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let reported = String::from_utf8_lossy(&output.stderr);
    Err(Status::internal(format!("{program} {args:?} ended with {}: {}", output.status, reported.trim())))
}

/// Returns whether a path is a mount point (proc_pid_mountinfo(5)).
pub(crate) fn is_mounted(path: &str) -> Result<bool, Status> {
    let table = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| Status::internal(format!("cannot read the mount table: {e}")))?;
    let escaped = path.replace('\\', "\\134").replace(' ', "\\040");
    Ok(table.lines().any(|line| line.split(' ').nth(4) == Some(&*escaped)))
}

/// Bind-mounts a directory.
pub(crate) fn bind(from: &Path, to: &str, read_only: bool) -> Result<(), Status> {
    run("mount", &["--bind", &from.to_string_lossy(), to])?;
    if read_only { run("mount", &["-o", "remount,bind,ro", to]) } else { Ok(()) }
}

/// Removes a mount.
pub(crate) fn unmount(path: &str) -> Result<(), Status> {
    run("umount", &[path])
}
