//! Task groups: tasks that run together on one node.

use super::{
    Affinity, Constraint, DisconnectStrategy, MigrateStrategy, Network, ReschedulePolicy, RestartPolicy,
    Spread, Task, UpdateStrategy, VolumeRequest, VolumeType, blocks,
};
use crate::scaling::ScalingPolicy;
use crate::ser::nil;
use crate::service::ServiceSpec;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A group of tasks that run together on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskGroup {
    /// The name, unique in the job.
    pub name: String,
    /// The desired number of allocations (on each node for sysbatch).
    pub count: u32,
    /// The update strategy; `None` for batch.
    pub update: Option<UpdateStrategy>,
    /// The rules by which drains move allocations; only for services.
    pub migrate: Option<MigrateStrategy>,
    /// The conditions that nodes must meet.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// The scaling policy for an autoscaler.
    pub scaling: Option<Box<ScalingPolicy>>,
    /// The rules by which the client restarts tasks.
    pub restart_policy: Option<RestartPolicy>,
    /// The behaviour while the client is not in contact.
    pub disconnect: Option<DisconnectStrategy>,
    /// The tasks, at least one.
    #[serde(with = "nil")]
    pub tasks: Vec<Task>,
    /// The disk space of an allocation.
    pub ephemeral_disk: Option<EphemeralDisk>,
    /// Key and value pairs of the user.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    /// The rules by which failed allocations are placed again.
    pub reschedule_policy: Option<ReschedulePolicy>,
    /// The preferences for nodes.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
    /// The preferences for spreading allocations.
    #[serde(with = "nil")]
    pub spreads: Vec<Spread>,
    /// The networks; only the first one is used.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// The service registry of the group.
    pub consul: Option<Box<Consul>>,
    /// The services of the whole group.
    #[serde(with = "nil")]
    pub services: Vec<ServiceSpec>,
    /// The volume requests, by alias.
    #[serde(with = "nil")]
    pub volumes: BTreeMap<String, VolumeRequest>,
    /// The wait between deregistering services and stopping tasks.
    pub shutdown_delay: Option<Nanos>,
    /// The longest time that an allocation may run; only for batch.
    pub max_run_duration: Option<Nanos>,
    /// A setting that `disconnect` replaces; without effect, kept because clients send it.
    pub stop_after_client_disconnect: Option<Nanos>,
    /// A setting that `disconnect` replaces; without effect, kept because clients send it.
    pub max_client_disconnect: Option<Nanos>,
    /// A setting that `disconnect` replaces; without effect, kept because clients send it.
    pub prevent_reschedule_on_lost: bool,
}

impl TaskGroup {
    /// Returns the task with a name.
    pub fn task(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|t| t.name == name)
    }
    /// Returns the CSI volume requests with their aliases.
    pub fn csi_volumes(&self) -> impl Iterator<Item = (&String, &VolumeRequest)> {
        self.volumes.iter().filter(|(_, v)| v.kind == VolumeType::Csi)
    }
    /// Returns the host volume requests with their aliases.
    pub fn host_volumes(&self) -> impl Iterator<Item = (&String, &VolumeRequest)> {
        self.volumes.iter().filter(|(_, v)| v.kind == VolumeType::Host)
    }
    /// Returns the requested disk space in MB.
    pub fn disk_mb(&self) -> i64 {
        self.ephemeral_disk.as_ref().map_or(0, |d| d.size_mb)
    }
}

blocks! {
    /// The service registry of a group or a task.
    Consul {
        namespace: String = "Namespace";
        cluster: String = "Cluster";
        partition: String = "Partition";
    }
}

/// The disk space of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EphemeralDisk {
    /// Whether an update prefers the same node.
    pub sticky: bool,
    /// The size in MB.
    #[serde(rename = "SizeMB")]
    pub size_mb: i64,
    /// Whether the data moves with the allocation to another node.
    pub migrate: bool,
}

impl Default for EphemeralDisk {
    fn default() -> Self {
        Self { sticky: false, size_mb: 300, migrate: false }
    }
}
