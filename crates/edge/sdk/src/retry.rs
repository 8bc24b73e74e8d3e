//! Retries of reads while the servers cannot answer.

use crate::error::Error;
use caravan_api::ErrorReason;
use std::time::Duration;

/// The number and the pauses of the retries of a read. Writes are never retried: the first request may have taken
/// effect although its answer was lost.
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
    /// The number of retries; 0 returns the first failure.
    pub times: u32,
    /// The pause before the first retry; each further pause is twice as long.
    pub first_pause: Duration,
    /// The upper bound of a pause.
    pub longest_pause: Duration,
}

impl Default for Retry {
    /// Returns a policy without retries.
    fn default() -> Self {
        Self { times: 0, first_pause: Duration::from_millis(250), longest_pause: Duration::from_secs(10) }
    }
}

impl Retry {
    /// Returns a policy with this number of retries and the usual pauses.
    pub fn times(times: u32) -> Self {
        Self { times, ..Self::default() }
    }

    /// Returns the pause before retry `n`, counted from 0; `None` if there is no further retry.
    pub fn pause(&self, n: u32) -> Option<Duration> {
        let factor = 1_u32.checked_shl(n).unwrap_or(u32::MAX);
        (n < self.times).then(|| self.first_pause.saturating_mul(factor).min(self.longest_pause))
    }

    /// Returns whether a retry of the same request may succeed soon.
    pub(crate) fn is_passing(error: &Error) -> bool {
        match error {
            Error::NoAgent { .. } | Error::Unreachable { .. } | Error::Broken { .. } => true,
            Error::Status { code: 429 | 502 | 503 | 504, .. } => true,
            Error::Status { reason: Some(reason), .. } => *reason == ErrorReason::NoLeader,
            // Agents of other kinds name no reason.
            Error::Status { code: 500, body, .. } => body.contains("No cluster leader"),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_second_try_cannot_change_is_not_tried_again() {
        let with = |code, body: &str, reason| {
            let (body, problems) = (body.to_owned(), Vec::new());
            Error::Status { code, body, reason, problems }
        };
        let status = |code, body: &str| with(code, body, None);
        assert!(Retry::is_passing(&with(500, "in other words", Some(ErrorReason::NoLeader))));
        assert!(!Retry::is_passing(&with(500, "No cluster leader", Some(ErrorReason::ModifyIndex))));
        assert!(Retry::is_passing(&status(500, "No cluster leader")));
        assert!(Retry::is_passing(&status(429, "too many")));
        assert!(!Retry::is_passing(&status(500, "job exists")));
        assert!(!Retry::is_passing(&status(404, "job not found")));
        assert_eq!(Retry::default().pause(0), None);
        assert_eq!(Retry::times(40).pause(39), Some(Duration::from_secs(10)));
    }
}
