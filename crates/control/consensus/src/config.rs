//! The settings of consensus.

use crate::Error;
use crate::runtime::planted;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// Number of a server in the replicated log. It must never be reused in one log: a server that lost its data needs a
/// new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerId(pub u64);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identity of a cluster: all servers that share one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub Uuid);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A server as the membership records it.
///
/// Logs written before there were several servers hold `addr` only, so every other field has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The server's UUID; nil in old logs.
    #[serde(default)]
    pub server: Uuid,
    /// The server's name.
    #[serde(default)]
    pub name: String,
    /// Address of the server's RPC port. Only a hint: a server is identified by its UUID and its number.
    pub addr: String,
}

impl Peer {
    /// Returns a peer of which only the address is known.
    pub fn at(addr: impl Into<String>) -> Self {
        Self { addr: addr.into(), ..Self::default() }
    }
}

/// The receiver of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The receiver's number.
    pub number: ServerId,
    /// The receiver's identity and address.
    pub peer: Peer,
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.number, self.peer.addr)
    }
}

/// The identity of a server in the log: both fields are unknown until the server founds a cluster or is
/// admitted to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The cluster. A server that ran alone before clusters had ids has a number, but no cluster.
    pub cluster: Option<ClusterId>,
    /// The server's number.
    pub number: Option<ServerId>,
}

/// The place of the log, the vote and the snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In the memory of this process; lost when it ends.
    Memory,
    /// In this directory, which is created with mode 0700 if absent, and locked while in use.
    Dir(PathBuf),
    /// On a disk of a simulation.
    #[cfg(feature = "simulation")]
    Virtual(crate::sim::VirtualDisk),
}

/// Behaviour of a server whose log is empty. With entries, the log decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Form a cluster of this server alone, under this number.
    Alone(ServerId),
    /// Wait for [`Handle::admit`](crate::Handle::admit) or [`Handle::found`](crate::Handle::found).
    Wait,
}

/// Times of heartbeats and elections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Factor of all times, 1 to 10 (`raft_multiplier`).
    pub multiplier: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self { multiplier: 1 }
    }
}

impl Timing {
    fn times(self, millis: u64) -> u64 {
        millis * u64::from(self.multiplier)
    }

    /// Returns the interval of heartbeats. Three heartbeats may be lost before the earliest election.
    /// openraft sends heartbeats at ticks of a fifth of the interval, so up to a fifth later; the last
    /// acknowledgement is then still younger than [`Self::read_lease`]. A longer interval would let reads
    /// wait, a shorter interval would wake idle followers more often.
    pub(crate) fn heartbeat_millis(self) -> u64 {
        self.times(180)
    }

    /// Returns the longest time between two messages of an idle leader.
    pub(crate) fn longest_silence(self) -> Duration {
        Duration::from_millis(self.heartbeat_millis() * 6 / 5)
    }

    pub(crate) fn election_millis(self) -> (u64, u64) {
        (self.times(250), self.times(500))
    }

    /// Returns the time after a leader's message in which a follower cannot have a reason for an election.
    /// openraft waits for the end of the lease, and then for an election timeout; the result is three
    /// fifths of the shortest such wait.
    ///
    /// Example: the leader's last message arrives at 0 ms. The lease ends at 500 ms, so the earliest election is at
    /// 750 ms. Without ticks until 450 ms, no election is late.
    pub(crate) fn certainty(self) -> Duration {
        let shortest = self.lease() + Duration::from_millis(self.election_millis().0);
        shortest * 3 / 5
    }

    /// Returns the time after a leader's message in which a follower votes for no other server. openraft
    /// equates it with the longest election timeout.
    pub fn lease(self) -> Duration {
        Duration::from_millis(self.election_millis().1)
    }

    /// Returns the age up to which a message of a leader is evidence that the leader exists. A follower
    /// without such a message has started an election by then.
    pub(crate) fn evidence(self) -> Duration {
        self.lease() * 3
    }

    /// Returns the age up to which an acknowledgement by a quorum proves leadership for a read: half a lease, which
    /// leaves the other half for clocks of different rates.
    pub fn read_lease(self) -> Duration {
        if planted!(LongLease) { self.lease() * 2 } else { self.half_lease() }
    }

    fn half_lease(self) -> Duration {
        self.lease() / 2
    }

