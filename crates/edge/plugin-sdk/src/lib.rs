//! Task drivers and device plugins, written in Rust, for any agent that speaks the go-plugin protocol.
//!
//! A program implements [`DriverPlugin`] or [`DevicePlugin`] and calls [`serve_driver`] or [`serve_device`] in its
//! main function. The crate performs the handshake, serves gRPC, converts messages to types, reads configurations
//! from MessagePack, and writes log lines that the agent reads. README.md has a complete plugin.
//!
//! The protocol's facts are in docs/reference/drivers.md (sections 5 to 11) and docs/reference/wire-plugins.md.

mod config;
mod device;
mod driver;
mod error;
pub mod hclspec;
mod info;
mod log;
mod serve;
mod value;

/// The example of README.md, which the compiler checks.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use async_trait::async_trait;
pub use config::NoConfig;
pub use device::{
    DeviceGroup, DevicePlugin, DeviceSpec, DeviceStats, GroupStats, Instance, Mount, Reservation,
};
pub use driver::{
    Capabilities, CpuUsage, Events, ExecInput, ExecOutput, ExecRequest, ExecResult, ExitResult, Fingerprint,
    FsIsolation, Health, Host, MemoryUsage, MountConfigs, Network, NetworkMode, NetworkOverride, Started,
    Task, TaskEvent, TaskHandle, TaskState, TaskStats, TaskStatus, Usage,
};
pub use driver::{DriverPlugin, StopRequest};
pub use error::{Cause, DeviceError, TaskError};
pub use info::Info;
pub use serve::{ServeError, serve_device, serve_driver};
pub use value::{Attribute, AttributeValue, StatObject, StatValue};

/// Messages of the protocol that the types of this crate contain unchanged.
pub mod messages {
    pub use caravan_proto::plugins::base::ClientTopology;
    pub use caravan_proto::plugins::driver::{
        AllocatedTaskResources, Device, DnsConfig, HostsConfig, LinuxResources, Mount, NetworkIsolationSpec,
        NetworkPort, NetworkResource, PortMapping, Resources, network_isolation_spec::NetworkIsolationMode,
    };
}
