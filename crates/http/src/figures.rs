//! What the requests of an agent took.

use caravan_meters::Aggregate;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The requests that were answered; streams count when they begin.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Aggregate>);

impl Requests {
    /// Notes how long an answer took.
    pub(crate) fn note(&self, took: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note_time(took);
    }

    /// How many there were, and how many milliseconds each took.
    pub(crate) fn told(&self) -> Aggregate {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
