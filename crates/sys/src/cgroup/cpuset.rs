//! Processors (cpusets(7)): those of a group alone, and those that all other groups of ours share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::v1::CPUSET;
use super::{Hierarchy, write};
use crate::{Error, Result};

/// The file with the processors of a group.
pub(super) const CPUS: &str = "cpuset.cpus";
/// The file with its memory nodes.
const MEMS: &str = "cpuset.mems";
/// The group of those that share, on version 1.
const SHARED: &str = "share";

/// The processors that groups below a parent share. On version 1 they are those of one group, `<parent>/share`, which
/// tasks join with this controller only; on version 2 each group has a list of its own.
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
    /// The processors that groups can have, as a list; none where they cannot be limited.
    pub fn available(hierarchy: &Hierarchy) -> Option<String> {
        let file = match hierarchy {
            Hierarchy::V1(controllers) => controllers.get(CPUSET)?.join(CPUS),
            Hierarchy::V2(root) => root.join("cpuset.cpus.effective"),
        };
        let text = std::fs::read_to_string(file).ok()?;
        Some(text.trim().to_owned()).filter(|list| !list.is_empty())
    }

    /// Makes what sharing needs below a parent (relative to the hierarchy's root).
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
                // A parent of an earlier agent may have had fewer.
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

    /// The group that a task joins to share, by the path below the controller's mount; none where its own group is
    /// told what is shared.
    pub fn group(&self) -> Option<&Path> {
        match &self.kind {
            Kind::V1 { path, .. } => Some(path),
            Kind::V2 { .. } => None,
        }
    }

    /// Says what is shared from now on. `except` are the names of the groups that do not share.
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
                        // Its task ended meanwhile.
                        Err(error) if error.is_not_found() => {}
                        outcome => outcome?,
                    }
                }
                Ok(())
            }
        }
    }

    /// Removes what sharing needed; nothing may use it any more.
    pub fn remove(&self) -> Result<()> {
        match &self.kind {
            Kind::V1 { dir, .. } => super::remove_dir(dir),
            Kind::V2 { .. } => Ok(()),
        }
    }
}

/// Makes a group of version 1 with those above it, each with the processors and memory of the one above: the kernel
/// takes no process into a group without.
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
