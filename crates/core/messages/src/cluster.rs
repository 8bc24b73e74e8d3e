//! Messages between servers.

use caravan_founding::{Answer, Founding};
use caravan_types::packed::{PackError, Packed, UnpackError};
use caravan_types::time::UnixNanos;
use caravan_types::{AllocId, NodeId, VolumeKey};
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// The key of a cluster: it proves that a server belongs to the cluster, and seals the root keys in the log. A server
/// receives it when it is admitted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    /// Wraps the bytes of a key.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for the code that stores or uses the key.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

/// The facts that a server reports to other servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The server's UUID.
    pub id: Uuid,
    /// The cluster that the server belongs to.
    pub cluster: Option<Uuid>,
    /// The server's number in the log of the cluster.
    pub number: Option<u64>,
    /// The newest term that the server has seen.
    pub term: u64,
    /// The term of the last entry in the server's log.
    pub last_term: u64,
    /// The index of the last entry in the server's log.
    pub last_index: u64,
    /// The time since the last message of a leader, in nanoseconds; absent before the first message. 0 on the leader.
    pub last_contact: Option<u64>,
    /// The feature level that the server supports.
    pub level: u32,
    /// The server's wall clock, from which differences between servers are computed.
    pub now: UnixNanos,
}

/// The request for the status of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskStatus {}

/// The request that a server promises to take part in a founding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskPromise {
    /// The servers of the cluster to be founded, which all must promise.
    pub founding: Founding,
    /// The key of the cluster to be founded.
    pub key: ClusterKey,
}

/// The response to [`AskPromise`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseAnswer {
    /// The promise or the refusal.
    pub answer: Answer,
}

/// The question whether a founding still stands, for its proposer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskFounding {
    /// The founding that the sender has promised.
    pub founding: Founding,
}

/// The response to [`AskFounding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundingStands {
    /// Whether the cluster is founded, or may still be founded.
    pub stands: bool,
}

/// The request that admits a server to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admit {
    /// The id of the cluster.
    pub cluster: Uuid,
    /// The server's number in the log.
    pub number: u64,
    /// The key of the cluster.
    pub key: ClusterKey,
    /// The feature level of the cluster's state.
    pub level: u32,
}

/// The response to [`Admit`], sent when the server has stored its identity durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// The server's number in the log.
    pub number: u64,
}

/// The request for the nodes that are connected to a server, and for later changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowNodes {}

/// A change of the nodes that are connected to a server. The first message has all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesChanged {
    /// Nodes that the server can call now.
    pub connected: Vec<NodeId>,
    /// Nodes that the server can no longer call.
    pub gone: Vec<NodeId>,
}

/// The request for the wait reasons of claims, which only the leader has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowReasons {}

/// A change of the wait reasons of claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonsChanged {
    /// Whether all volumes outside this message have no reasons, until a later message contains them.
    pub is_whole: bool,
    /// The volumes with other reasons.
    pub volumes: Vec<VolumeReasons>,
}

/// The wait reasons of the claims on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReasons {
    /// The volume of the claims.
    pub volume: VolumeKey,
    /// The claims that wait; empty when no claim waits any more.
    pub reasons: Vec<ClaimReason>,
}

/// The reason of a claim's wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimReason {
    /// The allocation of the claim.
    pub alloc: AllocId,
    /// The reason, as the sentence that users read. No server parses it.
    pub reason: String,
}

/// The request of a leaving server that the leader removes it from the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskRemoval {
    /// The server's number in the log.
    pub number: u64,
}

/// A message of the replicated log. Only the log reads the body.
#[derive(Clone, PartialEq, Eq)]
pub struct LogMessage {
    /// The kind of the message.
    pub kind: u8,
    /// The message in the log's own encoding; opaque to the transport.
    pub body: Vec<u8>,
}

impl fmt::Debug for LogMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogMessage(kind {}, {} bytes)", self.kind, self.body.len())
    }
}

// The form is one byte for the kind, followed by the body, because bodies are large and frequent.
impl Packed for LogMessage {
    fn pack_into(&self, bytes: &mut Vec<u8>) -> Result<(), PackError> {
        bytes.reserve(self.body.len() + 1);
        bytes.push(self.kind);
        bytes.extend_from_slice(&self.body);
        Ok(())
    }

    fn unpack_first(bytes: &mut &[u8]) -> Result<Self, UnpackError> {
        let (kind, body) = bytes.split_first().unwrap_or((&0, &[]));
        let message = Self { kind: *kind, body: body.to_vec() };
        *bytes = &[];
        Ok(message)
    }
}

caravan_types::packed!(
    Admit,
    Admitted,
    AskFounding,
    AskPromise,
    AskRemoval,
    AskStatus,
    FollowNodes,
    FollowReasons,
    FoundingStands,
    NodesChanged,
    PromiseAnswer,
    ReasonsChanged,
    ServerStatus,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_log_is_read_back() {
        for body in [vec![], vec![0], vec![1, 2, 3]] {
            let message = LogMessage { kind: 3, body };
            assert_eq!(LogMessage::unpack(&message.pack().unwrap()).unwrap(), message);
        }
    }

    #[test]
    fn the_key_of_a_cluster_is_not_shown() {
        assert_eq!(format!("{:?}", ClusterKey::new([7; 32])), "ClusterKey(…)");
    }
}
