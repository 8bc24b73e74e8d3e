//! The settings that the agent passes to its client.

use caravan_drivers::DevicePlugin;
use caravan_networks::BridgeConfig;
use caravan_types::node::{HostNetwork, HostVolumeInfo, ReservedResources};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Settings of a client (docs/reference/jobspec.md, section 11.3). [`ClientConfig::new`] returns the defaults.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Client state, sockets and CSI directories; created with mode 0700. Default: `<data_dir>/client`.
    pub state_dir: PathBuf,
    /// The parent of the allocation directories. Default: `<data_dir>/alloc`.
    pub alloc_dir: PathBuf,
    /// The parent of the directories that drivers of kind unveil show. Default: `<data_dir>/alloc_mounts`.
    pub alloc_mounts_dir: PathBuf,
    /// The users that the client may choose for tasks.
    pub dynamic_users: RangeInclusive<u32>,
    /// Name of the node.
    pub node_name: String,
    /// The kernel's host name.
    pub hostname: String,
    /// The node's datacenter.
    pub datacenter: String,
    /// The node's region.
    pub region: String,
    /// The node class for constraints; may be empty.
    pub node_class: String,
    /// The node pool that the node joins.
    pub node_pool: String,
    /// Node metadata from the configuration.
    pub meta: BTreeMap<String, String>,
    /// `options` of the client block: `driver.allowlist`, `driver.denylist`, `fingerprint.denylist`,
    /// `env.denylist`, ...
    pub options: BTreeMap<String, String>,
    /// Resources that are reserved for the host.
    pub reserved: ReservedResources,
    /// Cores that jobs may reserve; if absent, all except those reserved for the host.
    pub reservable_cores: Option<BTreeSet<u16>>,
    /// The first and last dynamic port that the scheduler may assign.
    pub dynamic_ports: (u16, u16),
    /// Total CPU in MHz; if absent, the detected value.
    pub cpu_total_compute: Option<i64>,
    /// Memory in MB; if absent, the detected value.
    pub memory_total_mb: Option<i64>,
    /// Total disk space in MB; if absent, the detected value.
    pub disk_total_mb: Option<i64>,
    /// Free disk space in MB; if absent, the detected value.
    pub disk_free_mb: Option<i64>,
    /// The interface whose addresses the node uses; if absent, the interface of the default route.
    pub network_interface: Option<String>,
    /// The family whose addresses come first.
    pub address_family: AddressFamily,
    /// Host volumes offered to jobs, by name.
    pub host_volumes: BTreeMap<String, HostVolumeInfo>,
    /// The directory in which the built-in plugin creates host volumes.
    pub host_volumes_dir: PathBuf,
    /// The directory of the executables that create host volumes.
    pub host_volume_plugin_dir: PathBuf,
    /// Whether the servers delete the node's host volumes when they garbage-collect the node.
    pub gc_volumes_on_node_gc: bool,
    /// Host networks offered to jobs, by name.
    pub host_networks: BTreeMap<String, HostNetwork>,
    /// The bridge of allocations with their own network.
    pub bridge: BridgeConfig,
    /// The directories of CNI plugins, separated by colons.
    pub cni_path: String,
    /// The directory of the configurations of CNI networks.
    pub cni_config_dir: PathBuf,
    /// Whether mapped ports are reached through all addresses of the host, as long as it offers no host network.
    pub bind_wildcard: bool,
    /// The most allocations on the node; 0 means no limit.
    pub node_max_allocs: i64,
    /// Whether the node registers as ineligible.
    pub default_ineligible: bool,
    /// `host:port` of the agent's HTTP API, as other machines reach it.
    pub advertise_http: String,
    /// Whether that HTTP API uses TLS.
    pub http_tls: bool,
    /// RPC addresses of the first servers to contact.
    pub servers: Vec<String>,
    /// The agent's version.
    pub version: String,
    /// The commit of the program, or empty.
    pub revision: String,
    /// Development mode: state is kept in memory, and allocations are destroyed at shutdown.
    pub dev: bool,
    /// The longest time between the kill signal and the forced kill of a task.
    pub max_kill_timeout: Duration,
    /// The parent of the tasks' control groups.
    pub cgroup_parent: String,
    /// The Consul and Vault servers that the node fingerprints.
    pub neighbours: crate::Neighbours,
    /// The plugins that find the node's devices.
    pub devices: Vec<Arc<dyn DevicePlugin>>,
    /// The time between two measurements of devices.
    pub stats_interval: Duration,
}

impl ClientConfig {
    /// Returns the defaults for a data directory.
    pub fn new(data_dir: impl Into<PathBuf>, node_name: impl Into<String>) -> Self {
        let data_dir = data_dir.into();
        let node_name = node_name.into();
        Self {
            state_dir: data_dir.join("client"),
            alloc_dir: data_dir.join("alloc"),
            alloc_mounts_dir: data_dir.join("alloc_mounts"),
            dynamic_users: 80_000..=89_999,
            hostname: node_name.clone(),
            node_name,
            datacenter: "dc1".to_owned(),
            region: "global".to_owned(),
            node_class: String::new(),
            node_pool: "default".to_owned(),
            meta: BTreeMap::new(),
            options: BTreeMap::new(),
            reserved: ReservedResources::default(),
            reservable_cores: None,
            dynamic_ports: (20_000, 32_000),
            cpu_total_compute: None,
            memory_total_mb: None,
            disk_total_mb: None,
            disk_free_mb: None,
            network_interface: None,
            address_family: AddressFamily::Ipv4,
            host_volumes: BTreeMap::new(),
            host_volumes_dir: data_dir.join("host_volumes"),
            host_volume_plugin_dir: data_dir.join("host_volume_plugins"),
            gc_volumes_on_node_gc: false,
            host_networks: BTreeMap::new(),
            bridge: BridgeConfig::default(),
            cni_path: "/opt/cni/bin:/usr/libexec/cni".to_owned(),
            cni_config_dir: "/opt/cni/config".into(),
            bind_wildcard: true,
            node_max_allocs: 0,
            default_ineligible: false,
            advertise_http: String::new(),
            http_tls: false,
            servers: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: String::new(),
            dev: false,
            max_kill_timeout: Duration::from_secs(30),
            cgroup_parent: "/caravan".to_owned(),
            neighbours: Vec::new(),
            devices: Vec::new(),
            stats_interval: Duration::from_secs(1),
        }
    }

    /// Returns whether a fingerprint is enabled, by `fingerprint.allowlist` and `fingerprint.denylist`.
    pub(crate) fn wants_fingerprint(&self, name: &str) -> bool {
        let names = |list: Vec<String>| list.iter().any(|known| known == name);
        self.option_list("fingerprint.allowlist").is_none_or(names)
            && !self.option_list("fingerprint.denylist").is_some_and(names)
    }

    /// Returns the items of a comma-separated option.
    pub(crate) fn option_list(&self, key: &str) -> Option<Vec<String>> {
        let text = self.options.get(key)?;
        Some(text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect())
    }
}
