//! Why a call is refused, and with which status ("Error Scheme" and the tables of each call in the CSI
//! specification).

use std::{io, path::PathBuf};

use tonic::{Code, Status};

/// Why a call was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is wrong in itself.
    #[error("{0}")]
    Invalid(String),
    /// There is no such volume.
    #[error("there is no volume {0:?}")]
    NoVolume(String),
    /// There is no such snapshot.
    #[error("there is no snapshot {0:?}")]
    NoSnapshot(String),
    /// There is no such group of snapshots.
    #[error("there is no group of snapshots {0:?}")]
    NoGroup(String),
    /// There is no such node.
    #[error("there is no node {0:?} here: this plugin serves the node {1:?}")]
    NoNode(String, String),
    /// The volume is not where it was asked for.
    #[error("the volume {volume} is not mounted at {}", path.display())]
    NotThere {
        /// The volume's id.
        volume: String,
        /// The path of the request.
        path: PathBuf,
    },
    /// It exists, and not as asked for.
    #[error("{0}")]
    Exists(String),
    /// The volume is in use, or another call has to come first.
    #[error("{0}")]
    Precondition(String),
    /// Another call for the same volume is under way.
    #[error("another operation on {0} is under way")]
    Busy(String),
    /// The token of a list is not one of ours.
    #[error("the starting token {0:?} is not one that this plugin gave out")]
    Token(String),
    /// No room, or no topology that can be served.
    #[error("{0}")]
    Exhausted(String),
    /// The size is not possible.
    #[error("{0}")]
    Range(String),
    /// The volume or snapshot belongs to the instance of the plugin on another host.
    #[error("{0} was made by the plugin's instance {1}, this one is {2}: ask the controller on that host")]
    Elsewhere(String, String, String),
    /// The system refused something.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was to be done, such that a path can follow.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A record on disk cannot be read.
    #[error("the record {} is damaged", path.display())]
    Record {
        /// The record's file.
        path: PathBuf,
        /// Where it is damaged.
        #[source]
        source: serde_json::Error,
    },
    /// A program is missing or failed.
    #[error("{program} failed: {problem}")]
    Tool {
        /// The program's name.
        program: &'static str,
        /// What it said, without mount flags.
        problem: String,
    },
    /// A mount is in the way of a removal, and stays.
    #[error("cannot remove {0}: it is a mount, and what is in it is not to be removed; unmount it first")]
    Mounted(String),
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(caravan_sys::Error),
    /// What is on disk or in the mount table contradicts the records.
    #[error("{0}")]
    Inconsistent(String),
}

impl Error {
    /// For `map_err` on file system calls.
    pub(crate) fn io<E: Into<io::Error>>(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source: source.into() }
    }

    /// An error of a removal.
    pub(crate) fn kernel(error: caravan_sys::Error) -> Self {
        match error {
            caravan_sys::Error::Mounted { path, .. } => Self::Mounted(path.display().to_string()),
            other => Self::Kernel(other),
        }
    }

    /// The status code of the answer.
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

    /// The whole story in one sentence, inner errors included: the caller sees nothing else.
    pub fn sentence(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code(), error.sentence())
    }
}
