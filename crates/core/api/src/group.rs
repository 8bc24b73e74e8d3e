//! The task group, its volumes and its disk.

use super::Nanos;
use super::macros::api_objects;
use super::network::NetworkResource;
use super::policy::{
    Affinity, Constraint, Disconnect, MigrateStrategy, ReschedulePolicy, RestartPolicy, ScalingPolicy,
    Spread, UpdateStrategy,
};
use super::service::Service;
use super::task::{Consul, Task};
use std::collections::BTreeMap;

api_objects! {
    /// Tasks that are placed together.
    TaskGroup("TaskGroup") {
        name: Option<String> = "Name";
        count: Option<i64> = "Count";
        constraints: Option<Vec<Constraint>> = "Constraints";
        affinities: Option<Vec<Affinity>> = "Affinities";
        tasks: Option<Vec<Task>> = "Tasks";
        spreads: Option<Vec<Spread>> = "Spreads";
        volumes: Option<BTreeMap<String, VolumeRequest>> = "Volumes";
        restart: Option<RestartPolicy> = "RestartPolicy";
        disconnect: Option<Disconnect> = "Disconnect";
        reschedule: Option<ReschedulePolicy> = "ReschedulePolicy";
        ephemeral_disk: Option<EphemeralDisk> = "EphemeralDisk";
        update: Option<UpdateStrategy> = "Update";
        migrate: Option<MigrateStrategy> = "Migrate";
        networks: Option<Vec<NetworkResource>> = "Networks";
        meta: Option<BTreeMap<String, String>> = "Meta";
        services: Option<Vec<Service>> = "Services";
        shutdown_delay: Option<Nanos> = "ShutdownDelay";
        max_run_duration: Option<Nanos> = "MaxRunDuration";
        stop_after_client_disconnect: Option<Nanos> = "StopAfterClientDisconnect";
        max_client_disconnect: Option<Nanos> = "MaxClientDisconnect";
        scaling: Option<ScalingPolicy> = "Scaling";
        consul: Option<Consul> = "Consul";
        prevent_reschedule_on_lost: Option<bool> = "PreventRescheduleOnLost";
    }

    /// The private disk of an allocation.
    EphemeralDisk("EphemeralDisk") {
        sticky: Option<bool> = "Sticky";
        migrate: Option<bool> = "Migrate";
        size_mb: Option<i64> = "SizeMB";
    }

    /// A volume that the group requests (docs/reference/storage.md, section 4.1).
    VolumeRequest("VolumeRequest") {
        name: String = "Name";
        /// `csi` or `host`.
        kind: String = "Type";
        source: String = "Source";
        read_only: bool = "ReadOnly";
        sticky: bool = "Sticky";
        access_mode: String = "AccessMode";
        attachment_mode: String = "AttachmentMode";
        mount_options: Option<VolumeMountOptions> = "MountOptions";
        per_alloc: bool = "PerAlloc";
        /// `hold`, `restart` or `remount`; empty for `hold`.
        broken_mount: String = "BrokenMount" omit "String::is_empty";
        /// Owner of the volume's root.
        user: String = "User" omit "String::is_empty";
        /// Group of the volume's root.
        group: String = "Group" omit "String::is_empty";
        /// Permissions of the volume's root, octal.
        mode: String = "Mode" omit "String::is_empty";
    }

    /// File system and flags of a mounted volume.
    VolumeMountOptions("CSIMountOptions") {
        fs_type: String = "FSType";
        mount_flags: Option<Vec<String>> = "MountFlags";
    }
}
