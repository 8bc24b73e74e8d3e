//! The crate's error type.

use crate::task::TaskId;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a driver could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The task's `config` block, or something else that its author wrote, is wrong.
    #[error("{0}")]
    Config(String),
    /// The task could not be started.
    #[error("{message}")]
    Start {
        /// One sentence why.
        message: String,
        /// Whether another try, here, may succeed.
        recoverable: bool,
    },
    /// The driver runs no task of this id.
    #[error("the driver knows no task {0}")]
    UnknownTask(TaskId),
    /// A task of this id runs.
    #[error("task {0} runs already")]
    TaskExists(TaskId),
    /// The task runs, and the request needs one that does not.
    #[error("task {0} still runs")]
    StillRunning(TaskId),
    /// The task has ended, and the request needs one that runs.
    #[error("task {0} has ended")]
    Ended(TaskId),
    /// The handle is from another driver, or from a version that this one does not read.
    #[error("the handle of task {id} cannot be read: {reason}")]
    Handle {
        /// The task.
        id: TaskId,
        /// What is wrong with it.
        reason: String,
    },
    /// The driver cannot do this at all.
    #[error("driver {driver} cannot {what}")]
    Unsupported {
        /// The driver.
        driver: &'static str,
        /// What was asked, as the words after "cannot".
        what: &'static str,
    },
    /// The request took too long.
    #[error("{what} took longer than {limit:?}")]
    Timeout {
        /// What took too long.
        what: String,
        /// How long it was given.
        limit: std::time::Duration,
    },
    /// The task's supervisor refused a request.
    #[error("{0}")]
    Refused(String),
    /// The task's supervisor could not be talked to.
    #[error("the supervisor of task {id} does not answer")]
    Supervisor {
        /// The task.
        id: TaskId,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// A kernel call failed.
    #[error(transparent)]
    Sys(#[from] caravan_sys::Error),
    /// A message of the shim's protocol could not be made or read.
    #[error(transparent)]
    Shim(#[from] caravan_shim::Error),
}

impl Error {
    /// Whether another try, here, may succeed: what the restart policy asks.
    pub fn is_recoverable(&self) -> bool {
        match self {
            Self::Start { recoverable, .. } => *recoverable,
            Self::Timeout { .. } | Self::Supervisor { .. } => true,
            _ => false,
        }
    }
}
