//! The servers that an operator removed from the log although they run.

use caravan_types::{BootInstant, Nanos};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// The time for which a removed server that runs is not admitted again. Nomad compares servers with the log at this
/// interval (docs/reference/cluster.md, section 5.2).
const HOLD: Nanos = Nanos::from_secs(60);

/// The removed servers, with the time of their removal; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removals(Arc<Mutex<BTreeMap<Uuid, BootInstant>>>);

impl Removals {
    /// Records a removal.
    pub(crate) fn record(&self, server: Uuid, now: BootInstant) {
        self.0.lock().insert(server, now);
    }

    /// Ends the wait of a server that does not run any more: after a restart, the server may be admitted again.
    pub(crate) fn end(&self, server: Uuid) {
        self.0.lock().remove(&server);
    }

    /// Returns whether a server was removed a short while ago.
    pub(crate) fn holds(&self, server: Uuid, now: BootInstant) -> bool {
        self.0.lock().get(&server).is_some_and(|at| now.since(*at) < HOLD)
    }

    /// Returns whether any server waits for its return.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Removes waits that have ended.
    pub(crate) fn sweep(&self, now: BootInstant) {
        self.0.lock().retain(|_, at| now.since(*at) < HOLD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_server_waits_for_a_minute_or_until_it_stops() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let (removals, server, other) = (Removals::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        removals.record(server, at(10));
        assert!(removals.holds(server, at(69)) && !removals.holds(other, at(69)));
        assert!(!removals.holds(server, at(70)) && removals.is_waiting());
        removals.sweep(at(70));
        assert!(!removals.is_waiting());
        removals.record(server, at(10));
        removals.end(server);
        assert!(!removals.holds(server, at(11)));
    }
}
