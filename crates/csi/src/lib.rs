//! A typed client of the Container Storage Interface (CSI).
//!
//! One [`CsiClient`] talks to one plugin socket. It turns each call into plain Rust structs, gives it a
//! deadline by its class ([`Deadlines`]), and sorts what went wrong into [`CsiError`]. It decides
//! nothing: no retries, no policy, no caching of capabilities. Which call to make when, and what to do
//! about an error, is the caller's.
//!
//! What is sensitive stays in: [`Secrets`] and [`MountFlags`] print no value, and the words of a
//! plugin lose every secret that was sent with the call before they become part of an error.

mod capabilities;
mod client;
mod convert;
mod deadlines;
mod error;
mod messages;
mod modes;
mod sensitive;

pub use capabilities::{CapabilitySet, ControllerCapability, NodeCapability, PluginCapability};
pub use client::{CsiClient, connect};
pub use deadlines::{Call, CallClass, Deadlines};
pub use error::{Class, CsiError};
pub use messages::{
    controller::{
        Capacity, CapacityRange, ContentSource, ControllerExpandRequest, ControllerExpanded,
        ControllerModifyRequest, ControllerPublishRequest, ControllerUnpublishRequest, CreateSnapshotRequest,
        CreateVolumeRequest, CreatedVolume, DeleteSnapshotRequest, DeleteVolumeRequest, GetCapacityRequest,
        GetSnapshotRequest, ListSnapshotsRequest, ListedVolume, Page, Snapshot, TopologyRequirement,
        ValidateRequest, Validation, VolumeCondition,
    },
    identity::{PluginInfo, Readiness},
    node::{
        NodeExpandRequest, NodeInfo, NodePublishRequest, NodeStageRequest, NodeStatsRequest,
        NodeUnpublishRequest, NodeUnstageRequest, Usage, VolumeStats,
    },
};
pub use modes::{AccessMode, AttachmentMode, MountOptions, UnknownMode, VolumeCapability};
pub use sensitive::{MountFlags, Secrets};

/// Topology segments: key to value, as in `Topology.segments` of the specification.
pub type Segments = std::collections::BTreeMap<String, String>;

/// A map of strings as it travels: parameters, volume context, publish context.
pub type StringMap = std::collections::BTreeMap<String, String>;
