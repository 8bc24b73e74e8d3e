//! What can go wrong in a client.

use std::io;
use std::path::PathBuf;

/// Why a client could not be made or could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A directory of the client cannot be made or used.
    #[error("the client's directory {} cannot be used: {what}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// For what.
        what: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The client state cannot be opened.
    #[error("the client state {} cannot be opened; is another agent using it?", path.display())]
    OpenState {
        /// The file.
        path: PathBuf,
        /// The database's answer.
        #[source]
        source: Box<redb::Error>,
    },
    /// The node's lease cannot be kept.
    #[error("the node's lease cannot be kept")]
    Lease(#[source] caravan_shim::Error),
    /// The client state cannot be read.
    #[error("the client state cannot be read: {what}")]
    ReadState {
        /// Which part.
        what: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Something could not be made durable.
    #[error("the client state cannot be written")]
    WriteState {
        /// The database's answer, shared by everyone whose change was in the same commit.
        #[source]
        source: std::sync::Arc<redb::Error>,
    },
    /// The client is shutting down.
    #[error("the client is shutting down")]
    ShuttingDown,
    /// A kernel call failed.
    #[error("{what}")]
    Kernel {
        /// What was to be done.
        what: String,
        /// The kernel's answer.
        #[source]
        source: caravan_sys::Error,
    },
    /// There is no such allocation on this node.
    #[error("unknown allocation \"{0}\"")]
    UnknownAlloc(String),
    /// It is not over yet.
    #[error("allocation \"{0}\" still runs")]
    StillRuns(String),
    /// There is no such task in the allocation.
    #[error("unknown task name \"{0}\"")]
    UnknownTask(String),
    /// The job file gives the task no such action.
    #[error("action {action} not found in task {task}")]
    UnknownAction {
        /// Which.
        action: String,
        /// Task.
        task: String,
    },
    /// A change of the node's free pairs makes no sense.
    #[error("{0}")]
    Metadata(String),
    /// The servers do not sign.
    #[error("the node's identity cannot be signed: {0}")]
    Unsigned(String),
    /// The task does not run.
    #[error("task \"{0}\" is not running.")]
    TaskNotRunning(String),
    /// A volume of the agent's configuration is not there.
    #[error("failed to validate volume {name}, err: {source}")]
    HostVolume {
        /// Which.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A mount keeps a directory from being removed.
    #[error("{} cannot be removed: {mount}", dir.display())]
    Mounted {
        /// The directory.
        dir: PathBuf,
        /// The mount, and why it stays.
        mount: String,
    },
    /// A driver refused.
    #[error("{0}")]
    Driver(#[from] caravan_drivers::Error),
    /// A CSI plugin refused or cannot be reached.
    #[error("{0}")]
    Csi(#[from] crate::csi::CsiFault),
}

impl ClientError {
    pub(crate) fn directory(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Directory { path, what, source }
    }
    pub(crate) fn kernel(what: impl Into<String>) -> impl FnOnce(caravan_sys::Error) -> Self {
        let what = what.into();
        move |source| Self::Kernel { what, source }
    }
}
