//! The directories of an allocation (docs/reference/jobspec.md, section 9.3).

use crate::ClientError;
use caravan_sys::below::{LeftMount, Treatment, end_mounts};
use caravan_sys::dir::{Access, Dir, Mounts, Owner};
use caravan_sys::mount::{mount_id, mount_tmpfs};
use caravan_sys::mountinfo::MountTable;
use caravan_sys::tree::{self, Seals};
use caravan_sys::user::{effective_gid, effective_uid};
use caravan_types::AllocId;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const MIB: u64 = 1024 * 1024;
/// The access of a directory that every user may enter, and whose entries only the agent changes.
const ENTERED: Access = Access { mode: 0o755, owner: Owner { uid: None, gid: None } };
/// The mode of a directory in which every user may create entries. Only the owner of an entry may rename or remove
/// the entry, so the agent's own entries stay.
const STICKY: u32 = 0o1777;
/// The mode of a directory in which every user may create, rename and remove entries.
const WRITABLE: u32 = 0o777;
const PRIVATE: u32 = 0o700;

const UNUSABLE: &str = "a directory of the allocation cannot be used";

/// The parameters of a task's secrets directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Secrets {
    /// Size in MiB, at least one.
    pub(crate) size_mb: i64,
    /// The user that the task runs as.
    pub(crate) user: Owner,
    /// The directory's file mode.
    pub(crate) mode: u32,
}

/// Returns the agent's own user.
pub(crate) fn own_user() -> Owner {
    Owner::new(effective_uid(), effective_gid())
}

/// The directories of one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocDir {
    root: PathBuf,
}

/// The directories of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskDir {
    /// The task's directory: `<alloc>/<task>`.
    pub(crate) root: PathBuf,
    /// The directory that it shares with the other tasks: `<alloc>/alloc`.
    pub(crate) shared: PathBuf,
}

impl TaskDir {
    /// Returns the path of `local`.
    pub(crate) fn local(&self) -> PathBuf {
        self.root.join("local")
    }
    /// Returns the path of `secrets`, a tmpfs.
    pub(crate) fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }
    /// Returns the path of `private`, a tmpfs that the task does not see.
    pub(crate) fn private(&self) -> PathBuf {
        self.root.join("private")
    }

    /// Opens the task's directory. No task can replace a part of its path.
    pub(crate) fn open(&self) -> Result<Dir, caravan_sys::Error> {
        Dir::open_last(&self.root, Mounts::Follow)
    }

    /// Opens the directory that tasks share. No task can replace a part of its path.
    pub(crate) fn open_shared(&self) -> Result<Dir, caravan_sys::Error> {
        Dir::open_last(&self.shared, Mounts::Follow)
    }

    /// Opens a directory that [`AllocDir::build_task`] creates.
    pub(crate) fn open_part(&self, name: &str) -> Result<Dir, caravan_sys::Error> {
        self.open()?.enter(Path::new(name), Mounts::Follow)
    }
}

impl AllocDir {
    /// Creates the value for an allocation; `base` is the directory of all allocations.
    pub(crate) fn new(base: &Path, alloc: &AllocId) -> Self {
        Self { root: base.join(alloc.as_str()) }
    }
    /// Returns the allocation's directory: `<alloc>`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
    /// Returns the shared directory: `<alloc>/alloc`.
    pub(crate) fn shared(&self) -> PathBuf {
        self.root.join("alloc")
    }
    /// Returns the directory of the log files.
    pub(crate) fn logs(&self) -> PathBuf {
        self.shared().join("logs")
    }
    /// Returns the directories of a task.
    pub(crate) fn task(&self, name: &str) -> TaskDir {
        TaskDir { root: self.root.join(name), shared: self.shared() }
    }

    /// Creates the directories that tasks share. Idempotent: directories of an earlier agent get the owners and modes
    /// of this one.
    pub(crate) fn build(&self) -> Result<(), ClientError> {
        let root = self.make_root()?;
        let Some(shared) = make(&root, "alloc")? else { return Ok(()) };
        for part in ["data", "logs", "tmp"] {
            if let Some(dir) = make(&shared, part)? {
                give(&dir, WRITABLE, own_user())?;
            }
        }
        give(&shared, STICKY, own_user())
    }

    /// Creates the directories of a task that runs as `user`. Idempotent, also while the task runs: directories of an
    /// earlier agent get the owners and modes of this one.
    pub(crate) fn build_task(&self, name: &str, secrets: Secrets) -> Result<TaskDir, ClientError> {
        let dirs = self.task(name);
        let root = self.make_root()?;
        let Some(task) = make(&root, name)? else { return Ok(dirs) };
        for (part, mode) in [("local", WRITABLE), ("tmp", STICKY)] {
            if let Some(dir) = make(&task, part)? {
                give(&dir, mode, own_user())?;
            }
        }
        let size = u64::try_from(secrets.size_mb).unwrap_or(0).max(1) * MIB;
        in_memory(&task, "secrets", size, Access { mode: secrets.mode, owner: secrets.user })?;
        in_memory(&task, "private", MIB, Access { mode: PRIVATE, owner: own_user() })?;
        // Last: until here, no other task may replace a directory that is being created.
        give(&task, STICKY, own_user())?;
        Ok(dirs)
    }

