//! Requests and answers of the Controller service.

use std::time::Duration;

use crate::{Secrets, Segments, StringMap, VolumeCapability};

/// The size wanted, in bytes. At least one of the two should be given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CapacityRange {
    /// At least this much; 0 means not given.
    pub required_bytes: u64,
    /// At most this much; 0 means not given.
    pub limit_bytes: u64,
}

/// Where a new volume's content comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentSource {
    /// A snapshot, by the plugin's id.
    Snapshot(String),
    /// Another volume, by the plugin's id.
    Volume(String),
}

/// From where a new volume has to be reachable. Requisite: from at least one of them. Preferred: try
/// these first, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologyRequirement {
    /// Any of these will do.
    pub requisite: Vec<Segments>,
    /// The first that works is best.
    pub preferred: Vec<Segments>,
}

/// Asks for a volume by name; asking again with the same name gives the same volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateVolumeRequest {
    /// The name, chosen by the caller.
    pub name: String,
    /// The size wanted.
    pub capacity_range: Option<CapacityRange>,
    /// Every way in which the volume is going to be used; at least one.
    pub capabilities: Vec<VolumeCapability>,
    /// Opaque parameters of the plugin.
    pub parameters: StringMap,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// What to fill it with.
    pub content_source: Option<ContentSource>,
    /// From where it has to be reachable.
    pub topology: Option<TopologyRequirement>,
}

/// `Volume`: a volume as the plugin describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreatedVolume {
    /// The plugin's id.
    pub volume_id: String,
    /// Its size in bytes; 0 when the plugin does not know.
    pub capacity_bytes: u64,
    /// Opaque; to be passed along with every later call.
    pub context: StringMap,
    /// What it was filled with.
    pub content_source: Option<ContentSource>,
    /// From where it is reachable (any one of these); empty: from everywhere.
    pub accessible_topology: Vec<Segments>,
}

/// Asks for the end of a volume. Not an error when it is already gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteVolumeRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// Makes a volume available to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerPublishRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The plugin's id of the node, from [`NodeInfo`](crate::NodeInfo).
    pub node_id: String,
    /// How it is going to be used.
    pub capability: VolumeCapability,
    /// Only for reading. Sent only to plugins that name PUBLISH_READONLY.
    pub readonly: bool,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The volume's context.
    pub context: StringMap,
}

/// Takes a volume from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerUnpublishRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The plugin's id of the node; empty takes it from all nodes.
    pub node_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// Asks whether a volume that exists can be used in these ways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidateRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// The volume's context.
    pub context: StringMap,
    /// The ways; at least one.
    pub capabilities: Vec<VolumeCapability>,
    /// Parameters as at creation.
    pub parameters: StringMap,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// The answer to [`ValidateRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validation {
    /// All of it is possible.
    Confirmed,
    /// Something is not, with the plugin's words about it (may be empty).
    Refused(String),
}

/// A page of a list, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// The token of the next page; `None` at the end.
    pub next_token: Option<String>,
}

/// Whether a volume is in good order, as far as the plugin knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeCondition {
    /// Something is wrong.
    pub abnormal: bool,
    /// What.
    pub message: String,
}

/// One entry of `ListVolumes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVolume {
    /// The volume.
    pub volume: CreatedVolume,
    /// The nodes that have it; only from plugins that name LIST_VOLUMES_PUBLISHED_NODES.
    pub published_node_ids: Vec<String>,
    /// Its condition; only from plugins that name VOLUME_CONDITION.
    pub condition: Option<VolumeCondition>,
}

/// Asks how much room there is; everything that is given narrows the question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetCapacityRequest {
    /// For volumes that can be used in these ways.
    pub capabilities: Vec<VolumeCapability>,
    /// For volumes made with these parameters.
    pub parameters: StringMap,
    /// Reachable from here.
    pub topology: Option<Segments>,
}

/// The answer to [`GetCapacityRequest`], bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Room for new volumes.
    pub available: u64,
    /// The largest single volume, when the plugin knows.
    pub largest_volume: Option<u64>,
    /// The smallest single volume, when the plugin knows.
    pub smallest_volume: Option<u64>,
}

/// Asks for a snapshot by name; asking again with the same name gives the same one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateSnapshotRequest {
    /// The plugin's id of the volume.
    pub source_volume_id: String,
    /// The name, chosen by the caller.
    pub name: String,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// Opaque parameters of the plugin.
    pub parameters: StringMap,
}

/// A snapshot as the plugin describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The plugin's id.
    pub snapshot_id: String,
    /// The volume it was made from.
    pub source_volume_id: String,
    /// The least size in bytes of a volume made from it; 0 when not known.
    pub size_bytes: u64,
    /// When it was cut: time since the Unix epoch.
    pub created: Option<Duration>,
    /// Whether volumes can be made from it already.
    pub ready_to_use: bool,
}

/// Asks for other mutable parameters of a volume that exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerModifyRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// Opaque parameters of the plugin, those that can change.
    pub mutable_parameters: StringMap,
}

/// Asks about one snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetSnapshotRequest {
    /// The plugin's id.
    pub snapshot_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// Asks for the end of a snapshot. Not an error when it is already gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteSnapshotRequest {
    /// The plugin's id.
    pub snapshot_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// Asks for snapshots; empty filters match all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListSnapshotsRequest {
    /// At most this many entries; 0 leaves it to the plugin.
    pub max_entries: u32,
    /// Where to go on; empty starts anew.
    pub starting_token: String,
    /// Only snapshots of this volume.
    pub source_volume_id: String,
    /// Only this snapshot.
    pub snapshot_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// Asks for more room in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerExpandRequest {
    /// The plugin's id.
    pub volume_id: String,
    /// The new size.
    pub capacity_range: CapacityRange,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// How the volume is used.
    pub capability: Option<VolumeCapability>,
}

/// The answer to [`ControllerExpandRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerExpanded {
    /// The size now, in bytes.
    pub capacity_bytes: u64,
    /// Whether the node still has to grow the file system.
    pub node_expansion_required: bool,
}
