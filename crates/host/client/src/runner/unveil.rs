//! The directories that drivers of kind unveil show to their tasks. The directories of the allocation and the task
//! are bind-mounted again, below a directory that other users may pass.

use super::plan::Plan;
use super::task_hooks::{Prepared, StartFault, TaskContext, TaskHook};
use crate::ClientError;
use crate::alloc_dir::TaskDir;
use async_trait::async_trait;
use caravan_drivers::FsIsolation;
use caravan_sys::dir::{Access, Dir, Mounts, Owner};
use caravan_sys::files::durable_dir;
use caravan_sys::mount::{Unmount, bind, unmount};
use caravan_types::AllocId;
use std::io;
use std::path::{Path, PathBuf};

/// The names of the three directories.
pub(super) const ALLOC: &str = "alloc";
pub(super) const LOCAL: &str = "local";
pub(super) const SECRETS: &str = "secrets";

/// The access of the directories: other users may pass them, but not list them.
const PASSED: Access = Access { mode: 0o711, owner: Owner { uid: None, gid: None } };

fn name(alloc: &AllocId, task: &str) -> String {
    format!("{alloc}-{task}")
}

/// Returns the directory of a task below the directory of all.
pub(super) fn place(base: &Path, alloc: &AllocId, task: &str) -> PathBuf {
    base.join(name(alloc, task))
}

/// Removes the directories whose allocation is not on this node.
pub(crate) fn sweep(base: &Path, here: impl Fn(&str) -> bool) -> Result<(), ClientError> {
    let entries = match std::fs::read_dir(base) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ClientError::directory(base, "be read")(error)),
    };
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_name().to_str().is_some_and(&here)
            && let Err(error) = remove(&entry.path())
        {
            let error = caravan_sys::describe(&error);
            tracing::warn!(path = %entry.path().display(), error, "directories of a task cannot be removed");
        }
    }
    Ok(())
}

fn make(base: &Path, own: &str, dirs: &TaskDir) -> Result<(), caravan_sys::Error> {
    durable_dir(base, PASSED.mode)?;
    let own = Dir::open(base)?.make(Path::new(own), PASSED, Mounts::Refuse)?;
    let sources = [
        (ALLOC, dirs.open_shared()?),
        (LOCAL, dirs.open_part("local")?),
        (SECRETS, dirs.open_part("secrets")?),
    ];
    for (part, source) in sources {
        let target = own.make(Path::new(part), PASSED, Mounts::Follow)?;
        if !target.is_mount()? {
            bind(&source.proc_path(), &target.proc_path(), true)?;
        }
    }
    Ok(())
}

/// Ends the mounts of a task and removes their directories. The path is the client's own: no task can write to it.
fn remove(dir: &Path) -> Result<(), ClientError> {
    let failed = || ClientError::kernel(format!("{} cannot be removed", dir.display()));
    for part in [ALLOC, LOCAL, SECRETS] {
        let path = dir.join(part);
        while path.exists() && unmount(&path, Unmount::Lazy).map_err(failed())? {}
        gone(&path, std::fs::remove_dir(&path))?;
    }
    gone(dir, std::fs::remove_dir(dir))
}

fn gone(path: &Path, removed: io::Result<()>) -> Result<(), ClientError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ClientError::directory(path, "be removed")(error))
        }
        _ => Ok(()),
    }
}

/// The hook of the directories that drivers of kind unveil show.
#[derive(Debug)]
pub(super) struct UnveilHook {
    pub(super) base: PathBuf,
}

#[async_trait]
impl TaskHook for UnveilHook {
    async fn start(
        &mut self,
        cx: TaskContext<'_>,
        plan: &Plan,
        _prepared: &mut Prepared,
    ) -> Result<(), StartFault> {
        if plan.driver.capabilities().fs_isolation != FsIsolation::Unveil {
            return Ok(());
        }
        let made = make(&self.base, &name(&cx.alloc.id(), cx.name), plan.dirs());
        made.map_err(|error| StartFault::of_hook("task_dir", caravan_sys::describe(&error)))
    }

    async fn finish(&mut self, cx: TaskContext<'_>, _plan: Option<&Plan>) {
        let dir = place(&self.base, &cx.alloc.id(), cx.name);
        if dir.exists()
            && let Err(error) = remove(&dir)
        {
            let error = caravan_sys::describe(&error);
            tracing::warn!(path = %dir.display(), error, "directories of a task cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_bound_once_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("mounts");
        let root = dir.path().join("a1");
        let dirs = TaskDir { root: root.join("web"), shared: root.join("alloc") };
        for part in [dirs.shared.clone(), dirs.local(), dirs.secrets()] {
            std::fs::create_dir_all(part).unwrap();
        }
        std::fs::write(dirs.local().join("file"), "text").unwrap();
        for _ in 0..2 {
            make(&base, "a1-web", &dirs).unwrap();
        }
        let own = place(&base, &"a1".into(), "web");
        assert_eq!(std::fs::read_to_string(own.join("local/file")).unwrap(), "text");
        sweep(&base, |name| name.starts_with("a1-")).unwrap();
        assert!(own.join("local/file").exists());
        sweep(&base, |_| false).unwrap();
        assert!(!own.exists());
        assert!(dirs.local().join("file").exists(), "only the binds are gone");
    }
}