    fn make_root(&self) -> Result<Dir, ClientError> {
        let failed = || ClientError::kernel("the allocation directory cannot be made");
        let (Some(base), Some(name)) = (self.root.parent(), self.root.file_name()) else {
            let source = io::Error::new(ErrorKind::InvalidInput, "it has no parent");
            return Err(ClientError::directory(&self.root, "make it")(source));
        };
        let root = Dir::open(base).and_then(|base| base.make(Path::new(name), ENTERED, Mounts::Refuse));
        let root = root.map_err(failed())?;
        give(&root, ENTERED.mode, own_user())?;
        Ok(root)
    }

    /// Ends the mounts below and removes all directories. Nothing is removed while a foreign mount stays.
    pub(crate) fn destroy(&self) -> Result<(), ClientError> {
        let failed = || ClientError::kernel(format!("{} cannot be removed", self.root.display()));
        if let Some(mount) = end_mounts_below(&self.root, 2, Treatment::Foreign).map_err(failed())?.first() {
            return Err(ClientError::Mounted { dir: self.root.clone(), mount: mount.to_string() });
        }
        // Sealed directories beneath mounts could not be removed otherwise.
        tree::remove(&self.root, Seals::Lift).map(drop).map_err(failed())
    }
}

/// Ends the mounts at and below a directory and returns the remaining ones. A tmpfs `depth` levels below the directory is
/// the agent's own: the `secrets` or `private` directory of a task. All other mounts were created by tasks or plugins,
/// or are volumes that an agent had no time to unmount. `itself` applies to a mount on the directory itself.
pub(crate) fn end_mounts_below(
    dir: &Path,
    depth: usize,
    itself: Treatment,
) -> Result<Vec<LeftMount>, caravan_sys::Error> {
    // The mount table contains canonical paths.
    let Ok(real) = dir.canonicalize() else { return Ok(Vec::new()) };
    let outcome = end_mounts(&real, |found| {
        let below = found.entry.target.strip_prefix(&real).unwrap_or(Path::new(""));
        let name = below.file_name().and_then(|name| name.to_str());
        if below.as_os_str().is_empty() {
            return itself;
        }
        let in_place = below.components().count() == depth && matches!(name, Some("secrets" | "private"));
        match in_place && found.entry.fs_type == "tmpfs" && !found.covers {
            true => Treatment::Own,
            false => Treatment::Foreign,
        }
    })?;
    Ok(outcome.left)
}

/// Creates a directory that no other user can write to yet. Returns `None` if a volume covers it, because a volume
/// keeps its own owner and mode.
fn make(parent: &Dir, name: &str) -> Result<Option<Dir>, ClientError> {
    match parent.make(Path::new(name), ENTERED, Mounts::Refuse) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.io().is_some_and(|e| e.kind() == ErrorKind::CrossesDevices) => Ok(None),
        Err(error) => Err(ClientError::kernel(UNUSABLE)(error)),
    }
}

fn give(dir: &Dir, mode: u32, owner: Owner) -> Result<(), ClientError> {
    match dir.set_access(Access { mode, owner }) {
        // Without root, everything belongs to the agent's user, tasks included.
        Err(error) if is_forbidden(&error) && effective_uid() != 0 => Ok(()),
        other => other.map_err(ClientError::kernel(UNUSABLE)),
    }
}

/// Creates a tmpfs directory, unless a volume covers the directory.
fn in_memory(task: &Dir, name: &str, size: u64, access: Access) -> Result<(), ClientError> {
    let failed = || ClientError::kernel(UNUSABLE);
    let closed = Access::mode(PRIVATE);
    let dir = task.make(Path::new(name), closed, Mounts::Follow).map_err(failed())?;
    let top = if dir.is_mount().map_err(failed())? {
        if !is_own_memory(task, &dir).map_err(failed())? {
            return Ok(());
        }
        dir
    } else {
        // Mounts by descriptor, so that no replaced directory is mounted on.
        match mount_tmpfs(&dir.proc_path(), size, PRIVATE) {
            Ok(()) => task.enter(Path::new(name), Mounts::Follow).map_err(failed())?,
            // Use a plain directory if the agent may not mount.
            Err(error) if is_forbidden(&error) => dir,
            Err(error) => return Err(failed()(error)),
        }
    };
    give(&top, access.mode, access.owner)
}

/// Returns whether an open mount is the tmpfs that [`in_memory`] creates: its parent mount is the task's own directory.
/// The parent of a volume would be the tmpfs.
fn is_own_memory(task: &Dir, dir: &Dir) -> Result<bool, caravan_sys::Error> {
    let (above, id) = (mount_id(task, task.shown())?, mount_id(dir, dir.shown())?);
    let table = MountTable::read()?;
    Ok(table
        .entries()
        .iter()
        .any(|mount| mount.id == id && mount.parent == above && mount.fs_type == "tmpfs"))
}

fn is_forbidden(error: &caravan_sys::Error) -> bool {
    error.io().is_some_and(|e| e.kind() == ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests;
