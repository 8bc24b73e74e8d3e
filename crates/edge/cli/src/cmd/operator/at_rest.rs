//! Reads state at rest: a snapshot file, or the log of a stopped server.

use bytes::Bytes;
use caravan_state::archive::{self, ArchiveError};
use caravan_state::{Root, SnapshotError, Store};
use caravan_types::command::Command;
use caravan_types::packed::{Packed as _, UnpackError};
use std::path::{Path, PathBuf};

/// The reason that state at rest cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("{} cannot be read: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("there is no server's state in {}: none of {looked} has a raft.redb", path.display())]
    NoState { path: PathBuf, looked: String },
    #[error("{}", caravan_sys::describe(.0))]
    Log(#[from] caravan_consensus::Error),
    #[error("{}", caravan_sys::describe(.0))]
    Snapshot(#[from] SnapshotError),
    #[error("{}", caravan_sys::describe(.0))]
    Archive(#[from] ArchiveError),
    #[error("the command at index {index} cannot be read: {source}")]
    Command { index: u64, source: UnpackError },
}

/// Reads the state from a snapshot file of either kind, or from the data directory of a stopped agent.
pub(crate) fn read(path: &Path) -> Result<Root, Unreadable> {
    if path.is_dir() { of_log(path, None) } else { of_file(path) }
}

/// Reads the state from a snapshot file that an operator saved or that a server wrote.
pub(crate) fn of_file(path: &Path) -> Result<Root, Unreadable> {
    let file = |source| Unreadable::File { path: path.to_owned(), source };
    let bytes = Bytes::from(std::fs::read(path).map_err(file)?);
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(caravan_state::decode(&archive::unpack(&bytes)?.state)?);
    }
    let payload = caravan_consensus::snapshot_payload(bytes.clone()).map_err(file)?;
    Ok(caravan_state::decode(&payload.unwrap_or(bytes))?)
}

/// Reads the state of a stopped server, up to and including index `up_to` if present.
pub(crate) fn of_log(path: &Path, up_to: Option<u64>) -> Result<Root, Unreadable> {
    let store = Store::default();
    let rest = caravan_consensus::at_rest(&log_dir(path)?)?;
    if let Some(snapshot) = rest.snapshot {
        store.restore(&snapshot)?;
    }
    for (index, bytes) in rest.commands {
        if up_to.is_some_and(|last| index > last) {
            break;
        }
        store.apply(index, &command(index, &bytes)?);
    }
    Ok((*store.snapshot()).clone())
}

/// Decodes the command of a log entry.
pub(crate) fn command(index: u64, bytes: &[u8]) -> Result<Command, Unreadable> {
    Command::unpack(bytes).map_err(|source| Unreadable::Command { index, source })
}

/// Returns the directory of the log: within an agent's data directory, within its server part, or `path` itself.
pub(crate) fn log_dir(path: &Path) -> Result<PathBuf, Unreadable> {
    let places = [path.join("server/raft"), path.join("raft"), path.to_owned()];
    let found = places.iter().find(|dir| dir.join("raft.redb").is_file());
    found.cloned().ok_or_else(|| Unreadable::NoState {
        path: path.to_owned(),
        looked: places.map(|dir| dir.display().to_string()).join(", "),
    })
}
