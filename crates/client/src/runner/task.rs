//! One task: started when it is its turn, watched, started again as the policy says, ended when it must.

use super::alloc::AllocRunner;
use super::binds::Binds;
use super::fence::LEASE_EXPIRED;
use super::identity::Change;
use super::lifecycle::Role;
use super::start::{Plan, StartFault, state_dir};
use super::templates::act::{changed, prepare, tell};
use super::templates::{TaskTemplates, TemplateChange};
use crate::ClientError;
use crate::clock;
use crate::csi::supervisor;
use crate::restart::{Cause, Verdict};
use crate::state::TaskRecord;
use caravan_drivers::{ExitResult, TaskHandle, TaskId};
use caravan_types::alloc::{TIMED_OUT, TaskEvent, TaskRunState, event};
use caravan_types::job::RestartPolicy;
use caravan_types::plugin::PluginRole;
use caravan_types::{Nanos, Time};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Between the kill signal and the forced kill, where the job file says nothing.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// An order to end a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kill {
    /// Skip the shutdown delay.
    pub(super) no_delay: bool,
    /// Wait for nothing, not even for volumes that a plugin holds.
    pub(super) force: bool,
    /// The node's lease ran out: at once, and as a failure.
    pub(super) fenced: bool,
    /// The allocation has run as long as it may: nothing runs afterwards.
    pub(super) timed_out: bool,
}

/// Something asked of a running task.
#[derive(Debug)]
pub(super) enum TaskAction {
    /// Start anew.
    Restart {
        /// In the reference's words.
        reason: String,
    },
    /// Its checks fail: start anew, counted by the restart policy.
    Unhealthy {
        /// Which check.
        reason: String,
    },
    /// Send a signal.
    Signal {
        /// Its name.
        signal: String,
        /// The driver's answer.
        reply: oneshot::Sender<Result<(), ClientError>>,
    },
}

/// How watching a running task ended.
enum Seen {
    Ended(ExitResult),
    Killed,
    Restart(String),
    ChecksFail(String),
    Unhealthy,
    /// Its templates changed, and it could not be told.
    Untold(String),
    AgentEnds,
}

/// How an order to end a task was carried out.
enum Ended {
    With(Option<ExitResult>),
    AgentEnds,
}

/// What to do next.
enum Next {
    Again,
    Over { failed: bool },
    AgentEnds,
}

/// The runner of one task.
#[derive(Debug)]
pub(super) struct TaskRunner {
    alloc: AllocRunner,
    name: String,
    kill: watch::Receiver<Option<Kill>>,
    actions: mpsc::UnboundedReceiver<TaskAction>,
    binds: Binds,
    templates: Option<TaskTemplates>,
}

impl TaskRunner {
    pub(super) fn new(
        alloc: AllocRunner,
        name: String,
        actions: mpsc::UnboundedReceiver<TaskAction>,
    ) -> Self {
        let kill =
            alloc.kill_of(&name).unwrap_or_else(|| watch::Sender::new(Some(Kill::default())).subscribe());
        Self { alloc, name, kill, actions, binds: Binds::default(), templates: None }
    }

    pub(super) async fn run(mut self) {
        let record = self.record();
        if record.state.state == TaskRunState::Dead {
            // The last agent may have ended before its siblings heard of it.
            return self.alloc.died(&self.name);
        }
        // What an earlier agent bound, also for a start that was lost with it: ended with the task, or replaced.
        if record.driver_id.is_some()
            && let Some(plan) = Plan::make(&self.alloc, &self.name)
        {
            self.binds = plan.adopt_binds(&self.alloc);
        }
        let mut next = match (record.over, self.recover(&record).await) {
            (Some(failed), _) => Next::Over { failed },
            (None, Some(handle)) => {
                self.alloc.open_socket(&self.name);
                self.live(handle, record.stopping).await
            }
            (None, None) if record.stopping => Next::Over { failed: record.state.failed },
            (None, None) => Next::Again,
        };
        loop {
            match next {
                Next::Again => next = self.start_when_due().await,
                Next::Over { failed } => return self.finish(failed).await,
                Next::AgentEnds => return,
            }
        }
    }

