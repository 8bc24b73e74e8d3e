//! The record of a plugin's process, by which the next agent finds the process again.

use super::put;
use crate::PluginError;
use crate::handshake::Address;
use caravan_sys::dir::{Dir, Mounts};
use caravan_sys::process::{PidFd, ProcessIdentity};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const FILE: &str = "process.json";
/// The longest record in bytes.
const MAX_RECORD: u64 = 64 * 1024;

/// The stored identity of a plugin's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pid: u32,
    /// Start time in clock ticks since boot.
    start_time: u64,
    /// The boot during which the process runs.
    boot_id: String,
    address: StoredAddress,
    checksum: String,
    args: Vec<String>,
    config: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredAddress {
    Unix(PathBuf),
    Tcp(std::net::SocketAddr),
}

impl Record {
    pub(super) fn new(
        identity: ProcessIdentity,
        address: &Address,
        checksum: String,
        args: &[String],
        config: &str,
    ) -> Result<Self, PluginError> {
        Ok(Self {
            pid: identity.pid,
            start_time: identity.start_time,
            boot_id: caravan_sys::time::boot_id()?,
            address: match address {
                Address::Unix(path) => StoredAddress::Unix(path.clone()),
                Address::Tcp(address) => StoredAddress::Tcp(*address),
            },
            checksum,
            args: args.to_vec(),
            config: config.to_owned(),
        })
    }

    /// Returns the record in a directory; `None` without a record, or if the record cannot be parsed.
    pub(super) fn read(dir: &Path) -> Result<Option<Self>, PluginError> {
        if !dir.is_dir() {
            return Ok(None);
        }
        let dir = Dir::open(dir)?;
        if dir.kind(OsStr::new(FILE))?.is_none() {
            return Ok(None);
        }
        let bytes = dir.read_all(Path::new(FILE), MAX_RECORD, Mounts::Refuse)?;
        Ok(serde_json::from_slice(&bytes).ok())
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), PluginError> {
        let bytes = serde_json::to_vec(self)
            .map_err(|error| PluginError::Io { what: "encode the record", source: error.into() })?;
        put(dir, FILE, &bytes)
    }

    pub(super) fn remove(dir: &Path) -> Result<(), PluginError> {
        Dir::open(dir)?.remove_file(OsStr::new(FILE))?;
        Ok(())
    }

    /// Opens the process; `None` if it has ended.
    pub(super) fn open(&self) -> Result<Option<PidFd>, PluginError> {
        if caravan_sys::time::boot_id()? != self.boot_id {
            return Ok(None);
        }
        Ok(PidFd::open_identity(self.identity())?)
    }

    pub(super) fn identity(&self) -> ProcessIdentity {
        ProcessIdentity { pid: self.pid, start_time: self.start_time }
    }

    pub(super) fn address(&self) -> Address {
        match &self.address {
            StoredAddress::Unix(path) => Address::Unix(path.clone()),
            StoredAddress::Tcp(address) => Address::Tcp(*address),
        }
    }

    /// Returns whether the process has the current program, arguments and configuration.
    pub(super) fn belongs_to(&self, checksum: &str, args: &[String], config: &str) -> bool {
        self.checksum == checksum && self.args == args && self.config == config
    }
}
