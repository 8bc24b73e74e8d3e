//! Volumes of tasks whose driver does not mount: the client bind-mounts them on the host, below the task's directories.

mod target;

use crate::alloc_dir::TaskDir;
use crate::csi::VolumeManager;
use crate::env::TaskEnv;
use crate::host_volumes::HostVolumes;
use caravan_drivers::{Mount, Propagation};
use caravan_types::VolumeKey;
use caravan_types::alloc::Allocation;
use caravan_types::job::{PropagationMode, Task, TaskGroup, VolumeRequest, VolumeType};
use caravan_types::volume::ClaimId;
use std::path::{Component, Path, PathBuf};
use target::Target;

/// The volumes that tasks mount.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) volumes: VolumeManager,
    pub(crate) host_volumes: HostVolumes,
}

/// Returns the id of the claim on a group's CSI volume.
pub(crate) fn claim_id(alloc: &Allocation, request: &VolumeRequest) -> ClaimId {
    let volume = VolumeKey::new(alloc.namespace.clone(), request.source_for(&alloc.name));
    ClaimId { volume, alloc: alloc.id.clone() }
}

/// Returns the mounts that a task requests. With `verify`, their sources are compared with the ledger's proofs, as
/// before a start.
pub(crate) fn requested_mounts(
    sources: &Sources,
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
                let path = sources.volumes.verify(&claim_id(alloc, request), &alias);
                (path.map_err(|fault| fault.to_string())?, false)
            }
            VolumeType::Csi => (PathBuf::new(), false),
            VolumeType::Host if verify => {
                let source = request.source_for(&alloc.name);
                sources
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

/// Returns the mounts of one volume among the mounts that [`requested_mounts`] returned.
pub(crate) fn of_volume<'a>(
    task: &'a Task,
    env: &'a TaskEnv,
    mounts: &'a [Mount],
    alias: &'a str,
) -> impl Iterator<Item = &'a Mount> {
    let wishes = task.volume_mounts.iter().zip(mounts);
    wishes.filter(move |(wish, _)| env.text(&wish.volume) == alias).map(|(_, mount)| mount)
}

/// Returns the mounts of volumes without an owner or mode in the job, among the mounts that [`requested_mounts`] returned.
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

/// Returns the host path of a mount destination, for a task without a separate root. A path inside the allocation
/// directory is used unchanged; any other is relative to the task directory. No destination is refused: `..` ends at
/// the root, as in a chroot, and a volume may cover the task's own directories if the job requests that.
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
    // Joining an empty path would append a slash.
    if plain.as_os_str().is_empty() { dirs.root.clone() } else { dirs.root.join(plain) }
}

/// The mounts of one task that the client created.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    /// Targets, in the order of their creation.
    targets: Vec<Target>,
}

impl Binds {
    /// Returns the binds that an earlier agent created for a task; they can only be undone.
    pub(crate) fn adopt(mounts: &[Mount], dirs: &TaskDir) -> Self {
        Self { targets: mounts.iter().map(|m| Target::new(m, dirs)).collect() }
    }

    /// Creates the binds. On failure, the binds that were already created are undone.
    pub(crate) fn make(mounts: &[Mount], dirs: &TaskDir) -> Result<Self, String> {
        let mut this = Self::default();
        for wish in mounts {
            let mut target = Target::new(wish, dirs);
            if let Err(why) = target.bind(wish) {
                this.undo();
                return Err(why);
            }
            this.targets.push(target);
        }
        Ok(this)
    }

    /// Returns whether there are no binds.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Unmounts the binds, the last first.
    pub(crate) fn undo(&mut self) {
        while let Some(target) = self.targets.pop() {
            if let Err(error) = target.end() {
                let error = caravan_sys::describe(&error);
                tracing::warn!(path = %target.path().display(), error, "a bound volume cannot be unmounted");
            }
        }
    }
}

#[cfg(test)]
mod tests;
