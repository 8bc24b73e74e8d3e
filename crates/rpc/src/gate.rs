//! How many connections an address may have at a time, and how long a connection may take to introduce itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::PREAMBLE_PATIENCE;

/// Surplus connections that are answered at once, and in each second after that.
const REFUSALS: u32 = 100;
const REFUSALS_PER_SECOND: u32 = 10;

/// Counts the connections of each address.
#[derive(Debug)]
pub struct Gate {
    /// 0 for any number.
    most: AtomicUsize,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    open: HashMap<IpAddr, usize>,
    refusals: u32,
    since: Instant,
}

/// A connection that is counted, until dropped.
#[derive(Debug)]
pub struct Ticket {
    gate: Arc<Gate>,
    address: IpAddr,
}

/// Whether a connection comes in.
#[derive(Debug)]
pub enum Entry {
    /// It does, counted for as long as its ticket lives. None where nothing is counted.
    In(Option<Ticket>),
    /// It does not.
    Out {
        /// Whether it is told why: answers to a flood are work as well.
        answered: bool,
    },
}

impl Gate {
    /// Lets each address have `most` connections; 0 stands for any number.
    pub fn new(most: usize, now: Instant) -> Arc<Self> {
        let counts = Counts { open: HashMap::new(), refusals: 0, since: now };
        Arc::new(Self { most: AtomicUsize::new(most), counts: Mutex::new(counts) })
    }

    /// Changes the number for connections from now on.
    pub fn allow(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Connections that an address may have.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// A thread that panicked while it held the lock left whole counts only.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a connection from `address`.
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

/// What those who connect may take. It can be changed while a server runs; clones are the same one.
#[derive(Clone, Debug)]
pub struct Limits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Nanoseconds; 0 for as long as it takes.
    handshake: AtomicU64,
    gate: Arc<Gate>,
}

impl Limits {
    /// A time for each handshake (that of TLS, and then the introduction) and connections for each address; zero
    /// stands for no limit.
    pub fn new(handshake: Duration, per_address: usize, now: Instant) -> Self {
        let limits =
            Self(Arc::new(Inner { handshake: AtomicU64::new(0), gate: Gate::new(per_address, now) }));
        limits.set(handshake, per_address);
        limits
    }

    /// Changes them for connections from now on.
    pub fn set(&self, handshake: Duration, per_address: usize) {
        let nanos = u64::try_from(handshake.as_nanos()).unwrap_or(u64::MAX);
        self.0.handshake.store(nanos, Ordering::Relaxed);
        self.0.gate.allow(per_address);
    }

    /// How long a handshake may take; zero for as long as it likes.
    pub(crate) fn handshake(&self) -> Duration {
        Duration::from_nanos(self.0.handshake.load(Ordering::Relaxed))
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0.gate
    }
}

impl Default for Limits {
    /// Five seconds, any number of connections.
    fn default() -> Self {
        Self::new(PREAMBLE_PATIENCE, 0, Instant::now())
    }
}

/// Waits no longer than `patience`; zero stands for as long as it takes. None when the time is over.
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
