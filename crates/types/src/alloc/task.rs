//! State of tasks and what happened to them.

use super::TaskRunState;
use crate::ser::nil;
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// State of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskState {
    /// Where it stands.
    pub state: TaskRunState,
    /// Ended badly for good.
    pub failed: bool,
    /// Restarts so far.
    pub restarts: u64,
    /// Last restart.
    pub last_restart: Time,
    /// Start.
    pub started_at: Time,
    /// End.
    pub finished_at: Time,
    /// The last ten events, oldest first.
    #[serde(with = "nil")]
    pub events: Vec<TaskEvent>,
    /// Pause state.
    pub paused: String,
}

impl TaskState {
    /// Events kept for each task.
    pub const MAX_EVENTS: usize = 10;

    /// Adds an event, dropping the oldest beyond the limit.
    pub fn push_event(&mut self, event: TaskEvent) {
        self.events.push(event);
        let surplus = self.events.len().saturating_sub(Self::MAX_EVENTS);
        self.events.drain(..surplus);
    }
    /// Whether it ended well.
    pub fn successful(&self) -> bool {
        self.state == TaskRunState::Dead && !self.failed
    }
}

/// Something that happened to a task. `kind` and `details` are the truth; the other fields repeat
/// details for older clients and `DisplayMessage` is derived when answering.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "legacy fields repeat the details of the same name")]
pub struct TaskEvent {
    #[serde(rename = "Type")]
    pub kind: String,
    pub time: UnixNanos,
    pub message: String,
    pub display_message: String,
    pub details: BTreeMap<String, String>,
    pub fails_task: bool,
    pub restart_reason: String,
    pub setup_error: String,
    pub driver_error: String,
    pub exit_code: i64,
    pub signal: i64,
    pub kill_timeout: Nanos,
    pub kill_error: String,
    pub kill_reason: String,
    pub start_delay: Nanos,
    pub download_error: String,
    pub validation_error: String,
    pub disk_limit: i64,
    pub failed_sibling: String,
    pub vault_error: String,
    pub task_signal_reason: String,
    pub task_signal: String,
    pub driver_message: String,
    pub generic_source: String,
}

/// Names of task events (`http-api` section 5.3).
#[expect(missing_docs, reason = "the text is the documentation")]
pub mod event {
    pub const RECEIVED: &str = "Received";
    pub const TASK_SETUP: &str = "Task Setup";
    pub const SETUP_FAILURE: &str = "Setup Failure";
    pub const FAILED_VALIDATION: &str = "Failed Validation";
    pub const DRIVER_FAILURE: &str = "Driver Failure";
    pub const DRIVER: &str = "Driver";
    pub const STARTED: &str = "Started";
    pub const TERMINATED: &str = "Terminated";
    pub const RESTARTING: &str = "Restarting";
    pub const NOT_RESTARTING: &str = "Not Restarting";
    pub const RESTART_SIGNALED: &str = "Restart Signaled";
    pub const KILLING: &str = "Killing";
    pub const KILLED: &str = "Killed";
    pub const SIGNALING: &str = "Signaling";
    pub const TEMPLATE: &str = "Template";
    pub const SIBLING_FAILED: &str = "Sibling Task Failed";
    pub const LEADER_DEAD: &str = "Leader Task Dead";
    pub const MAIN_TASKS_DEAD: &str = "Main Tasks Dead";
    pub const HOOK_FAILED: &str = "Task hook failed";
    pub const HOOK_MESSAGE: &str = "Task hook message";
    pub const FAILED_RESTORING: &str = "Failed Restoring Task";
    pub const PLUGIN_HEALTHY: &str = "Plugin became healthy";
    pub const PLUGIN_UNHEALTHY: &str = "Plugin became unhealthy";
    pub const WAITING_FOR_VOLUME: &str = "Waiting for volume";
    pub const LEASE_EXPIRED: &str = "Lease expired";
    pub const VOLUME_BROKEN: &str = "Volume mount broken";
    pub const VOLUME_RENEWED: &str = "Volume mounted again";
    pub const ALLOC_UNHEALTHY: &str = "Alloc Unhealthy";
    pub const SHUTDOWN_DELAY: &str = "Waiting for shutdown delay";
}

