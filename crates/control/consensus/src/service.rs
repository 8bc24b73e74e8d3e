//! The long-running part: timers, the published leadership, and checks of the disk.

use crate::handle::{Handle, Leadership};
use crate::log::DiskHealth;
use crate::raft::ServerMetrics;
use crate::runtime::{now, sleep_until, timeout};
use crate::start::{Inner, Running, fatal, led_term, why_stopped};
use crate::{Error, PeerAddress, ServerId};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use openraft::async_runtime::WatchReceiver;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time for which the shutdown waits until the log file is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which a leader among several servers checks its disk.
const DISK_INTERVAL: Duration = Duration::from_millis(250);
/// Age of the oldest write at which a leader gives up its leadership.
const MAX_FLUSH: Duration = Duration::from_secs(5);
/// Bytes of unflushed commands at which a leader gives up its leadership.
const MAX_UNFLUSHED: u64 = 64 * 1024 * 1024;

/// The long-running part: publishes leadership and reports the end of the log.
#[must_use = "leadership and failures are reported only while the service runs"]
pub struct Service {
    pub(crate) inner: Arc<Inner>,
    pub(crate) closed: Option<CancellationToken>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Runs until `cancel` or [`Handle::shutdown`], then stops the log and closes its files.
    ///
    /// # Errors
    /// [`Error::Fatal`] immediately if the log cannot continue. The process should then end.
    pub fn run(self, cancel: CancellationToken) -> BoxFuture<'static, Result<(), Error>> {
        async move {
            let result = tokio::select! {
                biased;
                () = cancel.cancelled() => Ok(()),
                () = self.inner.stopped.cancelled() => Ok(()),
                () = self.inner.launched.cancelled() => self.supervise(&cancel).await,
                // Without openraft, no other part notices. No later write succeeds, so the server could
                // never be admitted.
                () = self.inner.writer.failed() => {
                    Err(Error::fatal("writing the replicated log failed before the server had a number"))
                }
            };
            match self.inner.running() {
                Ok(running) => drop(running.raft.shutdown().await),
                Err(_) => self.inner.abandon().await,
            }
            self.inner.leadership.send_replace(Leadership::Unknown);
            result?;
            if let Ok(running) = self.inner.running() {
                match why_stopped(&running.raft) {
                    Error::Stopped => {}
                    error => return Err(error),
                }
            }
            if let Some(closed) = self.closed
                && timeout(CLOSE_TIMEOUT, closed.cancelled()).await.is_err()
            {
                tracing::warn!("the replicated log is still open although it was shut down");
            }
            Ok(())
        }
        .boxed()
    }

    async fn supervise(&self, cancel: &CancellationToken) -> Result<(), Error> {
        let running = self.inner.running()?;
        let mut supervisor =
            Supervisor { inner: &self.inner, running, ready: None, round: None, shortening: None };
        if let Leadership::Leader { term, since } = *self.inner.leadership.borrow() {
            supervisor.ready = Some((term, since));
        }
        supervisor.run(cancel).await
    }
}

/// The state of [`Service::supervise`].
struct Supervisor<'a> {
    inner: &'a Arc<Inner>,
    running: &'a Running,
    /// The term in which this server has taken over as the leader, and the time of the takeover.
    ready: Option<(u64, Instant)>,
    /// The term in which this server takes over, and the round that completes it.
    round: Option<(u64, BoxFuture<'a, Result<u64, Error>>)>,
    /// The work that shortens the log, or `None` without such work.
    shortening: Option<BoxFuture<'a, Result<(), Error>>>,
}

