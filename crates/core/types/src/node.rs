//! Nodes: the client agents (docs/reference/http-api.md, section 5.4).

use crate::device::DeviceGroup;
use crate::id::{NodeId, PluginId};
use crate::job::Network;
use crate::plugin::{CsiInfo, LeftMount};
use crate::ser::nil;
use crate::small::Text;
use crate::time::{Nanos, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use subtle::ConstantTimeEq as _;

/// The status of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// The node has registered, but is not ready.
    #[default]
    Initializing,
    /// The node accepts allocations.
    Ready,
    /// Heartbeats were missed, and the allocations are replaced.
    Down,
    /// Heartbeats were missed, but the allocations may reconnect.
    Disconnected,
}

impl NodeStatus {
    /// Returns whether the servers receive heartbeats of the node. Their responses renew its lease.
    pub fn in_contact(self) -> bool {
        matches!(self, Self::Initializing | Self::Ready)
    }
    /// Returns the name of the status in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Ready => "ready",
            Self::Down => "down",
            Self::Disconnected => "disconnected",
        }
    }
}

/// Whether the scheduler may place allocations on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eligibility {
    /// The scheduler may place allocations.
    #[default]
    Eligible,
    /// The scheduler places no allocations.
    Ineligible,
}

impl Eligibility {
    /// Returns the name of the value in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eligible => "eligible",
            Self::Ineligible => "ineligible",
        }
    }
}

/// The secret with which a node proves its identity. `Debug` hides the text, and JSON shows an empty string. A
/// comparison takes the same time for all secrets of the same length.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct NodeSecret(String);

impl NodeSecret {
    /// Wraps the text of a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// Returns the text, for comparison and for messages between agents.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for NodeSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for NodeSecret {}

impl fmt::Debug for NodeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl Serialize for NodeSecret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = if serializer.is_human_readable() { "" } else { &self.0 };
        serializer.serialize_str(text)
    }
}

/// A machine with a client agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.4")]
pub struct Node {
    #[serde(rename = "ID")]
    pub id: NodeId,
    #[serde(rename = "SecretID")]
    pub secret_id: NodeSecret,
    pub datacenter: String,
    pub name: Text,
    pub cgroup_parent: String,
    #[serde(rename = "HTTPAddr")]
    pub http_addr: String,
    #[serde(rename = "TLSEnabled")]
    pub tls_enabled: bool,
    #[serde(with = "nil")]
    pub attributes: BTreeMap<String, String>,
    pub node_resources: NodeResources,
    pub reserved_resources: ReservedResources,
    pub links: BTreeMap<String, String>,
    pub meta: BTreeMap<String, String>,
    pub node_class: String,
    pub node_pool: String,
    pub computed_class: String,
    pub drain_strategy: Option<DrainStrategy>,
    pub scheduling_eligibility: Eligibility,
    pub status: NodeStatus,
    pub status_description: String,
    #[serde(rename = "IdentitySigningKeyID")]
    pub identity_signing_key_id: String,
    /// The time of the last change of `status`, in seconds since the epoch.
    pub status_updated_at: i64,
    #[serde(with = "nil")]
    pub events: Vec<NodeEvent>,
    pub drivers: BTreeMap<String, DriverInfo>,
    #[serde(rename = "CSIControllerPlugins")]
    pub csi_controller_plugins: BTreeMap<PluginId, CsiInfo>,
    #[serde(rename = "CSINodePlugins")]
    pub csi_node_plugins: BTreeMap<PluginId, CsiInfo>,
    /// The mounts that plugins left on the node when they ended.
    #[serde(rename = "CaravanLeftMounts", skip_serializing_if = "Vec::is_empty")]
    pub left_mounts: Vec<LeftMount>,
    pub host_volumes: BTreeMap<String, HostVolumeInfo>,
    #[serde(rename = "GCVolumesOnNodeGC")]
    pub gc_volumes_on_node_gc: bool,
    #[serde(with = "nil")]
    pub host_networks: BTreeMap<String, HostNetwork>,
    pub last_drain: Option<LastDrain>,
    pub node_max_allocs: i64,
    pub last_missed_heartbeat_index: u64,
    pub last_alloc_update_index: u64,
    pub create_index: u64,
    pub modify_index: u64,
}

