//! The tasks, timers, clocks and random numbers of this crate: those of tokio and of the machine, or those of a
//! simulated world.
//!
//! Only the simulation of servers enables the feature `simulation`. Without a world on the current thread, this
//! module works as without the feature.

use caravan_rpc::{Channel, Method, RpcError};
use caravan_types::{BootInstant, UnixNanos};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

#[cfg(not(feature = "simulation"))]
mod machine;
#[cfg(feature = "simulation")]
mod world;

#[cfg(not(feature = "simulation"))]
use machine as chosen;
#[cfg(feature = "simulation")]
use world as chosen;

pub(crate) use chosen::{JoinError, JoinHandle, now, sleep, sleep_until, spawn, spawn_blocking, timeout};

/// Starts a task that a tracker waits for.
pub(crate) fn spawn_in<T: Send + 'static>(
    tracker: &TaskTracker,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    spawn(tracker.track_future(task))
}

/// Calls a method, and waits for the response for at most `deadline`.
pub(crate) async fn call<M: Method>(
    channel: &Channel,
    request: M::Request,
    deadline: Duration,
) -> Result<M::Response, RpcError> {
    chosen::call::<M>(channel, request, deadline).await
}

/// A timer that ticks immediately, and then whenever a period has passed since the last tick.
#[derive(Debug)]
pub(crate) struct Interval {
    next: Instant,
    period: Duration,
}

impl Interval {
    pub(crate) fn new(period: Duration) -> Self {
        Self { next: now(), period }
    }

    /// Waits for the next tick. Dropping the wait loses no tick.
    pub(crate) async fn tick(&mut self) {
        sleep_until(self.next).await;
        self.next = now() + self.period;
    }
}

/// Reads the wall clock, which may step.
pub(crate) fn wall() -> UnixNanos {
    UnixNanos(chosen::wall_nanos())
}

/// Reads the clock that never steps and includes the time for which the machine was suspended.
pub(crate) fn boot() -> BootInstant {
    BootInstant::from_nanos(chosen::boot_nanos())
}

/// Fills an array with unpredictable random bytes.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], rand::rand_core::OsError> {
    let mut bytes = [0; N];
    chosen::fill(&mut bytes)?;
    Ok(bytes)
}

/// Returns a random UUID.
pub(crate) fn random_uuid() -> Uuid {
    chosen::uuid()
}

/// Returns a random number, for choices that need no secrecy.
pub(crate) fn random() -> u64 {
    chosen::random()
}

/// Returns a random number from 0 to below 1, for choices that need no secrecy.
pub(crate) fn random_share() -> f64 {
    chosen::share()
}

#[cfg(not(feature = "simulation"))]
pub(crate) use tokio::select;

/// Waits for the first of several futures. In a world, the first ready branch wins, because no seed decides the order
/// in which tokio polls the branches.
#[cfg(feature = "simulation")]
macro_rules! select {
    ($($branches:tt)*) => {
        if caravan_consensus::sim::is_simulated() {
            tokio::select! { biased; $($branches)* }
        } else {
            tokio::select! { $($branches)* }
        }
    };
}

#[cfg(feature = "simulation")]
pub(crate) use select;

/// Returns whether a test planted a fault in this crate; see [`crate::Plant`].
#[cfg(feature = "simulation")]
macro_rules! planted {
    ($fault:ident) => {
        $crate::plant::is_planted($crate::plant::Plant::$fault)
    };
}

/// Returns `false`: only the simulation plants faults.
#[cfg(not(feature = "simulation"))]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

pub(crate) use planted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_below_one() {
        assert!((0..1000).map(|_| random_share()).all(|share| (0.0..1.0).contains(&share)));
    }

    #[tokio::test]
    async fn an_interval_ticks_at_once_and_loses_no_tick() {
        let mut interval = Interval::new(Duration::from_millis(20));
        let began = now();
        interval.tick().await;
        // A wait that is dropped is no tick.
        assert!(timeout(Duration::from_millis(1), interval.tick()).await.is_err());
        interval.tick().await;
        assert!(now() - began >= Duration::from_millis(20));
    }
}
