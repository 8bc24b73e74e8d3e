//! The interface to one server's part in the log.

use crate::config::Identity;
use crate::log::DiskHealth;
use crate::machine::Meaning;
use crate::raft::{Command, CommittedLeaderId, TypeConfig};
use crate::reads::ROUND_TIMEOUT;
use crate::runtime::{now, sleep_until, timeout};
use crate::start::{Inner, Running, fatal, initialize, not_leader, why_stopped};
use crate::{ClusterId, Error, MembershipError, Peer, PeerAddress, ServerId};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, ForwardReason};
use openraft::impls::ProgressResponder;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Maximum size of a command in bytes.
pub const MAX_COMMAND: usize = 8 * 1024 * 1024;
/// The time for which a leader among several servers waits for the outcome of a command. A leader without
/// connections keeps its commands until another leader reaches it, which may never happen.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which a caller whose command was dropped waits for the reason that the log stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// The time after which the request for a snapshot is repeated.
const TRIGGER_INTERVAL: Duration = Duration::from_secs(1);

/// A command that is durable and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The command's index, as passed to [`StateMachine::apply`](crate::StateMachine::apply).
    pub index: u64,
    /// The result of [`StateMachine::apply`](crate::StateMachine::apply).
    pub response: Vec<u8>,
}

/// The leader, as far as this server has a record of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This server is the leader: a quorum has confirmed it, and everything that earlier leaders acknowledged is
    /// applied here.
    Leader {
        /// The leader's term, which grows with every new leader.
        term: u64,
        /// The time at which this server had taken over.
        since: Instant,
    },
    /// Another server is the leader.
    Follower {
        /// The leader.
        leader: PeerAddress,
    },
    /// There is no leader, or this server has no message of the leader yet.
    Unknown,
}

/// The positions in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// The newest term in the records of this server.
    pub term: u64,
    /// Last entry in the log; 0 while it is empty.
    pub last_log_index: u64,
    /// Term of the last entry in the log; 0 while it is empty.
    pub last_log_term: u64,
    /// Last entry that is committed according to this server; 0 before the first.
    pub committed_index: u64,
    /// Last entry applied; 0 before the first.
    pub applied_index: u64,
    /// Last entry in the newest snapshot; `None` without a snapshot.
    pub snapshot_index: Option<u64>,
    /// Last entry removed from the log; `None` if no entry was removed.
    pub purged_index: Option<u64>,
    /// Whether this server is the leader.
    pub is_leader: bool,
    /// Number of voters, including this server if it votes.
    pub voters: usize,
}

/// The interface to the log. Clones are cheap and share it.
#[derive(Clone)]
pub struct Handle {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("metrics", &self.metrics()).finish_non_exhaustive()
    }
}

/// The identity and the first servers of a cluster.
impl Handle {
    /// Returns the identity of the server in the log.
    pub fn identity(&self) -> Identity {
        self.inner.identity()
    }

    /// Records durably that this server is number `number` of a cluster, and starts its log. A server that
    /// ran alone before clusters had ids gets the id of its cluster by this call, and keeps its number.
    /// Repeated calls change nothing.
    ///
    /// # Errors
    /// [`Error::Admitted`] if the server has another identity; [`Error::Fatal`] if the disk fails.
    pub fn admit(&self, cluster: ClusterId, number: ServerId) -> BoxFuture<'_, Result<(), Error>> {
        async move { self.inner.admit(Identity { cluster: Some(cluster), number: Some(number) }).await }
            .boxed()
    }

    /// Founds a cluster of `members`, which must include this server with the number from its admission.
    /// All members must have promised to join this cluster. Returns once the first entry is durable.
    /// Repeated calls change nothing.
    ///
    /// # Errors
    /// [`Error::NotAdmitted`]; [`Error::Admitted`] if this server belongs to another cluster; [`Error::Membership`] if
    /// this server is not one of the members.
    pub fn found(
        &self,
        cluster: ClusterId,
        members: BTreeMap<ServerId, Peer>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let running = self.inner.running()?;
            let identity = self.identity();
            if identity.cluster != Some(cluster) {
                return Err(Error::Admitted { identity });
            }
            initialize(&running.raft, members.into_iter().map(|(number, peer)| (number.0, peer)).collect())
                .await?;
            // openraft responds before the first entry is on disk. A write that is requested now is flushed
            // after the entry.
            self.inner.writer.save_identity(identity).await
        }
        .boxed()
    }
}

