//! What both plugins have in common: which services a process has, and where it listens.

use anyhow::{Result, bail};
use clap::ValueEnum;
use std::path::PathBuf;

/// The services that a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Services {
    /// Both, in one process.
    All,
    /// The controller only.
    Controller,
    /// The node only.
    Node,
}

/// The path in an endpoint such as `unix:///csi/csi.sock`.
pub(crate) fn socket(endpoint: &str) -> Result<PathBuf> {
    match endpoint.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
        _ => bail!("invalid endpoint {endpoint:?}: it must be unix:// and an absolute path"),
    }
}
