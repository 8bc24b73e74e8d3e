//! The [`DevicePlugin`] trait: the devices that a plugin finds on this machine, their reservation and their statistics
//! (docs/reference/drivers.md, section 9).

use crate::task::{DeviceNode, Mount};
use async_trait::async_trait;
use caravan_types::device::{DeviceGroup, DeviceGroupStats};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::sync::mpsc;

/// A plugin for the devices of one kind: finds them, prepares tasks for them, and measures them.
///
/// The scheduler assigns instances to tasks. A plugin has no call that releases an instance.
#[async_trait]
pub trait DevicePlugin: Send + Sync + fmt::Debug {
    /// Returns the plugin's name, for logs and errors.
    fn name(&self) -> &str;

    /// Starts to look for devices. Each message is the complete list of the plugin's groups; the first one arrives as
    /// soon as possible.
    ///
    /// After [`DeviceError::Gone`] the caller opens a new stream; a plugin with a separate process then starts a new
    /// process. After any other error, and after the end of the stream, the caller no longer uses the plugin.
    async fn fingerprint(&self) -> Result<DeviceStream<Vec<DeviceGroup>>, DeviceError>;

    /// Returns the reservation for a task that uses instances of one group. Called before each start of the task.
    async fn reserve(&self, ids: &[String]) -> Result<Reservation, DeviceError>;

    /// Starts to measure all instances, one message per interval. After an error or the end of the stream, the caller
    /// opens a new stream.
    async fn stats(&self, interval: Duration) -> Result<DeviceStream<Vec<DeviceGroupStats>>, DeviceError>;

    /// Ends the plugin's process, if it has one. Tasks keep their devices.
    async fn shutdown(&self) {}
}

/// The messages of a plugin. An error is the last message; the sender drops its side then. The plugin ends its work
/// when the receiver is dropped.
pub type DeviceStream<T> = mpsc::Receiver<Result<T, DeviceError>>;

/// The reason that a request to a device plugin failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The plugin's process has ended. A repeated call starts a new process.
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

/// The variables, mounts and device files that a task needs in order to use its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservation {
    /// Environment variables; they replace those of the job file.
    pub envs: BTreeMap<String, String>,
    /// Directories and files of the host.
    pub mounts: Vec<Mount>,
    /// Device files of the host.
    pub devices: Vec<DeviceNode>,
}