/// Maps an error of a write. `term` is set if the caller works in one term only.
pub(crate) fn map_write_error(error: ClientWriteError<TypeConfig>, term: Option<u64>) -> Error {
    match error {
        // A leader that lost its quorum may still lead in the same term later.
        ClientWriteError::ForwardToLeader(forward) => match (term, forward.reason) {
            (_, ForwardReason::LeaseExpired) => Error::NotLeader { leader: None },
            (Some(term), _) => Error::TermEnded { term },
            // The other server does not lead yet.
            (None, ForwardReason::LeadershipTransfer) => Error::NotLeader { leader: None },
            (None, ForwardReason::NotLeader) => not_leader(forward),
        },
        ClientWriteError::LogEntryDiscarded(_) => Error::OutcomeUnknown,
        ClientWriteError::PreconditionFailed(_) => MembershipError::Changed.into(),
        ClientWriteError::ChangeMembershipError(error) => match error {
            ChangeMembershipError::InProgress(_) => MembershipError::InProgress.into(),
            ChangeMembershipError::UncommittedLeaderLog(_) => MembershipError::LeaderTooNew.into(),
            error => MembershipError::Refused(error.to_string()).into(),
        },
    }
}

/// Proposals of commands, and their outcomes.
impl Handle {
    /// Appends `command` and returns once it is durable and applied. If the future is dropped, or the error is
    /// [`Error::OutcomeUnknown`], [`Error::Stopped`] or [`Error::Fatal`], the command may still be in the log.
    ///
    /// # Errors
    /// [`Error::NotLeader`] and [`Error::TooLarge`] (nothing was appended); [`Error::OutcomeUnknown`],
    /// [`Error::Stopped`], [`Error::Fatal`].
    pub fn propose(&self, command: Vec<u8>) -> BoxFuture<'_, Result<Applied, Error>> {
        async move { self.write(Command::new(Bytes::from(command), None), None).await }.boxed()
    }

    /// Appends `command` as [`Self::propose`] does, and passes the state machine the decoded form of the
    /// bytes.
    ///
    /// # Errors
    /// As [`Self::propose`].
    pub fn propose_known(&self, command: Vec<u8>, meaning: Meaning) -> BoxFuture<'_, Result<Applied, Error>> {
        async move { self.write(Command::new(Bytes::from(command), Some(meaning)), None).await }.boxed()
    }

    /// Appends a command if this server still leads in `term`, and returns as [`Self::propose`] does.
    ///
    /// # Errors
    /// [`Error::TermEnded`] if this server does not lead in `term` (nothing was appended), and as
    /// [`Self::propose`].
    pub fn propose_in(
        &self,
        term: u64,
        command: Vec<u8>,
        meaning: Option<Meaning>,
    ) -> BoxFuture<'_, Result<Applied, Error>> {
        async move { self.write(Command::new(Bytes::from(command), meaning), Some(term)).await }.boxed()
    }

    /// Waits until each entry that this server has appended in `term` has a final outcome: the entry is
    /// applied, or certainly not in the log. A proposal without an outcome may otherwise take effect at any
    /// later time.
    ///
    /// # Errors
    /// [`Error::TermEnded`]: the next leader may still commit the entries. [`Error::Stopped`], [`Error::Fatal`].
    pub fn settle(&self, term: u64) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            let running = self.inner.running()?;
            // Responses have the order of the proposals.
            let last = running.raft.with_raft_state(|state| state.log_ids.last().map(|last| last.index));
            let last = last.await.map_err(fatal)?.unwrap_or(0);
            running.applied_in(term, last).await
        }
        .boxed()
    }

    async fn write(&self, command: Command, term: Option<u64>) -> Result<Applied, Error> {
        let bytes = command.bytes.len();
        if bytes > MAX_COMMAND {
            return Err(Error::TooLarge { bytes });
        }
        let running = self.inner.running()?;
        let (responder, outcome) = ProgressResponder::complete_only();
        let mut request = running.raft.write(command).responder(responder);
        if let Some(term) = term {
            request = request.with_leader(CommittedLeaderId::new(term));
        }
        request.await.map_err(fatal)?;
        let outcome = if running.is_only_voter() {
            outcome.await
        } else {
            let limited = timeout(OUTCOME_TIMEOUT, outcome).await;
            limited.map_err(|_| Error::OutcomeUnknown)?
        };
        match outcome {
            Ok(Ok(done)) => Ok(Applied { index: done.log_id.index, response: done.data.0 }),
            Ok(Err(error)) => Err(map_write_error(error, term)),
            Err(_) => Err(running.stop_cause().await),
        }
    }
}

