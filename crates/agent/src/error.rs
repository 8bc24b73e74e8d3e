//! The errors that prevent an agent's start or end it.

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
    /// A setting whose value cannot be used; the agent does not start.
    #[error("configuration: {field}: {reason}")]
    Setting {
        /// The name of the setting.
        field: &'static str,
        /// What makes the setting invalid.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A directory that cannot be created or written.
    #[error("the data directory {} cannot be used", path.display())]
    DataDir {
        /// The path of the directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// Certificates that cannot be used.
    #[error("configuration: tls: {0}")]
    Tls(#[from] caravan_tls::TlsError),
    /// An address on which the agent cannot listen.
    #[error("cannot listen on {address} for {what}")]
    Bind {
        /// The protocol: `HTTP` or `RPC`.
        what: &'static str,
        /// The address and port.
        address: std::net::SocketAddr,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A failure of the server; the text is its cause.
    #[error("the server failed: {0}")]
    Server(String),
    /// A failure of the client; the text is its cause.
    #[error("the client failed: {0}")]
    Client(String),
    /// A failure of the runtime or of a signal handler.
    #[error("the agent cannot run")]
    Runtime(#[source] std::io::Error),
}
