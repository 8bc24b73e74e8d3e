//! Requests and responses of the Controller service.

use crate::{Secrets, Segments, StringMap, VolumeCapability};
use std::time::Duration;

/// A requested size in bytes. At least one of the two bounds should be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityRange {
    /// Minimum size; 0 means not set.
    pub required_bytes: u64,
    /// Maximum size; 0 means not set.
    pub limit_bytes: u64,
}

/// The source of a new volume's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentSource {
    /// A snapshot, by the plugin's id.
    Snapshot(String),
    /// Another volume, by the plugin's id.
    Volume(String),
}

/// The topologies from which a new volume must be reachable. The volume must be reachable from at least one requisite
/// topology. The plugin tries the preferred topologies first, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyRequirement {
    /// The volume must be reachable from one of these.
    pub requisite: Vec<Segments>,
    /// Topologies in order of preference.
    pub preferred: Vec<Segments>,
}

/// A request to create a volume by name. A repeated request with the same name returns the same volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateVolumeRequest {
    /// The volume's name, chosen by the caller.
    pub name: String,
    /// The requested size.
    pub capacity_range: Option<CapacityRange>,
    /// The modes in which the volume will be used; at least one.
    pub capabilities: Vec<VolumeCapability>,
    /// Parameters that only the plugin interprets.
    pub parameters: StringMap,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The content to copy; absent means an empty volume.
    pub content_source: Option<ContentSource>,
    /// The topologies from which the volume must be reachable; absent means no requirement.
    pub topology: Option<TopologyRequirement>,
}

/// `Volume`: a volume as the plugin reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedVolume {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The size of the volume in bytes; 0 if the plugin does not report it.
    pub capacity_bytes: u64,
    /// The plugin's context of the volume, which every later call must send back.
    pub context: StringMap,
    /// The content that was copied.
    pub content_source: Option<ContentSource>,
    /// The topologies from which the volume is reachable (any of them); empty means from everywhere.
    pub accessible_topology: Vec<Segments>,
}

/// A request to delete a volume. A missing volume is no error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteVolumeRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// A request to attach a volume to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerPublishRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The plugin's id of the node, from [`NodeInfo`](crate::NodeInfo).
    pub node_id: String,
    /// The mode in which the node will use the volume.
    pub capability: VolumeCapability,
    /// Whether to attach the volume read-only. Sent only to plugins with the capability PUBLISH_READONLY.
    pub readonly: bool,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The volume's context, from its creation.
    pub context: StringMap,
}

/// A request to detach a volume from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerUnpublishRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The plugin's id of the node; an empty id detaches the volume from all nodes.
    pub node_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// A request to check whether an existing volume can be used in certain modes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidateRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The volume's context, from its creation.
    pub context: StringMap,
    /// The modes to check; at least one.
    pub capabilities: Vec<VolumeCapability>,
    /// The parameters of the volume's creation.
    pub parameters: StringMap,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// The response to [`ValidateRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    /// All modes are possible.
    Confirmed,
    /// At least one mode is not possible, with the plugin's message (may be empty).
    Refused(String),
}

/// A page of a list, with the token of the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries of this page.
    pub entries: Vec<T>,
    /// The token of the next page; `None` on the last page.
    pub next_token: Option<String>,
}

/// The health of a volume according to the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeCondition {
    /// Whether the volume has a problem.
    pub abnormal: bool,
    /// A description of the condition.
    pub message: String,
}

/// One entry of `ListVolumes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVolume {
    /// The volume with the values of its creation.
    pub volume: CreatedVolume,
    /// The plugin's ids of the nodes to which the volume is attached. Only from plugins with
    /// LIST_VOLUMES_PUBLISHED_NODES.
    pub published_node_ids: Vec<String>,
    /// The volume's condition; only from plugins with the capability VOLUME_CONDITION.
    pub condition: Option<VolumeCondition>,
}

/// A request for the available capacity; each set field restricts the capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetCapacityRequest {
    /// The modes in which the new volumes can be used; empty means no restriction.
    pub capabilities: Vec<VolumeCapability>,
    /// The parameters of the new volumes.
    pub parameters: StringMap,
    /// The topology from which the new volumes are reachable; `None` means no restriction.
    pub topology: Option<Segments>,
}

/// The response to [`GetCapacityRequest`], in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Capacity for new volumes.
    pub available: u64,
    /// Size of the largest possible volume; absent if the plugin does not report it.
    pub largest_volume: Option<u64>,
    /// Size of the smallest possible volume; absent if the plugin does not report it.
    pub smallest_volume: Option<u64>,
}

/// A request to create a snapshot by name. A repeated request with the same name returns the same snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateSnapshotRequest {
    /// The plugin's id of the volume to copy.
    pub source_volume_id: String,
    /// The snapshot's name, chosen by the caller.
    pub name: String,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// Parameters that only the plugin interprets.
    pub parameters: StringMap,
}

/// A snapshot as the plugin reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The plugin's id of the snapshot.
    pub snapshot_id: String,
    /// The plugin's id of the copied volume.
    pub source_volume_id: String,
    /// Minimum size in bytes of a volume created from the snapshot; 0 if unknown.
    pub size_bytes: u64,
    /// Time of the snapshot, since the Unix epoch.
    pub created: Option<Duration>,
    /// Whether volumes can be created from the snapshot now.
    pub ready_to_use: bool,
}

/// A request to change mutable parameters of an existing volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerModifyRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The parameters to change, which only the plugin interprets.
    pub mutable_parameters: StringMap,
}

/// A request for one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetSnapshotRequest {
    /// The plugin's id of the snapshot.
    pub snapshot_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// A request to delete a snapshot. A missing snapshot is no error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteSnapshotRequest {
    /// The plugin's id of the snapshot.
    pub snapshot_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// A request to list snapshots; empty filters match all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListSnapshotsRequest {
    /// Maximum number of entries in a page; 0 means that the plugin chooses.
    pub max_entries: u32,
    /// The token of the page; empty means the first page.
    pub starting_token: String,
    /// The filter for snapshots of one volume, by the plugin's id.
    pub source_volume_id: String,
    /// The filter for one snapshot, by the plugin's id.
    pub snapshot_id: String,
    /// Secrets for this call.
    pub secrets: Secrets,
}

/// A request to expand a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerExpandRequest {
    /// The plugin's id of the volume.
    pub volume_id: String,
    /// The requested new size.
    pub capacity_range: CapacityRange,
    /// Secrets for this call.
    pub secrets: Secrets,
    /// The mode in which the volume is used; absent means unknown.
    pub capability: Option<VolumeCapability>,
}

/// The response to [`ControllerExpandRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerExpanded {
    /// The new size in bytes.
    pub capacity_bytes: u64,
    /// Whether the file system must still be expanded on the node.
    pub node_expansion_required: bool,
}
