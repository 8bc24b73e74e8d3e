//! The arithmetic of the fence (design section 4.4): until when a node may use what it mounted, and
//! from when on a volume may certainly be handed to another node.
//!
//! The client counts from the moment at which it *sent* the last answered heartbeat, the servers from
//! the moment at which they recorded the node's silence, which is never earlier; so the servers always wait
//! longer than the client uses. Each counts on its own `CLOCK_BOOTTIME`: wall clocks step.

use caravan_types::volume::{AccessMode, ClaimMode};
use caravan_types::{BootInstant, Nanos};

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
    pub fn deadline(&self, sent: BootInstant) -> BootInstant {
        sent.plus(self.ttl)
    }
    /// The whole wait of the servers.
    pub fn grace(&self) -> Nanos {
        Nanos(self.ttl.0.saturating_add(self.kill_grace.0).saturating_add(self.margin.0))
    }
    /// When a volume may be handed on by the server that began to wait at `began`, both on that server's clock. The
    /// wait begins once the node's silence is on record.
    pub fn hand_over_at(&self, began: BootInstant) -> BootInstant {
        began.plus(self.grace())
    }
    /// How much of that wait is left at `now`; zero when it is over.
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
            // As if both clocks were one: they run at the same speed, which is all that counts.
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
