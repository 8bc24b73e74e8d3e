//! Running allocations: [`alloc`] for the whole with its hooks, [`task`] for each task; what they decide is in the
//! pure modules [`lifecycle`] and [`status`].

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
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What every runner works with.
#[derive(Debug)]
pub(crate) struct Context {
    /// Settings.
    pub(crate) config: ClientConfig,
    /// Who the node is.
    pub(crate) identity: Arc<Identity>,
    /// What must not be forgotten.
    pub(crate) store: Store,
    /// The node.
    pub(crate) node: NodeState,
    /// Drivers.
    pub(crate) drivers: DriverManager,
    /// What users changed of the node's free pairs.
    pub(crate) meta: Mutex<BTreeMap<String, Option<String>>>,
    /// The node's signed identity, once somebody asked for it.
    pub(crate) signed: tokio::sync::Mutex<Option<SignedNode>>,
    /// The allocations of an earlier agent are taken back.
    pub(crate) restored: CancellationToken,
    /// Who answers requests of tasks.
    pub(crate) task_api: Served,
    /// On which processors tasks run.
    pub(crate) cores: Cores,
    /// Plugins.
    pub(crate) plugins: Manager,
    /// Volumes.
    pub(crate) volumes: VolumeManager,
    /// Mounts that plugins left.
    pub(crate) left_mounts: LeftMounts,
    /// Host volumes.
    pub(crate) host_volumes: HostVolumes,
    /// What was counted and timed.
    pub(crate) meters: Meters,
    /// Until when volumes with one writer may be used.
    pub(crate) lease: NodeLease,
    /// When the servers last answered a sign of life, and for how long they took it.
    pub(crate) heartbeat: Mutex<Option<(Instant, Duration)>>,
    /// Servers.
    pub(crate) servers: Arc<dyn Servers>,
    /// Status updates.
    pub(crate) reporter: Reporter,
    /// `<state_dir>/csi`.
    pub(crate) csi_dir: PathBuf,
    /// Deadlines of CSI calls.
    pub(crate) deadlines: Deadlines,
    /// The host's environment as tasks may see it.
    pub(crate) host_env: BTreeMap<String, String>,
    /// The agent ends; tasks live on.
    pub(crate) shutdown: CancellationToken,
}
