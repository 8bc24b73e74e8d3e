//! The payload of a dispatch, as a file for a task.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use caravan_types::job::{Job, Task};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

/// Writes the payload of the job below the task's local directory, if there is one and the task wants it. Nothing that
/// a task of before left there leads out of the directory.
pub(super) fn write(local: &Path, job: &Job, task: &Task) -> Result<(), String> {
    let (Some(file), false) = (task.dispatch_file(), job.payload.is_empty()) else { return Ok(()) };
    let bytes =
        STANDARD.decode(&job.payload).map_err(|error| format!("the payload is not base64: {error}"))?;
    place(local, Path::new(&file), &bytes).map_err(|error| format!("cannot write {file:?}: {error}"))
}

fn place(local: &Path, file: &Path, bytes: &[u8]) -> io::Result<()> {
    let names: Option<Vec<&OsStr>> = file
        .components()
        .filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
        .map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let outside = || io::Error::new(io::ErrorKind::InvalidInput, "it leads out of the task's directory");
    let names = names.ok_or_else(outside)?;
    let (name, parents) = names.split_last().ok_or_else(outside)?;
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stays = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mut within = openat(CWD, local, directory, Mode::empty())?;
    for parent in parents {
        match mkdirat(&within, *parent, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        within = openat2(&within, *parent, directory, Mode::empty(), stays)?;
    }
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::TRUNC
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC
        | OFlags::NONBLOCK;
    let mut file = File::from(openat2(&within, *name, flags, Mode::from_raw_mode(0o666), stays)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is something else than a file"));
    }
    file.write_all(bytes)?;
    // Whoever the task runs as may read it.
    file.set_permissions(Permissions::from_mode(0o666))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::Carried;
    use serde_json::json;
    use std::fs;

    fn write_to(local: &Path, file: &str) -> Result<(), String> {
        let job = Job { payload: STANDARD.encode("payload"), ..Job::default() };
        let task = Task { dispatch_payload: Some(Carried(json!({"File": file}))), ..Task::default() };
        write(local, &job, &task)
    }

    #[test]
    fn the_payload_is_a_file_below_the_local_directory() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["in.txt", "a/b/in.txt", "/c/in.txt"] {
            for _ in 0..2 {
                write_to(dir.path(), file).unwrap();
            }
            assert_eq!(fs::read_to_string(dir.path().join(file.trim_start_matches('/'))).unwrap(), "payload");
        }
        let job = Job { payload: STANDARD.encode("payload"), ..Job::default() };
        write(dir.path(), &job, &Task::default()).unwrap();
        let task = Task { dispatch_payload: Some(Carried(json!({"File": "none"}))), ..Task::default() };
        write(dir.path(), &Job::default(), &task).unwrap();
        assert!(!dir.path().join("none").exists());
    }

    #[test]
    fn nothing_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let (local, outside) = (dir.path().join("local"), dir.path().join("outside"));
        fs::create_dir_all(&local).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("file"), "kept").unwrap();
        std::os::unix::fs::symlink(&outside, local.join("way")).unwrap();
        std::os::unix::fs::symlink(outside.join("file"), local.join("link")).unwrap();
        for file in ["../outside/file", "way/file", "link", "..", ""] {
            let wrote = write_to(&local, file);
            assert!(wrote.is_err() || file.is_empty(), "{file}");
        }
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
    }
}
