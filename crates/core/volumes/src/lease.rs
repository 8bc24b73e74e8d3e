//! The arithmetic of the fence (docs/design/volumes.md). It has the time until which a node may use its mounts, and
//! the time from which another node may certainly get a volume.
//!
//! The client counts from the time when it *sent* the last answered heartbeat. The servers count from the time when
//! they recorded the node's silence, which is never earlier. The servers therefore always wait longer than the client
//! uses the volume. Each side counts on its own `CLOCK_BOOTTIME`, because wall clocks step.

use caravan_types::volume::{AccessMode, ClaimMode};
use caravan_types::{BootInstant, Nanos};

/// Returns whether a use of a volume must end with its node's lease before another node may get the volume. That is
/// the case if the use writes, and the volume allows only one writer or one node at a time.
pub fn needs_fence(access: AccessMode, mode: ClaimMode) -> bool {
    mode == ClaimMode::Write && (access.single_writer() || access.single_node())
}

/// The spans of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The time for which the client may continue after a heartbeat was sent.
    pub ttl: Nanos,
    /// The time that the client's shim needs to kill a task whose lease ran out.
    pub kill_grace: Nanos,
    /// Extra time for clocks of different speed and for scheduling delays.
    pub margin: Nanos,
}

impl Default for Lease {
    /// Returns the default spans: 30 s of lease, 5 s to kill tasks, and 5 s of margin.
    fn default() -> Self {
        Self { ttl: Nanos::from_secs(30), kill_grace: Nanos::from_secs(5), margin: Nanos::from_secs(5) }
    }
}

impl Lease {
    /// Returns the time at which the client must have stopped using its mounts. `sent` is on the client's clock.
    pub fn deadline(&self, sent: BootInstant) -> BootInstant {
        sent.plus(self.ttl)
    }
    /// Returns the whole wait of the servers.
    pub fn grace(&self) -> Nanos {
        Nanos(self.ttl.0.saturating_add(self.kill_grace.0).saturating_add(self.margin.0))
    }
    /// Returns the time at which the server that began to wait at `began` may give the volume to another node. Both
    /// times are on that server's clock. The wait begins once the node's silence is recorded.
    pub fn hand_over_at(&self, began: BootInstant) -> BootInstant {
        began.plus(self.grace())
    }
    /// Returns the remaining time of the wait at `now`; zero after its end.
    pub fn wait_left(&self, began: BootInstant, now: BootInstant) -> Nanos {
        self.hand_over_at(began).since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_servers_wait_longer_than_the_client_uses(
            sent in 0_u64..1 << 60,
            travel in 0_u64..60_000_000_000,
            ttl in 1_i64..120_000_000_000,
            kill in 0_i64..60_000_000_000,
            margin in 1_i64..60_000_000_000,
        ) {
            let lease = Lease { ttl: Nanos(ttl), kill_grace: Nanos(kill), margin: Nanos(margin) };
            // The test treats both clocks as one, because only their equal speed matters.
            let killed = lease.deadline(BootInstant::from_nanos(sent)).plus(lease.kill_grace);
            prop_assert!(lease.hand_over_at(BootInstant::from_nanos(sent + travel)) > killed);
        }
    }

    #[test]
    fn a_wait_that_is_over_has_nothing_left() {
        let (lease, began) = (Lease::default(), BootInstant::from_nanos(7));
        assert_eq!(lease.wait_left(began, began.plus(Nanos::from_secs(15))), Nanos::from_secs(25));
        assert_eq!(lease.wait_left(began, began.plus(Nanos::from_secs(41))), Nanos::ZERO);
        assert_eq!(lease.wait_left(began, BootInstant::default()), Nanos(lease.grace().0 + 7));
    }
}
