//! One volume in the directories of a task, mounted and unmounted by descriptor: the tasks of the allocation may
//! replace path components meanwhile.

use super::place;
use crate::alloc_dir::TaskDir;
use caravan_drivers::{Mount, Propagation};
use caravan_sys::Error;
use caravan_sys::dir::{Access, Dir, Handle, Kind, Mounts};
use caravan_sys::mount::{self, DetachedTree, Restrictions, Unmount, mount_id, unmount_open};
use caravan_sys::mountinfo::MountTable;
use caravan_sys::seal::{seal_open, unseal_open};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mount target of a volume, and its state before the mount.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The allocation's directory. No task can replace a part of its path.
    root: PathBuf,
    /// The target's path relative to `root`.
    below: PathBuf,
    /// Whether the target is one of the task's standard directories, which is kept when the volume is unmounted.
    own: bool,
    /// The number of own mounts beneath the volume: `secrets` and `private` are tmpfs mounts.
    beneath: usize,
    /// The bind mount that this agent attached. By its descriptor the mount is found wherever a task moves it.
    mount: Option<Arc<DetachedTree>>,
}

impl Target {
    pub(super) fn new(wish: &Mount, dirs: &TaskDir) -> Self {
        let path = place(&wish.task_path, dirs);
        let shared = ["data", "logs", "tmp"].map(|name| dirs.shared.join(name));
        let in_memory = [dirs.secrets(), dirs.private()];
        let plain = [dirs.root.clone(), dirs.shared.clone(), dirs.local(), dirs.root.join("tmp")];
        let own = in_memory.iter().chain(&shared).chain(&plain).any(|dir| *dir == path);
        let root = dirs.root.parent().unwrap_or(&dirs.root).to_owned();
        let beneath = usize::from(in_memory.contains(&path));
        let below = path.strip_prefix(&root).unwrap_or(&path).to_owned();
        Self { root, below, own, beneath, mount: None }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.root.join(&self.below)
    }

    fn parent(&self) -> &Path {
        self.below.parent().unwrap_or(Path::new(""))
    }

    fn name(&self) -> &OsStr {
        self.below.file_name().unwrap_or_default()
    }

    /// Bind-mounts a volume at the target. On failure, no part of the mount remains.
    pub(super) fn bind(&mut self, wish: &Mount) -> Result<(), String> {
        let failed = |what: &str, error: &dyn std::error::Error| {
            let why = caravan_sys::describe(error);
            format!("failed to {what} volume mount {}: {why}", wish.task_path.display())
        };
        let is_dir = fs::metadata(&wish.host_path).map_err(|e| failed("look at", &e))?.is_dir();
        // A bind mount from an earlier run of the task, left by a crash of the agent.
        self.clear().map_err(|e| failed("replace", &e))?;
        let (target, shown) = self.make(is_dir).map_err(|e| failed("make the target of", &e))?;
        self.mount(wish, &target, &shown).map_err(|error| {
            drop(target);
            // Best effort: the first error is reported.
            let _left = self.end();
            failed("make", &error)
        })
    }

    /// Creates the directory or file to mount on, unless it exists. Returns it with its expected path.
    fn make(&self, is_dir: bool) -> Result<(Handle, PathBuf), Error> {
        let root = Dir::open(&self.root)?;
        // The kernel's path, so that it can be compared.
        let shown = root.real_path()?.join(&self.below);
        let access = Access::mode(0o755);
        if is_dir {
            let dir = root.make(&self.below, access, Mounts::Follow)?;
            if !self.own && dir.entries()?.next().is_none() {
                // Without its mount, the task must fail instead of writing to the host's disk.
                seal_open(&dir, &self.path())?;
            }
            return Ok((dir.handle(Path::new("."), Mounts::Follow)?, shown));
        }
        let parent = root.make(self.parent(), access, Mounts::Follow)?;
        if parent.kind(self.name())?.is_none() {
            drop(parent.create(self.name(), Access::mode(0o644))?);
        }
        let file = parent.handle(Path::new(self.name()), Mounts::Follow)?;
        let stat = file.stat()?;
        // A file with several hard links may belong to the host.
        if file.kind()? != Kind::File || stat.st_nlink != 1 {
            return Err(Error::not_a_file("mount on", self.path()));
        }
        if !self.own && stat.st_size == 0 {
            seal_open(file.read()?, &self.path())?;
        }
        Ok((file, shown))
    }

