//! The servers of a fleet: one alone, or several that vote.

use crate::cluster::{FleetError, Setup};
use caravan_consensus::{Config as LogConfig, Peer, ServerId, Start, Timing};
use caravan_members::{JoinEntry, ServerTags};
use caravan_rpc::{
    Authenticator, ConnectOptions, Hello, PeerIdentity, RetryPolicy, ReverseRegistry, Role, Router, RpcError,
    RpcServer, ServerOptions, ServerPeer, ServerSide, TcpConnector,
};
use caravan_server::{
    ClusterConfig, FEATURE_LEVEL, Foreign, Handle, HeartbeatConfig, ReplicationConfig, RpcChannels,
    ServerConfig, ServerError, Service,
};
use caravan_volumes::lease::Lease;
use futures::future::BoxFuture;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const REGION: &str = "global";
/// The number of entries between snapshots, and of entries kept behind a snapshot. Logs on disk use the same numbers.
const SNAPSHOT_AFTER: u64 = 8192;
const KEPT: u64 = 10_240;
/// The time within which servers elect a leader and admit all of them.
const FOUNDING_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two looks at the membership.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// An authenticator that accepts every peer on loopback, and servers as servers of their region.
#[derive(Debug)]
struct Loopback;

impl Authenticator for Loopback {
    fn authenticate<'a>(
        &'a self,
        _role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        let identity = match &hello.identity {
            PeerIdentity::Server(server) => {
                PeerIdentity::Server(ServerPeer { region: hello.region.clone(), ..server.clone() })
            }
            other => other.clone(),
        };
        Box::pin(std::future::ready(Ok(identity)))
    }
}

/// A server with its tasks. They end with the token of the fleet.
pub(crate) struct Server {
    pub(crate) handle: Handle,
    pub(crate) router: Arc<Router>,
    run: JoinHandle<Result<(), ServerError>>,
    /// The listener and the membership of a server among several.
    parts: Vec<JoinHandle<()>>,
}

impl Server {
    /// Waits until the server, whose token is cancelled, has ended.
    ///
    /// # Errors
    /// Fails if the server does not end cleanly.
    pub(crate) async fn stopped(self) -> Result<(), FleetError> {
        self.run.await??;
        for part in self.parts {
            part.await?;
        }
        Ok(())
    }
}

