//! The wall clocks of hosts, and the clock of a host that also counts its suspended time.

use super::runtime::with_world;
use super::world::{HostId, Inner};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The wall time at the beginning of each world, in nanoseconds since the epoch: 2023-11-14.
const BEGINNING: i64 = 1_700_000_000_000_000_000;

thread_local! {
    /// The nanoseconds by which each host's wall clock is ahead. A thread has one world in its life.
    static AHEAD: RefCell<BTreeMap<HostId, i64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Steps the wall clock of a host, in nanoseconds. The step survives restarts of the host.
pub fn step_wall(host: HostId, by: i64) {
    AHEAD.with_borrow_mut(|ahead| *ahead.entry(host).or_default() += by);
}

/// Reads the wall clock of the current host, in nanoseconds since the epoch; `None` without a world.
pub fn wall() -> Option<i64> {
    let (passed, host) = with_world(|world| (world.elapsed(), world.current()))?;
    let ahead = AHEAD.with_borrow(|ahead| ahead.get(&host).copied().unwrap_or(0));
    Some(BEGINNING + passed.as_nanos() as i64 + ahead)
}

/// Returns the age of the current host's boot in nanoseconds, with its suspended time; `None` without a world.
pub fn since_boot() -> Option<u64> {
    with_world(Inner::since_boot)
}