impl Node {
    /// Returns whether the scheduler may place new allocations on the node.
    pub fn is_schedulable(&self) -> bool {
        self.status == NodeStatus::Ready
            && self.scheduling_eligibility == Eligibility::Eligible
            && self.drain_strategy.is_none()
    }
    /// Returns the reason that the scheduler may not place on the node, in one word; `None` if it may.
    pub fn away(&self) -> Option<&'static str> {
        match self.status {
            NodeStatus::Ready if self.drain_strategy.is_some() => Some("draining"),
            NodeStatus::Ready if self.scheduling_eligibility == Eligibility::Ineligible => Some("ineligible"),
            NodeStatus::Ready => None,
            status => Some(status.as_str()),
        }
    }
    /// The number of events that are kept.
    pub const MAX_EVENTS: usize = 10;

    /// Adds an event and removes the oldest events beyond the limit.
    pub fn push_event(&mut self, event: NodeEvent) {
        self.events.push(event);
        let surplus = self.events.len().saturating_sub(Self::MAX_EVENTS);
        self.events.drain(..surplus);
    }
}

/// A drain in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainStrategy {
    /// The time that allocations have to move off the node. 0 means no limit; a negative time stops them immediately.
    pub deadline: Nanos,
    /// Whether allocations of system jobs stay.
    pub ignore_system_jobs: bool,
    /// The time at which the deadline passes.
    pub force_deadline: Time,
    /// The start of the drain.
    pub started_at: Time,
}

/// The last drain of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LastDrain {
    /// The start of the drain.
    pub started_at: Time,
    /// The time of the last change of the drain.
    pub updated_at: Time,
    /// `draining`, `complete` or `canceled`.
    pub status: String,
    /// The identity of the caller who last changed the drain, such as `token:` with the accessor.
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    /// Metadata that the user set with the drain.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
}

/// An event of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeEvent {
    /// The text for users, one sentence.
    pub message: String,
    /// `Cluster`, `Driver`, `Storage`, `CSI`, `Heartbeat`, `Drain`, `Scheduler`.
    pub subsystem: String,
    /// The facts of the event, by name.
    #[serde(with = "nil")]
    pub details: BTreeMap<String, String>,
    /// The time of the event.
    pub timestamp: Time,
    /// The Raft index at which the event was stored.
    pub create_index: u64,
}

/// A driver as the node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DriverInfo {
    /// The attributes of the driver, by name.
    #[serde(with = "nil")]
    pub attributes: BTreeMap<String, String>,
    /// Whether the node has the driver.
    pub detected: bool,
    /// Whether the driver can start tasks.
    pub healthy: bool,
    /// The reason for the health, for users.
    pub health_description: String,
    /// The time of the last change of the report.
    pub update_time: Time,
}

/// A host volume of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeInfo {
    /// The name in job files.
    pub name: String,
    /// The path of the directory on the node.
    pub path: String,
    /// Whether tasks can only read the volume.
    pub read_only: bool,
    /// The id of a host volume that a user created; empty for a configured one.
    #[serde(rename = "ID")]
    pub id: String,
}

/// A host network of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostNetwork {
    /// The name in job files.
    pub name: String,
    /// The range of addresses that belong to the network.
    #[serde(rename = "CIDR")]
    pub cidr: String,
    /// The interface of the network.
    pub interface: String,
    /// The ports that the scheduler does not assign, such as `22,80,8500-8600`.
    pub reserved_ports: String,
}

/// A description of processors, as their node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hardware(pub serde_json::Value);

/// The resources of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.4")]
pub struct NodeResources {
    pub cpu: NodeCpu,
    pub processors: Processors,
    pub memory: NodeMemory,
    pub disk: NodeDisk,
    #[serde(with = "nil")]
    pub devices: Vec<DeviceGroup>,
    #[serde(with = "nil")]
    pub node_networks: Vec<NodeNetwork>,
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    pub min_dynamic_port: i64,
    pub max_dynamic_port: i64,
}

/// The CPU of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeCpu {
    /// The sum of all cores, in MHz.
    pub cpu_shares: i64,
    /// The number of cores.
    pub total_cpu_cores: u32,
    /// The numbers of the cores that tasks can reserve.
    #[serde(with = "nil")]
    pub reservable_cpu_cores: Vec<u16>,
}

