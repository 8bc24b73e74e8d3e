//! The file `peers.json` next to the log: the members of a cluster that lost its majority, as an operator wrote them
//! (docs/reference/cluster.md, section 12.3).
//!
//! Two forms are read: an array of objects with `id`, `address` and `non_voter`, and an array of addresses alone.

use super::{Opened, RecoveryPeer, open, recover_opened};
use crate::{ClusterId, Error};
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// The file's name.
const FILE: &str = "peers.json";
/// The name of a file that was applied.
const APPLIED: &str = "peers.json.applied";
/// The name of a file that a server without a log found.
const IGNORED: &str = "peers.json.ignored";

/// The effect of a `peers.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeersFile {
    /// The server is a member of a new cluster of the servers in the file.
    Applied {
        /// The id of the new cluster.
        cluster: ClusterId,
        /// The members of the new cluster.
        members: Vec<RecoveryPeer>,
        /// Term and index of the last entry before the recovery.
        last: Option<(u64, u64)>,
        /// The new path of the file.
        renamed: PathBuf,
    },
    /// The server has no log that could be recovered.
    Ignored {
        /// The new path of the file.
        renamed: PathBuf,
    },
}

/// The reasons for which a `peers.json` is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PeersFileFault {
    /// The file is not JSON.
    #[error("it is not JSON: {0}")]
    Json(Arc<serde_json::Error>),
    /// The file is no array.
    #[error("it is not an array of servers")]
    NoArray,
    /// The file is an empty array.
    #[error("it names no server")]
    Empty,
    /// An entry is refused.
    #[error("entry {number}: {fault}")]
    Entry {
        /// The position of the entry, from 1.
        number: usize,
        /// The rule of the format that the entry breaks.
        fault: EntryFault,
    },
    /// No entry is a voter.
    #[error("it names no server that votes")]
    NoVoter,
    /// No entry is the server that reads the file.
    #[error("it does not name this server, {0}")]
    OwnMissing(Uuid),
}

/// The reasons for which an entry of `peers.json` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// The entry has another type.
    #[error("it is neither an address nor an object with \"id\" and \"address\"")]
    Type,
    /// A field is missing or has another type.
    #[error("\"{0}\" is missing or is no text")]
    Text(&'static str),
    /// `non_voter` is no truth value.
    #[error("\"non_voter\" is neither true nor false")]
    NonVoter,
    /// The id is no UUID.
    #[error("the id {0:?} is no UUID (a server's id is in the file server-id of its data directory)")]
    Id(String),
    /// The address is not `host:port`.
    #[error("the address {0:?} is not host:port")]
    Address(String),
    /// The id names a server that was not a member.
    #[error("server {0} was not a member of this cluster")]
    NotMember(Uuid),
    /// No member had the address.
    #[error("no member of this cluster had the address {0}; name the server by its id")]
    UnknownAddress(String),
    /// An earlier entry names the same server.
    #[error("server {0} is named twice")]
    Twice(Uuid),
}

/// An entry in the form of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Address(String),
    Server(RecoveryPeer),
}

/// Applies the file `peers.json` in a server's log directory, and renames the file, so that it has its effect once.
/// Returns `None` if the file does not exist.
///
/// # Errors
/// [`Error::PeersFile`] if the content is refused; [`Error::DataDir`] if the file cannot be read or renamed; as
/// [`recover_with`](crate::recover_with).
pub fn apply_peers_file(dir: &Path, own: Uuid) -> Result<Option<PeersFile>, Error> {
    let path = dir.join(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::data_dir(&path)(error)),
    };
    if !dir.join("raft.redb").try_exists().map_err(Error::data_dir(dir))? {
        return Ok(Some(PeersFile::Ignored { renamed: rename(dir, IGNORED)? }));
    }
    let mut opened = open(dir)?;
    if opened.log.identity.number.is_none() {
        return Ok(Some(PeersFile::Ignored { renamed: rename(dir, IGNORED)? }));
    }
    let refused = |fault| Error::PeersFile { path: path.clone(), fault };
    let members = read(&bytes).and_then(|entries| resolve(&opened, own, entries)).map_err(refused)?;
    let cluster = recover_opened(&mut opened, own, &members)?;
    let last = opened.last.map(|id| (id.committed_leader_id().term, id.index));
    Ok(Some(PeersFile::Applied { cluster, members, last, renamed: rename(dir, APPLIED)? }))
}

fn rename(dir: &Path, name: &str) -> Result<PathBuf, Error> {
    let renamed = dir.join(name);
    let done = fs::rename(dir.join(FILE), &renamed).and_then(|()| fs::File::open(dir)?.sync_all());
    done.map_err(Error::data_dir(&renamed))?;
    Ok(renamed)
}

