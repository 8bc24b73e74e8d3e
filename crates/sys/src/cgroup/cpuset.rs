//! Processors (cpusets(7)): exclusive ones of single groups, and the shared ones of all other groups.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::v1::CPUSET;
use super::{Hierarchy, write};
use crate::{Error, Result};

/// The file with the processors of a group.
pub(super) const CPUS: &str = "cpuset.cpus";
/// The file with the memory nodes of a group.
const MEMS: &str = "cpuset.mems";
/// On version 1, the name of the group with the shared processors.
const SHARED: &str = "share";

/// The processors that groups below a parent share. On version 1 they belong to one group, `<parent>/share`, which
/// tasks join with this controller only. On version 2 each group has its own list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedCpus {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    V1 { dir: PathBuf, path: PathBuf },
    V2 { parent: PathBuf },
}

impl SharedCpus {
    /// Returns the processors that groups can have, as a list; `None` if processors cannot be limited.
    pub fn available(hierarchy: &Hierarchy) -> Option<String> {
        let file = match hierarchy {
            Hierarchy::V1(controllers) => controllers.get(CPUSET)?.join(CPUS),
            Hierarchy::V2(root) => root.join("cpuset.cpus.effective"),
        };
        let text = std::fs::read_to_string(file).ok()?;
        Some(text.trim().to_owned()).filter(|list| !list.is_empty())
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

fn read(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(Error::path("read", file))?;
    Ok(text.trim().to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    write(to, &read(from)?)
}
