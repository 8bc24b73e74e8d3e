//! The state of an allocation and its tasks: stored, reported to the servers, and watched by siblings.

use super::{AllocState, Kill, Readiness, Slot, Stage};
use crate::clock;
use crate::runner::health::Judged;
use crate::runner::lifecycle::{EndReason, Group, Role, Sibling, ends_with, may_start};
use crate::runner::status::aggregate;
use crate::state::TaskRecord;
use caravan_types::alloc::{
    AllocUpdate, ClientStatus, LEASE_EXPIRED, TIMED_OUT, TaskEvent, TaskRunState, TaskState, event,
};
use caravan_types::small::Map;
use tokio::sync::watch;

/// The description of an allocation whose tasks have ended, while its network is being removed.
const NETWORK_HELD: &str = "Tasks have ended; the network is being removed";

impl AllocState {
    pub(in crate::runner) fn record(&self, task: &str) -> Option<TaskRecord> {
        self.lock().tasks.get(task).map(|s| s.record.clone())
    }

    pub(in crate::runner) fn kill_of(&self, task: &str) -> Option<watch::Receiver<Option<Kill>>> {
        self.lock().tasks.get(task).map(|s| s.kill.subscribe())
    }

    /// Changes the record of a task, stores it, and reports the change to the servers.
    pub(in crate::runner) fn update(
        &self,
        task: &str,
        change: impl FnOnce(&mut TaskRecord),
    ) -> Option<crate::state::Written> {
        let written = {
            let mut state = self.lock();
            let alloc = state.alloc.id.clone();
            let slot = state.tasks.get_mut(task)?;
            change(&mut slot.record);
            self.inner.outlets.store.put_task(&alloc, task, &slot.record)
        };
        self.push();
        self.changed();
        Some(written)
    }

    /// Adds an event to a task.
    pub(crate) fn emit(&self, task: &str, event: TaskEvent) {
        // A fixed log target, independent of module paths, because users filter by it.
        tracing::info!(
            target: "caravan_client::runner::alloc",
            alloc = %self.id(), task, event = event.kind.as_str(), says = event.display(), "task event"
        );
        if let Some(written) = self.update(task, |record| record.state.push_event(event)) {
            written.later();
        }
    }

    /// Adds an event with the reason of the wait to every task that has not started.
    pub(in crate::runner) fn tell_waiting(&self, reason: &str) {
        for task in self.task_names() {
            self.emit(&task, TaskEvent::new(event::WAITING_FOR_VOLUME, clock::now()).message(reason));
        }
    }

    /// Handles the death of a task: others may have to stop.
    pub(in crate::runner) fn died(&self, task: &str) {
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

    /// Waits until a task may start. Returns `false` if it never may.
    pub(in crate::runner) async fn turn_of(&self, task: &str, started_before: bool) -> bool {
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
                    // The task can never start: a task that it waits for failed, or the allocation stops before it
                    // began.
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

    /// Changes the readiness, unless it was changed meanwhile.
    pub(in crate::runner) fn set_readiness(&self, from: Readiness, to: Readiness) {
        self.inner.readiness.send_if_modified(|now| {
            let is_from = *now == from;
            if is_from {
                *now = to;
            }
            is_from
        });
    }

    /// Sets the readiness.
    pub(in crate::runner) fn decide_readiness(&self, readiness: Readiness) {
        self.inner.readiness.send_replace(readiness);
    }

    /// Enters a stage.
    pub(in crate::runner) fn reach(&self, stage: Stage) {
        self.inner.stage.send_replace(stage);
    }

    /// Returns a receiver of changes that siblings may wait for.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    pub(in crate::runner) async fn until_stopping(&self) {
        let mut changes = self.inner.changes.subscribe();
        while !self.lock().stopping {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub(in crate::runner) fn group(&self) -> Group {
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

    pub(in crate::runner) fn is_live(&self) -> bool {
        let state = self.lock();
        !state.stopping && state.tasks.values().any(|s| s.record.state.state != TaskRunState::Dead)
    }

    pub(in crate::runner) fn all_dead(&self) -> bool {
        self.lock().tasks.values().all(|s| s.record.state.state == TaskRunState::Dead)
    }

    /// Returns the states of the tasks.
    pub(crate) fn task_states(&self) -> Map<String, TaskState> {
        self.lock().tasks.iter().map(|(n, s)| (n.clone(), s.record.state.clone())).collect()
    }

    /// Returns the allocation's current status.
    pub(crate) fn status(&self) -> ClientStatus {
        aggregate(&self.task_states()).0
    }

    /// Judges the health. Returns the time of the next judgement, whether the health became known, and the
    /// responsible task.
    pub(in crate::runner) fn judge(&self) -> Judged {
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

    /// Adds an event to a task without reporting it yet.
    pub(in crate::runner) fn note(&self, task: &str, event: TaskEvent) {
        let mut state = self.lock();
        let alloc = state.alloc.id.clone();
        if let Some(slot) = state.tasks.get_mut(task) {
            slot.record.state.push_event(event);
            self.inner.outlets.store.put_task(&alloc, task, &slot.record).later();
        }
    }

    /// Reports the allocation's status to the servers.
    pub(crate) fn push(&self) {
        // The last change may have decided the health: both are reported together.
        self.look_at_health();
        let (deployment_id, deployment_status) = self.lock().health.report();
        let task_states = self.task_states();
        let (client_status, words) = aggregate(&task_states);
        let (network, is_held) = {
            let state = self.lock();
            (state.attached.status.clone().unwrap_or_default(), state.attached.is_held)
        };
        let any = |is: fn(&TaskRecord) -> bool| self.lock().tasks.values().any(|slot| is(&slot.record));
        let words = match client_status {
            ClientStatus::Failed if any(|record| record.fenced) => LEASE_EXPIRED,
            ClientStatus::Complete if any(|record| record.timed_out) => TIMED_OUT,
            _ => words,
        };
        // A final status frees the ports of the allocation for others.
        let (client_status, words) = match client_status {
            status if status.is_terminal() && is_held => (ClientStatus::Running, NETWORK_HELD),
            status => (status, words),
        };
        self.inner.outlets.reporter.push(AllocUpdate {
            alloc_id: self.alloc().id.clone(),
            client_status,
            client_description: words.into(),
            task_states,
            deployment_id,
            deployment_status,
            // Empty in the host's network, or without a network. The first report contains this, because clients read
            // the allocation as soon as it changes.
            network_status: Some(network),
        });
    }
}
