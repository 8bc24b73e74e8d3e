//! What the requests of an agent took.

use caravan_meters::{Aggregate, Quantiles, Recent};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The requests that were answered; streams count when they begin.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<(Aggregate, Recent)>);

impl Requests {
    /// Notes how long an answer took.
    pub(crate) fn note(&self, took: Duration) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0.note_time(took);
        kept.1.note_time(Instant::now(), took);
    }

    /// Returns how many there were and how many milliseconds each took, and the quantiles of the latest ones.
    pub(crate) fn told(&self) -> (Aggregate, Quantiles) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.0, kept.1.quantiles(Instant::now()))
    }
}
