//! The allocations on this node, reconciled with the servers' list.

use crate::ClientError;
use crate::clock::Backoff;
use crate::cores::Cores;
use crate::csi::VolumeManager;
use crate::devices::Holders;
use crate::node::NodeState;
use crate::runner::{AllocRunner, AllocState, FindAlloc, RunnerParts, Stage, claims};
use crate::state::{Store, TaskRecord};
use caravan_messages::{AllocDelta, ClaimReportStep};
use caravan_types::AllocId;
use caravan_types::alloc::{Allocation, ClientStatus, TaskRunState};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The parts of the client that the set of allocations uses, besides its runners.
#[derive(Debug)]
pub(crate) struct AllocsParts {
    /// The durable client state.
    pub(crate) store: Store,
    /// The node, for events about directories that cannot be removed.
    pub(crate) node: NodeState,
    /// The assignment of processors to tasks.
    pub(crate) cores: Cores,
    /// The holders of device instances.
    pub(crate) holders: Holders,
    /// The CSI volumes, for reports about claims of lost allocations.
    pub(crate) volumes: VolumeManager,
    /// The token that is cancelled when the agent ends; tasks keep running.
    pub(crate) shutdown: CancellationToken,
}

/// The allocation runners. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Allocs {
    parts: Arc<AllocsParts>,
    runner_parts: Arc<RunnerParts>,
    runners: Arc<Mutex<BTreeMap<AllocId, AllocRunner>>>,
    removing: Arc<Mutex<BTreeSet<AllocId>>>,
    /// The last reported reason why an allocation could not be removed, by allocation.
    kept: Arc<Mutex<BTreeMap<AllocId, String>>>,
    /// Whether all allocations end with the agent, so that none begins any more.
    ending: Arc<AtomicBool>,
    tasks: TaskTracker,
}

