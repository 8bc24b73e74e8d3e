//! One allocation: hooks before its tasks, the tasks, hooks after them.

mod hooks;

use crate::ClientError;
use crate::clock;
use crate::networks::Networks;
use crate::runner::alloc_state::{AllocState, Outlets, Readiness, Stage};
use crate::runner::broken::VolumeGuard;
use crate::runner::disk::{self, FindAlloc};
use crate::runner::driver_network::DriverNetworks;
use crate::runner::network::NetworkHook;
use crate::runner::plan::{Planner, Site};
use crate::runner::sockets::SocketsHook;
use crate::runner::task::{TaskHookParts, TaskRunner};
use crate::runner::users::Users;
use crate::services;
use crate::state::TaskRecord;
use crate::task_api::Served;
use caravan_drivers::Driver;
use caravan_messages::DiskChunk;
use caravan_rpc::RpcError;
use caravan_sys::tree::{self, Seals};
use caravan_types::Time;
use caravan_types::alloc::{Allocation, TaskEvent, TaskRunState, event};
use hooks::AllocHooks;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The parts from which runners and their hooks are created.
#[derive(Debug)]
pub(crate) struct RunnerParts {
    pub(crate) outlets: Outlets,
    pub(crate) alloc_dir: PathBuf,
    /// Whether the agent is a development agent, which ends its allocations when it ends.
    pub(crate) dev: bool,
    pub(crate) planner: Arc<Planner>,
    pub(crate) site: Arc<Site>,
    pub(crate) tasks: TaskHookParts,
    pub(crate) networks: DriverNetworks,
    pub(crate) api: Served,
    pub(crate) bridge: Networks,
}

/// The runner of an allocation on this node. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct AllocRunner {
    state: AllocState,
    sockets: SocketsHook,
    parts: Arc<RunnerParts>,
}

impl Deref for AllocRunner {
    type Target = AllocState;

    fn deref(&self) -> &AllocState {
        &self.state
    }
}

impl AllocRunner {
    /// Creates the runner of an allocation, with the records of its tasks from an earlier agent.
    pub(crate) fn new(
        parts: Arc<RunnerParts>,
        alloc: Arc<Allocation>,
        records: BTreeMap<String, TaskRecord>,
    ) -> Self {
        let state = AllocState::new(parts.outlets.clone(), &parts.alloc_dir, alloc, records);
        if let Some(status) = parts.bridge.record_of(&state.id()) {
            state.hold_network();
            state.put_network(status);
        }
        let sockets = SocketsHook::new(Arc::clone(&parts.api));
        Self { state, sockets, parts }
    }

