//! Several servers in one thread: the real replicated log (`caravan_consensus`) over a virtual network, virtual disks
//! and virtual clocks. A seed determines every event, so that a failure can be repeated.
//!
//! The log, its membership, its reads, its files (segments on a
//! [`VirtualDisk`](caravan_consensus::sim::VirtualDisk)), the founding and the arithmetic of the fence are
//! real. The commands are few and small, and the work of the leader is a short form of the work of
//! `caravan_server` (docs/adr/0015-simulation.md has the reason).

#![expect(clippy::cast_possible_truncation, reason = "the numbers of a simulation are small")]

mod admin;
mod book;
mod client;
mod command;
mod founder;
mod leader;
mod nemesis;
mod net;
mod node;
mod seeds;
mod server;
pub mod service;
mod trace;

pub use seeds::{first_violation, processors, run_seeds};

use caravan_consensus::sim::{Plant, World};
use std::collections::BTreeMap;

/// A fault that is planted in all servers, for a test that the simulation finds the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A fault in the replicated log.
    Log(Plant),
    /// A leader responds to heartbeats without a round to a quorum.
    NoQuorumRound,
    /// A leader counts a fence from the time that an earlier leader recorded.
    WallClockFence,
    /// A server shows a node an older list of allocations than the node has.
    NoFloor,
    /// A server that lost its disk returns with its old number.
    NumberReused,
    /// Each server founds a cluster with the first servers that it reaches.
    FirstSeenFounding,
    /// A server skips a committed command that it cannot read.
    CommandSkipped,
    /// The commands of a leader do not carry its term.
    NoTerm,
    /// A key is used before it is in the log.
    KeyBeforeLog,
    /// A restarted server shows its state before the state is as new as before the restart.
    StaleBeforeRecovery,
}

impl Fault {
    /// All faults, with their names.
    pub const ALL: [(&'static str, Self); 14] = [
        ("ack-before-flush", Self::Log(Plant::AckBeforeFlush)),
        ("vote-not-saved", Self::Log(Plant::VoteNotSaved)),
        ("truncation-lost", Self::Log(Plant::TruncationLost)),
        ("leader-restore", Self::Log(Plant::LeaderRestore)),
        ("long-lease", Self::Log(Plant::LongLease)),
        ("no-quorum-round", Self::NoQuorumRound),
        ("wall-clock-fence", Self::WallClockFence),
        ("no-floor", Self::NoFloor),
        ("number-reused", Self::NumberReused),
        ("first-seen-founding", Self::FirstSeenFounding),
        ("command-skipped", Self::CommandSkipped),
        ("no-term", Self::NoTerm),
        ("key-before-log", Self::KeyBeforeLog),
        ("stale-before-recovery", Self::StaleBeforeRecovery),
    ];
}

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// A hash of the trace; equal in each run of the seed, in any process.
    pub hash: u64,
    /// The events, with the time of the world.
    pub trace: Vec<String>,
    /// The first violation, if there is one.
    pub violation: Option<String>,
    /// The number of times that each kind of event happened.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs one seed.
pub fn run(seed: u64, fault: Option<Fault>) -> Outcome {
    trace::run(seed, move |book| {
        let world = World::new(seed);
        if let Some(Fault::Log(plant)) = fault {
            world.plant(plant);
        }
        nemesis::run(&world, book, fault);
    })
}
