//! The dispatch payload, as a file for a task.

use super::plan::Plan;
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::alloc_dir::TaskDir;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use caravan_sys::dir::{Access, Mounts, Owner};
use caravan_types::job::{Job, Task};
use std::path::{Component, Path, PathBuf};

/// The access of the payload: every user may read and change it, because the task may run as any user.
const FILE: Access = Access { mode: 0o666, owner: Owner { uid: None, gid: None } };

/// The hook of the dispatch payload.
#[derive(Debug)]
pub(super) struct PayloadHook;

#[async_trait]
impl TaskHook for PayloadHook {
    async fn start(
        &mut self,
        _cx: TaskContext<'_>,
        plan: &Plan,
        _prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        let Some(job) = &plan.alloc.job else { return Ok(()) };
        write(plan.dirs(), job, plan.task()).map_err(|why| StartFault::of_hook("dispatch_payload", why))
    }
}

/// Writes the job's payload below the task's `local` directory, if the job has one and the task requests it. Links from
/// an earlier run of the task cannot lead out of the directory.
pub(super) fn write(dirs: &TaskDir, job: &Job, task: &Task) -> Result<(), String> {
    let (Some(file), false) = (task.dispatch_file(), job.payload.is_empty()) else { return Ok(()) };
    let bytes =
        STANDARD.decode(&job.payload).map_err(|error| format!("the payload is not base64: {error}"))?;
    let failed = |why: String| format!("cannot write {file:?}: {why}");
    let path = below(Path::new(file)).ok_or_else(|| failed("it leads out of the task's directory".into()))?;
    place(dirs, &path, &bytes).map_err(|error| failed(caravan_sys::describe(&error)))
}

/// Converts a path of the job file to one relative to the directory; `None` if it leads out or names no file.
fn below(file: &Path) -> Option<PathBuf> {
    let parts = file.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
    let names: Option<PathBuf> =
        parts.map(|part| matches!(part, Component::Normal(_)).then_some(part)).collect();
    names.filter(|path| path.file_name().is_some())
}

fn place(dirs: &TaskDir, path: &Path, bytes: &[u8]) -> Result<(), caravan_sys::Error> {
    let parent = path.parent().unwrap_or(Path::new(""));
    let dir = dirs.open_part("local")?.make(parent, Access::mode(0o755), Mounts::Follow)?;
    dir.replace(path.file_name().unwrap_or_default(), bytes, FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::DispatchPayload;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn write_to(dirs: &TaskDir, file: &str) -> Result<(), String> {
        let job = Job { payload: STANDARD.encode("payload"), ..Job::default() };
        let task = Task { dispatch_payload: Some(DispatchPayload { file: file.into() }), ..Task::default() };
        write(dirs, &job, &task)
    }

    fn world() -> (tempfile::TempDir, TaskDir) {
        let base = tempfile::tempdir().unwrap();
        let dirs = TaskDir { root: base.path().join("web"), shared: base.path().join("alloc") };
        fs::create_dir_all(dirs.local()).unwrap();
        (base, dirs)
    }

    #[test]
    fn the_payload_is_a_file_below_the_local_directory() {
        let (_base, dirs) = world();
        for file in ["in.txt", "a/b/in.txt", "/c/in.txt"] {
            for _ in 0..2 {
                write_to(&dirs, file).unwrap();
            }
            let path = dirs.local().join(file.trim_start_matches('/'));
            assert_eq!(fs::read_to_string(&path).unwrap(), "payload");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o666);
        }
        let job = Job { payload: STANDARD.encode("payload"), ..Job::default() };
        write(&dirs, &job, &Task::default()).unwrap();
        let task =
            Task { dispatch_payload: Some(DispatchPayload { file: "none".into() }), ..Task::default() };
        write(&dirs, &Job::default(), &task).unwrap();
        assert!(!dirs.local().join("none").exists());
    }

    #[test]
    fn nothing_leads_out() {
        let (base, dirs) = world();
        let (local, outside) = (dirs.local(), base.path().join("outside"));
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("file"), "kept").unwrap();
        symlink(&outside, local.join("way")).unwrap();
        for file in ["../outside/file", "way/file", "way/new/file", "..", "/", "."] {
            assert!(write_to(&dirs, file).is_err(), "{file}");
        }
        // Links in place of the file are replaced.
        symlink(outside.join("file"), local.join("link")).unwrap();
        symlink(outside.join("new"), local.join("dangling")).unwrap();
        fs::hard_link(outside.join("file"), local.join("hard")).unwrap();
        for file in ["link", "dangling", "hard"] {
            write_to(&dirs, file).unwrap();
            assert!(local.join(file).symlink_metadata().unwrap().is_file());
        }
        fs::create_dir(local.join("directory")).unwrap();
        assert!(write_to(&dirs, "directory").unwrap_err().contains("directory"));
        caravan_sys::tree::remove(&local, caravan_sys::tree::Seals::Keep).unwrap();
        symlink(&outside, &local).unwrap();
        let error = write_to(&dirs, "new").unwrap_err();
        assert!(error.contains("web/local") && error.contains("symbolic link"), "{error}");
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }
}
