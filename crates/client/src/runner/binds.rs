//! Volumes in tasks whose driver does not mount: the client binds them on the host, where the task looks.

use super::Context;
use crate::alloc_dir::TaskDir;
use crate::env::TaskEnv;
use caravan_drivers::{Mount, Propagation};
use caravan_sys::mount::{self, Unmount};
use caravan_sys::seal::{seal_directory, unseal_directory};
use caravan_types::VolumeKey;
use caravan_types::alloc::Allocation;
use caravan_types::job::{PropagationMode, Task, TaskGroup, VolumeRequest, VolumeType};
use caravan_types::volume::ClaimId;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// The claim of a group's CSI volume.
pub(crate) fn claim_id(alloc: &Allocation, request: &VolumeRequest) -> ClaimId {
    let volume = VolumeKey::new(alloc.namespace.clone(), request.source_for(&alloc.name));
    ClaimId { volume, alloc: alloc.id.clone() }
}

/// What a task wants mounted. `verify`: the mounts behind are compared with their proofs, as before a start.
pub(crate) fn wanted(
    context: &Context,
    alloc: &Allocation,
    group: &TaskGroup,
    task: &Task,
    env: &TaskEnv,
    verify: bool,
) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for wish in &task.volume_mounts {
        let alias = env.text(&wish.volume);
        let request = group
            .volumes
            .get(&alias)
            .ok_or_else(|| format!("volume mount references undefined volume {alias}"))?;
        let (host_path, host_read_only) = match request.kind {
            VolumeType::Csi if verify => {
                let path = context.volumes.verify(&claim_id(alloc, request), &alias);
                (path.map_err(|fault| fault.to_string())?, false)
            }
            VolumeType::Csi => (PathBuf::new(), false),
            VolumeType::Host => {
                let volume = context.config.host_volumes.get(&request.source).ok_or_else(|| {
                    format!("host volume validation error: {alias}: missing {}", request.source)
                })?;
                (PathBuf::from(&volume.path), volume.read_only)
            }
        };
        mounts.push(Mount {
            host_path,
            task_path: env.text(&wish.destination).into(),
            read_only: request.read_only || wish.read_only || host_read_only,
            propagation: match wish.propagation_mode {
                PropagationMode::Private => Propagation::Private,
                PropagationMode::HostToTask => Propagation::HostToTask,
                PropagationMode::Bidirectional => Propagation::Bidirectional,
            },
        });
    }
    Ok(mounts)
}

/// Where on the host a destination is for a task without a root of its own: inside the allocation directory it is
/// used as it is, any other is rooted at the task directory.
pub(crate) fn place(destination: &Path, dirs: &TaskDir) -> Result<PathBuf, String> {
    let mut plain = PathBuf::new();
    for part in destination.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(format!(
                    "the volume mount destination {} leads out of the task",
                    destination.display()
                ));
            }
        }
    }
    let alloc_root = dirs.root.parent().unwrap_or(&dirs.root);
    let absolute = Path::new("/").join(&plain);
    let inside = destination.is_absolute() && absolute.starts_with(alloc_root) && absolute != alloc_root;
    let target = if inside { absolute } else { dirs.root.join(plain) };
    let own = [&dirs.root, &dirs.shared, &dirs.secrets(), &dirs.private()];
    if own.into_iter().any(|dir| *dir == target) {
        return Err(format!(
            "the volume mount destination {} would hide the task's own files",
            destination.display()
        ));
    }
    Ok(target)
}

/// Mounts of one task, made by the client.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    /// Targets, in the order in which they were made.
    targets: Vec<PathBuf>,
}

impl Binds {
    /// The binds of a task that an earlier agent made: known only to be undone.
    pub(crate) fn adopt(mounts: &[Mount], dirs: &TaskDir) -> Self {
        Self { targets: mounts.iter().filter_map(|m| place(&m.task_path, dirs).ok()).collect() }
    }

    /// Makes them. On failure what was made is undone.
    pub(crate) fn make(mounts: &[Mount], dirs: &TaskDir) -> Result<Self, String> {
        let mut this = Self::default();
        for wish in mounts {
            let made = place(&wish.task_path, dirs).and_then(|target| {
                bind(wish, &target, dirs)?;
                Ok(target)
            });
            match made {
                Ok(target) => this.targets.push(target),
                Err(why) => {
                    this.undo();
                    return Err(why);
                }
            }
        }
        Ok(this)
    }

    /// Ends them, the last first.
    pub(crate) fn undo(&mut self) {
        while let Some(target) = self.targets.pop() {
            match mount::unmount(&target, Unmount::Lazy) {
                Ok(_) => remove_target(&target),
                Err(error) => {
                    tracing::warn!(path = %target.display(), %error, "a volume stays bound in a task directory")
                }
            }
        }
    }
}

