//! Attempts of requests: a request whose leader's term ended before the first write may be sent to the next leader.

use std::cell::Cell;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The time until which a write of the request may wait for a quorum.
    deadline: Instant,
    /// Whether a write may be in the log.
    wrote: bool,
    /// Whether the log refused a write, because this server no longer leads.
    refused: bool,
}

tokio::task_local! {
    static SEEN: Cell<Seen>;
}

/// Runs the work of a request. Returns its outcome, and whether the request can be repeated at the next leader. The
/// request can be repeated if a write was refused because the term had ended, and no write was made before. Writes of
/// other tasks are not seen, and their refusals do not count. A write waits for a quorum until `deadline`.
pub async fn attempt<T>(deadline: Instant, work: impl Future<Output = T>) -> (T, bool) {
    let counted = async {
        let outcome = work.await;
        let seen = SEEN.with(Cell::get);
        (outcome, seen.refused && !seen.wrote)
    };
    SEEN.scope(Cell::new(Seen { deadline, wrote: false, refused: false }), counted).await
}

/// Returns the time until which a write of this request may wait for a quorum, or `None` for work outside of
/// requests.
pub(crate) fn deadline() -> Option<Instant> {
    SEEN.try_with(|seen| seen.get().deadline).ok()
}

/// Records that a write of this request may be in the log.
pub(crate) fn wrote() {
    note(|seen| Seen { wrote: true, ..seen });
}

/// Records that the log refused a write of this request.
pub(crate) fn refused() {
    note(|seen| Seen { refused: true, ..seen });
}

fn note(change: impl FnOnce(Seen) -> Seen) {
    // Work outside of requests has no place to record it.
    let _ = SEEN.try_with(|seen| seen.set(change(seen.get())));
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn attempt<T>(work: impl Future<Output = T>) -> (T, bool) {
        super::attempt(Instant::now(), work).await
    }

    #[tokio::test]
    async fn only_a_request_that_wrote_nothing_can_be_repeated() {
        assert!(!attempt(async {}).await.1);
        assert!(attempt(async { refused() }).await.1);
        assert!(!attempt(async { wrote() }).await.1);
        let both = async {
            wrote();
            refused();
        };
        assert!(!attempt(both).await.1);
        // Another task's refusal does not count for this request.
        assert!(!attempt(async { tokio::spawn(async { refused() }).await.unwrap() }).await.1);
        refused();
    }
}
