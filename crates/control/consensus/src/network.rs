//! The connections to other servers.
//!
//! With one voter, openraft never uses them. A cluster of several servers needs an implementation of
//! [`PeerTransport`] that reaches them, and membership changes.

use crate::ServerId;
use crate::raft::{RaftSnapshot, TypeConfig, Vote};
use crate::snapshot::SnapshotData;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use std::future::Future;
use std::io;

/// Sends openraft's messages to other servers. An error means that the server was not reached.
pub(crate) trait PeerTransport: Clone + Send + Sync + 'static {
    fn append(
        &self,
        to: &Peer,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> impl Future<Output = io::Result<AppendEntriesResponse<TypeConfig>>> + Send;

    fn vote(
        &self,
        to: &Peer,
        request: VoteRequest<TypeConfig>,
    ) -> impl Future<Output = io::Result<VoteResponse<TypeConfig>>> + Send;

    fn snapshot(
        &self,
        to: &Peer,
        vote: Vote,
        snapshot: RaftSnapshot,
    ) -> impl Future<Output = io::Result<SnapshotResponse<TypeConfig>>> + Send;
}

/// Another server, as recorded in the membership.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) id: ServerId,
    pub(crate) address: String,
}

/// The transport of a server without peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone;

impl Alone {
    fn unreachable(to: &Peer) -> io::Error {
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("server {} at {} cannot be reached from a server that runs alone", to.id, to.address),
        )
    }
}

impl PeerTransport for Alone {
    async fn append(
        &self,
        to: &Peer,
        _: AppendEntriesRequest<TypeConfig>,
    ) -> io::Result<AppendEntriesResponse<TypeConfig>> {
        Err(Self::unreachable(to))
    }

    async fn vote(&self, to: &Peer, _: VoteRequest<TypeConfig>) -> io::Result<VoteResponse<TypeConfig>> {
        Err(Self::unreachable(to))
    }

    async fn snapshot(
        &self,
        to: &Peer,
        _: Vote,
        _: RaftSnapshot,
    ) -> io::Result<SnapshotResponse<TypeConfig>> {
        Err(Self::unreachable(to))
    }
}

/// Creates a [`Link`] per server.
#[derive(Clone, Debug)]
pub(crate) struct Network<T>(pub(crate) T);

/// The connection to one server through a transport.
#[derive(Debug)]
pub(crate) struct Link<T> {
    transport: T,
    peer: Peer,
}

impl<T: PeerTransport> RaftNetworkFactory<TypeConfig> for Network<T> {
    type Network = Link<T>;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Link<T> {
        let peer = Peer { id: ServerId(target), address: node.addr.clone() };
        Link { transport: self.0.clone(), peer }
    }
}

impl<T: PeerTransport> RaftNetworkV2<TypeConfig> for Link<T> {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let answer = self.transport.append(&self.peer, rpc).await;
        answer.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let answer = self.transport.vote(&self.peer, rpc).await;
        answer.map_err(|error| RPCError::Unreachable(Unreachable::new(&error)))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            answer = self.transport.snapshot(&self.peer, vote, snapshot) => {
                answer.map_err(|error| StreamingError::Unreachable(Unreachable::new(&error)))
            }
        }
    }
}
