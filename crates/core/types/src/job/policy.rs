//! Restart, reschedule, update, migrate and disconnect policies (docs/reference/jobspec.md, sections 4.4 and 5).

use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// The action when a task has no restarts left in the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartMode {
    /// The task fails.
    #[default]
    Fail,
    /// The client waits until the interval has passed, then restarts the task.
    Delay,
}

/// The rules by which the client restarts a task on the same node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RestartPolicy {
    /// The number of restarts allowed within the interval.
    pub attempts: u32,
    /// The interval in which restarts are counted.
    pub interval: Nanos,
    /// The wait before each restart; jitter is added.
    pub delay: Nanos,
    /// The action when no restarts are left.
    pub mode: RestartMode,
    /// Whether a restart renders the templates again.
    pub render_templates: bool,
}

/// The rules by which failed allocations are placed again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReschedulePolicy {
    /// The number of attempts allowed within the interval.
    pub attempts: u32,
    /// The interval in which attempts are counted.
    pub interval: Nanos,
    /// The delay before the first attempt.
    pub delay: Nanos,
    /// The growth of the delay: `constant`, `exponential` or `fibonacci`.
    pub delay_function: String,
    /// The limit for a growing delay; 0 for a constant one.
    pub max_delay: Nanos,
    /// Whether the number of attempts is unlimited.
    pub unlimited: bool,
}

/// The rules of rolling updates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct UpdateStrategy {
    /// The pause between batches of updates of system jobs.
    pub stagger: Nanos,
    /// The number of allocations that are updated at the same time; 0 means all.
    pub max_parallel: u32,
    /// The source of the health: `checks`, `task_states` or `manual`.
    pub health_check: String,
    /// The time for which an allocation must stay healthy before it counts as healthy.
    pub min_healthy_time: Nanos,
    /// The time within which an allocation must become healthy.
    pub healthy_deadline: Nanos,
    /// The time within which the deployment must make progress.
    pub progress_deadline: Nanos,
    /// Whether a failed deployment reverts the job to the last stable version.
    pub auto_revert: bool,
    /// Whether healthy canaries are promoted automatically.
    pub auto_promote: bool,
    /// The number of canaries.
    pub canary: u32,
}

impl UpdateStrategy {
    /// Returns whether new versions roll out as deployments, a few allocations at a time.
    pub fn is_rolling(&self) -> bool {
        self.max_parallel > 0
    }
}

impl ReschedulePolicy {
    /// Returns whether a failed allocation is ever rescheduled.
    pub fn is_enabled(&self) -> bool {
        self.unlimited || (self.attempts > 0 && self.interval > Nanos::ZERO)
    }
}

/// The rules by which drains move allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MigrateStrategy {
    /// The number of allocations that move at the same time.
    pub max_parallel: u32,
    /// The source of the health: `checks` or `task_states`.
    pub health_check: String,
    /// The time for which an allocation must stay healthy before it counts as healthy.
    pub min_healthy_time: Nanos,
    /// The time within which an allocation must become healthy.
    pub healthy_deadline: Nanos,
}

/// The behaviour while a client is not in contact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DisconnectStrategy {
    /// The time after which an unknown allocation is lost.
    pub lost_after: Nanos,
    /// The time after which the client stops the tasks.
    pub stop_on_client_after: Option<Nanos>,
    /// Whether a replacement is placed while the client is not in contact.
    pub replace: Option<bool>,
    /// The rule for the allocation that stays after a reconnection, such as `best_score` or `keep_original`.
    pub reconcile: String,
}
