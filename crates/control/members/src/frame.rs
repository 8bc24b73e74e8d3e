//! The messages between servers, and their encoding. One byte names the kind. The rest is a datagram of
//! failure detection, or MessagePack with field names. Names keep additions compatible in both directions.

use crate::member::{ROLE, Tags};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use uuid::Uuid;

/// Maximum size of one message in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Maximum size of the names and values of one member's tags in bytes.
pub const MAX_TAG_BYTES: usize = 256 << 10;
/// Maximum length of a member's name in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 512;
/// Maximum number of members, including members that left.
pub(crate) const MAX_MEMBERS: usize = 2000;
/// Maximum size of the rows in one message in bytes, unless a single row is larger.
const ROWS_BYTES: usize = 512 << 10;

/// The presence of a member according to its row. The order is the precedence among rows of one version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Intent {
    /// The member is in the cluster.
    #[default]
    Present,
    /// The member leaves.
    Leaving,
    /// The member left.
    Left,
    /// The member is removed from the list. The row remains for a while, so that older rows do not return.
    Pruned,
}

/// Facts about one member. Only the member itself raises the version; others may raise the intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    pub(crate) tags: Tags,
    pub(crate) version: u64,
    pub(crate) intent: Intent,
}

impl Row {
    /// Returns the precedence among rows of one member.
    pub(crate) fn rank(&self) -> (u64, Intent) {
        (self.version, self.intent)
    }

    /// Returns whether the row is within all limits and describes a server.
    pub(crate) fn is_valid(&self) -> bool {
        let size: usize = self.tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        let is_server =
            self.intent == Intent::Pruned || self.tags.get("role").is_some_and(|role| role == ROLE);
        !self.name.is_empty() && self.name.len() <= MAX_NAME_BYTES && size <= MAX_TAG_BYTES && is_server
    }

    fn size(&self) -> usize {
        let tags: usize = self.tags.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        self.name.len() + tags + 64
    }
}

/// The state of a member according to failure detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Liveness {
    Alive,
    Suspect,
    Down,
}

/// A summary of one row with the liveness of its member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) id: Uuid,
    pub(crate) addr: SocketAddr,
    pub(crate) generation: u64,
    pub(crate) incarnation: u16,
    pub(crate) liveness: Liveness,
    pub(crate) version: u64,
    pub(crate) intent: Intent,
}

/// An operation on the key ring of one server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeyOperation {
    List,
    Install(String),
    Use(String),
    Remove(String),
}

impl std::fmt::Debug for KeyOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::List => "List",
            Self::Install(_) => "Install",
            Self::Use(_) => "Use",
            Self::Remove(_) => "Remove",
        })
    }
}

/// The keys of one server in base64, with the primary key first.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyList(pub(crate) Vec<String>);

impl std::fmt::Debug for KeyList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyList({} keys)", self.0.len())
    }
}

/// A message between two servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A datagram of failure detection, which [`Message::encode`] does not encode as MessagePack.
    Swim(Vec<u8>),
    /// All claims of the sender. The response is [`Message::SyncAnswer`].
    Sync { claims: Vec<Claim> },
    /// All claims of the responding side, the rows that the other side lacks, and the members whose rows
    /// are requested.
    SyncAnswer { claims: Vec<Claim>, rows: Vec<Row>, requests: Vec<Uuid> },
    /// New rows, with the claims about their members.
    Rows { claims: Vec<Claim>, rows: Vec<Row> },
    /// An operation on the receiver's key ring. The response is [`Message::KeysAnswer`].
    Keys(KeyOperation),
    /// The keys after the operation, or the reason of its failure.
    KeysAnswer(Result<KeyList, String>),
}

const SWIM: u8 = 1;
const PACKED: u8 = 2;

/// The reasons for which bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// The first byte or the encoding is unknown.
    #[error("the message is not valid")]
    Invalid,
    /// The message exceeds [`MAX_MESSAGE_BYTES`], or lists too many members.
    #[error("the message is too large")]
    TooLarge,
}

