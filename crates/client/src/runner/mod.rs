//! Running allocations: [`alloc`] runs a whole allocation with its hooks, [`task`] each task. The pure modules
//! [`lifecycle`] and [`status`] decide.

mod alloc;
mod artifacts;
mod binds;
mod broken;
mod csi_hook;
mod disk;
mod fence;
mod fresh;
mod health;
mod host_hook;
mod identity;
mod lifecycle;
mod meters;
mod network;
mod payload;
#[cfg(test)]
mod race_tests;
mod service_hook;
mod start;
mod status;
mod task;
mod templates;
mod time_limit;
mod unpack;
pub(crate) mod users;

pub(crate) use alloc::{AllocRunner, Stage};
pub(crate) use csi_hook::claims;
pub(crate) use network::sweep;

use crate::config::ClientConfig;
use crate::cores::Cores;
use crate::csi::{LeftMounts, Manager, VolumeManager};
use crate::drivers::DriverManager;
use crate::host_volumes::HostVolumes;
use crate::lease::NodeLease;
use crate::node::NodeState;
use crate::reporter::Reporter;
use crate::servers::Servers;
use crate::state::{Identity, Store};
use crate::task_api::Served;
use caravan_csi::Deadlines;
use caravan_meters::Meters;
use caravan_types::wire::SignedNode;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The shared dependencies of all runners.
#[derive(Debug)]
pub(crate) struct Context {
    /// The client's settings.
    pub(crate) config: ClientConfig,
    /// The identity of the node.
    pub(crate) identity: Arc<Identity>,
    /// The durable client state.
    pub(crate) store: Store,
    /// The node as reported to the servers.
    pub(crate) node: NodeState,
    /// The task drivers.
    pub(crate) drivers: DriverManager,
    /// The users' changes of the node metadata.
    pub(crate) meta: Mutex<BTreeMap<String, Option<String>>>,
    /// The node's signed identity, after the first request for it.
    pub(crate) signed: tokio::sync::Mutex<Option<SignedNode>>,
    /// Cancelled once the allocations of an earlier agent are restored.
    pub(crate) restored: CancellationToken,
    /// The server for API requests of tasks.
    pub(crate) task_api: Served,
    /// The assignment of processors to tasks.
    pub(crate) cores: Cores,
    /// The CSI plugins.
    pub(crate) plugins: Manager,
    /// The mounted CSI volumes.
    pub(crate) volumes: VolumeManager,
    /// Mounts that plugins left.
    pub(crate) left_mounts: LeftMounts,
    /// The node's host volumes.
    pub(crate) host_volumes: HostVolumes,
    /// Counts and times, for metrics.
    pub(crate) meters: Meters,
    /// The lease for single-writer volumes.
    pub(crate) lease: NodeLease,
    /// When the servers last answered a heartbeat, and the TTL that they returned.
    pub(crate) heartbeat: Mutex<Option<(Instant, Duration)>>,
    /// The connection to the servers.
    pub(crate) servers: Arc<dyn Servers>,
    /// Status reports to the servers.
    pub(crate) reporter: Reporter,
    /// The directory of CSI sockets and mounts: `<state_dir>/csi`.
    pub(crate) csi_dir: PathBuf,
    /// Timeouts of CSI calls.
    pub(crate) deadlines: Deadlines,
    /// The host's environment as tasks may see it.
    pub(crate) host_env: BTreeMap<String, String>,
    /// Cancelled when the agent ends; tasks keep running.
    pub(crate) shutdown: CancellationToken,
}