    fn mount(&mut self, wish: &Mount, target: &Handle, shown: &Path) -> Result<(), Error> {
        let propagation = match wish.propagation {
            Propagation::Private => mount::Propagation::Private,
            Propagation::HostToTask => mount::Propagation::Slave,
            Propagation::Bidirectional => mount::Propagation::Shared,
        };
        let tree = DetachedTree::copy(&wish.host_path, true)?;
        if wish.read_only {
            tree.restrict(Restrictions::READ_ONLY, false)?;
        }
        tree.attach_to(target, shown)?;
        // Not earlier: a copy on a shared mount becomes shared.
        let done = tree.set_propagation(propagation, true);
        let is_moved = target.real_path().map_or(true, |real| real != shown);
        if done.is_ok() && !is_moved {
            self.mount = Some(Arc::new(tree));
            return Ok(());
        }
        unmount_open(&tree, Unmount::Lazy, shown)?;
        done.and(Err(Error::moved("mount on", shown)))
    }

    /// Unmounts the volume, and removes the target that was created for it.
    pub(super) fn end(&self) -> Result<(), Error> {
        if let Some(mount) = &self.mount {
            unmount_open(mount, Unmount::Lazy, &self.path())?;
        }
        self.clear()?;
        if self.own {
            return Ok(());
        }
        if let Err(error) = self.remove()
            && !error.is_not_found()
        {
            tracing::debug!(path = %self.path().display(), %error, "a mount target cannot be removed");
        }
        Ok(())
    }

    /// Unmounts the volumes that are bound here, but no mount of the task's own.
    fn clear(&self) -> Result<(), Error> {
        loop {
            let there = match Dir::open(&self.root).and_then(|root| root.place(&self.below, Mounts::Follow)) {
                Ok(there) => there,
                // The path is absent, or a link of the task leads elsewhere: mounts there do not belong to the
                // client.
                Err(error) if error.is_not_found() || is_no_way(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let count = mounts_stacked_on(&there, &self.path())?;
            if count <= self.beneath || !unmount_open(&there, Unmount::Lazy, &self.path())? {
                return Ok(());
            }
        }
    }

    /// Removes an empty target that is not mounted any more; a target with content belongs to the task.
    fn remove(&self) -> Result<(), Error> {
        let parent = Dir::open(&self.root)?.enter(self.parent(), Mounts::Follow)?;
        let name = self.name();
        match parent.kind(name)? {
            Some(Kind::Directory) => {
                let dir = parent.enter(Path::new(name), Mounts::Refuse)?;
                if dir.entries()?.next().is_none() {
                    unseal_open(&dir, &self.path())?;
                    parent.remove_dir(name)?;
                }
            }
            Some(Kind::File) => {
                let handle = parent.handle(Path::new(name), Mounts::Refuse)?;
                let stat = handle.stat()?;
                if stat.st_size == 0 && stat.st_nlink == 1 {
                    unseal_open(handle.read()?, &self.path())?;
                    parent.remove_file(name)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the number of mounts at the place of an open directory or file, if it is the root of a mount.
/// The mount table is read once, and the place is looked up in the table by the id of its mount. Between two
/// readings, a task could rename the path.
/// path between two readings.
fn mounts_stacked_on(there: &Handle, shown: &Path) -> Result<usize, Error> {
    let id = mount_id(there, shown)?;
    let table = MountTable::read()?;
    let Some(entry) = table.entries().iter().find(|mount| mount.id == id) else { return Ok(0) };
    Ok(table.entries().iter().filter(|mount| mount.target == entry.target).count())
}

/// Returns whether a part of the path is a link or not a directory.
fn is_no_way(error: &Error) -> bool {
    error.io().is_some_and(|e| {
        e.kind() == ErrorKind::NotADirectory
            || (e.kind() == ErrorKind::InvalidInput && e.raw_os_error().is_none())
    })
}
