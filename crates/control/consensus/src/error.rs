//! Errors of this crate.

use crate::{ClusterId, Identity, PeerAddress, PeersFileFault, ServerId};
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
    /// The log starts after the newest readable snapshot, so the state between them is lost.
    #[error(
        "the log in {} begins after entry {purged}, but no readable snapshot reaches that far (newest: {})",
        path.display(),
        newest.map_or_else(|| String::from("none"), |index| index.to_string())
    )]
    SnapshotMissing {
        /// The data directory.
        path: PathBuf,
        /// Last entry removed from the log.
        purged: u64,
        /// Last entry in the newest readable snapshot.
        newest: Option<u64>,
    },
    /// The file `peers.json` of a recovery cannot be applied. Nothing was changed.
    #[error("the recovery file {} cannot be applied: {fault}", path.display())]
    PeersFile {
        /// The path of `peers.json`, below the directory of the log.
        path: PathBuf,
        /// The check that the content does not pass.
        fault: PeersFileFault,
    },
    /// This server is not the leader, or cannot reach a quorum. Nothing was appended.
    #[error("this server is not the leader")]
    NotLeader {
        /// The leader, if known.
        leader: Option<PeerAddress>,
    },
    /// The term of the leader in which the caller works has ended. Nothing was appended.
    #[error("the leader's term {term} has ended")]
    TermEnded {
        /// The term of the caller.
        term: u64,
    },
    /// The command was appended, but leadership ended before it was committed. Another leader may still commit it.
    #[error("leadership changed before the command was committed: it may or may not take effect")]
    OutcomeUnknown,
    /// The command is larger than [`MAX_COMMAND`](crate::MAX_COMMAND). Nothing was appended.
    #[error(
        "a command of {bytes} bytes is too large for the replicated log; the limit is {} bytes",
        crate::MAX_COMMAND
    )]
    TooLarge {
        /// Size of the command.
        bytes: usize,
    },
    /// Leadership was not confirmed by a quorum within the time limit.
    #[error("no quorum of servers confirmed this server as the leader in time")]
    NoQuorum,
    /// The state of this follower was not as new as the state of the leader within the time limit.
    #[error("this server has not applied in time what the leader has applied")]
    Lagging,
    /// The membership was not changed.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// No other server took over leadership in time.
    #[error("server {to} did not take over leadership in time")]
    NotTransferred {
        /// The server that was to take over.
        to: ServerId,
    },
    /// This server has no number yet: it was neither admitted to a cluster, nor did it found one.
    #[error("this server is not a member of a cluster yet")]
    NotAdmitted,
    /// This server belongs to a cluster, or has another number in it.
    #[error(
        "this server is already number {} of cluster {}",
        identity.number.map_or_else(|| String::from("none"), |number| number.to_string()),
        identity.cluster.map_or_else(|| String::from("none"), |cluster| cluster.to_string())
    )]
    Admitted {
        /// The server's identity.
        identity: Identity,
    },
    /// The message comes from a server of another cluster.
    #[error("the message is from cluster {found}, but this server belongs to cluster {own}")]
    WrongCluster {
        /// Cluster of the sender.
        found: ClusterId,
        /// Cluster of this server.
        own: ClusterId,
    },
    /// The message is addressed to another server.
    #[error("the message is for server {to}, but this is server {own}")]
    WrongServer {
        /// The addressed server.
        to: ServerId,
        /// The number of this server.
        own: ServerId,
    },
    /// The message cannot be decoded.
    #[error("a message between servers cannot be read: {reason}")]
    Message {
        /// The reason that decoding failed.
        reason: String,
    },
    /// A snapshot from the leader did not arrive completely.
    #[error("the snapshot of the leader was not received")]
    SnapshotNotReceived(#[source] io::Error),
    /// This server restarted a moment ago and must not vote yet.
    #[error("this server has just started and does not vote yet")]
    NoVoteYet,
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

/// The reasons for which a membership change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The membership is no longer the version that the caller has seen.
    #[error("the membership has changed in the meantime")]
    Changed,
    /// The previous change is not committed yet.
    #[error("another change of the membership is in progress")]
    InProgress,
    /// The leader has not committed an entry of its own term yet.
    #[error("the leader has not taken over completely yet")]
    LeaderTooNew,
    /// The server is not a member.
    #[error("server {0} is not a member of this cluster")]
    NotMember(ServerId),
    /// The server is a member already.
    #[error("server {0} is a member of this cluster already")]
    Member(ServerId),
    /// The server is the only voter.
    #[error("server {0} is the only voter of this cluster and cannot be removed")]
    LastVoter(ServerId),
    /// openraft refuses the change for another reason.
    #[error("the membership cannot be changed: {0}")]
    Refused(String),
}

impl Error {
    pub(crate) fn data_dir(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::DataDir { path, source }
    }

    pub(crate) fn fatal(source: impl Into<BoxError>) -> Self {
        Self::Fatal { source: source.into() }
    }

    pub(crate) fn message(reason: impl ToString) -> Self {
        Self::Message { reason: reason.to_string() }
    }
}
