//! The directories of an allocation (`jobspec` section 9.3).

use crate::ClientError;
use caravan_sys::below::{LeftMount, Treatment, end_mounts};
use caravan_sys::mount::{is_mount_point, mount_tmpfs};
use caravan_sys::tree::{self, Seals};
use caravan_types::AllocId;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// `nobody` and `nogroup` have this number on every Linux.
const NOBODY: u32 = 65534;
const MIB: u64 = 1024 * 1024;

/// The directories of one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocDir {
    root: PathBuf,
}

/// The directories of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskDir {
    /// `<alloc>/<task>`.
    pub(crate) root: PathBuf,
    /// Shared with the other tasks: `<alloc>/alloc`.
    pub(crate) shared: PathBuf,
}

impl TaskDir {
    /// `local`.
    pub(crate) fn local(&self) -> PathBuf {
        self.root.join("local")
    }
    /// `secrets`, in memory.
    pub(crate) fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }
    /// Not visible to the task, in memory.
    pub(crate) fn private(&self) -> PathBuf {
        self.root.join("private")
    }
}

impl AllocDir {
    /// Below the directory of all allocations.
    pub(crate) fn new(base: &Path, alloc: &AllocId) -> Self {
        Self { root: base.join(alloc.as_str()) }
    }
    /// `<alloc>`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
    /// `<alloc>/alloc`.
    pub(crate) fn shared(&self) -> PathBuf {
        self.root.join("alloc")
    }
    /// Where log files are.
    pub(crate) fn logs(&self) -> PathBuf {
        self.shared().join("logs")
    }
    /// Of a task.
    pub(crate) fn task(&self, name: &str) -> TaskDir {
        TaskDir { root: self.root.join(name), shared: self.shared() }
    }

    /// Makes what tasks share. Idempotent.
    pub(crate) fn build(&self) -> Result<(), ClientError> {
        make(&self.root, 0o755)?;
        make(&self.shared(), 0o777)?;
        for part in ["data", "logs", "tmp"] {
            let dir = self.shared().join(part);
            make(&dir, 0o777)?;
            own(&dir, NOBODY)?;
        }
        own(&self.shared(), NOBODY)
    }

    /// Makes the directories of a task. Idempotent.
    pub(crate) fn build_task(&self, name: &str, secrets_mb: i64) -> Result<TaskDir, ClientError> {
        let dirs = self.task(name);
        make(&dirs.root, 0o777)?;
        make(&dirs.local(), 0o777)?;
        make(&dirs.root.join("tmp"), 0o1777)?;
        own(&dirs.root, NOBODY)?;
        own(&dirs.local(), NOBODY)?;
        let size = u64::try_from(secrets_mb).unwrap_or(0).max(1) * MIB;
        // Seen by the task's user, whoever that is; private is the client's own.
        in_memory(&dirs.secrets(), size, 0o777)?;
        in_memory(&dirs.private(), MIB, 0o700)?;
        Ok(dirs)
    }

    /// Ends the mounts below and removes everything. Nothing is removed while a mount of others stays.
    pub(crate) fn destroy(&self) -> Result<(), ClientError> {
        let failed = || ClientError::kernel(format!("{} cannot be removed", self.root.display()));
        if let Some(mount) = end_mounts_below(&self.root, 2, Treatment::Foreign).map_err(failed())?.first() {
            return Err(ClientError::Mounted { dir: self.root.clone(), mount: mount.to_string() });
        }
        // What was sealed beneath mounts could not be removed otherwise.
        tree::remove(&self.root, Seals::Lift).map(drop).map_err(failed())
    }
}

