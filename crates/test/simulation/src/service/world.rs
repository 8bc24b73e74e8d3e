//! The servers of a simulation: their disks, their processes, and the state that all parts share.

use super::book::Book;
use super::lan::{Place, Table, Wires};
use super::nemesis::NODES;
use super::rows;
use crate::net::Net;
use caravan_consensus::sim::{HostId, VirtualDisk};
use caravan_consensus::{Config as LogConfig, Peer, ServerId, Start, Storage};
use caravan_rpc::{ReverseRegistry, Router, ServerSide};
use caravan_server::{
    CALLS_PER_PLUGIN, ClusterConfig, FEATURE_LEVEL, Handle, HeartbeatConfig, ReplicationConfig, ServerConfig,
    Service, Workers,
};
use caravan_state::Snapshot;
use caravan_types::Nanos;
use caravan_types::volume::{Claim, ClaimPhase};
use caravan_volumes::lease::Lease;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(super) const REGION: &str = "global";
/// A fifth of the usual times, so that an absence of a node takes seconds.
pub(super) const HEARTBEAT: HeartbeatConfig = HeartbeatConfig {
    min_ttl: Duration::from_secs(2),
    grace: Duration::from_secs(2),
    failover: Duration::from_secs(6),
};
const LEASE: Lease =
    Lease { ttl: Nanos::from_secs(6), kill_grace: Nanos::from_secs(1), margin: Nanos::from_secs(1) };
/// The number of entries after which a server writes a snapshot, and of entries that it keeps.
const SNAPSHOT_AFTER: u64 = 120;
const SNAPSHOT_AFTER_BYTES: u64 = 40_000;
const KEPT: u64 = 60;

/// The state that all parts of a simulation share; clones are the same simulation.
#[derive(Clone)]
pub(super) struct Sim {
    pub(super) book: Book,
    pub(super) net: Net,
    pub(super) table: Arc<Table>,
    pub(super) servers: Arc<Mutex<BTreeMap<HostId, Server>>>,
    /// The number of servers that found the cluster.
    pub(super) expect: usize,
    /// Processes that have ended although the simulation did not end them.
    pub(super) ended: Arc<Mutex<VecDeque<Ended>>>,
    /// Whether users make no new requests.
    pub(super) quiet: Arc<Mutex<bool>>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("expect", &self.expect).finish_non_exhaustive()
    }
}

/// The end of a process.
pub(super) struct Ended {
    pub(super) host: HostId,
    pub(super) life: u64,
    pub(super) reason: String,
}

pub(super) struct Server {
    pub(super) disk: VirtualDisk,
    /// The directory of the keys and of the promise.
    dir: PathBuf,
    pub(super) up: bool,
    /// The number of starts of the process.
    pub(super) life: u64,
    pub(super) stop: CancellationToken,
    /// The last time at which the disk had a fault.
    pub(super) faulty: Option<Duration>,
    pub(super) frozen: bool,
    /// The running service, and the methods that it serves.
    pub(super) running: Option<(Handle, Arc<Router>)>,
    /// The credential of the running process.
    pub(super) own: ServerSide,
}

impl Server {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self {
            disk: VirtualDisk::new(),
            dir,
            up: false,
            life: 0,
            stop: CancellationToken::new(),
            faulty: None,
            frozen: false,
            running: None,
            own: ServerSide::default(),
        }
    }
}

pub(super) fn uuid(host: HostId) -> Uuid {
    Uuid::from_u128(u128::from(host.0))
}

pub(super) fn address(host: HostId) -> String {
    format!("10.0.0.{}:4647", host.0)
}

impl Sim {
    pub(super) fn with<T>(&self, host: HostId, with: impl FnOnce(&mut Server) -> T) -> T {
        with(self.servers.lock().get_mut(&host).expect("the hosts of servers are fixed"))
    }

    pub(super) fn hosts(&self) -> Vec<HostId> {
        self.servers.lock().keys().copied().collect()
    }

    /// Returns the service of a server, if its process runs.
    pub(super) fn handle(&self, host: HostId) -> Option<Handle> {
        let servers = self.servers.lock();
        servers.get(&host)?.running.as_ref().map(|(handle, _)| handle.clone())
    }

    pub(super) fn handles(&self) -> Vec<(HostId, Handle)> {
        let servers = self.servers.lock();
        let running = |(host, server): (&HostId, &Server)| Some((*host, server.running.as_ref()?.0.clone()));
        servers.iter().filter_map(running).collect()
    }