/// Starts all servers of a fleet, and waits until they vote.
///
/// # Errors
/// Fails if a server cannot start, or the servers do not become a cluster.
pub(crate) async fn start(setup: &Setup, cancel: &CancellationToken) -> Result<Vec<Server>, FleetError> {
    if setup.servers <= 1 {
        return Ok(vec![alone(setup, cancel).await?]);
    }
    let mut listeners = Vec::new();
    for _ in 0..setup.servers {
        listeners.push((listen().await?, listen().await?));
    }
    let first = listeners[0].1.local_addr()?;
    let mut servers = Vec::new();
    for (n, (rpc, serf)) in listeners.into_iter().enumerate() {
        servers.push(one_of_several(setup, n, rpc, serf, first, cancel).await?);
    }
    let begun = Instant::now();
    loop {
        let voters = servers.iter().map(|server| server.handle.log_metrics().voters).min();
        if voters == Some(servers.len()) && leader(&servers).is_some() {
            return Ok(servers);
        }
        if begun.elapsed() > FOUNDING_TIMEOUT {
            return Err(FleetError::Stuck(
                FOUNDING_TIMEOUT,
                "the servers do not become a cluster".to_owned(),
            ));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Returns the leader that can work.
pub(crate) fn leader(servers: &[Server]) -> Option<&Server> {
    servers.iter().find(|server| server.handle.is_leader())
}

async fn listen() -> Result<TcpListener, FleetError> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
}

async fn alone(setup: &Setup, cancel: &CancellationToken) -> Result<Server, FleetError> {
    let log = match &setup.dir {
        Some(dir) => LogConfig::dir(ServerId(1), "127.0.0.1:4647", dir),
        None => LogConfig { snapshot_after_entries: SNAPSHOT_AFTER, ..LogConfig::memory(ServerId(1)) },
    };
    let config = ServerConfig {
        keyring: setup.dir.as_ref().map(|dir| dir.join("keyring")),
        ..config(setup, ClusterConfig::alone("s"), log, "127.0.0.1:4647".to_owned())
    };
    let (handle, service) = Service::start(config, ReverseRegistry::default()).await?;
    let run = tokio::spawn(service.run(cancel.clone()));
    Ok(Server { router: handle.rpc().build(), handle, run, parts: Vec::new() })
}

async fn one_of_several(
    setup: &Setup,
    n: usize,
    rpc: TcpListener,
    serf: TcpListener,
    first: SocketAddr,
    cancel: &CancellationToken,
) -> Result<Server, FleetError> {
    let (id, name) = (Uuid::new_v4(), format!("s{}", n + 1));
    let dir = setup.dir.as_ref().map(|dir| dir.join(&name));
    if let Some(dir) = &dir {
        caravan_sys::files::durable_private_dir(dir)
            .map_err(|error| std::io::Error::other(caravan_sys::describe(&error)))?;
    }
    let address = rpc.local_addr()?;
    let own = ServerSide { id: id.to_string(), ..ServerSide::default() };
    let peer = ServerPeer { name: name.clone(), id: own.id.clone(), ..ServerPeer::default() };
    let tags = ServerTags {
        region: REGION.to_owned(),
        datacenter: "dc1".to_owned(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        id,
        rpc_addr: address.ip().to_string(),
        port: address.port(),
        expect: u32::try_from(setup.servers).unwrap_or(u32::MAX),
        level: Some(FEATURE_LEVEL),
        ..ServerTags::default()
    };
    let members = caravan_members::Config {
        id,
        node: name.clone(),
        advertise: serf.local_addr()?,
        tags,
        dir: dir.clone(),
        encrypt: None,
        accept_plain: true,
        rejoin_after_leave: false,
        timing: caravan_members::Timing::default(),
    };
    let failed = |error: &dyn std::error::Error| FleetError::Members(error.to_string());
    let (members, membership) =
        caravan_members::Service::start(members, serf).map_err(|error| failed(&error))?;
    let membership = tokio::spawn(membership.run(cancel.clone()));
    if n > 0 {
        let join = [JoinEntry::parse(&first.to_string()).map_err(|error| failed(&error))?];
        caravan_members::start_join(&members, &join).await.map_err(|error| failed(&error))?;
    }
    let mut calling = ConnectOptions::new(Vec::new(), PeerIdentity::Server(peer.clone()), REGION);
    // A call fails immediately if the server is not reached, as between agents.
    calling.retry = RetryPolicy { patience: Duration::ZERO, ..RetryPolicy::default() };
    let foreign = Foreign::new(|_| Arc::new(TcpConnector::default()));
    let cluster = ClusterConfig {
        id,
        name: format!("{name}.{REGION}"),
        level: FEATURE_LEVEL,
        expect: setup.servers,
        dir: dir.clone(),
        own: own.clone(),
        channels: Arc::new(RpcChannels::new(calling, own.clone(), members.changes(), foreign)),
        directory: Arc::new(members),
        replication: ReplicationConfig::default(),
    };
    let log = match &dir {
        Some(dir) => LogConfig::dir(ServerId(1), address.to_string(), dir.join("raft")),
        None => LogConfig {
            snapshot_after_entries: SNAPSHOT_AFTER,
            keep_entries: KEPT,
            ..LogConfig::memory(ServerId(1))
        },
    };
    let log = LogConfig {
        start: Start::Wait,
        peer: Peer { server: id, name: cluster.name.clone(), addr: address.to_string() },
        timing: Timing::default(),
        ..log
    };
    let config = ServerConfig {
        keyring: dir.map(|dir| dir.join("keyring")),
        ..config(setup, cluster, log, address.to_string())
    };
    let registry = ReverseRegistry::default();
    let (handle, service) = Service::start(config, registry.clone()).await?;
    let router = handle.rpc().build();
    let identity = PeerIdentity::Server(ServerPeer { region: REGION.to_owned(), ..peer });
    let options = ServerOptions {
        registry,
        own,
        authenticator: Arc::new(Loopback),
        ..ServerOptions::new(identity, router.clone())
    };
    let listener = tokio::spawn(RpcServer::on(rpc, options)?.run(cancel.clone()));
    let run = tokio::spawn(service.run(cancel.clone()));
    Ok(Server { handle, router, run, parts: vec![listener, membership] })
}

fn config(setup: &Setup, cluster: ClusterConfig, log: LogConfig, address: String) -> ServerConfig {
    // As many heartbeats a second as Nomad allows: fifty.
    let nodes = u32::try_from(setup.nodes).unwrap_or(u32::MAX);
    let usual = Duration::from_secs(10).max(Duration::from_secs(1) * nodes / 50);
    let heartbeat = match setup.heartbeat {
        Some(ttl) => HeartbeatConfig { min_ttl: ttl, grace: ttl, failover: 3 * ttl },
        None => HeartbeatConfig { min_ttl: usual, ..HeartbeatConfig::default() },
    };
    ServerConfig {
        cluster,
        region: REGION.into(),
        log,
        addresses: vec![address],
        workers: caravan_server::Workers::all(setup.workers),
        heartbeat,
        lease: Lease::default(),
        volume_calls_per_plugin: caravan_server::CALLS_PER_PLUGIN,
        acl: Default::default(),
        issuer: None,
        gc: Default::default(),
        rejections: Default::default(),
        keyring: None,
    }
}
