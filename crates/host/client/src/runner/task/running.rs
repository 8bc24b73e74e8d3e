//! A running task: watched, and stopped when required.

use super::{Ended, KILL_TIMEOUT, Seen, TaskRunner, killed};
use crate::ClientError;
use crate::runner::alloc_state::TaskAction;
use crate::runner::identity::Change;
use crate::runner::plan::Plan;
use crate::runner::templates::act::{changed, tell};
use crate::runner::templates::{TaskTemplates, TemplateChange};
use caravan_drivers::{ExitResult, TaskId};
use caravan_types::Nanos;
use caravan_types::alloc::{TIMED_OUT, TaskEvent, event};
use caravan_types::plugin::PluginRole;
use std::time::Duration;

impl TaskRunner {
    pub(super) async fn watch(&mut self, plan: &Plan, id: &TaskId) -> Seen {
        let mut templates = self.hooks.templates.take(&self.alloc, plan);
        let seen = self.watch_with(plan, id, &mut templates).await;
        self.hooks.templates.keep(templates);
        seen
    }

    pub(super) async fn watch_with(
        &mut self,
        plan: &Plan,
        id: &TaskId,
        templates: &mut Option<TaskTemplates>,
    ) -> Seen {
        let (plugin, alloc, name) = (self.hooks.plugin.clone(), self.alloc.clone(), self.name.clone());
        let shutdown = self.site.shutdown.clone();
        let supervise = plugin.supervise(plan, |event| alloc.emit(&name, event));
        let mut supervise = std::pin::pin!(supervise);
        let mut wait = std::pin::pin!(plan.driver.wait(id));
        let identity = self.hooks.identity.clone();
        let mut renewed = Box::pin(identity.renewed(&alloc, plan));
        loop {
            tokio::select! {
                biased;
                exit = &mut wait => return Seen::Ended(ended(exit)),
                () = shutdown.cancelled() => return Seen::AgentEnds,
                () = killed(&mut self.kill) => return Seen::Killed,
                change = &mut renewed => {
                    match change {
                        Change::Restart(reason) => return Seen::Restart(reason),
                        Change::Signal(signal) => {
                            if let Err(error) = plan.driver.signal(id, &signal).await {
                                tracing::warn!(task = %id, %error, "the signal for a new identity failed");
                            }
                        }
                    }
                    renewed = Box::pin(identity.renewed(&alloc, plan));
                }
                change = changed(templates) => {
                    match change {
                        TemplateChange::Restart => {
                            return Seen::Restart("Template with change_mode restart re-rendered".to_owned());
                        }
                        TemplateChange::Tell { signals, scripts } => {
                            // The task is watched meanwhile, because the notification may end it.
                            let delivery = tell(&self.alloc, plan, id, signals, scripts);
                            let delivery = tokio::select! {
                                biased;
                                exit = &mut wait => return Seen::Ended(ended(exit)),
                                delivery = delivery => delivery,
                                () = shutdown.cancelled() => return Seen::AgentEnds,
                                () = killed(&mut self.kill) => return Seen::Killed,
                            };
                            if let Err(why) = delivery {
                                return Seen::Undelivered(why);
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
                        // The requester may have disconnected.
                        let _ = reply.send(done);
                    }
                    // The allocation outlives this task.
                    None => return Seen::Killed,
                },
                () = &mut supervise => return Seen::Unhealthy,
            }
        }
    }

    /// Stops the task as ordered. A plugin first waits until no volume is mounted through it, or another of its
    /// allocations has taken over.
    pub(super) async fn end(&mut self, plan: &Plan, id: &TaskId) -> Ended {
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
        // The services of the task are deregistered before the task is stopped.
        if !self.kill.borrow().as_ref().is_some_and(|k| k.force) {
            self.alloc.services_reported().await;
        }
        let delay = Nanos(self.alloc.group_delay().0.saturating_add(task.shutdown_delay.0));
        let (words, delay) =
            (format!("Waiting for shutdown_delay of {delay} before killing the task."), delay.to_std());
        if !delay.is_zero() && !self.kill.borrow().as_ref().is_some_and(|k| k.no_delay) {
            self.emit(self.event(event::SHUTDOWN_DELAY).message(words));
            let kill = &mut self.kill;
            let cut = async {
                // The allocation owns the sender and outlives this task.
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

    pub(super) async fn stop(&mut self, plan: &Plan, id: &TaskId) -> Option<ExitResult> {
        // A fenced task has no time for a graceful stop.
        let timeout = if self.is_fenced() { Duration::ZERO } else { self.kill_timeout(plan) };
        let signal = plan.kill_signal();
        if let Err(error) = plan.driver.stop(id, timeout, signal.as_deref()).await {
            let words = caravan_sys::describe(&error);
            tracing::error!(task = %id, error = words, "task cannot be stopped");
            self.emit(self.event(event::DRIVER).detail("driver_message", words));
        }
        // A task that does not end keeps its volumes, its directories and this runner.
        plan.driver.wait(id).await.ok()
    }

    pub(super) fn kill_timeout(&self, plan: &Plan) -> Duration {
        let asked = plan.task().kill_timeout.to_std();
        let asked = if asked.is_zero() { KILL_TIMEOUT } else { asked };
        asked.min(self.site.max_kill_timeout)
    }

    /// Waits for the volumes of a plugin. Returns `None` once the plugin may stop.
    pub(super) async fn outlive_mounts(&mut self, plan: &Plan, id: &TaskId) -> Option<Ended> {
        let plugin = plan.plugin.as_ref()?;
        let (volumes, registry) =
            (self.hooks.volumes.csi_volumes().clone(), self.hooks.plugin.registry.clone());
        let shutdown = self.site.shutdown.clone();
        let key = (PluginRole::Node, plugin.id().clone());
        let alloc = plan.alloc.id.clone();
        let (mut ledger, mut registrations) = (volumes.changes(), registry.changes());
        let mut wait = std::pin::pin!(plan.driver.wait(id));
        let mut reported = 0;
        loop {
            ledger.borrow_and_update();
            let used = volumes.uses_plugin(plugin.id());
            let succeeded = registry.current(&key).is_some_and(|r| r.alloc != alloc && r.healthy);
            let forced = self.kill.borrow().as_ref().is_some_and(|k| k.force);
            if used == 0 || succeeded || forced || !plugin.mounts_volumes() {
                return None;
            }
            if reported != used {
                reported = used;
                let words = format!(
                    "csi_plugin_supervisor: {used} volumes are still mounted through this plugin; it ends after they do"
                );
                self.alloc.emit(&self.name, self.event(event::HOOK_MESSAGE).message(words));
            }
            tokio::select! {
                exit = &mut wait => return Some(Ended::With(exit.ok())),
                () = shutdown.cancelled() => return Some(Ended::AgentEnds),
                _ = ledger.changed() => {}
                _ = registrations.recv() => {}
                _ = self.kill.changed() => {}
            }
        }
    }

    /// Returns the event of the task's end.
    pub(super) fn terminated(&self, exit: &ExitResult) -> TaskEvent {
        let event = self
            .event(event::TERMINATED)
            .detail("exit_code", exit.exit_code.to_string())
            .detail("signal", exit.signal.to_string())
            .detail("oom_killed", exit.oom_killed.to_string());
        if exit.oom_killed {
            self.alloc.count_of_task("allocs.oom_killed", &self.name);
        }
        match (&exit.err, exit.oom_killed) {
            (Some(error), _) => event.detail("exit_message", error.clone()),
            (None, true) => event.detail("exit_message", "OOM Killed"),
            (None, false) => event,
        }
    }
}

/// Returns a task's exit result, or the driver's error in its place.
fn ended(exit: Result<ExitResult, caravan_drivers::Error>) -> ExitResult {
    exit.unwrap_or_else(|error| ExitResult {
        exit_code: 0,
        err: Some(caravan_sys::describe(&error)),
        ..ExitResult::default()
    })
}