impl Supervisor<'_> {
    async fn run(mut self, cancel: &CancellationToken) -> Result<(), Error> {
        let running = self.running;
        let mut metrics = running.raft.server_metrics();
        let mut look = now();
        let mut hold = running.held_until;
        loop {
            let seen = metrics.borrow_and_update().clone();
            let alone = self.is_alone(&seen);
            let follows = !alone && !seen.state.is_leader();
            let certain = if follows { self.certain_until(&seen) } else { None };
            // Without a leader: to notice the next leader.
            let again = certain.or_else(|| follows.then(|| now() + self.certainty()));
            self.set_timers(alone, certain.is_some(), hold.is_some());
            self.follow(&seen);
            self.publish(&seen);
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(()),
                changed = metrics.changed() => if changed.is_err() { return Ok(()) },
                outcome = next_round(&mut self.round) => self.taken_over(outcome),
                outcome = ended(&mut self.shortening) => {
                    self.shortening = None;
                    if let Err(error) = outcome {
                        tracing::warn!(%error, "the replicated log was not shortened");
                    }
                }
                () = running.snapshot_due.notified(), if self.shortening.is_none() => {
                    self.shortening = Some(Box::pin(shorten(self.inner, running)));
                }
                () = until(hold) => hold = None,
                () = self.inner.contact.moved(), if follows => {}
                () = until(again) => {}
                () = sleep_until(look), if !alone && seen.state.is_leader() => {
                    // A process that was stopped had no time to flush: its writes are checked in the next interval.
                    let stopped = now().saturating_duration_since(look) >= DISK_INTERVAL;
                    look = now() + DISK_INTERVAL;
                    let health = self.inner.writer.health();
                    if !stopped && is_hung(health) {
                        give_up(self.inner, health).await?;
                    }
                }
            }
        }
    }

    /// Returns whether this server is the leader and the only member, and thus needs no timers.
    fn is_alone(&self, seen: &ServerMetrics) -> bool {
        let mut members = seen.membership_config.membership().nodes();
        match (members.next(), members.next()) {
            (None, _) => true,
            (Some((id, _)), None) => *id == self.running.number.0 && seen.state.is_leader(),
            (Some(_), Some(_)) => false,
        }
    }

    /// Returns the time until which this server needs no timer for elections, because of the last message
    /// of its leader. A server that voted for a candidate has no leader, and its wait for the outcome is
    /// shorter than a lease.
    fn certain_until(&self, seen: &ServerMetrics) -> Option<Instant> {
        seen.current_leader?;
        let age = self.inner.contact.age()?;
        self.certainty().checked_sub(age).filter(|left| !left.is_zero()).map(|left| now() + left)
    }

    fn certainty(&self) -> Duration {
        self.inner.config().timing.certainty()
    }

    /// Switches on the timers that this server needs. The ticks of openraft are most of the work of an idle server.
    fn set_timers(&self, alone: bool, certain: bool, held: bool) {
        let timers = self.running.raft.runtime_config();
        timers.tick(!alone && !certain);
        timers.heartbeat(!alone);
        timers.elect(!alone && !held);
    }

    /// Begins the takeover when this server was elected.
    fn follow(&mut self, seen: &ServerMetrics) {
        let led = led_term(seen);
        if self.ready.is_some_and(|(term, _)| Some(term) != led) {
            self.ready = None;
        }
        if self.round.as_ref().is_some_and(|(term, _)| Some(*term) != led) {
            self.round = None;
        }
        if let Some(term) = led
            && self.ready.is_none()
            && self.round.is_none()
        {
            self.round = Some((term, Box::pin(self.running.rounds.join())));
        }
    }

    fn taken_over(&mut self, (term, outcome): (u64, Result<u64, Error>)) {
        self.round = None;
        match outcome {
            Ok(_) => self.ready = Some((term, now())),
            // Either there is no quorum, and the next round retries, or leadership ends.
            Err(error) => tracing::info!(term, %error, "taking over as the leader failed"),
        }
    }

    fn publish(&self, seen: &ServerMetrics) {
        let now = match self.ready {
            Some((term, since)) => Leadership::Leader { term, since },
            None => self.other_leader(seen),
        };
        self.inner.leadership.send_if_modified(|before| {
            let changed = *before != now;
            if changed {
                tracing::info!(leadership = ?now, "leadership changed");
                *before = now;
            }
            changed
        });
    }

    fn other_leader(&self, seen: &ServerMetrics) -> Leadership {
        let leader = seen.current_leader.filter(|id| *id != self.running.number.0);
        let peer = leader.and_then(|id| {
            let peer = seen.membership_config.membership().get_node(&id)?;
            Some(PeerAddress { number: ServerId(id), peer: peer.clone() })
        });
        peer.map_or(Leadership::Unknown, |leader| Leadership::Follower { leader })
    }
}

/// Passes leadership on, because the disk below the log hangs. The process ends if no other server takes over and the disk
/// still hangs.
async fn give_up(inner: &Arc<Inner>, health: DiskHealth) -> Result<(), Error> {
    tracing::error!(?health, "the disk below the replicated log hangs: passing leadership on");
    match (Handle { inner: inner.clone() }).transfer(None).await {
        Ok(_) | Err(Error::NotLeader { .. }) => Ok(()),
        Err(error) if !is_hung(inner.writer.health()) => {
            tracing::warn!(%error, "no other server took over leadership, but the disk works again");
            Ok(())
        }
        Err(error) => {
            tracing::error!(%error, "no other server took over leadership; this server stops");
            let reason = "the disk below the replicated log hangs, and no other server took over leadership";
            Err(Error::fatal(reason))
        }
    }
}

fn is_hung(health: DiskHealth) -> bool {
    health.oldest_write.is_some_and(|age| age >= MAX_FLUSH) || health.unflushed_bytes >= MAX_UNFLUSHED
}

/// Waits for the round, or for ever if it is `None`.
async fn next_round(
    round: &mut Option<(u64, BoxFuture<'_, Result<u64, Error>>)>,
) -> (u64, Result<u64, Error>) {
    match round {
        Some((term, round)) => (*term, round.await),
        None => pending().await,
    }
}

/// Waits for the end of the work, or for ever if it is `None`.
async fn ended(work: &mut Option<BoxFuture<'_, Result<(), Error>>>) -> Result<(), Error> {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

/// Creates a snapshot, and removes the entries before the previous one, which can still be used if the newest is damaged.
async fn shorten(inner: &Arc<Inner>, running: &Running) -> Result<(), Error> {
    let handle = Handle { inner: inner.clone() };
    let previous = handle.metrics().snapshot_index;
    let newest = handle.snapshot_now().await?;
    match previous.filter(|previous| *previous < newest) {
        Some(upto) => running.raft.trigger().purge_log(upto).await.map_err(fatal),
        None => Ok(()),
    }
}

/// Waits until an instant, or for ever if it is `None`.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
