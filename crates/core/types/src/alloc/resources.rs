//! The resources of a node that a plan reserves for an allocation.

use crate::job::{Lifecycle, Network};
use crate::ser::{is_default, nil};
use crate::small::Map;
use serde::{Deserialize, Serialize};

/// The resources that a plan reserved for an allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedResources {
    /// The resources of the tasks, by name.
    pub tasks: Map<String, AllocatedTaskResources>,
    /// The lifecycles of the tasks, by name; `None` for a main task.
    pub task_lifecycles: Map<String, Option<Lifecycle>>,
    /// The resources that the tasks of the group share.
    pub shared: AllocatedSharedResources,
}

/// The resources of one task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedTaskResources {
    /// The CPU of the task.
    pub cpu: AllocatedCpu,
    /// The memory of the task.
    pub memory: AllocatedMemory,
    /// Networks of the task, a deprecated form.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// The devices that only this task uses.
    #[serde(with = "nil")]
    pub devices: Vec<AllocatedDevice>,
}

/// The CPU of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedCpu {
    /// CPU in MHz.
    pub cpu_shares: i64,
    /// The numbers of the cores that only this task uses.
    #[serde(with = "nil")]
    pub reserved_cores: Vec<u16>,
}

/// The memory of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedMemory {
    /// The reserved memory in MB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    /// The limit in MB where memory may be oversubscribed.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
}

/// The instances of one device group that a task uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedDevice {
    /// The vendor, such as `nvidia`.
    pub vendor: String,
    /// The type, such as `gpu`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// The model, such as `1080ti`.
    pub name: String,
    /// The ids of the instances.
    #[serde(rename = "DeviceIDs", with = "nil")]
    pub device_ids: Vec<String>,
}

/// The resources that the tasks of a group share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedSharedResources {
    /// The networks, with the numbers of their ports.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// Disk in MB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    /// The ports of all networks of the group, each with its label.
    #[serde(with = "nil")]
    pub ports: Vec<AllocatedPort>,
}

/// A port that the scheduler assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedPort {
    /// The label in the job file.
    #[serde(skip_serializing_if = "is_default")]
    pub label: String,
    /// The number on the node.
    #[serde(skip_serializing_if = "is_default")]
    pub value: i64,
    /// The number inside the network namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub to: i64,
    /// The address on the node.
    #[serde(rename = "HostIP", skip_serializing_if = "is_default")]
    pub host_ip: String,
    /// Whether other allocations may have the same port.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_collision: bool,
}
