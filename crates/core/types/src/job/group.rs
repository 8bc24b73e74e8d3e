//! Task groups: what is placed together on one node.

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

/// A group of tasks that run on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskGroup {
    /// Unique in the job.
    pub name: String,
    /// Wanted allocations (per node for sysbatch).
    pub count: u32,
    /// How updates roll out; none for batch.
    pub update: Option<UpdateStrategy>,
    /// How drains move allocations; service only.
    pub migrate: Option<MigrateStrategy>,
    /// Conditions on nodes.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// Policy for an autoscaler.
    pub scaling: Option<Box<ScalingPolicy>>,
    /// Restarts on the client.
    pub restart_policy: Option<RestartPolicy>,
    /// What happens when the client is cut off.
    pub disconnect: Option<DisconnectStrategy>,
    /// Tasks, at least one.
    #[serde(with = "nil")]
    pub tasks: Vec<Task>,
    /// Disk that goes with the allocation.
    pub ephemeral_disk: Option<EphemeralDisk>,
    /// Free pairs.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    /// Moves to other nodes after failure.
    pub reschedule_policy: Option<ReschedulePolicy>,
    /// Wishes about nodes.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
    /// Spreads.
    #[serde(with = "nil")]
    pub spreads: Vec<Spread>,
    /// Networks; the first one counts.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// Which service registry it belongs to.
    pub consul: Option<Box<Consul>>,
    /// Services of the group as a whole.
    #[serde(with = "nil")]
    pub services: Vec<ServiceSpec>,
    /// Volumes by alias.
    #[serde(with = "nil")]
    pub volumes: BTreeMap<String, VolumeRequest>,
    /// Wait between deregistering services and stopping tasks.
    pub shutdown_delay: Option<Nanos>,
    /// Longest run; batch only.
    pub max_run_duration: Option<Nanos>,
    /// Ignored, kept because clients send it.
    pub stop_after_client_disconnect: Option<Nanos>,
    /// Ignored, kept because clients send it.
    pub max_client_disconnect: Option<Nanos>,
    /// Ignored, kept because clients send it.
    pub prevent_reschedule_on_lost: bool,
}

impl TaskGroup {
    /// The task of this name.
    pub fn task(&self, name: &str) -> Option<&Task> {
        self.tasks.iter().find(|t| t.name == name)
    }
    /// The group's CSI volume requests, with their aliases.
    pub fn csi_volumes(&self) -> impl Iterator<Item = (&String, &VolumeRequest)> {
        self.volumes.iter().filter(|(_, v)| v.kind == VolumeType::Csi)
    }
    /// The group's host volume requests, with their aliases.
    pub fn host_volumes(&self) -> impl Iterator<Item = (&String, &VolumeRequest)> {
        self.volumes.iter().filter(|(_, v)| v.kind == VolumeType::Host)
    }
    /// Disk asked for, in MB.
    pub fn disk_mb(&self) -> i64 {
        self.ephemeral_disk.as_ref().map_or(0, |d| d.size_mb)
    }
}

blocks! {
    /// Which service registry a group or a task belongs to.
    Consul {
        namespace: String = "Namespace";
        cluster: String = "Cluster";
        partition: String = "Partition";
    }
}

/// Disk of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EphemeralDisk {
    /// Prefer the same node on update.
    pub sticky: bool,
    /// Size in MB.
    #[serde(rename = "SizeMB")]
    pub size_mb: i64,
    /// Move the data along.
    pub migrate: bool,
}

impl Default for EphemeralDisk {
    fn default() -> Self {
        Self { sticky: false, size_mb: 300, migrate: false }
    }
}
