//! Blocking queries: reads that wait until their result changes (docs/reference/http-api.md, section 1.5).

use crate::access::{self, Place, Watched};
use crate::call::Call;
use crate::error::ApiError;
use crate::leader;
use crate::reply::{Indexed, Meta, Next};
use caravan_state::{Reads, Root, Watch};
use std::time::Duration;
use tokio::time::Instant;

/// Reads once, or waits for a result that is newer than the requested index. `read` returns the index
/// of its result and the result. Only changes of the rows that `read` read end the wait. A timeout is not an error.
pub(crate) async fn read<T>(
    call: &Call,
    read: impl Fn(&Reads<'_>) -> Result<(u64, T), ApiError>,
) -> Result<(Meta, T), ApiError> {
    call.query.check_stale()?;
    call.query.per_page()?;
    let wait = call.query.wait()?;
    let server = call.server()?;
    let store = server.store();
    let answer = |reads: &Reads<'_>| {
        let (index, value) = read(reads)?;
        let is_proved = server.is_leader() && !leader::is_stale(call);
        let known_leader = is_proved || server.cluster().knows_leader();
        let meta = Meta { index, known_leader, next: Next::default() };
        Ok((meta, value))
    };
    if wait.index == 0 {
        return answer(&Reads::new(&store.snapshot()));
    }
    // A query that has waited at another leader before has only the rest of its time.
    let left = jittered(wait.limit, rand::random()).saturating_sub(call.waited());
    let deadline = Instant::now() + left;
    let is_led = call.line.place == Place::Server && !call.query.is_stale();
    let mut watch = None;
    let guards = server.admin().acl_enabled();
    let mut rights = guards.then(|| access::watched(server, &call.caller()));
    let (mut seen, restores) = (0, store.restores());
    // The caller's rights are checked again before each answer: they may have ended during the wait.
    let judged = |root: &Root| {
        access::check_again(call, server, root)?;
        answer(&Reads::new(root))
    };
    loop {
        {
            // The snapshot is dropped before the wait. Otherwise thousands of waiting queries would each keep another
            // state in memory.
            let root = store.snapshot();
            // The rights may have ended during the wait. The error for a missing object has an index too, from which
            // clients block.
            access::check_again(call, server, &root)?;
            let reads = Reads::new(&root);
            let index = match answer(&reads) {
                Ok((meta, value)) if meta.index > wait.index => return Ok((meta, value)),
                Ok((meta, _)) => meta.index,
                Err(ApiError { indexed: Indexed::Meta(meta), .. }) if meta.index <= wait.index => meta.index,
                Err(error) => return Err(error),
            };
            // The index of the result may have decreased. The caller must see that.
            let is_replaced = root.index() < seen || store.restores() != restores;
            if is_replaced || call.state.stopping.is_cancelled() {
                return answer(&reads);
            }
            seen = root.index();
            let topics = reads.into_topics();
            if watch.as_ref().is_none_or(|watch: &Watch| !watch.is_on(&topics)) {
                // The next read follows the registration, so that no change between the two is missed.
                watch = Some(store.watch().on_all(topics).start());
                if store.snapshot().index() != seen {
                    continue;
                }
            }
            tracing::trace!(index, wanted = wait.index, "a query waits");
        }
        tokio::select! {
            () = woken(watch.as_mut()) => {}
            // The state of this server may lag from now on: the new leader continues.
            () = server.ended_leading(), if is_led => return Err(ApiError::leader_lost()),
            () = changed(rights.as_mut()) => rights = Some(access::watched(server, &call.caller())),
            () = call.state.stopping.cancelled() => return judged(&store.snapshot()),
            () = tokio::time::sleep_until(deadline) => return judged(&store.snapshot()),
        }
    }
}

async fn woken(watch: Option<&mut Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Waits until the caller's rights may have changed.
async fn changed(rights: Option<&mut Watched>) {
    match rights {
        Some(rights) => rights.changed().await,
        None => std::future::pending().await,
    }
}

/// Returns the longest time that a query may wait.
pub(crate) fn longest(limit: Duration) -> Duration {
    jittered(limit, u16::MAX)
}

/// Returns the wait plus up to one sixteenth, so that clients that started together do not return together.
fn jittered(limit: Duration, random: u16) -> Duration {
    limit + limit / 16 * u32::from(random) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jitter_is_at_most_a_sixteenth() {
        let limit = Duration::from_secs(16);
        assert_eq!(jittered(limit, 0), limit);
        assert_eq!(jittered(limit, u16::MAX), Duration::from_secs(17));
    }
}
