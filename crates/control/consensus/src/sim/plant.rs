//! Faults that the simulation must find.

use super::runtime::with_world;

/// A fault of this crate that a test plants in all servers of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plant {
    /// The writer of the log acknowledges writes before they are flushed.
    AckBeforeFlush,
    /// Votes are not written to the disk.
    VoteNotSaved,
    /// A truncation of the log is not written to the disk.
    TruncationLost,
    /// A restarted leader continues without a vote.
    LeaderRestore,
    /// A lease for reads is twice as long as the time for which voters refuse other servers.
    LongLease,
}

/// Returns whether a fault is planted in the world of this thread.
pub(crate) fn is_planted(plant: Plant) -> bool {
    with_world(|world| world.is_planted(plant)).unwrap_or(false)
}
