//! The connections to other servers: the caller's transport, and its adapter to openraft.

use crate::commits::{COMMIT_DELAY, Commits, delay_commits};
use crate::config::{Identity, Peer, PeerAddress};
use crate::raft::{RaftSnapshot, SnapshotMeta, TypeConfig, Vote};
use crate::snapshot::SnapshotData;
use crate::wire::{self, Header};
use crate::{Error, ServerId};
use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time limit for entries to be on the disk of another server. A retry is cheap, because the receiver then has them.
const APPEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for the leader's response to a follower that reads. A leader needs one round of heartbeats
/// for it.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The kinds of messages between servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// Entries of the log, or a heartbeat.
    Append,
    /// A candidate's request for a vote.
    Vote,
    /// A server's question whether it would get a vote.
    PreVote,
    /// The leader's message that gives up leadership to a named server.
    TransferLeader,
    /// A follower's request to its leader for an index to read at.
    ReadIndex,
}

/// The part that sends messages to other servers.
///
/// Messages are opaque, and at most a few MiB. The receiver passes them to [`Handle::receive`](crate::Handle::receive)
/// and returns its result. An error means that the message may not have arrived.
pub trait PeerTransport: Send + Sync + 'static {
    /// Sends a message and returns the response.
    fn call(
        &self,
        to: &PeerAddress,
        kind: MessageKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>>;

    /// Sends a snapshot and returns the response. The receiver passes both parts to
    /// [`Handle::receive_snapshot`](crate::Handle::receive_snapshot). There is no time limit as long as
    /// chunks arrive; the transport ends a transfer that makes no progress for 30 seconds.
    fn snapshot(
        &self,
        to: &PeerAddress,
        head: Bytes,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, io::Result<Bytes>>;
}

/// The transport of a server that runs alone.
#[derive(Clone, Copy, Debug)]
pub struct NoPeers;

impl NoPeers {
    fn unreachable(to: &PeerAddress) -> BoxFuture<'static, io::Result<Bytes>> {
        let text = format!("server {to} cannot be reached from a server that runs alone");
        Box::pin(std::future::ready(Err(io::Error::new(io::ErrorKind::Unsupported, text))))
    }
}

impl PeerTransport for NoPeers {
    fn call(
        &self,
        to: &PeerAddress,
        _: MessageKind,
        _: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        Self::unreachable(to)
    }

    fn snapshot(
        &self,
        to: &PeerAddress,
        _: Bytes,
        _: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        Self::unreachable(to)
    }
}

/// The first part of a snapshot transfer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotHead {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    /// Number of bytes that follow in chunks.
    pub(crate) length: u64,
}

/// The factory of a [`Link`] per server.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) transport: Arc<dyn PeerTransport>,
    pub(crate) identity: Arc<RwLock<Identity>>,
    /// The highest index that was sent to a follower as committed. A follower may apply and show the entry
    /// before this server does.
    pub(crate) shown: Arc<AtomicU64>,
    /// The commits that followers need without delay.
    pub(crate) commits: Arc<Commits>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// The connection to one server through the transport.
#[derive(Debug)]
pub(crate) struct Link {
    network: Network,
    to: PeerAddress,
}

impl Network {
    pub(crate) fn new(transport: Arc<dyn PeerTransport>, identity: Arc<RwLock<Identity>>) -> Self {
        Self { transport, identity, shown: Arc::default(), commits: Arc::default() }
    }

    fn header(&self, to: ServerId) -> Result<Header, Error> {
        let Identity { cluster: Some(cluster), number: Some(from) } = *self.identity.read() else {
            return Err(Error::NotAdmitted);
        };
        Ok(Header { cluster, from, to })
    }
}

impl Network {
    /// Requests from the leader an index that the leader has applied, and that contains everything
    /// acknowledged before the call.
    pub(crate) async fn read_index(&self, leader: PeerAddress) -> Result<u64, Error> {
        let link = Link { network: self.clone(), to: leader };
        let asked = link.ask(MessageKind::ReadIndex, &(), READ_TIMEOUT).await;
        asked.map_err(|_| Error::NotLeader { leader: None })
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &Peer) -> Link {
        let to = PeerAddress { number: ServerId(target), peer: node.clone() };
        Link { network: self.clone(), to }
    }
}

fn unreachable(error: impl Into<crate::BoxError>) -> Unreachable<TypeConfig> {
    Unreachable::new(&io::Error::other(error))
}

impl Link {
    /// Sends a message and decodes the response. Every error counts as "not reached": in particular, a
    /// server that does not respond to a pre-vote grants no vote.
    async fn ask<T: DeserializeOwned>(
        &self,
        kind: MessageKind,
        request: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, RPCError<TypeConfig>> {
        let header = self.network.header(self.to.number).map_err(unreachable)?;
        let body = wire::message(header, request).map_err(unreachable)?;
        let answer = self.network.transport.call(&self.to, kind, body, timeout).await;
        let answer = answer.map_err(|error| Unreachable::new(&error))?;
        Ok(wire::decode(&answer).map_err(unreachable)?)
    }
}

/// The responses to a stream of entries.
type AppendResults<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>>;

impl RaftNetworkV2<TypeConfig> for Link {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        if let Some(committed) = &rpc.leader_commit {
            self.network.shown.fetch_max(committed.index, Ordering::SeqCst);
        }
        // openraft's limit, one heartbeat interval, is too short for the disk of the receiver.
        let timeout = if rpc.entries.is_empty() { option.hard_ttl() } else { APPEND_TIMEOUT };
        self.ask(MessageKind::Append, &rpc, timeout).await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<AppendResults<'s>, RPCError<TypeConfig>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let input = delay_commits(input, Arc::clone(&self.network.commits), COMMIT_DELAY);
        stream_append_sequential(self, input, option)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask(MessageKind::Vote, &rpc, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask(MessageKind::PreVote, &rpc, option.hard_ttl()).await
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.ask(MessageKind::TransferLeader, &rpc, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let (network, to) = (&self.network, &self.to);
        let send = async move {
            let header = network.header(to.number)?;
            let (length, chunks) = snapshot.snapshot.chunks(&snapshot.meta).await.map_err(Error::message)?;
            let head = SnapshotHead { vote, meta: snapshot.meta, length };
            let head = wire::message(header, &head)?;
            let answer = network.transport.snapshot(to, head, chunks).await;
            wire::decode(&answer.map_err(Error::message)?)
        };
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            answer = send => answer.map_err(|error| StreamingError::Unreachable(unreachable(error))),
        }
    }
}
