//! One task: started when it is its turn, watched, started again as the policy says, ended when it must.

mod running;
mod settle;

use crate::ClientError;
use crate::clock;
use crate::csi::supervisor;
use crate::restart::Cause;
use crate::runner::alloc::AllocRunner;
use crate::runner::binds::Binds;
use crate::runner::fence::LEASE_EXPIRED;
use crate::runner::identity::Writes;
use crate::runner::start::{Plan, StartFault};
use crate::runner::templates::TaskTemplates;
use crate::runner::templates::act::prepare;
use crate::state::TaskRecord;
use caravan_drivers::{ExitResult, TaskHandle};
use caravan_types::Time;
use caravan_types::alloc::{TaskEvent, TaskRunState, event};
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
    identities: Writes,
}

impl TaskRunner {
    pub(super) fn new(
        alloc: AllocRunner,
        name: String,
        actions: mpsc::UnboundedReceiver<TaskAction>,
    ) -> Self {
        let kill =
            alloc.kill_of(&name).unwrap_or_else(|| watch::Sender::new(Some(Kill::default())).subscribe());
        Self {
            alloc,
            name,
            kill,
            actions,
            binds: Binds::default(),
            templates: None,
            identities: Writes::default(),
        }
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
                self.adopt_directories().await;
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

    /// Gives the directories of a task that runs the owners and modes of this agent; the task goes on without.
    async fn adopt_directories(&self) {
        let Some(plan) = Plan::make(&self.alloc, &self.name) else { return };
        if let Err(why) = plan.adopt_directories(&self.alloc).await {
            tracing::warn!(alloc = %plan.alloc.id, task = %self.name, why, "directories of a task are not as they should be");
            let words = format!("task_dir: a directory of the task cannot be secured: {why}");
            self.emit(self.event(event::HOOK_MESSAGE).message(words));
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
        if !self.binds.is_empty() {
            // What an earlier agent bound must not cover what is made now. Of the task nothing may run beneath.
            self.end_lost().await;
            self.binds.undo();
        }
        if !started_before {
            self.emit(self.event(event::TASK_SETUP).message("Building Task Directory"));
        }
        let prepared = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Next::AgentEnds,
            () = killed(&mut self.kill) => None,
            prepared = prepare(&self.alloc, &plan, &self.identities, &mut self.templates) => Some(prepared),
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
                let words = caravan_sys::describe(&error);
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
        self.alloc.count_of_task("allocs.start", &self.name);
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

/// Waits for an order to end the task.
async fn killed(kill: &mut watch::Receiver<Option<Kill>>) {
    if kill.wait_for(Option::is_some).await.is_err() {
        // Nobody is left who could give one.
        std::future::pending::<()>().await;
    }
}
