//! The state that the handlers share.

use crate::body_read::Bodies;
use crate::cache::Answers;
use crate::client_side::ClientSide;
use crate::figures::Requests;
use crate::log_source::LogSource;
use crate::profiler::Profiler;
use crate::transport::Transport;
use arc_swap::ArcSwap;
use caravan_rpc::{Channel, ServerList};
use caravan_server::Handle;
use caravan_types::UnixNanos;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The displayed configuration of an agent, which may change while the agent runs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<ArcSwap<Value>>);

impl Shown {
    /// Returns the current configuration.
    pub fn now(&self) -> Arc<Value> {
        self.0.load_full()
    }
}

impl From<Value> for Shown {
    fn from(value: Value) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }
}

impl From<Arc<ArcSwap<Value>>> for Shown {
    fn from(shared: Arc<ArcSwap<Value>>) -> Self {
        Self(shared)
    }
}

/// The part of the agent that can reload its configuration.
pub trait Reload: fmt::Debug + Send + Sync {
    /// Applies the whole configuration or none of it.
    ///
    /// # Errors
    /// Returns the reason as a sentence if the configuration is unreadable or invalid; then nothing changes.
    fn reload(&self) -> Result<(), String>;
}

/// Facts about this agent.
#[derive(Clone, Debug, Default)]
pub struct AgentInfo {
    /// The agent's region.
    pub region: String,
    /// The agent's datacenter.
    pub datacenter: String,
    /// The agent's name, unique in the region.
    pub name: String,
    /// The agent's version, such as `0.1.0`.
    pub version: String,
    /// The id of the server, a UUID; empty on agents without a server.
    pub server_id: String,
    /// The advertised HTTP address, `host:port`.
    pub http_addr: String,
    /// The advertised RPC address, `host:port`; empty on agents without a server.
    pub rpc_addr: String,
    /// Whether the agent runs in development mode, in which nothing survives a restart.
    pub dev: bool,
    /// The optional metrics of `/v1/metrics`.
    pub metrics: MetricsConfig,
    /// The settings of the web page.
    pub ui: caravan_ui::Settings,
    /// The `config` object of `/v1/agent/self`; its creator removes secrets.
    pub config: Shown,
}

/// The optional metrics (`telemetry` block of the agent's configuration).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Whether to publish the usage of each allocation (`publish_allocation_metrics`).
    pub allocations: bool,
    /// Whether to publish the usage of the host (`publish_node_metrics`).
    pub node: bool,
    /// Whether to answer in the Prometheus format (`prometheus_metrics`).
    pub prometheus: bool,
}

/// The state of the handlers; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HttpState {
    /// The server of this agent; `None` on agents without one.
    pub server: Option<Handle>,
    /// The membership of servers; `None` on agents without a server.
    pub members: Option<caravan_members::Handle>,
    /// The client of this agent; `None` on agents without one.
    pub client: Option<Arc<dyn ClientSide>>,
    /// The channel to a server, on agents without one.
    pub relay: Option<Channel>,
    /// The servers that the agent uses, on agents without a server.
    pub servers: Option<ServerList>,
    /// The agent's log, for the monitor.
    pub logs: Option<Arc<dyn LogSource>>,
    /// The source of profiles; `None` if profiles are not available.
    pub profiler: Option<Arc<dyn Profiler>>,
    /// The part that reloads the configuration; `None` if the agent cannot reload.
    pub reload: Option<Arc<dyn Reload>>,
    /// Whether access control is on. Agents without a server need this flag, because they request each check from a
    /// server.
    pub acl: bool,
    /// Whether only tasks use this listener; every request must then authenticate.
    pub for_tasks: bool,
    /// The facts about this agent.
    pub info: Arc<AgentInfo>,
    /// The time when this agent started.
    pub started: UnixNanos,
    /// The settings of the listener.
    pub transport: Arc<Transport>,
    /// The state that requests share.
    pub shared: Arc<Shared>,
    /// The token whose cancellation ends blocking queries and streams.
    pub stopping: CancellationToken,
}

/// The state that requests of an agent share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The cached answers.
    pub(crate) answers: Answers,
    /// The request bodies that are being received.
    pub(crate) bodies: Bodies,
    /// The number and times of requests.
    pub(crate) requests: Requests,
}
