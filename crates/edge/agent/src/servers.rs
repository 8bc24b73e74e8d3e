//! The server's part in a cluster of servers: its identity, the membership, and the channels to other servers.

use crate::error::AgentError;
use crate::run::Agent;
use crate::settings::{ClusterSettings, ServerSettings, Settings};
use caravan_consensus::{Config as LogConfig, Peer, PeersFile, ServerId, Start, Timing};
use caravan_members::{Handle as Members, JoinEntry, ServerTags};
use caravan_rpc::{
    ConnectOptions, Connector, PeerIdentity, RetryPolicy, ServerPeer, ServerSide, TcpConnector,
};
use caravan_server::{ClusterConfig, Foreign, RpcChannels};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

/// A server as a member, before the server itself starts.
#[derive(Debug)]
pub(crate) struct ServerPart {
    pub(crate) id: Uuid,
    pub(crate) members: Members,
    pub(crate) own: ServerSide,
    pub(crate) log: LogConfig,
    pub(crate) cluster: ClusterConfig,
}

/// Listens on the gossip port. If the default port is in use, a server that neither joins others nor waits for them
/// takes any free port. A configured port is not replaced. So several development agents run on one host.
pub(crate) async fn listen(cluster: &ClusterSettings) -> Result<TcpListener, AgentError> {
    let bind = |source| AgentError::Bind { what: "serf", address: cluster.serf, source };
    match TcpListener::bind(cluster.serf).await {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && is_alone(cluster) => {
            let listener = TcpListener::bind(SocketAddr::new(cluster.serf.ip(), 0)).await.map_err(bind)?;
            tracing::warn!(
                port = cluster.serf.port(),
                instead = listener.local_addr().map_or(0, |address| address.port()),
                "the port for other servers (ports.serf) is in use; this server takes another one"
            );
            Ok(listener)
        }
        other => other.map_err(bind),
    }
}

fn is_alone(cluster: &ClusterSettings) -> bool {
    let joins = !cluster.start_join.is_empty() || !cluster.retry_join.is_empty();
    cluster.expect == 1 && !joins && !cluster.is_serf_configured
}

/// Returns the address that a text names.
async fn resolve(field: &'static str, text: &str) -> Result<SocketAddr, AgentError> {
    let failed = |reason: String| AgentError::Setting { field, reason };
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = tokio::net::lookup_host(text).await;
    let mut found = found.map_err(|error| failed(format!("{text:?} has no address: {error}")))?;
    found.next().ok_or_else(|| failed(format!("{text:?} has no address")))
}

impl Agent<'_> {
    /// Starts the membership of a server, and prepares its part in the log.
    pub(crate) async fn open_server(
        &self,
        server: &ServerSettings,
        serf: TcpListener,
    ) -> Result<ServerPart, AgentError> {
        let settings = self.settings;
        let id = match settings.dev {
            true => Uuid::new_v4(),
            false => server_id(&server.data_dir)?,
        };
        if !settings.dev {
            recover(&server.data_dir.join("raft"), id)?;
        }
        let advertise = resolve("advertise.serf", &server.cluster.advertise_serf).await?;
        let port = serf.local_addr().map_err(AgentError::Runtime)?.port();
        let advertise = if server.cluster.is_serf_configured || advertise.port() != server.cluster.serf.port()
        {
            advertise
        } else {
            // The listener may have taken another port than the default one.
            SocketAddr::new(advertise.ip(), port)
        };
        let rpc = resolve("advertise.rpc", &settings.advertise_rpc).await?;
        let own = ServerSide { id: id.to_string(), ..ServerSide::default() };
        let config = caravan_members::Config {
            id,
            node: settings.name.clone(),
            advertise,
            tags: tags(settings, &server.cluster, id, rpc),
            dir: (!settings.dev).then(|| server.data_dir.clone()),
            encrypt: server.cluster.encrypt.clone(),
            accept_plain: server.cluster.accept_plain,
            rejoin_after_leave: server.cluster.rejoin_after_leave,
            timing: caravan_members::Timing::default(),
        };
        let (members, service) = caravan_members::Service::start(config, serf)
            .map_err(|error| AgentError::Members(Box::new(error)))?;
        self.servers.spawn(service.run(self.stop_members.clone()));
        let channels = RpcChannels::new(self.calling(&own), own.clone(), members.changes(), self.foreign());
        let name = format!("{}.{}", settings.name, settings.region);
        let address = SocketAddr::new(advertise.ip(), rpc.port()).to_string();
        let log = LogConfig {
            start: if server.cluster.expect == 1 { Start::Alone(ServerId(1)) } else { Start::Wait },
            peer: Peer { server: id, name: name.clone(), addr: address.clone() },
            timing: Timing { multiplier: server.cluster.raft_multiplier },
            ..match settings.dev {
                true => LogConfig::memory(ServerId(1)),
                false => LogConfig {
                    snapshot_after_entries: server.cluster.snapshot_threshold,
                    keep_entries: server.cluster.trailing_logs,
                    ..LogConfig::dir(ServerId(1), address, server.data_dir.join("raft"))
                },
            }
        };
        let cluster = ClusterConfig {
            id,
            name,
            level: settings.level,
            expect: server.cluster.expect,
            dir: (!settings.dev).then(|| server.data_dir.clone()),
            own: own.clone(),
            channels: Arc::new(channels),
            directory: Arc::new(members.clone()),
            replication: server.cluster.replication.clone(),
        };
        Ok(ServerPart { id, members, own, log, cluster })
    }

    /// Returns the options with which this server calls others. A call fails immediately if the server is not
    /// reached: the callers retry.
    fn calling(&self, own: &ServerSide) -> ConnectOptions {
        let identity = PeerIdentity::Server(ServerPeer {
            name: self.settings.name.clone(),
            id: own.id.clone(),
            ..ServerPeer::default()
        });
        let mut options = ConnectOptions::new(Vec::new(), identity, &self.settings.region);
        options.retry = RetryPolicy { patience: Duration::ZERO, ..RetryPolicy::default() };
        if let Some(connector) = self.tls.connecting() {
            options.connector = Arc::new(connector);
        }
        options
    }

    /// Returns the connectors to servers of other regions, which have the name of their region in their certificates.
    fn foreign(&self) -> Foreign {
        let tls = self.tls.clone();
        Foreign::new(move |region| -> Arc<dyn Connector> {
            match tls.connecting_to(region) {
                Some(connector) => Arc::new(connector),
                None => Arc::new(TcpConnector::default()),
            }
        })
    }

    /// Joins the configured servers. An error ends the agent.
    pub(crate) async fn join(&self, members: &Members, cluster: &ClusterSettings) -> Result<(), AgentError> {
        let failed = |error| AgentError::Join(Box::new(error));
        if !cluster.start_join.is_empty() {
            let joined = caravan_members::start_join(members, &cluster.start_join).await.map_err(failed)?;
            tracing::info!(joined, "joined the configured servers");
        }
        if !cluster.retry_join.is_empty() {
            let (members, entries) = (members.clone(), cluster.retry_join.clone());
            let (plan, stop, failures) = (cluster.retry, self.stop.clone(), self.failed.0.clone());
            self.servers.spawn(async move {
                let joined = tokio::select! {
                    () = stop.cancelled() => return,
                    joined = caravan_members::retry_join(&members, &entries as &[JoinEntry], plan) => joined,
                };
                match joined {
                    Ok(joined) => tracing::info!(joined, "joined the configured servers"),
                    // The receiver lives as long as the agent.
                    Err(error) => drop(failures.send(AgentError::Join(Box::new(error))).await),
                }
            });
        }
        Ok(())
    }
}

