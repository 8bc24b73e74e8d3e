//! One allocation: hooks before its tasks, the tasks, hooks after them.

use super::Context;
use super::health::{Health, Judged};
use super::lifecycle::{EndReason, Group, Role, Sibling, ends_with, may_start};
use super::status::aggregate;
use super::task::{Kill, TaskAction, TaskRunner};
use super::time_limit;
use crate::ClientError;
use crate::alloc_dir::AllocDir;
use crate::allocs::Allocs;
use crate::clock;
use crate::services::{self, ServiceState};
use crate::state::TaskRecord;
use crate::task_api::Sockets;
use caravan_types::alloc::{
    AllocUpdate, Allocation, ClientStatus, LEASE_EXPIRED, TIMED_OUT, TaskEvent, TaskRunState, TaskState,
    event,
};
use caravan_types::small::Map;
use caravan_types::{AllocId, Time, UnixNanos};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Whether tasks may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Hooks are under way.
    Preparing,
    /// Everything is there.
    Ready,
    /// A hook failed: nothing may start.
    Failed,
}

/// Where an allocation's runner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Hooks and tasks.
    Running,
    /// Every task is dead.
    TasksDead,
    /// Everything it held was given back.
    Over,
}

/// An allocation on this node. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct AllocRunner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    context: Arc<Context>,
    dir: AllocDir,
    state: Mutex<State>,
    /// Grows with every change that siblings or the hook may wait for.
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
    /// Since when it is on this node.
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
        // A task that ends right now does not take it, and need not.
        let _ = self.actions.send(TaskAction::Restart { reason: reason.to_owned() });
    }
}

impl AllocRunner {
    /// An allocation with what an earlier agent knew of its tasks.
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

    /// Runs it to its end, or until the agent ends. It begins when the tasks of those `before` it are dead: ports and
    /// memory may be theirs until then.
    pub(crate) async fn run(self, before: Vec<Self>, allocs: Allocs) {
        let mut tasks = JoinSet::new();
        let inboxes: Vec<_> = {
            let mut state = self.lock();
            state.tasks.iter_mut().filter_map(|(n, s)| s.inbox.take().map(|i| (n.clone(), i))).collect()
        };
        let shutdown = self.context().shutdown.clone();
        for (name, _) in &inboxes {
            // Before any hook has something to say.
            if self.record(name).is_some_and(|r| r.state.events.is_empty()) {
                self.emit(name, TaskEvent::new(event::RECEIVED, clock::now()));
            }
        }
        for (name, inbox) in inboxes {
            tasks.spawn(TaskRunner::new(self.clone(), name, inbox).run());
        }
        let mut minder = JoinSet::new();
        let this = self.clone();
        // Ends with the set.
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
        self.inner.stage.send_replace(Stage::TasksDead);
        self.release_volumes().await;
        if !shutdown.is_cancelled() || self.context().config.dev {
            self.inner.stage.send_replace(Stage::Over);
        }
    }

    /// Hooks before the tasks. The error is in the reference's words.
    async fn prepare(&self, before: &[Self], allocs: &Allocs) -> Result<(), String> {
        for other in before {
            other.reached(Stage::TasksDead).await;
        }
        let failed =
            |hook: &str, why: String| format!("failed to setup alloc: pre-run hook \"{hook}\" failed: {why}");
        self.inner.dir.build().map_err(|e| failed("alloc_dir", crate::error::chain(&e)))?;
        self.take_over_disk(allocs).await;
        self.await_host_volumes().await;
        self.mount_volumes().await.map_err(|why| failed("csi_hook", why))
    }

    /// It is being ended: nothing is set up for it, but what runs after its tasks may, if any of them ever ran.
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

    /// What it keeps of its services.
    pub(crate) fn services(&self) -> &ServiceState {
        &self.inner.services
    }
    /// What it works with.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }
    /// Its directories.
    pub(crate) fn dir(&self) -> &AllocDir {
        &self.inner.dir
    }
    /// The allocation as the servers last sent it.
    pub(crate) fn alloc(&self) -> Arc<Allocation> {
        Arc::clone(&self.lock().alloc)
    }
    /// Since when it is on this node.
    pub(super) fn begun(&self) -> UnixNanos {
        self.lock().begun
    }
    /// Takes what the servers sent; ends it if they want that.
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

