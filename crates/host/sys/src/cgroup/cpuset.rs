//! Processors (cpusets(7)): exclusive ones of single groups, and the shared ones of all other groups.

use super::place::is_managed;
use super::v1::CPUSET;
use super::{Hierarchy, write};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The file with the processors of a group.
pub(super) const CPUS: &str = "cpuset.cpus";
/// The file with the memory nodes of a group.
const MEMS: &str = "cpuset.mems";
/// The file with the processors of which a group may be a partition (Linux 6.7).
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
/// The file that makes a group a partition: its processors leave all other groups.
const PARTITION: &str = "cpuset.cpus.partition";
/// On version 1, the name of the group with the shared processors.
const SHARED: &str = "share";

/// The processors that groups below a parent share. On version 1 they belong to one group, `<parent>/share`, which
/// tasks join with this controller only. On version 2 each group has its own list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedCpus {
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    V1 { dir: PathBuf, path: PathBuf },
    V2 { parent: PathBuf },
}

impl SharedCpus {
    /// Returns the processors that groups can have, as a list; `None` if processors cannot be limited.
    ///
    /// Processors that groups below the parent own are not effective at the root any more; they count as well.
    pub fn available(hierarchy: &Hierarchy, parent: &Path) -> Option<String> {
        let listed = |file: PathBuf| {
            let text = std::fs::read_to_string(file).ok()?;
            Some(text.trim().to_owned()).filter(|list| !list.is_empty())
        };
        match hierarchy {
            Hierarchy::V1(controllers) => listed(controllers.get(CPUSET)?.join(CPUS)),
            Hierarchy::V2(root) => {
                let effective = listed(root.join("cpuset.cpus.effective"))?;
                let own = listed(root.join(parent).join(EXCLUSIVE));
                Some(own.map_or(effective.clone(), |own| join(&effective, &own)))
            }
        }
    }

    /// Creates the groups for sharing below a parent (relative to the hierarchy's root).
    pub fn open(hierarchy: &Hierarchy, parent: &Path) -> Result<Self> {
        let kind = match hierarchy {
            Hierarchy::V1(controllers) => {
                let mount = controllers.get(CPUSET).ok_or_else(|| Error::Malformed {
                    what: "control groups of the host".into(),
                    detail: "there is no cpuset controller".into(),
                })?;
                let path = parent.join(SHARED);
                let dir = mount.join(&path);
                make(mount, &dir)?;
                // An earlier agent may have given the parent fewer processors.
                let above = parent.parent().map_or_else(|| mount.clone(), |above| mount.join(above));
                for file in [CPUS, MEMS] {
                    copy(&above.join(file), &mount.join(parent).join(file))?;
                }
                Kind::V1 { dir, path }
            }
            Hierarchy::V2(root) => {
                super::Cgroup::create(hierarchy, parent)?;
                Kind::V2 { parent: root.join(parent) }
            }
        };
        Ok(Self { kind })
    }

    /// Returns the group that a task joins to share processors, as a path below the controller's mount. `None` on
    /// version 2, where [`SharedCpus::set`] writes each group's own list.
    pub fn group(&self) -> Option<&Path> {
        match &self.kind {
            Kind::V1 { path, .. } => Some(path),
            Kind::V2 { .. } => None,
        }
    }

    /// Sets the shared processors. `except` contains the names of the groups with exclusive processors.
    pub fn set(&self, cpus: &str, except: &BTreeSet<String>) -> Result<()> {
        match &self.kind {
            Kind::V1 { dir, .. } => write(&dir.join(CPUS), cpus),
            Kind::V2 { parent } => {
                let entries = std::fs::read_dir(parent).map_err(Error::path("read", parent))?;
                for entry in entries {
                    let path = entry.map_err(Error::path("read", parent))?.path();
                    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                    if !path.is_dir() || name.is_none_or(|name| except.contains(&name)) {
                        continue;
                    }
                    match write(&path.join(CPUS), cpus) {
                        // The group's task has ended meanwhile.
                        Err(error) if error.is_not_found() => {}
                        outcome => outcome?,
                    }
                }
                Ok(())
            }
        }
    }

    /// Removes the groups for sharing; no task may be in them.
    pub fn remove(&self) -> Result<()> {
        match &self.kind {
            Kind::V1 { dir, .. } => super::remove_dir(dir),
            Kind::V2 { .. } => Ok(()),
        }
    }
}

/// Creates a group of version 1 and its parents, each with the processors and memory nodes of its parent. The kernel
/// adds no process to a group without them.
pub(super) fn make(mount: &Path, dir: &Path) -> Result<()> {
    let mut missing: Vec<&Path> =
        dir.ancestors().take_while(|at| *at != mount && at.starts_with(mount)).collect();
    missing.reverse();
    let mut above = mount;
    for at in missing {
        match std::fs::create_dir(at) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::path("create cgroup", at)(error));
            }
            _ => {}
        }
        for file in [CPUS, MEMS] {
            if read(&at.join(file))?.is_empty() {
                copy(&above.join(file), &at.join(file))?;
            }
        }
        above = at;
    }
    Ok(())
}

/// Makes a group of version 2 the only user of its processors. Does nothing if a manager owns the groups above, whose
/// files are part of the change. If the kernel refuses the partition, the group shares its processors.
pub(super) fn isolate(root: &Path, dir: &Path, cpus: &str) {
    if is_managed() || !dir.join(EXCLUSIVE).exists() {
        return;
    }
    let mut above: Vec<&Path> =
        dir.ancestors().skip(1).take_while(|at| *at != root && at.starts_with(root)).collect();
    above.reverse();
    let pass = |at: &Path| {
        let file = at.join(EXCLUSIVE);
        let known = read(&file)?;
        let all = if known.is_empty() { cpus.to_owned() } else { join(&known, cpus) };
        write(&file, &all)
    };
    let become_partition = || {
        above.into_iter().try_for_each(pass)?;
        write(&dir.join(EXCLUSIVE), cpus)?;
        write(&dir.join(PARTITION), "root")?;
        read(&dir.join(PARTITION))
    };
    // The kernel accepts the word and reports an impossible partition as `root invalid (REASON)`.
    if become_partition().is_ok_and(|state| state == "root") {
        return;
    }
    let _unchanged = write(&dir.join(PARTITION), "member");
    let _unchanged = write(&dir.join(EXCLUSIVE), "\n");
}

/// Joins two lists of processors. The kernel accepts overlapping parts.
fn join(one: &str, other: &str) -> String {
    format!("{one},{other}")
}

fn read(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(Error::path("read", file))?;
    Ok(text.trim().to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    write(to, &read(from)?)
}
