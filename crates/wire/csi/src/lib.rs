//! A typed client of the Container Storage Interface (CSI).
//!
//! One [`CsiClient`] calls one plugin over its socket. It converts each call to plain Rust structs, applies a
//! deadline by the call's class ([`Deadlines`]), and classifies failures as [`CsiError`]. It has no retries, no
//! policy, and no cache of capabilities. The caller decides which call to make, and how to react to an error.
//!
//! Secrets are never shown: [`Secrets`] and [`MountFlags`] print no value. Secrets of a call are removed from the
//! plugin's message before the message becomes part of an error.

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

/// A map of strings in the form of the wire: parameters, volume context, publish context.
pub type StringMap = std::collections::BTreeMap<String, String>;
