//! Channels to other servers.

use caravan_consensus::Peer;
use caravan_members::View;
use caravan_rpc::{Calling, Channel, ConnectOptions, Role, Router, Targets};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The purpose of a channel. Each purpose has a connection of its own, so that heartbeats of the log never wait behind
/// large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Requests that are passed on, and calls about the cluster.
    Calls,
    /// Votes and entries of the log.
    Log,
    /// Snapshots of the log.
    Bulk,
}

/// Opens channels to other servers.
pub trait PeerChannels: fmt::Debug + Send + Sync + 'static {
    /// Returns a channel to a server. The connection is made at the first call, and again after it was lost. A call
    /// fails at once if the server cannot be reached.
    fn channel(&self, peer: &Peer, lane: Lane) -> Channel;
}

/// The channels of a server that runs alone: every call fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoChannels;

impl PeerChannels for NoChannels {
    fn channel(&self, _peer: &Peer, _lane: Lane) -> Channel {
        Channel::local(Router::builder().build(), caravan_rpc::PeerIdentity::server("nobody"))
    }
}

/// Channels over TCP. The address in the member table is preferred to the address in the log, because a server whose
/// address changed shows the new one in the member table first.
#[derive(Debug)]
pub struct RpcChannels {
    options: ConnectOptions,
    own: caravan_rpc::ServerSide,
    view: watch::Receiver<Arc<View>>,
    open: Mutex<HashMap<(Uuid, Lane), (Targets, Channel)>>,
}

impl RpcChannels {
    /// Creates the channels of a server. `options` are those of a channel to any server, whose targets are replaced.
    pub fn new(
        options: ConnectOptions,
        own: caravan_rpc::ServerSide,
        view: watch::Receiver<Arc<View>>,
    ) -> Self {
        Self { options, own, view, open: Mutex::default() }
    }

    fn address(&self, peer: &Peer) -> Vec<String> {
        let known = self.view.borrow().by_id(peer.server).and_then(|member| member.server_rpc_addr());
        match known {
            Some(address) => vec![address.to_string()],
            None if peer.addr.is_empty() => Vec::new(),
            None => vec![peer.addr.clone()],
        }
    }
}

impl PeerChannels for RpcChannels {
    fn channel(&self, peer: &Peer, lane: Lane) -> Channel {
        let address = self.address(peer);
        let mut open = self.open.lock();
        let (targets, channel) = open.entry((peer.server, lane)).or_insert_with(|| {
            let targets = Targets::from(address.clone());
            let to = if peer.server.is_nil() { String::new() } else { peer.server.to_string() };
            let options = ConnectOptions {
                targets: targets.clone(),
                role: match lane {
                    Lane::Calls => Role::Rpc,
                    Lane::Log | Lane::Bulk => Role::Raft,
                },
                server: Some(Calling { own: self.own.clone(), to }),
                ..self.options.clone()
            };
            (targets, Channel::connect(options))
        });
        // A set of the same list would wake those who wait for changes.
        if targets.list() != address {
            targets.set(address);
        }
        channel.clone()
    }
}