/// Reads, and the state of the log.
impl Handle {
    /// Proves that this server is the leader, and that its state contains everything acknowledged before the call.
    /// Returns an index that is applied. The caller must take the state after the call.
    ///
    /// An acknowledgement by a quorum suffices if it is at most `max_age` old, and never older than half a lease, which
    /// is also the default. Otherwise the call waits for a round of heartbeats, as [`Self::read_quorum`] does.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::NoQuorum`], [`Error::Stopped`], [`Error::Fatal`].
    pub fn read(&self, max_age: Option<Duration>) -> BoxFuture<'_, Result<u64, Error>> {
        async move {
            let running = self.inner.running()?;
            match self.leased(running, max_age) {
                Some(index) => running.until_applied(index, ROUND_TIMEOUT).await,
                None => running.rounds.join().await,
            }
        }
        .boxed()
    }

    /// Returns an index for a read at a follower. The index contains everything that was acknowledged, or
    /// shown by a follower, before the call. This server need not have applied the index.
    pub(crate) async fn read_index(&self) -> Result<u64, Error> {
        let running = self.inner.running()?;
        let index = match self.leased(running, None) {
            Some(index) => index,
            None => running.rounds.join().await?,
        };
        running.commits.expedite(index);
        Ok(index)
    }

    fn leased(&self, running: &Running, max_age: Option<Duration>) -> Option<u64> {
        let half = self.inner.config().timing.read_lease();
        let age = max_age.map_or(half, |age| age.min(half));
        running.leased(&self.inner.leadership.borrow(), age)
    }

    /// Proves leadership as [`Self::read`] does, by a round of heartbeats that began after the call.
    /// Concurrent callers share rounds.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_quorum(&self) -> BoxFuture<'_, Result<u64, Error>> {
        async move { self.inner.running()?.rounds.join().await }.boxed()
    }

    /// Waits until the state of this follower contains everything acknowledged before the call, and returns
    /// an index that is applied. The caller must take the state after the call. Concurrent callers share
    /// requests to the leader.
    ///
    /// # Errors
    /// [`Error::NotLeader`] if the leader does not respond, or this server is the leader;
    /// [`Error::Lagging`] if the state is not as new after `limit`; [`Error::Stopped`], [`Error::Fatal`].
    pub fn catch_up(&self, limit: Duration) -> BoxFuture<'_, Result<u64, Error>> {
        async move {
            let running = self.inner.running()?;
            let index = running.questions.join().await?;
            running.until_applied(index, limit).await
        }
        .boxed()
    }

    /// Returns whether this server is the leader now, according to its own records.
    pub fn is_leader(&self) -> bool {
        matches!(*self.inner.leadership.borrow(), Leadership::Leader { .. })
    }

    /// Returns a receiver of the leader and its changes. [`Service::run`](crate::Service::run) updates the
    /// value.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.inner.leadership.subscribe()
    }

    /// Returns the time since the last message of a leader; `None` before the first.
    pub fn last_contact(&self) -> Option<Duration> {
        self.inner.contact.age()
    }

    /// Returns the time since the last evidence of a leader; `None` before the first. The evidence is, at the leader,
    /// an acknowledgement by a quorum, and at other servers a message of a leader.
    pub fn leader_contact(&self) -> Option<Duration> {
        if !self.is_leader() {
            return self.last_contact();
        }
        let running = self.inner.running().ok()?;
        if running.is_only_voter() {
            return Some(Duration::ZERO);
        }
        let metrics = running.raft.metrics();
        let acked = metrics.borrow_watched().last_quorum_acked;
        acked.map(|acked| acked.into_inner().elapsed())
    }

    /// Returns the time since the start of this server.
    pub fn since_start(&self) -> Duration {
        self.inner.contact.since_start()
    }

    /// Returns the longest time between two messages of an idle leader.
    pub fn longest_silence(&self) -> Duration {
        self.inner.config().timing.longest_silence()
    }

    /// Returns whether this server has a record of a leader and had recent evidence of the leader. A leader
    /// that lost its quorum keeps its term until another server is elected, and a server without
    /// connections keeps the name of its last leader. Neither of them has evidence of a leader.
    pub fn knows_leader(&self) -> bool {
        if *self.inner.leadership.borrow() == Leadership::Unknown {
            return false;
        }
        let limit = self.inner.config().timing.evidence();
        self.leader_contact().is_some_and(|age| age < limit)
    }

    /// Returns the age and the size of the writes that the disk below the log has not flushed.
    pub fn log_disk_health(&self) -> DiskHealth {
        self.inner.writer.health()
    }

    /// Waits until the state of this server is at least as new as before its last restart. Without a
    /// leader, the call waits until there is a leader.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::Fatal`].
    pub fn recovered(&self) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            tokio::select! {
                biased;
                () = self.inner.launched.cancelled() => {}
                () = self.inner.stopped.cancelled() => return Err(Error::Stopped),
            }
            let running = self.inner.running()?;
            let mut metrics = running.raft.metrics();
            loop {
                let recovered = {
                    let now = metrics.borrow_and_update();
                    let committed = now.cluster_committed.map(|id| id.index);
                    // The end of the old log may have been replaced by a shorter one.
                    let target = running.tail.min(now.last_log_index);
                    committed.is_some()
                        && committed >= target
                        && now.last_applied.map(|id| id.index) >= target
                };
                if recovered {
                    return Ok(());
                }
                if metrics.changed().await.is_err() {
                    return Err(why_stopped(&running.raft));
                }
            }
        }
        .boxed()
    }

    /// Returns the positions in the log. They come from a copy that is updated later: right after
    /// [`Self::propose`] returned, the copy may lack that command for a moment.
    pub fn metrics(&self) -> Metrics {
        let Ok(running) = self.inner.running() else { return Metrics::default() };
        let last_log_term = running.raft.data_metrics().borrow_watched().last_log;
        let metrics = running.raft.metrics();
        let metrics = metrics.borrow_watched();
        Metrics {
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            last_log_term: last_log_term.map_or(0, |id| id.committed_leader_id().term),
            committed_index: metrics.local_committed.map_or(0, |id| id.index),
            applied_index: running.applied.load(Ordering::SeqCst),
            snapshot_index: metrics.snapshot.map(|id| id.index),
            purged_index: metrics.purged.map(|id| id.index),
            is_leader: metrics.state.is_leader(),
            voters: metrics.membership_config.membership().voter_ids().count(),
        }
    }

    /// Creates a snapshot, unless one exists, and waits for it. On the leader the snapshot contains everything
    /// acknowledged before the call, on other servers everything applied. Returns the last index that the newest
    /// snapshot covers.
    ///
    /// # Errors
    /// [`Error::NotAdmitted`], [`Error::Stopped`], [`Error::Fatal`].
    pub fn snapshot_now(&self) -> BoxFuture<'_, Result<u64, Error>> {
        async move {
            let running = self.inner.running()?;
            let raft = &running.raft;
            let mut metrics = raft.data_metrics();
            let desired = match running.rounds.join().await {
                Ok(index) => Some(index),
                Err(Error::NotLeader { .. } | Error::NoQuorum) => {
                    Some(running.applied.load(Ordering::SeqCst)).filter(|index| *index > 0)
                }
                Err(error) => return Err(error),
            };
            loop {
                let reached = metrics.borrow_and_update().snapshot.map(|id| id.index);
                if reached >= desired {
                    return Ok(reached.unwrap_or(0));
                }
                // The trigger is ignored while a snapshot is being built, and that snapshot may lack the
                // requested entries. So trigger again after each snapshot.
                running.snapshot_requested.store(true, Ordering::SeqCst);
                raft.trigger().snapshot().await.map_err(fatal)?;
                // Nor does the trigger take effect while openraft processes the deferral of a snapshot.
                let again = now() + TRIGGER_INTERVAL;
                loop {
                    tokio::select! {
                        biased;
                        changed = metrics.changed() => if changed.is_err() { return Err(why_stopped(raft)) },
                        () = sleep_until(again) => break,
                    }
                    if metrics.borrow_watched().snapshot.map(|id| id.index) != reached {
                        break;
                    }
                }
            }
        }
        .boxed()
    }

    /// Stops the log: no further command is accepted, and [`Service::run`](crate::Service::run) returns once the files
    /// are closed.
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        async move {
            match self.inner.running() {
                // An error means that the core has panicked, which the service reports.
                Ok(running) => drop(running.raft.shutdown().await),
                Err(_) => self.inner.abandon().await,
            }
        }
        .boxed()
    }
}

impl Running {
    /// Returns the reason that a response never arrives: the log has stopped, or stops at this moment.
    async fn stop_cause(&self) -> Error {
        let mut metrics = self.raft.metrics();
        let stopped = async {
            while metrics.borrow_and_update().running_state.is_ok() && metrics.changed().await.is_ok() {}
        };
        let _ = timeout(STOP_TIMEOUT, stopped).await;
        why_stopped(&self.raft)
    }

    fn is_only_voter(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let mut voters = metrics.membership_config.membership().voter_ids();
        voters.next() == Some(self.number.0) && voters.next().is_none()
    }
}
