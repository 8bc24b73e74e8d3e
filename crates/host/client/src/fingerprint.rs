//! Fingerprints of a node, under Nomad's attribute names (docs/reference/http-api.md, section 5.4).
//!
//! Parsers are pure; [`read`] reads the files. A file that cannot be read is logged and its attributes are left out,
//! since a node without one attribute is better than no node.

mod bridge;
mod cpu;
mod host;
pub(crate) mod neighbours;
mod network;
mod topology;

pub(crate) use bridge::{BUILT_IN, PLUGIN_VERSIONS, stand_for_plugins};
pub use cpu::go_arch;
pub use neighbours::{Neighbour, NeighbourKind, Neighbours};
pub use network::{host_addresses, interface_addresses};

use crate::config::ClientConfig;
use crate::state::Identity;
use caravan_types::node::{
    Eligibility, Node, NodeCpu, NodeDisk, NodeMemory, NodeResources, NodeStatus, Processors,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MIB: i64 = 1024 * 1024;

/// Returns the node without its drivers and plugins. `reservable` are the cores that jobs may reserve; `has_bridge`
/// is whether the kernel can create the bridge.
pub(crate) fn read(
    config: &ClientConfig,
    identity: &Identity,
    reservable: &BTreeSet<u16>,
    has_bridge: bool,
) -> Node {
    let mut attributes = BTreeMap::new();
    let cpu = cpu::parse(
        &text("/proc/cpuinfo"),
        text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").trim(),
    );
    let found = i64::from(cpu.count()) * cpu.mhz;
    let shares = config.cpu_total_compute.unwrap_or(found);
    let mut kept = config.reserved.clone();
    kept.cpu.reserved_cpu_cores.retain(|core| cpu.cores.contains(core));
    // The share of the host includes the share of its reserved cores.
    let whole = i64::try_from(kept.cpu.reserved_cpu_cores.len()).unwrap_or(i64::MAX);
    let each = shares / i64::from(cpu.count());
    kept.cpu.cpu_shares = kept.cpu.cpu_shares.saturating_add(each.saturating_mul(whole));
    let places = topology::read();
    cpu.add_attributes(shares, kept.cpu.cpu_shares, reservable.len(), &mut attributes);
    places.add_attributes(&cpu, &mut attributes);
    host::add_attributes(config, &mut attributes);

    let memory = host::memory_bytes(&text("/proc/meminfo"));
    attributes.insert("memory.totalbytes".to_owned(), memory.to_string());
    let memory_mb = config.memory_total_mb.unwrap_or(memory / MIB);

    let disk = host::disk(&config.alloc_dir).unwrap_or_default();
    attributes.insert("unique.storage.volume".to_owned(), disk.volume.clone());
    attributes.insert("unique.storage.bytestotal".to_owned(), disk.total.to_string());
    attributes.insert("unique.storage.bytesfree".to_owned(), disk.free.to_string());
    let total_mb = config.disk_total_mb.unwrap_or(disk.total / MIB);
    let disk_mb = config.disk_free_mb.unwrap_or((disk.free / MIB).min(total_mb));

    let network = network::read(config);
    if let Some(ip) = network.address() {
        attributes.insert("unique.network.ip-address".to_owned(), ip.to_string());
    }
    if !config.advertise_http.is_empty() {
        attributes.insert("nomad.advertise.address".to_owned(), config.advertise_http.clone());
        attributes.insert("unique.advertise.address".to_owned(), config.advertise_http.clone());
    }
    let (min_port, max_port) = config.dynamic_ports;
    let mut node_resources = NodeResources {
        cpu: NodeCpu {
            cpu_shares: shares,
            total_cpu_cores: cpu.count(),
            reservable_cpu_cores: reservable.iter().copied().collect(),
        },
        memory: NodeMemory { memory_mb },
        disk: NodeDisk { disk_mb },
        node_networks: network.node_networks(),
        networks: network.networks(),
        processors: Processors { topology: Some(places.describe(&cpu, shares, &kept.cpu)) },
        min_dynamic_port: i64::from(min_port),
        max_dynamic_port: i64::from(max_port),
        ..Default::default()
    };
    if has_bridge {
        bridge::add(&config.bridge, &mut node_resources, &mut attributes);
    }
    Node {
        id: identity.node_id.clone(),
        secret_id: identity.secret.clone(),
        datacenter: config.datacenter.clone(),
        name: config.node_name.as_str().into(),
        cgroup_parent: config.cgroup_parent.clone(),
        http_addr: config.advertise_http.clone(),
        tls_enabled: config.http_tls,
        attributes,
        node_resources,
        reserved_resources: kept,
        meta: config.meta.clone(),
        node_class: config.node_class.clone(),
        node_pool: config.node_pool.clone(),
        scheduling_eligibility: match config.default_ineligible {
            true => Eligibility::Ineligible,
            false => Eligibility::Eligible,
        },
        status: NodeStatus::Ready,
        host_volumes: config.host_volumes.clone(),
        gc_volumes_on_node_gc: config.gc_volumes_on_node_gc,
        host_networks: config.host_networks.clone(),
        node_max_allocs: config.node_max_allocs,
        ..Default::default()
    }
}

/// Returns the content of a small file; empty if it is absent.
fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| {
        tracing::debug!(path = %path.display(), %error, "a file for the node's attributes cannot be read");
        String::new()
    })
}
