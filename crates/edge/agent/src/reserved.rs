//! The resources that a client reserves for its host, and the resources that it offers. Pure.

use crate::error::AgentError;
use caravan_hcl::config::ClientConfig;
use caravan_types::node::{
    HostVolumeInfo, NodeDisk, NodeMemory, ReservedCpu, ReservedNetworks, ReservedResources,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// Reads the `reserved` block.
pub(crate) fn from_config(file: &ClientConfig) -> Result<ReservedResources, AgentError> {
    let reserved = file.reserved.clone().unwrap_or_default();
    let cores = cores("client.reserved.cores", reserved.cores.as_deref())?.unwrap_or_default();
    Ok(ReservedResources {
        cpu: ReservedCpu {
            cpu_shares: reserved.cpu.unwrap_or(0),
            reserved_cpu_cores: cores.into_iter().collect(),
        },
        memory: NodeMemory { memory_mb: reserved.memory.unwrap_or(0) },
        disk: NodeDisk { disk_mb: reserved.disk.unwrap_or(0) },
        networks: ReservedNetworks { reserved_host_ports: reserved.reserved_ports.unwrap_or_default() },
    })
}

/// Parses a list of CPUs; `None` if the setting is absent.
pub(crate) fn cores(field: &'static str, list: Option<&str>) -> Result<Option<BTreeSet<u16>>, AgentError> {
    let Some(list) = list.filter(|list| !list.trim().is_empty()) else { return Ok(None) };
    let read = caravan_types::cores::parse(list);
    read.map(Some).map_err(|error| AgentError::Setting { field, reason: error.to_string() })
}

/// Checks the parent of the tasks' cgroups; `None` if the setting is absent.
pub(crate) fn cgroup_parent(path: Option<&str>) -> Result<Option<String>, AgentError> {
    let Some(path) = path.map(str::trim).filter(|path| !path.is_empty()) else { return Ok(None) };
    let below = Path::new(path.trim_start_matches('/'));
    let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    if below.as_os_str().is_empty() || !plain {
        return Err(AgentError::Setting {
            field: "client.cgroup_parent",
            reason: format!("{path:?} is not a path of a control group below the root"),
        });
    }
    Ok(Some(path.to_owned()))
}

/// Reads the `host_volume` blocks.
pub(crate) fn host_volumes(file: &ClientConfig) -> BTreeMap<String, HostVolumeInfo> {
    let volumes = file.host_volume.clone().unwrap_or_default();
    volumes
        .into_iter()
        .map(|(name, volume)| {
            let info = HostVolumeInfo {
                name: name.clone(),
                path: volume.path.unwrap_or_default(),
                read_only: volume.read_only.unwrap_or(false),
                id: String::new(),
            };
            (name, info)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_control_groups_are_read_or_refused() {
        assert_eq!(cores("f", None).unwrap(), None);
        assert_eq!(cores("f", Some(" ")).unwrap(), None);
        assert_eq!(cores("f", Some("0-1,3")).unwrap(), Some(BTreeSet::from([0, 1, 3])));
        let words = cores("client.reserved.cores", Some("x")).unwrap_err().to_string();
        assert!(words.contains("client.reserved.cores") && words.contains("list of processors"), "{words}");
        assert_eq!(cgroup_parent(Some("/caravan/tasks")).unwrap().as_deref(), Some("/caravan/tasks"));
        assert_eq!(cgroup_parent(Some("")).unwrap(), None);
        for bad in ["/", "a/../b", "../x"] {
            assert!(cgroup_parent(Some(bad)).is_err(), "{bad}");
        }
    }
}
