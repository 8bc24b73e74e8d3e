//! Several servers with the real services of `caravan_server`, over the virtual network and the virtual disks. The
//! services are the work of the leader in each term, the workers, the claims and fences of volumes, the keys, and the
//! calls of nodes.
//!
//! The nodes and the users are simulated. The log is on a virtual disk. The keys and the promise to found a cluster
//! are files of a temporary directory: they are written once, durably, before other parts depend on them.

mod book;
mod check;
mod lan;
mod nemesis;
mod node;
mod relay;
mod rows;
mod users;
mod world;

use crate::{Outcome, trace};
use caravan_consensus::sim::World;
use caravan_server::Plant;

/// All faults that can be planted in `caravan_server`, with their names.
pub const FAULTS: [(&str, Plant); 8] = [
    ("no-quorum-round", Plant::NoQuorumRound),
    ("wall-clock-fence", Plant::WallClockFence),
    ("no-floor", Plant::NoFloor),
    ("no-term", Plant::NoTerm),
    ("no-failover", Plant::NoFailover),
    ("unproved-read", Plant::UnprovedRead),
    ("unproved-discard", Plant::UnprovedDiscard),
    ("stale-before-recovery", Plant::StaleBeforeRecovery),
];

/// Runs one seed.
pub fn run(seed: u64, fault: Option<Plant>) -> Outcome {
    trace::run(seed, move |book| {
        caravan_server::plant(fault);
        let world = World::new(seed);
        nemesis::run(&world, book);
    })
}
