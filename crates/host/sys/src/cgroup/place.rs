//! The place of the agent's groups in the tree. A manager (systemd) owns the tree of version 2, and a service may change
//! only a part that the manager delegates to it (`Delegate=` of systemd.resource-control(5)).

use super::{Hierarchy, create_dir, v1, v2, write};
use crate::mountinfo::MountTable;
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The directory that exists while systemd manages the machine (sd_booted(3)).
const MANAGER: &str = "/run/systemd/system";

/// The attributes with which systemd marks a delegated group; programs without privileges set the second one.
const DELEGATED: [&str; 2] = ["trusted.delegate", "user.delegate"];

/// The control groups as a process sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The mounts.
    pub hierarchy: Hierarchy,
    /// The controllers that groups can have.
    pub controllers: BTreeSet<String>,
    /// Whether a mount is read-only, so that no group can be created.
    pub read_only: bool,
    /// The group of the process on version 2, below the mount. Absent on version 1, and if the group is outside the
    /// mount.
    pub own: Option<PathBuf>,
}

impl Survey {
    /// Reads the control groups of the calling process; `None` without any.
    pub fn read() -> Result<Option<Self>> {
        let own = "/proc/self/cgroup";
        let own = std::fs::read_to_string(own).map_err(Error::path("read", own))?;
        let controllers =
            |mount: &Path| std::fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
        Ok(Self::new(&MountTable::read()?, &own, controllers))
    }

    /// Finds the control groups in a mount table and the text of `/proc/self/cgroup`. `controllers` returns the text
    /// of `cgroup.controllers` of a mount of version 2.
    pub fn new(table: &MountTable, own: &str, controllers: impl Fn(&Path) -> String) -> Option<Self> {
        let hierarchy = Hierarchy::from_mounts(table)?;
        let at = |target: &Path| table.entries().iter().find(|entry| entry.target == target);
        Some(match &hierarchy {
            Hierarchy::V1(mounts) => {
                // Whether a group can be created depends on the controllers of every task.
                let needed = mounts.iter().filter(|(name, _)| name.as_str() != v1::CPUSET);
                let read_only =
                    needed.into_iter().any(|(_, mount)| at(mount).is_some_and(|entry| entry.is_read_only()));
                Self { controllers: mounts.keys().cloned().collect(), read_only, own: None, hierarchy }
            }
            Hierarchy::V2(mount) => {
                let entry = at(mount)?;
                let path = own.lines().find_map(|line| line.strip_prefix("0::"));
                // A mount from another namespace shows only a part of the tree; paths are those of the whole tree.
                let own = path.and_then(|path| Path::new(path).strip_prefix(&entry.root).ok());
                let own = own.filter(|path| path.components().all(|part| part.as_os_str() != ".."));
                let found = controllers(mount);
                let known = |name: &&str| v2::CONTROLLERS.contains(name);
                Self {
                    controllers: found.split_whitespace().filter(known).map(str::to_owned).collect(),
                    read_only: entry.is_read_only(),
                    own: own.map(Path::to_owned),
                    hierarchy,
                }
            }
        })
    }
}

/// The part of the tree that the agent may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole tree: version 1, or no manager.
    Top,
    /// The tree below this group, which the manager delegates to the agent's service. The agent itself is in another
    /// group below.
    Delegated(PathBuf),
    /// No part. The agent has to request a delegated group from the manager.
    Requested,
}

impl Place {
    /// Finds the part of the tree that the calling process may change.
    pub fn find(survey: &Survey) -> Self {
        match &survey.hierarchy {
            Hierarchy::V1(_) => Self::Top,
            Hierarchy::V2(mount) => {
                Self::decide(survey.own.as_deref(), is_managed(), |group| has_mark(&mount.join(group)))
            }
        }
    }

    /// Decides by the group of the agent, whether a manager owns the tree, and which groups the manager has delegated.
    ///
    /// A service that is itself in its delegated group cannot use the group for its tasks. A group with processes
    /// passes no controllers to its children, and a group that passes controllers accepts no process. So the manager
    /// could not start the service again while tasks run.
    pub fn decide(own: Option<&Path>, is_managed: bool, is_delegated: impl Fn(&Path) -> bool) -> Self {
        if !is_managed {
            return Self::Top;
        }
        let Some(own) = own else { return Self::Requested };
        // The manager of a user's session owns the tree below its service.
        let of_session = |group: &Path| {
            group.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"user@"))
        };
        let nearest = own.ancestors().find(|group| is_delegated(group) && !group.as_os_str().is_empty());
        match nearest {
            Some(group) if group != own && !of_session(group) => Self::Delegated(group.to_owned()),
            _ => Self::Requested,
        }
    }
}

/// Returns whether systemd manages the machine, and with it the tree of version 2.
pub(super) fn is_managed() -> bool {
    Path::new(MANAGER).exists()
}

/// Returns whether a group is in a part of the tree that the manager delegates.
pub(super) fn is_delegated(root: &Path, dir: &Path) -> bool {
    dir.ancestors().take_while(|dir| dir.starts_with(root) && *dir != root).any(has_mark)
}

fn has_mark(dir: &Path) -> bool {
    let mut value = [0; 8];
    DELEGATED.iter().any(|name| {
        rustix::fs::getxattr(dir, *name, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
    })
}

/// Moves the processes that are directly in a group of version 2 to a group below it, so that the group can pass
/// controllers to its children. Does nothing for the root of the tree, which may have both. `relative` is below the
/// mount, and empty for the mount itself: the root of a container.
pub fn vacate(hierarchy: &Hierarchy, relative: &Path, into: &str) -> Result<()> {
    let Hierarchy::V2(mount) = hierarchy else { return Ok(()) };
    let dir = mount.join(relative);
    // The root of the tree has no type.
    if !dir.join("cgroup.type").exists() {
        return Ok(());
    }
    let procs = dir.join("cgroup.procs");
    // A process that forks while the list is read leaves its child behind.
    for _ in 0..16 {
        let text = std::fs::read_to_string(&procs).map_err(Error::path("read", &procs))?;
        // Zero is a process of another namespace, which cannot be moved from here.
        let pids: Vec<&str> = text.lines().filter(|pid| *pid != "0").collect();
        if pids.is_empty() {
            return Ok(());
        }
        let below = dir.join(into);
        create_dir(&below)?;
        for pid in pids {
            match write(&below.join("cgroup.procs"), pid) {
                // The process has ended.
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