    /// Takes a task back that an earlier agent started.
    async fn recover(&mut self, record: &TaskRecord) -> Option<TaskHandle> {
        let bytes = record.handle.as_ref()?;
        let plan = Plan::make(&self.alloc, &self.name);
        let handle: Result<TaskHandle, String> =
            rmp_serde::from_slice(bytes).map_err(|e| format!("its handle cannot be read: {e}"));
        let recovered = match (&plan, handle) {
            (Some(plan), Ok(handle)) => plan
                .driver
                .recover(handle.clone())
                .await
                .map(|()| handle)
                .map_err(|e| crate::error::chain(&e)),
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

    async fn start_when_due(&mut self) -> Next {
        let started_before = !self.record().state.started_at.is_zero();
        let shutdown = self.alloc.context().shutdown.clone();
        let may = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Next::AgentEnds,
            () = killed(&mut self.kill) => false,
            may = self.alloc.turn_of(&self.name, started_before) => may,
        };
        if !may {
            return self.give_up(&shutdown).await;
        }
        let Some(plan) = Plan::make(&self.alloc, &self.name) else {
            let words = "the task's driver is not available on this node";
            self.emit(
                self.event(event::DRIVER_FAILURE).detail("driver_error", words).detail("fails_task", "true"),
            );
            return Next::Over { failed: true };
        };
        if !started_before {
            self.emit(self.event(event::TASK_SETUP).message("Building Task Directory"));
        }
        let prepared = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Next::AgentEnds,
            () = killed(&mut self.kill) => None,
            prepared = prepare(&self.alloc, &plan, &mut self.templates) => Some(prepared),
        };
        let Some(prepared) = prepared else { return self.give_up(&shutdown).await };
        let id = format!("{}/{}/{:016x}", plan.alloc.id, self.name, rand::random::<u64>());
        let started = match prepared {
            Ok(prepared) => {
                // The intent; a start that is lost with the agent is found by its directory and ended by the driver.
                self.update(|r| r.driver_id = Some(id.clone())).await;
                let more = self.templates.as_ref().map(TaskTemplates::variables).unwrap_or_default();
                plan.start(&self.alloc, &id, prepared, more).await
            }
            Err(fault) => Err(fault),
        };
        match started {
            Ok((handle, binds)) => {
                self.binds = binds;
                self.started(&handle).await;
                self.live(handle, false).await
            }
            Err(StartFault::Hook(why)) => {
                let event = self.event(event::HOOK_FAILED).message(why);
                self.decide(Cause::StartFailed { recoverable: true }, Some(event)).await
            }
            Err(StartFault::Artifact(why)) => {
                let event = self.event(event::DOWNLOAD_FAILED).detail("download_error", why);
                self.decide(Cause::StartFailed { recoverable: true }, Some(event)).await
            }
            Err(StartFault::Templates(failed)) => {
                let words = format!("Template failed: {}", failed.why);
                let event = self.event(event::TEMPLATE).message(words);
                self.decide(Cause::StartFailed { recoverable: failed.recoverable }, Some(event)).await
            }
            Err(StartFault::Lease) => self.fenced_before_start().await,
            Err(StartFault::Driver(error)) => {
                let words = crate::error::chain(&error);
                let event = self.event(event::DRIVER_FAILURE).detail("driver_error", words);
                self.decide(Cause::StartFailed { recoverable: error.is_recoverable() }, Some(event)).await
            }
        }
    }

    /// A task that may not start: killed, or its allocation could not be set up.
    async fn give_up(&mut self, shutdown: &tokio_util::sync::CancellationToken) -> Next {
        if shutdown.is_cancelled() {
            return Next::AgentEnds;
        }
        if self.is_fenced() {
            return self.fenced_before_start().await;
        }
        Next::Over { failed: self.record().state.failed }
    }

