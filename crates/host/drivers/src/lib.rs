//! The [`Driver`] trait, its conformance suite, the drivers raw_exec, exec, java, qemu and mock, and the
//! [`DevicePlugin`] trait.
//!
//! A driver starts tasks and reports their state. It keeps nothing on disk: the data that finds a task again is in
//! the [`TaskHandle`] that the client stores. [`RawExecDriver`], [`ExecDriver`], [`JavaDriver`] and [`QemuDriver`]
//! run each task under a shim (`docs/design/shim.md`), so tasks outlive the agent. [`MockDriver`] starts no
//! processes.

mod config;
pub mod conformance;
mod device;
mod dir_watch;
mod driver;
mod error;
mod exec;
mod ids;
mod isolation;
mod java;
mod mock;
pub mod names;
mod network;
mod programs;
mod qemu;
mod raw_exec;
mod session;
mod supervised;
mod task;

pub use caravan_types::device::{
    DeviceAttribute, DeviceGroup, DeviceGroupStats, DeviceInstance, DeviceLocality, DeviceStats, StatObject,
    StatValue,
};
pub use config::{Reader, matches_pattern, parse_duration};
pub use device::{DeviceError, DevicePlugin, DeviceStream, Reservation};
pub use dir_watch::DirWatch;
pub use driver::{Capabilities, Driver, DriverEvent, Fingerprint, FsIsolation, Health};
pub use error::{Error, Result};
pub use exec::{ExecDriver, ExecOptions};
pub use ids::IdRanges;
pub use isolation::{DEFAULT_CAPABILITIES, DEFAULT_HOST_PATHS, IsolationOptions, NamespaceMode};
pub use java::JavaDriver;
pub use mock::MockDriver;
pub use names::Dns;
pub use network::{HostsLine, NetworkIsolation, NetworkRequest};
pub use qemu::{QemuDriver, QemuOptions};
pub use raw_exec::{RawExecDriver, RawExecOptions};
pub use session::{ExecEvent, ExecInput, ExecRequest, ExecStream};
pub use supervised::{ForkServer, Helper, ShimCommand, own_program};
pub use task::{
    DeviceNode, DriverNetwork, ExecOutput, ExitResult, LogConfig, Mount, Port, Pressure, ProcessUsage,
    Processors, Propagation, Resources, Stall, TaskConfig, TaskDirs, TaskHandle, TaskId, TaskState,
    TaskStatus, Usage,
};
