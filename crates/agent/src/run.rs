//! Runs server, client, RPC and HTTP in one process. They start in this order and stop in the opposite one.

use crate::data_dir;
use crate::drivers;
use crate::error::AgentError;
use crate::flags::Flags;
use crate::late::LateServers;
use crate::logging::Levels;
use crate::monitor::Monitors;
use crate::reload::Reloader;
use crate::settings::{ClientSettings, ServerSettings, Settings};
use crate::tls::Live;
use arc_swap::ArcSwap;
use caravan_client::{Client, ClientConfig};
use caravan_consensus::{Config as LogConfig, ServerId};
use caravan_http::{AgentInfo, HttpState, Listener, Reload as _, TaskRoutes};
use caravan_rpc::{
    Authenticator, Certificate, Channel, Code, ConnectOptions, Hello, Limits, PeerIdentity, Registration,
    ReverseOptions, ReverseRegistry, ReverseService, Role, RpcError, RpcServer, Secret, ServerOptions,
};
use caravan_server::{HeartbeatConfig, ServerConfig};
use caravan_types::{NodeId, UnixNanos};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// From the start until its memory is released: elections and fingerprints are over by then.
const STARTUP_MEMORY_DELAY: Duration = Duration::from_secs(3);

/// The signals that end an agent or reload its configuration.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the signal handlers, so that an agent that is stopped during its start also ends in order. Needs a
    /// runtime.
    pub(crate) fn listen() -> Result<Self, AgentError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(AgentError::Runtime)?,
            terminate: signal(SignalKind::terminate()).map_err(AgentError::Runtime)?,
            hangup: signal(SignalKind::hangup()).map_err(AgentError::Runtime)?,
        })
    }
}

/// Runs an agent until a signal, or until a part of it fails permanently.
pub(crate) async fn run(
    settings: Settings,
    flags: Flags,
    signals: Signals,
    logs: Monitors,
    levels: Levels,
) -> Result<(), AgentError> {
    let tls = Live::read(&settings.tls, &settings.region)?;
    // Ports come first: an agent that cannot listen must not touch any state.
    let http = listen("HTTP", settings.http).await?;
    let rpc = match &settings.server {
        Some(_) => Some(listen("RPC", settings.rpc).await?),
        None => None,
    };
    let fail = |source| AgentError::DataDir { path: settings.data_dir.clone(), source };
    data_dir::make(&settings.data_dir, settings.dev).map_err(fail)?;
    let mut agent = Agent {
        settings: &settings,
        flags,
        tls,
        logs,
        levels,
        limits: Limits::new(settings.limits.rpc_handshake, settings.limits.rpc_connections, Instant::now()),
        http_address: http.local_addr().map_err(AgentError::Runtime)?,
        stop: CancellationToken::new(),
        stop_server: CancellationToken::new(),
        clients: TaskTracker::new(),
        servers: TaskTracker::new(),
        failed: tokio::sync::mpsc::channel(4),
    };
    if let Some(warning) = open_port(&settings) {
        tracing::warn!("{warning}");
    }
    if let Some(notice) = root_notice(&settings) {
        tracing::info!("{notice}");
    }
    let result = agent.start(http, rpc).await;
    if result.is_ok() {
        banner(&settings, agent.http_address);
        agent.clients.spawn(release_startup_memory(agent.stop.clone()));
    }
    let result = match result {
        Ok(parts) => agent.wait(signals, &parts.reloader).await,
        Err(error) => Err(error),
    };
    agent.end().await;
    if settings.dev
        && let Err(error) = data_dir::remove(&settings.data_dir)
    {
        let error = caravan_sys::describe(&error);
        tracing::warn!(error, dir = %settings.data_dir.display(), "the temporary directory stays");
    }
    result
}

/// Returns the warning of a server whose RPC port others can reach without TLS.
pub(crate) fn open_port(settings: &Settings) -> Option<String> {
    let is_open = settings.server.is_some() && !settings.tls.rpc && !settings.rpc.ip().is_loopback();
    is_open.then(|| {
        format!(
            "tls {{ rpc = true }} is not set and the RPC port listens on {}: whoever reaches it can read what agents \
             say to each other and register nodes of its own; use TLS, or keep the port to a network of agents only",
            settings.rpc
        )
    })
}

