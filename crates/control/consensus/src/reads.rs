//! Proof of leadership for reads: by a recent acknowledgement of a quorum, or by a round of heartbeats.

use crate::network::Network;
use crate::raft::{Core, Instant, TypeConfig};
use crate::runtime::{suspended, timeout};
use crate::start::{Running, fatal, not_leader, why_stopped};
use crate::{Error, Leadership, PeerAddress};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::type_config::TypeConfigExt;
use openraft::{Instant as _, LinearizerOption};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// How long a round waits for a quorum.
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
type Round = Shared<BoxFuture<'static, Result<u64, RoundError>>>;

/// Rounds of questions to other servers. At most one is in progress, and the next one serves all callers that arrived
/// meanwhile.
pub(crate) struct Rounds {
    begin: Arc<Begin>,
    state: Arc<Mutex<RoundState>>,
}

#[derive(Default)]
struct RoundState {
    last: Option<Round>,
    /// Whether the last round has not begun yet, so that new callers may join it.
    open: bool,
}

impl Rounds {
    /// Returns rounds of heartbeats of a leader. They end when everything committed before them is applied, and return an
    /// index that is applied.
    pub(crate) fn quorum(raft: Core) -> Self {
        Self::of(move || {
            let raft = raft.clone();
            async move { quorum_round(&raft).await }.boxed()
        })
    }

    /// Returns questions to the leader for an index that it has applied, and that contains everything acknowledged before.
    pub(crate) fn leader(network: Network, leadership: watch::Receiver<Leadership>) -> Self {
        Self::of(move || {
            let network = network.clone();
            let leader = match &*leadership.borrow() {
                Leadership::Follower { leader } => Some(leader.clone()),
                Leadership::Leader { .. } | Leadership::Unknown => None,
            };
            async move { network.read_index(leader.ok_or(Error::NotLeader { leader: None })?).await }.boxed()
        })
    }

    fn of(begin: impl Fn() -> BoxFuture<'static, Result<u64, Error>> + Send + Sync + 'static) -> Self {
        Self { begin: Arc::new(begin), state: Arc::default() }
    }

    /// Waits for a round that began after the call.
    pub(crate) async fn join(&self) -> Result<u64, Error> {
        let round = {
            let mut state = self.state.lock();
            match &state.last {
                Some(round) if state.open => round.clone(),
                previous => {
                    let begin = Arc::clone(&self.begin);
                    let next = next_round(begin, previous.clone(), Arc::downgrade(&self.state));
                    *state = RoundState { last: Some(next.clone()), open: true };
                    next
                }
            }
        };
        Ok(round.await?)
    }
}

/// Returns a round that begins when it is polled and the previous one has ended.
fn next_round(begin: Arc<Begin>, previous: Option<Round>, state: Weak<Mutex<RoundState>>) -> Round {
    let round = async move {
        if let Some(previous) = previous {
            // Its outcome is for its own callers.
            let _ = previous.await;
        }
        // Callers whose requests have arrived and were not handled yet share this round. An idle server has none, and
        // begins at once.
        tokio::task::yield_now().await;
        if let Some(state) = state.upgrade() {
            state.lock().open = false;
        }
        Ok(begin().await?)
    };
    round.boxed().shared()
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
    /// Returns an index that contains everything that was acknowledged, or shown by a follower, before the call, if the last
    /// acknowledgement by a quorum is at most `age` old.
    ///
    /// The index may not be applied yet. For example, the disk of this server is slow, and two followers commit a write. A
    /// follower answers a read with the write, so a later read at this server must have it too.
    ///
    /// No other server can be the leader then, except after a transfer of leadership, which only this server starts.
    /// `leadership` must be the published one: it names a term only after its first round, so everything that earlier
    /// leaders acknowledged is applied here.
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

/// Detects suspensions of the machine. `CLOCK_MONOTONIC`, which measures the age of acknowledgements, stands still
/// meanwhile, while other servers elect a new leader.
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

    /// Returns when the end of the last suspension was noticed. Acknowledgements of messages sent before then prove
    /// nothing.
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
