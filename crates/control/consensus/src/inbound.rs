//! Messages from other servers.

use crate::handle::Handle;
use crate::network::{MessageKind, SnapshotHead};
use crate::raft::{RaftSnapshot, TypeConfig};
use crate::runtime::now;
use crate::start::{Running, fatal};
use crate::wire::{self, Header};
use crate::{Error, Identity};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use openraft::errors::RaftError;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest};
use parking_lot::Mutex;
use std::io;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The shortest time between two announcements of contact. Heartbeats are further apart; under load, messages are not.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);

/// The time of the last message from the leader.
#[derive(Debug)]
pub(crate) struct Contact {
    began: Instant,
    seen: Mutex<Seen>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    last: Option<Instant>,
    announced: Option<Instant>,
}

impl Default for Contact {
    fn default() -> Self {
        Self { began: now(), seen: Mutex::default(), moved: Notify::new() }
    }
}

impl Contact {
    fn note(&self) {
        let now = now();
        let mut seen = self.seen.lock();
        seen.last = Some(now);
        let due = |at| now.saturating_duration_since(at) >= ANNOUNCE_INTERVAL;
        if seen.announced.is_none_or(due) {
            seen.announced = Some(now);
            self.moved.notify_one();
        }
    }

    /// Waits for contact. The supervisor then replaces its timer, so that an idle follower wakes up for
    /// heartbeats only, and not also to find that a heartbeat has arrived.
    pub(crate) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Returns the time since the start of this server.
    pub(crate) fn since_start(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    /// Returns the time since the last message of a leader.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.seen.lock().last.map(|at| now().saturating_duration_since(at))
    }
}

fn failed(error: RaftError<TypeConfig>) -> Error {
    match error {
        RaftError::Fatal(error) => fatal(error),
        RaftError::APIError(never) => Error::fatal(never),
    }
}

impl Handle {
    /// Processes a message of another server and returns the response.
    ///
    /// # Errors
    /// [`Error::NotAdmitted`], [`Error::WrongCluster`], [`Error::WrongServer`] and [`Error::Message`] if the message is
    /// not for this server; [`Error::NoVoteYet`]; [`Error::Stopped`], [`Error::Fatal`].
    pub fn receive(&self, kind: MessageKind, message: Bytes) -> BoxFuture<'_, Result<Bytes, Error>> {
        async move {
            let (running, body) = self.open(message)?;
            let raft = &running.raft;
            match kind {
                MessageKind::Append => {
                    let request: AppendEntriesRequest<TypeConfig> = wire::decode(&body)?;
                    let response = raft.append_entries(request).await.map_err(failed)?;
                    if !matches!(response, AppendEntriesResponse::HigherVote(_)) {
                        self.inner.contact.note();
                    }
                    wire::response(&response)
                }
                MessageKind::Vote => {
                    let request: VoteRequest<TypeConfig> = wire::decode(&body)?;
                    // The leader itself requested this election, so it relies on no lease.
                    if !request.leadership_transfer {
                        running.ensure_votes()?;
                    }
                    wire::response(&raft.vote(request).await.map_err(failed)?)
                }
                MessageKind::PreVote => {
                    running.ensure_votes()?;
                    let request: VoteRequest<TypeConfig> = wire::decode(&body)?;
                    wire::response(&raft.pre_vote(request).await.map_err(failed)?)
                }
                MessageKind::ReadIndex => wire::response(&self.read_index().await?),
                MessageKind::TransferLeader => {
                    let request: TransferLeaderRequest<TypeConfig> = wire::decode(&body)?;
                    wire::response(&raft.handle_transfer_leader(request).await.map_err(fatal)?)
                }
            }
        }
        .boxed()
    }

    /// Receives and installs a snapshot of the leader, and returns the response.
    ///
    /// # Errors
    /// As [`Self::receive`]; [`Error::SnapshotNotReceived`].
    pub fn receive_snapshot(
        &self,
        head: Bytes,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'_, Result<Bytes, Error>> {
        async move {
            let (running, head) = self.open(head)?;
            let SnapshotHead { vote, meta, length } = wire::decode(&head)?;
            let contact = || self.inner.contact.note();
            let received = running.inbox.receive(length, chunks, contact).await;
            let snapshot = RaftSnapshot { meta, snapshot: received.map_err(Error::SnapshotNotReceived)? };
            let response = running.raft.install_full_snapshot(vote, snapshot).await.map_err(fatal)?;
            wire::response(&response)
        }
        .boxed()
    }

    /// Checks that a message is from this cluster and for this server.
    fn open(&self, message: Bytes) -> Result<(&Running, Bytes), Error> {
        let (Header { cluster, to, .. }, body) = wire::split(message)?;
        let running = self.inner.running()?;
        let Identity { cluster: Some(own), .. } = self.inner.identity() else {
            return Err(Error::NotAdmitted);
        };
        if cluster != own {
            return Err(Error::WrongCluster { found: cluster, own });
        }
        if to != running.number {
            return Err(Error::WrongServer { to, own: running.number });
        }
        Ok((running, body))
    }
}

impl Running {
    /// Refuses to vote for a while after the start, see `Timing::hold_after_start`.
    fn ensure_votes(&self) -> Result<(), Error> {
        match self.held_until {
            Some(until) if now() < until => Err(Error::NoVoteYet),
            _ => Ok(()),
        }
    }
}