    /// Ends its tasks. Asking twice changes nothing, but a delay may be cut short.
    pub(crate) fn stop(&self, no_delay: bool) {
        self.end(&Kill { no_delay, ..Kill::default() });
    }

    /// Ends its tasks as ordered.
    pub(super) fn end(&self, kill: &Kill) {
        self.lock().stopping = true;
        self.kill_all(kill);
        self.changed();
    }

    /// Ends everything at once, whatever it waits for, tasks that run afterwards included.
    pub(crate) fn kill(&self) {
        let mut state = self.lock();
        state.stopping = true;
        let kill = Kill { no_delay: true, force: true, ..Kill::default() };
        for slot in state.tasks.values() {
            slot.kill.send_replace(Some(kill.clone()));
        }
        drop(state);
        self.changed();
    }

    fn kill_all(&self, kill: &Kill) {
        for slot in self.lock().tasks.values().filter(|s| s.role != Role::Poststop || kill.timed_out) {
            slot.kill.send_if_modified(|known| {
                let stronger = known
                    .as_ref()
                    .is_none_or(|k| (kill.no_delay && !k.no_delay) || (kill.fenced && !k.fenced));
                if stronger {
                    let before = known.take().unwrap_or_default();
                    *known = Some(Kill { force: before.force, ..kill.clone() });
                }
                stronger
            });
        }
    }

    /// Starts a task anew (all of the running ones without a name).
    pub(crate) fn restart(&self, task: Option<&str>, all: bool) -> Result<(), ClientError> {
        let reason = match (task, all) {
            (Some(_), _) => "User requested task to restart",
            (None, true) => "User requested all tasks to restart",
            (None, false) => "User requested running tasks to restart",
        };
        self.act(task, |slot| slot.restart(reason))
    }

    /// Starts a running task anew for a reason of ours.
    pub(super) fn restart_because(&self, task: &str, reason: &str) -> Result<(), ClientError> {
        self.act(Some(task), |slot| slot.restart(reason))
    }

    pub(super) fn act(&self, task: Option<&str>, act: impl Fn(&Slot)) -> Result<(), ClientError> {
        let state = self.lock();
        match task {
            Some(name) => {
                let slot = state.tasks.get(name).ok_or_else(|| ClientError::UnknownTask(name.to_owned()))?;
                if slot.record.state.state != TaskRunState::Running {
                    return Err(ClientError::TaskNotRunning(name.to_owned()));
                }
                act(slot);
            }
            None => {
                let running = state.tasks.values().filter(|s| s.record.state.state == TaskRunState::Running);
                running.for_each(act);
            }
        }
        Ok(())
    }

    /// Sends a signal to a task (to all running ones without a name).
    pub(crate) async fn signal(&self, task: Option<&str>, signal: &str) -> Result<(), ClientError> {
        let answers = Mutex::new(Vec::new());
        self.act(task, |slot| {
            let (reply, answer) = oneshot::channel();
            let action = TaskAction::Signal { signal: signal.to_owned(), reply };
            if slot.actions.send(action).is_ok() {
                answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
            }
        })?;
        for answer in answers.into_inner().unwrap_or_else(PoisonError::into_inner) {
            answer.await.map_err(|_| ClientError::TaskNotRunning(task.unwrap_or_default().to_owned()))??;
        }
        Ok(())
    }

    /// The driver and the driver's id of a running task.
    pub(crate) fn running(
        &self,
        task: &str,
    ) -> Result<(Arc<dyn caravan_drivers::Driver>, String), ClientError> {
        let alloc = self.alloc();
        let spec = alloc.group().and_then(|g| g.task(task));
        let spec = spec.ok_or_else(|| ClientError::UnknownTask(task.to_owned()))?;
        let id = self.record(task).filter(|r| r.handle.is_some()).and_then(|r| r.driver_id);
        let driver = self.context().drivers.get(&spec.driver);
        driver.zip(id).ok_or_else(|| ClientError::TaskNotRunning(task.to_owned()))
    }

    /// Whether a task is there, and whether it ever started.
    pub(crate) fn task_started(&self, task: &str) -> Result<bool, ClientError> {
        let record = self.record(task).ok_or_else(|| ClientError::UnknownTask(task.to_owned()))?;
        Ok(!record.state.started_at.is_zero())
    }