/// Releases the pages of the program that only the start needed, once the start is certainly over.
async fn release_startup_memory(stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = tokio::time::sleep(STARTUP_MEMORY_DELAY) => {}
    }
    let released = tokio::task::spawn_blocking(caravan_sys::pages::release_program).await;
    if let Ok(Err(error)) = released {
        let error = caravan_sys::describe(&error);
        tracing::debug!(error, "the memory of the start stays mapped");
    }
}

async fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address).await.map_err(|source| AgentError::Bind { what, address, source })
}

struct Agent<'a> {
    settings: &'a Settings,
    flags: Flags,
    tls: Live,
    logs: Monitors,
    levels: Levels,
    limits: Limits,
    http_address: SocketAddr,
    stop: CancellationToken,
    stop_server: CancellationToken,
    clients: TaskTracker,
    servers: TaskTracker,
    failed: (tokio::sync::mpsc::Sender<AgentError>, tokio::sync::mpsc::Receiver<AgentError>),
}

/// The parts that must live as long as the agent.
struct Parts {
    _way_back: Option<Registration>,
    reloader: Arc<Reloader>,
}

impl Agent<'_> {
    async fn start(&mut self, http: TcpListener, rpc: Option<TcpListener>) -> Result<Parts, AgentError> {
        let registry = ReverseRegistry::default();
        let server = match &self.settings.server {
            Some(server) => Some(self.start_server(server, registry.clone()).await?),
            None => None,
        };
        let shown = Arc::new(ArcSwap::from_pointee(crate::shown::config(self.settings)));
        let mut state = HttpState {
            server: server.clone(),
            client: None,
            relay: None,
            logs: Some(Arc::new(self.logs.clone())),
            profiler: Some(Arc::new(crate::profile::CpuProfiler::default())),
            info: Arc::new(self.info(shown.clone())?),
            acl: self.settings.acl.enabled,
            started: now(),
            transport: Arc::new(self.settings.transport.clone()),
            stopping: self.stop.clone(),
            ..HttpState::default()
        };
        let router = server.as_ref().map(caravan_server::Handle::rpc);
        let mut way_back = None;
        let (mut client_service, mut client_handle) = (None, None);
        if let Some(client) = &self.settings.client {
            let late = Arc::new(LateServers::default());
            let (handle, service) =
                Client::new(self.client_config(client), late.clone(), drivers::all(self.settings)?)
                    .map_err(|e| AgentError::Client(caravan_sys::describe(&e)))?;
            let identity = PeerIdentity::Client {
                node_id: handle.node_id().to_string(),
                secret: Secret::new(handle.node_secret().expose()),
            };
            state.client = Some(Arc::new(handle.clone()));
            match &server {
                Some(server) => {
                    late.set(Channel::local(server.rpc().build(), identity.clone()));
                }
                None => {
                    let mut connect =
                        ConnectOptions::new(client.servers.clone(), identity.clone(), &self.settings.region);
                    if let Some(connector) = self.tls.connecting() {
                        connect.connector = Arc::new(connector);
                    }
                    let channel = Channel::connect(connect.clone());
                    late.set(channel.clone());
                    state.relay = Some(channel);
                    state.servers = Some(connect.targets.clone());
                    let routes = handle.routes(caravan_http::rpc(state.clone())).build();
                    let (reverse, _) = ReverseService::new(ReverseOptions { connect, router: routes });
                    self.clients.spawn(reverse.run(self.stop.clone()));
                }
            }
            if server.is_some() {
                let routes = handle.routes(caravan_http::rpc(state.clone())).build();
                let node = handle.node_id().to_string();
                let channel =
                    Channel::local(routes, PeerIdentity::Server { name: self.settings.name.clone() });
                way_back = Some(registry.register(node, channel));
            }
            client_service = Some(service);
            client_handle = Some(handle);
        }
        let reloader = Arc::new(Reloader {
            flags: self.flags.clone(),
            turn: Mutex::default(),
            tls: self.tls.clone(),
            levels: self.levels.clone(),
            limits: self.limits.clone(),
            client: client_handle.clone(),
            shown,
            started: self.settings.clone(),
        });
        state.reload = Some(reloader.clone());
        if let (Some(router), Some(server), Some(rpc)) = (router, server, rpc) {
            let identity = PeerIdentity::Server { name: self.settings.name.clone() };
            let router = router.merge(caravan_http::rpc(state.clone())).build();
            let mut options = ServerOptions {
                registry,
                authenticator: Arc::new(KnownNodes {
                    server,
                    region: self.settings.region.clone(),
                    tls: self.tls.clone(),
                }),
                limits: self.limits.clone(),
                ..ServerOptions::new(identity, router)
            };
            if let Some(acceptor) = self.tls.accepting() {
                options.acceptor = Arc::new(acceptor);
            }
            let rpc = RpcServer::on(rpc, options).map_err(AgentError::Runtime)?;
            self.servers.spawn(rpc.run(self.stop_server.clone()));
        }
        if let Some(client) = client_handle {
            client.serve_tasks(Arc::new(TaskRoutes::new(state.clone())));
        }
        if let Some(service) = client_service {
            self.clients.spawn(service.run(self.stop.clone()));
        }
        let (stop, failed) = (self.stop_server.clone(), self.failed.0.clone());
        let http = match self.tls.http() {
            Some(acceptor) => {
                Listener::Tls { listener: http, acceptor, patience: self.settings.limits.https_handshake }
            }
            None => Listener::Tcp(http),
        };
        self.servers.spawn(async move {
            if let Err(source) = caravan_http::serve(http, state, stop).await {
                // The receiver lives as long as the agent.
                let _ = failed.send(AgentError::Runtime(source)).await;
            }
        });
        Ok(Parts { _way_back: way_back, reloader })
    }

    async fn start_server(
        &self,
        server: &ServerSettings,
        registry: ReverseRegistry,
    ) -> Result<caravan_server::Handle, AgentError> {
        let log = if self.settings.dev {
            LogConfig::memory(ServerId(1))
        } else {
            LogConfig::dir(ServerId(1), &self.settings.advertise_rpc, server.data_dir.join("raft"))
        };
        let defaults = HeartbeatConfig::default();
        let heartbeat = HeartbeatConfig {
            min_ttl: server.min_heartbeat_ttl,
            grace: server.heartbeat_grace,
            failover: server.failover_heartbeat_ttl.unwrap_or(defaults.failover),
        };
        let config = ServerConfig {
            region: self.settings.region.clone(),
            log,
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
            .map_err(|e| AgentError::Server(e.message))?;
        if let Some(indexes) = server.event_buffer {
            handle.store().events().remember(indexes);
        }
        let (stop, failed) = (self.stop_server.clone(), self.failed.0.clone());
        self.servers.spawn(async move {
            if let Err(error) = service.run(stop).await {
                // The receiver lives as long as the agent.
                let _ = failed.send(AgentError::Server(error.message)).await;
            }
        });
        Ok(handle)
    }

    fn client_config(&self, client: &ClientSettings) -> ClientConfig {
        let (settings, file) = (self.settings, &client.file);
        let defaults = ClientConfig::new(&settings.data_dir, &settings.name);
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
            dev: settings.dev,
            max_kill_timeout: file.max_kill_timeout.map_or(defaults.max_kill_timeout, |d| d.to_std()),
            plugins: settings.plugins.clone(),
            neighbours: settings.neighbours.clone(),
            ..defaults
        }
    }

    fn info(&self, shown: Arc<ArcSwap<serde_json::Value>>) -> Result<AgentInfo, AgentError> {
        let settings = self.settings;
        Ok(AgentInfo {
            region: settings.region.clone(),
            datacenter: settings.datacenter.clone(),
            name: settings.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server_id: match &settings.server {
                Some(server) if !settings.dev => server_id(&server.data_dir)?,
                Some(_) => uuid::Uuid::new_v4().to_string(),
                None => String::new(),
            },
            http_addr: settings.advertise_http.clone(),
            rpc_addr: if settings.server.is_some() { settings.advertise_rpc.clone() } else { String::new() },
            dev: settings.dev,
            metrics: settings.metrics,
            config: shown.into(),
        })
    }

    /// Waits for a signal or a failure.
    async fn wait(&mut self, signals: Signals, reloader: &Reloader) -> Result<(), AgentError> {
        let Signals { mut interrupt, mut terminate, mut hangup } = signals;
        loop {
            tokio::select! {
                _ = interrupt.recv() => tracing::info!("interrupted: the agent stops"),
                _ = terminate.recv() => tracing::info!("asked to end: the agent stops"),
                _ = hangup.recv() => {
                    // The reload logs its errors.
                    drop(reloader.reload());
                    continue;
                }
                failure = self.failed.1.recv() => {
                    if let Some(error) = failure {
                        return Err(error);
                    }
                }
            }
            break;
        }
        // A second signal ends the process at once.
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::warn!("asked again: the agent ends at once");
            std::process::exit(1);
        });
        Ok(())
    }

    /// Stops the agent. The client stops first: a development agent ends its tasks and releases its volumes, which
    /// needs servers.
    async fn end(self) {
        self.stop.cancel();
        self.clients.close();
        self.clients.wait().await;
        self.stop_server.cancel();
        self.servers.close();
        self.servers.wait().await;
    }
}

