//! What the routes work on.

use crate::body_read::Bodies;
use crate::cache::Answers;
use crate::client_side::ClientSide;
use crate::figures::Requests;
use crate::log_source::LogSource;
use crate::profiler::Profiler;
use crate::transport::Transport;
use arc_swap::ArcSwap;
use caravan_rpc::{Channel, Targets};
use caravan_server::Handle;
use caravan_types::UnixNanos;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What an agent is set to, as it is shown; it may change while the agent runs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<ArcSwap<Value>>);

impl Shown {
    /// As it is now.
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

/// Has the agent read its configuration again.
pub trait Reload: fmt::Debug + Send + Sync {
    /// All or nothing.
    ///
    /// # Errors
    /// What cannot be read or makes no sense, as a sentence; then everything stays as it was.
    fn reload(&self) -> Result<(), String>;
}

/// Facts about this agent.
#[derive(Clone, Debug, Default)]
pub struct AgentInfo {
    /// Region.
    pub region: String,
    /// Datacenter.
    pub datacenter: String,
    /// Name, unique in the region.
    pub name: String,
    /// Version, such as `0.1.0`.
    pub version: String,
    /// Id of the server, a UUID; empty on agents that are none.
    pub server_id: String,
    /// HTTP address that others reach, `host:port`.
    pub http_addr: String,
    /// RPC address that others reach, `host:port`; empty on agents that are no server.
    pub rpc_addr: String,
    /// Nothing is kept over a restart.
    pub dev: bool,
    /// What `/v1/metrics` tells beside what is always told.
    pub metrics: MetricsConfig,
    /// The `config` object of `/v1/agent/self`, secrets left out by whoever makes it.
    pub config: Shown,
}

/// What metrics tell (`telemetry` block of the agent's configuration).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricsConfig {
    /// What each allocation uses (`publish_allocation_metrics`).
    pub allocations: bool,
    /// What the host uses (`publish_node_metrics`).
    pub node: bool,
    /// Answers in the format of Prometheus (`prometheus_metrics`).
    pub prometheus: bool,
}

/// Everything that the routes need; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HttpState {
    /// The server in this agent.
    pub server: Option<Handle>,
    /// The client in this agent.
    pub client: Option<Arc<dyn ClientSide>>,
    /// The way to a server, for agents that are none.
    pub relay: Option<Channel>,
    /// The servers that the agent speaks to, for agents that are none.
    pub servers: Option<Targets>,
    /// The agent's log, for its monitor.
    pub logs: Option<Arc<dyn LogSource>>,
    /// Takes profiles of the process.
    pub profiler: Option<Arc<dyn Profiler>>,
    /// Reads the configuration again.
    pub reload: Option<Arc<dyn Reload>>,
    /// Whether access control is on, on agents without a server: they ask one.
    pub acl: bool,
    /// Whether only tasks ask here, who have to say who they are.
    pub for_tasks: bool,
    /// Facts.
    pub info: Arc<AgentInfo>,
    /// When this agent started.
    pub started: UnixNanos,
    /// Settings of the listener.
    pub transport: Arc<Transport>,
    /// What requests share.
    pub shared: Arc<Shared>,
    /// Once cancelled, blocking queries answer and streams end.
    pub stopping: CancellationToken,
}

/// What the requests of an agent share, beside the agent itself.
#[derive(Debug, Default)]
pub struct Shared {
    /// Answers that are asked for again before anything changed.
    pub(crate) answers: Answers,
    /// Request bodies that come in.
    pub(crate) bodies: Bodies,
    /// How many requests there were, and how long they took.
    pub(crate) requests: Requests,
}
