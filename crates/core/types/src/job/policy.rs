//! Restart, reschedule, update, migrate and disconnect policies (docs/reference/jobspec.md, sections 4.4 and 5).

use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// What happens when restarts are used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartMode {
    /// The task fails.
    #[default]
    Fail,
    /// Wait for the interval to pass, then go on.
    Delay,
}

/// Restarts on the same node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RestartPolicy {
    /// Restarts allowed within the interval.
    pub attempts: u32,
    /// The interval.
    pub interval: Nanos,
    /// Wait before each restart, jitter added.
    pub delay: Nanos,
    /// When used up.
    pub mode: RestartMode,
    /// Render templates again on restart.
    pub render_templates: bool,
}

/// New allocations after failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReschedulePolicy {
    /// Attempts within the interval.
    pub attempts: u32,
    /// The interval.
    pub interval: Nanos,
    /// First delay.
    pub delay: Nanos,
    /// `constant`, `exponential` or `fibonacci`.
    pub delay_function: String,
    /// Ceiling of the delay.
    pub max_delay: Nanos,
    /// No limit of attempts.
    pub unlimited: bool,
}

/// Rolling updates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct UpdateStrategy {
    /// Pause between batches of system jobs.
    pub stagger: Nanos,
    /// At once; 0 = all.
    pub max_parallel: u32,
    /// `checks`, `task_states` or `manual`.
    pub health_check: String,
    /// How long healthy before it counts.
    pub min_healthy_time: Nanos,
    /// Until when an allocation must be healthy.
    pub healthy_deadline: Nanos,
    /// Until when the deployment must make progress.
    pub progress_deadline: Nanos,
    /// Back to the last stable version on failure.
    pub auto_revert: bool,
    /// Promote canaries when healthy.
    pub auto_promote: bool,
    /// Canaries.
    pub canary: u32,
}

impl UpdateStrategy {
    /// Whether new versions roll out as deployments, a few allocations at a time.
    pub fn is_rolling(&self) -> bool {
        self.max_parallel > 0
    }
}

impl ReschedulePolicy {
    /// Whether a failed allocation is ever rescheduled.
    pub fn is_enabled(&self) -> bool {
        self.unlimited || (self.attempts > 0 && self.interval > Nanos::ZERO)
    }
}

/// Moves during drains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MigrateStrategy {
    /// At once.
    pub max_parallel: u32,
    /// `checks` or `task_states`.
    pub health_check: String,
    /// How long healthy before it counts.
    pub min_healthy_time: Nanos,
    /// Until when an allocation must be healthy.
    pub healthy_deadline: Nanos,
}

/// Behaviour while the client cannot be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DisconnectStrategy {
    /// Unknown for so long before lost.
    pub lost_after: Nanos,
    /// The client stops its tasks after so long.
    pub stop_on_client_after: Option<Nanos>,
    /// Place a replacement meanwhile.
    pub replace: Option<bool>,
    /// Which one stays on reconnection.
    pub reconcile: String,
}