    /// Returns the time after a restart in which a server grants no vote and starts no election. The server
    /// has no record of messages that it acknowledged just before the restart, so leases that depend on
    /// such an acknowledgement must run out first. The excess over half a lease allows for clocks of
    /// different rates.
    pub(crate) fn hold_after_start(self) -> Duration {
        self.half_lease() + self.lease() / 10
    }
}

/// The default of [`Config::snapshot_after_bytes`]: 16,000 usual commands, or 16 of the largest.
const SNAPSHOT_BYTES: u64 = 128 * 1024 * 1024;

/// The settings of one server in consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The behaviour while the log is empty.
    pub start: Start,
    /// The record of this server in the membership if the server forms a cluster alone.
    pub peer: Peer,
    /// The place of the log.
    pub storage: Storage,
    /// The times of heartbeats and elections.
    pub timing: Timing,
    /// The number of entries after the last snapshot that triggers the next snapshot. While the commands are smaller
    /// than the last snapshot, the next one is deferred, for up to seven times as many entries. So a large state is
    /// not written for few commands.
    pub snapshot_after_entries: u64,
    /// The number of bytes of commands after the last snapshot that triggers the next snapshot, even if
    /// these are few entries. If the last snapshot is larger, its size counts instead, so that a large
    /// state is not written for few commands. Entries before the previous snapshot are removed from the
    /// log.
    pub snapshot_after_bytes: u64,
    /// The number of entries to keep in the log although a snapshot covers them. With at least
    /// `snapshot_after_entries`, the previous snapshot can still be used if the newest is damaged. The log
    /// then also has the entries for which the newest snapshot may have been deferred.
    pub keep_entries: u64,
}

impl Config {
    /// Returns settings for a server that runs alone without a disk, for `-dev` and tests.
    pub fn memory(number: ServerId) -> Self {
        Self {
            start: Start::Alone(number),
            peer: Peer::at("local"),
            storage: Storage::Memory,
            timing: Timing::default(),
            snapshot_after_entries: 2048,
            snapshot_after_bytes: SNAPSHOT_BYTES,
            keep_entries: 0,
        }
    }

    /// Returns settings for a server that runs alone with its data in `dir`.
    pub fn dir(number: ServerId, address: impl Into<String>, dir: impl Into<PathBuf>) -> Self {
        Self {
            start: Start::Alone(number),
            peer: Peer::at(address),
            storage: Storage::Dir(dir.into()),
            timing: Timing::default(),
            snapshot_after_entries: 8192,
            snapshot_after_bytes: SNAPSHOT_BYTES,
            keep_entries: 10_240,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.snapshot_after_entries == 0 {
            return Err(Error::Config { field: "snapshot_after_entries", reason: "it must be at least 1" });
        }
        if self.snapshot_after_bytes == 0 {
            return Err(Error::Config { field: "snapshot_after_bytes", reason: "it must be at least 1" });
        }
        if !(1..=10).contains(&self.timing.multiplier) {
            return Err(Error::Config { field: "raft_multiplier", reason: "it must be from 1 to 10" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_certain_for_longer_than_a_heartbeat_and_shorter_than_an_election() {
        for multiplier in 1..=10 {
            let timing = Timing { multiplier };
            let (heartbeat, election) = (timing.heartbeat_millis(), timing.election_millis().0);
            let (heartbeat, election) = (Duration::from_millis(heartbeat), Duration::from_millis(election));
            // A margin for the ticks, several of which are in a heartbeat interval, and for a busy machine.
            assert!(
                heartbeat < timing.certainty() && timing.certainty() + heartbeat < timing.lease() + election
            );
            // Otherwise reads of an idle cluster would wait for a round.
            assert!(heartbeat * 6 / 5 < timing.read_lease());
        }
    }

    #[derive(Serialize)]
    struct OldPeer {
        addr: String,
    }

    #[test]
    fn a_peer_of_an_old_log_is_read() {
        let old = rmp_serde::to_vec_named(&OldPeer { addr: "10.0.0.1:4647".into() }).unwrap();
        let peer: Peer = rmp_serde::from_slice(&old).unwrap();
        assert_eq!(peer, Peer::at("10.0.0.1:4647"));
        let new = Peer { server: Uuid::from_u128(7), name: "a".into(), addr: "b".into() };
        let bytes = rmp_serde::to_vec_named(&new).unwrap();
        assert_eq!(rmp_serde::from_slice::<Peer>(&bytes).unwrap(), new);
    }
}
