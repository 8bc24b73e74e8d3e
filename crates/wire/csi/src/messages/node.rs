//! Requests and responses of the Node service. All paths are in the plugin's view.

use crate::{CapacityRange, Secrets, Segments, StringMap, VolumeCapability, VolumeCondition};
use std::path::PathBuf;

/// A request to stage a volume: to mount it once for all its uses on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStageRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The context that controller publish returned; empty without it.
    pub publish_context: StringMap,
    /// The staging directory, which must exist.
    pub staging_target_path: PathBuf,
    /// The mode in which the volume will be used.
    pub capability: VolumeCapability,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The volume's context, from its creation.
    pub context: StringMap,
}

/// A request to undo [`NodeStageRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUnstageRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The staging directory.
    pub staging_target_path: PathBuf,
}

/// A request to publish a volume: to mount it at a path for one use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePublishRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The context that controller publish returned; empty without it.
    pub publish_context: StringMap,
    /// The staging directory; only for plugins that stage.
    pub staging_target_path: Option<PathBuf>,
    /// The path of the mount. Its parent exists, and the plugin creates the path.
    pub target_path: PathBuf,
    /// The mode in which the volume will be used.
    pub capability: VolumeCapability,
    /// Whether to mount the volume read-only.
    pub readonly: bool,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The volume's context, from its creation.
    pub context: StringMap,
}

/// A request to undo [`NodePublishRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUnpublishRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The path at which the volume was published.
    pub target_path: PathBuf,
}

/// A request to expand the file system of a volume that the controller has expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeExpandRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The path at which the volume is published (or staged).
    pub volume_path: PathBuf,
    /// The new size; absent means the volume's actual size.
    pub capacity_range: Option<CapacityRange>,
    /// The staging directory; only for plugins that stage.
    pub staging_target_path: Option<PathBuf>,
    /// The mode in which the volume is used; absent means unknown.
    pub capability: Option<VolumeCapability>,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// A request for a volume's usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatsRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The path at which the volume is published (or staged).
    pub volume_path: PathBuf,
    /// The staging directory; only for plugins that stage.
    pub staging_target_path: Option<PathBuf>,
}

/// Usage of bytes or inodes. A number that the plugin does not report is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The bytes or inodes that users without privileges can still allocate.
    pub available: u64,
    /// The total amount.
    pub total: u64,
    /// The bytes or inodes that are allocated.
    pub used: u64,
}

/// The response to [`NodeStatsRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Usage of bytes; absent if not reported.
    pub bytes: Option<Usage>,
    /// Usage of inodes; absent if not reported.
    pub inodes: Option<Usage>,
    /// The volume's condition; only from plugins with the capability VOLUME_CONDITION.
    pub condition: Option<VolumeCondition>,
}

/// The plugin's information about its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The plugin's id of the node, never empty.
    pub node_id: String,
    /// Maximum number of volumes on the node; `None` means no known limit.
    pub max_volumes: Option<u64>,
    /// The topology of the node; `None` means that topology does not matter.
    pub accessible_topology: Option<Segments>,
}
