//! Errors of a client.

use std::io;
use std::path::PathBuf;

/// The reason that a client could not be created or could not serve a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A directory of the client cannot be created or used.
    #[error("the client's directory {} cannot be used: {what}", path.display())]
    Directory {
        /// The path that could not be used.
        path: PathBuf,
        /// The failed operation or the purpose, as the error text names it.
        what: &'static str,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The client state cannot be opened.
    #[error("the client state {} cannot be opened; is another agent using it?", path.display())]
    OpenState {
        /// The path of the database file.
        path: PathBuf,
        /// The error of the database.
        #[source]
        source: Box<redb::Error>,
    },
    /// The node's lease cannot be kept.
    #[error("the node's lease cannot be kept")]
    Lease(#[source] caravan_shim::Error),
    /// The client state cannot be read.
    #[error("the client state cannot be read: {what}")]
    ReadState {
        /// The part of the state that cannot be read.
        what: String,
        /// The error of the database or the decoder.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A change could not be made durable.
    #[error("the client state cannot be written")]
    WriteState {
        /// The error of the database, shared by all changes in the same commit.
        #[source]
        source: std::sync::Arc<redb::Error>,
    },
    /// The client is shutting down.
    #[error("the client is shutting down")]
    ShuttingDown,
    /// A kernel call failed.
    #[error("{what}")]
    Kernel {
        /// The operation that failed.
        what: String,
        /// The error of the system call.
        #[source]
        source: caravan_sys::Error,
    },
    /// This node has no such allocation.
    #[error("unknown allocation \"{0}\"")]
    UnknownAlloc(String),
    /// The allocation has not ended yet.
    #[error("allocation \"{0}\" still runs")]
    StillRuns(String),
    /// The allocation has no such task.
    #[error("unknown task name \"{0}\"")]
    UnknownTask(String),
    /// The job file gives the task no action with this name.
    #[error("action {action} not found in task {task}")]
    UnknownAction {
        /// The name of the action.
        action: String,
        /// The name of the task.
        task: String,
    },
    /// A change of the node metadata is invalid.
    #[error("{0}")]
    Metadata(String),
    /// The servers did not sign the node's identity.
    #[error("the node's identity cannot be signed: {0}")]
    Unsigned(String),
    /// The task does not run.
    #[error("task \"{0}\" is not running.")]
    TaskNotRunning(String),
    /// A host volume of the agent's configuration does not exist.
    #[error("failed to validate volume {name}, err: {source}")]
    HostVolume {
        /// The name of the volume.
        name: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// A mount keeps a directory from being removed.
    #[error("{} cannot be removed: {mount}", dir.display())]
    Mounted {
        /// The directory that stays.
        dir: PathBuf,
        /// The mount, and the reason that it stays; or the error of the examination.
        mount: String,
    },
    /// A driver returned an error.
    #[error("{0}")]
    Driver(#[from] caravan_drivers::Error),
    /// A CSI plugin returned an error or cannot be reached.
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