fn bind(wish: &Mount, target: &Path, dirs: &TaskDir) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("failed to {what} volume mount {}: {error}", wish.task_path.display())
    };
    let is_dir = fs::metadata(&wish.host_path).map_err(|e| failed("look at", &e))?.is_dir();
    // A bind that a crash of the agent left from an earlier run of the task.
    while mount::unmount(target, Unmount::Lazy).map_err(|e| failed("replace", &e))? {}
    let made = make_target(target, is_dir).map_err(|e| failed("make the target of", &e))?;
    let real = target.canonicalize().map_err(|e| failed("find the target of", &e))?;
    let alloc_root = dirs.root.parent().unwrap_or(&dirs.root);
    let root = alloc_root.canonicalize().map_err(|e| failed("find the target of", &e))?;
    // The task may have put a link where its volume should go.
    if !real.starts_with(&root) {
        return Err(failed("make", &format!("it leads to {}", real.display())));
    }
    if made && is_dir {
        // Without its mount the task must fail, not write to the host's disk.
        seal_directory(&real).map_err(|e| failed("protect the target of", &e))?;
    }
    let mounting = || -> Result<(), caravan_sys::Error> {
        mount::bind(&wish.host_path, &real, true)?;
        let propagation = match wish.propagation {
            Propagation::Private => mount::Propagation::Private,
            Propagation::HostToTask => mount::Propagation::Slave,
            Propagation::Bidirectional => mount::Propagation::Shared,
        };
        mount::set_propagation(&real, propagation, true)?;
        if wish.read_only { mount::make_read_only(&real) } else { Ok(()) }
    };
    mounting().map_err(|error| {
        // Best effort: the failure is what counts.
        let _ = mount::unmount(&real, Unmount::Lazy);
        remove_target(&real);
        failed("make", &error)
    })
}

/// Makes a directory or file to mount on; answers whether it was not there.
fn make_target(target: &Path, is_dir: bool) -> std::io::Result<bool> {
    if target.symlink_metadata().is_ok() {
        return Ok(false);
    }
    if is_dir {
        fs::create_dir_all(target)?;
    } else {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::File::create_new(target)?;
    }
    Ok(true)
}

/// Removes an empty target that is not mounted any more; one with content was the task's own.
fn remove_target(target: &Path) {
    let Ok(meta) = target.symlink_metadata() else { return };
    let removed = if meta.is_dir() {
        // Not sealed is fine too.
        let _ = unseal_directory(target, 0o755);
        fs::remove_dir(target)
    } else if meta.is_file() && meta.len() == 0 {
        fs::remove_file(target)
    } else {
        Ok(())
    };
    if let Err(error) = removed
        && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty)
    {
        tracing::debug!(path = %target.display(), %error, "a mount target stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dirs(base: &Path) -> TaskDir {
        TaskDir { root: base.join("a1/web"), shared: base.join("a1/alloc") }
    }

    #[test]
    fn destinations_in_the_allocation_stay_and_others_are_rooted_at_the_task() {
        let dirs = dirs(Path::new("/data/alloc"));
        let at = |text: &str| place(Path::new(text), &dirs);
        assert_eq!(at("/data/alloc/a1/alloc/data/vol").unwrap(), Path::new("/data/alloc/a1/alloc/data/vol"));
        assert_eq!(at("/srv/data").unwrap(), Path::new("/data/alloc/a1/web/srv/data"));
        assert_eq!(at("local/data").unwrap(), Path::new("/data/alloc/a1/web/local/data"));
        assert!(at("/srv/../../etc").is_err() && at("/").is_err() && at("").is_err());
    }

    proptest! {
        #[test]
        fn no_destination_leads_out(text in "[a-z./]{0,40}") {
            let dirs = dirs(Path::new("/d"));
            if let Ok(path) = place(Path::new(&text), &dirs) {
                prop_assert!(path.starts_with("/d/a1") && path != Path::new("/d/a1"));
            }
        }
    }

    #[test]
    fn a_volume_is_bound_protected_and_gone_again() {
        let base = tempfile::tempdir().unwrap();
        let dirs = dirs(base.path());
        fs::create_dir_all(&dirs.root).unwrap();
        let volume = tempfile::tempdir().unwrap();
        fs::write(volume.path().join("f"), "x").unwrap();
        let wish = Mount {
            host_path: volume.path().to_owned(),
            task_path: "/srv".into(),
            read_only: true,
            propagation: Propagation::Private,
        };
        let mut binds = Binds::make(std::slice::from_ref(&wish), &dirs).unwrap();
        let inside = dirs.root.join("srv/f");
        assert_eq!(fs::read_to_string(&inside).unwrap(), "x");
        assert!(fs::write(&inside, "y").is_err(), "read-only holds");
        let again = Binds::make(std::slice::from_ref(&wish), &dirs).unwrap();
        assert_eq!(again.targets.len(), 1);
        binds.undo();
        assert!(!dirs.root.join("srv").exists());
    }

    #[test]
    fn a_link_that_leads_out_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let (dirs, elsewhere) = (dirs(base.path()), tempfile::tempdir().unwrap());
        fs::create_dir_all(&dirs.root).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dirs.root.join("srv")).unwrap();
        let wish = Mount {
            host_path: base.path().to_owned(),
            task_path: "/srv/data".into(),
            read_only: false,
            propagation: Propagation::Private,
        };
        assert!(Binds::make(&[wish], &dirs).unwrap_err().contains("it leads to"));
    }
}
