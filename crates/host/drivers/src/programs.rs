//! Programs of the host: their search, and the reports of their versions.

use parking_lot::Mutex;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// The time that a program may take to report its version. Runtimes take a second on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Bytes of each output stream that are read.
const OUTPUT_LIMIT: u64 = 1 << 16;

/// Returns the absolute directories of the agent's `PATH`.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect()
}

/// Returns the first executable file with this name in the directories.
pub(crate) fn find(name: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
    dirs.iter().map(|dir| dir.join(name)).find(|path| is_executable(path))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The attributes that identify the content of a program's file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn new(path: &Path, meta: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            modified: meta.modified().ok(),
        }
    }
}

/// The last report of a program's version. The program runs again only if its file has changed.
#[derive(Debug, Default)]
pub(crate) struct VersionAnswer(Mutex<Option<(Stamp, String)>>);

impl VersionAnswer {
    /// Returns the output of a program that runs with one argument: its standard output, or its standard error if the
    /// output is empty. The error is a sentence for operators.
    pub(crate) async fn get(&self, program: &Path, argument: &str) -> Result<String, String> {
        let failed = |reason: String| format!("{} {argument} failed: {reason}", program.display());
        let meta = tokio::fs::metadata(program).await.map_err(|error| failed(error.to_string()))?;
        let stamp = Stamp::new(program, &meta);
        if let Some((known, answer)) = &*self.0.lock()
            && *known == stamp
        {
            return Ok(answer.clone());
        }
        let answer = match tokio::time::timeout(ANSWER_LIMIT, run(program, argument)).await {
            Ok(answer) => answer.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!("it took longer than {ANSWER_LIMIT:?}"))),
        };
        *self.0.lock() = Some((stamp, answer.clone()));
        Ok(answer)
    }
}

async fn run(program: &Path, argument: &str) -> io::Result<String> {
    let mut child = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (output, error) = (child.stdout.take(), child.stderr.take());
    let (output, error, status) = tokio::join!(read(output), read(error), child.wait());
    let (output, error, status) = (output?, error?, status?);
    if !status.success() {
        return Err(io::Error::other(format!("it ended with {status}: {}", error.trim())));
    }
    Ok(if output.trim().is_empty() { error } else { output })
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(OUTPUT_LIMIT).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &Path, name: &str, script: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn only_executable_files_are_found() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(first.path().join("tool")).unwrap();
        std::fs::write(first.path().join("other"), "").unwrap();
        let tool = program(second.path(), "tool", "true");
        let dirs = [first.path().to_owned(), second.path().to_owned()];
        assert_eq!(find("tool", &dirs), Some(tool));
        assert_eq!(find("other", &dirs), None);
    }

    #[tokio::test]
    async fn a_version_is_asked_for_again_when_the_program_changes() {
        let dir = tempfile::tempdir().unwrap();
        let count = dir.path().join("count");
        let script = |text: &str| format!("echo x >>{}; echo \"$1 {text}\" >&2", count.display());
        let answers = VersionAnswer::default();
        let tool = program(dir.path(), "tool", &script("1.2"));
        for _ in 0..2 {
            assert_eq!(answers.get(&tool, "-v").await.unwrap(), "-v 1.2\n");
        }
        assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\n");
        let newer = program(dir.path(), "newer", &script("1.2.3"));
        std::fs::rename(newer, &tool).unwrap();
        assert_eq!(answers.get(&tool, "-v").await.unwrap(), "-v 1.2.3\n");
        let broken = program(dir.path(), "broken", "echo no library >&2; exit 3");
        let error = answers.get(&broken, "-v").await.unwrap_err();
        assert!(error.contains("broken -v failed") && error.contains("no library"), "{error}");
        assert!(answers.get(&dir.path().join("absent"), "-v").await.is_err());
    }
}
