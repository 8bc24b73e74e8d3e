//! The errors that prevent an agent's start or end it.

use caravan_client::ClientError;
use caravan_server::ServerError;
use std::io::ErrorKind;
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
        /// The reason that the setting is invalid.
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
        /// The protocol: `HTTP`, `RPC` or `serf`.
        what: &'static str,
        /// The address and port.
        address: std::net::SocketAddr,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A data directory that this agent must not use.
    #[error("the data directory {} cannot be used: {reason}", path.display())]
    Foreign {
        /// The path of the directory.
        path: PathBuf,
        /// The reason that the agent must not use the directory.
        reason: crate::data_dir::ForeignReason,
    },
    /// The membership of servers cannot start.
    #[error("the membership of servers cannot start")]
    Members(#[source] Box<caravan_members::Error>),
    /// No configured server was joined.
    #[error(transparent)]
    Join(Box<caravan_members::JoinError>),
    /// A failure of the server.
    #[error("the server failed")]
    Server(#[source] Box<ServerError>),
    /// A failure of the client.
    #[error("the client failed")]
    Client(#[source] Box<ClientError>),
    /// A failure of the runtime or of a signal handler.
    #[error("the agent cannot run")]
    Runtime(#[source] std::io::Error),
}

/// The exit code for an error that a restart does not repair: `EX_CONFIG` of sysexits.h(3head). The unit of the
/// package names it in `RestartPreventExitStatus`.
const PERMANENT: u8 = 78;

impl AgentError {
    /// Returns the exit code of the process: 78 if a restart would fail in the same way, otherwise 1.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.is_permanent() { PERMANENT } else { 1 }
    }

    fn is_permanent(&self) -> bool {
        match self {
            Self::Flags(_) | Self::Config(_) | Self::Setting { .. } | Self::Tls(_) | Self::Foreign { .. } => {
                true
            }
            Self::Read { source, .. } | Self::DataDir { source, .. } => needs_operator(source),
            // An address that the host does not have yet may appear with its network interface.
            Self::Bind { source, .. } => {
                matches!(source.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)
            }
            Self::Server(error) => match &**error {
                ServerError::Storage(error) => is_permanent_of_log(error),
                _ => false,
            },
            Self::Client(error) => match &**error {
                ClientError::OpenState { .. } => true,
                ClientError::Directory { source, .. } => needs_operator(source),
                _ => false,
            },
            Self::Members(_) | Self::Join(_) | Self::Runtime(_) => false,
        }
    }
}

fn is_permanent_of_log(error: &caravan_consensus::Error) -> bool {
    use caravan_consensus::Error;
    match error {
        Error::Config { .. }
        | Error::Locked { .. }
        | Error::Log { .. }
        | Error::SnapshotMissing { .. }
        | Error::PeersFile { .. } => true,
        Error::DataDir { source, .. } => needs_operator(source),
        _ => false,
    }
}

/// Returns whether an error of the file system stays until an operator acts. A full disk may be emptied meanwhile.
fn needs_operator(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::InvalidData
            | ErrorKind::AlreadyExists
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_a_restart_may_repair_end_with_1() {
        let io = |kind| std::io::Error::from(kind);
        let bind =
            |kind| AgentError::Bind { what: "HTTP", address: ([127, 0, 0, 1], 1).into(), source: io(kind) };
        let dir = |kind| AgentError::DataDir { path: "/d".into(), source: io(kind) };
        let log = |error| AgentError::Server(Box::new(ServerError::Storage(std::sync::Arc::new(error))));
        for (error, code) in [
            (AgentError::Config("x".into()), 78),
            (bind(ErrorKind::AddrInUse), 78),
            (bind(ErrorKind::AddrNotAvailable), 1),
            (dir(ErrorKind::ReadOnlyFilesystem), 78),
            (dir(ErrorKind::StorageFull), 1),
            (log(caravan_consensus::Error::Locked { path: "/d".into() }), 78),
            (log(caravan_consensus::Error::Stopped), 1),
            (AgentError::Runtime(io(ErrorKind::Other)), 1),
        ] {
            assert_eq!(error.exit_code(), code, "{error:?}");
        }
    }
}
