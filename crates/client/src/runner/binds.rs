//! Volumes in tasks whose driver does not mount: the client binds them on the host, where the task looks.

use super::Context;
use crate::alloc_dir::TaskDir;
use crate::env::TaskEnv;
use caravan_drivers::{Mount, Propagation};
use caravan_sys::mount::{self, Unmount};
use caravan_sys::mountinfo::MountTable;
use caravan_sys::seal::{seal_beneath, seal_directory, unseal_beneath, unseal_directory};
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
            VolumeType::Host if verify => {
                let source = request.source_for(&alloc.name);
                context
                    .host_volumes
                    .path(&alloc.namespace, &source, request.host_access)
                    .ok_or_else(|| format!("host volume validation error: {alias}: missing {source}"))?
            }
            VolumeType::Host => (PathBuf::new(), false),
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

/// Of the mounts that [`wanted`] answered, those of one volume.
pub(crate) fn of_volume<'a>(
    task: &'a Task,
    env: &'a TaskEnv,
    mounts: &'a [Mount],
    alias: &'a str,
) -> impl Iterator<Item = &'a Mount> {
    let wishes = task.volume_mounts.iter().zip(mounts);
    wishes.filter(move |(wish, _)| env.text(&wish.volume) == alias).map(|(_, mount)| mount)
}

/// Of the mounts that [`wanted`] answered, those of volumes for which the job says nothing about owner and mode.
pub(crate) fn ownerless<'a>(
    group: &'a TaskGroup,
    task: &'a Task,
    env: &'a TaskEnv,
    mounts: &'a [Mount],
) -> impl Iterator<Item = &'a Mount> {
    let is_ownerless = |alias: &str| {
        group.volumes.get(alias).is_some_and(|r| r.user.is_empty() && r.group.is_empty() && r.mode.is_empty())
    };
    let wishes = task.volume_mounts.iter().zip(mounts);
    wishes.filter(move |(wish, _)| is_ownerless(&env.text(&wish.volume))).map(|(_, mount)| mount)
}

/// Where on the host a destination is for a task without a root of its own: inside the allocation directory it is
/// used as it is, any other is rooted at the task directory. None is refused: `..` ends at the root, as in a root of
/// the task's own, and a volume may cover the task's own directories, if that is what the job says.
pub(crate) fn place(destination: &Path, dirs: &TaskDir) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in destination.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let alloc_root = dirs.root.parent().unwrap_or(&dirs.root);
    let absolute = Path::new("/").join(&plain);
    let inside = destination.is_absolute() && absolute.starts_with(alloc_root) && absolute != alloc_root;
    if inside {
        return absolute;
    }
    // Joining an empty path would leave a slash at the end.
    if plain.as_os_str().is_empty() { dirs.root.clone() } else { dirs.root.join(plain) }
}

/// A place where a volume is bound, and what was there before.
#[derive(Clone, Debug)]
struct Target {
    path: PathBuf,
    /// It is a directory of the task's own: kept as it is when the volume goes.
    own: bool,
    /// Mounts of the task's own that are there beneath volumes: secrets are kept in memory.
    beneath: usize,
    /// The allocation's directory.
    root: PathBuf,
}

impl Target {
    fn of(wish: &Mount, dirs: &TaskDir) -> Self {
        let path = place(&wish.task_path, dirs);
        let shared = ["data", "logs", "tmp"].map(|name| dirs.shared.join(name));
        let in_memory = [dirs.secrets(), dirs.private()];
        let plain = [dirs.root.clone(), dirs.shared.clone(), dirs.local(), dirs.root.join("tmp")];
        let own = in_memory.iter().chain(&shared).chain(&plain).any(|dir| *dir == path);
        let root = dirs.root.parent().unwrap_or(&dirs.root).to_owned();
        Self { own, beneath: usize::from(in_memory.contains(&path)), path, root }
    }

