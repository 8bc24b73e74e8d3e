//! The settings of consensus.

use crate::Error;
use std::fmt;
use std::path::PathBuf;

/// Number of a server in the replicated log. It must never be reused in one log: a server that lost its data needs a
/// new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u64);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where log, votes and snapshots are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In the memory of this process; lost when it ends.
    Memory,
    /// In this directory, created with mode 0700 if absent, and locked while in use.
    Dir(PathBuf),
}

/// Settings of one server's part in consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of this server; recorded in the data directory.
    pub node_id: ServerId,
    /// Address at which other servers reach this one; recorded in the membership.
    pub address: String,
    /// Voters besides this server. Only one voter is supported so far, so a non-empty list is refused with
    /// [`Error::ManyVoters`].
    pub other_voters: Vec<(ServerId, String)>,
    /// Where the log is stored.
    pub storage: Storage,
    /// Number of entries after the last snapshot that triggers the next one.
    pub snapshot_after_entries: u64,
    /// Number of entries to keep in the log although a snapshot covers them. With at least `snapshot_after_entries`,
    /// the previous snapshot can still be used if the newest is damaged.
    pub keep_entries: u64,
}

impl Config {
    /// Returns settings for a server without a disk, for `-dev` and tests.
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

    /// Returns settings for a server with its data in `dir`.
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
