//! The settings of the client.

use super::cluster::{self, entries};
use super::net::{RPC_PORT, port, with_port};
use super::{absolute, bad};
use crate::error::AgentError;
use crate::reserved;
use caravan_client::{AddressFamily, BridgeConfig, BridgeConfigFault};
use caravan_members::{JoinEntry, RetryPlan};
use caravan_types::node::{HostNetwork, ReservedResources};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

const DYNAMIC_PORTS: (u16, u16) = (20_000, 32_000);
/// The directories of CNI plugins.
const CNI_PATH: &str = "/opt/cni/bin:/usr/libexec/cni";
/// The directory of the configurations of CNI networks.
const CNI_CONFIG_DIR: &str = "/opt/cni/config";
/// The first and last user that the client may choose for tasks.
const DYNAMIC_USERS: (u32, u32) = (80_000, 89_999);

/// The settings of the client.
#[derive(Clone, Debug)]
pub(crate) struct ClientSettings {
    pub(crate) servers: Vec<String>,
    /// The programs that print the addresses of servers.
    pub(crate) server_programs: Vec<JoinEntry>,
    /// The plan by which the first contact with a server is retried.
    pub(crate) retry: RetryPlan,
    pub(crate) state_dir: PathBuf,
    pub(crate) alloc_dir: PathBuf,
    pub(crate) alloc_mounts_dir: PathBuf,
    pub(crate) host_volumes_dir: PathBuf,
    pub(crate) host_volume_plugin_dir: PathBuf,
    pub(crate) file: caravan_hcl::config::ClientConfig,
    pub(crate) node_class: String,
    pub(crate) node_pool: String,
    pub(crate) meta: BTreeMap<String, String>,
    pub(crate) network_interface: Option<String>,
    pub(crate) cni_path: String,
    pub(crate) cni_config_dir: PathBuf,
    /// The family whose addresses come first.
    pub(crate) address_family: AddressFamily,
    /// The networks of the host that jobs may name.
    pub(crate) host_networks: BTreeMap<String, HostNetwork>,
    /// The bridge of allocations with their own network.
    pub(crate) bridge: BridgeConfig,
    /// The first and last port for jobs that request a dynamic port.
    pub(crate) dynamic_ports: (u16, u16),
    /// The users that the client may choose for tasks.
    pub(crate) dynamic_users: RangeInclusive<u32>,
    /// The parent of the tasks' cgroups; absent means the default.
    pub(crate) cgroup_parent: Option<String>,
    /// The resources that are reserved for the host.
    pub(crate) reserved: ReservedResources,
    /// The CPUs that jobs may reserve; absent means all except the reserved ones.
    pub(crate) reservable_cores: Option<BTreeSet<u16>>,
}

/// Reads the users that the client may choose for tasks.
fn dynamic_users(file: &caravan_hcl::config::ClientConfig) -> Result<RangeInclusive<u32>, AgentError> {
    let block = file.users.as_ref();
    let number = |field: &'static str, value: Option<i64>, default: u32| match value {
        None => Ok(default),
        // Not the users of the system, and not the number that stands for no user (chown(2)).
        Some(uid) => u32::try_from(uid)
            .ok()
            .filter(|uid| (1..u32::MAX).contains(uid))
            .ok_or_else(|| bad(field, format!("{uid} is not the number of a user other than root"))),
    };
    let first = number(
        "client.users.dynamic_user_min",
        block.and_then(|users| users.dynamic_user_min),
        DYNAMIC_USERS.0,
    )?;
    let last = number(
        "client.users.dynamic_user_max",
        block.and_then(|users| users.dynamic_user_max),
        DYNAMIC_USERS.1,
    )?;
    if first > last {
        return Err(bad(
            "client.users.dynamic_user_min",
            format!("{first} is above client.users.dynamic_user_max, {last}"),
        ));
    }
    Ok(first..=last)
}

fn address_family(name: Option<&str>) -> Result<AddressFamily, AgentError> {
    match name {
        None | Some("" | "ipv4") => Ok(AddressFamily::Ipv4),
        Some("ipv6") => Ok(AddressFamily::Ipv6),
        Some(other) => {
            Err(bad("client.preferred_address_family", format!("{other:?} is neither ipv4 nor ipv6")))
        }
    }
}

/// Reads the `host_network` blocks.
fn host_networks(
    file: &caravan_hcl::config::ClientConfig,
) -> Result<BTreeMap<String, HostNetwork>, AgentError> {
    let mut networks = BTreeMap::new();
    for (name, block) in file.host_network.clone().unwrap_or_default() {
        let text = |value: Option<String>| value.unwrap_or_default();
        let network = HostNetwork {
            name: name.clone(),
            cidr: text(block.cidr),
            interface: text(block.interface),
            reserved_ports: text(block.reserved_ports),
        };
        networks.insert(name, network);
    }
    Ok(networks)
}

