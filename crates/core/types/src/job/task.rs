//! Tasks: what one driver runs.

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
    /// Unique in the group.
    pub name: String,
    /// Driver.
    pub driver: String,
    /// User to run as.
    pub user: String,
    /// The driver's own configuration, checked by the driver.
    #[serde(with = "nil")]
    pub config: BTreeMap<String, serde_json::Value>,
    /// Environment.
    #[serde(with = "nil")]
    pub env: BTreeMap<String, String>,
    /// Services of the task.
    #[serde(with = "nil")]
    pub services: Vec<ServiceSpec>,
    /// Access to Vault; refused.
    pub vault: Option<Box<Unsupported>>,
    /// Secrets of stores; refused.
    #[serde(with = "nil")]
    pub secrets: Vec<Unsupported>,
    /// Which service registry it belongs to.
    pub consul: Option<Box<Consul>>,
    /// Files rendered for it.
    #[serde(with = "nil")]
    pub templates: Vec<Template>,
    /// Conditions on nodes.
    #[serde(with = "nil")]
    pub constraints: Vec<Constraint>,
    /// Wishes about nodes.
    #[serde(with = "nil")]
    pub affinities: Vec<Affinity>,
    /// Resources.
    pub resources: Resources,
    /// Restarts; the group's when absent.
    pub restart_policy: Option<RestartPolicy>,
    /// Where the payload of a dispatch is written.
    pub dispatch_payload: Option<DispatchPayload>,
    /// When it runs relative to the main tasks.
    pub lifecycle: Option<Lifecycle>,
    /// Free pairs.
    #[serde(with = "nil")]
    pub meta: BTreeMap<String, String>,
    /// Between the kill signal and the forced kill.
    pub kill_timeout: Nanos,
    /// Log rotation.
    pub log_config: LogConfig,
    /// What is fetched before it starts.
    #[serde(with = "nil")]
    pub artifacts: Vec<Artifact>,
    /// Its end ends the others.
    pub leader: bool,
    /// Wait before the kill signal.
    pub shutdown_delay: Nanos,
    /// Volumes of the group seen by this task.
    #[serde(with = "nil")]
    pub volume_mounts: Vec<VolumeMount>,
    /// Policies for an autoscaler.
    #[serde(with = "nil")]
    pub scaling_policies: Vec<ScalingPolicy>,
    /// Signal of a gentle stop; the driver's when empty.
    pub kill_signal: String,
    /// Set by connect.
    pub kind: String,
    /// The task is a CSI plugin.
    #[serde(rename = "CSIPluginConfig")]
    pub csi_plugin_config: Option<CsiPluginConfig>,
    /// The identity that stands for the task at the servers.
    pub identity: Option<Box<IdentitySpec>>,
    /// All other identities.
    #[serde(with = "nil")]
    pub identities: Vec<IdentitySpec>,
    /// Commands that operators can run in it.
    #[serde(with = "nil")]
    pub actions: Vec<Action>,
    /// When it runs by the clock; refused.
    pub schedule: Option<Box<Unsupported>>,
}

impl Task {
    /// Whether this is a main task: one without a lifecycle.
    pub fn is_main(&self) -> bool {
        self.lifecycle.is_none()
    }
}

blocks! {
    /// A command that operators can run in the task.
    Action {
        name: String = "Name";
        command: String = "Command";
        args: Option<Vec<String>> = "Args";
    }
}

/// When a task runs relative to the main tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Lifecycle {
    /// `prestart`, `poststart` or `poststop`.
    pub hook: String,
    /// Runs along with the main tasks.
    pub sidecar: bool,
}

/// Log rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LogConfig {
    /// Files kept for each stream.
    pub max_files: u32,
    /// Size of each in MB.
    #[serde(rename = "MaxFileSizeMB")]
    pub max_file_size_mb: u32,
    /// Nothing is collected.
    pub disabled: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { max_files: 10, max_file_size_mb: 10, disabled: false }
    }
}

/// Which CSI services a plugin task serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CsiPluginType {
    /// Node service.
    #[default]
    Node,
    /// Controller service.
    Controller,
    /// Both.
    Monolith,
}

impl CsiPluginType {
    /// The word in job files and in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Controller => "controller",
            Self::Monolith => "monolith",
        }
    }
    /// Whether the node service is served.
    pub fn has_node(self) -> bool {
        self != Self::Controller
    }
    /// Whether the controller service is served.
    pub fn has_controller(self) -> bool {
        self != Self::Node
    }
}

/// The `csi_plugin` block (docs/reference/storage.md, section 1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CsiPluginConfig {
    /// Plugin id.
    #[serde(rename = "ID")]
    pub id: PluginId,
    /// Services.
    #[serde(rename = "Type")]
    pub kind: CsiPluginType,
    /// Directory in the task where the plugin makes `csi.sock`.
    pub mount_dir: String,
    /// Directory in the task under which staging and publish targets are named.
    pub stage_publish_base_dir: String,
    /// How long the first healthy probe may take.
    pub health_timeout: Nanos,
}
