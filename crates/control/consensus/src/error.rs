//! Errors of this crate.

use crate::ServerId;
use std::io;
use std::path::PathBuf;

/// An error of another crate, returned by a state machine or a store.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The errors of the replicated log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of its range.
    #[error("{field} is not valid: {reason}")]
    Config {
        /// Name of the setting.
        field: &'static str,
        /// The allowed values.
        reason: &'static str,
    },
    /// More than one voter was configured, or found in the data directory.
    #[error("{count} voting servers were given, but only one voting server is supported")]
    ManyVoters {
        /// Number of voters, this one included.
        count: usize,
    },
    /// The directory cannot be created, opened or written.
    #[error("the data directory {} cannot be used", path.display())]
    DataDir {
        /// The directory or the file in it.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another process has locked the directory.
    #[error("the data directory {} is in use by another process", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
    },
    /// The log file cannot be read.
    #[error("the log {} cannot be read", path.display())]
    Log {
        /// Path of the log file.
        path: PathBuf,
        /// The store's error.
        #[source]
        source: BoxError,
    },
    /// The directory was written by a server with another number.
    #[error("the data directory {} belongs to server {found}, but this is server {expected}", path.display())]
    WrongServer {
        /// The data directory.
        path: PathBuf,
        /// Number recorded in the directory.
        found: ServerId,
        /// Number in the configuration.
        expected: ServerId,
    },
    /// The log starts after the newest readable snapshot, so the state between them is lost.
    #[error(
        "the log in {} begins after entry {purged}, but no readable snapshot reaches that far (newest: {})",
        path.display(),
        newest.map_or_else(|| String::from("none"), |index| index.to_string())
    )]
    SnapshotMissing {
        /// The data directory.
        path: PathBuf,
        /// Last entry dropped from the log.
        purged: u64,
        /// Last entry in the newest readable snapshot.
        newest: Option<u64>,
    },
    /// This server is not the leader now.
    #[error("this server is not the leader")]
    NotLeader {
        /// Number and address of the leader, if known.
        leader: Option<(ServerId, String)>,
    },
    /// The log was shut down.
    #[error("the replicated log is stopped")]
    Stopped,
    /// The log cannot continue; the process must end.
    #[error("the replicated log failed and cannot go on")]
    Fatal {
        /// The first failure.
        #[source]
        source: BoxError,
    },
}

impl Error {
    pub(crate) fn data_dir(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::DataDir { path, source }
    }

    pub(crate) fn fatal(source: impl Into<BoxError>) -> Self {
        Self::Fatal { source: source.into() }
    }
}
