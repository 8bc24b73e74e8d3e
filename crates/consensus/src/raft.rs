//! The types that openraft is instantiated with.

use std::fmt;

use bytes::Bytes;
use openraft::BasicNode;
use openraft::impls::leader_id_std;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A command as the log sees it: bytes, shared rather than copied.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Command(pub(crate) Bytes);

/// What the state machine answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct Output(pub(crate) Vec<u8>);

// Commands may hold secrets, so neither form shows the content.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({} bytes)", self.0.len())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
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
                Ok(Command(Bytes::copy_from_slice(bytes)))
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Command, E> {
                Ok(Command(Bytes::from(bytes)))
            }
        }

        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

openraft::declare_raft_types!(
    /// One leader per term, as in the Raft paper; numbers for servers.
    pub(crate) TypeConfig:
        D = Command,
        R = Output,
        NodeId = u64,
        Node = BasicNode,
        LeaderId = leader_id_std::LeaderId<u64, u64>,
);

pub(crate) type Entry = <TypeConfig as openraft::RaftTypeConfig>::Entry;
pub(crate) type Vote = <TypeConfig as openraft::RaftTypeConfig>::Vote;
pub(crate) type CommittedLeaderId =
    <<TypeConfig as openraft::RaftTypeConfig>::LeaderId as openraft::vote::RaftLeaderId>::Committed;
pub(crate) type LogId = openraft::LogId<CommittedLeaderId>;
pub(crate) type StoredMembership = openraft::StoredMembership<CommittedLeaderId, u64, BasicNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<CommittedLeaderId, u64, BasicNode>;
pub(crate) type RaftSnapshot =
    openraft::Snapshot<CommittedLeaderId, u64, BasicNode, crate::snapshot::SnapshotData>;