/// Ends the mounts at and below a directory and returns those that stay. Directories in memory `depth` levels below it
/// are the agent's own: the secrets of a task and what the agent keeps for it. All other mounts were made by tasks and
/// plugins, or are volumes that an agent had no time to end. `itself` is for a mount of the directory itself.
pub(crate) fn end_mounts_below(
    dir: &Path,
    depth: usize,
    itself: Treatment,
) -> Result<Vec<LeftMount>, caravan_sys::Error> {
    // As the mount table has it.
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

fn make(dir: &Path, mode: u32) -> Result<(), ClientError> {
    let failed = ClientError::directory(dir, "make it");
    let made = fs::create_dir_all(dir).and_then(|()| fs::set_permissions(dir, Permissions::from_mode(mode)));
    made.map_err(failed)
}

fn own(dir: &Path, id: u32) -> Result<(), ClientError> {
    match chown(dir, Some(id), Some(id)) {
        // Without root everything belongs to the agent's user, tasks included.
        Err(source) if source.kind() == ErrorKind::PermissionDenied => Ok(()),
        other => other.map_err(ClientError::directory(dir, "give it to nobody")),
    }
}

fn in_memory(dir: &Path, size: u64, mode: u32) -> Result<(), ClientError> {
    let failed = |source| ClientError::directory(dir, "make it")(source);
    fs::create_dir_all(dir).map_err(failed)?;
    if is_mount_point(dir).map_err(ClientError::kernel("a task directory cannot be looked at"))? {
        return Ok(());
    }
    match mount_tmpfs(dir, size, mode) {
        Ok(()) => Ok(()),
        // A plain directory where the agent may not mount.
        Err(error) if error.raw_os_error() == Some(1) => {
            fs::set_permissions(dir, Permissions::from_mode(mode)).map_err(failed)
        }
        Err(error) => Err(ClientError::kernel("the secrets directory of a task cannot be mounted")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_sys::mount::bind;
    use caravan_sys::mountinfo::MountTable;

    #[test]
    fn directories_are_built_twice_and_destroyed_whole() {
        let base = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(base.path(), &"a1".into());
        for _ in 0..2 {
            dir.build().unwrap();
            dir.build_task("web", 0).unwrap();
        }
        let web = dir.task("web");
        assert!(is_mount_point(&web.secrets()).unwrap() && is_mount_point(&web.private()).unwrap());
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&dir.logs()), 0o777);
        assert_eq!(mode(&web.root.join("tmp")), 0o1777);
        fs::write(web.secrets().join("token"), "t").unwrap();
        dir.destroy().unwrap();
        assert!(!dir.root().exists());
        let table = MountTable::read().unwrap();
        assert_eq!(table.under(base.path()).count(), 0);
        dir.destroy().unwrap();
    }

    /// A task may be root and mount below its directory, or a plugin whose task directory is shared.
    #[test]
    fn what_others_mounted_below_is_never_emptied() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("canary"), "kept").unwrap();
        let dir = AllocDir::new(&base.path().join("alloc"), &"a1".into());
        for place in ["alloc/data/x", "web/local/x", "web/secrets/x", "web/x", "web", ""] {
            dir.build().unwrap();
            let web = dir.build_task("web", 1).unwrap();
            let at = dir.root().join(place).components().collect::<PathBuf>();
            fs::create_dir_all(&at).unwrap();
            mount_tmpfs(&at, 1 << 20, 0o755).unwrap();
            fs::write(at.join("canary"), "kept").unwrap();
            let error = dir.destroy().unwrap_err();
            let words = format!("{} (tmpfs, tmpfs): its content is only in memory", at.display());
            assert!(error.to_string().contains(&words), "{error}");
            assert_eq!(fs::read_to_string(at.join("canary")).unwrap(), "kept", "{place}");
            fs::remove_file(at.join("canary")).unwrap();
            bind(&outside, &at, false).unwrap();
            let open = fs::File::open(at.join("canary")).unwrap();
            assert!(dir.destroy().unwrap_err().to_string().contains("a process uses it"));
            drop(open);
            dir.destroy().unwrap();
            assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "kept", "{place}");
            assert!(!dir.root().exists() && !web.root.exists());
        }
    }
}
