//! The state of one allocation and its tasks: records, orders, readiness and stage. Hooks and task runners share the
//! state; this module depends on neither.

mod meters;
mod minders;
mod orders;
mod reports;
mod services;

use crate::alloc_dir::AllocDir;
use crate::clock;
use crate::reporter::Reporter;
use crate::runner::health::Health;
use crate::runner::lifecycle::Role;
use crate::runner::time_limit;
use crate::services::ServiceState;
use crate::state::{NamespaceId, Store, TaskRecord};
use caravan_drivers::NetworkIsolation;
use caravan_meters::Meters;
use caravan_types::alloc::{Allocation, NetworkStatus, TaskRunState};
use caravan_types::{AllocId, UnixNanos};
pub(super) use orders::{Kill, TaskAction};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The permission for tasks to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Hooks are running.
    Preparing,
    /// All hooks succeeded.
    Ready,
    /// A hook failed: no task may start.
    Failed,
}

/// The stage of an allocation's runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Hooks or tasks run.
    Running,
    /// Every task is dead.
    TasksDead,
    /// All volumes and other resources are released.
    Over,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) alloc: Arc<Allocation>,
    pub(super) tasks: BTreeMap<String, Slot>,
    pub(super) stopping: bool,
    /// The time at which this node received the allocation.
    begun: UnixNanos,
    health: Health,
    attached: OwnNetwork,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) record: TaskRecord,
    role: Role,
    leader: bool,
    kill: watch::Sender<Option<Kill>>,
    pub(super) actions: mpsc::UnboundedSender<TaskAction>,
    pub(super) inbox: Option<mpsc::UnboundedReceiver<TaskAction>>,
}

impl Slot {
    fn restart(&self, reason: &str) {
        // A task that is ending does not receive the action, and does not need it.
        let _ = self.actions.send(TaskAction::Restart { reason: reason.to_owned() });
    }
}

/// The network of an allocation, as recorded in its state.
#[derive(Debug, Default)]
pub(super) struct OwnNetwork {
    /// The addresses of the network; `None` before the set-up.
    pub(super) status: Option<Arc<NetworkStatus>>,
    /// Whether a part of the network may exist.
    pub(super) is_held: bool,
}

/// Returns an allocation with the addresses of its network.
fn with_network(alloc: &Allocation, status: &Arc<NetworkStatus>) -> Arc<Allocation> {
    Arc::new(Allocation { network_status: Some(Arc::clone(status)), ..alloc.clone() })
}

/// The network that tasks join when they start.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) network: NetworkIsolation,
    /// The namespace; absent if the driver that created the network has none for it.
    pub(super) namespace: Option<NamespaceId>,
}

/// The receivers of the changes of an allocation's state.
#[derive(Clone, Debug)]
pub(crate) struct Outlets {
    /// The durable client state.
    pub(crate) store: Store,
    /// Status reports to the servers.
    pub(crate) reporter: Reporter,
    /// Counts and durations, for metrics.
    pub(crate) meters: Meters,
}

/// The state of an allocation on this node. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct AllocState {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    outlets: Outlets,
    dir: AllocDir,
    state: Mutex<State>,
    /// A counter of the changes that siblings or the hooks may wait for.
    changes: watch::Sender<u64>,
    readiness: watch::Sender<Readiness>,
    stage: watch::Sender<Stage>,
    services: ServiceState,
    /// The network that the tasks join; absent means the network of the node.
    network: Mutex<Option<Joined>>,
}

