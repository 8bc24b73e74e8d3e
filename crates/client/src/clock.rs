//! The one place that reads the clock and draws random numbers; everything that decides gets them passed.

use caravan_types::UnixNanos;
use std::time::Duration;

/// Nanoseconds since the epoch.
pub(crate) fn now() -> UnixNanos {
    UnixNanos(caravan_sys::time::wall_nanos())
}

/// A lengthening of a delay: 0 to 250 thousandths.
pub(crate) fn jitter_permille() -> u16 {
    rand::random_range(0..=250)
}

/// A delay that doubles with each failure, jittered, for what has to succeed in the end.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    ceiling: Duration,
    next: Duration,
}

impl Backoff {
    /// From `first`, doubling up to `ceiling`.
    pub(crate) fn new(first: Duration, ceiling: Duration) -> Self {
        Self { first, ceiling, next: first }
    }
    /// The delay before the next try.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(self.ceiling);
        delay + delay.mul_f64(f64::from(jitter_permille()) / 1000.0)
    }
    /// After a success.
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
