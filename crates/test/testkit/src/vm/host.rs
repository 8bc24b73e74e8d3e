//! Programs of the host that build files of machines.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories that a user's PATH may lack.
const MORE_PATHS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Runs a program to its end. Fails with the standard error of the program.
pub(super) fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a program to its end and returns its standard output. Fails with the standard error of the program.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {name}"))?;
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the path of a program of the host.
pub(super) fn find(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(MORE_PATHS.iter().map(PathBuf::from));
    directories
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("virtual machines need {name} of the Debian package {package}"))
}

/// Returns the shared libraries of a program, with the interpreter that loads them (ldd(1)).
pub(super) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    // A static program has no libraries, which ldd reports as an error.
    let listed = output(Command::new("ldd").arg(program)).unwrap_or_default();
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(PathBuf::from).collect())
}

/// Copies a file and keeps its holes.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").args(["--sparse=always", "--reflink=auto", "--dereference"]).arg(from).arg(to))
}