fn read(bytes: &[u8]) -> Result<Vec<Entry>, PeersFileFault> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| PeersFileFault::Json(Arc::new(error)))?;
    let Value::Array(entries) = value else { return Err(PeersFileFault::NoArray) };
    if entries.is_empty() {
        return Err(PeersFileFault::Empty);
    }
    let entry = |(at, value): (usize, &Value)| {
        entry(value).map_err(|fault| PeersFileFault::Entry { number: at + 1, fault })
    };
    entries.iter().enumerate().map(entry).collect()
}

fn entry(value: &Value) -> Result<Entry, EntryFault> {
    match value {
        Value::String(text) => Ok(Entry::Address(address(text)?)),
        Value::Object(fields) => {
            let text =
                |name: &'static str| fields.get(name).and_then(Value::as_str).ok_or(EntryFault::Text(name));
            let id = text("id")?;
            let server = id.parse().map_err(|_| EntryFault::Id(id.to_owned()))?;
            let non_voter = match fields.get("non_voter") {
                None | Some(Value::Null) => false,
                Some(Value::Bool(non_voter)) => *non_voter,
                Some(_) => return Err(EntryFault::NonVoter),
            };
            Ok(Entry::Server(RecoveryPeer { server, address: address(text("address")?)?, non_voter }))
        }
        _ => Err(EntryFault::Type),
    }
}

fn address(text: &str) -> Result<String, EntryFault> {
    let parts = text.trim().rsplit_once(':');
    let is_valid =
        parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
    if is_valid { Ok(text.trim().to_owned()) } else { Err(EntryFault::Address(text.to_owned())) }
}

/// Replaces each address by the member that had it, and checks the whole list.
fn resolve(opened: &Opened, own: Uuid, entries: Vec<Entry>) -> Result<Vec<RecoveryPeer>, PeersFileFault> {
    let known = opened.members();
    let mut members: Vec<RecoveryPeer> = Vec::new();
    for (at, entry) in entries.into_iter().enumerate() {
        let fault = |fault| PeersFileFault::Entry { number: at + 1, fault };
        let peer = match entry {
            Entry::Server(peer) => peer,
            Entry::Address(address) => match known.values().find(|(peer, _)| peer.addr == address) {
                Some((peer, _)) => RecoveryPeer { server: peer.server, address, non_voter: false },
                None => return Err(fault(EntryFault::UnknownAddress(address))),
            },
        };
        if !known.values().any(|(member, _)| member.server == peer.server) {
            return Err(fault(EntryFault::NotMember(peer.server)));
        }
        if members.iter().any(|other| other.server == peer.server) {
            return Err(fault(EntryFault::Twice(peer.server)));
        }
        members.push(peer);
    }
    if members.iter().all(|peer| peer.non_voter) {
        return Err(PeersFileFault::NoVoter);
    }
    if !members.iter().any(|peer| peer.server == own) {
        return Err(PeersFileFault::OwnMissing(own));
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let id = Uuid::from_u128(7);
        let text = format!(
            "[{{\"id\": \"{id}\", \"address\": \"10.0.0.1:4647\", \"non_voter\": true}}, \"[::1]:4647\"]"
        );
        let server = RecoveryPeer { server: id, address: "10.0.0.1:4647".into(), non_voter: true };
        let expected = vec![Entry::Server(server), Entry::Address("[::1]:4647".into())];
        assert_eq!(read(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn mistakes_name_the_entry() {
        let id = Uuid::from_u128(7);
        let second = |entry: &str| format!("[\"10.0.0.1:4647\", {entry}]");
        for (text, words) in [
            ("[".to_owned(), "it is not JSON: "),
            ("{}".to_owned(), "it is not an array"),
            ("[]".to_owned(), "it names no server"),
            (second("7"), "entry 2: it is neither an address nor an object"),
            (second("\"10.0.0.1\""), "entry 2: the address \"10.0.0.1\" is not host:port"),
            (second("\":4647\""), "entry 2: the address"),
            (second("{\"address\": \"a:1\"}"), "entry 2: \"id\" is missing"),
            (second("{\"id\": \"x\", \"address\": \"a:1\"}"), "entry 2: the id \"x\" is no UUID"),
            (second(&format!("{{\"id\": \"{id}\"}}")), "entry 2: \"address\" is missing"),
            (
                second(&format!("{{\"id\": \"{id}\", \"address\": \"a:1\", \"non_voter\": 1}}")),
                "entry 2: \"non_voter\" is neither",
            ),
        ] {
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
