//! Delays of messages that carry only a commit.
//!
//! A leader that has committed an entry sends the commit to each follower. A client that writes values in sequence
//! sends the next write within a fraction of a millisecond, and its entry carries the commit as well. So a message
//! that carries only a commit is delayed for a moment, unless a follower reads above the commit that was sent last.
//!
//! Example: commit 4 was sent, and the message with commit 5 is delayed. A follower requests an index to
//! read at, and receives index 5. The delay ends, also if commit 6 has replaced commit 5 in the message.

use crate::raft::TypeConfig;
use crate::runtime::{now, sleep_until};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use openraft::raft::AppendEntriesRequest;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The delay of a message that carries only a commit.
pub(crate) const COMMIT_DELAY: Duration = Duration::from_millis(1);

type Append = AppendEntriesRequest<TypeConfig>;

/// The commits that followers need without delay.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// The highest index that this server returned to a follower that reads.
    read: AtomicU64,
    changed: Notify,
}

impl Commits {
    /// Lets commits up to this index reach followers without delay, because one of the followers reads
    /// there.
    pub(crate) fn expedite(&self, index: u64) {
        if self.read.fetch_max(index, Ordering::SeqCst) < index {
            self.changed.notify_waiters();
        }
    }

    /// Waits until a follower reads above `sent`.
    async fn until_read_above(&self, sent: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so that no notification is missed.
            changed.as_mut().enable();
            if self.read.load(Ordering::SeqCst) > sent {
                return;
            }
            changed.await;
        }
    }
}

/// Delays requests that carry only a commit, and replaces each of them by a request that follows within the delay.
///
/// The first request of a stream is a probe of the follower's log and has no delay. A later request begins
/// at the same entry as the replaced request and has a commit at least as high, so its response
/// acknowledges both.
pub(crate) fn delay_commits<S>(input: S, commits: Arc<Commits>, delay: Duration) -> BoxStream<'static, Append>
where
    S: Stream<Item = Append> + Send + Unpin + 'static,
{
    let next = move |(mut input, commits, sent): (stream::Fuse<S>, Arc<Commits>, Option<u64>)| async move {
        let mut request = input.next().await?;
        if let Some(sent) = sent {
            let deadline = now() + delay;
            while request.entries.is_empty() {
                tokio::select! {
                    biased;
                    following = input.next() => match following {
                        Some(following) => request = following,
                        None => break,
                    },
                    () = commits.until_read_above(sent) => break,
                    () = sleep_until(deadline) => break,
                }
            }
        }
        let committed = request.leader_commit.map_or(0, |id| id.index);
        Some((request, (input, commits, Some(committed))))
    };
    stream::unfold((input.fuse(), commits, None), next).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::{Command, Entry, LogId, Vote};
    use bytes::Bytes;
    use futures::FutureExt as _;
    use futures::channel::mpsc;
    use openraft::EntryPayload;
    use openraft::entry::RaftEntry as _;
    use openraft::testing::log_id;

    /// A delay that is longer than any test.
    const LONG: Duration = Duration::from_secs(3600);

    fn id(index: u64) -> LogId {
        log_id::<TypeConfig>(1, 1, index)
    }

    /// Returns a request after the entry `prev`, with a number of entries and the index of a commit.
    fn request(prev: u64, entries: u64, committed: u64) -> Append {
        let entry = |index| Entry::new(id(index), EntryPayload::Normal(Command::new(Bytes::new(), None)));
        Append {
            vote: Vote::new(1, 1),
            prev_log_id: Some(id(prev)),
            leader_commit: Some(id(committed)),
            entries: (prev + 1..=prev + entries).map(entry).collect(),
        }
    }

    /// Returns the number of entries in a request and its commit.
    fn shape(request: &Append) -> (usize, u64) {
        (request.entries.len(), request.leader_commit.map_or(0, |id| id.index))
    }

    /// Returns a sender of requests, and the delayed stream after its first request.
    async fn started(
        commits: &Arc<Commits>,
        delay: Duration,
    ) -> (mpsc::UnboundedSender<Append>, BoxStream<'static, Append>) {
        let (sender, input) = mpsc::unbounded();
        let mut output = delay_commits(input, Arc::clone(commits), delay);
        sender.unbounded_send(request(1, 0, 1)).unwrap();
        let first = output.next().now_or_never().flatten();
        assert_eq!(first.as_ref().map(shape), Some((0, 1)), "a probe has no delay");
        (sender, output)
    }

    #[tokio::test]
    async fn entries_carry_the_commit_before_them() {
        let (sender, mut output) = started(&Arc::default(), LONG).await;
        sender.unbounded_send(request(1, 1, 1)).unwrap();
        assert_eq!(output.next().now_or_never().flatten().as_ref().map(shape), Some((1, 1)));
        sender.unbounded_send(request(2, 0, 2)).unwrap();
        assert!(output.next().now_or_never().is_none());
        sender.unbounded_send(request(2, 1, 2)).unwrap();
        assert_eq!(output.next().now_or_never().flatten().as_ref().map(shape), Some((1, 2)));
        sender.unbounded_send(request(3, 0, 3)).unwrap();
        drop(sender);
        assert_eq!(output.next().now_or_never().flatten().as_ref().map(shape), Some((0, 3)));
        assert!(output.next().await.is_none());
    }

    #[tokio::test]
    async fn a_commit_without_entries_follows_after_the_delay() {
        let (sender, mut output) = started(&Arc::default(), COMMIT_DELAY).await;
        sender.unbounded_send(request(1, 0, 2)).unwrap();
        sender.unbounded_send(request(1, 0, 3)).unwrap();
        assert_eq!(output.next().await.as_ref().map(shape), Some((0, 3)));
    }

    #[tokio::test]
    async fn a_read_at_a_follower_ends_the_delay() {
        let commits = Arc::new(Commits::default());
        let (sender, mut output) = started(&commits, LONG).await;
        sender.unbounded_send(request(1, 0, 5)).unwrap();
        let mut next = output.next();
        commits.expedite(1);
        assert!((&mut next).now_or_never().is_none(), "the commit that was sent is enough for the read");
        commits.expedite(5);
        assert_eq!(next.now_or_never().flatten().as_ref().map(shape), Some((0, 5)));
        // A follower reads at an index above the last commit.
        commits.expedite(6);
        sender.unbounded_send(request(1, 0, 6)).unwrap();
        assert_eq!(output.next().now_or_never().flatten().as_ref().map(shape), Some((0, 6)));
    }

    #[tokio::test]
    async fn a_read_ends_the_delay_of_a_commit_that_replaced_its_own() {
        let commits = Arc::new(Commits::default());
        let (sender, mut output) = started(&commits, LONG).await;
        sender.unbounded_send(request(1, 0, 5)).unwrap();
        sender.unbounded_send(request(1, 0, 6)).unwrap();
        commits.expedite(5);
        assert_eq!(output.next().now_or_never().flatten().as_ref().map(shape), Some((0, 6)));
    }
}
