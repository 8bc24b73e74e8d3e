//! Limits on the connections of one address, and on the time that a connection may take for its handshake.

use crate::wire::PREAMBLE_TIMEOUT;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of surplus connections that get a reason in quick succession, and the number in each later second.
const REFUSALS: u32 = 100;
const REFUSALS_PER_SECOND: u32 = 10;

/// The number of connections of each address, with a limit.
#[derive(Debug)]
pub struct Gate {
    /// Maximum number of connections per address; 0 means no limit.
    most: AtomicUsize,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    open: HashMap<IpAddr, usize>,
    refusals: u32,
    since: Instant,
}

/// One counted connection, until dropped.
#[derive(Debug)]
pub struct Ticket {
    gate: Arc<Gate>,
    address: IpAddr,
}

/// The decision about a new connection.
#[derive(Debug)]
pub enum Entry {
    /// Accepted, and counted until the ticket is dropped. `None` if there is no limit.
    In(Option<Ticket>),
    /// Refused.
    Out {
        /// Whether to send the reason. During a flood most refusals are silent, because each message costs work.
        answered: bool,
    },
}

impl Gate {
    /// Creates a gate that allows `most` connections per address; 0 means no limit.
    pub fn new(most: usize, now: Instant) -> Arc<Self> {
        let counts = Counts { open: HashMap::new(), refusals: 0, since: now };
        Arc::new(Self { most: AtomicUsize::new(most), counts: Mutex::new(counts) })
    }

    /// Changes the limit for new connections.
    pub fn allow(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Returns the maximum number of connections per address.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Locks the counts.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }

    /// Decides about a new connection from `address`.
    pub fn enter(self: &Arc<Self>, address: IpAddr, now: Instant) -> Entry {
        let most = self.most();
        if most == 0 {
            return Entry::In(None);
        }
        let mut counts = self.lock();
        let open = counts.open.get(&address).copied().unwrap_or(0);
        if open < most {
            counts.open.insert(address, open + 1);
            return Entry::In(Some(Ticket { gate: self.clone(), address }));
        }
        let seconds = now.saturating_duration_since(counts.since).as_secs();
        if seconds > 0 {
            let regained = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(REFUSALS_PER_SECOND);
            counts.refusals = counts.refusals.saturating_sub(regained);
            counts.since += Duration::from_secs(seconds);
        }
        let answered = counts.refusals < REFUSALS;
        counts.refusals += u32::from(answered);
        Entry::Out { answered }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.gate.lock();
        if let Some(open) = counts.open.get_mut(&self.address) {
            *open -= 1;
            if *open == 0 {
                counts.open.remove(&self.address);
            }
        }
    }
}

/// Limits on peers that connect. They can be changed while a server runs; clones share them.
#[derive(Clone, Debug)]
pub struct Limits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The timeout of a handshake in nanoseconds; 0 means no limit.
    handshake: AtomicU64,
    gate: Arc<Gate>,
}

impl Limits {
    /// Creates limits: the time for each handshake (TLS, then the greeting) and the connections per address. Zero
    /// means no limit.
    pub fn new(handshake: Duration, per_address: usize, now: Instant) -> Self {
        let limits =
            Self(Arc::new(Inner { handshake: AtomicU64::new(0), gate: Gate::new(per_address, now) }));
        limits.set(handshake, per_address);
        limits
    }

    /// Changes the limits for new connections.
    pub fn set(&self, handshake: Duration, per_address: usize) {
        let nanos = u64::try_from(handshake.as_nanos()).unwrap_or(u64::MAX);
        self.0.handshake.store(nanos, Ordering::Relaxed);
        self.0.gate.allow(per_address);
    }

    /// Returns the time limit of a handshake; zero means no limit.
    pub(crate) fn handshake(&self) -> Duration {
        Duration::from_nanos(self.0.handshake.load(Ordering::Relaxed))
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0.gate
    }
}

impl Default for Limits {
    /// Returns limits of five seconds per handshake and any number of connections.
    fn default() -> Self {
        Self::new(PREAMBLE_TIMEOUT, 0, Instant::now())
    }
}

/// Waits for `work` at most `patience`; zero means no limit. Returns `None` after the timeout.
pub(crate) async fn within<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    match patience {
        Duration::ZERO => Some(work.await),
        patience => tokio::time::timeout(patience, work).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, n).into()
    }

    #[test]
    fn each_address_has_its_own_count() {
        let now = Instant::now();
        let gate = Gate::new(2, now);
        let (first, second) = (gate.enter(address(1), now), gate.enter(address(1), now));
        assert!(matches!((&first, &second), (Entry::In(Some(_)), Entry::In(Some(_)))));
        assert!(matches!(gate.enter(address(1), now), Entry::Out { answered: true }));
        assert!(matches!(gate.enter(address(2), now), Entry::In(Some(_))));
        drop(first);
        assert!(matches!(gate.enter(address(1), now), Entry::In(Some(_))));
        assert!(matches!(Gate::new(0, now).enter(address(1), now), Entry::In(None)));
    }

    #[test]
    fn the_number_may_change_while_connections_are_open() {
        let now = Instant::now();
        let gate = Gate::new(1, now);
        let _first = gate.enter(address(1), now);
        gate.allow(2);
        let second = gate.enter(address(1), now);
        assert!(matches!(second, Entry::In(Some(_))));
        gate.allow(1);
        assert!(matches!(gate.enter(address(1), now), Entry::Out { .. }));
        gate.allow(0);
        assert!(matches!(gate.enter(address(1), now), Entry::In(None)));
        drop(second);
        assert_eq!(gate.lock().open[&address(1)], 1);
    }

    #[test]
    fn a_flood_is_not_answered_without_end() {
        let now = Instant::now();
        let gate = Gate::new(1, now);
        let _in = gate.enter(address(1), now);
        let answered = |at| matches!(gate.enter(address(1), at), Entry::Out { answered: true });
        assert_eq!((0..200).filter(|_| answered(now)).count(), 100);
        let later = now + Duration::from_secs(2);
        assert_eq!((0..200).filter(|_| answered(later)).count(), 20);
    }
}
