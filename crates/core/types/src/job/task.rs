//! Tasks: the programs that drivers run.

use super::blocks;
use super::{
    Affinity, Artifact, Constraint, Consul, DispatchPayload, Resources, RestartPolicy, Template, Unsupported,
    VolumeMount,
};
use crate::id::PluginId;
use crate::identity::IdentitySpec;
use crate::scaling::ScalingPolicy;
use crate::ser::nil;
use crate::service::ServiceSpec;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One task of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Task {
    /// The name, unique in the group.
    pub name: String,
    /// The name of the driver.
    pub driver: String,
    /// The user as whom the task runs.
    pub user: String,
    /// The configuration of the driver, which the driver checks.
    #[serde(with = "nil")]
    pub config: BTreeMap<String, serde_json::Value>,
    /// The variables of the task's environment.
    #[serde(with = "nil")]
    pub env: BTreeMap<String, String>,
    /// The services of the task.
    #[serde(with = "nil")]
    pub services: Vec<ServiceSpec>,
    /// The access to Vault; a task that requests it is refused.
    pub vault: Option<Box<Unsupported>>,
    /// The secrets of other stores; a task that requests them is refused.
    #[serde(with = "nil")]
    pub secrets: Vec<Unsupported>,
    /// The service registry of the task.
    pub consul: Option<Box<Consul>>,
    /// The files that the client renders for the task.
    #[serde(with = "nil")]
    pub templates: Vec<Template>,
    /// The conditions that nodes must meet.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// The preferences for nodes.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
    /// The requested resources.
    pub resources: Resources,
    /// The rules of restarts; `None` means those of the group.
    pub restart_policy: Option<RestartPolicy>,
    /// The file into which the payload of a dispatch is written.
    pub dispatch_payload: Option<DispatchPayload>,
    /// The time at which the task runs, relative to the main tasks; `None` for a main task.
    pub lifecycle: Option<Lifecycle>,
    /// Key and value pairs of the user.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    /// The time between the kill signal and the forced kill.
    pub kill_timeout: Nanos,
    /// The rotation of the task's logs.
    pub log_config: LogConfig,
    /// The files that the client downloads before the task starts.
    #[serde(with = "nil")]
    pub artifacts: Vec<Artifact>,
    /// Whether the end of the task ends the other tasks of the group.
    pub leader: bool,
    /// The wait before the kill signal.
    pub shutdown_delay: Nanos,
    /// The volumes of the group that are mounted for the task.
    #[serde(with = "nil")]
    pub volume_mounts: Vec<VolumeMount>,
    /// The scaling policies for an autoscaler.
    #[serde(with = "nil")]
    pub scaling_policies: Vec<ScalingPolicy>,
    /// The kill signal; empty means the signal of the driver.
    pub kill_signal: String,
    /// The kind that Nomad's `connect` block sets; without effect.
    pub kind: String,
    /// The configuration of a task that is a CSI plugin.
    #[serde(rename = "CSIPluginConfig")]
    pub csi_plugin_config: Option<CsiPluginConfig>,
    /// The workload identity with which the task calls the servers.
    pub identity: Option<Box<IdentitySpec>>,
    /// All other workload identities.
    #[serde(with = "nil")]
    pub identities: Vec<IdentitySpec>,
    /// The commands that users can run in the task.
    #[serde(with = "nil")]
    pub actions: Vec<Action>,
    /// The times at which the task runs; a task that has them is refused.
    pub schedule: Option<Box<Unsupported>>,
}

impl Task {
    /// Returns whether the task is a main task: one without a lifecycle.
    pub fn is_main(&self) -> bool {
        self.lifecycle.is_none()
    }
}

blocks! {
    /// A command that users can run in the task.
    Action {
        name: String = "Name";
        command: String = "Command";
        args: Option<Vec<String>> = "Args";
    }
}

/// The time at which a task runs, relative to the main tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Lifecycle {
    /// The phase: `prestart`, `poststart` or `poststop`.
    pub hook: String,
    /// Whether the task continues while the main tasks run.
    pub sidecar: bool,
}

/// The rotation of a task's logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LogConfig {
    /// The number of files that are kept for each stream.
    pub max_files: u32,
    /// The size of each file in MB.
    #[serde(rename = "MaxFileSizeMB")]
    pub max_file_size_mb: u32,
    /// Whether the client collects no logs.
    pub disabled: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { max_files: 10, max_file_size_mb: 10, disabled: false }
    }
}

/// The CSI services of a plugin task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CsiPluginType {
    /// Mounts volumes on its node.
    #[default]
    Node,
    /// Creates, attaches and deletes volumes for all nodes.
    Controller,
    /// Both services.
    Monolith,
}

impl CsiPluginType {
    /// Returns the name in job files and in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Controller => "controller",
            Self::Monolith => "monolith",
        }
    }
    /// Returns whether the plugin has the node service.
    pub fn has_node(self) -> bool {
        self != Self::Controller
    }
    /// Returns whether the plugin has the controller service.
    pub fn has_controller(self) -> bool {
        self != Self::Node
    }
}

/// The `csi_plugin` block (docs/reference/storage.md, section 1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CsiPluginConfig {
    /// The id of the plugin.
    #[serde(rename = "ID")]
    pub id: PluginId,
    /// The CSI services of the task.
    #[serde(rename = "Type")]
    pub kind: CsiPluginType,
    /// The directory in the task in which the plugin creates `csi.sock`.
    pub mount_dir: String,
    /// The directory in the task that contains the staging paths and the target paths.
    pub stage_publish_base_dir: String,
    /// The time within which the first probe must succeed.
    pub health_timeout: Nanos,
}
