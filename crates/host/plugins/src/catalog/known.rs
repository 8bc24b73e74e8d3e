//! The agent's record of a plugin, with which its driver is offered while its process does not start.

use super::put;
use crate::PluginError;
use crate::convert::Supports;
use crate::setup::Info;
use caravan_sys::dir::{Dir, Mounts};
use serde::{Deserialize, Serialize};
use std::path::Path;

const FILE: &str = "plugin.json";
/// The longest record in bytes.
const MAX_RECORD: u64 = 64 * 1024;

/// The record of a plugin whose program ran before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Known {
    /// The SHA-256 of the program.
    pub(super) checksum: String,
    /// The SHA-256 of the plugin's configuration, on which the features of a driver may depend.
    pub(super) config: String,
    pub(super) info: Info,
    /// The features of a driver; absent for devices.
    pub(super) supports: Option<Supports>,
}

impl Known {
    /// Returns the record of a program with this checksum and configuration.
    pub(super) fn read(dir: &Path, checksum: &str, config: &str) -> Option<Self> {
        let dir = dir.is_dir().then(|| Dir::open(dir).ok()).flatten()?;
        let bytes = dir.read_all(Path::new(FILE), MAX_RECORD, Mounts::Refuse).ok()?;
        serde_json::from_slice::<Self>(&bytes)
            .ok()
            .filter(|known| known.checksum == checksum && known.config == config)
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), PluginError> {
        let bytes = serde_json::to_vec(self).map_err(|error| PluginError::Io {
            what: "encode the record of a plugin",
            source: error.into(),
        })?;
        put(dir, FILE, &bytes)
    }
}
