//! One task: started when its turn comes, watched, restarted by its policy, and stopped when required.

mod dir_hook;
mod hooks;
mod plugin_hook;
mod running;
mod settle;
mod volumes_hook;

use crate::clock;
use crate::restart::Cause;
use crate::runner::alloc_state::{AllocState, Kill, TaskAction};
use crate::runner::fence::LEASE_EXPIRED;
use crate::runner::network::NetworkHook;
use crate::runner::plan::{Plan, Planner, Site};
use crate::runner::sockets::SocketsHook;
use crate::runner::task_hooks::{Prepared, StartFault, TaskContext};
use crate::state::TaskRecord;
use caravan_drivers::{Driver, ExitResult, TaskHandle, TaskId};
use caravan_types::Time;
use caravan_types::alloc::{TaskEvent, TaskRunState, event};
use dir_hook::TaskDirHook;
pub(crate) use hooks::TaskHookParts;
use hooks::TaskHooks;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The time between the kill signal and the forced kill, if the job file sets none.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of the watch over a running task.
enum Seen {
    Ended(ExitResult),
    Killed,
    Restart(String),
    ChecksFail(String),
    Unhealthy,
    /// The templates of the task changed, and the task could not be notified.
    Undelivered(String),
    AgentEnds,
}

/// The result of stopping a task.
enum Ended {
    With(Option<ExitResult>),
    AgentEnds,
}

/// The next step of the runner.
enum Next {
    /// Start the task when its turn comes.
    Again,
    /// Watch the running task; `stopping`: an earlier agent was stopping it.
    Watch {
        handle: Box<TaskHandle>,
        stopping: bool,
    },
    Over {
        failed: bool,
    },
    AgentEnds,
}

/// The runner of one task.
#[derive(Debug)]
pub(super) struct TaskRunner {
    alloc: AllocState,
    name: String,
    planner: Arc<Planner>,
    site: Arc<Site>,
    hooks: TaskHooks,
    kill: watch::Receiver<Option<Kill>>,
    actions: mpsc::UnboundedReceiver<TaskAction>,
    /// The last run, whose data the driver still has.
    remains: Option<(Arc<dyn Driver>, TaskId)>,
}

impl TaskRunner {
    pub(super) fn new(
        alloc: AllocState,
        name: String,
        actions: mpsc::UnboundedReceiver<TaskAction>,
        site: Arc<Site>,
        parts: TaskHookParts,
        (sockets, network): (SocketsHook, NetworkHook),
    ) -> Self {
        let kill =
            alloc.kill_of(&name).unwrap_or_else(|| watch::Sender::new(Some(Kill::default())).subscribe());
        Self {
            alloc,
            name,
            planner: Arc::clone(&parts.planner),
            site,
            hooks: TaskHooks::new(parts, sockets, network),
            kill,
            actions,
            remains: None,
        }
    }

    pub(super) async fn run(mut self) {
        let Some(mut next) = self.begin().await else { return self.alloc.died(&self.name) };
        loop {
            match next {
                Next::Again => next = self.start_when_due().await,
                Next::Watch { handle, stopping } => next = self.live(&handle, stopping).await,
                Next::Over { failed } => {
                    self.finish(failed).await;
                    return self.remove_remains().await;
                }
                Next::AgentEnds => return,
            }
        }
    }

    /// Returns the first step; `None` for a task that died under an earlier agent, which may have ended before it notified
    /// the siblings.
    async fn begin(&mut self) -> Option<Next> {
        let record = self.record();
        if record.state.state == TaskRunState::Dead {
            return None;
        }
        // Binds of an earlier agent, also of a start that the agent did not complete: unmounted with the task, or
        // replaced.
        if record.driver_id.is_some()
            && let Some(plan) = self.plan()
        {
            self.hooks.volumes.adopt(&plan);
        }
        Some(match (record.over, self.recover(&record).await) {
            (Some(failed), _) => Next::Over { failed },
            (None, Some(handle)) => {
                self.adopt_directories().await;
                self.hooks.sockets.open(&self.alloc, &self.name);
                Next::Watch { handle: Box::new(handle), stopping: record.stopping }
            }
            (None, None) if record.stopping => Next::Over { failed: record.state.failed },
            (None, None) => Next::Again,
        })
    }

