//! The effects of an allocation's services and checks on its tasks.

use super::{AllocState, TaskAction};
use crate::clock;
use crate::runner::health::Checks;
use crate::services::ChecksSummary;
use caravan_types::Nanos;
use caravan_types::alloc::TaskRunState;
use caravan_types::service::ServiceSpec;
use std::time::Duration;
use tokio::sync::watch;

/// The longest time that the deregistration of services may delay a stop.
const TIMEOUT: Duration = Duration::from_secs(2);

impl AllocState {
    /// Waits a short time until the servers have received the current services.
    pub(in crate::runner) async fn services_reported(&self) {
        let now = *self.changes().borrow();
        let mut settled = self.services().settled.subscribe();
        // This value owns the sender. Unreachable servers must not delay the stop further.
        let _ = tokio::time::timeout(TIMEOUT, settled.wait_for(|at| *at >= now)).await;
    }

    /// Returns the group's delay between deregistering services and stopping tasks.
    pub(in crate::runner) fn group_delay(&self) -> Nanos {
        let state = self.lock();
        let delay = state.alloc.group().and_then(|group| group.shutdown_delay);
        delay.filter(|_| state.stopping).unwrap_or_default()
    }

    /// Returns the time that a task has run; without a name, the time of the youngest task.
    pub(crate) fn age_of(&self, task: Option<&str>) -> Duration {
        let now = clock::now().0;
        let state = self.lock();
        let ages = state
            .tasks
            .iter()
            .filter(|(name, slot)| {
                task.is_none_or(|task| task == *name) && slot.record.state.state == TaskRunState::Running
            })
            .map(|(_, slot)| {
                let since = slot.record.state.started_at.0.max(slot.record.state.last_restart.0);
                Duration::from_nanos(u64::try_from(now.saturating_sub(since)).unwrap_or(0))
            });
        ages.min().unwrap_or(Duration::ZERO)
    }

    /// Restarts a task, or all running ones without a name, because its checks fail.
    pub(crate) fn restart_unhealthy(&self, task: Option<&str>, reason: &str) {
        let asked = self.act(task, |slot| {
            // A task that is ending does not receive the action, and does not need it.
            let _ = slot.actions.send(TaskAction::Unhealthy { reason: reason.to_owned() });
        });
        if let Err(error) = asked {
            tracing::debug!(alloc = %self.id(), %error, "a failing check restarted no task");
        }
    }

    /// Returns a receiver of the counts of the checks on which a deployment depends. Checks of tasks that do not run
    /// are not counted: compare with [`Self::expected_checks`].
    pub(crate) fn checks_summary(&self) -> watch::Receiver<ChecksSummary> {
        self.services().book.watch()
    }

    /// Returns the combined state of the checks on which the health depends.
    pub(in crate::runner) fn checks_stand(&self) -> Checks {
        let expected = self.expected_checks();
        let summary = *self.checks_summary().borrow();
        match expected {
            0 => Checks::None,
            _ if summary.all_passing() && summary.passing >= expected => Checks::Passing(summary.since),
            _ => Checks::Open,
        }
    }

    /// Returns the number of checks that count for the allocation's health once all its tasks run.
    pub(crate) fn expected_checks(&self) -> usize {
        let alloc = self.alloc();
        let Some(group) = alloc.group() else { return 0 };
        let of_tasks = group.tasks.iter().flat_map(|task| &task.services);
        let native = group.services.iter().chain(of_tasks).filter(|spec| spec.is_native());
        native.flat_map(ServiceSpec::checks).filter(|check| check.on_update != "ignore").count()
    }
}