impl Allocs {
    /// Creates an empty set.
    pub(crate) fn new(parts: AllocsParts, runner_parts: RunnerParts) -> Self {
        Self {
            parts: Arc::new(parts),
            runner_parts: Arc::new(runner_parts),
            runners: Arc::default(),
            removing: Arc::default(),
            kept: Arc::default(),
            ending: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Restores an allocation that an earlier agent ran.
    pub(crate) fn restore(&self, alloc: Allocation, records: BTreeMap<String, TaskRecord>) {
        tracing::info!(alloc = %alloc.id, name = alloc.name, "restoring allocation");
        self.begin(Arc::new(alloc), records, Vec::new());
    }

    /// Returns the runners on this node that stop to make room for an allocation: its predecessor, and the
    /// allocations that were preempted for it. Plugins are excluded, because a plugin may have to serve until its
    /// successor does.
    fn before(&self, alloc: &Allocation) -> Vec<AllocRunner> {
        let runners = self.lock();
        let ids = alloc.preempted_allocations.iter().chain([&alloc.previous_allocation]);
        ids.filter_map(|id| runners.get(id))
            .filter(|runner| runner.alloc().server_terminal() && !runner.is_plugin())
            .cloned()
            .collect()
    }

    fn begin(&self, alloc: Arc<Allocation>, records: BTreeMap<String, TaskRecord>, before: Vec<AllocRunner>) {
        let over = |record: &TaskRecord| record.state.state == TaskRunState::Dead;
        let has_run = !records.is_empty() && records.values().all(over);
        let runs = records.values().any(|record| record.driver_id.is_some() && !over(record));
        let runner = AllocRunner::new(Arc::clone(&self.runner_parts), Arc::clone(&alloc), records);
        if !has_run {
            self.parts.cores.hold(&alloc);
            self.parts.holders.enter(&alloc, runs);
        }
        {
            let mut runners = self.lock();
            // The servers replace services that end with the agent, perhaps on this node.
            if self.ending.load(Ordering::SeqCst) {
                return;
            }
            runners.insert(alloc.id.clone(), runner.clone());
        }
        let before = before.iter().map(|runner| runner.state().clone()).collect();
        self.tasks.spawn(runner.run(before, Arc::new(self.clone())));
    }

    /// Applies changes from the servers. New allocations are stored before they start.
    pub(crate) async fn apply(&self, delta: AllocDelta) {
        let mut fresh = Vec::new();
        for alloc in &delta.allocs {
            let known = self.lock().get(&alloc.id).cloned();
            match known {
                Some(runner) => {
                    if runner.alloc().alloc_modify_index <= alloc.alloc_modify_index {
                        self.parts.store.put_alloc(alloc).later();
                        runner.receive(Arc::clone(alloc));
                    }
                    // The servers may have lost earlier reports.
                    if delta.full {
                        runner.push();
                    }
                }
                None if alloc.client_terminal() => self.disown(alloc),
                None => {
                    self.parts.store.put_alloc(alloc).later();
                    fresh.push(Arc::clone(alloc));
                }
            }
        }
        if !fresh.is_empty() && self.parts.store.flush().done().await.is_err() {
            // The failure is logged. Without a durable record, a restarted agent could not restore the allocations. The
            // servers send them again.
            return;
        }
        for alloc in fresh {
            let before = self.before(&alloc);
            self.begin(alloc, BTreeMap::new(), before);
        }
        let mut removed = delta.removed;
        if delta.full {
            let named = |id: &AllocId| delta.allocs.iter().any(|a| a.id == *id);
            removed.extend(self.lock().keys().filter(|id| !named(id)).cloned());
        }
        for id in removed {
            self.remove(&id);
        }
    }

    /// Reports an allocation that was declared lost before this node received it, because the node was out of contact.
    /// Nothing of its volumes is mounted, and only this node can prove that.
    fn disown(&self, alloc: &Allocation) {
        // The node itself reports every other way to end.
        if alloc.client_status != ClientStatus::Lost {
            return;
        }
        let held = self.parts.volumes.claims_of(&alloc.id);
        for claim in claims(alloc).into_iter().filter(|claim| !held.contains(claim)) {
            self.parts.volumes.report(claim, 0, ClaimReportStep::Unstaged);
        }
    }

    /// Reports the status of all allocations again, because the servers may have marked them as lost or unknown.
    pub(crate) fn tell_all(&self) {
        let runners: Vec<AllocRunner> = self.lock().values().cloned().collect();
        for runner in &runners {
            runner.push();
            // With the node, the servers may have deregistered its services.
            runner.services().renew.send_modify(|count| *count += 1);
        }
    }

    /// Stops and removes an allocation that the servers have deleted; retried until it succeeds.
    fn remove(&self, id: &AllocId) {
        let Some(runner) = self.lock().get(id).cloned() else { return };
        if !self.removing.lock().insert(id.clone()) {
            return;
        }
        let this = self.clone();
        self.tasks.spawn(async move {
            let shutdown = this.parts.shutdown.clone();
            let removing = async {
                runner.stop(true);
                runner.reached(Stage::Over).await;
                let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(60));
                while !this.destroy(&runner).await {
                    tokio::time::sleep(backoff.delay()).await;
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = removing => {}
            }
        });
    }

    /// Returns whether the allocation was removed completely.
    async fn destroy(&self, runner: &AllocRunner) -> bool {
        let id = runner.id();
        match runner.destroy().await {
            Ok(()) => {
                tracing::info!(alloc = %id, "allocation removed");
                self.lock().remove(&id);
                self.removing.lock().remove(&id);
                self.kept.lock().remove(&id);
                true
            }
            Err(error) => {
                self.note_kept(&id, caravan_sys::describe(&error));
                false
            }
        }
    }

    /// Reports why an allocation cannot be removed, once for each reason.
    fn note_kept(&self, id: &AllocId, error: String) {
        let mut kept = self.kept.lock();
        if kept.get(id) == Some(&error) {
            return;
        }
        tracing::warn!(alloc = %id, error, "allocation cannot be removed");
        let details =
            BTreeMap::from([("alloc_id".to_owned(), id.to_string()), ("error".to_owned(), error.clone())]);
        self.parts.node.event("Storage", "Allocation directory cannot be removed", details);
        kept.insert(id.clone(), error);
    }

    /// Removes a terminal allocation at a user's request to free space. Returns whether the allocation was terminal.
    pub(crate) async fn collect(&self, id: &AllocId) -> Result<bool, ClientError> {
        let runner = self.get(id)?;
        if !runner.status().is_terminal() {
            return Ok(false);
        }
        runner.reached(Stage::Over).await;
        runner.destroy().await?;
        self.lock().remove(id);
        Ok(true)
    }

    /// Stops and removes all allocations: users of plugins first, then the plugins.
    pub(crate) async fn destroy_all(&self) {
        {
            // Under the lock: an allocation that begins later finds `ending` set, and does not run.
            let _runners = self.lock();
            self.ending.store(true, Ordering::SeqCst);
        }
        for plugins in [false, true] {
            let runners: Vec<_> =
                self.lock().values().filter(|r| r.is_plugin() == plugins).cloned().collect();
            for runner in &runners {
                runner.kill();
            }
            for runner in &runners {
                runner.reached(Stage::Over).await;
                self.destroy(runner).await;
            }
        }
    }

    /// Waits until every runner has ended. Call it when no runner can start any more.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.lock().clear();
    }

    /// Returns the runner of an allocation.
    pub(crate) fn get(&self, id: &AllocId) -> Result<AllocRunner, ClientError> {
        self.lock().get(id).cloned().ok_or_else(|| ClientError::UnknownAlloc(id.to_string()))
    }

    /// Returns the ids of all allocations.
    pub(crate) fn ids(&self) -> Vec<AllocId> {
        self.lock().keys().cloned().collect()
    }

    /// Returns all runners, sorted by allocation id.
    pub(crate) fn all(&self) -> Vec<AllocRunner> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AllocId, AllocRunner>> {
        self.runners.lock()
    }
}

impl FindAlloc for Allocs {
    fn find(&self, id: &AllocId) -> Option<AllocState> {
        self.lock().get(id).map(|runner| runner.state().clone())
    }
}
