//! What an agent tells its client.

use caravan_types::node::{HostNetwork, HostVolumeInfo, ReservedResources};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a client (docs/reference/jobspec.md, section 11.3). [`ClientConfig::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Client state, sockets and CSI directories; made with mode 0700. `<data_dir>/client`.
    pub state_dir: PathBuf,
    /// Allocation directories. `<data_dir>/alloc`.
    pub alloc_dir: PathBuf,
    /// Name of the node.
    pub node_name: String,
    /// Host name as the kernel has it.
    pub hostname: String,
    /// Datacenter.
    pub datacenter: String,
    /// Region.
    pub region: String,
    /// Class for constraints, may be empty.
    pub node_class: String,
    /// Node pool.
    pub node_pool: String,
    /// Free pairs of the node.
    pub meta: BTreeMap<String, String>,
    /// `options` of the client block: `driver.allowlist`, `driver.denylist`, `fingerprint.denylist`,
    /// `env.denylist`, ...
    pub options: BTreeMap<String, String>,
    /// Kept for the host.
    pub reserved: ReservedResources,
    /// Processors that jobs may reserve whole; all but those kept for the host when absent.
    pub reservable_cores: Option<BTreeSet<u16>>,
    /// First and last port that the scheduler may hand out.
    pub dynamic_ports: (u16, u16),
    /// MHz in total instead of what is found.
    pub cpu_total_compute: Option<i64>,
    /// MB of memory instead of what is found.
    pub memory_total_mb: Option<i64>,
    /// MB of disk instead of what is found.
    pub disk_total_mb: Option<i64>,
    /// MB of free disk instead of what is found.
    pub disk_free_mb: Option<i64>,
    /// Interface whose addresses are the node's, instead of that of the default route.
    pub network_interface: Option<String>,
    /// Directories offered to jobs, by name.
    pub host_volumes: BTreeMap<String, HostVolumeInfo>,
    /// Where the built-in plugin makes host volumes.
    pub host_volumes_dir: PathBuf,
    /// Executables that make host volumes.
    pub host_volume_plugin_dir: PathBuf,
    /// The servers forget the node's host volumes when they forget the node.
    pub gc_volumes_on_node_gc: bool,
    /// Networks offered to jobs, by name.
    pub host_networks: BTreeMap<String, HostNetwork>,
    /// Most allocations, 0 for no limit.
    pub node_max_allocs: i64,
    /// Register as ineligible.
    pub default_ineligible: bool,
    /// `host:port` of the agent's HTTP API, as others reach it.
    pub advertise_http: String,
    /// Whether the HTTP API is spoken over TLS there.
    pub http_tls: bool,
    /// RPC addresses of servers to begin with.
    pub servers: Vec<String>,
    /// Version of the agent.
    pub version: String,
    /// Everything in memory, allocations destroyed at shutdown.
    pub dev: bool,
    /// Longest time between the kill signal and the forced kill.
    pub max_kill_timeout: Duration,
    /// Parent of the tasks' control groups.
    pub cgroup_parent: String,
    /// Programs of others that the node tells about.
    pub neighbours: crate::Neighbours,
    /// Configuration of drivers by name (`plugin "raw_exec" { config { … } }`).
    pub plugins: BTreeMap<String, Value>,
}

impl ClientConfig {
    /// Defaults below a data directory.
    pub fn new(data_dir: impl Into<PathBuf>, node_name: impl Into<String>) -> Self {
        let data_dir = data_dir.into();
        let node_name = node_name.into();
        Self {
            state_dir: data_dir.join("client"),
            alloc_dir: data_dir.join("alloc"),
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
            host_volumes: BTreeMap::new(),
            host_volumes_dir: data_dir.join("host_volumes"),
            host_volume_plugin_dir: data_dir.join("host_volume_plugins"),
            gc_volumes_on_node_gc: false,
            host_networks: BTreeMap::new(),
            node_max_allocs: 0,
            default_ineligible: false,
            advertise_http: String::new(),
            http_tls: false,
            servers: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dev: false,
            max_kill_timeout: Duration::from_secs(30),
            cgroup_parent: "/caravan".to_owned(),
            neighbours: Vec::new(),
            plugins: BTreeMap::new(),
        }
    }

    /// Whether a fingerprint is wanted, by `fingerprint.allowlist` and `fingerprint.denylist`.
    pub(crate) fn wants_fingerprint(&self, name: &str) -> bool {
        let names = |list: Vec<String>| list.iter().any(|known| known == name);
        self.option_list("fingerprint.allowlist").is_none_or(names)
            && !self.option_list("fingerprint.denylist").is_some_and(names)
    }

    /// The words of a comma-separated option.
    pub(crate) fn option_list(&self, key: &str) -> Option<Vec<String>> {
        let text = self.options.get(key)?;
        Some(text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty()).collect())
    }
}
