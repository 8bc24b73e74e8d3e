//! Volumes in tasks whose driver does not mount: the client binds them on the host, where the task looks.

mod target;

use super::Context;
use crate::alloc_dir::TaskDir;
use crate::env::TaskEnv;
use caravan_drivers::{Mount, Propagation};
use caravan_types::VolumeKey;
use caravan_types::alloc::Allocation;
use caravan_types::job::{PropagationMode, Task, TaskGroup, VolumeRequest, VolumeType};
use caravan_types::volume::ClaimId;
use std::path::{Component, Path, PathBuf};
use target::Target;

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
            let mut target = Target::of(wish, dirs);
            if let Err(why) = target.bind(wish) {
                this.undo();
                return Err(why);
            }
            this.targets.push(target);
        }
        Ok(this)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Ends them, the last first.
    pub(crate) fn undo(&mut self) {
        while let Some(target) = self.targets.pop() {
            if let Err(error) = target.end() {
                let error = caravan_sys::describe(&error);
                tracing::warn!(path = %target.path().display(), error, "a volume stays bound in a task directory");
            }
        }
    }
}

#[cfg(test)]
#[path = "binds_tests.rs"]
mod tests;
