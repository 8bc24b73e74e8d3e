//! Reading what a server that is not running has left on disk.

use crate::{Error, log, snapshot};
use bytes::Bytes;
use openraft::entry::EntryPayload;
use std::io;
use std::path::Path;

/// A log at rest: the state is that of the snapshot with the commands applied to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AtRest {
    /// What the state machine encoded last.
    pub snapshot: Option<Bytes>,
    /// The commands after it, with their indexes.
    pub commands: Vec<(u64, Bytes)>,
}

/// Reads the log and the newest readable snapshot in a server's directory. Nothing is changed, apart from what
/// opening a file after a crash repairs.
///
/// All entries count: with a single voter what is on disk is what a start would apply.
///
/// # Errors
/// [`Error::Locked`] while a server uses the directory; [`Error::DataDir`] and [`Error::Log`] if it cannot be
/// read or is none; [`Error::SnapshotMissing`] if there is a gap between snapshot and log.
pub fn at_rest(dir: &Path) -> Result<AtRest, Error> {
    let (purged, entries) = log::read_offline(dir)?;
    let snapshots = dir.join("snapshots");
    let newest = snapshot::newest_in(&snapshots).map_err(Error::data_dir(&snapshots))?;
    let covers = newest.as_ref().map(|(index, _)| *index);
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

/// What an entry of the log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// Nothing: a new leader's first.
    Blank,
    /// Who votes, as ids.
    Membership(Vec<u64>),
    /// A command of the state machine.
    Command(Bytes),
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place.
    pub index: u64,
    /// Term of the leader that wrote it.
    pub term: u64,
    /// What it is.
    pub kind: EntryKind,
}

/// A log at rest, entry by entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogAtRest {
    /// Index of the last entry that is no longer in the log.
    pub purged: Option<u64>,
    /// Index of the last entry that the newest readable snapshot covers.
    pub snapshot: Option<u64>,
    /// What is in the log, oldest first.
    pub entries: Vec<LogEntry>,
}

/// Reads the log in a server's directory, also what a snapshot covers already. Nothing is changed, as with [`at_rest`].
///
/// # Errors
/// As [`at_rest`]; a gap between snapshot and log is none.
pub fn log_at_rest(dir: &Path) -> Result<LogAtRest, Error> {
    let (purged, entries) = log::read_offline(dir)?;
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
        snapshot: newest.map(|(index, _)| index),
        entries: entries.collect(),
    })
}

/// What the state machine encoded, out of the bytes of a snapshot file; `None` if they are no such file.
///
/// # Errors
/// If the file is cut off or damaged.
pub fn snapshot_payload(file: Bytes) -> io::Result<Option<Bytes>> {
    snapshot::payload(file)
}
