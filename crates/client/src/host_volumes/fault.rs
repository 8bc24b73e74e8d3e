//! What can go wrong with host volumes on a node.

use crate::ClientError;
use caravan_rpc::{Code, RpcError};
use std::path::PathBuf;

/// Why something could not be done with a host volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostVolumeFault {
    /// One name per node.
    #[error("volume name already exists on this node")]
    NameTaken,
    /// The servers' id cannot be the name of a directory.
    #[error("volume id {0:?} cannot be the name of a directory")]
    Id(String),
    /// There is no such plugin.
    #[error("no such plugin: {0:?}")]
    NoPlugin(String),
    /// It is no program.
    #[error("plugin not executable: {0:?}")]
    NotExecutable(String),
    /// The built-in plugin's parameters.
    #[error("invalid value for {key:?}: {why}")]
    Parameter {
        /// Which.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// A plugin failed.
    #[error("error {doing} plugin {plugin:?}: {why}")]
    Plugin {
        /// `creating volume "ID" with`, `deleting volume "ID" with`, `fingerprinting`.
        doing: String,
        /// Its id.
        plugin: String,
        /// How it ended, and its own words.
        why: String,
        /// Whether that says what it has done.
        outcome: PluginOutcome,
    },
    /// A path is not there.
    #[error("could not verify host path for {name:?}: stat {}: {why}", path.display())]
    Path {
        /// Name of the volume.
        name: String,
        /// The path.
        path: PathBuf,
        /// The system's answer.
        why: String,
    },
    /// Something is mounted in what is to be deleted.
    #[error("{} is mounted below the volume: unmount it first", .0.display())]
    Mounted(PathBuf),
    /// The outcome could not be kept.
    #[error("the host volume could not be recorded: {0}")]
    Keep(#[source] ClientError),
}

/// What is known after a plugin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PluginOutcome {
    /// It says that it did not do it.
    Failed,
    /// It was ended before it said anything.
    Unknown,
    /// It says that it did it, in words that cannot be read.
    Unreadable,
}

impl HostVolumeFault {
    /// Whether what was asked for may have been done.
    pub(crate) fn outcome_unknown(&self) -> bool {
        match self {
            Self::Plugin { outcome, .. } => *outcome != PluginOutcome::Failed,
            Self::Keep(_) => true,
            _ => false,
        }
    }

    /// Whether the plugin said that it succeeded.
    pub(crate) fn after_success(&self) -> bool {
        matches!(self, Self::Plugin { outcome: PluginOutcome::Unreadable, .. })
    }

    /// The same, after what may have been done was undone.
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
    /// [`Code::Unavailable`] means that the outcome is not known; the others are refusals.
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