impl Message {
    /// Returns the bytes of the message.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let bytes = match self {
            Self::Swim(bytes) => [&[SWIM][..], bytes].concat(),
            message => {
                let mut bytes = vec![PACKED];
                rmp_serde::encode::write_named(&mut bytes, message).map_err(|_| FrameError::Invalid)?;
                bytes
            }
        };
        if bytes.len() > MAX_MESSAGE_BYTES { Err(FrameError::TooLarge) } else { Ok(bytes) }
    }

    /// Reads a message from untrusted bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(FrameError::TooLarge);
        }
        match bytes.split_first() {
            Some((&SWIM, rest)) => Ok(Self::Swim(rest.to_vec())),
            Some((&PACKED, rest)) => {
                let message: Self = rmp_serde::from_slice(rest).map_err(|_| FrameError::Invalid)?;
                let (claims, rows) = match &message {
                    Self::Sync { claims } => (claims.len(), 0),
                    Self::SyncAnswer { claims, rows, requests } => {
                        (claims.len().max(requests.len()), rows.len())
                    }
                    Self::Rows { claims, rows } => (claims.len(), rows.len()),
                    // A datagram has no encoding in MessagePack.
                    Self::Swim(_) => return Err(FrameError::Invalid),
                    Self::Keys(_) | Self::KeysAnswer(_) => (0, 0),
                };
                if claims.max(rows) > MAX_MEMBERS { Err(FrameError::TooLarge) } else { Ok(message) }
            }
            _ => Err(FrameError::Invalid),
        }
    }
}

/// Splits rows into groups that fit into one message each.
pub(crate) fn groups(rows: Vec<Row>) -> Vec<Vec<Row>> {
    let mut groups: Vec<Vec<Row>> = Vec::new();
    let mut room = 0;
    for row in rows {
        let size = row.size();
        match groups.last_mut() {
            Some(group) if size <= room => {
                room -= size;
                group.push(row);
            }
            _ => {
                room = ROWS_BYTES.saturating_sub(size);
                groups.push(vec![row]);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(id: u128, bytes: usize) -> Row {
        Row {
            id: Uuid::from_u128(id),
            name: format!("s{id}.global"),
            addr: ([10, 0, 0, 1], 4648).into(),
            tags: Tags::from([("role".into(), ROLE.into()), ("x".into(), "v".repeat(bytes))]),
            version: 3,
            intent: Intent::Leaving,
        }
    }

    fn claim() -> impl Strategy<Value = Claim> {
        (any::<u128>(), any::<[u8; 4]>(), any::<u64>(), any::<u16>(), 0..3u8, any::<u64>()).prop_map(
            |(id, ip, generation, incarnation, liveness, version)| Claim {
                id: Uuid::from_u128(id),
                addr: (ip, 4648).into(),
                generation,
                incarnation,
                liveness: [Liveness::Alive, Liveness::Suspect, Liveness::Down][usize::from(liveness)],
                version,
                intent: Intent::Left,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn hostile_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = Message::decode(&bytes) {
                message.encode().unwrap();
            }
        }

        #[test]
        fn damaged_messages_are_refused_or_read(
            claims in proptest::collection::vec(claim(), 0..4),
            at in any::<prop::sample::Index>(),
            bits in any::<u8>(),
        ) {
            let mut bytes =
                Message::Rows { claims, rows: vec![row(1, 10)] }.encode().unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            drop(Message::decode(&bytes));
            drop(Message::decode(&bytes[..at]));
        }

        #[test]
        fn messages_arrive_unchanged(
            claims in proptest::collection::vec(claim(), 0..4),
            bytes in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let messages = [
                Message::Swim(bytes),
                Message::Sync { claims: claims.clone() },
                Message::SyncAnswer { claims: claims.clone(), rows: vec![row(2, 5)], requests: vec![Uuid::nil()] },
                Message::Rows { claims, rows: vec![row(3, 0)] },
                Message::Keys(KeyOperation::Install("k".into())),
                Message::KeysAnswer(Err("no".into())),
                Message::KeysAnswer(Ok(KeyList(vec!["a".into()]))),
            ];
            for message in messages {
                prop_assert_eq!(Message::decode(&message.encode().unwrap()).unwrap(), message);
            }
        }
    }

    #[test]
    fn rows_of_any_size_fit_into_messages() {
        let rows: Vec<Row> = (0..10).map(|id| row(id, MAX_TAG_BYTES - 100)).chain([row(10, 5)]).collect();
        let groups = groups(rows.clone());
        assert!(groups.len() > 1);
        for group in &groups {
            Message::Rows { claims: Vec::new(), rows: group.clone() }.encode().unwrap();
        }
        assert_eq!(groups.concat(), rows);
        assert!(rows.iter().all(Row::is_valid));
    }

    #[test]
    fn rows_that_are_no_servers_are_not_valid() {
        let mut other = row(1, 0);
        other.tags.insert("role".into(), "consul".into());
        assert!(!other.is_valid());
        assert!(!row(1, MAX_TAG_BYTES).is_valid());
        assert!(!Row { name: String::new(), ..row(1, 0) }.is_valid());
    }
}
