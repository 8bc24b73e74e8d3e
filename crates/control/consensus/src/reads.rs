//! Proof of leadership for reads: by a recent acknowledgement of a quorum, or by a round of heartbeats.

use crate::network::Network;
use crate::raft::{Core, Instant, TypeConfig};
use crate::runtime::{suspended, timeout};
use crate::start::{Running, fatal, not_leader, why_stopped};
use crate::{Error, Leadership, PeerAddress};
use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::type_config::TypeConfigExt;
use openraft::{Instant as _, LinearizerOption};
use parking_lot::Mutex;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The time for which a round waits for a quorum.
pub(crate) const ROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// Growth of the difference between `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC` that shows that the machine was suspended.
const SUSPENSION: Duration = Duration::from_millis(50);

/// The outcome of a round, for all callers that share it.
#[derive(Clone, Debug)]
enum RoundError {
    NotLeader(Option<PeerAddress>),
    NoQuorum,
    Stopped,
    Fatal(Arc<Error>),
}

impl From<Error> for RoundError {
    fn from(error: Error) -> Self {
        match error {
            Error::NotLeader { leader } => Self::NotLeader(leader),
            Error::NoQuorum => Self::NoQuorum,
            Error::Stopped => Self::Stopped,
            error => Self::Fatal(Arc::new(error)),
        }
    }
}

impl From<RoundError> for Error {
    fn from(error: RoundError) -> Self {
        match error {
            RoundError::NotLeader(leader) => Self::NotLeader { leader },
            RoundError::NoQuorum => Self::NoQuorum,
            RoundError::Stopped => Self::Stopped,
            RoundError::Fatal(error) => Self::fatal(error),
        }
    }
}

type Begin = dyn Fn() -> BoxFuture<'static, Result<u64, Error>> + Send + Sync;
type Caller = oneshot::Sender<Result<u64, RoundError>>;

/// Rounds of requests to other servers. At most one is in progress, and the next round serves all callers
/// that arrived meanwhile.
///
/// A separate task drives the rounds, so that a caller wakes only once for each round.
pub(crate) struct Rounds {
    begin: Arc<Begin>,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    /// The callers of the next round.
    callers: Vec<Caller>,
    /// Whether a task drives rounds until there are no callers.
    driven: bool,
    /// Whether several callers shared the last round.
    was_shared: bool,
}

impl Rounds {
    /// Returns rounds of heartbeats of a leader. A round ends when everything committed before it is
    /// applied, and returns an index that is applied.
    pub(crate) fn quorum(raft: Core) -> Self {
        Self::new(move || {
            let raft = raft.clone();
            async move { quorum_round(&raft).await }.boxed()
        })
    }

    /// Returns rounds of requests to the leader. A round returns an index that the leader has applied, and
    /// that contains everything acknowledged before the round.
    pub(crate) fn leader(network: Network, leadership: watch::Receiver<Leadership>) -> Self {
        Self::new(move || {
            let network = network.clone();
            let leader = match &*leadership.borrow() {
                Leadership::Follower { leader } => Some(leader.clone()),
                Leadership::Leader { .. } | Leadership::Unknown => None,
            };
            async move { network.read_index(leader.ok_or(Error::NotLeader { leader: None })?).await }.boxed()
        })
    }

    fn new(begin: impl Fn() -> BoxFuture<'static, Result<u64, Error>> + Send + Sync + 'static) -> Self {
        Self { begin: Arc::new(begin), queue: Arc::default() }
    }

    /// Waits for a round that began after the call.
    pub(crate) async fn join(&self) -> Result<u64, Error> {
        let (caller, outcome) = oneshot::channel();
        let driven = {
            let mut queue = self.queue.lock();
            queue.callers.push(caller);
            mem::replace(&mut queue.driven, true)
        };
        if !driven {
            let driver = Driver { queue: Arc::clone(&self.queue), has_ended: false };
            drop(TypeConfig::spawn(driver.drive(Arc::clone(&self.begin))));
        }
        // The task that drives the rounds ends early only with its runtime.
        Ok(outcome.await.unwrap_or(Err(RoundError::Stopped))?)
    }
}

