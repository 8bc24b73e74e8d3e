//! The arithmetic of the fence (design section 4.4): until when a node may use what it mounted, and
//! from when on a volume may certainly be handed to another node.
//!
//! The client counts from the moment at which it *sent* the last answered heartbeat, the servers from
//! the moment at which they heard it, which is never earlier; so the servers always wait longer than
//! the client uses.

use caravan_types::volume::{AccessMode, ClaimMode};
use caravan_types::{Nanos, UnixNanos};

/// Whether what uses a volume in this way must end with its node's lease, before another node may have it:
/// it writes, and the volume is promised to one writer or to one node at a time.
pub fn needs_fence(access: AccessMode, mode: ClaimMode) -> bool {
    mode == ClaimMode::Write && (access.single_writer() || access.single_node())
}

/// The spans of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How long after a heartbeat was sent the client may go on.
    pub ttl: Nanos,
    /// How long the client's shim needs to end a task whose lease ran out.
    pub kill_grace: Nanos,
    /// For clocks that run at different speeds and for pauses of the scheduler.
    pub margin: Nanos,
}

impl Default for Lease {
    /// 30 s of lease, 5 s to end tasks, 5 s of margin.
    fn default() -> Self {
        Self { ttl: Nanos::from_secs(30), kill_grace: Nanos::from_secs(5), margin: Nanos::from_secs(5) }
    }
}

impl Lease {
    /// When the client must have stopped using what it mounted; `sent` is on the client's clock.
    pub fn deadline(&self, sent: UnixNanos) -> UnixNanos {
        sent.plus(self.ttl)
    }
    /// How much of the lease is left at `now`; zero when it ran out. Both times on the client's clock.
    pub fn left(&self, sent: UnixNanos, now: UnixNanos) -> Nanos {
        self.deadline(sent).since(now).max(Nanos::ZERO)
    }
    /// The whole wait of the servers.
    pub fn grace(&self) -> Nanos {
        Nanos(self.ttl.0.saturating_add(self.kill_grace.0).saturating_add(self.margin.0))
    }
    /// When a volume may be handed on; `heard` is the servers' time of the last contact or later.
    pub fn hand_over_at(&self, heard: UnixNanos) -> UnixNanos {
        heard.plus(self.grace())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_servers_wait_longer_than_the_client_uses(
            sent in 0_i64..1 << 60,
            travel in 0_i64..60_000_000_000,
            ttl in 1_i64..120_000_000_000,
            kill in 0_i64..60_000_000_000,
            margin in 1_i64..60_000_000_000,
        ) {
            let lease = Lease { ttl: Nanos(ttl), kill_grace: Nanos(kill), margin: Nanos(margin) };
            let killed = lease.deadline(UnixNanos(sent)).plus(lease.kill_grace);
            prop_assert!(lease.hand_over_at(UnixNanos(sent + travel)) > killed);
        }
    }

    #[test]
    fn a_lease_that_ran_out_has_nothing_left() {
        let lease = Lease::default();
        assert_eq!(lease.left(UnixNanos(0), UnixNanos(10_000_000_000)), Nanos::from_secs(20));
        assert_eq!(lease.left(UnixNanos(0), UnixNanos(31_000_000_000)), Nanos::ZERO);
    }
}
