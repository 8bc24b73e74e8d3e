//! What an allocation was given of its node.

use crate::job::{Lifecycle, Network};
use crate::ser::{is_default, nil};
use crate::small::Map;
use serde::{Deserialize, Serialize};

/// What an allocation was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedResources {
    /// By task.
    pub tasks: Map<String, AllocatedTaskResources>,
    /// Lifecycles by task.
    pub task_lifecycles: Map<String, Option<Lifecycle>>,
    /// Of the group.
    pub shared: AllocatedSharedResources,
}

/// What a task was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedTaskResources {
    /// CPU.
    pub cpu: AllocatedCpu,
    /// Memory.
    pub memory: AllocatedMemory,
    /// Task-level networks.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// Devices.
    #[serde(with = "nil")]
    pub devices: Vec<AllocatedDevice>,
}

/// CPU given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedCpu {
    /// MHz.
    pub cpu_shares: i64,
    /// Whole cores.
    #[serde(with = "nil")]
    pub reserved_cores: Vec<u16>,
}

/// Memory given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedMemory {
    /// MB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    /// MB.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
}

/// Devices given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedDevice {
    /// Vendor.
    pub vendor: String,
    /// Type.
    #[serde(rename = "Type")]
    pub kind: String,
    /// Name.
    pub name: String,
    /// Instances.
    #[serde(rename = "DeviceIDs", with = "nil")]
    pub device_ids: Vec<String>,
}

/// What the group was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedSharedResources {
    /// Networks with the ports given.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// MB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    /// Ports by label.
    #[serde(with = "nil")]
    pub ports: Vec<AllocatedPort>,
}

/// A port given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedPort {
    /// Label.
    #[serde(skip_serializing_if = "is_default")]
    pub label: String,
    /// On the host.
    #[serde(skip_serializing_if = "is_default")]
    pub value: i64,
    /// Inside.
    #[serde(skip_serializing_if = "is_default")]
    pub to: i64,
    /// Address of the host.
    #[serde(rename = "HostIP", skip_serializing_if = "is_default")]
    pub host_ip: String,
    /// Shared.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_collision: bool,
}
