//! Errors of host volumes on a node.

use crate::ClientError;
use caravan_rpc::{Code, RpcError};
use std::path::PathBuf;

/// The reason that an operation on a host volume failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostVolumeFault {
    /// Another volume on this node has the name.
    #[error("volume name already exists on this node")]
    NameTaken,
    /// The servers' id cannot be the name of a directory.
    #[error("volume id {0:?} cannot be the name of a directory")]
    Id(String),
    /// The plugin does not exist.
    #[error("no such plugin: {0:?}")]
    NoPlugin(String),
    /// The plugin's file is not executable.
    #[error("plugin not executable: {0:?}")]
    NotExecutable(String),
    /// A parameter of the built-in plugin is invalid.
    #[error("invalid value for {key:?}: {why}")]
    Parameter {
        /// The name of the parameter.
        key: String,
        /// The reason that its value is invalid.
        why: String,
    },
    /// A plugin failed.
    #[error("error {doing} plugin {plugin:?}: {why}")]
    Plugin {
        /// The operation: `creating volume "ID" with`, `deleting volume "ID" with`, `fingerprinting`.
        doing: String,
        /// The plugin's id.
        plugin: String,
        /// The end of the plugin's process, with its own error text.
        why: String,
        /// Whether the operation may have had an effect.
        outcome: PluginOutcome,
    },
    /// The path of a volume does not exist.
    #[error("could not verify host path for {name:?}: stat {}: {why}", path.display())]
    Path {
        /// Name of the volume.
        name: String,
        /// The missing path.
        path: PathBuf,
        /// The error of the system call.
        why: String,
    },
    /// A file system is mounted in the directory to be deleted.
    #[error("{} is mounted below the volume: unmount it first", .0.display())]
    Mounted(PathBuf),
    /// The outcome could not be stored.
    #[error("the host volume could not be recorded: {0}")]
    Keep(#[source] ClientError),
}

/// The outcome of an operation whose plugin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PluginOutcome {
    /// The plugin reported that the operation failed.
    Failed,
    /// The plugin was killed before it reported a result.
    Unknown,
    /// The plugin reported success, but its output cannot be parsed.
    Unreadable,
}

impl HostVolumeFault {
    /// Returns whether the operation may have had an effect.
    pub(crate) fn outcome_unknown(&self) -> bool {
        match self {
            Self::Plugin { outcome, .. } => *outcome != PluginOutcome::Failed,
            Self::Keep(_) => true,
            _ => false,
        }
    }

    /// Returns whether the plugin reported success.
    pub(crate) fn after_success(&self) -> bool {
        matches!(self, Self::Plugin { outcome: PluginOutcome::Unreadable, .. })
    }

    /// Returns the same fault after a possible effect was undone.
    pub(crate) fn settled(self) -> Self {
        match self {
            Self::Plugin { doing, plugin, why, .. } => {
                Self::Plugin { doing, plugin, why, outcome: PluginOutcome::Failed }
            }
            other => other,
        }
    }
}

impl From<&HostVolumeFault> for RpcError {
    /// Converts a fault to an RPC error. [`Code::Unavailable`] means that the outcome is unknown; other codes are
    /// refusals.
    fn from(fault: &HostVolumeFault) -> Self {
        let code = match fault {
            fault if fault.outcome_unknown() => Code::Unavailable,
            HostVolumeFault::Plugin { .. } | HostVolumeFault::NameTaken | HostVolumeFault::Mounted(_) => {
                Code::Conflict
            }
            _ => Code::Invalid,
        };
        Self::new(code, caravan_sys::describe(fault))
    }
}
