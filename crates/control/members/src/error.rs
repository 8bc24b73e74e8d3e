//! Errors of this crate.

use crate::key::KeyError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The reasons for which the membership does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The advertised address names no host.
    #[error("advertise.serf: {0} is not an address that other servers can reach")]
    Advertise(SocketAddr),
    /// The tags exceed [`crate::MAX_TAG_BYTES`], or the name is too long or empty.
    #[error("the name or the tags of this server are too long, or the name is empty")]
    Tags,
    /// The listener has no address.
    #[error("the gossip port cannot be used")]
    Listen(#[source] io::Error),
    /// The key ring file is not a list of gossip keys.
    #[error("the key ring {} is not a JSON list of base64 keys", path.display())]
    Keyring {
        /// The path of the file.
        path: PathBuf,
        /// The first key that is not valid; `None` if the file is not a list.
        #[source]
        source: Option<KeyError>,
    },
    /// A file cannot be read or written.
    #[error("the file {} cannot be used: {reason}", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    Random,
}

/// The membership has ended, or this server has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The service ended.
    #[error("the membership of this server has ended")]
    Ended,
    /// The server left the cluster; it joins again after a restart.
    #[error("this server has left the cluster")]
    Left,
}
