//! Operations on an allocation: stop, restart, signal.

use super::{AllocState, Slot, Stage};
use crate::ClientError;
use crate::runner::lifecycle::Role;
use caravan_types::alloc::TaskRunState;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The reason to restart a task that runs in an earlier namespace of the allocation.
const NETWORK_REPLACED: &str = "The network of the allocation was made again";

/// The options of a stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::runner) struct Kill {
    /// Whether to skip the shutdown delay.
    pub(in crate::runner) no_delay: bool,
    /// Whether to skip all waits, also the wait for volumes that a plugin serves.
    pub(in crate::runner) force: bool,
    /// Whether the node's lease ran out: the tasks stop immediately, as a failure.
    pub(in crate::runner) fenced: bool,
    /// Whether the run time limit has passed: poststop tasks do not run.
    pub(in crate::runner) timed_out: bool,
}

/// An action on a running task.
#[derive(Debug)]
pub(in crate::runner) enum TaskAction {
    /// Restart the task.
    Restart {
        /// The reason in Nomad's words.
        reason: String,
    },
    /// Checks fail: restart, counted by the restart policy.
    Unhealthy {
        /// The check that failed.
        reason: String,
    },
    /// Send a signal.
    Signal {
        /// The name of the signal.
        signal: String,
        /// The channel that receives the driver's result.
        reply: oneshot::Sender<Result<(), ClientError>>,
    },
}

impl AllocState {
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

    /// Stops all tasks immediately, including poststop tasks and tasks that wait.
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

    pub(in crate::runner) fn kill_all(&self, kill: &Kill) {
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

    /// Restarts a running task for a reason of the client.
    pub(in crate::runner) fn restart_because(&self, task: &str, reason: &str) -> Result<(), ClientError> {
        self.act(Some(task), |slot| slot.restart(reason))
    }

    /// Restarts running tasks in a namespace that is no longer the allocation's, because they have lost its network.
    pub(in crate::runner) fn restart_strays(&self) {
        let Some(current) = self.namespace() else { return };
        for slot in self.lock().tasks.values() {
            let record = &slot.record;
            if record.state.state == TaskRunState::Running
                && record.namespace.is_some_and(|own| own != current)
            {
                slot.restart(NETWORK_REPLACED);
            }
        }
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

    /// Returns whether a task ever started; an error if the allocation has no such task.
    pub(crate) fn task_started(&self, task: &str) -> Result<bool, ClientError> {
        let record = self.record(task).ok_or_else(|| ClientError::UnknownTask(task.to_owned()))?;
        Ok(!record.state.started_at.is_zero())
    }

    /// Returns the names of the tasks.
    pub(crate) fn task_names(&self) -> Vec<String> {
        self.lock().tasks.keys().cloned().collect()
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
}
