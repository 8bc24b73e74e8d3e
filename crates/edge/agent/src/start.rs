//! The start of an agent's parts. Each part receives its dependencies when it is created. The server is first. Then
//! follow the node's state, whose identity opens the connection to the servers, the client, and the listeners.

use crate::client_join;
use crate::drivers;
use crate::error::AgentError;
use crate::known_nodes::KnownNodes;
use crate::reload::Reloader;
use crate::run::{Agent, now};
use crate::servers::ServerPart;
use crate::settings::{ClientSettings, ServerSettings};
use arc_swap::ArcSwap;
use caravan_client::{Client, ClientConfig, KnownServers, RpcServers};
use caravan_http::{AgentInfo, HttpState, Listener, TaskRoutes};
use caravan_rpc::{
    Channel, ConnectOptions, PeerIdentity, Registration, ReverseOptions, ReverseRegistry, ReverseService,
    RpcServer, Secret, ServerList, ServerOptions, ServerPeer, Targets,
};
use caravan_server::{HeartbeatConfig, ServerConfig};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::TcpListener;

/// The parts that must live as long as the agent.
pub(crate) struct Parts {
    /// The path of calls from this agent's server to its client.
    _way_back: Option<Registration>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) server: Option<RunningServer>,
}

/// A server with its membership.
#[derive(Debug)]
pub(crate) struct RunningServer {
    pub(crate) handle: caravan_server::Handle,
    pub(crate) members: caravan_members::Handle,
}

/// A client with its connection to the servers.
struct ClientPart {
    handle: caravan_client::Handle,
    service: caravan_client::Service,
    /// The connection to a server of another agent; `None` if the server is in this agent.
    remote: Option<Remote>,
    /// The configuration of each external plugin with its defaults.
    plugins: BTreeMap<String, serde_json::Value>,
}

/// A connection to servers of other agents.
struct Remote {
    channel: Channel,
    options: ConnectOptions,
}

