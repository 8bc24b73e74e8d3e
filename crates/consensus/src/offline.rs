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

/// What the state machine encoded, out of the bytes of a snapshot file; `None` if they are no such file.
///
/// # Errors
/// If the file is cut off or damaged.
pub fn snapshot_payload(file: Bytes) -> io::Result<Option<Bytes>> {
    snapshot::payload(file)
}
