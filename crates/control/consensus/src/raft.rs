//! The types with which openraft is instantiated.

use crate::Peer;
use crate::machine::Meaning;
use crate::runtime::Runtime;
use bytes::Bytes;
use openraft::impls::leader_id_std;
use parking_lot::Mutex;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// A command in the log: bytes, shared rather than copied.
#[derive(Clone)]
pub(crate) struct Command {
    pub(crate) bytes: Bytes,
    /// The decoded form of the bytes, until the command is applied; `None` if the command was read from disk.
    meaning: Option<Arc<Mutex<Option<Meaning>>>>,
}

impl Command {
    pub(crate) fn new(bytes: Bytes, meaning: Option<Meaning>) -> Self {
        Self { bytes, meaning: meaning.map(|meaning| Arc::new(Mutex::new(Some(meaning)))) }
    }

    /// Removes and returns the decoded form of the bytes; later calls return `None`.
    pub(crate) fn take_meaning(&self) -> Option<Meaning> {
        self.meaning.as_ref()?.lock().take()
    }
}

impl PartialEq for Command {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}
impl Eq for Command {}

/// The response of the state machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct Output(pub(crate) Vec<u8>);

// Commands may contain secrets, so neither format shows their content.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} bytes)", self.bytes.len())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.bytes)
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;

        impl Visitor<'_> for BytesVisitor {
            type Value = Command;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the bytes of a command")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Command, E> {
                Ok(Command::new(Bytes::copy_from_slice(bytes), None))
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Command, E> {
                Ok(Command::new(Bytes::from(bytes), None))
            }
        }

        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

openraft::declare_raft_types!(
    /// One leader per term, as in the Raft paper; servers are identified by number.
    pub(crate) TypeConfig:
        D = Command,
        R = Output,
        NodeId = u64,
        Node = Peer,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
        AsyncRuntime = Runtime,
);

pub(crate) type Entry = <TypeConfig as openraft::RaftTypeConfig>::Entry;
pub(crate) type Vote = <TypeConfig as openraft::RaftTypeConfig>::Vote;
pub(crate) type CommittedLeaderId =
    <<TypeConfig as openraft::RaftTypeConfig>::LeaderId as openraft::vote::RaftLeaderId>::Committed;
pub(crate) type LogId = openraft::LogId<CommittedLeaderId>;
pub(crate) type StoredMembership = openraft::StoredMembership<CommittedLeaderId, u64, Peer>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<CommittedLeaderId, u64, Peer>;
pub(crate) type RaftSnapshot =
    openraft::Snapshot<CommittedLeaderId, u64, Peer, crate::snapshot::SnapshotData>;

pub(crate) type Core = openraft::Raft<TypeConfig, crate::machine::Machine>;
pub(crate) type ServerMetrics = openraft::metrics::RaftServerMetrics<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, Peer>;
pub(crate) type Instant =
    <<TypeConfig as openraft::RaftTypeConfig>::AsyncRuntime as openraft::AsyncRuntime>::Instant;
