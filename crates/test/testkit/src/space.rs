//! Mount namespaces. An agent in a separate namespace has a separate boot id, and mounts that are not
//! visible to other processes. It can lose all of them, as in a reboot of the machine.

use anyhow::{Context, Result, anyhow};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// The kernel's file with the boot id (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The directory of files that exist until the next boot.
const RUN: &str = "/run/caravan";

/// A mount namespace (mount_namespaces(7)), which exists as long as this value or a process in it. Clones are
/// the same namespace.
#[derive(Clone, Debug)]
pub struct Space(Arc<File>);

impl Space {
    /// Creates a namespace with a private copy of all current mounts. `/run/caravan` is empty and
    /// the boot id is `boot_id`. `scratch` is a directory for a small file.
    ///
    /// # Errors
    /// Fails if the kernel refuses; the caller must be root.
    pub fn new(scratch: &Path, boot_id: &str) -> Result<Self> {
        let file = scratch.join("boot_id");
        fs::write(&file, format!("{boot_id}\n")).context("write the boot id")?;
        fs::create_dir_all(RUN).with_context(|| format!("create {RUN}"))?;
        let namespace = on_a_thread(|| -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNS).context("unshare the mount namespace")?;
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("make / private")?;
            mount(Some(&file), BOOT_ID, none, MsFlags::MS_BIND, none).context("cover the boot id")?;
            mount(Some("tmpfs"), RUN, Some("tmpfs"), MsFlags::empty(), none)
                .with_context(|| format!("mount at {RUN}"))?;
            File::open("/proc/thread-self/ns/mnt").context("open the mount namespace")
        })??;
        Ok(Self(Arc::new(namespace)))
    }

    /// Runs a function in this namespace: processes that `work` starts are in it.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_a_thread(|| {
            // A thread that shares its root and working directory cannot enter another namespace (setns(2)).
            unshare(CloneFlags::CLONE_FS).context("unshare the working directory")?;
            setns(&self.0, CloneFlags::CLONE_NEWNS).context("enter the mount namespace")?;
            Ok(work())
        })?
    }

    /// Returns mount points in the namespace at or below a path.
    ///
    /// # Errors
    /// Fails if the mount table cannot be read.
    pub fn mounts_below(&self, path: &str) -> Result<Vec<String>> {
        self.inside(|| crate::mounts::mounts_of("/proc/thread-self/mountinfo", path))?
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope.spawn(work).join().map_err(|_| anyhow!("the work in a namespace panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_and_the_boot_id_are_its_own() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let space = Space::new(dir.path(), "of-a-test")?;
        let at = dir.path().join("at");
        fs::create_dir(&at)?;
        let none = None::<&str>;
        space.inside(|| mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::empty(), none))??;
        let (below, at) = (dir.path().to_string_lossy().into_owned(), at.to_string_lossy().into_owned());
        assert_eq!(space.mounts_below(&below)?, [at]);
        assert!(crate::mounts_below(&below)?.is_empty());
        assert_eq!(space.inside(|| fs::read_to_string(BOOT_ID))??, "of-a-test\n");
        assert_ne!(fs::read_to_string(BOOT_ID)?, "of-a-test\n");
        Ok(())
    }
}
