//! Device plugins: the trait, and the service that calls it.

use crate::hclspec::Spec;
use crate::value::{Attribute, StatObject, StatValue};
use crate::{DeviceError, Info};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

mod service;

pub(crate) use service::DeviceService;

/// A device plugin.
///
/// Calls run in parallel. An error of [`fingerprint`](Self::fingerprint) ends the plugin for the agent, and its
/// devices vanish from the node. A device that does not work should be listed as unhealthy instead.
#[async_trait]
pub trait DevicePlugin: Send + Sync + 'static {
    /// The configuration, from the agent's `plugin` block. [`NoConfig`](crate::NoConfig) is an empty one.
    type Config: DeserializeOwned + Send;

    /// Returns name and version.
    fn info(&self) -> Info;

    /// Returns the schema of the configuration; `None` if the plugin has no configuration.
    fn config_schema(&self) -> Option<Spec> {
        None
    }

    /// Receives the configuration, before all other calls.
    async fn configure(&self, config: Self::Config) -> Result<(), DeviceError>;

    /// Lists all devices. The agent receives the list when it changed.
    async fn fingerprint(&self) -> Result<Vec<DeviceGroup>, DeviceError>;

    /// Returns the time between two fingerprints.
    fn fingerprint_interval(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Prepares instances for a task, at each of its starts. No call follows at the task's end.
    async fn reserve(&self, ids: Vec<String>) -> Result<Reservation, DeviceError>;

    /// Measures all devices. The agent calls this method at its own interval.
    async fn stats(&self) -> Result<Vec<GroupStats>, DeviceError> {
        Ok(Vec::new())
    }
}

/// Equal devices of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceGroup {
    /// The manufacturer, such as `nvidia`.
    pub vendor: String,
    /// The kind, such as `gpu`.
    pub device_type: String,
    /// The model.
    pub name: String,
    /// The devices of this model.
    pub instances: Vec<Instance>,
    /// Facts about the model, which jobs may constrain.
    pub attributes: BTreeMap<String, Attribute>,
}

/// One device. Its id should be the same after a restart of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// The id, unique in its group.
    pub id: String,
    /// Whether tasks may use the device.
    pub healthy: bool,
    /// The reason for the health, shown to users.
    pub health_description: String,
    /// The address on the PCI bus, if it has one.
    pub pci_bus_id: Option<String>,
}

/// The variables, mounts and device nodes that a task needs to use its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Variables of the task's environment.
    pub env: BTreeMap<String, String>,
    /// Files and directories, such as libraries.
    pub mounts: Vec<Mount>,
    /// Device nodes.
    pub devices: Vec<DeviceSpec>,
}

/// A file or directory of the host that appears in the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path in the task.
    pub task_path: String,
    /// The path on the host.
    pub host_path: String,
    /// Whether the task can only read the mount.
    pub read_only: bool,
}

/// A device node of the host that appears in the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The path in the task.
    pub task_path: String,
    /// The path on the host.
    pub host_path: String,
    /// Any of `r` (read), `w` (write) and `m` (create nodes).
    pub permissions: String,
}

/// Measurements of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupStats {
    /// The vendor of the group.
    pub vendor: String,
    /// The type of the group.
    pub device_type: String,
    /// The name of the group.
    pub name: String,
    /// Measurements of the instances, by id.
    pub instances: BTreeMap<String, DeviceStats>,
}

/// Measurements of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceStats {
    /// The value that represents the others.
    pub summary: StatValue,
    /// All values.
    pub stats: StatObject,
    /// The time of the measurement.
    pub at: SystemTime,
}
