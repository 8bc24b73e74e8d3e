//! Operations on an allocation: stop, restart, signal, destroy.

use super::{AllocRunner, Slot, Stage};
use crate::ClientError;
use crate::runner::lifecycle::Role;
use crate::runner::start::Plan;
use crate::runner::task::{Kill, TaskAction};
use crate::runner::users::Users;
use caravan_sys::tree::{self, Seals};
use caravan_types::alloc::TaskRunState;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;

impl AllocRunner {
    /// Stops the tasks. A second call changes nothing, except that it may skip the shutdown delay.
    pub(crate) fn stop(&self, no_delay: bool) {
        self.end(&Kill { no_delay, ..Kill::default() });
    }

    /// Stops the tasks with the given options.
    pub(in crate::runner) fn end(&self, kill: &Kill) {
        self.lock().stopping = true;
        self.kill_all(kill);
        self.changed();
    }

    /// Stops all tasks at once, poststop tasks included, whatever they wait for.
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

    pub(super) fn kill_all(&self, kill: &Kill) {
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

    /// Restarts a task, or all running tasks without a name.
    pub(crate) fn restart(&self, task: Option<&str>, all: bool) -> Result<(), ClientError> {
        let reason = match (task, all) {
            (Some(_), _) => "User requested task to restart",
            (None, true) => "User requested all tasks to restart",
            (None, false) => "User requested running tasks to restart",
        };
        self.act(task, |slot| slot.restart(reason))
    }

    /// Restarts a running task for a reason of the client's own.
    pub(in crate::runner) fn restart_because(&self, task: &str, reason: &str) -> Result<(), ClientError> {
        self.act(Some(task), |slot| slot.restart(reason))
    }

    pub(in crate::runner) fn act(&self, task: Option<&str>, act: impl Fn(&Slot)) -> Result<(), ClientError> {
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

    /// Sends a signal to a task, or to all running tasks without a name.
    pub(crate) async fn signal(&self, task: Option<&str>, signal: &str) -> Result<(), ClientError> {
        let answers = Mutex::new(Vec::new());
        self.act(task, |slot| {
            let (reply, answer) = oneshot::channel();
            let action = TaskAction::Signal { signal: signal.to_owned(), reply };
            if slot.actions.send(action).is_ok() {
                answers.lock().push(answer);
            }
        })?;
        for answer in answers.into_inner() {
            answer.await.map_err(|_| ClientError::TaskNotRunning(task.unwrap_or_default().to_owned()))??;
        }
        Ok(())
    }

    /// Returns the driver of a running task and the driver's id of it.
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

    /// Returns whether a task ever started; an error if the allocation has no such task.
    pub(crate) fn task_started(&self, task: &str) -> Result<bool, ClientError> {
        let record = self.record(task).ok_or_else(|| ClientError::UnknownTask(task.to_owned()))?;
        Ok(!record.state.started_at.is_zero())
    }

    /// Returns the names of the tasks.
    pub(crate) fn task_names(&self) -> Vec<String> {
        self.lock().tasks.keys().cloned().collect()
    }

    /// Returns the users that the tasks run as. A task whose driver is absent has none.
    pub(crate) fn users(&self) -> Users {
        let plans = self.task_names();
        Users::new(plans.iter().filter_map(|task| Plan::make(self, task)).map(|plan| plan.user()).collect())
    }

    /// Returns whether one of the tasks is a CSI plugin.
    pub(crate) fn is_plugin(&self) -> bool {
        self.alloc().group().is_some_and(|g| g.tasks.iter().any(|t| t.csi_plugin_config.is_some()))
    }

    /// Waits for a stage.
    pub(crate) async fn reached(&self, stage: Stage) {
        // This value owns the sender, so it is never dropped.
        let _ = self.inner.stage.subscribe().wait_for(|s| *s >= stage).await;
    }

    /// Removes the allocation's directories and records. Allowed only once it is over.
    pub(crate) async fn destroy(&self) -> Result<(), ClientError> {
        let alloc = self.alloc();
        let dir = self.inner.dir.clone();
        let state_dir = self.context().config.state_dir.join("tasks").join(alloc.id.as_str());
        for task in alloc.group().map_or(&[][..], |group| &group.tasks) {
            if let Some(plugin) = Plan::make(self, &task.name).and_then(|plan| plan.plugin) {
                self.context().left_mounts.clear(&plugin).await?;
            }
        }
        let removed = tokio::task::spawn_blocking(move || {
            let failed = ClientError::kernel(format!("{} cannot be removed", state_dir.display()));
            tree::remove(&state_dir, Seals::Keep).map_err(failed)?;
            dir.destroy()
        });
        removed.await.map_err(|_| ClientError::ShuttingDown)??;
        self.context().reporter.forget(&alloc.id);
        self.count("allocs.destroy");
        self.context().store.remove_alloc(&alloc.id).done().await
    }
}
