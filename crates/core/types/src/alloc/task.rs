//! The states of tasks, and their events.

use super::TaskRunState;
use crate::ser::nil;
use crate::small::{Map, Text};
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The state of a task, as its client reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct TaskState {
    /// The state in the life of the task.
    pub state: TaskRunState,
    /// Whether the task ended with a failure and is not restarted.
    pub failed: bool,
    /// The number of restarts.
    pub restarts: u64,
    /// The time of the decision for the latest restart; zero without a restart.
    pub last_restart: Time,
    /// The time of the latest start. A task that continues under a new agent keeps it.
    pub started_at: Time,
    /// The time of the end; zero before.
    pub finished_at: Time,
    /// The last ten events, oldest first.
    #[serde(with = "nil")]
    pub events: Vec<TaskEvent>,
    /// The state of a pause by schedule; always empty, because schedules are refused.
    pub paused: String,
}

impl TaskState {
    /// The number of events that are kept for each task.
    pub const MAX_EVENTS: usize = 10;

    /// Adds an event and removes the oldest events beyond the limit.
    pub fn push_event(&mut self, event: TaskEvent) {
        self.events.push(event);
        let surplus = self.events.len().saturating_sub(Self::MAX_EVENTS);
        self.events.drain(..surplus);
    }
    /// Returns whether the task ended without a failure.
    pub fn successful(&self) -> bool {
        self.state == TaskRunState::Dead && !self.failed
    }
}

/// An event of a task.
///
/// Its JSON repeats some details as separate fields, for older clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskEvent {
    /// The name of the event, from the module [`event`].
    pub kind: Text,
    /// The time of the event.
    pub time: UnixNanos,
    /// The facts of the event, by name, such as `exit_code`.
    pub details: Map<Text, String>,
    /// The sentence for users, present only in responses.
    pub display_message: String,
}

/// An event in the form of the HTTP API.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown<'e> {
    #[serde(rename = "Type")]
    kind: &'e str,
    time: UnixNanos,
    message: &'e str,
    display_message: &'e str,
    details: &'e Map<Text, String>,
    fails_task: bool,
    restart_reason: &'e str,
    setup_error: &'e str,
    driver_error: &'e str,
    exit_code: i64,
    signal: i64,
    kill_timeout: Nanos,
    kill_error: &'e str,
    kill_reason: &'e str,
    start_delay: Nanos,
    download_error: &'e str,
    validation_error: &'e str,
    disk_limit: i64,
    failed_sibling: &'e str,
    vault_error: &'e str,
    task_signal_reason: &'e str,
    task_signal: &'e str,
    driver_message: &'e str,
    generic_source: &'e str,
}

/// An event in the form that is stored and sent between agents.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Kept<'e> {
    #[serde(rename = "Type")]
    kind: &'e str,
    time: UnixNanos,
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: &'e Map<Text, String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    display_message: &'e str,
}

impl Serialize for TaskEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, time, display_message) = (self.kind.as_str(), self.time, self.display_message.as_str());
        let details = &self.details;
        if !serializer.is_human_readable() {
            return Kept { kind, time, details, display_message }.serialize(serializer);
        }
        let shown = Shown {
            kind,
            time,
            message: self.text(),
            display_message,
            details,
            fails_task: self.get("fails_task") == "true",
            restart_reason: self.get("restart_reason"),
            setup_error: self.get("setup_error"),
            driver_error: self.get("driver_error"),
            exit_code: self.exit_code(),
            signal: self.signal(),
            kill_timeout: Nanos::ZERO,
            kill_error: self.get("kill_error"),
            kill_reason: self.get("kill_reason"),
            start_delay: Nanos(self.number("start_delay")),
            download_error: self.get("download_error"),
            validation_error: self.get("validation_error"),
            disk_limit: 0,
            failed_sibling: self.get("failed_sibling"),
            vault_error: "",
            task_signal_reason: self.get("task_signal_reason"),
            task_signal: self.get("task_signal"),
            driver_message: self.get("driver_message"),
            generic_source: "",
        };
        shown.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TaskEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Read {
            #[serde(rename = "Type")]
            kind: Text,
            time: UnixNanos,
            #[serde(with = "nil")]
            details: Map<Text, String>,
            message: String,
            display_message: String,
        }
        let Read { kind, time, details, message, display_message } = Read::deserialize(deserializer)?;
        let mut event = Self { kind, time, details, display_message };
        if !message.is_empty() && event.text().is_empty() {
            event.details.insert("message".into(), message);
        }
        Ok(event)
    }
}

/// Names of task events (docs/reference/http-api.md, section 5.3).
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
    pub const DOWNLOADING: &str = "Downloading Artifacts";
    pub const DOWNLOAD_FAILED: &str = "Failed Artifact Download";
    pub const TEMPLATE: &str = "Template";
    pub const SIBLING_FAILED: &str = "Sibling Task Failed";
    pub const LEADER_DEAD: &str = "Leader Task Dead";
    pub const MAIN_TASKS_DEAD: &str = "Main Tasks Dead";
    pub const HOOK_FAILED: &str = "Task hook failed";
    pub const HOOK_MESSAGE: &str = "Task hook message";
    pub const FAILED_RESTORING: &str = "Failed Restoring Task";
    pub const PLUGIN_HEALTHY: &str = "Plugin became healthy";
    pub const PLUGIN_UNHEALTHY: &str = "Plugin became unhealthy";
    pub const PLUGIN_LEFT_MOUNTS: &str = "Plugin left mounts";
    pub const WAITING_FOR_VOLUME: &str = "Waiting for volume";
    pub const LEASE_EXPIRED: &str = "Lease expired";
    pub const VOLUME_BROKEN: &str = "Volume mount broken";
    pub const VOLUME_RENEWED: &str = "Volume mounted again";
    pub const ALLOC_UNHEALTHY: &str = "Alloc Unhealthy";
    pub const SHUTDOWN_DELAY: &str = "Waiting for shutdown delay";
}

impl TaskEvent {
    /// Returns an event of a kind at a time.
    pub fn new(kind: &str, time: UnixNanos) -> Self {
        Self { kind: kind.into(), time, ..Self::default() }
    }
    /// Returns the event with another detail.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<String>) -> Self {
        self.details.insert(key.into(), value.into());
        self
    }
    /// Returns a detail, or an empty text without such a detail.
    pub fn get(&self, key: &str) -> &str {
        self.details.get(key).map(String::as_str).unwrap_or_default()
    }
    fn number(&self, key: &str) -> i64 {
        self.get(key).parse().unwrap_or(0)
    }
    /// Returns the message of the event, or an empty text without a message.
    pub fn text(&self) -> &str {
        match self.get("message") {
            "" => self.get("exit_message"),
            text => text,
        }
    }
    /// Returns the exit code of a task that ended, or 0 without an exit code.
    pub fn exit_code(&self) -> i64 {
        self.number("exit_code")
    }
    /// Returns the signal that ended a task, or 0 without a signal.
    pub fn signal(&self) -> i64 {
        self.number("signal")
    }
    /// Returns the event with a message.
    #[must_use]
    pub fn message(self, text: impl Into<String>) -> Self {
        self.detail("message", text)
    }

    /// Returns the sentence for users (docs/reference/http-api.md, section 5.3).
    pub fn display(&self) -> String {
        let get = |key: &str| self.get(key);
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
            event::DOWNLOADING => "Client is downloading artifacts".into(),
            event::DOWNLOAD_FAILED => or("download_error", "Failed to download artifacts"),
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
            _ => self.text().to_owned(),
        }
    }
}
