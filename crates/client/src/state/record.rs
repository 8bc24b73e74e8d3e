//! The records of the client state.

use crate::csi::{ClaimEntry, Registrations};
use crate::host_volumes::HostVolumeRecord;
use crate::restart::RestartTracker;
use caravan_types::alloc::{Allocation, TaskState};
use caravan_types::node::NodeSecret;
use caravan_types::{AllocId, NodeId, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who the node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Its id.
    pub(crate) node_id: NodeId,
    /// The proof of it.
    pub(crate) secret: NodeSecret,
}

/// A task between two lives of the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskRecord {
    /// What was last reported.
    pub(crate) state: TaskState,
    /// The driver's handle of the running task.
    pub(crate) handle: Option<Vec<u8>>,
    /// The driver's id of the task that is started or was about to be.
    pub(crate) driver_id: Option<String>,
    /// Restarts so far.
    pub(crate) restarts: RestartTracker,
    /// Set before a stop: a task found dead afterwards was killed, not lost.
    pub(crate) stopping: bool,
    /// It was ended or not started because the node's lease ran out.
    pub(crate) fenced: bool,
    /// Since when the allocation is on this node.
    pub(crate) begun: UnixNanos,
    /// Its allocation has run as long as it may.
    pub(crate) timed_out: bool,
    /// It will not be started again, and whether that is a failure: decided, not yet carried out.
    pub(crate) over: Option<bool>,
}

/// Everything that was stored.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Who the node is; none on the first start.
    pub(crate) identity: Option<Identity>,
    /// Plugins.
    pub(crate) registrations: Registrations,
    /// What users changed of the node's free pairs.
    pub(crate) node_meta: BTreeMap<String, Option<String>>,
    /// Allocations as the servers sent them.
    pub(crate) allocs: Vec<Allocation>,
    /// Tasks by allocation and name.
    pub(crate) tasks: BTreeMap<(AllocId, String), TaskRecord>,
    /// The ledger of mounts.
    pub(crate) claims: Vec<ClaimEntry>,
    /// Host volumes that servers had made here.
    pub(crate) host_volumes: Vec<HostVolumeRecord>,
}