/// The processors of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Processors {
    /// The NUMA nodes, their cores and their distances.
    pub topology: Option<Hardware>,
}

/// The memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeMemory {
    /// Memory in MB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
}

/// The disk of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeDisk {
    /// Disk in MB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
}

/// A network of a node, with its interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeNetwork {
    /// The mode, such as `host`.
    pub mode: String,
    /// The name of the interface.
    pub device: String,
    /// The hardware address of the interface.
    pub mac_address: String,
    /// The speed in Mbit/s.
    pub speed: i64,
    /// The addresses of the interface.
    #[serde(with = "nil")]
    pub addresses: Vec<NodeAddress>,
    /// The most allocations that can have the network at the same time; 0 means no limit.
    #[serde(rename = "CaravanCapacity", skip_serializing_if = "crate::ser::is_default")]
    pub capacity: u32,
}

/// An address of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeAddress {
    /// The family: `ipv4` or `ipv6`.
    pub family: String,
    /// The name of the host network to which the address belongs.
    pub alias: String,
    /// The address in text form.
    pub address: String,
    /// The ports that the scheduler does not assign, such as `22,80,8500-8600`.
    pub reserved_ports: String,
    /// The gateway of the address.
    pub gateway: String,
}

/// The resources of a node that are not available to tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.4")]
pub struct ReservedResources {
    pub cpu: ReservedCpu,
    pub memory: NodeMemory,
    pub disk: NodeDisk,
    pub networks: ReservedNetworks,
}

/// The reserved CPU of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReservedCpu {
    /// CPU in MHz.
    pub cpu_shares: i64,
    /// The numbers of the reserved cores.
    #[serde(with = "nil")]
    pub reserved_cpu_cores: Vec<u16>,
}

/// The reserved ports of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReservedNetworks {
    /// The ports, such as `22,80,8500-8600`.
    pub reserved_host_ports: String,
}

/// A node in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "the fields are those of Node")]
pub struct NodeListStub {
    pub address: String,
    #[serde(rename = "ID")]
    pub id: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<BTreeMap<String, String>>,
    pub datacenter: String,
    pub name: String,
    pub node_pool: String,
    pub node_class: String,
    pub version: String,
    pub drain: bool,
    pub scheduling_eligibility: Eligibility,
    pub status: NodeStatus,
    pub status_description: String,
    pub drivers: BTreeMap<String, DriverInfo>,
    pub host_volumes: BTreeMap<String, HostVolumeInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_resources: Option<NodeResources>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_resources: Option<ReservedResources>,
    pub last_drain: Option<LastDrain>,
    pub create_index: u64,
    pub modify_index: u64,
}

impl Node {
    /// Returns the version of the node's agent.
    pub fn version(&self) -> &str {
        let named = |key: &str| self.attributes.get(key).map(String::as_str);
        named("caravan.version").or_else(|| named("nomad.version")).unwrap_or_default()
    }

    /// Returns the node as an element of a list, without attributes and resources, which the caller adds on request.
    pub fn stub(&self) -> NodeListStub {
        NodeListStub {
            address: self.http_addr.rsplit_once(':').map_or("", |(host, _)| host).to_owned(),
            id: self.id.clone(),
            attributes: None,
            datacenter: self.datacenter.clone(),
            name: self.name.to_string(),
            node_pool: self.node_pool.clone(),
            node_class: self.node_class.clone(),
            version: self.version().to_owned(),
            drain: self.drain_strategy.is_some(),
            scheduling_eligibility: self.scheduling_eligibility,
            status: self.status,
            status_description: self.status_description.clone(),
            drivers: self.drivers.clone(),
            host_volumes: self.host_volumes.clone(),
            node_resources: None,
            reserved_resources: None,
            last_drain: self.last_drain.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_travels_between_agents_only() {
        let node = Node { secret_id: NodeSecret::new("s3cret"), ..Default::default() };
        assert!(!serde_json::to_string(&node).unwrap().contains("s3cret"));
        assert!(!format!("{node:?}").contains("s3cret"));
        let packed = rmp_serde::to_vec_named(&node).unwrap();
        assert_eq!(rmp_serde::from_slice::<Node>(&packed).unwrap().secret_id.expose(), "s3cret");
    }
}
