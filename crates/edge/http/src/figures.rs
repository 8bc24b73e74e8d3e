//! Counts and times of an agent's requests.

use caravan_meters::{Aggregate, Quantiles, Recent};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The answered requests; streams count when they begin.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<(Aggregate, Recent)>);

impl Requests {
    /// Records the time that an answer took.
    pub(crate) fn note(&self, took: Duration) {
        let mut kept = self.0.lock();
        kept.0.note_time(took);
        kept.1.note_time(Instant::now(), took);
    }

    /// Returns the number of requests, their times in milliseconds, and the quantiles of the latest ones.
    pub(crate) fn aggregate_and_quantiles(&self) -> (Aggregate, Quantiles) {
        let kept = self.0.lock();
        (kept.0, kept.1.quantiles(Instant::now()))
    }
}