/// An authenticator that accepts only nodes of this region. A node proves its identity by the secret of its first
/// registration.
#[derive(Debug)]
struct KnownNodes {
    server: caravan_server::Handle,
    region: String,
    tls: Live,
}

impl Authenticator for KnownNodes {
    fn authenticate<'a>(
        &'a self,
        role: Role,
        hello: &'a Hello,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        let known = match &hello.identity {
            PeerIdentity::Client { node_id, secret } => {
                self.server.is_node(&NodeId::new(node_id), secret.expose())
            }
            _ => None,
        };
        let verdict = match &hello.identity {
            _ if hello.region != self.region => Err(RpcError::new(
                Code::Permission,
                format!("region {:?} is not served here: this server's is {:?}", hello.region, self.region),
            )),
            PeerIdentity::Client { node_id, .. } if known == Some(false) => {
                Err(RpcError::new(Code::Permission, format!("node {node_id} is known by another secret")))
            }
            // Servers send calls over such a connection, so it needs a registered node.
            PeerIdentity::Client { node_id, .. } if known.is_none() && role == Role::Reversed => {
                Err(RpcError::new(Code::NotFound, format!("node {node_id} is not registered yet")))
            }
            PeerIdentity::Server { name } => Err(RpcError::new(
                Code::Permission,
                format!("server {name}: only one server is supported yet"),
            )),
            identity => Ok(identity.clone()),
        };
        Box::pin(std::future::ready(verdict))
    }

    fn admit<'a>(
        &'a self,
        role: Role,
        hello: &'a Hello,
        certificate: Option<&'a Certificate>,
    ) -> BoxFuture<'a, Result<PeerIdentity, RpcError>> {
        match self.tls.rules().check(hello, &self.region, certificate) {
            Ok(()) => self.authenticate(role, hello),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn proves(&self, peer: &PeerIdentity, certificate: Option<&Certificate>) -> bool {
        match peer {
            PeerIdentity::Client { node_id, secret } => {
                certificate.is_some()
                    || self.server.is_node(&NodeId::new(node_id), secret.expose()) == Some(true)
            }
            _ => certificate.is_some(),
        }
    }
}