    pub(super) fn router(&self, host: HostId) -> Option<Arc<Router>> {
        let servers = self.servers.lock();
        servers.get(&host)?.running.as_ref().map(|(_, router)| router.clone())
    }

    /// Returns whether a server can prove to another one that both belong to one cluster.
    pub(super) fn is_member(&self, from: HostId, to: HostId) -> bool {
        let servers = self.servers.lock();
        let cluster = |host| servers.get(&host).and_then(|server: &Server| server.own.credential.get());
        match (cluster(from), cluster(to)) {
            (Some(from), Some(to)) => from.cluster() == to.cluster(),
            _ => false,
        }
    }

    /// Returns the server that leads in the newest term, according to its own records.
    pub(super) fn leader(&self) -> Option<HostId> {
        let leading = self.handles().into_iter().map(|(host, handle)| (host, handle.log_metrics()));
        let leading = leading.filter(|(_, metrics)| metrics.is_leader);
        leading.max_by_key(|(_, metrics)| metrics.term).map(|(host, _)| host)
    }

    /// Returns the newest state that a running server has applied.
    pub(super) fn newest(&self) -> Option<(HostId, Snapshot)> {
        let states = self.handles().into_iter().map(|(host, handle)| (host, handle.store().snapshot()));
        states.max_by_key(|(_, root)| root.index())
    }

    /// Returns the number of the node that uses the volume.
    pub(super) fn holder(&self) -> Option<u32> {
        let (_, root) = self.newest()?;
        let uses = |claim: &&Arc<Claim>| matches!(claim.phase, ClaimPhase::Attached | ClaimPhase::Mounted);
        let holder = root.claims_of(&rows::volume_key()).find(uses)?.node_id.clone();
        (1..=NODES).find(|number| rows::node_id(*number) == holder)
    }

    /// Prepares the start of a server's process, and returns the process.
    pub(super) fn start(&self, host: HostId) -> impl Future<Output = ()> + Send + 'static {
        let own = ServerSide { id: uuid(host).to_string(), ..ServerSide::default() };
        let (life, stop, config) = self.with(host, |server| {
            server.life += 1;
            (server.up, server.frozen) = (true, false);
            server.stop = CancellationToken::new();
            server.own = own.clone();
            (server.life, server.stop.clone(), self.config(host, server, own))
        });
        let sim = self.clone();
        async move {
            let reason = sim.process(host, life, config, stop).await;
            sim.ended.lock().push_back(Ended { host, life, reason });
        }
    }

    fn config(&self, host: HostId, server: &Server, own: ServerSide) -> ServerConfig {
        let name = format!("s{}", host.0);
        let log = LogConfig {
            start: Start::Wait,
            peer: Peer { server: uuid(host), name: name.clone(), addr: address(host) },
            storage: Storage::Virtual(server.disk.clone()),
            snapshot_after_entries: SNAPSHOT_AFTER,
            snapshot_after_bytes: SNAPSHOT_AFTER_BYTES,
            keep_entries: KEPT,
            ..LogConfig::memory(ServerId(0))
        };
        let cluster = ClusterConfig {
            id: uuid(host),
            name,
            level: FEATURE_LEVEL,
            expect: self.expect,
            dir: Some(server.dir.clone()),
            own,
            channels: Arc::new(Wires::new(self.clone(), host)),
            directory: Arc::new(Place::new(self.table.clone(), host)),
            replication: ReplicationConfig::default(),
        };
        ServerConfig {
            region: REGION.into(),
            log,
            addresses: vec![address(host)],
            workers: Workers::all(2),
            heartbeat: HEARTBEAT,
            lease: LEASE,
            volume_calls_per_plugin: CALLS_PER_PLUGIN,
            gc: Default::default(),
            rejections: Default::default(),
            keyring: Some(server.dir.join("keyring")),
            acl: Default::default(),
            issuer: None,
            cluster,
        }
    }

    /// Runs a server's process, and returns the reason of its end.
    async fn process(
        &self,
        host: HostId,
        life: u64,
        config: ServerConfig,
        stop: CancellationToken,
    ) -> String {
        let (handle, service) = match Service::start(config, ReverseRegistry::default()).await {
            Ok(started) => started,
            Err(error) => return format!("does not start: {}", crate::server::chain(&error)),
        };
        let router = handle.rpc().build();
        self.with(host, |server| {
            if server.up && server.life == life {
                server.running = Some((handle, router));
            }
        });
        self.book.note(format!("server {} runs", host.0));
        match service.run(stop).await {
            Ok(()) => "was stopped".to_owned(),
            Err(error) => format!("failed: {}", crate::server::chain(&error)),
        }
    }
}
