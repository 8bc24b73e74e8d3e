//! Why an agent does not start, or ends.

use std::path::PathBuf;

/// A failure of the agent as a whole.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A mistake on the command line.
    #[error(transparent)]
    Flags(#[from] crate::flags::FlagError),
    /// Mistakes in configuration files, shown with their places.
    #[error("{0}")]
    Config(String),
    /// A setting that makes no sense.
    #[error("configuration: {field}: {reason}")]
    Setting {
        /// Name of the setting.
        field: &'static str,
        /// Why.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A directory that cannot be made or written.
    #[error("the data directory {} cannot be used", path.display())]
    DataDir {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Certificates that cannot be used.
    #[error("configuration: tls: {0}")]
    Tls(#[from] caravan_tls::TlsError),
    /// An address that cannot be listened on.
    #[error("cannot listen on {address} for {what}")]
    Bind {
        /// `HTTP` or `RPC`.
        what: &'static str,
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The server part failed.
    #[error("the server failed: {0}")]
    Server(String),
    /// The client part failed.
    #[error("the client failed: {0}")]
    Client(String),
    /// The runtime or a signal handler.
    #[error("the agent cannot run")]
    Runtime(#[source] std::io::Error),
}
