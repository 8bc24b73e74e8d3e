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

/// Where a node stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeStatus {
    /// Registered, not ready yet.
    #[default]
    Initializing,
    /// Takes allocations.
    Ready,
    /// Heartbeats were missed.
    Down,
    /// Heartbeats were missed, its allocations may come back.
    Disconnected,
}

impl NodeStatus {
    /// Whether the servers hear of the node: its heartbeats are answered and renew its lease.
    pub fn in_contact(self) -> bool {
        matches!(self, Self::Initializing | Self::Ready)
    }
    /// The word clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Ready => "ready",
            Self::Down => "down",
            Self::Disconnected => "disconnected",
        }
    }
}

/// Whether the scheduler may place there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eligibility {
    /// Yes.
    #[default]
    Eligible,
    /// No.
    Ineligible,
}

impl Eligibility {
    /// The word clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eligible => "eligible",
            Self::Ineligible => "ineligible",
        }
    }
}

/// The secret with which a node proves who it is. `Debug` hides it; JSON shows an empty string. Comparing takes the same
/// time whatever differs.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct NodeSecret(String);

impl NodeSecret {
    /// Takes a secret into custody.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
    /// The text, for comparison and for the wire between agents.
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

/// A client agent.
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
    /// Seconds since the epoch.
    pub status_updated_at: i64,
    #[serde(with = "nil")]
    pub events: Vec<NodeEvent>,
    pub drivers: BTreeMap<String, DriverInfo>,
    #[serde(rename = "CSIControllerPlugins")]
    pub csi_controller_plugins: BTreeMap<PluginId, CsiInfo>,
    #[serde(rename = "CSINodePlugins")]
    pub csi_node_plugins: BTreeMap<PluginId, CsiInfo>,
    /// Mounts that plugins left here when they ended.
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
    /// Whether the scheduler may place new allocations here.
    pub fn is_schedulable(&self) -> bool {
        self.status == NodeStatus::Ready
            && self.scheduling_eligibility == Eligibility::Eligible
            && self.drain_strategy.is_none()
    }
    /// Why the scheduler may not place here, in a word; none if it may.
    pub fn away(&self) -> Option<&'static str> {
        match self.status {
            NodeStatus::Ready if self.drain_strategy.is_some() => Some("draining"),
            NodeStatus::Ready if self.scheduling_eligibility == Eligibility::Ineligible => Some("ineligible"),
            NodeStatus::Ready => None,
            status => Some(status.as_str()),
        }
    }
    /// Most events kept.
    pub const MAX_EVENTS: usize = 10;

    /// Adds an event, dropping the oldest beyond the limit.
    pub fn push_event(&mut self, event: NodeEvent) {
        self.events.push(event);
        let surplus = self.events.len().saturating_sub(Self::MAX_EVENTS);
        self.events.drain(..surplus);
    }
}

/// Drain in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DrainStrategy {
    /// Allowed time; negative = force.
    pub deadline: Nanos,
    /// Leave system jobs.
    pub ignore_system_jobs: bool,
    /// When the deadline passes.
    pub force_deadline: Time,
    /// Start.
    pub started_at: Time,
}

/// The last drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LastDrain {
    /// Start.
    pub started_at: Time,
    /// Last change.
    pub updated_at: Time,
    /// `draining`, `complete` or `canceled`.
    pub status: String,
    /// Who.
    #[serde(rename = "AccessorID")]
    pub accessor_id: String,
    /// Free pairs.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
}

/// Something that happened to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeEvent {
    /// Sentence.
    pub message: String,
    /// `Cluster`, `Driver`, `Storage`, `CSI`, `Heartbeat`, `Drain`, `Scheduler`.
    pub subsystem: String,
    /// Pairs.
    #[serde(with = "nil")]
    pub details: BTreeMap<String, String>,
    /// When.
    pub timestamp: Time,
    /// Index.
    pub create_index: u64,
}

/// A driver as the node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DriverInfo {
    /// Attributes.
    #[serde(with = "nil")]
    pub attributes: BTreeMap<String, String>,
    /// There is one.
    pub detected: bool,
    /// It works.
    pub healthy: bool,
    /// Words.
    pub health_description: String,
    /// Last change.
    pub update_time: Time,
}

/// A directory of the host offered to jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostVolumeInfo {
    /// Name.
    pub name: String,
    /// Directory.
    pub path: String,
    /// Only reads.
    pub read_only: bool,
    /// Set for dynamic ones.
    #[serde(rename = "ID")]
    pub id: String,
}

/// A network of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HostNetwork {
    /// Name.
    pub name: String,
    /// Range.
    #[serde(rename = "CIDR")]
    pub cidr: String,
    /// Interface.
    pub interface: String,
    /// Ports not to use, `22,80,8500-8600`.
    pub reserved_ports: String,
}

/// A description of processors, as their node reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hardware(pub serde_json::Value);

/// What a node has.
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

/// CPU of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeCpu {
    /// MHz in total.
    pub cpu_shares: i64,
    /// Cores.
    pub total_cpu_cores: u32,
    /// Cores that may be reserved.
    #[serde(with = "nil")]
    pub reservable_cpu_cores: Vec<u16>,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Processors {
    /// Nodes, cores and their distances.
    pub topology: Option<Hardware>,
}

/// Memory of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeMemory {
    /// MB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
}

/// Disk of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeDisk {
    /// MB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
}

/// An interface of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeNetwork {
    /// `host`.
    pub mode: String,
    /// Interface.
    pub device: String,
    /// Hardware address.
    pub mac_address: String,
    /// Mbit/s.
    pub speed: i64,
    /// Addresses.
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
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Host network.
    pub alias: String,
    /// Address.
    pub address: String,
    /// Ports not to use.
    pub reserved_ports: String,
    /// Gateway.
    pub gateway: String,
}

/// What a node keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "fields are those of docs/reference/http-api.md, section 5.4")]
pub struct ReservedResources {
    pub cpu: ReservedCpu,
    pub memory: NodeMemory,
    pub disk: NodeDisk,
    pub networks: ReservedNetworks,
}

/// CPU kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReservedCpu {
    /// MHz.
    pub cpu_shares: i64,
    /// Cores.
    #[serde(with = "nil")]
    pub reserved_cpu_cores: Vec<u16>,
}

/// Ports kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReservedNetworks {
    /// `22,80,8500-8600`.
    pub reserved_host_ports: String,
}

/// The node in lists.
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
    /// The version of the node's agent.
    pub fn version(&self) -> &str {
        let named = |key: &str| self.attributes.get(key).map(String::as_str);
        named("caravan.version").or_else(|| named("nomad.version")).unwrap_or_default()
    }

    /// The element of a list; attributes and resources are added on demand by the caller.
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