    /// Runs the allocation to its end, or until the agent ends. The run starts once the tasks of the allocations in
    /// `before` are dead. Until then, these tasks may hold the ports and memory of the allocation.
    pub(crate) async fn run(self, before: Vec<AllocState>, allocs: Arc<dyn FindAlloc>) {
        let parts = &self.parts;
        let network = NetworkHook::new(parts);
        let hooks = AllocHooks::new(parts, self.sockets.clone(), network.clone(), before, allocs);
        let mut tasks = JoinSet::new();
        let inboxes: Vec<_> = {
            let mut state = self.lock();
            state.tasks.iter_mut().filter_map(|(n, s)| s.inbox.take().map(|i| (n.clone(), i))).collect()
        };
        let shutdown = parts.site.shutdown.clone();
        for (name, _) in &inboxes {
            // Before any event of a hook.
            if self.record(name).is_some_and(|r| r.state.events.is_empty()) {
                self.emit(name, TaskEvent::new(event::RECEIVED, clock::now()));
            }
        }
        for (name, inbox) in inboxes {
            let (site, sockets) = (Arc::clone(&parts.site), self.sockets.clone());
            let own = (sockets, network.clone());
            let runner = TaskRunner::new(self.state.clone(), name, inbox, site, parts.tasks.clone(), own);
            tasks.spawn(runner.run());
        }
        let mut minder = JoinSet::new();
        let (fence, state) = (parts.tasks.fence.clone(), self.state.clone());
        // Aborted when the set is dropped.
        minder.spawn(async move { fence.mind_contact(&state).await });
        let state = self.state.clone();
        minder.spawn(async move { state.mind_health().await });
        let state = self.state.clone();
        minder.spawn(async move { state.mind_time().await });
        minder.spawn(services::mind(
            self.state.clone(),
            Arc::clone(&parts.planner),
            parts.tasks.link.clone(),
        ));
        if self.is_live() {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.until_stopping() => self.skip_setup(),
                prepared = hooks.prepare(&self.state) => match prepared {
                    Ok(()) => { self.decide_readiness(Readiness::Ready); }
                    Err(why) => self.fail_setup(&why),
                },
            }
        } else {
            self.skip_setup();
        }
        {
            let guard = VolumeGuard {
                csi: hooks.csi.clone(),
                planner: Arc::clone(&parts.planner),
                sources: parts.tasks.sources.clone(),
                state: self.state.clone(),
            };
            let mut guard = std::pin::pin!(guard.run());
            loop {
                tokio::select! {
                    biased;
                    ended = tasks.join_next() => if ended.is_none() { break },
                    () = &mut guard => {}
                }
            }
        }
        drop(minder);
        if shutdown.is_cancelled() && !self.all_dead() {
            return;
        }
        hooks.release(&self.state).await;
        if !shutdown.is_cancelled() || parts.dev {
            self.reach(Stage::Over);
        }
    }

    /// Skips the hooks of an allocation that is being stopped. The poststop tasks may still run, if any task ever
    /// ran.
    fn skip_setup(&self) {
        let begun = self.lock().tasks.values().any(|s| !s.record.state.started_at.is_zero());
        self.decide_readiness(if begun { Readiness::Ready } else { Readiness::Failed });
    }

    fn fail_setup(&self, why: &str) {
        tracing::warn!(alloc = %self.alloc().id, why, "allocation cannot be set up");
        self.decide_readiness(Readiness::Failed);
        let idle: Vec<String> = {
            let state = self.lock();
            let idle = state.tasks.iter().filter(|(_, s)| s.record.handle.is_none());
            idle.map(|(name, _)| name.clone()).collect()
        };
        for name in idle {
            let event = TaskEvent::new(event::SETUP_FAILURE, clock::now())
                .detail("setup_error", why)
                .detail("fails_task", "true");
            self.update(&name, |record| {
                record.state.push_event(event);
                record.state.failed = true;
                record.state.state = TaskRunState::Dead;
                record.state.finished_at = Time(clock::now().0);
            });
        }
    }

    /// Returns the allocation's state.
    pub(crate) fn state(&self) -> &AllocState {
        &self.state
    }

    /// Returns the driver of a running task and the driver's id of it.
    pub(crate) fn running(&self, task: &str) -> Result<(Arc<dyn Driver>, String), ClientError> {
        self.parts.planner.running(&self.state, task)
    }

    /// Returns the users that the tasks run as. A task whose driver is absent has none.
    pub(crate) fn users(&self) -> Users {
        self.parts.planner.users_of(&self.state)
    }

    /// Returns texts with their references replaced as in the task.
    pub(crate) fn in_task_words(&self, task: &str, texts: &[String]) -> Vec<String> {
        match self.parts.planner.plan(&self.state, task) {
            Some(plan) => texts.iter().map(|text| plan.text(text)).collect(),
            None => texts.to_vec(),
        }
    }

    /// Returns the data of this terminal allocation as an archive, once no task runs and no volume is mounted.
    pub(crate) async fn give_disk(&self) -> Result<mpsc::Receiver<Result<DiskChunk, RpcError>>, RpcError> {
        disk::give(&self.state, &self.parts.planner).await
    }

    /// Removes the allocation's directories and records. Allowed only once its volumes and other resources are
    /// released.
    pub(crate) async fn destroy(&self) -> Result<(), ClientError> {
        let alloc = self.alloc();
        let dir = self.dir().clone();
        let state_dir = self.parts.site.state_dir_of(&alloc.id);
        for task in alloc.group().map_or(&[][..], |group| &group.tasks) {
            let plan = self.parts.planner.plan(&self.state, &task.name);
            if let Some(plugin) = plan.and_then(|plan| plan.plugin) {
                self.parts.tasks.left_mounts.clear(&plugin).await?;
            }
        }
        let removed = tokio::task::spawn_blocking(move || {
            let failed = ClientError::kernel(format!("{} cannot be removed", state_dir.display()));
            tree::remove(&state_dir, Seals::Keep).map_err(failed)?;
            dir.destroy()
        });
        removed.await.map_err(|_| ClientError::ShuttingDown)??;
        self.parts.outlets.reporter.remove(&alloc.id);
        self.count("allocs.destroy");
        self.parts.outlets.store.remove_alloc(&alloc.id).done().await
    }
}
