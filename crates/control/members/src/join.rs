//! Joining by the configuration: `start_join` once, `retry_join` until it succeeds (docs/reference/cluster.md,
//! section 4).

use crate::handle::{Handle, JoinFailure};
use crate::resolve::JoinEntry;
use std::net::SocketAddr;
use std::time::Duration;

/// The default of `retry_interval`.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The decisions after each attempt of `retry_join`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPlan {
    /// The pause between two attempts (`retry_interval`).
    pub interval: Duration,
    /// The number of failed attempts after which to give up (`retry_max`); 0 means never.
    pub max: u32,
    /// The number of failed attempts so far.
    pub failed: u32,
}

impl Default for RetryPlan {
    fn default() -> Self {
        Self { interval: RETRY_INTERVAL, max: 0, failed: 0 }
    }
}

/// The step that follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No further attempt.
    Done,
    /// Another attempt after this pause.
    After(Duration),
    /// Too many attempts failed: the agent ends with exit code 1.
    GiveUp,
}

impl RetryPlan {
    /// Returns the next step. `has_joined` is set if at least one server responded to the attempt.
    pub fn after(&mut self, has_joined: bool) -> Next {
        if has_joined {
            return Next::Done;
        }
        self.failed = self.failed.saturating_add(1);
        if self.max > 0 && self.failed >= self.max { Next::GiveUp } else { Next::After(self.interval) }
    }
}

/// The error of a join without a response, after which the agent must end with exit code 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: no server could be joined: {reasons}")]
pub struct JoinError {
    /// The setting that failed: `server_join.start_join` or `server_join.retry_join`.
    pub setting: &'static str,
    /// The reason of each address, as one text.
    pub reasons: String,
}

/// The addresses of entries, and the entries without addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// The addresses, without repetitions.
    pub addresses: Vec<SocketAddr>,
    /// The entries that failed.
    pub failures: Vec<JoinFailure>,
}

/// Resolves entries, with `default_port` for entries without a port. Also for clients, whose default port is 4647.
pub async fn discover(entries: &[JoinEntry], default_port: u16) -> Discovered {
    let mut found = Discovered::default();
    for entry in entries {
        match entry.resolve(default_port).await {
            Ok(addresses) => {
                for address in addresses {
                    if !found.addresses.contains(&address) {
                        found.addresses.push(address);
                    }
                }
            }
            Err(error) => {
                found.failures.push(JoinFailure { address: entry.to_string(), reason: error.to_string() });
            }
        }
    }
    found
}

/// Joins once. The own address counts as a response.
///
/// # Errors
/// If no server responds. The agent then ends with exit code 1.
pub async fn start_join(handle: &Handle, entries: &[JoinEntry]) -> Result<usize, JoinError> {
    match attempt(handle, entries).await {
        Attempt { joined, lists_own, .. } if joined > 0 || lists_own => Ok(joined),
        Attempt { reasons, .. } => Err(JoinError { setting: "server_join.start_join", reasons }),
    }
}

/// Joins, with pauses, until at least one other server responds. A server that lists its own address waits
/// for the others without end.
///
/// # Errors
/// After `retry_max` failed attempts. The agent then ends with exit code 1.
pub async fn retry_join(
    handle: &Handle,
    entries: &[JoinEntry],
    mut plan: RetryPlan,
) -> Result<usize, JoinError> {
    loop {
        let Attempt { joined, lists_own, has_others, reasons } = attempt(handle, entries).await;
        if lists_own {
            plan.max = 0;
        }
        let is_done = joined > 0 || (lists_own && !has_others);
        match plan.after(is_done) {
            Next::Done => {
                tracing::info!(servers = joined, "the join is complete");
                return Ok(joined);
            }
            Next::GiveUp => return Err(JoinError { setting: "server_join.retry_join", reasons }),
            Next::After(pause) => {
                tracing::warn!(reasons, retry_after = ?pause, "no server could be joined");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// The result of one attempt.
struct Attempt {
    /// The number of other servers that responded.
    joined: usize,
    /// Whether the own address is among the addresses.
    lists_own: bool,
    /// Whether the entries name another address, or one of them did not resolve.
    has_others: bool,
    /// The reasons for which the other addresses failed.
    reasons: String,
}

async fn attempt(handle: &Handle, entries: &[JoinEntry]) -> Attempt {
    let found = discover(entries, handle.addr().port()).await;
    for failure in &found.failures {
        tracing::warn!(
            address = failure.address,
            reason = failure.reason,
            "an address to join cannot be used"
        );
    }
    let (own, others): (Vec<SocketAddr>, Vec<SocketAddr>) =
        found.addresses.into_iter().partition(|addr| *addr == handle.addr());
    let has_others = !others.is_empty() || !found.failures.is_empty();
    let mut result = handle.join_at(&others).await;
    result.failures.extend(found.failures);
    let reasons = result.error().unwrap_or_else(|| "no address of another server is listed".to_owned());
    Attempt { joined: result.joined, lists_own: !own.is_empty(), has_others, reasons }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_gives_up_after_its_maximum() {
        let interval = Duration::from_secs(5);
        let mut plan = RetryPlan { interval, max: 3, failed: 0 };
        assert_eq!(plan.after(false), Next::After(interval));
        assert_eq!(plan.after(false), Next::After(interval));
        assert_eq!(plan.after(false), Next::GiveUp);
        let mut plan = RetryPlan::default();
        for _ in 0..1000 {
            assert_eq!(plan.after(false), Next::After(RETRY_INTERVAL));
        }
        assert_eq!(plan.after(true), Next::Done);
    }
}
