//! What tasks and groups ask of a node.

use super::{Affinity, Constraint, blocks};
use crate::ser::{is_default, nil};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

blocks! {
    /// Placement on NUMA nodes.
    Numa {
        /// `none`, `prefer` or `require`.
        affinity: String = "Affinity";
        /// Names of the devices that are to be near the cores.
        devices: Option<Vec<String>> = "Devices";
    }

    /// Name servers of a network namespace.
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

/// Resources of one task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Resources {
    /// MHz.
    #[serde(rename = "CPU")]
    pub cpu: i64,
    /// Whole cores.
    pub cores: i64,
    /// MB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    /// MB, when memory may be oversubscribed; -1 = no limit.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
    /// Unused.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    /// Unused.
    #[serde(rename = "IOPS")]
    pub iops: i64,
    /// Deprecated task-level networks.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// Devices.
    #[serde(with = "nil")]
    pub devices: Vec<RequestedDevice>,
    /// Whether the cores are to be of one NUMA node ([`Self::numa_wish`]).
    #[serde(rename = "NUMA")]
    pub numa: Option<Box<Numa>>,
    /// Size of the secrets tmpfs in MB; 0 = 1.
    #[serde(rename = "SecretsMB")]
    pub secrets_mb: i64,
}

impl Resources {
    /// `prefer` or `require`, if all cores are to be of one NUMA node.
    pub fn numa_wish(&self) -> Option<&str> {
        let affinity = self.numa.as_ref()?.affinity.as_str();
        Some(affinity).filter(|affinity| !matches!(*affinity, "" | "none"))
    }
}

/// A device asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RequestedDevice {
    /// `type`, `vendor/type` or `vendor/type/name`.
    pub name: String,
    /// How many.
    pub count: u64,
    /// Conditions on the device.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// Wishes about the device.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
}

/// A network of a group, as asked for or as given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Network {
    /// `host`, `bridge`, `none`, `cni/…`.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: String,
    /// Interface.
    #[serde(skip_serializing_if = "is_default")]
    pub device: String,
    /// Range.
    #[serde(rename = "CIDR", skip_serializing_if = "is_default")]
    pub cidr: String,
    /// Address.
    #[serde(rename = "IP", skip_serializing_if = "is_default")]
    pub ip: String,
    /// Host name inside.
    #[serde(skip_serializing_if = "is_default")]
    pub hostname: String,
    /// Deprecated.
    #[serde(rename = "MBits", skip_serializing_if = "is_default")]
    pub mbits: i64,
    /// Name servers inside.
    #[serde(rename = "DNS", skip_serializing_if = "is_default")]
    pub dns: Option<Box<Dns>>,
    /// Ports with a fixed number.
    #[serde(skip_serializing_if = "is_default")]
    pub reserved_ports: Vec<Port>,
    /// Ports whose number the scheduler picks.
    #[serde(skip_serializing_if = "is_default")]
    pub dynamic_ports: Vec<Port>,
    /// Arguments for CNI plugins.
    #[serde(rename = "CNI", skip_serializing_if = "is_default")]
    pub cni: Option<Box<Cni>>,
}

/// A labelled port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Port {
    /// Name in the job file.
    #[serde(skip_serializing_if = "is_default")]
    pub label: String,
    /// Number on the host; 0 until given.
    #[serde(skip_serializing_if = "is_default")]
    pub value: i64,
    /// Number inside a network namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub to: i64,
    /// Which of the node's networks.
    #[serde(skip_serializing_if = "is_default")]
    pub host_network: String,
    /// Several tasks may bind it.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_collision: bool,
}

impl Network {
    /// Returns whether a text can be a hostname: labels of letters, digits and dashes, at most 253 characters together.
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
