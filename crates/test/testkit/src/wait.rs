//! Waits for conditions, with a deadline and a report of the last attempt.

use anyhow::{Context, Result, anyhow};
use std::time::{Duration, Instant};

/// The default timeout. It is generous, because a busy machine is slow and a
/// passing test does not wait.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until `look` succeeds; fails with its last error.
///
/// # Errors
/// Fails if `look` did not succeed within a minute.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Result<T>) -> Result<T> {
    eventually_within(TIMEOUT, what, look)
}

/// Polls until `look` succeeds, with a deadline.
///
/// # Errors
/// Fails if `look` did not succeed in time.
pub fn eventually_within<T>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(5);
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| anyhow!("waited {}s for: {what}", patience.as_secs()));
            }
            Err(_) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}