/// Returns the time of the wall clock.
pub(crate) fn now() -> UnixNanos {
    UnixNanos(caravan_sys::time::wall_nanos())
}

/// Returns the server's UUID, which is generated at its first start.
fn server_id(dir: &Path) -> Result<String, AgentError> {
    let fail = |source| AgentError::DataDir { path: dir.to_owned(), source };
    let path = dir.join("server-id");
    match std::fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let id = uuid::Uuid::new_v4().to_string();
    caravan_sys::files::durable_private_dir(dir)
        .map_err(|e| fail(std::io::Error::other(caravan_sys::describe(&e))))?;
    caravan_sys::files::atomic_write(&path, id.as_bytes(), 0o600)
        .map_err(|e| fail(std::io::Error::other(caravan_sys::describe(&e))))?;
    Ok(id)
}

/// Returns the notice of a development agent that gives plugins root on the node.
pub(crate) fn root_notice(settings: &Settings) -> Option<&'static str> {
    (settings.dev && settings.client.is_some() && crate::drivers::allows_privileged_plugins(settings)).then_some(
        "Driver exec gives CSI plugins of type node and monolith root on this host (allow_privileged_plugins).",
    )
}

fn banner(settings: &Settings, http: SocketAddr) {
    let role = match (&settings.server, &settings.client) {
        (Some(_), Some(_)) => "server and client",
        (Some(_), None) => "server",
        _ => "client",
    };
    let scheme = if settings.tls.http { "https" } else { "http" };
    println!("==> Caravan agent started: {role} \"{}\", {scheme}://{http}", settings.name);
    if settings.dev {
        println!("    Development mode: nothing is kept when it ends. Ctrl-C ends it.");
    }
    if let Some(notice) = root_notice(settings) {
        println!("    {notice}");
    }
}