    /// Recovers a task that an earlier agent started.
    async fn recover(&mut self, record: &TaskRecord) -> Option<TaskHandle> {
        let bytes = record.handle.as_ref()?;
        let plan = self.plan();
        let handle: Result<TaskHandle, String> =
            rmp_serde::from_slice(bytes).map_err(|e| format!("its handle cannot be read: {e}"));
        let recovered = match (&plan, handle) {
            (Some(plan), Ok(handle)) => plan
                .driver
                .recover(handle.clone())
                .await
                .map(|()| handle)
                .map_err(|e| caravan_sys::describe(&e)),
            (None, Ok(_)) => Err("its driver is not on this node any more".to_owned()),
            (_, Err(why)) => Err(why),
        };
        match recovered {
            Ok(handle) => Some(handle),
            Err(why) => {
                let words = format!("failed to restore task: {why}");
                self.emit(self.event(event::FAILED_RESTORING).message(words));
                self.update(|r| r.handle = None).await;
                None
            }
        }
    }

    /// Applies the owners and modes of this agent to the directories of a running task; the task continues if that
    /// fails.
    async fn adopt_directories(&self) {
        let Some(plan) = self.plan() else { return };
        if let Err(why) = TaskDirHook::adopt(&self.alloc, &plan).await {
            tracing::warn!(alloc = %plan.alloc.id, task = %self.name, why, "directories of a task cannot be secured");
            let words = format!("task_dir: a directory of the task cannot be secured: {why}");
            self.emit(self.event(event::HOOK_MESSAGE).message(words));
        }
    }

