//! The [`DevicePlugin`] trait: the devices that a plugin finds on this machine, their reservation and their statistics
//! (docs/reference/drivers.md, section 9).

use crate::task::{DeviceNode, Mount};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::sync::mpsc;

/// A plugin for the devices of one kind: finds them, prepares tasks for them, and measures them.
///
/// The assignment of instances to tasks is the scheduler's. A plugin has no call that releases an instance.
#[async_trait]
pub trait DevicePlugin: Send + Sync + fmt::Debug {
    /// Returns the plugin's name, for logs and errors.
    fn name(&self) -> &str;

    /// Starts to look for devices. Each message is the complete list of the plugin's groups, the first one comes as
    /// soon as possible.
    ///
    /// After [`DeviceError::Gone`] the caller opens a new stream; a plugin with a process of its own then starts it
    /// anew. After any other error, and after the end of the stream, the caller no longer uses the plugin.
    async fn fingerprint(&self) -> Result<DeviceStream<Vec<DeviceGroup>>, DeviceError>;

    /// Returns what a task needs in order to use instances of one group. Called before each start of the task.
    async fn reserve(&self, ids: &[String]) -> Result<Reservation, DeviceError>;

    /// Starts to measure all instances, one message per interval. After an error or the end of the stream, the caller
    /// opens a new one.
    async fn stats(&self, interval: Duration) -> Result<DeviceStream<Vec<DeviceGroupStats>>, DeviceError>;

    /// Ends the plugin's process, if it has one. Tasks keep their devices.
    async fn shutdown(&self) {}
}

/// The messages of a plugin. An error is the last message; the sender drops its side then. The plugin ends its work
/// when the receiver is dropped.
pub type DeviceStream<T> = mpsc::Receiver<Result<T, DeviceError>>;

/// Why a device plugin did not answer a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The plugin's process has ended. A repeated call starts it anew.
    #[error("device plugin {0} has ended")]
    Gone(String),
    /// The plugin refused the request, in its own words.
    #[error("{0}")]
    Rejected(String),
    /// The plugin has no such function.
    #[error("device plugin {plugin} cannot {what}")]
    Unsupported {
        /// The plugin's name.
        plugin: String,
        /// The request, as the words after "cannot".
        what: &'static str,
    },
}

/// Devices of one vendor, type and model, which have the same attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceGroup {
    /// The vendor, such as `nvidia`.
    pub vendor: String,
    /// The type, such as `gpu`.
    pub kind: String,
    /// The model.
    pub name: String,
    /// The devices.
    pub instances: Vec<DeviceInstance>,
    /// Attributes of every device of the group, for constraints and affinities.
    pub attributes: BTreeMap<String, DeviceAttribute>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInstance {
    /// The id; unique within its group.
    pub id: String,
    /// Whether tasks may get the device.
    pub healthy: bool,
    /// Why the device is not healthy; may be empty.
    pub health_description: String,
    /// The device's address on the PCI bus, if it is known.
    pub pci_bus_id: Option<String>,
}

/// The value of a device's attribute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceAttribute {
    /// The value; `None` if the plugin sent none, which makes the message invalid.
    pub value: Option<DeviceValue>,
    /// The unit of a number, such as `MiB` or `MHz`; empty if it has none.
    pub unit: String,
}

/// A value without its unit.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceValue {
    /// A number with a fraction.
    Float(f64),
    /// A whole number.
    Int(i64),
    /// Text.
    String(String),
    /// Yes or no.
    Bool(bool),
}

/// What a task needs in order to use its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservation {
    /// Environment variables; they replace those of the job file.
    pub envs: BTreeMap<String, String>,
    /// Directories and files of the host.
    pub mounts: Vec<Mount>,
    /// Device files of the host.
    pub devices: Vec<DeviceNode>,
}

/// The statistics of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceGroupStats {
    /// The vendor.
    pub vendor: String,
    /// The type.
    pub kind: String,
    /// The model.
    pub name: String,
    /// The statistics by the instance's id.
    pub instances: BTreeMap<String, DeviceStats>,
}

/// The statistics of one instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceStats {
    /// The most telling value.
    pub summary: Option<StatValue>,
    /// All values.
    pub stats: Option<StatObject>,
    /// The time of the measurement, in nanoseconds since 1970.
    pub unix_ns: i64,
}

/// Values and groups of values, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatObject {
    /// Groups of values.
    pub nested: BTreeMap<String, StatObject>,
    /// Values.
    pub attributes: BTreeMap<String, StatValue>,
}

/// One measured value: a number, a fraction, a text or a flag.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatValue {
    /// A number with a fraction, or the part of a total.
    pub float_numerator: Option<f64>,
    /// The total of `float_numerator`.
    pub float_denominator: Option<f64>,
    /// A whole number, or the part of a total.
    pub int_numerator: Option<i64>,
    /// The total of `int_numerator`.
    pub int_denominator: Option<i64>,
    /// Text.
    pub string: Option<String>,
    /// Yes or no.
    pub bool: Option<bool>,
    /// The unit of the numbers; empty if they have none.
    pub unit: String,
    /// The meaning of the value.
    pub desc: String,
}
