//! Asking again when the servers cannot answer at the moment.

use crate::error::Error;
use std::time::Duration;

/// How often and after what pauses a read is repeated. Writes are never repeated: nobody knows whether the
/// first one was heard.
///
/// ```
/// use caravan_sdk::Retry;
/// use std::time::Duration;
///
/// let retry = Retry { times: 4, first_pause: Duration::from_millis(100), longest_pause: Duration::from_secs(1) };
/// let pauses: Vec<_> = (0..5).map(|n| retry.pause(n).map(|pause| pause.as_millis())).collect();
/// assert_eq!(pauses, [Some(100), Some(200), Some(400), Some(800), None]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Repetitions; 0 = the first failure is the answer.
    pub times: u32,
    /// The pause before the first of them; each further one is twice as long.
    pub first_pause: Duration,
    /// No pause is longer.
    pub longest_pause: Duration,
}

impl Default for Retry {
    /// No repetition.
    fn default() -> Self {
        Self { times: 0, first_pause: Duration::from_millis(250), longest_pause: Duration::from_secs(10) }
    }
}

impl Retry {
    /// So many repetitions with the usual pauses.
    pub fn times(times: u32) -> Self {
        Self { times, ..Self::default() }
    }

    /// The pause before repetition `n`, counted from 0; none when there is no further one.
    pub fn pause(&self, n: u32) -> Option<Duration> {
        let factor = 1_u32.checked_shl(n).unwrap_or(u32::MAX);
        (n < self.times).then(|| self.first_pause.saturating_mul(factor).min(self.longest_pause))
    }

    /// Whether the same question may have another answer soon.
    pub(crate) fn is_passing(error: &Error) -> bool {
        match error {
            Error::NoAgent { .. } | Error::Unreachable { .. } | Error::Broken { .. } => true,
            Error::Status { code: 429 | 502 | 503 | 504, .. } => true,
            Error::Status { code: 500, body } => body.contains("No cluster leader"),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_second_try_cannot_change_is_not_tried_again() {
        let status = |code, body: &str| Error::Status { code, body: body.to_owned() };
        assert!(Retry::is_passing(&status(500, "No cluster leader")));
        assert!(Retry::is_passing(&status(429, "too many")));
        assert!(!Retry::is_passing(&status(500, "job exists")));
        assert!(!Retry::is_passing(&status(404, "job not found")));
        assert_eq!(Retry::default().pause(0), None);
        assert_eq!(Retry::times(40).pause(39), Some(Duration::from_secs(10)));
    }
}
