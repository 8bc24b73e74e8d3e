//! The data types of Caravan: ids, jobs, allocations, evaluations, plans, nodes, deployments, volumes,
//! claims, plugins and the replicated commands.
//!
//! The crate contains data with small pure helpers: no I/O, no clocks, no async. Structs of the HTTP API serialise to
//! exactly its JSON (docs/reference/http-api.md). The same serde description is used for MessagePack with named
//! fields,
//! where times are integers.

pub mod acl;
pub mod admin;
pub mod alloc;
pub mod blob;
mod class;
pub mod command;
pub mod component;
pub mod cores;
pub mod deployment;
pub mod device;
pub mod duration;
pub mod eval;
pub mod host_volume;
pub mod id;
pub mod identity;
pub mod job;
pub mod lookup;
mod metric;
pub mod namespace;
pub mod node;
pub mod node_pool;
pub mod operator;
pub mod packed;
pub mod plan;
pub mod plugin;
pub mod redact;
pub mod scaling;
pub mod sealed;
pub mod ser;
pub mod service;
pub mod small;
pub mod time;
pub mod variable;
pub mod volume;
pub mod words;

pub use id::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobId, JobKey, Namespace, NodeId, PluginId, ServiceId,
    VariablePath, VolumeId, VolumeKey,
};
pub use time::{BootInstant, Nanos, Time, UnixNanos};