impl Agent<'_> {
    /// Starts all parts. The server, the client and the listeners run until the agent stops.
    pub(crate) async fn start(
        &mut self,
        http: TcpListener,
        rpc: Option<(TcpListener, TcpListener)>,
    ) -> Result<Parts, AgentError> {
        let registry = ReverseRegistry::default();
        let (rpc, serf) = rpc.unzip();
        let part = match (&self.settings.server, serf) {
            (Some(server), Some(serf)) => Some(self.open_server(server, serf).await?),
            _ => None,
        };
        let server = match (&self.settings.server, &part) {
            (Some(server), Some(part)) => Some(self.start_server(server, part, registry.clone()).await?),
            _ => None,
        };
        let client = match &self.settings.client {
            Some(settings) => Some(self.open_client(settings, server.as_ref()).await?),
            None => None,
        };
        let plugins = client.as_ref().map(|client| client.plugins.clone()).unwrap_or_default();
        let shown = Arc::new(ArcSwap::from_pointee(crate::shown::config(self.settings, &plugins)));
        let reloader = Arc::new(Reloader {
            flags: self.flags.clone(),
            turn: Mutex::default(),
            tls: self.tls.clone(),
            levels: self.levels.clone(),
            limits: self.limits.clone(),
            client: client.as_ref().map(|client| client.handle.clone()),
            shown: shown.clone(),
            plugins,
            started: self.settings.clone(),
        });
        let remote = client.as_ref().and_then(|client| client.remote.as_ref());
        let state = HttpState {
            server: server.clone(),
            client: client.as_ref().map(|client| Arc::new(client.handle.clone()) as _),
            relay: remote.map(|remote| remote.channel.clone()),
            servers: remote.map(|remote| ServerList::new(remote.options.clone())),
            logs: Some(Arc::new(self.logs.clone())),
            profiler: Some(Arc::new(crate::profile::CpuProfiler::default())),
            reload: Some(reloader.clone()),
            acl: self.settings.acl.enabled,
            info: Arc::new(self.info(shown, part.as_ref())),
            members: part.as_ref().map(|part| part.members.clone()),
            started: now(),
            transport: Arc::new(self.settings.transport.clone()),
            stopping: self.stop.clone(),
            ..HttpState::default()
        };
        let way_back = client
            .zip(self.settings.client.as_ref())
            .and_then(|(client, settings)| self.run_client(client, settings, &registry, &state));
        if let (Some(server), Some(listener), Some(part)) = (server.clone(), rpc, &part) {
            self.serve_rpc(listener, server, part, registry, &state)?;
        }
        if let (Some(part), Some(settings)) = (&part, &self.settings.server) {
            for warning in settings.cluster.warnings() {
                tracing::warn!("{warning}");
            }
            self.join(&part.members, &settings.cluster).await?;
        }
        let server = server.zip(part).map(|(handle, part)| RunningServer { handle, members: part.members });
        if let Some(socket) = crate::api_socket::open() {
            self.serve(Listener::Unix(socket), state.clone());
        }
        self.serve_http(http, state);
        Ok(Parts { _way_back: way_back, reloader, server })
    }

    /// Opens the client's state and connects it with the server of this agent, or with those of its configuration.
    async fn open_client(
        &self,
        settings: &ClientSettings,
        server: Option<&caravan_server::Handle>,
    ) -> Result<ClientPart, AgentError> {
        let failed = |error: caravan_client::ClientError| AgentError::Client(Box::new(error));
        let config = self.client_config(settings);
        let mut client = Client::open(config).map_err(failed)?;
        let identity = PeerIdentity::Client {
            node_id: client.node_id().to_string(),
            secret: Secret::new(client.node_secret().expose()),
        };
        let (channel, remote) = match server {
            Some(server) => (Channel::local(server.rpc().build(), identity), None),
            None => {
                let mut options =
                    ConnectOptions::new(settings.servers.clone(), identity, &self.settings.region);
                if let Some(connector) = self.tls.connecting() {
                    options.connector = Arc::new(connector);
                }
                let channel = Channel::connect(options.clone());
                (channel.clone(), Some(Remote { channel, options }))
            }
        };
        let servers = Arc::new(match &remote {
            Some(Remote { options, .. }) => {
                let file = settings.state_dir.join("servers");
                RpcServers::learning(channel, KnownServers::open(options.targets.clone(), file))
            }
            None => RpcServers::new(channel),
        });
        let mut drivers = drivers::all(self.settings, client.node_id().as_str())?;
        let catalog = drivers::external(self.settings, &mut drivers).await?;
        drivers.extend(catalog.drivers);
        client.add_devices(catalog.devices);
        let (handle, service) = client.connect(servers, drivers).map_err(failed)?;
        Ok(ClientPart { handle, service, remote, plugins: catalog.shown })
    }

    /// Runs a client, and lets servers call it.
    fn run_client(
        &self,
        client: ClientPart,
        settings: &ClientSettings,
        registry: &ReverseRegistry,
        state: &HttpState,
    ) -> Option<Registration> {
        let ClientPart { handle, service, remote, .. } = client;
        let router = handle.routes(caravan_http::rpc(state.clone())).build();
        let way_back = match remote {
            Some(Remote { options, .. }) => {
                self.join_servers(settings, options.targets.clone(), handle.clone());
                let (reverse, _) = ReverseService::new(ReverseOptions { connect: options, router });
                self.clients.spawn(reverse.run(self.stop.clone()));
                None
            }
            None => {
                let caller = PeerIdentity::server(&self.settings.name);
                Some(registry.register(handle.node_id().to_string(), Channel::local(router, caller)))
            }
        };
        handle.serve_tasks(Arc::new(TaskRoutes::new(state.clone())));
        self.clients.spawn(service.run(self.stop.clone()));
        way_back
    }

    /// Retries the first contact with servers of other agents. An error ends the agent.
    fn join_servers(&self, settings: &ClientSettings, targets: Targets, client: caravan_client::Handle) {
        let (settings, stop, failures) = (settings.clone(), self.stop.clone(), self.failed.0.clone());
        self.clients.spawn(async move {
            let joined = tokio::select! {
                () = stop.cancelled() => return,
                joined = client_join::join(&settings, &targets, &client) => joined,
            };
            if let Err(error) = joined {
                // The receiver lives as long as the agent.
                let _ = failures.send(AgentError::Join(Box::new(error))).await;
            }
        });
    }

    fn serve_rpc(
        &self,
        listener: TcpListener,
        server: caravan_server::Handle,
        part: &ServerPart,
        registry: ReverseRegistry,
        state: &HttpState,
    ) -> Result<(), AgentError> {
        let identity = PeerIdentity::Server(ServerPeer {
            name: self.settings.name.clone(),
            id: part.own.id.clone(),
            region: self.settings.region.clone(),
            ..ServerPeer::default()
        });
        let router = server.rpc().merge(caravan_http::rpc(state.clone())).build();
        let mut options = ServerOptions {
            registry,
            authenticator: Arc::new(KnownNodes {
                server,
                region: self.settings.region.clone(),
                tls: self.tls.clone(),
                members: part.members.clone(),
            }),
            limits: self.limits.clone(),
            own: part.own.clone(),
            ..ServerOptions::new(identity, router)
        };
        if let Some(acceptor) = self.tls.accepting() {
            options.acceptor = Arc::new(acceptor);
        }
        let rpc = RpcServer::on(listener, options).map_err(AgentError::Runtime)?;
        self.servers.spawn(rpc.run(self.stop_server.clone()));
        Ok(())
    }

    fn serve_http(&self, listener: TcpListener, state: HttpState) {
        let listener = match self.tls.http() {
            Some(acceptor) => {
                Listener::Tls { listener, acceptor, patience: self.settings.limits.https_handshake }
            }
            None => Listener::Tcp(listener),
        };
        self.serve(listener, state);
    }

    fn serve(&self, listener: Listener, state: HttpState) {
        let (stop, failed) = (self.stop_server.clone(), self.failed.0.clone());
        self.servers.spawn(async move {
            if let Err(source) = caravan_http::serve(listener, state, stop).await {
                // The receiver lives as long as the agent.
                let _ = failed.send(AgentError::Runtime(source)).await;
            }
        });
    }

    async fn start_server(
        &self,
        server: &ServerSettings,
        part: &ServerPart,
        registry: ReverseRegistry,
    ) -> Result<caravan_server::Handle, AgentError> {
        let defaults = HeartbeatConfig::default();
        let heartbeat = HeartbeatConfig {
            min_ttl: server.min_heartbeat_ttl,
            grace: server.heartbeat_grace,
            failover: server.failover_heartbeat_ttl.unwrap_or(defaults.failover),
        };
        let config = ServerConfig {
            region: self.settings.region.clone(),
            log: part.log.clone(),
            cluster: part.cluster.clone(),
            addresses: vec![self.settings.advertise_rpc.clone()],
            workers: server.workers.clone(),
            heartbeat,
            lease: server.lease,
            volume_calls_per_plugin: server.volume_calls_per_plugin,
            gc: server.gc,
            rejections: server.rejections,
            keyring: (!self.settings.dev).then(|| server.data_dir.join("keyring")),
            acl: self.settings.acl,
            issuer: server.issuer.clone(),
        };
        let (handle, service) = caravan_server::Service::start(config, registry)
            .await
            .map_err(|error| AgentError::Server(Box::new(error)))?;
        if let Some(indexes) = server.event_buffer {
            handle.store().events().limit(caravan_http::EventLimit::Indexes(indexes));
        }
        let (stop, failed) = (self.stop_server.clone(), self.failed.0.clone());
        self.servers.spawn(async move {
            if let Err(error) = service.run(stop).await {
                // The receiver lives as long as the agent.
                let _ = failed.send(AgentError::Server(Box::new(error))).await;
            }
        });
        Ok(handle)
    }

    fn client_config(&self, client: &ClientSettings) -> ClientConfig {
        let (settings, file) = (self.settings, &client.file);
        let defaults = ClientConfig::new(&settings.data_dir, &settings.name);
        let telemetry = settings.file.telemetry.as_ref();
        let interval = telemetry.and_then(|telemetry| telemetry.collection_interval).filter(|n| n.0 > 0);
        ClientConfig {
            state_dir: client.state_dir.clone(),
            alloc_dir: client.alloc_dir.clone(),
            datacenter: settings.datacenter.clone(),
            region: settings.region.clone(),
            node_class: client.node_class.clone(),
            node_pool: client.node_pool.clone(),
            meta: client.meta.clone(),
            options: file.options.clone().unwrap_or_default(),
            reserved: client.reserved.clone(),
            reservable_cores: client.reservable_cores.clone(),
            cgroup_parent: client.cgroup_parent.clone().unwrap_or(defaults.cgroup_parent.clone()),
            dynamic_ports: client.dynamic_ports,
            cpu_total_compute: file.cpu_total_compute.filter(|n| *n > 0),
            memory_total_mb: file.memory_total_mb.filter(|n| *n > 0),
            disk_total_mb: file.disk_total_mb.filter(|n| *n > 0),
            disk_free_mb: file.disk_free_mb.filter(|n| *n > 0),
            network_interface: client.network_interface.clone(),
            address_family: client.address_family,
            host_networks: client.host_networks.clone(),
            bridge: client.bridge.clone(),
            cni_path: client.cni_path.clone(),
            cni_config_dir: client.cni_config_dir.clone(),
            bind_wildcard: file.bind_wildcard_default_host_network.unwrap_or(true),
            host_volumes: crate::reserved::host_volumes(file),
            host_volumes_dir: client.host_volumes_dir.clone(),
            host_volume_plugin_dir: client.host_volume_plugin_dir.clone(),
            gc_volumes_on_node_gc: file.gc_volumes_on_node_gc.unwrap_or(false),
            node_max_allocs: file.node_max_allocs.unwrap_or(0),
            default_ineligible: file.default_ineligible.unwrap_or(false),
            advertise_http: settings.advertise_http.clone(),
            http_tls: settings.tls.http,
            servers: client.servers.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: settings.build.commit.to_owned(),
            dev: settings.dev,
            max_kill_timeout: file.max_kill_timeout.map_or(defaults.max_kill_timeout, |d| d.to_std()),
            alloc_mounts_dir: client.alloc_mounts_dir.clone(),
            dynamic_users: client.dynamic_users.clone(),
            stats_interval: interval.map_or(defaults.stats_interval, |interval| interval.to_std()),
            neighbours: settings.neighbours.clone(),
            ..defaults
        }
    }

    fn info(&self, shown: Arc<ArcSwap<serde_json::Value>>, part: Option<&ServerPart>) -> AgentInfo {
        let settings = self.settings;
        AgentInfo {
            region: settings.region.clone(),
            datacenter: settings.datacenter.clone(),
            name: settings.name.clone(),
            version: settings.build.version.to_owned(),
            server_id: part.map(|part| part.id.to_string()).unwrap_or_default(),
            http_addr: settings.advertise_http.clone(),
            rpc_addr: if settings.server.is_some() { settings.advertise_rpc.clone() } else { String::new() },
            dev: settings.dev,
            metrics: settings.metrics,
            ui: settings.ui.clone(),
            config: shown.into(),
        }
    }
}
