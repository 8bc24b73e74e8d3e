//! The files of a server that is not running, read without a start of the server.

use crate::log::{self, Offline};
use crate::{Error, snapshot};
use bytes::Bytes;
use openraft::entry::EntryPayload;
use std::io;
use std::path::Path;

/// The log of a stopped server. Its state is the snapshot with the commands applied to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtRest {
    /// The newest encoded state of the state machine.
    pub snapshot: Option<Bytes>,
    /// The commands after the snapshot, with their indexes.
    pub commands: Vec<(u64, Bytes)>,
}

/// Reads the log and the newest readable snapshot in a server's directory. Changes no file, except that a
/// log of the form before segments is converted.
///
/// All entries count: with a single voter, a start would apply all entries on disk.
///
/// # Errors
/// [`Error::Locked`] while a server uses the directory. [`Error::DataDir`] and [`Error::Log`] if the directory or its
/// log cannot be read. [`Error::SnapshotMissing`] if there is a gap between snapshot and log.
pub fn at_rest(dir: &Path) -> Result<AtRest, Error> {
    let Offline { purged, entries, .. } = log::open_offline(dir)?;
    let snapshots = dir.join("snapshots");
    let newest = snapshot::newest_in(&snapshots).map_err(Error::data_dir(&snapshots))?;
    let covers = newest.as_ref().map(|(meta, _)| meta.last_log_id.map_or(0, |id| id.index));
    if let Some(purged) = purged
        && covers.is_none_or(|index| index < purged.index)
    {
        return Err(Error::SnapshotMissing { path: dir.into(), purged: purged.index, newest: covers });
    }
    let after = entries.into_iter().filter(|entry| covers.is_none_or(|index| entry.log_id.index > index));
    let commands = after.filter_map(|entry| match entry.payload {
        EntryPayload::Normal(command) => Some((entry.log_id.index, command.bytes)),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    });
    Ok(AtRest { commands: commands.collect(), snapshot: newest.map(|(_, payload)| payload) })
}

/// The kind of a log entry, with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// No content: the first entry of a new leader.
    Blank,
    /// A change of the voters, with their ids.
    Membership(Vec<u64>),
    /// A command of the state machine.
    Command(Bytes),
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The entry's index.
    pub index: u64,
    /// Term of the leader that wrote it.
    pub term: u64,
    /// The entry's kind and content.
    pub kind: EntryKind,
}

/// The log of a stopped server, entry by entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogAtRest {
    /// Index of the last entry that was removed from the log.
    pub purged: Option<u64>,
    /// Index of the last entry that the newest readable snapshot covers.
    pub snapshot: Option<u64>,
    /// The entries in the log, oldest first.
    pub entries: Vec<LogEntry>,
}

/// Reads the log in a server's directory, including entries that a snapshot covers. Changes no file, as
/// [`at_rest`].
///
/// # Errors
/// As [`at_rest`], but a gap between snapshot and log is no error.
pub fn log_at_rest(dir: &Path) -> Result<LogAtRest, Error> {
    let Offline { purged, entries, .. } = log::open_offline(dir)?;
    let snapshots = dir.join("snapshots");
    let newest = snapshot::newest_in(&snapshots).map_err(Error::data_dir(&snapshots))?;
    let entries = entries.into_iter().map(|entry| LogEntry {
        index: entry.log_id.index,
        term: entry.log_id.leader_id.term,
        kind: match entry.payload {
            EntryPayload::Blank => EntryKind::Blank,
            EntryPayload::Membership(membership) => EntryKind::Membership(membership.voter_ids().collect()),
            EntryPayload::Normal(command) => EntryKind::Command(command.bytes),
        },
    });
    Ok(LogAtRest {
        purged: purged.map(|id| id.index),
        snapshot: newest.map(|(meta, _)| meta.last_log_id.map_or(0, |id| id.index)),
        entries: entries.collect(),
    })
}

/// Returns the encoded state in the bytes of a snapshot file; `None` if the bytes are not a snapshot file.
///
/// # Errors
/// If the file is truncated or damaged.
pub fn snapshot_payload(file: Bytes) -> io::Result<Option<Bytes>> {
    snapshot::payload(file)
}