impl TaskEvent {
    /// An event of a kind at a time.
    pub fn new(kind: &str, time: UnixNanos) -> Self {
        Self { kind: kind.to_owned(), time, ..Self::default() }
    }
    /// With a detail; the legacy field of the same meaning is filled too.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        match key {
            "restart_reason" => self.restart_reason.clone_from(&value),
            "setup_error" => self.setup_error.clone_from(&value),
            "driver_error" => self.driver_error.clone_from(&value),
            "exit_code" => self.exit_code = value.parse().unwrap_or(0),
            "signal" => self.signal = value.parse().unwrap_or(0),
            "kill_timeout" => {}
            "kill_error" => self.kill_error.clone_from(&value),
            "kill_reason" => self.kill_reason.clone_from(&value),
            "start_delay" => self.start_delay = Nanos(value.parse().unwrap_or(0)),
            "validation_error" => self.validation_error.clone_from(&value),
            "failed_sibling" => self.failed_sibling.clone_from(&value),
            "task_signal_reason" => self.task_signal_reason.clone_from(&value),
            "task_signal" => self.task_signal.clone_from(&value),
            "driver_message" => self.driver_message.clone_from(&value),
            "fails_task" => self.fails_task = value == "true",
            "message" | "exit_message" => self.message.clone_from(&value),
            _ => {}
        }
        self.details.insert(key.to_owned(), value);
        self
    }
    /// With a message.
    #[must_use]
    pub fn message(self, text: impl Into<String>) -> Self {
        self.detail("message", text)
    }

    /// The sentence shown to people (`http-api` section 5.3).
    pub fn display(&self) -> String {
        let get = |key: &str| self.details.get(key).map(String::as_str).unwrap_or_default();
        let or = |key: &str, otherwise: &str| {
            let text = get(key);
            if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
        };
        match self.kind.as_str() {
            event::RECEIVED => "Task received by client".into(),
            event::TASK_SETUP => get("message").into(),
            event::STARTED => "Task started by client".into(),
            event::FAILED_VALIDATION => or("validation_error", "Validation of task failed"),
            event::SETUP_FAILURE => or("setup_error", "Task setup failed"),
            event::DRIVER_FAILURE => or("driver_error", "Failed to start task"),
            event::DRIVER => get("driver_message").into(),
            event::TERMINATED => {
                let mut text = format!("Exit Code: {}", or("exit_code", "0"));
                if !matches!(get("signal"), "" | "0") {
                    text.push_str(&format!(", Signal: {}", get("signal")));
                }
                if !get("exit_message").is_empty() {
                    text.push_str(&format!(", Exit Message: \"{}\"", get("exit_message")));
                }
                text
            }
            event::RESTARTING => {
                let delay = Nanos(get("start_delay").parse().unwrap_or(0));
                match get("restart_reason") {
                    "" | "Restart within policy" => format!("Task restarting in {delay}"),
                    reason => format!("{reason} - Task restarting in {delay}"),
                }
            }
            event::NOT_RESTARTING => or("restart_reason", "Task exceeded restart policy"),
            event::RESTART_SIGNALED => or("restart_reason", "Task signaled to restart"),
            event::KILLING => match (get("kill_reason"), get("kill_timeout")) {
                ("", "") => "Sent interrupt".into(),
                ("", timeout) => format!("Sent interrupt. Waiting {timeout} before force killing"),
                (reason, _) => reason.into(),
            },
            event::KILLED => or("kill_error", "Task successfully killed"),
            event::SIGNALING => match (get("task_signal"), get("task_signal_reason")) {
                (signal, "") => format!("Task being sent signal {signal}"),
                (signal, reason) => format!("Task being sent signal {signal}: {reason}"),
            },
            event::SIBLING_FAILED => format!("Task's sibling \"{}\" failed", get("failed_sibling")),
            event::LEADER_DEAD => "Leader Task in Group dead".into(),
            event::MAIN_TASKS_DEAD => "Main tasks in the group died".into(),
            _ => or("message", &self.message),
        }
    }
}
