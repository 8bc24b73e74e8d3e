//! The reasons for which a call is refused, with their status codes ("Error Scheme" and the tables of each call in
//! the CSI specification).

use std::{io, path::PathBuf};
use tonic::{Code, Status};

/// The reason that a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The volume does not exist.
    #[error("there is no volume {0:?}")]
    NoVolume(String),
    /// The snapshot does not exist.
    #[error("there is no snapshot {0:?}")]
    NoSnapshot(String),
    /// The group of snapshots does not exist.
    #[error("there is no group of snapshots {0:?}")]
    NoGroup(String),
    /// The node does not exist.
    #[error("there is no node {0:?} here: this plugin serves the node {1:?}")]
    NoNode(String, String),
    /// The volume is not at the requested path.
    #[error("the volume {volume} is not mounted at {}", path.display())]
    NotThere {
        /// The volume's id.
        volume: String,
        /// The path of the request.
        path: PathBuf,
    },
    /// The object exists with other properties than requested.
    #[error("{0}")]
    Exists(String),
    /// The volume is in use, or another call must succeed first.
    #[error("{0}")]
    Precondition(String),
    /// Another call for the same volume is in progress.
    #[error("another operation on {0} is under way")]
    Busy(String),
    /// The token of a list is not valid.
    #[error("the starting token {0:?} is not one that this plugin gave out")]
    Token(String),
    /// No space is left, or the requested topology cannot be served.
    #[error("{0}")]
    Exhausted(String),
    /// The size is not possible.
    #[error("{0}")]
    Range(String),
    /// The volume or snapshot belongs to the plugin's instance on another host.
    #[error("{0} was made by the plugin's instance {1}, this one is {2}: ask the controller on that host")]
    Elsewhere(String, String, String),
    /// The system refused an operation.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// The operation, worded so that a path can follow.
        what: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A record on disk cannot be read.
    #[error("the record {} is damaged", path.display())]
    Record {
        /// The record's file.
        path: PathBuf,
        /// The position and kind of the damage.
        #[source]
        source: serde_json::Error,
    },
    /// A program is missing or failed.
    #[error("{program} failed: {problem}")]
    Tool {
        /// The program's name.
        program: &'static str,
        /// The program's error output, without mount flags.
        problem: String,
    },
    /// A mount prevents a removal and remains.
    #[error("cannot remove {0}: it is a mount, and what is in it is not to be removed; unmount it first")]
    Mounted(String),
    /// The kernel refused an operation.
    #[error(transparent)]
    Kernel(caravan_sys::Error),
    /// The disk or the mount table contradicts the records.
    #[error("{0}")]
    Inconsistent(String),
}

impl Error {
    /// Returns a function for `map_err` on file system calls.
    pub(crate) fn io<E: Into<io::Error>>(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source: source.into() }
    }

    /// Returns the error for a failed removal.
    pub(crate) fn kernel(error: caravan_sys::Error) -> Self {
        match error {
            caravan_sys::Error::Mounted { path, .. } => Self::Mounted(path.display().to_string()),
            other => Self::Kernel(other),
        }
    }

    /// Returns the status code of the response.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(_) => Code::InvalidArgument,
            Self::NoVolume(_)
            | Self::NoSnapshot(_)
            | Self::NoGroup(_)
            | Self::NoNode(..)
            | Self::NotThere { .. } => Code::NotFound,
            Self::Exists(_) => Code::AlreadyExists,
            Self::Precondition(_) | Self::Mounted(_) => Code::FailedPrecondition,
            Self::Busy(_) | Self::Token(_) => Code::Aborted,
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::Range(_) => Code::OutOfRange,
            Self::Elsewhere(..) => Code::Unavailable,
            Self::Io { .. }
            | Self::Kernel(_)
            | Self::Record { .. }
            | Self::Tool { .. }
            | Self::Inconsistent(_) => Code::Internal,
        }
    }

    /// Returns the error with all its causes in one sentence, which is all that the caller sees.
    pub fn sentence(&self) -> String {
        caravan_sys::describe(self)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code(), error.sentence())
    }
}