/// The task that drives rounds. If it ends early, the callers of the next round fail, and the next caller
/// starts another task.
struct Driver {
    queue: Arc<Mutex<Queue>>,
    has_ended: bool,
}

impl Driver {
    async fn drive(mut self, begin: Arc<Begin>) {
        loop {
            // Callers whose requests have arrived and were not handled yet share this round. A single
            // caller does not wait for others, because a yield of an idle server wakes another thread.
            if self.queue.lock().was_shared {
                tokio::task::yield_now().await;
            }
            let Some(callers) = self.next() else { return };
            let outcome = begin().await.map_err(RoundError::from);
            for caller in callers {
                // A caller that no longer waits needs no outcome.
                let _ = caller.send(outcome.clone());
            }
        }
    }

    /// Returns the callers of the next round. Without callers, the task must end.
    fn next(&mut self) -> Option<Vec<Caller>> {
        let mut queue = self.queue.lock();
        queue.callers.retain(|caller| !caller.is_closed());
        let callers = mem::take(&mut queue.callers);
        self.has_ended = callers.is_empty();
        queue.driven = !self.has_ended;
        if !self.has_ended {
            queue.was_shared = callers.len() > 1;
        }
        queue.driven.then_some(callers)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // After a regular end, another task may drive the rounds already.
        if !self.has_ended {
            *self.queue.lock() = Queue::default();
        }
    }
}

/// Runs one round.
pub(crate) async fn quorum_round(raft: &Core) -> Result<u64, Error> {
    let option = LinearizerOption::new(Some(Duration::ZERO), true).with_wait_timeout(ROUND_TIMEOUT);
    match raft.ensure_linearizable(option).await {
        Ok(read) => Ok(read.index()),
        Err(RaftError::Fatal(error)) => Err(fatal(error)),
        Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => Err(not_leader(forward)),
        Err(RaftError::APIError(_)) => Err(Error::NoQuorum),
    }
}

impl Running {
    /// Returns an index that contains everything that was acknowledged, or shown by a follower, before the call.
    /// Returns `None` unless this server leads and its last acknowledgement by a quorum is younger than `age`.
    ///
    /// The index may not be applied yet. For example, the disk of this server is slow, and two followers
    /// commit a write. A follower returns the write to a reader, so a later read at this server must have
    /// the write too.
    ///
    /// No other server can be the leader meanwhile, except after a transfer of leadership, which only this
    /// server starts. `leadership` must be the published value: it names a term only after the first round
    /// of the term, so everything that earlier leaders acknowledged is applied here.
    pub(crate) fn leased(&self, leadership: &Leadership, age: Duration) -> Option<u64> {
        let Leadership::Leader { term, .. } = *leadership else { return None };
        let not_before = self.suspensions.last();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let leads = metrics.state.is_leader() && metrics.current_term == term;
        if !leads || self.given_up.load(Ordering::SeqCst) >= term {
            return None;
        }
        let voters: Vec<u64> = metrics.membership_config.membership().voter_ids().collect();
        let fresh = metrics.last_quorum_acked.is_some_and(|acked| {
            let acked = acked.into_inner();
            acked.elapsed() < age && not_before.is_none_or(|not_before| acked > not_before)
        });
        let proved = voters == [self.number.0] || fresh && voters.contains(&self.number.0);
        proved.then(|| self.applied.load(Ordering::SeqCst).max(self.shown.load(Ordering::SeqCst)))
    }

    /// Waits until the entry of an index is applied while this server leads in `term`.
    pub(crate) async fn applied_in(&self, term: u64, index: u64) -> Result<(), Error> {
        let mut metrics = self.raft.metrics();
        loop {
            let leads = {
                let metrics = metrics.borrow_and_update();
                metrics.state.is_leader() && metrics.current_term == term
            };
            if !leads {
                return Err(Error::TermEnded { term });
            }
            if self.applied.load(Ordering::SeqCst) >= index {
                return Ok(());
            }
            if metrics.changed().await.is_err() {
                return Err(why_stopped(&self.raft));
            }
        }
    }

