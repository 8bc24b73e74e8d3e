//! Several servers with the real services of `caravan_server`: the work of the leader in each term, the workers, the
//! claims and fences of volumes, the keys, and the calls of nodes, over the virtual network and the virtual disks.
//!
//! The nodes and the users are simulated. The log is on a virtual disk; the keys and the promise to found a cluster
//! are files of a temporary directory, because they are written once, durably, before anything depends on them.

mod book;
mod check;
mod lan;
mod nemesis;
mod node;
mod relay;
mod rows;
mod users;
mod world;

use crate::Outcome;
use caravan_consensus::sim::World;
use caravan_server::Plant;

/// All faults that can be planted in `caravan_server`, with their names.
pub const FAULTS: [(&str, Plant); 7] = [
    ("no-quorum-round", Plant::NoQuorumRound),
    ("wall-clock-fence", Plant::WallClockFence),
    ("no-floor", Plant::NoFloor),
    ("no-term", Plant::NoTerm),
    ("no-failover", Plant::NoFailover),
    ("unproved-read", Plant::UnprovedRead),
    ("stale-before-recovery", Plant::StaleBeforeRecovery),
];

/// Runs one seed.
pub fn run(seed: u64, fault: Option<Plant>) -> Outcome {
    let book = book::Book::default();
    let pages = book.clone();
    // A world belongs to a thread. A panic of a server ends the thread, and is a violation.
    let thread = std::thread::Builder::new().name(format!("seed {seed}")).stack_size(16 << 20);
    let work = move || {
        caravan_server::plant(fault);
        let world = World::new(seed);
        nemesis::run(&world, pages);
    };
    match thread.spawn(work).map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            book.violate(format!("panic: {}", text.unwrap_or_default()));
        }
        Err(error) => book.violate(format!("no thread: {error}")),
    }
    Outcome {
        seed,
        hash: book.hash(),
        trace: book.trace(),
        violation: book.violation(),
        counts: book.counts(),
    }
}