    async fn start_when_due(&mut self) -> Next {
        let started_before = !self.record().state.started_at.is_zero();
        let shutdown = self.site.shutdown.clone();
        let may = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Next::AgentEnds,
            () = killed(&mut self.kill) => false,
            may = self.alloc.turn_of(&self.name, started_before) => may,
        };
        if !may {
            return self.give_up(&shutdown).await;
        }
        let Some(mut plan) = self.plan() else {
            let words = "the task's driver is not available on this node";
            self.emit(
                self.event(event::DRIVER_FAILURE).detail("driver_error", words).detail("fails_task", "true"),
            );
            return Next::Over { failed: true };
        };
        if plan.needs_user() {
            match self.choose_user().await {
                Ok(with_user) => plan = with_user,
                Err(why) => {
                    let event = self.event(event::DRIVER_FAILURE).detail("driver_error", why);
                    return self.decide(Cause::StartFailed { recoverable: true }, Some(event)).await;
                }
            }
        }
        if self.hooks.volumes.has_binds() {
            // Binds of an earlier agent must not cover directories that are now created. No process of the task may run
            // beneath them.
            self.end_lost().await;
            self.hooks.volumes.undo();
        }
        if !started_before {
            self.emit(self.event(event::TASK_SETUP).message("Building Task Directory"));
        }
        let cx = TaskContext { alloc: &self.alloc, name: &self.name };
        let prepared = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Next::AgentEnds,
            () = killed(&mut self.kill) => None,
            prepared = self.hooks.prepare(cx, &plan) => Some(prepared),
        };
        let Some(prepared) = prepared else { return self.give_up(&shutdown).await };
        let id = format!("{}/{}/{:016x}", plan.alloc.id, self.name, rand::random::<u64>());
        let started = match prepared {
            Ok(prepared) => {
                // The intent: if the agent dies during the start, the driver finds the task by its directory and kills
                // it.
                let namespace = self.alloc.namespace();
                self.update(|r| {
                    r.driver_id = Some(id.clone());
                    r.namespace = namespace;
                })
                .await;
                self.start(&plan, &id, prepared).await
            }
            Err(fault) => Err(fault),
        };
        match started {
            Ok(handle) => {
                self.started(&handle).await;
                Next::Watch { handle: Box::new(handle), stopping: false }
            }
            Err(StartFault::Hook(why)) => {
                let event = self.event(event::HOOK_FAILED).message(why);
                self.decide(Cause::StartFailed { recoverable: true }, Some(event)).await
            }
            Err(StartFault::Artifact(why)) => {
                let event = self.event(event::DOWNLOAD_FAILED).detail("download_error", why);
                self.decide(Cause::StartFailed { recoverable: true }, Some(event)).await
            }
            Err(StartFault::Templates { why, recoverable }) => {
                let words = format!("Template failed: {why}");
                let event = self.event(event::TEMPLATE).message(words);
                self.decide(Cause::StartFailed { recoverable }, Some(event)).await
            }
            Err(StartFault::Lease) => self.fenced_before_start().await,
            Err(StartFault::Driver(error)) => {
                let words = caravan_sys::describe(&error);
                let event = self.event(event::DRIVER_FAILURE).detail("driver_error", words);
                self.decide(Cause::StartFailed { recoverable: error.is_recoverable() }, Some(event)).await
            }
        }
    }

    /// Chooses the user that the task runs as, and returns the plan with that user. The choice is durable before the
    /// start, so that no later task runs as the same user.
    async fn choose_user(&self) -> Result<Plan, String> {
        let uid = self.planner.dynamic_users.assign(&self.alloc.id(), &self.name)?;
        self.update(|r| r.dynamic_uid = Some(uid)).await;
        self.plan().ok_or_else(|| "the task's driver is not available on this node".to_owned())
    }

    /// Mounts the volumes, then starts the task.
    async fn start(
        &mut self,
        plan: &Plan,
        id: &str,
        mut prepared: Prepared,
    ) -> Result<TaskHandle, StartFault> {
        let cx = TaskContext { alloc: &self.alloc, name: &self.name };
        let started = match self.hooks.mount(cx, plan, &mut prepared).await {
            Ok(()) => {
                let config = plan.config(&self.site, &self.alloc, id, prepared);
                plan.driver.start(config).await.map_err(StartFault::Driver)
            }
            Err(fault) => Err(fault),
        };
        match started {
            Ok(_) => self.site.cores.started(),
            Err(_) => self.hooks.volumes.undo(),
        }
        started
    }

    /// Handles a task that may not start: it was killed, or its allocation could not be set up.
    async fn give_up(&mut self, shutdown: &tokio_util::sync::CancellationToken) -> Next {
        if shutdown.is_cancelled() {
            return Next::AgentEnds;
        }
        if self.is_fenced() {
            return self.fenced_before_start().await;
        }
        Next::Over { failed: self.record().state.failed }
    }

    /// Ends a task that did not run when the lease ran out: it is not started any more.
    async fn fenced_before_start(&mut self) -> Next {
        let event = self.lease_expired();
        self.update(|r| {
            r.handle = None;
            r.fenced = true;
            r.over = Some(true);
            r.state.push_event(event);
        })
        .await;
        Next::Over { failed: true }
    }

    fn is_fenced(&self) -> bool {
        self.kill.borrow().as_ref().is_some_and(|k| k.fenced)
    }

    fn lease_expired(&self) -> TaskEvent {
        self.event(event::LEASE_EXPIRED).message(LEASE_EXPIRED).detail("fails_task", "true")
    }

    async fn started(&mut self, handle: &TaskHandle) {
        self.alloc.count_of_task("allocs.start", &self.name);
        for words in &handle.degraded {
            self.emit(self.event(event::DRIVER).detail("driver_message", words.clone()));
        }
        // Orders for the earlier run, which has ended.
        while self.actions.try_recv().is_ok() {}
        let bytes = rmp_serde::to_vec_named(handle).expect("a handle has a MessagePack form");
        let event = self.event(event::STARTED);
        let now = Time(clock::now().0);
        // Durable before the start is reported, because the agent may die afterwards.
        self.update(|r| {
            r.handle = Some(bytes);
            r.state.state = TaskRunState::Running;
            r.state.push_event(event);
            r.state.started_at = now;
        })
        .await;
        // A sibling may have replaced the network during the start.
        self.alloc.restart_strays();
    }

    /// Watches a running task until a decision is needed. `stopping`: an earlier agent was stopping it.
    async fn live(&mut self, handle: &TaskHandle, stopping: bool) -> Next {
        let id = handle.task_id.clone();
        let Some(plan) = self.plan() else { return Next::Over { failed: true } };
        let seen = if stopping { Seen::Killed } else { self.watch(&plan, &id).await };
        let (exit, cause) = match seen {
            Seen::AgentEnds => return Next::AgentEnds,
            Seen::Ended(exit) => {
                let cause = Cause::Exited { success: exit.is_success() };
                (Some(exit), Some(cause))
            }
            Seen::Killed => match self.end(&plan, &id).await {
                Ended::With(exit) => (exit, None),
                Ended::AgentEnds => return Next::AgentEnds,
            },
            Seen::Restart(reason) => {
                self.emit(self.event(event::RESTART_SIGNALED).detail("restart_reason", reason));
                (self.stop(&plan, &id).await, Some(Cause::Requested))
            }
            Seen::ChecksFail(reason) => {
                self.emit(self.event(event::RESTART_SIGNALED).detail("restart_reason", reason));
                (self.stop(&plan, &id).await, Some(Cause::Unhealthy))
            }
            Seen::Undelivered(why) => {
                self.emit(self.event(event::TEMPLATE).message(why).detail("fails_task", "true"));
                (self.stop(&plan, &id).await, Some(Cause::StartFailed { recoverable: false }))
            }
            Seen::Unhealthy => {
                if let Some(plugin) = &plan.plugin {
                    let reason = plugin.restart_reason();
                    self.emit(self.event(event::RESTART_SIGNALED).detail("restart_reason", reason));
                }
                (self.stop(&plan, &id).await, Some(Cause::Unhealthy))
            }
        };
        self.hooks.stop(&plan).await;
        let event = exit.as_ref().map(|exit| self.terminated(exit));
        let fenced = self.is_fenced() || exit.as_ref().is_some_and(|exit| exit.lease_passed);
        let next = match cause.filter(|_| !fenced) {
            Some(cause) => self.settle(cause, event).await,
            None => {
                let killed = if fenced { self.lease_expired() } else { self.event(event::KILLED) };
                // The exit status does not matter: the stop was requested.
                self.update(|r| {
                    r.handle = None;
                    r.driver_id = r.driver_id.take().filter(|_| exit.is_none());
                    r.fenced = fenced;
                    r.over = Some(fenced);
                    for event in event.into_iter().chain([killed]) {
                        r.state.push_event(event);
                    }
                })
                .await;
                Ok(Next::Over { failed: fenced })
            }
        };
        // Only after the next step is durable: until then, a new agent must be able to read the exit status.
        self.remains = Some((Arc::clone(&plan.driver), id));
        match next {
            // The end is reported first.
            Ok(next) => next,
            Err(delay) => {
                self.remove_remains().await;
                self.pause(delay).await
            }
        }
    }

    /// Removes the data of the driver about the run that has ended.
    async fn remove_remains(&mut self) {
        let Some((driver, id)) = self.remains.take() else { return };
        if let Err(error) = driver.destroy(&id, true).await {
            tracing::debug!(task = %id, %error, "the driver cannot remove the data of an ended task");
        }
    }

    fn plan(&self) -> Option<Plan> {
        self.planner.plan(&self.alloc, &self.name)
    }

    fn record(&self) -> TaskRecord {
        self.alloc.record(&self.name).unwrap_or_default()
    }

    fn event(&self, kind: &str) -> TaskEvent {
        TaskEvent::new(kind, clock::now())
    }

    fn emit(&self, event: TaskEvent) {
        self.alloc.emit(&self.name, event);
    }

    async fn update(&self, change: impl FnOnce(&mut TaskRecord)) {
        if let Some(written) = self.alloc.update(&self.name, change) {
            written.wait().await;
        }
    }
}

/// Waits for an order to stop the task.
async fn killed(kill: &mut watch::Receiver<Option<Kill>>) {
    if kill.wait_for(Option::is_some).await.is_err() {
        // No sender is left, so no order can come.
        std::future::pending::<()>().await;
    }
}