    /// Waits until the entry of an index is applied.
    pub(crate) async fn until_applied(&self, index: u64, limit: Duration) -> Result<u64, Error> {
        if self.applied.load(Ordering::SeqCst) >= index {
            return Ok(index);
        }
        let mut metrics = self.raft.metrics();
        let applied = async {
            loop {
                metrics.borrow_and_update();
                if self.applied.load(Ordering::SeqCst) >= index {
                    return Ok(index);
                }
                if metrics.changed().await.is_err() {
                    return Err(why_stopped(&self.raft));
                }
            }
        };
        timeout(limit, applied).await.map_err(|_| Error::Lagging)?
    }
}

/// The detection of suspensions of the machine. `CLOCK_MONOTONIC`, which measures the age of
/// acknowledgements, does not advance meanwhile, while other servers elect a new leader.
#[derive(Debug)]
pub(crate) struct Suspensions(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    offset: Duration,
    last: Option<Instant>,
}

impl Suspensions {
    /// Begins to detect suspensions. `offset` is the current difference between both clocks: a suspension before the
    /// first read counts too.
    pub(crate) fn new(offset: Duration) -> Self {
        Self(Mutex::new(Seen { offset, last: None }))
    }

    /// Returns the time at which the end of the last suspension was noticed. Acknowledgements of messages
    /// sent before prove nothing.
    fn last(&self) -> Option<Instant> {
        self.notice(suspended())
    }

    fn notice(&self, offset: Duration) -> Option<Instant> {
        let mut seen = self.0.lock();
        if offset >= seen.offset + SUSPENSION {
            *seen = Seen { offset, last: Some(TypeConfig::now()) };
        }
        seen.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use tokio::sync::Semaphore;

    /// Returns rounds that each wait for a permit, with the number of rounds that began.
    fn rounds() -> (Arc<Rounds>, Arc<Semaphore>, Arc<AtomicU64>) {
        let (permits, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
        let (gate, count) = (Arc::clone(&permits), Arc::clone(&begun));
        let rounds = Rounds::new(move || {
            let (gate, number) = (Arc::clone(&gate), count.fetch_add(1, Ordering::SeqCst) + 1);
            async move {
                gate.acquire().await.expect("the semaphore is open").forget();
                Ok(number)
            }
            .boxed()
        });
        (Arc::new(rounds), permits, begun)
    }

    #[tokio::test]
    async fn callers_share_the_round_that_begins_after_their_calls() {
        let (rounds, permits, begun) = rounds();
        let mut first = pin!(rounds.join());
        assert!(futures::poll!(&mut first).is_pending());
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let mut dropped = Box::pin(rounds.join());
        let later: Vec<_> = (0..5).map(|_| Box::pin(rounds.join())).collect();
        let mut later = futures::future::join_all(later);
        assert!(futures::poll!(&mut dropped).is_pending() && futures::poll!(&mut later).is_pending());
        drop(dropped);
        permits.add_permits(1);
        assert!(matches!(first.await, Ok(1)));
        permits.add_permits(1);
        assert!(later.await.into_iter().all(|outcome| matches!(outcome, Ok(2))));
        permits.add_permits(1);
        assert!(matches!(rounds.join().await, Ok(3)), "rounds go on after a pause");
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_round_that_panics_ends_no_later_round() {
        let first = AtomicBool::new(true);
        let rounds = Rounds::new(move || {
            assert!(!first.swap(false, Ordering::SeqCst), "this panic belongs to the test");
            async { Ok(7) }.boxed()
        });
        assert!(matches!(rounds.join().await, Err(Error::Stopped)));
        assert!(matches!(rounds.join().await, Ok(7)));
    }

    #[tokio::test]
    async fn a_suspension_is_noticed_once() {
        let boot = Duration::from_secs(7);
        // The first read may come after the first suspension.
        assert!(Suspensions::new(boot).notice(boot + SUSPENSION).is_some());
        let suspensions = Suspensions::new(boot);
        assert_eq!(suspensions.notice(boot), None);
        assert_eq!(suspensions.notice(boot + SUSPENSION / 2), None);
        let noticed = suspensions.notice(boot + SUSPENSION);
        assert!(noticed.is_some());
        assert_eq!(suspensions.notice(boot + SUSPENSION), noticed);
    }
}
