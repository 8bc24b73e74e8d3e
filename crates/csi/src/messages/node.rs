//! Requests and answers of the Node service. Paths are those that the plugin sees.

use std::path::PathBuf;

use crate::{CapacityRange, Secrets, Segments, StringMap, VolumeCapability, VolumeCondition};

/// Mounts a volume on the node, once for all its uses there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStageRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// What controller publish answered; empty without it.
    pub publish_context: StringMap,
    /// The staging directory, which exists.
    pub staging_target_path: PathBuf,
    /// How it is going to be used.
    pub capability: VolumeCapability,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The volume's context.
    pub context: StringMap,
}

/// Undoes [`NodeStageRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUnstageRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// The staging directory.
    pub staging_target_path: PathBuf,
}

/// Makes a volume visible at a path for one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePublishRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// What controller publish answered; empty without it.
    pub publish_context: StringMap,
    /// The staging directory, only for plugins that stage.
    pub staging_target_path: Option<PathBuf>,
    /// Where it is to appear; its parent exists, the plugin makes the path itself.
    pub target_path: PathBuf,
    /// How it is going to be used.
    pub capability: VolumeCapability,
    /// Only for reading.
    pub readonly: bool,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The volume's context.
    pub context: StringMap,
}

/// Undoes [`NodePublishRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeUnpublishRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// Where it appeared.
    pub target_path: PathBuf,
}

/// Grows the file system of a volume that the controller has grown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeExpandRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// Where it is published (or staged).
    pub volume_path: PathBuf,
    /// The new size, when known.
    pub capacity_range: Option<CapacityRange>,
    /// The staging directory, only for plugins that stage.
    pub staging_target_path: Option<PathBuf>,
    /// How it is used.
    pub capability: Option<VolumeCapability>,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// Asks how full a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatsRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// Where it is published (or staged).
    pub volume_path: PathBuf,
    /// The staging directory, only for plugins that stage.
    pub staging_target_path: Option<PathBuf>,
}

/// How much of something is used; numbers a plugin does not know are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// What is left.
    pub available: u64,
    /// All of it.
    pub total: u64,
    /// What is taken.
    pub used: u64,
}

/// The answer to [`NodeStatsRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes.
    pub bytes: Option<Usage>,
    /// Inodes.
    pub inodes: Option<Usage>,
    /// Its condition; only from plugins that name VOLUME_CONDITION.
    pub condition: Option<VolumeCondition>,
}

/// What a plugin says about the node it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// The plugin's id of the node, never empty.
    pub node_id: String,
    /// How many volumes the node can have; `None`: no limit known.
    pub max_volumes: Option<u64>,
    /// Where the node is; `None`: topology does not matter.
    pub accessible_topology: Option<Segments>,
}