    /// Ends the volumes that are bound here, and nothing of the task's own.
    fn clear(&self) -> Result<(), caravan_sys::Error> {
        let (Ok(real), Ok(root)) = (self.path.canonicalize(), self.root.canonicalize()) else {
            return Ok(());
        };
        // A link of the task's own that leads elsewhere: what is mounted there is not ours.
        if !real.starts_with(&root) {
            return Ok(());
        }
        loop {
            let table = MountTable::read()?;
            let there = table.under(&real).filter(|mount| mount.target == real).count();
            if there <= self.beneath || !mount::unmount(&real, Unmount::Lazy)? {
                return Ok(());
            }
        }
    }

    fn remove(&self) {
        if !self.own {
            remove_target(&self.path);
        }
    }
}

/// Mounts of one task, made by the client.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    /// Targets, in the order in which they were made.
    targets: Vec<Target>,
}

impl Binds {
    /// The binds of a task that an earlier agent made: known only to be undone.
    pub(crate) fn adopt(mounts: &[Mount], dirs: &TaskDir) -> Self {
        Self { targets: mounts.iter().map(|m| Target::of(m, dirs)).collect() }
    }

    /// Makes them. On failure what was made is undone.
    pub(crate) fn make(mounts: &[Mount], dirs: &TaskDir) -> Result<Self, String> {
        let mut this = Self::default();
        for wish in mounts {
            let target = Target::of(wish, dirs);
            if let Err(why) = bind(wish, &target, dirs) {
                this.undo();
                return Err(why);
            }
            this.targets.push(target);
        }
        Ok(this)
    }

    /// Ends them, the last first.
    pub(crate) fn undo(&mut self) {
        while let Some(target) = self.targets.pop() {
            match target.clear() {
                Ok(()) => target.remove(),
                Err(error) => {
                    tracing::warn!(path = %target.path.display(), %error, "a volume stays bound in a task directory")
                }
            }
        }
    }
}

fn bind(wish: &Mount, target: &Target, dirs: &TaskDir) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("failed to {what} volume mount {}: {error}", wish.task_path.display())
    };
    let is_dir = fs::metadata(&wish.host_path).map_err(|e| failed("look at", &e))?.is_dir();
    // A bind that a crash of the agent left from an earlier run of the task.
    target.clear().map_err(|e| failed("replace", &e))?;
    make_target(&target.path, is_dir).map_err(|e| failed("make the target of", &e))?;
    let real = target.path.canonicalize().map_err(|e| failed("find the target of", &e))?;
    let alloc_root = dirs.root.parent().unwrap_or(&dirs.root);
    let root = alloc_root.canonicalize().map_err(|e| failed("find the target of", &e))?;
    // The task may have put a link where its volume should go.
    if !real.starts_with(&root) {
        return Err(failed("make", &format!("it leads to {}", real.display())));
    }
    if is_dir && !target.own && is_empty(&real) {
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
        if !is_dir && !target.own {
            // The same for a file that a device is bound on.
            seal_beneath(&real)?;
        }
        if wish.read_only { mount::make_read_only(&real) } else { Ok(()) }
    };
    mounting().map_err(|error| {
        // Best effort: the failure is what counts.
        let _ = target.clear();
        target.remove();
        failed("make", &error)
    })
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

/// Makes a directory or file to mount on, unless it is there.
fn make_target(target: &Path, is_dir: bool) -> std::io::Result<()> {
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    if is_dir {
        fs::create_dir_all(target)?;
    } else {
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::File::create_new(target)?;
    }
    Ok(())
}

