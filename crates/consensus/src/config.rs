//! What a caller decides before consensus starts.

use std::fmt;
use std::path::PathBuf;

use crate::Error;

/// Number of a server in the replicated log. It belongs to one log for ever: a server that lost
/// its data needs a new number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u64);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where log, votes and snapshots live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In memory of this process: everything is gone when it ends.
    Memory,
    /// In this directory, made with mode 0700 if absent and locked while in use.
    Dir(PathBuf),
}

/// Settings of one server's part in consensus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Number of this server; the data directory remembers it.
    pub node_id: ServerId,
    /// Address under which other servers reach this one; recorded in the membership.
    pub address: String,
    /// Voters besides this server. Only one voter is supported so far, so anything in here is
    /// refused with [`Error::ManyVoters`].
    pub other_voters: Vec<(ServerId, String)>,
    /// Where the log lives.
    pub storage: Storage,
    /// A snapshot is made when this many entries came after the one before.
    pub snapshot_after_entries: u64,
    /// Entries kept in the log although a snapshot covers them. At least
    /// `snapshot_after_entries` lets the snapshot before the newest one still serve when the newest
    /// is damaged.
    pub keep_entries: u64,
}

impl Config {
    /// A server without a disk, for `-dev` and tests.
    pub fn memory(node_id: ServerId) -> Self {
        Self {
            node_id,
            address: String::from("local"),
            other_voters: Vec::new(),
            storage: Storage::Memory,
            snapshot_after_entries: 2048,
            keep_entries: 0,
        }
    }

    /// A server with its data in `dir`.
    pub fn dir(node_id: ServerId, address: impl Into<String>, dir: impl Into<PathBuf>) -> Self {
        Self {
            node_id,
            address: address.into(),
            other_voters: Vec::new(),
            storage: Storage::Dir(dir.into()),
            snapshot_after_entries: 8192,
            keep_entries: 10_240,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if !self.other_voters.is_empty() {
            return Err(Error::ManyVoters { count: self.other_voters.len() + 1 });
        }
        if self.snapshot_after_entries == 0 {
            return Err(Error::Config { field: "snapshot_after_entries", reason: "it must be at least 1" });
        }
        Ok(())
    }
}