    /// The lease ran out while nothing of the task ran: it is not started any more.
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
        for words in &handle.degraded {
            self.emit(self.event(event::DRIVER).detail("driver_message", words.clone()));
        }
        let bytes = rmp_serde::to_vec_named(handle).expect("a handle has a MessagePack form");
        let event = self.event(event::STARTED);
        let now = Time(clock::now().0);
        // Durable before anyone hears that it runs: from then on the agent may die.
        self.update(|r| {
            r.handle = Some(bytes);
            r.state.state = TaskRunState::Running;
            r.state.push_event(event);
            if r.state.started_at.is_zero() {
                r.state.started_at = now;
            }
        })
        .await;
    }

    /// Watches a running task until something has to be decided. `stopping`: an earlier agent was ending it.
    async fn live(&mut self, handle: TaskHandle, stopping: bool) -> Next {
        let id = handle.task_id.clone();
        let Some(plan) = Plan::make(&self.alloc, &self.name) else { return Next::Over { failed: true } };
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
            Seen::Untold(why) => {
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
        if let Some(plugin) = &plan.plugin {
            supervisor::set_health(plugin, self.alloc.context().plugins.registry(), false).await;
        }
        self.binds.undo();
        let event = exit.as_ref().map(|exit| self.terminated(exit));
        let fenced = self.is_fenced() || exit.as_ref().is_some_and(|exit| exit.lease_passed);
        let next = match cause.filter(|_| !fenced) {
            Some(cause) => self.settle(cause, event).await,
            None => {
                let killed = if fenced { self.lease_expired() } else { self.event(event::KILLED) };
                // Whatever it did before: the order to end it came from elsewhere.
                self.update(|r| {
                    r.handle = None;
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
        // Only now that what follows is durable: until then a new agent must be able to ask how it ended.
        if let Err(error) = plan.driver.destroy(&id, true).await {
            tracing::debug!(task = %id, %error, "the driver keeps something of an ended task");
        }
        match next {
            Ok(next) => next,
            Err(delay) => self.pause(delay).await,
        }
    }

    async fn watch(&mut self, plan: &Plan, id: &TaskId) -> Seen {
        let mut templates = self.templates.take().or_else(|| TaskTemplates::adopt(&self.alloc, plan));
        let seen = self.watch_with(plan, id, &mut templates).await;
        self.templates = templates;
        seen
    }

    async fn watch_with(&mut self, plan: &Plan, id: &TaskId, templates: &mut Option<TaskTemplates>) -> Seen {
        let context = self.alloc.context().clone();
        let supervise = async {
            match &plan.plugin {
                Some(plugin) => {
                    let (alloc, name) = (&self.alloc, self.name.as_str());
                    let emit = |event| alloc.emit(name, event);
                    supervisor::supervise(plugin, context.plugins.registry(), context.deadlines, emit).await;
                }
                None => std::future::pending().await,
            }
        };
        let mut supervise = std::pin::pin!(supervise);
        let mut wait = std::pin::pin!(plan.driver.wait(id));
        let alloc = self.alloc.clone();
        let mut renewed = Box::pin(plan.renewed(&alloc));
        loop {
            tokio::select! {
                biased;
                exit = &mut wait => return Seen::Ended(ended(exit)),
                () = context.shutdown.cancelled() => return Seen::AgentEnds,
                () = killed(&mut self.kill) => return Seen::Killed,
                change = &mut renewed => {
                    match change {
                        Change::Restart(reason) => return Seen::Restart(reason),
                        Change::Signal(signal) => {
                            if let Err(error) = plan.driver.signal(id, &signal).await {
                                tracing::warn!(task = %id, %error, "the signal after a renewal failed");
                            }
                        }
                    }
                    renewed = Box::pin(plan.renewed(&alloc));
                }
                change = changed(templates) => {
                    match change {
                        TemplateChange::Restart => {
                            return Seen::Restart("Template with change_mode restart re-rendered".to_owned());
                        }
                        TemplateChange::Tell { signals, scripts } => {
                            // The watch goes on meanwhile: the task may end on this.
                            let told = tell(&self.alloc, plan, id, signals, scripts);
                            let told = tokio::select! {
                                biased;
                                exit = &mut wait => return Seen::Ended(ended(exit)),
                                told = told => told,
                                () = context.shutdown.cancelled() => return Seen::AgentEnds,
                                () = killed(&mut self.kill) => return Seen::Killed,
                            };
                            if let Err(why) = told {
                                return Seen::Untold(why);
                            }
                        }
                    }
                    if let Some(templates) = templates.as_mut() {
                        templates.carried_out();
                    }
                }
                action = self.actions.recv() => match action {
                    Some(TaskAction::Restart { reason }) => return Seen::Restart(reason),
                    Some(TaskAction::Unhealthy { reason }) => return Seen::ChecksFail(reason),
                    Some(TaskAction::Signal { signal, reply }) => {
                        let event = self.event(event::SIGNALING).detail("task_signal", signal.clone());
                        self.alloc.emit(&self.name, event);
                        let done = plan.driver.signal(id, &signal).await.map_err(ClientError::from);
                        // The asker may have gone away.
                        let _ = reply.send(done);
                    }
                    // The allocation lives as long as we do.
                    None => return Seen::Killed,
                },
                () = &mut supervise => return Seen::Unhealthy,
            }
        }
    }

    /// Ends the task as ordered. A plugin waits until nothing is mounted through it any more, or another
    /// allocation of it has taken over.
    async fn end(&mut self, plan: &Plan, id: &TaskId) -> Ended {
        let task = plan.task();
        if self.is_fenced() {
            return Ended::With(self.stop(plan, id).await);
        }
        let timeout = self.kill_timeout(plan);
        if plan.plugin.is_some()
            && let Some(ended) = self.outlive_mounts(plan, id).await
        {
            return ended;
        }
        self.update(|r| r.stopping = true).await;
        let mut event =
            self.event(event::KILLING).detail("kill_timeout", Nanos::from_std(timeout).to_string());
        if self.kill.borrow().as_ref().is_some_and(|k| k.timed_out) {
            event = event.detail("kill_reason", TIMED_OUT);
        }
        self.emit(event);
        // Nobody finds it any more before it is asked to end.
        if !self.kill.borrow().as_ref().is_some_and(|k| k.force) {
            self.alloc.services_told().await;
        }
        let delay = Nanos(self.alloc.group_delay().0.saturating_add(task.shutdown_delay.0));
        let (words, delay) =
            (format!("Waiting for shutdown_delay of {delay} before killing the task."), delay.to_std());
        if !delay.is_zero() && !self.kill.borrow().as_ref().is_some_and(|k| k.no_delay) {
            self.emit(self.event(event::SHUTDOWN_DELAY).message(words));
            let kill = &mut self.kill;
            let cut = async {
                // The sender is the allocation's, which outlives this.
                let _ = kill.wait_for(|k| k.as_ref().is_some_and(|k| k.no_delay)).await;
            };
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = cut => {}
                _ = plan.driver.wait(id) => {}
            }
        }
        Ended::With(self.stop(plan, id).await)
    }

    async fn stop(&mut self, plan: &Plan, id: &TaskId) -> Option<ExitResult> {
        // No time is left for a gentle end.
        let timeout = if self.is_fenced() { Duration::ZERO } else { self.kill_timeout(plan) };
        let signal = plan.kill_signal();
        if let Err(error) = plan.driver.stop(id, timeout, signal.as_deref()).await {
            let words = crate::error::chain(&error);
            tracing::error!(task = %id, error = words, "task cannot be stopped");
            self.emit(self.event(event::DRIVER).detail("driver_message", words));
        }
        // What does not end keeps its volumes, its directories and this runner.
        plan.driver.wait(id).await.ok()
    }

    fn kill_timeout(&self, plan: &Plan) -> Duration {
        let asked = plan.task().kill_timeout.to_std();
        let asked = if asked.is_zero() { KILL_TIMEOUT } else { asked };
        asked.min(self.alloc.context().config.max_kill_timeout)
    }

    /// Waits for the volumes of a plugin. `None`: nothing keeps it any more.
    async fn outlive_mounts(&mut self, plan: &Plan, id: &TaskId) -> Option<Ended> {
        let plugin = plan.plugin.as_ref()?;
        let context = self.alloc.context().clone();
        let key = (PluginRole::Node, plugin.id().clone());
        let alloc = plan.alloc.id.clone();
        let (mut ledger, mut registry) = (context.volumes.changes(), context.plugins.registry().changes());
        let mut wait = std::pin::pin!(plan.driver.wait(id));
        let mut said = 0;
        loop {
            ledger.borrow_and_update();
            let used = context.volumes.uses_plugin(plugin.id());
            let succeeded =
                context.plugins.registry().current(&key).is_some_and(|r| r.alloc != alloc && r.healthy);
            let forced = self.kill.borrow().as_ref().is_some_and(|k| k.force);
            if used == 0 || succeeded || forced || !plugin.mounts_volumes() {
                return None;
            }
            if said != used {
                said = used;
                let words = format!(
                    "csi_plugin_supervisor: {used} volumes are still mounted through this plugin; it ends after they do"
                );
                self.alloc.emit(&self.name, self.event(event::HOOK_MESSAGE).message(words));
            }
            tokio::select! {
                exit = &mut wait => return Some(Ended::With(exit.ok())),
                () = context.shutdown.cancelled() => return Some(Ended::AgentEnds),
                _ = ledger.changed() => {}
                _ = registry.recv() => {}
                _ = self.kill.changed() => {}
            }
        }
    }

    /// How the task ended, as an event.
    fn terminated(&self, exit: &ExitResult) -> TaskEvent {
        let mut event = self
            .event(event::TERMINATED)
            .detail("exit_code", exit.exit_code.to_string())
            .detail("signal", exit.signal.to_string());
        if exit.oom_killed {
            event = event.detail("oom_killed", "true");
        }
        match (&exit.err, exit.oom_killed) {
            (Some(error), _) => event.detail("exit_message", error.clone()),
            (None, true) => event.detail("exit_message", "OOM Killed"),
            (None, false) => event,
        }
    }

    /// Asks the policy, says what it decided, and waits for the delay.
    async fn decide(&mut self, cause: Cause, why: Option<TaskEvent>) -> Next {
        match self.settle(cause, why).await {
            Ok(next) => next,
            Err(delay) => self.pause(delay).await,
        }
    }

    /// Asks the policy and writes, in one step, what happened and what follows from it: an agent that dies in
    /// between must not decide twice. Answers the delay before another start as the error.
    async fn settle(&mut self, cause: Cause, why: Option<TaskEvent>) -> Result<Next, Nanos> {
        let alloc = self.alloc.alloc();
        let group = alloc.group();
        let task = group.and_then(|g| g.task(&self.name));
        let policy: RestartPolicy = task
            .and_then(|t| t.restart_policy)
            .or_else(|| group.and_then(|g| g.restart_policy))
            .unwrap_or_default();
        let batch = alloc.job.as_ref().is_some_and(|j| j.kind.is_batch());
        let once = task.is_some_and(|t| Role::of(t).runs_once());
        let now = clock::now();
        let (restarting, over) = (self.event(event::RESTARTING), self.event(event::NOT_RESTARTING));
        let mut settled = Ok(Next::Over { failed: true });
        self.update(|r| {
            r.handle = None;
            // What ended by itself did not run out of time.
            r.timed_out &= !matches!(cause, Cause::Exited { .. });
            if let Some(why) = why {
                r.state.push_event(why);
            }
            match r.restarts.next(&policy, !batch && !once, cause, now, clock::jitter_permille()) {
                Verdict::Restart { reason, delay } => {
                    let event = restarting.detail("restart_reason", reason);
                    r.state.push_event(event.detail("start_delay", delay.0.to_string()));
                    r.state.state = TaskRunState::Pending;
                    r.state.restarts += 1;
                    r.state.last_restart = Time(now.0);
                    settled = Err(delay);
                }
                Verdict::Over { reason, failed } => {
                    if !reason.is_empty() {
                        let event = over.detail("restart_reason", reason);
                        r.state.push_event(event.detail("fails_task", failed.to_string()));
                    }
                    r.over = Some(failed);
                    settled = Ok(Next::Over { failed });
                }
            }
        })
        .await;
        settled
    }

    /// Waits before another start.
    async fn pause(&mut self, delay: Nanos) -> Next {
        let shutdown = self.alloc.context().shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => Next::AgentEnds,
            () = tokio::time::sleep(delay.to_std()) => Next::Again,
            () = killed(&mut self.kill) => match self.is_fenced() {
                true => self.fenced_before_start().await,
                false => Next::Over { failed: false },
            },
        }
    }

    /// It is over for good.
    async fn finish(&mut self, failed: bool) {
        self.end_lost().await;
        self.binds.undo();
        if let Some(plugin) = Plan::make(&self.alloc, &self.name).and_then(|p| p.plugin) {
            supervisor::deregister(&plugin, self.alloc.context().plugins.registry()).await;
            plugin.clean();
        }
        self.update(|r| {
            r.handle = None;
            r.state.failed |= failed;
            r.state.state = TaskRunState::Dead;
            if r.state.finished_at.is_zero() {
                r.state.finished_at = Time(clock::now().0);
            }
        })
        .await;
        self.alloc.died(&self.name);
    }

    /// Ends a run that an earlier agent started and had no time to store: nothing of the task may outlive it.
    async fn end_lost(&self) {
        let record = self.record();
        let (None, Some(id)) = (record.handle, record.driver_id) else { return };
        let Some(plan) = Plan::make(&self.alloc, &self.name) else { return };
        let id = TaskId(id);
        if let Err(error) = plan.driver.end_lost(&id, &state_dir(&self.alloc, &self.name)).await {
            let words = crate::error::chain(&error);
            tracing::error!(task = %id, error = words, "a run that was never stored cannot be ended");
        }
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

/// How a task ended, as far as its driver can tell.
fn ended(exit: Result<ExitResult, caravan_drivers::Error>) -> ExitResult {
    exit.unwrap_or_else(|error| ExitResult {
        exit_code: 0,
        err: Some(crate::error::chain(&error)),
        ..ExitResult::default()
    })
}

/// Waits for an order to end the task.
async fn killed(kill: &mut watch::Receiver<Option<Kill>>) {
    if kill.wait_for(Option::is_some).await.is_err() {
        // Nobody is left who could give one.
        std::future::pending::<()>().await;
    }
}
