//! The crate's error type.

use std::io;
use std::path::PathBuf;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the shim could not do its part.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kernel call failed.
    #[error(transparent)]
    Sys(#[from] caravan_sys::Error),
    /// Input or output failed.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// Input or output on a file failed.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The peer speaks another version.
    #[error("the other side speaks version {theirs} of the shim's protocol, this one {ours}")]
    Version {
        /// The peer's version.
        theirs: u32,
        /// Our version.
        ours: u32,
    },
    /// A message could not be read.
    #[error("malformed message: {0}")]
    Message(String),
    /// A message is longer than allowed.
    #[error("message of {0} bytes is too long")]
    TooLong(usize),
    /// A program could not be started; the text says which step failed and why.
    #[error("{0}")]
    Launch(String),
    /// The lease that the task runs under has passed, or was never given.
    #[error("the node's lease in {} has passed: the task may not run", .0.display())]
    LeasePassed(PathBuf),
}
