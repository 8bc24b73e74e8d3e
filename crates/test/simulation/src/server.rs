//! One simulated server: its disk, its clocks, its program, and the state that its process shares.

use crate::Fault;
use crate::book::Book;
use crate::command::{Machine, Replica};
use crate::leader::{self, Desk};
use crate::net::{Handles, Net, Wire};
use crate::{founder, net};
use caravan_consensus::sim::{HostId, VirtualDisk, elapsed, spawn_on};
use caravan_consensus::{ClusterId, Config, Consensus, Handle, Identity, Peer, ServerId, Start, Storage};
use caravan_founding::Promise;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The state that all parts of a simulation share; clones are the same simulation.
#[derive(Clone)]
pub(crate) struct Sim {
    pub(crate) book: Book,
    pub(crate) net: Net,
    pub(crate) handles: Handles,
    pub(crate) servers: Arc<Mutex<BTreeMap<HostId, Server>>>,
    pub(crate) fault: Option<Fault>,
    /// The number of servers that found the cluster.
    pub(crate) expect: usize,
    /// Processes that have ended although the simulation did not end them.
    pub(crate) ended: Arc<Mutex<VecDeque<Ended>>>,
    /// Whether clients and nodes make no new requests.
    pub(crate) quiet: Arc<Mutex<bool>>,
    /// The member to remove.
    pub(crate) removal: Arc<Mutex<Option<HostId>>>,
}

/// The end of a process.
pub(crate) struct Ended {
    pub(crate) host: HostId,
    pub(crate) life: u64,
    pub(crate) reason: String,
}

pub(crate) struct Server {
    pub(crate) disk: VirtualDisk,
    pub(crate) up: bool,
    /// The number of starts of the process.
    pub(crate) life: u64,
    /// The feature level of the installed program.
    pub(crate) level: u32,
    /// The feature level of the running program.
    pub(crate) running: u32,
    /// The difference between the wall clock and the time of the world, in nanoseconds.
    pub(crate) wall: i64,
    pub(crate) promise: Option<Promise>,
    /// The number of times that the server lost its disk.
    pub(crate) wipes: u32,
    /// The identity in the log that the server had before it lost its disk.
    pub(crate) before: Identity,
    pub(crate) desk: Arc<Mutex<Desk>>,
    pub(crate) replica: Replica,
    /// Whether the state is as new as before the last restart.
    pub(crate) recovered: bool,
    pub(crate) stop: CancellationToken,
    /// The last time at which the disk had a fault.
    pub(crate) faulty: Option<Duration>,
    pub(crate) frozen: bool,
}

impl Server {
    pub(crate) fn new(wall: i64, level: u32) -> Self {
        Self {
            disk: VirtualDisk::new(),
            up: false,
            life: 0,
            level,
            running: level,
            wall,
            promise: None,
            wipes: 0,
            before: Identity::default(),
            desk: Arc::default(),
            replica: Replica::default(),
            recovered: false,
            stop: CancellationToken::new(),
            faulty: None,
            frozen: false,
        }
    }
}

/// Returns the peer for a server in the membership.
pub(crate) fn peer(host: HostId) -> Peer {
    Peer {
        server: Uuid::from_u128(u128::from(host.0)),
        name: format!("s{}", host.0),
        addr: format!("10.0.0.{}:4647", host.0),
    }
}

impl Sim {
    pub(crate) fn is_planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(crate) fn handle(&self, host: HostId) -> Option<Handle> {
        self.handles.lock().get(&host).cloned()
    }

    /// Returns a value of the state that the process of a server shares.
    pub(crate) fn with<T>(&self, host: HostId, with: impl FnOnce(&mut Server) -> T) -> T {
        with(self.servers.lock().get_mut(&host).expect("the hosts of servers are fixed"))
    }

    pub(crate) fn hosts(&self) -> Vec<HostId> {
        self.servers.lock().keys().copied().collect()
    }

    /// Returns the server that leads according to its own records.
    pub(crate) fn leader(&self) -> Option<HostId> {
        let handles = self.handles.lock();
        let leaders = handles.iter().filter(|(_, handle)| handle.is_leader());
        leaders.max_by_key(|(_, handle)| handle.metrics().term).map(|(host, _)| *host)
    }

    /// Returns all servers that lead according to their own records.
    pub(crate) fn leaders(&self) -> Vec<HostId> {
        let handles = self.handles.lock();
        handles.iter().filter(|(_, handle)| handle.is_leader()).map(|(host, _)| *host).collect()
    }

