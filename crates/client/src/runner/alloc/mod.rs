//! One allocation: hooks before its tasks, the tasks, hooks after them.

mod orders;
mod told;

use crate::alloc_dir::AllocDir;
use crate::allocs::Allocs;
use crate::clock;
use crate::runner::health::Health;
use crate::runner::lifecycle::Role;
use crate::runner::task::{Kill, TaskAction, TaskRunner};
use crate::runner::{Context, time_limit};
use crate::services;
use crate::services::ServiceState;
use crate::state::TaskRecord;
use crate::task_api::Sockets;
use caravan_types::alloc::{Allocation, TaskEvent, TaskRunState, event};
use caravan_types::{AllocId, Time, UnixNanos};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Whether tasks may start.
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

/// An allocation on this node. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct AllocRunner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Arc<Context>,
    dir: AllocDir,
    state: Mutex<State>,
    /// Grows with every change that siblings or the hooks may wait for.
    changes: watch::Sender<u64>,
    readiness: watch::Sender<Readiness>,
    stage: watch::Sender<Stage>,
    services: ServiceState,
    sockets: Sockets,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) alloc: Arc<Allocation>,
    pub(super) tasks: BTreeMap<String, Slot>,
    pub(super) stopping: bool,
    /// When the allocation came to this node.
    begun: UnixNanos,
    health: Health,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) record: TaskRecord,
    role: Role,
    leader: bool,
    kill: watch::Sender<Option<Kill>>,
    pub(super) actions: mpsc::UnboundedSender<TaskAction>,
    inbox: Option<mpsc::UnboundedReceiver<TaskAction>>,
}

impl Slot {
    fn restart(&self, reason: &str) {
        // A task that is ending does not receive the action, and need not.
        let _ = self.actions.send(TaskAction::Restart { reason: reason.to_owned() });
    }
}

impl AllocRunner {
    /// Creates the runner of an allocation, with the records of its tasks from an earlier agent.
    pub(crate) fn new(
        context: Arc<Context>,
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
                role: Role::of(task),
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
        let state = State { tasks, stopping: false, alloc: Arc::clone(&alloc), begun, health };
        let inner = Inner {
            dir: AllocDir::new(&context.config.alloc_dir, &alloc.id),
            context,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
            readiness: watch::Sender::new(Readiness::Preparing),
            stage: watch::Sender::new(Stage::Running),
            services: ServiceState::default(),
            sockets: Sockets::default(),
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

    /// Runs the allocation to its end, or until the agent ends. It starts once the tasks of the allocations in `before`
    /// are dead, because those may hold its ports and memory until then.
    pub(crate) async fn run(self, before: Vec<Self>, allocs: Allocs) {
        let mut tasks = JoinSet::new();
        let inboxes: Vec<_> = {
            let mut state = self.lock();
            state.tasks.iter_mut().filter_map(|(n, s)| s.inbox.take().map(|i| (n.clone(), i))).collect()
        };
        let shutdown = self.context().shutdown.clone();
        for (name, _) in &inboxes {
            // Before any event of a hook.
            if self.record(name).is_some_and(|r| r.state.events.is_empty()) {
                self.emit(name, TaskEvent::new(event::RECEIVED, clock::now()));
            }
        }
        for (name, inbox) in inboxes {
            tasks.spawn(TaskRunner::new(self.clone(), name, inbox).run());
        }
        let mut minder = JoinSet::new();
        let this = self.clone();
        // Aborted when the set is dropped.
        minder.spawn(async move { this.mind_contact().await });
        let this = self.clone();
        minder.spawn(async move { this.mind_health().await });
        let this = self.clone();
        minder.spawn(async move { this.mind_time().await });
        minder.spawn(services::mind(self.clone()));
        if self.is_live() {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.until_stopping() => self.skip_setup(),
                prepared = self.prepare(&before, &allocs) => match prepared {
                    Ok(()) => { self.inner.readiness.send_replace(Readiness::Ready); }
                    Err(why) => self.fail_setup(&why),
                },
            }
        } else {
            self.skip_setup();
        }
        {
            let mut guard = std::pin::pin!(self.guard_volumes());
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
        self.context().cores.release(&self.id());
        self.push();
        self.inner.sockets.close();
        self.drop_network().await;
        self.inner.stage.send_replace(Stage::TasksDead);
        self.release_volumes().await;
        if !shutdown.is_cancelled() || self.context().config.dev {
            self.inner.stage.send_replace(Stage::Over);
        }
    }

    /// Runs the hooks before the tasks. The error is in Nomad's words.
    async fn prepare(&self, before: &[Self], allocs: &Allocs) -> Result<(), String> {
        for other in before {
            other.reached(Stage::TasksDead).await;
        }
        let built = async { self.inner.dir.build().map_err(|e| caravan_sys::describe(&e)) };
        self.hook("alloc_dir", built).await?;
        self.hook("network", self.make_network()).await?;
        self.take_over_disk(allocs).await;
        self.await_host_volumes().await;
        self.hook("csi_hook", self.mount_volumes()).await
    }

    /// Skips the hooks of an allocation that is being stopped. Its poststop tasks may still run, if any task ever ran.
    fn skip_setup(&self) {
        let begun = self.lock().tasks.values().any(|s| !s.record.state.started_at.is_zero());
        self.inner.readiness.send_replace(if begun { Readiness::Ready } else { Readiness::Failed });
    }

    fn fail_setup(&self, why: &str) {
        tracing::warn!(alloc = %self.alloc().id, why, "allocation cannot be set up");
        self.inner.readiness.send_replace(Readiness::Failed);
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

    /// Returns the state of the allocation's services.
    pub(crate) fn services(&self) -> &ServiceState {
        &self.inner.services
    }
    /// Returns the shared dependencies.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }
    /// Returns the allocation's directories.
    pub(crate) fn dir(&self) -> &AllocDir {
        &self.inner.dir
    }
    /// Returns the allocation as the servers last sent it.
    pub(crate) fn alloc(&self) -> Arc<Allocation> {
        Arc::clone(&self.lock().alloc)
    }
    /// Returns when the allocation came to this node.
    pub(super) fn begun(&self) -> UnixNanos {
        self.lock().begun
    }
    /// Applies a new version of the allocation from the servers; stops it if they want that.
    pub(crate) fn receive(&self, alloc: Arc<Allocation>) {
        let stop = alloc.server_terminal();
        let no_delay = alloc.desired_transition.no_shutdown_delay == Some(true);
        {
            let mut state = self.lock();
            state.health.receive(&alloc, clock::now());
            state.alloc = alloc;
        }
        self.changed();
        if stop {
            self.stop(no_delay);
        }
    }

    fn changed(&self) {
        self.inner.changes.send_modify(|v| *v += 1);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    /// Returns the allocation's id.
    pub(crate) fn id(&self) -> AllocId {
        self.lock().alloc.id.clone()
    }
}
