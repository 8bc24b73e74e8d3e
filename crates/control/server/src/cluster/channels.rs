//! Channels to other servers.

use caravan_consensus::Peer;
use caravan_members::View;
use caravan_rpc::{
    Calling, Channel, ConnectOptions, Connector, Exchange, Role, Router, ServerSide, SharedCredential,
    Targets,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The purpose of a channel. Each purpose has a separate connection, so that heartbeats of the log never wait behind
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

/// A source of channels to other servers.
pub trait PeerChannels: fmt::Debug + Send + Sync + 'static {
    /// Returns a channel to a server. The connection is opened at the first call, and again after a loss. A call
    /// fails immediately if the server cannot be reached.
    fn channel(&self, peer: &Peer, lane: Lane) -> Channel;

    /// Returns a channel to a server of another region, with the rules of [`Self::channel`].
    fn foreign(&self, region: &str, peer: &Peer) -> Channel;

    /// Returns the connection for short messages of the log to a server, if there is such a connection in addition to
    /// the channel.
    fn exchange(&self, peer: &Peer) -> Option<Arc<Exchange>> {
        let _ = peer;
        None
    }
}

/// The channels of a server that runs alone: every call fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoChannels;

impl PeerChannels for NoChannels {
    fn channel(&self, _peer: &Peer, _lane: Lane) -> Channel {
        Channel::local(Router::builder().build(), caravan_rpc::PeerIdentity::server("nobody"))
    }

    fn foreign(&self, _region: &str, peer: &Peer) -> Channel {
        self.channel(peer, Lane::Calls)
    }
}

/// A function that returns the connector for a region.
type Connect = dyn Fn(&str) -> Arc<dyn Connector> + Send + Sync;

/// A source of connectors to other regions. Each region has a separate connector, because the names in its
/// certificates contain the region.
#[derive(Clone)]
pub struct Foreign(Arc<Connect>);

impl Foreign {
    /// Wraps the function that returns the connector for a region.
    pub fn new(connector: impl Fn(&str) -> Arc<dyn Connector> + Send + Sync + 'static) -> Self {
        Self(Arc::new(connector))
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Foreign")
    }
}

/// Channels over TCP. The address in the member table is preferred to the address in the log, because a changed
/// address appears in the member table first.
#[derive(Debug)]
pub struct RpcChannels {
    options: ConnectOptions,
    own: caravan_rpc::ServerSide,
    view: watch::Receiver<Arc<View>>,
    open: Mutex<HashMap<(Uuid, Lane), (Targets, Channel)>>,
    exchanges: Mutex<HashMap<Uuid, (Targets, Arc<Exchange>)>>,
    foreign: Foreign,
}

impl RpcChannels {
    /// Creates the channels of a server. `options` apply to the channels to all servers, except for their targets.
    pub fn new(
        options: ConnectOptions,
        own: caravan_rpc::ServerSide,
        view: watch::Receiver<Arc<View>>,
        foreign: Foreign,
    ) -> Self {
        Self { options, own, view, open: Mutex::default(), exchanges: Mutex::default(), foreign }
    }

    fn address(&self, peer: &Peer) -> Vec<String> {
        let known = self.view.borrow().by_id(peer.server).and_then(|member| member.server_rpc_addr());
        match known {
            Some(address) => vec![address.to_string()],
            None if peer.addr.is_empty() => Vec::new(),
            None => vec![peer.addr.clone()],
        }
    }

    /// Returns the channel to a server; `options` returns the settings of the connection for the server's UUID.
    fn open(&self, peer: &Peer, lane: Lane, options: impl FnOnce(String) -> ConnectOptions) -> Channel {
        let create = |targets| Channel::connect(ConnectOptions { targets, ..options(uuid_of(peer)) });
        at(&mut self.open.lock(), (peer.server, lane), self.address(peer), create)
    }

    /// Returns the options of connections to a server of this region.
    fn to_member(&self, role: Role, to: String) -> ConnectOptions {
        let server = Some(Calling { own: self.own.clone(), to });
        ConnectOptions { role, server, ..self.options.clone() }
    }
}

/// Returns the UUID that the server must prove on a connection; empty if the UUID is unknown.
fn uuid_of(peer: &Peer) -> String {
    if peer.server.is_nil() { String::new() } else { peer.server.to_string() }
}

/// Returns the entry of a key, created if missing, and sets the entry's targets.
fn at<K: Eq + Hash, V: Clone>(
    open: &mut HashMap<K, (Targets, V)>,
    key: K,
    address: Vec<String>,
    create: impl FnOnce(Targets) -> V,
) -> V {
    let (targets, value) = open.entry(key).or_insert_with(|| {
        let targets = Targets::from(address.clone());
        (targets.clone(), create(targets))
    });
    // Setting the same list would wake the tasks that wait for changes.
    if targets.list() != address {
        targets.set(address);
    }
    value.clone()
}

impl PeerChannels for RpcChannels {
    fn channel(&self, peer: &Peer, lane: Lane) -> Channel {
        let role = match lane {
            Lane::Calls => Role::Rpc,
            Lane::Log | Lane::Bulk => Role::Raft,
        };
        self.open(peer, lane, |to| self.to_member(role, to))
    }

    fn exchange(&self, peer: &Peer) -> Option<Arc<Exchange>> {
        let create = |targets| {
            let options = self.to_member(Role::Exchange, uuid_of(peer));
            Arc::new(Exchange::new(ConnectOptions { targets, ..options }))
        };
        Some(at(&mut self.exchanges.lock(), peer.server, self.address(peer), create))
    }

    fn foreign(&self, region: &str, peer: &Peer) -> Channel {
        self.open(peer, Lane::Calls, |to| ConnectOptions {
            // Servers of different regions belong to different clusters and have nothing to prove to each other.
            server: Some(Calling {
                own: ServerSide { id: self.own.id.clone(), credential: SharedCredential::default() },
                to,
            }),
            connector: (self.foreign.0)(region),
            ..self.options.clone()
        })
    }
}
