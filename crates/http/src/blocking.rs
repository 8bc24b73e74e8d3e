//! Blocking queries: reads that wait until their result changes (docs/reference/http-api.md, section 1.5).

use crate::access::{self, Watched};
use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Indexed, Meta};
use caravan_state::{Root, Topic};
use std::time::Duration;
use tokio::time::Instant;

/// Reads once, or waits for a result that is newer than the requested index. `read` returns the index
/// of its result and the result. Only changes of `topics` end the wait. A timeout is not an error.
pub(crate) async fn read<T>(
    call: &Call,
    topics: &[Topic],
    read: impl Fn(&Root) -> Result<(u64, T), ApiError>,
) -> Result<(Meta, T), ApiError> {
    call.query.check_stale()?;
    call.query.per_page()?;
    let wait = call.query.wait()?;
    let server = call.server()?;
    let store = server.store();
    let answer = |root: &Root| {
        let (index, value) = read(root)?;
        let meta = Meta { index, known_leader: server.is_leader(), next_token: String::new() };
        Ok((meta, value))
    };
    if wait.index == 0 {
        return answer(&store.snapshot());
    }
    let deadline = Instant::now() + jittered(wait.limit, rand::random());
    // The watches start before the first read, so that no change is missed between them.
    let mut watch = topics.iter().fold(store.watch(), |watch, topic| watch.on(topic.clone())).start();
    let guards = server.admin().acl_enabled();
    let mut rights = guards.then(|| access::watched(server, &call.caller()));
    let mut seen = 0;
    // The caller's rights are checked again before each answer: they may have ended during the wait.
    let judged = |root: &Root| {
        access::check_again(call, server, root)?;
        answer(root)
    };
    loop {
        {
            // The snapshot is dropped before the wait. Otherwise thousands of waiting queries would each keep another
            // state in memory.
            let root = store.snapshot();
            // Nothing was found: clients block from the index that the error carries.
            access::check_again(call, server, &root)?;
            let index = match answer(&root) {
                Ok((meta, value)) if meta.index > wait.index => return Ok((meta, value)),
                Ok((meta, _)) => meta.index,
                Err(ApiError { indexed: Indexed::Meta(meta), .. }) if meta.index <= wait.index => meta.index,
                Err(error) => return Err(error),
            };
            // A decreased index means that the whole state was replaced.
            if root.index() < seen || call.state.stopping.is_cancelled() {
                return answer(&root);
            }
            seen = root.index();
            tracing::trace!(index, wanted = wait.index, "a query waits");
        }
        tokio::select! {
            () = watch.changed() => {}
            () = changed(rights.as_mut()) => rights = Some(access::watched(server, &call.caller())),
            () = call.state.stopping.cancelled() => return judged(&store.snapshot()),
            () = tokio::time::sleep_until(deadline) => return judged(&store.snapshot()),
        }
    }
}

/// Waits until the caller's rights may have changed.
async fn changed(rights: Option<&mut Watched>) {
    match rights {
        Some(rights) => rights.changed().await,
        None => std::future::pending().await,
    }
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