    /// Returns the wall clock of a server.
    pub(crate) fn wall(&self, host: HostId) -> i64 {
        let offset = self.servers.lock().get(&host).map_or(0, |server| server.wall);
        elapsed().as_nanos() as i64 + offset
    }

    /// Returns the index and the hash of the state that a server shows to a reader that permits old states. After a
    /// restart, a server shows no state until its state is as new as before.
    pub(crate) fn shown(&self, host: HostId) -> Option<(u64, u64)> {
        let (replica, recovered) = self.with(host, |server| (server.replica.clone(), server.recovered));
        let state = replica.lock();
        (recovered || self.is_planted(Fault::StaleBeforeRecovery)).then_some((state.index, state.chain))
    }

    /// Prepares the start of a server's process, and returns the process.
    pub(crate) fn start(&self, host: HostId) -> impl Future<Output = ()> + Send + 'static {
        let (disk, life, level, stop, replica, desk) = self.with(host, |server| {
            server.life += 1;
            server.up = true;
            server.running = server.level;
            server.recovered = false;
            server.frozen = false;
            server.replica = Replica::default();
            server.desk = Arc::default();
            server.stop = CancellationToken::new();
            let shared = (server.stop.clone(), server.replica.clone(), server.desk.clone());
            (server.disk.clone(), server.life, server.level, shared.0, shared.1, shared.2)
        });
        let sim = self.clone();
        async move {
            let reason = sim.clone().process(host, disk, level, replica, desk, stop).await;
            sim.ended.lock().push_back(Ended { host, life, reason });
        }
    }

    /// Runs a server's process, and returns the reason of its end.
    async fn process(
        self,
        host: HostId,
        disk: VirtualDisk,
        level: u32,
        replica: Replica,
        desk: Arc<Mutex<Desk>>,
        stop: CancellationToken,
    ) -> String {
        let wire = Wire { sim: self.clone(), from: host };
        let skips = self.is_planted(Fault::CommandSkipped);
        let machine = Machine { host, level, skips, replica: replica.clone(), book: self.book.clone() };
        let config = Config {
            start: Start::Wait,
            peer: peer(host),
            storage: Storage::Virtual(disk),
            snapshot_after_entries: 20,
            snapshot_after_bytes: 400,
            keep_entries: 10,
            ..Config::memory(ServerId(0))
        };
        let (handle, service) = match Consensus::start(config, Arc::new(wire), machine).await {
            Ok(started) => started,
            Err(error) => return format!("does not start: {}", chain(&error)),
        };
        if self.is_planted(Fault::NumberReused)
            && let Identity { cluster: Some(cluster), number: Some(number) } =
                self.with(host, |server| server.before)
        {
            // A server that is already in the log refuses.
            let _ = handle.admit(cluster, number).await;
        }
        self.handles.lock().insert(host, handle.clone());
        let identity = handle.identity();
        self.book.note(format!("server {} runs as number {:?}", host.0, identity.number.map(|n| n.0)));
        spawn_on(host, founder::run(self.clone(), host, handle.clone()));
        let (sim, log) = (self.clone(), handle.clone());
        spawn_on(host, async move {
            if log.recovered().await.is_ok() {
                sim.with(host, |server| server.recovered = true);
            }
        });
        spawn_on(host, leader::run(self.clone(), host, handle, replica, desk));
        match service.run(stop).await {
            Ok(()) => "was stopped".to_owned(),
            Err(error) => format!("failed: {}", chain(&error)),
        }
    }

    /// Admits this server with the number in its promise, when the cluster's log arrives.
    pub(crate) async fn take_place(&self, host: HostId, handle: &Handle, cluster: Option<ClusterId>) {
        if handle.identity().cluster.is_some() {
            return;
        }
        let promise = self.with(host, |server| server.promise.clone());
        if self.is_planted(Fault::FirstSeenFounding) {
            if let Some(cluster) = cluster {
                let _ = handle.admit(cluster, ServerId(u64::from(host.0))).await;
            }
            return;
        }
        let Some(promise) = promise else { return };
        let own = founder::own(self, host, handle);
        if let Some(cluster) = cluster
            && caravan_founding::accepts_log(&own, caravan_founding::ClusterId(cluster.0))
            && let Some(number) = promise.founding.number(own.server)
        {
            // A failed disk ends the process.
            let _ = handle.admit(cluster, ServerId(number)).await;
        }
    }

    /// Runs work on a server, on behalf of a client or of another server.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        from: HostId,
        to: HostId,
        limit: Duration,
        work: net::Work<T>,
    ) -> Option<T> {
        self.net.call(from, to, limit, work).await
    }
}

/// Returns an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