/// Removes an empty target that is not mounted any more; one with content was the task's own.
fn remove_target(target: &Path) {
    let Ok(meta) = target.symlink_metadata() else { return };
    let removed = if meta.is_dir() {
        // Not sealed is fine too.
        let _ = unseal_directory(target, 0o755);
        fs::remove_dir(target)
    } else if meta.is_file() && meta.len() == 0 {
        let _ = unseal_beneath(target);
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
    use crate::alloc_dir::AllocDir;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn dirs(base: &Path) -> TaskDir {
        TaskDir { root: base.join("a1/web"), shared: base.join("a1/alloc") }
    }

    #[test]
    fn destinations_in_the_allocation_stay_and_others_are_rooted_at_the_task() {
        let dirs = dirs(Path::new("/data/alloc"));
        let at = |text: &str| place(Path::new(text), &dirs);
        assert_eq!(at("/data/alloc/a1/alloc/data/vol"), Path::new("/data/alloc/a1/alloc/data/vol"));
        assert_eq!(at("/srv/data"), Path::new("/data/alloc/a1/web/srv/data"));
        assert_eq!(at("local/data"), Path::new("/data/alloc/a1/web/local/data"));
        assert_eq!(at("/secrets"), Path::new("/data/alloc/a1/web/secrets"));
        assert_eq!(at("/"), Path::new("/data/alloc/a1/web"));
        // `..` is resolved as in a root of the task's own: it never leads out.
        assert_eq!(at("/srv/../../etc"), Path::new("/data/alloc/a1/web/etc"));
        assert_eq!(at("/data/alloc/a1/web/../alloc/vol"), Path::new("/data/alloc/a1/alloc/vol"));
        assert_eq!(at("/data/alloc/a1/../b2/web"), Path::new("/data/alloc/a1/web/data/alloc/b2/web"));
    }

    #[test]
    fn a_volume_may_cover_any_directory_of_the_task_and_uncovers_it_again() {
        let (base, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(volume.path().join("f"), "x").unwrap();
        let dir = AllocDir::new(base.path(), &"a1".into());
        dir.build().unwrap();
        let dirs = dir.build_task("web", 0).unwrap();
        fs::write(dirs.secrets().join("token"), "t").unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o7777;
        let covered = [dirs.secrets(), dirs.private(), dirs.local(), dirs.shared.clone(), dirs.root.clone()];
        let before: Vec<u32> = covered.iter().map(|p| mode(p)).collect();
        for target in &covered {
            let wish = Mount {
                host_path: volume.path().to_owned(),
                task_path: target.clone(),
                read_only: false,
                propagation: Propagation::Private,
            };
            let wishes = std::slice::from_ref(&wish);
            // Twice: the first is what a crash of the agent leaves.
            let _left = Binds::make(wishes, &dirs).unwrap();
            let mut binds = Binds::make(wishes, &dirs).unwrap();
            assert_eq!(fs::read_to_string(target.join("f")).unwrap(), "x", "{}", target.display());
            binds.undo();
            // Undoing what an earlier agent may have made but did not ends nothing of the task's own.
            Binds::adopt(wishes, &dirs).undo();
            assert!(!target.join("f").exists(), "{}", target.display());
        }
        assert_eq!(covered.iter().map(|p| mode(p)).collect::<Vec<_>>(), before);
        assert_eq!(fs::read_to_string(dirs.secrets().join("token")).unwrap(), "t");
        dir.destroy().unwrap();
    }

    proptest! {
        #[test]
        fn no_destination_leads_out(text in "[a-z./]{0,40}") {
            let dirs = dirs(Path::new("/d"));
            let path = place(Path::new(&text), &dirs);
            prop_assert!(path.starts_with("/d/a1") && path != Path::new("/d/a1"));
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
        assert!(Binds::make(std::slice::from_ref(&wish), &dirs).unwrap_err().contains("it leads to"));
        // Undoing follows no link either: what others have mounted behind it stays.
        let behind = elsewhere.path().join("data");
        fs::create_dir_all(&behind).unwrap();
        mount::mount_tmpfs(&behind, 1 << 20, 0o755).unwrap();
        Binds::adopt(&[wish], &dirs).undo();
        assert!(mount::is_mount_point(&behind).unwrap());
        mount::unmount(&behind, Unmount::Now).unwrap();
    }
}
