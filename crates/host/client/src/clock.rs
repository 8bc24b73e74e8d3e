//! The only module that reads the clock and draws random numbers; decisions receive both as parameters.

use caravan_types::UnixNanos;
use std::time::Duration;

/// Returns nanoseconds since the Unix epoch.
pub(crate) fn now() -> UnixNanos {
    UnixNanos(caravan_sys::time::wall_nanos())
}

/// Returns a random extension of a delay, 0 to 250 per mille.
pub(crate) fn jitter_permille() -> u16 {
    rand::random_range(0..=250)
}

/// A jittered delay that doubles with each failure, for operations that are retried until they succeed.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    ceiling: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a delay that starts with `first` and doubles up to `ceiling`.
    pub(crate) fn new(first: Duration, ceiling: Duration) -> Self {
        Self { first, ceiling, next: first }
    }
    /// Returns the delay before the next attempt.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(self.ceiling);
        delay + delay.mul_f64(f64::from(jitter_permille()) / 1000.0)
    }
    /// Returns whether no attempt has failed since the start or the last success.
    pub(crate) fn is_fresh(&self) -> bool {
        self.next == self.first
    }
    /// Starts again with the first delay, after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_ceiling() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let mut floor = Duration::from_millis(100);
        for _ in 0..8 {
            let delay = backoff.delay();
            assert!(delay >= floor && delay <= floor + floor / 4, "{delay:?} for {floor:?}");
            floor = (floor * 2).min(Duration::from_secs(1));
        }
        backoff.reset();
        assert!(backoff.delay() <= Duration::from_millis(125));
    }
}