    /// Names of its tasks.
    pub(crate) fn task_names(&self) -> Vec<String> {
        self.lock().tasks.keys().cloned().collect()
    }

    /// Whether one of its tasks is a CSI plugin.
    pub(crate) fn is_plugin(&self) -> bool {
        self.alloc().group().is_some_and(|g| g.tasks.iter().any(|t| t.csi_plugin_config.is_some()))
    }

    /// Waits for a stage.
    pub(crate) async fn reached(&self, stage: Stage) {
        // The sender is ours: it cannot go before we do.
        let _ = self.inner.stage.subscribe().wait_for(|s| *s >= stage).await;
    }

    /// Removes everything of it: directories, records. Only once it is over.
    pub(crate) async fn destroy(&self) -> Result<(), ClientError> {
        let alloc = self.alloc();
        let dir = self.inner.dir.clone();
        let state_dir = self.context().config.state_dir.join("tasks").join(alloc.id.as_str());
        let removed = tokio::task::spawn_blocking(move || {
            match std::fs::remove_dir_all(&state_dir) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ClientError::directory(&state_dir, "remove it")(source));
                }
                _ => {}
            }
            dir.destroy()
        });
        removed.await.map_err(|_| ClientError::ShuttingDown)??;
        self.context().reporter.forget(&alloc.id);
        self.context().store.remove_alloc(&alloc.id).done().await
    }

    pub(super) fn record(&self, task: &str) -> Option<TaskRecord> {
        self.lock().tasks.get(task).map(|s| s.record.clone())
    }

    pub(super) fn kill_of(&self, task: &str) -> Option<watch::Receiver<Option<Kill>>> {
        self.lock().tasks.get(task).map(|s| s.kill.subscribe())
    }

    /// Changes what is known of a task, keeps it, and tells the servers.
    pub(super) fn update(
        &self,
        task: &str,
        change: impl FnOnce(&mut TaskRecord),
    ) -> Option<crate::state::Written> {
        let written = {
            let mut state = self.lock();
            let alloc = state.alloc.id.clone();
            let slot = state.tasks.get_mut(task)?;
            change(&mut slot.record);
            self.context().store.put_task(&alloc, task, &slot.record)
        };
        self.push();
        self.changed();
        Some(written)
    }

    /// Adds an event to a task.
    pub(super) fn emit(&self, task: &str, event: TaskEvent) {
        tracing::info!(alloc = %self.id(), task, event = event.kind.as_str(), says = event.display(), "task event");
        if let Some(written) = self.update(task, |record| record.state.push_event(event)) {
            written.later();
        }
    }

    /// Tells on every task that has not started what the allocation waits for.
    pub(super) fn tell_waiting(&self, reason: &str) {
        for task in self.task_names() {
            self.emit(&task, TaskEvent::new(event::WAITING_FOR_VOLUME, clock::now()).message(reason));
        }
    }

    /// A task is dead: others may have to follow.
    pub(super) fn died(&self, task: &str) {
        for (other, reason) in ends_with(&self.group(), task) {
            let kind = match &reason {
                EndReason::SiblingFailed(_) => event::SIBLING_FAILED,
                EndReason::LeaderDead => event::LEADER_DEAD,
                EndReason::MainTasksDead => event::MAIN_TASKS_DEAD,
            };
            let mut event = TaskEvent::new(kind, clock::now());
            if let EndReason::SiblingFailed(name) = reason {
                event = event.detail("failed_sibling", name);
            }
            self.emit(&other, event);
            if let Some(slot) = self.lock().tasks.get(&other) {
                slot.kill.send_if_modified(|known| {
                    let newly = known.is_none();
                    known.get_or_insert_with(Kill::default);
                    newly
                });
            }
        }
    }

    /// Waits until a task may start. `false`: it never may.
    pub(super) async fn turn_of(&self, task: &str, started_before: bool) -> bool {
        let mut changes = self.inner.changes.subscribe();
        let mut readiness = self.inner.readiness.subscribe();
        loop {
            changes.borrow_and_update();
            match *readiness.borrow_and_update() {
                Readiness::Failed => return false,
                Readiness::Preparing => {}
                Readiness::Ready => {
                    let (group, stopping) = (self.group(), self.lock().stopping);
                    if (started_before && !stopping) || may_start(&group, task, stopping) {
                        return true;
                    }
                    // Nothing may ever start it: those it waits for failed, or all ends before it began.
                    let role = group.get(task).map(|t| t.role);
                    if stopping && role != Some(Role::Poststop) {
                        return false;
                    }
                }
            }
            let changed = tokio::select! {
                changed = changes.changed() => changed,
                changed = readiness.changed() => changed,
            };
            if changed.is_err() {
                return false;
            }
        }
    }

    /// Holds starts back or lets them go, if nothing else was decided meanwhile.
    pub(super) fn set_readiness(&self, from: Readiness, to: Readiness) {
        self.inner.readiness.send_if_modified(|now| {
            let is_from = *now == from;
            if is_from {
                *now = to;
            }
            is_from
        });
    }

    /// Watches what siblings may wait for.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    pub(super) async fn until_stopping(&self) {
        let mut changes = self.inner.changes.subscribe();
        while !self.lock().stopping {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn group(&self) -> Group {
        let state = self.lock();
        let sibling = |slot: &Slot| Sibling {
            role: slot.role,
            leader: slot.leader,
            state: slot.record.state.state,
            failed: slot.record.state.failed,
            started: !slot.record.state.started_at.is_zero(),
        };
        state.tasks.iter().map(|(name, slot)| (name.clone(), sibling(slot))).collect()
    }

    fn is_live(&self) -> bool {
        let state = self.lock();
        !state.stopping && state.tasks.values().any(|s| s.record.state.state != TaskRunState::Dead)
    }

    fn all_dead(&self) -> bool {
        self.lock().tasks.values().all(|s| s.record.state.state == TaskRunState::Dead)
    }

    /// States of its tasks.
    pub(crate) fn task_states(&self) -> Map<String, TaskState> {
        self.lock().tasks.iter().map(|(n, s)| (n.clone(), s.record.state.clone())).collect()
    }

    /// What it is now.
    pub(crate) fn status(&self) -> ClientStatus {
        aggregate(&self.task_states()).0
    }

    /// Looks at its health. Answers when to look again, whether something became known, and whom to blame.
    pub(super) fn judge(&self) -> Judged {
        let checks = self.checks_stand();
        let mut state = self.lock();
        let state = &mut *state;
        if state.stopping {
            return Judged::default();
        }
        let before = state.health.report().1;
        let tasks = state.tasks.iter().map(|(n, s)| (n.as_str(), s.role, &s.record.state));
        let (again, blame) = state.health.look(tasks, checks, clock::now());
        Judged { again, news: state.health.report().1 != before, blame }
    }

    /// Gives a task its socket of the API, if it has none.
    pub(super) fn open_socket(&self, task: &str) {
        self.inner.sockets.open(&self.context().task_api, task, &self.dir().task(task));
    }

    /// Adds an event to a task without telling anybody yet.
    pub(super) fn note(&self, task: &str, event: TaskEvent) {
        let mut state = self.lock();
        let alloc = state.alloc.id.clone();
        if let Some(slot) = state.tasks.get_mut(task) {
            slot.record.state.push_event(event);
            self.context().store.put_task(&alloc, task, &slot.record).later();
        }
    }

    /// Tells the servers how it does.
    pub(crate) fn push(&self) {
        // What just happened may have settled its health: both are told together.
        self.look_at_health();
        let (deployment_id, deployment_status) = self.lock().health.report();
        let task_states = self.task_states();
        let (client_status, words) = aggregate(&task_states);
        let any = |is: fn(&TaskRecord) -> bool| self.lock().tasks.values().any(|slot| is(&slot.record));
        let words = match client_status {
            ClientStatus::Failed if any(|record| record.fenced) => LEASE_EXPIRED,
            ClientStatus::Complete if any(|record| record.timed_out) => TIMED_OUT,
            _ => words,
        };
        self.context().reporter.push(AllocUpdate {
            alloc_id: self.alloc().id.clone(),
            client_status,
            client_description: words.into(),
            task_states,
            deployment_id,
            deployment_status,
            // Of the host's own network there is nothing more to tell, once something runs in it.
            network_status: (client_status != ClientStatus::Pending).then(Arc::default),
        });
    }

    fn changed(&self) {
        self.inner.changes.send_modify(|v| *v += 1);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its id.
    pub(crate) fn id(&self) -> AllocId {
        self.lock().alloc.id.clone()
    }
}
