//! The records in a frame: entries of the log, and facts about the log.

use crate::raft::{Entry, LogId, Vote};
use crate::{ClusterId, Identity, ServerId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;

const ENTRY: u8 = 1;
const FACT: u8 = 2;

/// A change of the log, in the form for writing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record<'a> {
    Entry(&'a Entry),
    Fact(Fact),
}

/// A fact about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fact {
    Vote(Vote),
    /// Entries from this index on, inclusively, are removed.
    TruncatedFrom(u64),
    /// Entries up to this entry, inclusively, are removed.
    Purged(LogId),
    /// The newest entry that is known to be committed.
    Committed(LogId),
    /// Earlier segments have the entries before this index, except removed entries.
    Follows(u64),
    Cluster(ClusterId),
    Server(ServerId),
}

/// A record in the form after reading, in which an entry stays encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Entry {
        index: u64,
        term: u64,
        /// The range of the encoding in the body of the frame.
        bytes: Range<usize>,
    },
    Fact(Fact),
}

/// The reason that bytes are not a part of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("the header is damaged")]
    Header,
    #[error("a transaction is too long")]
    TooLong,
    #[error("the transaction at byte {offset} is damaged, and later ones are not")]
    Damaged { offset: usize },
    #[error("a record at byte {offset} of a transaction cannot be read")]
    Record { offset: usize },
    #[error("entry {index} does not follow entry {last}")]
    Gap { index: u64, last: u64 },
    #[error("entry {index} is of term {term}, before the term of an earlier entry")]
    Term { index: u64, term: u64 },
    #[error("entries are missing between {needed} and {next}")]
    Missing { needed: u64, next: u64 },
    #[error("all segments (*.log) of the log are missing")]
    NoSegments,
    #[error("entry {index} is damaged")]
    Entry { index: u64 },
    #[error("a file name and the id {id} in its header differ")]
    Name { id: u64 },
}

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(io::ErrorKind::InvalidData, malformed)
    }
}

impl Fact {
    /// Returns the facts of an identity.
    pub(super) fn identity(identity: Identity) -> impl Iterator<Item = Self> {
        [identity.cluster.map(Self::Cluster), identity.number.map(Self::Server)].into_iter().flatten()
    }
}

/// Appends a record to the body of a frame. Returns the range of an entry's encoding in the buffer.
pub(super) fn encode(record: Record<'_>, body: &mut Vec<u8>) -> io::Result<Range<usize>> {
    match record {
        Record::Entry(entry) => {
            body.push(ENTRY);
            body.extend_from_slice(&entry.log_id.index.to_le_bytes());
            body.extend_from_slice(&entry.log_id.committed_leader_id().term.to_le_bytes());
            sized(body, entry)
        }
        Record::Fact(fact) => {
            body.push(FACT);
            sized(body, &fact)
        }
    }
}

/// Appends the length of a value's encoding, and the encoding.
fn sized(body: &mut Vec<u8>, value: &impl Serialize) -> io::Result<Range<usize>> {
    let at = body.len();
    body.extend_from_slice(&[0; 4]);
    rmp_serde::encode::write_named(body, value).map_err(io::Error::other)?;
    let bytes = at + 4..body.len();
    let length = u32::try_from(bytes.len()).map_err(|_| Malformed::TooLong)?;
    body[at..at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Reads the records of a frame's body.
pub(super) fn decode(body: &[u8]) -> impl Iterator<Item = Result<Read, Malformed>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let offset = at;
        (offset < body.len()).then(|| {
            let (read, end) = one(body, offset).ok_or(Malformed::Record { offset })?;
            at = end;
            Ok(read)
        })
    })
}

fn one(body: &[u8], offset: usize) -> Option<(Read, usize)> {
    let length = |at: usize| -> Option<usize> {
        u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?).try_into().ok()
    };
    match *body.get(offset)? {
        ENTRY => {
            let number = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
            let (index, term) = (number(offset + 1)?, number(offset + 9)?);
            let bytes = offset + 21..offset + 21 + length(offset + 17)?;
            body.get(bytes.clone())?;
            Some((Read::Entry { index, term, bytes: bytes.clone() }, bytes.end))
        }
        FACT => {
            let bytes = offset + 5..offset + 5 + length(offset + 1)?;
            let fact = value(body.get(bytes.clone())?).ok()?;
            Some((Read::Fact(fact), bytes.end))
        }
        _ => None,
    }
}

/// Decodes a value.
pub(super) fn value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, rmp_serde::decode::Error> {
    rmp_serde::from_slice(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{Command, TypeConfig};
    use bytes::Bytes;
    use openraft::entry::EntryPayload;
    use openraft::testing::log_id;

    #[test]
    fn records_are_read_as_they_were_written() {
        let command = Command::new(Bytes::from_static(b"a command"), None);
        let id = log_id::<TypeConfig>(2, 1, 5);
        let entry = Entry { log_id: id, payload: EntryPayload::Normal(command) };
        let facts = [
            Fact::Vote(Vote::new(4, 1)),
            Fact::TruncatedFrom(9),
            Fact::Purged(id),
            Fact::Committed(id),
            Fact::Follows(8),
            Fact::Cluster(ClusterId(uuid::Uuid::from_u128(5))),
            Fact::Server(ServerId(3)),
        ];
        let mut body = Vec::new();
        let at = encode(Record::Entry(&entry), &mut body).unwrap();
        for fact in facts {
            encode(Record::Fact(fact), &mut body).unwrap();
        }
        let read: Vec<Read> = decode(&body).collect::<Result<_, _>>().unwrap();
        assert_eq!(read[0], Read::Entry { index: 5, term: 2, bytes: at.clone() });
        assert_eq!(value::<Entry>(&body[at]).unwrap(), entry);
        assert_eq!(read[1..], facts.map(Read::Fact));
        for end in 1..body.len() {
            let broken = decode(&body[..end]).collect::<Result<Vec<_>, _>>();
            // A prefix is either refused or ends between two records.
            assert!(broken.is_err() || broken.unwrap().len() < read.len(), "{end}");
        }
    }
}
