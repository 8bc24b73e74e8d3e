//! The users' requests about storage: volumes, snapshots, host volumes, variables.

mod host_volumes;
mod snapshots;
mod variables;
mod volumes;

pub use host_volumes::HostVolumeRequests;
pub use snapshots::SnapshotRequests;
pub use variables::VariableRequests;
pub use volumes::VolumeRequests;
