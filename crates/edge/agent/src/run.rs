//! Runs server, client, RPC and HTTP in one process. They start in this order and stop in the opposite one.

use crate::data_dir;
use crate::error::AgentError;
use crate::flags::Flags;
use crate::logging::Levels;
use crate::monitor::Monitors;
use crate::notify;
use crate::reload::Reloader;
use crate::settings::Settings;
use crate::start::RunningServer;
use crate::tls::Live;
use caravan_http::Reload as _;
use caravan_rpc::Limits;
use caravan_types::UnixNanos;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The time from the start of the agent to the first release of memory. Elections and fingerprints have ended by
/// then.
const STARTUP_MEMORY_DELAY: Duration = Duration::from_secs(3);

/// The interval at which the memory of the program's pages is read.
const MEMORY_INTERVAL: Duration = Duration::from_secs(30);

/// The bytes of program pages below which a release is not worthwhile: a release and the new page faults cost about a
/// millisecond.
const MEMORY_SLACK: u64 = 8 << 20;

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
        Some(server) => {
            Some((listen("RPC", settings.rpc).await?, crate::servers::listen(&server.cluster).await?))
        }
        None => None,
    };
    let fail = |source| AgentError::DataDir { path: settings.data_dir.clone(), source };
    data_dir::make(&settings.data_dir, settings.dev).map_err(fail)?;
    if !settings.dev {
        let machine = settings.client.is_some().then(data_dir::machine).flatten();
        data_dir::claim(&settings.data_dir, &settings.build, machine)?;
    }
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
        stop_members: CancellationToken::new(),
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
        notify::ready(&settings.name);
        agent.clients.spawn(release_program_memory(agent.stop.clone()));
    }
    let (result, server) = match result {
        Ok(mut parts) => (agent.wait(signals, &parts.reloader).await, parts.server.take()),
        Err(error) => (Err(error), None),
    };
    let leaves = matches!(result, Ok(Ended::Leaving));
    agent.end(server, leaves).await;
    if settings.dev
        && let Err(error) = data_dir::remove(&settings.data_dir)
    {
        let error = caravan_sys::describe(&error);
        tracing::warn!(error, dir = %settings.data_dir.display(), "the temporary directory was not removed");
    }
    result.map(|_| ())
}

/// The way in which a signal requests that an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The agent's server stays a member of the cluster.
    Staying,
    /// The agent's server leaves the cluster for good.
    Leaving,
}

/// Returns the warning of a server whose RPC port others can reach without TLS.
pub(crate) fn open_port(settings: &Settings) -> Option<String> {
    let is_open = settings.server.is_some() && !settings.tls.rpc && !settings.rpc.ip().is_loopback();
    is_open.then(|| {
        format!(
            "tls {{ rpc = true }} is not set and the RPC port listens on {}: any client that reaches the port can read the \
             traffic of the agents and register nodes; use TLS, or keep the port in a network of agents only",
            settings.rpc
        )
    })
}

/// Releases the pages of the program that only the start needed, once the start has certainly ended. Later, releases
/// the pages that a burst of work left, for example the start of 50 tasks.
async fn release_program_memory(stop: CancellationToken) {
    let mut delay = STARTUP_MEMORY_DELAY;
    let mut kept = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(delay) => delay = MEMORY_INTERVAL,
        }
        let released = tokio::task::spawn_blocking(move || pages_kept(kept)).await;
        match released {
            Ok(Ok(now)) => kept = now,
            Ok(Err(error)) => {
                let error = caravan_sys::describe(&error);
                tracing::debug!(error, "unused pages of the program could not be released");
            }
            Err(_) => return,
        }
    }
}

/// Releases the pages of the program if there are many more than `kept`, the bytes that remained after the last
/// release. Returns the bytes that remain now.
fn pages_kept(kept: u64) -> Result<u64, caravan_sys::Error> {
    let before = caravan_sys::pages::resident_program()?;
    if before <= kept.saturating_add(MEMORY_SLACK) {
        return Ok(kept);
    }
    caravan_sys::pages::release_program()?;
    caravan_sys::pages::resident_program()
}

async fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, AgentError> {
    TcpListener::bind(address).await.map_err(|source| AgentError::Bind { what, address, source })
}

pub(crate) struct Agent<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) flags: Flags,
    pub(crate) tls: Live,
    pub(crate) logs: Monitors,
    pub(crate) levels: Levels,
    pub(crate) limits: Limits,
    pub(crate) http_address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) stop_server: CancellationToken,
    /// The token that stops the membership. It is cancelled last, so that the server can leave.
    pub(crate) stop_members: CancellationToken,
    pub(crate) clients: TaskTracker,
    pub(crate) servers: TaskTracker,
    pub(crate) failed: (tokio::sync::mpsc::Sender<AgentError>, tokio::sync::mpsc::Receiver<AgentError>),
}

impl Agent<'_> {
    /// Waits for a signal or a failure.
    async fn wait(&mut self, signals: Signals, reloader: &Reloader) -> Result<Ended, AgentError> {
        let Signals { mut interrupt, mut terminate, mut hangup } = signals;
        let ended = loop {
            tokio::select! {
                _ = interrupt.recv() => {
                    tracing::info!("interrupted: the agent stops");
                    break Ok(self.settings.leaves.on_interrupt);
                }
                _ = terminate.recv() => {
                    tracing::info!("termination requested: the agent stops");
                    break Ok(self.settings.leaves.on_terminate);
                }
                _ = hangup.recv() => {
                    notify::reloading();
                    // The reload logs its errors.
                    drop(reloader.reload());
                    notify::ready(&self.settings.name);
                    continue;
                }
                failure = self.failed.1.recv() => {
                    if let Some(error) = failure {
                        break Err(error);
                    }
                }
            }
        };
        // A signal while the agent stops ends the process immediately.
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::warn!("received a signal while stopping: the agent ends immediately");
            std::process::exit(1);
        });
        ended.map(|leaves| if leaves { Ended::Leaving } else { Ended::Staying })
    }

    /// Stops the agent. The client stops first: a development agent ends its tasks and releases its volumes, which
    /// needs servers.
    async fn end(self, server: Option<RunningServer>, leaves: bool) {
        notify::stopping();
        self.stop.cancel();
        self.clients.close();
        self.clients.wait().await;
        if let Some(RunningServer { handle, members }) = server {
            // Another server takes over immediately, and not only after an election.
            if leaves {
                handle.cluster().leave().await;
                // The membership stops only with the agent.
                let _ = members.leave().await;
            } else {
                handle.cluster().give_up().await;
            }
        }
        self.stop_server.cancel();
        self.stop_members.cancel();
        self.servers.close();
        self.servers.wait().await;
    }
}

/// Returns the time of the wall clock.
pub(crate) fn now() -> UnixNanos {
    UnixNanos(caravan_sys::time::wall_nanos())
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
