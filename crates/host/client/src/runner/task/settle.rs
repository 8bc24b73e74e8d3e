//! The steps after a task ended: it is restarted by its policy, or it is dead.

use super::{Next, TaskRunner, killed};
use crate::clock;
use crate::restart::{Cause, Verdict};
use crate::runner::lifecycle::Role;
use crate::runner::task_hooks::TaskContext;
use caravan_drivers::TaskId;
use caravan_types::alloc::{TaskEvent, TaskRunState, event};
use caravan_types::job::RestartPolicy;
use caravan_types::{Nanos, Time};

impl TaskRunner {
    /// Applies the policy, reports the decision, and waits for the delay.
    pub(super) async fn decide(&mut self, cause: Cause, why: Option<TaskEvent>) -> Next {
        match self.settle(cause, why).await {
            Ok(next) => next,
            Err(delay) => self.pause(delay).await,
        }
    }

    /// Applies the policy, and stores the end and the decision in one write, so that a restarted agent does not decide
    /// twice. Returns the delay before a restart as the error.
    pub(super) async fn settle(&mut self, cause: Cause, why: Option<TaskEvent>) -> Result<Next, Nanos> {
        let alloc = self.alloc.alloc();
        let group = alloc.group();
        let task = group.and_then(|g| g.task(&self.name));
        let policy: RestartPolicy = task
            .and_then(|t| t.restart_policy)
            .or_else(|| group.and_then(|g| g.restart_policy))
            .unwrap_or_default();
        let batch = alloc.job.as_ref().is_some_and(|j| j.kind.is_batch());
        let once = task.is_some_and(|t| Role::from_task(t).runs_once());
        let now = clock::now();
        let (restarting, over) = (self.event(event::RESTARTING), self.event(event::NOT_RESTARTING));
        let mut settled = Ok(Next::Over { failed: true });
        self.update(|r| {
            r.handle = None;
            r.driver_id = r.driver_id.take().filter(|_| !matches!(cause, Cause::Exited { .. }));
            // A task that ended by itself did not exceed the run time limit.
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
        if settled.is_err() {
            self.alloc.count_of_task("allocs.restart", &self.name);
        }
        settled
    }

    /// Waits before a restart.
    pub(super) async fn pause(&mut self, delay: Nanos) -> Next {
        let shutdown = self.site.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => Next::AgentEnds,
            () = tokio::time::sleep(delay.to_std()) => Next::Again,
            () = killed(&mut self.kill) => match self.is_fenced() {
                true => self.fenced_before_start().await,
                false => Next::Over { failed: false },
            },
        }
    }

    /// Ends the task for good.
    pub(super) async fn finish(&mut self, failed: bool) {
        self.end_lost().await;
        let plan = self.plan();
        let cx = TaskContext { alloc: &self.alloc, name: &self.name };
        self.hooks.finish(cx, plan.as_ref()).await;
        self.update(|r| {
            r.handle = None;
            r.state.failed |= failed;
            r.state.state = TaskRunState::Dead;
            if r.state.finished_at.is_zero() {
                r.state.finished_at = Time(clock::now().0);
            }
        })
        .await;
        let failed = self.record().state.failed;
        let what = if failed { "allocs.failed" } else { "allocs.complete" };
        self.alloc.count_of_task(what, &self.name);
        self.planner.dynamic_users.release(&self.alloc.id(), &self.name);
        self.alloc.died(&self.name);
    }

    /// Kills a run that an earlier agent started but could not store: no process of the task may outlive the task.
    pub(super) async fn end_lost(&self) {
        let record = self.record();
        let (None, Some(id)) = (record.handle, record.driver_id) else { return };
        let Some(plan) = self.plan() else { return };
        let id = TaskId(id);
        if let Err(error) =
            plan.driver.end_lost(&id, &self.site.state_dir_of(&self.alloc.id()).join(&self.name)).await
        {
            let words = caravan_sys::describe(&error);
            tracing::error!(task = %id, error = words, "a run whose handle was not stored cannot be killed");
        }
    }
}