/// Reads the settings of the bridge.
fn bridge(file: &caravan_hcl::config::ClientConfig) -> Result<BridgeConfig, AgentError> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    BridgeConfig::parse(
        &text(&file.bridge_network_name),
        &text(&file.bridge_network_subnet),
        &text(&file.bridge_network_subnet_ipv6),
        file.bridge_network_hairpin_mode.unwrap_or(false),
    )
    .map_err(|fault| {
        let field = match fault {
            BridgeConfigFault::Name(_) => "client.bridge_network_name",
            BridgeConfigFault::Subnet(_) | BridgeConfigFault::Small(_) => "client.bridge_network_subnet",
            BridgeConfigFault::Subnet6(_) | BridgeConfigFault::Small6(_) => {
                "client.bridge_network_subnet_ipv6"
            }
        };
        bad(field, fault.to_string())
    })
}

/// Reads the `client` block.
pub(super) fn client(
    file: caravan_hcl::config::ClientConfig,
    data_dir: &Path,
    is_server: bool,
) -> Result<ClientSettings, AgentError> {
    let mut servers = file.servers.clone().unwrap_or_default();
    let (mut server_programs, mut retry) = (Vec::new(), RetryPlan::default());
    if let Some(join) = &file.server_join {
        if join.start_join.as_ref().is_some_and(|entries| !entries.is_empty()) {
            return Err(bad("client.server_join.start_join", "a client has no start_join: use retry_join"));
        }
        let fields = ["client.server_join.retry_max", "client.server_join.retry_interval"];
        retry = cluster::retry(join, fields)?;
        let texts = join.retry_join.as_deref().unwrap_or_default();
        let entries = entries("client.server_join.retry_join", Some(texts))?;
        for (entry, text) in entries.into_iter().zip(texts) {
            match entry {
                JoinEntry::Exec { .. } => server_programs.push(entry),
                JoinEntry::Address(_) => servers.push(text.clone()),
            }
        }
    }
    let servers: Vec<String> = servers.into_iter().map(|s| with_port(&s, RPC_PORT)).collect();
    if servers.is_empty() && server_programs.is_empty() && !is_server {
        return Err(bad("client.servers", "a client without a server of its own needs the address of one"));
    }
    let dir = |field, supplied: Option<String>, default: &str| match supplied {
        Some(dir) => absolute(field, dir),
        None => Ok(data_dir.join(default)),
    };
    let dynamic_ports = (
        port("client.min_dynamic_port", file.min_dynamic_port, DYNAMIC_PORTS.0)?,
        port("client.max_dynamic_port", file.max_dynamic_port, DYNAMIC_PORTS.1)?,
    );
    if dynamic_ports.0 > dynamic_ports.1 {
        return Err(bad(
            "client.min_dynamic_port",
            format!("{} is above client.max_dynamic_port, {}", dynamic_ports.0, dynamic_ports.1),
        ));
    }
    Ok(ClientSettings {
        servers,
        server_programs,
        retry,
        state_dir: dir("client.state_dir", file.state_dir.clone(), "client")?,
        alloc_dir: dir("client.alloc_dir", file.alloc_dir.clone(), "alloc")?,
        alloc_mounts_dir: dir("client.alloc_mounts_dir", file.alloc_mounts_dir.clone(), "alloc_mounts")?,
        host_volumes_dir: dir("client.host_volumes_dir", file.host_volumes_dir.clone(), "host_volumes")?,
        host_volume_plugin_dir: dir(
            "client.host_volume_plugin_dir",
            file.host_volume_plugin_dir.clone(),
            "host_volume_plugins",
        )?,
        dynamic_ports,
        dynamic_users: dynamic_users(&file)?,
        cgroup_parent: reserved::cgroup_parent(file.cgroup_parent.as_deref())?,
        reserved: reserved::from_config(&file)?,
        reservable_cores: reserved::cores("client.reservable_cores", file.reservable_cores.as_deref())?,
        node_class: file.node_class.clone().unwrap_or_default(),
        node_pool: file.node_pool.clone().unwrap_or_else(|| "default".into()),
        network_interface: file.network_interface.clone(),
        address_family: address_family(file.preferred_address_family.as_deref())?,
        host_networks: host_networks(&file)?,
        bridge: bridge(&file)?,
        cni_path: match file.cni_path.clone().filter(|path| !path.is_empty()) {
            Some(path) => path,
            None => std::env::var("CNI_PATH")
                .ok()
                .filter(|path| !path.is_empty())
                .unwrap_or_else(|| CNI_PATH.into()),
        },
        cni_config_dir: match file.cni_config_dir.clone().filter(|dir| !dir.is_empty()) {
            Some(dir) => absolute("client.cni_config_dir", dir)?,
            None => CNI_CONFIG_DIR.into(),
        },
        meta: file.meta.clone().unwrap_or_default(),
        file,
    })
}