fn tags(settings: &Settings, cluster: &ClusterSettings, id: Uuid, rpc: SocketAddr) -> ServerTags {
    ServerTags {
        region: settings.region.clone(),
        datacenter: settings.datacenter.clone(),
        build: settings.build.version.to_owned(),
        revision: settings.build.commit.to_owned(),
        id,
        rpc_addr: rpc.ip().to_string(),
        port: rpc.port(),
        expect: u32::try_from(cluster.expect).unwrap_or(u32::MAX),
        nonvoter: cluster.non_voting,
        zone: cluster.redundancy_zone.clone(),
        upgrade_version: cluster.upgrade_version.clone(),
        level: Some(settings.level),
        ..ServerTags::default()
    }
}

/// Applies the file `raft/peers.json` with which an operator recovers a cluster without a majority.
fn recover(log: &Path, own: Uuid) -> Result<(), AgentError> {
    let applied = caravan_consensus::apply_peers_file(log, own);
    let applied = applied.map_err(|error| {
        AgentError::Server(Box::new(caravan_server::ServerError::Storage(Arc::new(error))))
    })?;
    match applied {
        None => {}
        Some(PeersFile::Applied { cluster, members, last, renamed }) => {
            let servers: Vec<String> = members.iter().map(|peer| peer.server.to_string()).collect();
            let (term, index) = last.unwrap_or_default();
            tracing::warn!(
                %cluster,
                servers = servers.join(", "),
                term,
                index,
                file = %renamed.display(),
                "peers.json was applied: the membership of the cluster is that of the file, under a new cluster id; \
                 servers whose logs end with another entry are refused"
            );
        }
        Some(PeersFile::Ignored { renamed }) => tracing::warn!(
            file = %renamed.display(),
            "peers.json was not applied: this server has no log to recover"
        ),
    }
    Ok(())
}

/// Returns the server's UUID, which is generated at its first start.
fn server_id(dir: &Path) -> Result<Uuid, AgentError> {
    let fail = |source| AgentError::DataDir { path: dir.to_owned(), source };
    let path = dir.join("server-id");
    match std::fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => {
            return id.trim().parse().map_err(|error| {
                let reason = format!("{}: {error}", path.display());
                fail(std::io::Error::new(std::io::ErrorKind::InvalidData, reason))
            });
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let id = Uuid::new_v4();
    caravan_sys::files::durable_private_dir(dir)
        .map_err(|e| fail(std::io::Error::other(caravan_sys::describe(&e))))?;
    caravan_sys::files::atomic_write(&path, id.to_string().as_bytes(), 0o600)
        .map_err(|e| fail(std::io::Error::other(caravan_sys::describe(&e))))?;
    Ok(id)
}
