//! Code that both plugins share: the services of a process, and its socket.

use anyhow::{Result, bail};
use clap::ValueEnum;
use std::path::PathBuf;

/// The services of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Services {
    /// Controller and node service in one process.
    All,
    /// The controller service only.
    Controller,
    /// The node service only.
    Node,
}

/// Returns the path in an endpoint such as `unix:///csi/csi.sock`.
pub(crate) fn socket(endpoint: &str) -> Result<PathBuf> {
    match endpoint.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => bail!("invalid endpoint {endpoint:?}: it must be unix:// and an absolute path"),
    }
}
