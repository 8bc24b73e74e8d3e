//! The resources that tasks and groups request of a node.

use super::{Affinity, Constraint, blocks};
use crate::ser::{is_default, nil};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

blocks! {
    /// Placement on NUMA nodes.
    Numa {
        /// `none`, `prefer` or `require`.
        affinity: String = "Affinity";
        /// The names of the devices that must be near the cores.
        devices: Option<Vec<String>> = "Devices";
    }

    /// The settings of a network namespace's resolver.
    Dns {
        servers: Option<Vec<String>> = "Servers";
        searches: Option<Vec<String>> = "Searches";
        options: Option<Vec<String>> = "Options";
    }

    /// Arguments for CNI plugins.
    Cni {
        args: Option<BTreeMap<String, String>> = "Args";
    }
}

/// The resources that one task requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Resources {
    /// CPU in MHz.
    #[serde(rename = "CPU")]
    pub cpu: i64,
    /// The number of whole cores.
    pub cores: i64,
    /// Memory in MB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    /// The limit of memory in MB where memory may be oversubscribed; -1 means no limit.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
    /// Disk in MB; without effect.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    /// Input and output operations per second; without effect.
    #[serde(rename = "IOPS")]
    pub iops: i64,
    /// Networks of the task, a deprecated form.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// The requested devices.
    #[serde(with = "nil")]
    pub devices: Vec<RequestedDevice>,
    /// The preference for cores of one NUMA node ([`Self::numa_wish`]).
    #[serde(rename = "NUMA")]
    pub numa: Option<Box<Numa>>,
    /// The size of the tmpfs for secrets in MB; 0 means 1 MB.
    #[serde(rename = "SecretsMB")]
    pub secrets_mb: i64,
}

impl Resources {
    /// Returns `prefer` or `require` if all cores should be on one NUMA node.
    pub fn numa_wish(&self) -> Option<&str> {
        let affinity = self.numa.as_ref()?.affinity.as_str();
        Some(affinity).filter(|affinity| !matches!(*affinity, "" | "none"))
    }
}

/// A request for devices of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RequestedDevice {
    /// The devices: `type`, `vendor/type` or `vendor/type/name`.
    pub name: String,
    /// The number of devices.
    pub count: u64,
    /// The conditions that the devices must meet.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// The preferences for devices.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
}

/// A network of a group: requested in a job, assigned in an allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Network {
    /// The mode: `host`, `bridge`, `none` or `cni/…`.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: String,
    /// The name of the node's interface.
    #[serde(skip_serializing_if = "is_default")]
    pub device: String,
    /// The range of addresses of the node's network.
    #[serde(rename = "CIDR", skip_serializing_if = "is_default")]
    pub cidr: String,
    /// The address on the node.
    #[serde(rename = "IP", skip_serializing_if = "is_default")]
    pub ip: String,
    /// The host name inside the network namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: String,
    /// The bandwidth in Mbit/s, which is deprecated.
    #[serde(rename = "MBits", skip_serializing_if = "is_default")]
    pub mbits: i64,
    /// The settings of the resolver inside the network namespace.
    #[serde(rename = "DNS", skip_serializing_if = "is_default")]
    pub dns: Option<Box<Dns>>,
    /// The ports with a fixed number.
    #[serde(skip_serializing_if = "is_default")]
    pub reserved_ports: Vec<Port>,
    /// The ports whose number the scheduler selects.
    #[serde(skip_serializing_if = "is_default")]
    pub dynamic_ports: Vec<Port>,
    /// The arguments for CNI plugins.
    #[serde(rename = "CNI", skip_serializing_if = "is_default")]
    pub cni: Option<Box<Cni>>,
}

/// A labelled port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Port {
    /// The name in the job file.
    #[serde(skip_serializing_if = "is_default")]
    pub label: String,
    /// The number on the node; 0 until the scheduler assigns one.
    #[serde(skip_serializing_if = "is_default")]
    pub value: i64,
    /// The number inside the network namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub to: i64,
    /// The name of the node's host network.
    #[serde(skip_serializing_if = "is_default")]
    pub host_network: String,
    /// Whether several allocations may have the same number.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_collision: bool,
}

impl Network {
    /// Returns whether a text can be a hostname: labels of letters, digits and dashes, at most 253 characters
    /// together.
    pub fn is_hostname(name: &str) -> bool {
        name.len() <= 253 && name.split('.').all(is_label)
    }
}

/// Returns whether a text is one label of a DNS name (RFC 1123): at most 63 letters, digits and dashes, no dash at an
/// end.
pub fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}
