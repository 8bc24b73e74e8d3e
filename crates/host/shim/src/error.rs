//! The crate's error type.

use std::io;
use std::path::PathBuf;

/// Result of a fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason that the shim failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A kernel call failed.
    #[error(transparent)]
    Sys(#[from] caravan_sys::Error),
    /// Input or output failed.
    #[error("cannot {doing}")]
    Io {
        /// The operation, as the words after "cannot".
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Input or output on a file failed.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// The operation, as the words after "cannot".
        doing: &'static str,
        /// The file's path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The peer uses another version of the protocol.
    #[error("the other side speaks version {theirs} of the shim's protocol, this one {ours}")]
    Version {
        /// The peer's version.
        theirs: u32,
        /// The version of this program.
        ours: u32,
    },
    /// A message could not be decoded.
    #[error("malformed message: {0}")]
    Message(String),
    /// A message is longer than allowed.
    #[error("message of {0} bytes is too long")]
    TooLong(usize),
    /// A program could not be started; the text names the failed step and the reason.
    #[error("{0}")]
    Launch(String),
    /// The lease that the task runs under has run out, or was never granted.
    #[error("the node's lease in {} has passed: the task may not run", .0.display())]
    LeasePassed(PathBuf),
}