impl AllocState {
    /// Creates the state of an allocation, with the records of its tasks from an earlier agent.
    pub(super) fn new(
        outlets: Outlets,
        alloc_dir: &Path,
        alloc: Arc<Allocation>,
        mut records: BTreeMap<String, TaskRecord>,
    ) -> Self {
        let tasks = alloc.group().map_or(&[][..], |g| &g.tasks);
        let now = clock::now();
        let begun = records.values().map(|record| time_limit::begun(record, now)).min().unwrap_or(now);
        let late = time_limit::left(&alloc, begun, now).is_some_and(|left| left.is_zero());
        let slots = tasks.iter().map(|task| {
            let (actions, inbox) = mpsc::unbounded_channel();
            let mut record = records.remove(&task.name).unwrap_or_default();
            record.begun = begun;
            record.timed_out |= late && record.state.state != TaskRunState::Dead;
            let slot = Slot {
                record,
                role: Role::from_task(task),
                leader: task.leader,
                kill: watch::Sender::new(None),
                actions,
                inbox: Some(inbox),
            };
            (task.name.clone(), slot)
        });
        let health = Health::new(&alloc, now);
        let tasks: BTreeMap<String, Slot> = slots.collect();
        let timed_out = tasks.values().any(|slot| slot.record.timed_out);
        let state = State {
            tasks,
            stopping: false,
            alloc: Arc::clone(&alloc),
            begun,
            health,
            attached: OwnNetwork::default(),
        };
        let inner = Inner {
            dir: AllocDir::new(alloc_dir, &alloc.id),
            outlets,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            readiness: watch::Sender::new(Readiness::Preparing),
            stage: watch::Sender::new(Stage::Running),
            services: ServiceState::default(),
            network: Mutex::default(),
        };
        let this = Self { inner: Arc::new(inner) };
        if alloc.server_terminal() {
            this.stop(false);
        }
        if timed_out {
            this.end(&Kill { timed_out, ..Kill::default() });
        }
        this
    }

    /// Returns the state of the allocation's services.
    pub(crate) fn services(&self) -> &ServiceState {
        &self.inner.services
    }
    /// Returns the network that the tasks join when they start; `None` means the network of the node.
    pub(in crate::runner) fn network(&self) -> Option<NetworkIsolation> {
        self.inner.network.lock().as_ref().map(|joined| joined.network.clone())
    }
    /// Returns the namespace of the network that the tasks join, if it has one.
    pub(in crate::runner) fn namespace(&self) -> Option<NamespaceId> {
        self.inner.network.lock().as_ref().and_then(|joined| joined.namespace)
    }
    /// Sets the network that the tasks join when they start.
    pub(in crate::runner) fn set_network(&self, joined: Joined) {
        *self.inner.network.lock() = Some(joined);
    }
    /// Returns the allocation's directories.
    pub(crate) fn dir(&self) -> &AllocDir {
        &self.inner.dir
    }
    /// Returns the allocation as the servers last sent it.
    pub(crate) fn alloc(&self) -> Arc<Allocation> {
        Arc::clone(&self.lock().alloc)
    }
    /// Returns the time at which this node received the allocation.
    pub(in crate::runner) fn begun(&self) -> UnixNanos {
        self.lock().begun
    }
    /// Applies a new version of the allocation from the servers; stops the allocation if the servers require that.
    pub(crate) fn receive(&self, alloc: Arc<Allocation>) {
        let stop = alloc.server_terminal();
        let no_delay = alloc.desired_transition.no_shutdown_delay == Some(true);
        {
            let mut state = self.lock();
            state.health.receive(&alloc, clock::now());
            state.alloc = match &state.attached.status {
                Some(status) => with_network(&alloc, status),
                None => alloc,
            };
        }
        self.changed();
        if stop {
            self.stop(no_delay);
        }
    }

    /// Records that the allocation holds a network from now on. Until the network is released, the servers receive no
    /// final status, because the ports of the allocation are in use.
    pub(in crate::runner) fn hold_network(&self) {
        self.lock().attached.is_held = true;
    }

    /// Records that the allocation's network is removed, or never existed.
    pub(in crate::runner) fn network_released(&self) {
        self.lock().attached.is_held = false;
    }

    /// Records the addresses of the allocation's network.
    pub(in crate::runner) fn put_network(&self, status: Arc<NetworkStatus>) {
        {
            let mut state = self.lock();
            state.alloc = with_network(&state.alloc, &status);
            state.attached.status = Some(status);
        }
        self.changed();
    }

    fn changed(&self) {
        self.inner.changes.send_modify(|v| *v += 1);
    }

    pub(in crate::runner) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    /// Returns the allocation's id.
    pub(crate) fn id(&self) -> AllocId {
        self.lock().alloc.id.clone()
    }
}
