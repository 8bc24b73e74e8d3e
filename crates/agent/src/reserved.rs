//! What a client keeps for its host, and what it offers of it. Pure.

use caravan_hcl::config::ClientConfig;
use caravan_types::node::{
    HostVolumeInfo, NodeDisk, NodeMemory, ReservedCpu, ReservedNetworks, ReservedResources,
};
use std::collections::BTreeMap;

/// The `reserved` block.
pub(crate) fn of(file: &ClientConfig) -> ReservedResources {
    let reserved = file.reserved.clone().unwrap_or_default();
    ReservedResources {
        cpu: ReservedCpu { cpu_shares: reserved.cpu.unwrap_or(0), reserved_cpu_cores: Vec::new() },
        memory: NodeMemory { memory_mb: reserved.memory.unwrap_or(0) },
        disk: NodeDisk { disk_mb: reserved.disk.unwrap_or(0) },
        networks: ReservedNetworks { reserved_host_ports: reserved.reserved_ports.unwrap_or_default() },
    }
}

/// The `host_volume` blocks.
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
