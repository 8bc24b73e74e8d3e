//! The crate's error type.

use crate::task::TaskId;

/// Result of a fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason that a driver could not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The task's `config` block, or another setting of the job's author, is wrong.
    #[error("{0}")]
    Config(String),
    /// The task could not be started.
    #[error("{message}")]
    Start {
        /// The reason, as one sentence.
        message: String,
        /// Whether another attempt on this node may succeed.
        recoverable: bool,
    },
    /// The driver has no task with this id.
    #[error("the driver knows no task {0}")]
    UnknownTask(TaskId),
    /// A task with this id is already running.
    #[error("task {0} runs already")]
    TaskExists(TaskId),
    /// The task is running, and the request needs a task that has ended.
    #[error("task {0} still runs")]
    StillRunning(TaskId),
    /// The task has ended, and the request needs a running task.
    #[error("task {0} has ended")]
    Ended(TaskId),
    /// The handle belongs to another driver, or its version cannot be read.
    #[error("the handle of task {id} cannot be read: {reason}")]
    Handle {
        /// The task that the handle names.
        id: TaskId,
        /// The defect of the handle.
        reason: String,
    },
    /// The driver does not support the request.
    #[error("driver {driver} cannot {what}")]
    Unsupported {
        /// The driver's name.
        driver: String,
        /// The request, as the words after "cannot".
        what: &'static str,
    },
    /// The request took too long.
    #[error("{what} took longer than {limit:?}")]
    Timeout {
        /// The step that took too long.
        what: String,
        /// The timeout that passed.
        limit: std::time::Duration,
    },
    /// The task's supervisor refused a request.
    #[error("{0}")]
    Refused(String),
    /// The connection to the task's supervisor failed.
    #[error("the supervisor of task {id} does not answer")]
    Supervisor {
        /// The task whose supervisor it is.
        id: TaskId,
        /// The error of the connection.
        #[source]
        source: std::io::Error,
    },
    /// A kernel call failed.
    #[error(transparent)]
    Sys(#[from] caravan_sys::Error),
    /// A message of the shim's protocol could not be encoded or decoded.
    #[error(transparent)]
    Shim(#[from] caravan_shim::Error),
}

impl Error {
    /// Returns whether another attempt on this node may succeed. The restart policy decides by this.
    pub fn is_recoverable(&self) -> bool {
        match self {
            Self::Start { recoverable, .. } => *recoverable,
            Self::Timeout { .. } | Self::Supervisor { .. } => true,
            _ => false,
        }
    }
}
