//! Waiting for a condition, with a deadline and a report of the last look.

use anyhow::{Context, Result, anyhow};
use std::time::{Duration, Instant};

/// Longest wait for anything that should happen soon: generous, because a busy machine is slow and a
/// test that passes does not wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until `look` succeeds; fails with its last error.
///
/// # Errors
/// If it did not succeed within a minute.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Result<T>) -> Result<T> {
    eventually_within(PATIENCE, what, look)
}

/// The same with a deadline of its own.
///
/// # Errors
/// If it did not succeed in time.
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
