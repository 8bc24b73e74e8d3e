//! Servers that are connected in memory.

use crate::{DEADLINE, Server, unlocked};
use bytes::Bytes;
use caravan_consensus::{
    ClusterId, Config, Handle, Leadership, MessageKind, Peer, PeerAddress, PeerTransport, ServerId, Start,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uuid::Uuid;

/// The connections between servers.
#[derive(Clone, Default)]
pub(crate) struct Net(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    up: BTreeMap<ServerId, Handle>,
    /// Pairs of sender and receiver whose messages are dropped.
    cut: BTreeSet<(ServerId, ServerId)>,
    snapshots: usize,
}

/// The connections of one server.
struct Wire {
    net: Net,
    from: ServerId,
}

impl Wire {
    fn reach(&self, to: ServerId) -> io::Result<Handle> {
        let state = self.net.0.lock().unwrap();
        if state.cut.contains(&(self.from, to)) || state.cut.contains(&(to, self.from)) {
            return Err(io::ErrorKind::HostUnreachable.into());
        }
        state.up.get(&to).cloned().ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }
}

impl PeerTransport for Wire {
    fn call(
        &self,
        to: &PeerAddress,
        kind: MessageKind,
        body: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let reached = self.reach(to.number);
        Box::pin(async move {
            let handle = reached?;
            let answer = tokio::time::timeout(timeout, handle.receive(kind, body)).await?;
            answer.map_err(io::Error::other)
        })
    }

    fn snapshot(
        &self,
        to: &PeerAddress,
        head: Bytes,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let reached = self.reach(to.number);
        self.net.0.lock().unwrap().snapshots += 1;
        Box::pin(async move { reached?.receive_snapshot(head, chunks).await.map_err(io::Error::other) })
    }
}

pub(crate) fn peer(number: u64) -> Peer {
    Peer {
        server: Uuid::from_u128(u128::from(number)),
        name: format!("s{number}"),
        addr: format!("10.0.0.{number}:4647"),
    }
}

/// Servers with their directories.
pub(crate) struct Cluster {
    pub(crate) id: ClusterId,
    pub(crate) net: Net,
    pub(crate) servers: BTreeMap<u64, Server>,
    dirs: BTreeMap<u64, TempDir>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let (net, servers, dirs) = Default::default();
        Self { id: ClusterId(Uuid::new_v4()), net, servers, dirs }
    }

    /// Founds a cluster of servers 1 to `count`.
    pub(crate) async fn founded(count: u64) -> Self {
        let mut cluster = Self::new();
        for number in 1..=count {
            cluster.start(number, Start::Wait).await;
            cluster.admit(number, number).await;
        }
        let members = (1..=count).map(|number| (ServerId(number), peer(number))).collect();
        cluster.server(1).found(cluster.id, members).await.unwrap();
        cluster
    }

    pub(crate) fn server(&self, number: u64) -> &Handle {
        &self.servers[&number].handle
    }

    pub(crate) fn dir(&self, number: u64) -> &Path {
        self.dirs[&number].path()
    }

    /// Starts a server, with its old directory if the directory exists. Peers reach the server under its
    /// current number.
    pub(crate) async fn start(&mut self, number: u64, start: Start) {
        let dir = self.dirs.entry(number).or_insert_with(|| tempfile::tempdir().unwrap());
        let config = Config {
            start,
            peer: peer(number),
            snapshot_after_entries: 20,
            keep_entries: 5,
            ..Config::dir(ServerId(number), "", dir.path())
        };
        let wire = Arc::new(Wire { net: self.net.clone(), from: ServerId(number) });
        let server = unlocked(async || Server::with(config.clone(), wire.clone()).await).await.unwrap();
        self.net.0.lock().unwrap().up.insert(ServerId(number), server.handle.clone());
        self.servers.insert(number, server);
    }

    /// Admits a server; its key in the test's tables becomes `number`.
    pub(crate) async fn admit(&mut self, started_as: u64, number: u64) {
        self.server(started_as).admit(self.id, ServerId(number)).await.unwrap();
        if started_as == number {
            return;
        }
        let mut net = self.net.0.lock().unwrap();
        let handle = net.up.remove(&ServerId(started_as)).unwrap();
        net.up.insert(ServerId(number), handle);
        let (server, dir) = (self.servers.remove(&started_as), self.dirs.remove(&started_as));
        self.servers.insert(number, server.unwrap());
        self.dirs.insert(number, dir.unwrap());
    }

    /// Stops a server and keeps its directory.
    pub(crate) async fn stop(&mut self, number: u64) {
        self.net.0.lock().unwrap().up.remove(&ServerId(number));
        self.servers.remove(&number).unwrap().stop().await;
    }

    pub(crate) async fn stop_all(mut self) {
        while let Some((number, _)) = self.servers.first_key_value() {
            self.stop(*number).await;
        }
    }

    /// Cuts a server from all others.
    pub(crate) fn isolate(&self, number: u64) {
        let mut net = self.net.0.lock().unwrap();
        let others: Vec<_> = net.up.keys().copied().filter(|other| other.0 != number).collect();
        net.cut.extend(others.into_iter().map(|other| (ServerId(number), other)));
    }

    pub(crate) fn heal(&self) {
        self.net.0.lock().unwrap().cut.clear();
    }

    /// Returns the number of snapshots that were sent.
    pub(crate) fn snapshots(&self) -> usize {
        self.net.0.lock().unwrap().snapshots
    }

    /// Waits until one of the servers leads, other than `except`, and returns its number.
    pub(crate) async fn leader(&self, except: &[u64]) -> u64 {
        let leader = || self.servers.iter().find(|(n, s)| !except.contains(n) && s.handle.is_leader());
        eventually("a leader", || leader().map(|(number, _)| *number)).await
    }

    /// Waits until a server has applied all entries that another server has applied.
    pub(crate) async fn caught_up(&self, number: u64, with: u64) {
        let values = |number: u64| self.servers[&number].journal.values();
        eventually("equal states", || (values(number) == values(with)).then_some(())).await;
    }

    /// Waits until a server reports `leader` as its leader.
    pub(crate) async fn follows(&self, number: u64, leader: u64) {
        let seen = self.server(number).leadership();
        let follows = || match &*seen.borrow() {
            Leadership::Follower { leader: found } => {
                (*found == PeerAddress { number: ServerId(leader), peer: peer(leader) }).then_some(())
            }
            _ => None,
        };
        eventually("a follower", follows).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < DEADLINE, "no {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
