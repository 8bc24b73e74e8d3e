//! Groups that other software made, such as a container engine.

use super::{Cgroup, Hierarchy, Kind, cpuset};
use crate::{Error, Result};
use std::path::{Component, Path, PathBuf};

impl Cgroup {
    /// Finds the group that other software made for a process, by a text in the group's name, such as the id of a
    /// container. So a process that took over the id of an ended one is not confused with it.
    ///
    /// # Errors
    /// If the groups of the process cannot be read.
    pub fn of_process(hierarchy: &Hierarchy, pid: u32, name: &str) -> Result<Option<Self>> {
        let file = format!("/proc/{pid}/cgroup");
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if super::is_gone(&error) || error.raw_os_error() == Some(nix::libc::ESRCH) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::path("read", file)(error)),
        };
        let controller = match hierarchy {
            Hierarchy::V1(_) => "memory",
            Hierarchy::V2(_) => "",
        };
        match named(&text, controller, name) {
            Some(path) => Ok(Some(Self::at(hierarchy, &path)?).filter(Self::exists)),
            None => Ok(None),
        }
    }

    /// Returns the processors that the group is confined to, as a list such as `0-1,4`; `None` if it is not confined by
    /// itself.
    pub fn cpus(&self) -> Option<String> {
        let dir = match &self.kind {
            Kind::V1(group) => group.cpuset_dir()?.to_owned(),
            Kind::V2(group) => group.dir().to_owned(),
        };
        let text = std::fs::read_to_string(dir.join(cpuset::CPUS)).ok()?;
        Some(text.trim().to_owned()).filter(|list| !list.is_empty())
    }
}

/// Returns the path of the group whose name contains a text, below the mount of a controller. `text` is a file of
/// `/proc/<pid>/cgroup` (cgroups(7)); an empty controller stands for version 2.
fn named(text: &str, controller: &str, name: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|one| one == controller).then_some(path)
    })?;
    let mut found = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => found.push(part),
            Component::RootDir => continue,
            // A group outside of this process's view.
            _ => return None,
        }
        if !name.is_empty() && part.as_os_str().to_string_lossy().contains(name) {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name() {
        let text = "12:pids:/docker/c1\n4:memory:/docker/c1/inner\n3:cpu,cpuacct:/docker/c1\n0::/other\n";
        assert_eq!(named(text, "memory", "c1"), Some("docker/c1".into()));
        assert_eq!(named(text, "cpuacct", "c1"), Some("docker/c1".into()));
        assert_eq!(named(text, "memory", "c2"), None);
        assert_eq!(named(text, "", "c1"), None);
        let unified = "0::/system.slice/docker-c1.scope\n";
        assert_eq!(named(unified, "", "c1"), Some("system.slice/docker-c1.scope".into()));
        assert_eq!(named("0::/../c1\n", "", "c1"), None);
        assert_eq!(named(unified, "", ""), None);
    }

    #[test]
    fn a_process_that_ended_has_no_group() {
        let hierarchy = Hierarchy::V2("/sys/fs/cgroup".into());
        assert!(Cgroup::of_process(&hierarchy, u32::MAX >> 1, "c1").unwrap().is_none());
    }
}
