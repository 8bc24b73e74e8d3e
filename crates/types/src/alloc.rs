//! Allocations: a group placed on a node.

use crate::eval::AllocMetric;
use crate::id::{AllocId, DeploymentId, EvalId, JobId, JobKey, Namespace, NodeId};
use crate::job::{Job, Lifecycle, Network, Resources, TaskGroup};
use crate::ser::{is_default, nil};
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the servers want of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredStatus {
    /// Run.
    #[default]
    Run,
    /// Stop.
    Stop,
    /// Make room.
    Evict,
}

impl DesiredStatus {
    /// The word clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stop => "stop",
            Self::Evict => "evict",
        }
    }
}

/// What became of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientStatus {
    /// Not started.
    #[default]
    Pending,
    /// Tasks run.
    Running,
    /// All main tasks ended well.
    Complete,
    /// A task failed for good.
    Failed,
    /// The node is down.
    Lost,
    /// The node cannot be reached and may come back.
    Unknown,
}

impl ClientStatus {
    /// The word clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
    /// Whether nothing of it can run any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Lost)
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskRunState {
    /// Not started.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Over.
    Dead,
}

impl TaskRunState {
    /// The word clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Dead => "dead",
        }
    }
}

/// A group placed on a node. Empty fields are left out of its JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Allocation {
    /// UUID.
    #[serde(rename = "ID", skip_serializing_if = "is_default")]
    pub id: AllocId,
    /// Namespace of the job.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: Namespace,
    /// Evaluation that made or last changed it.
    #[serde(rename = "EvalID", skip_serializing_if = "is_default")]
    pub eval_id: EvalId,
    /// `job.group[index]`.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// Node it runs on.
    #[serde(rename = "NodeID", skip_serializing_if = "is_default")]
    pub node_id: NodeId,
    /// Name of that node.
    #[serde(skip_serializing_if = "is_default")]
    pub node_name: String,
    /// Job.
    #[serde(rename = "JobID", skip_serializing_if = "is_default")]
    pub job_id: JobId,
    /// The version of the job it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Arc<Job>>,
    /// Group.
    #[serde(skip_serializing_if = "is_default")]
    pub task_group: String,
    /// Legacy view, filled when answering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Legacy view, filled when answering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_resources: Option<Resources>,
    /// Legacy view, filled when answering.
    #[serde(skip_serializing_if = "is_default")]
    pub task_resources: BTreeMap<String, Resources>,
    /// What it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<AllocatedResources>,
    /// How the scheduler came to place it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<AllocMetric>,
    /// Wanted.
    pub desired_status: DesiredStatus,
    /// Why.
    #[serde(skip_serializing_if = "is_default")]
    pub desired_description: String,
    /// Asked-for changes that the next evaluation acts on.
    #[serde(skip_serializing_if = "is_default")]
    pub desired_transition: DesiredTransition,
    /// Observed.
    pub client_status: ClientStatus,
    /// Why.
    #[serde(skip_serializing_if = "is_default")]
    pub client_description: String,
    /// By task.
    #[serde(skip_serializing_if = "is_default")]
    pub task_states: BTreeMap<String, TaskState>,
    /// Changes of the client status that the servers made.
    #[serde(skip_serializing_if = "is_default")]
    pub alloc_states: Vec<AllocStateChange>,
    /// The one it replaces.
    #[serde(skip_serializing_if = "is_default")]
    pub previous_allocation: AllocId,
    /// The one that replaces it.
    #[serde(skip_serializing_if = "is_default")]
    pub next_allocation: AllocId,
    /// Deployment.
    #[serde(rename = "DeploymentID", skip_serializing_if = "is_default")]
    pub deployment_id: DeploymentId,
    /// Health within the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_status: Option<AllocDeploymentStatus>,
    /// Earlier attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reschedule_tracker: Option<RescheduleTracker>,
    /// Network as the client made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_status: Option<NetworkStatus>,
    /// Evaluation that will look at it again.
    #[serde(rename = "FollowupEvalID", skip_serializing_if = "is_default")]
    pub followup_eval_id: EvalId,
    /// Those that made room for it.
    #[serde(skip_serializing_if = "is_default")]
    pub preempted_allocations: Vec<AllocId>,
    /// The one it made room for.
    #[serde(skip_serializing_if = "is_default")]
    pub preempted_by_allocation: AllocId,
    /// Key that signs its identities.
    #[serde(rename = "SigningKeyID", skip_serializing_if = "is_default")]
    pub signing_key_id: String,
    /// Index of its placement.
    pub create_index: u64,
    /// Index of its last change.
    pub modify_index: u64,
    /// Index of the last change by the servers: what the client watches.
    pub alloc_modify_index: u64,
    /// When placed.
    pub create_time: UnixNanos,
    /// When last changed.
    pub modify_time: UnixNanos,
}

impl Allocation {
    /// The job it belongs to.
    pub fn job_key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.job_id.clone() }
    }
    /// Whether the servers want it gone.
    pub fn server_terminal(&self) -> bool {
        self.desired_status != DesiredStatus::Run
    }
    /// Whether nothing of it runs.
    pub fn client_terminal(&self) -> bool {
        self.client_status.is_terminal()
    }
    /// Whether it is over for either side.
    pub fn terminal(&self) -> bool {
        self.server_terminal() || self.client_terminal()
    }
    /// Its group in the version of the job that it runs.
    pub fn group(&self) -> Option<&TaskGroup> {
        self.job.as_ref().and_then(|job| job.group(&self.task_group))
    }
    /// The number in its name.
    pub fn index(&self) -> Option<u32> {
        let (_, rest) = self.name.rsplit_once('[')?;
        rest.strip_suffix(']')?.parse().ok()
    }
    /// Whether any task failed.
    pub fn any_task_failed(&self) -> bool {
        self.task_states.values().any(|t| t.failed)
    }
}

/// Changes asked for by users and drains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "each field asks for what it is named after")]
pub struct DesiredTransition {
    pub migrate: Option<bool>,
    pub reschedule: Option<bool>,
    pub force_reschedule: Option<bool>,
    pub no_shutdown_delay: Option<bool>,
    pub migrate_disable_placement: Option<bool>,
}

/// A change of client status made by the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocStateChange {
    /// 0: client status.
    pub field: u8,
    /// New value.
    pub value: String,
    /// When.
    pub time: Time,
}

/// Health within a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocDeploymentStatus {
    /// Known yet?
    pub healthy: Option<bool>,
    /// Since.
    pub timestamp: Time,
    /// Is a canary.
    pub canary: bool,
    /// Index.
    pub modify_index: u64,
}

/// Earlier attempts of a rescheduled allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RescheduleTracker {
    /// Attempts.
    #[serde(with = "nil")]
    pub events: Vec<RescheduleEvent>,
    /// `""`, `ok` or `no placement`.
    pub last_reschedule: String,
}

/// One attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RescheduleEvent {
    /// When.
    pub reschedule_time: UnixNanos,
    /// Allocation before.
    #[serde(rename = "PrevAllocID")]
    pub prev_alloc_id: AllocId,
    /// Its node.
    #[serde(rename = "PrevNodeID")]
    pub prev_node_id: NodeId,
    /// Delay.
    pub delay: Nanos,
}

/// Network made by the client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkStatus {
    /// Interface inside.
    pub interface_name: String,
    /// Address inside.
    pub address: String,
    /// IPv6 address inside.
    #[serde(rename = "AddressIPv6")]
    pub address_ipv6: String,
}

/// What an allocation was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedResources {
    /// By task.
    pub tasks: BTreeMap<String, AllocatedTaskResources>,
    /// Lifecycles by task.
    pub task_lifecycles: BTreeMap<String, Option<Lifecycle>>,
    /// Of the group.
    pub shared: AllocatedSharedResources,
}

/// What a task was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedTaskResources {
    /// CPU.
    pub cpu: AllocatedCpu,
    /// Memory.
    pub memory: AllocatedMemory,
    /// Task-level networks.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// Devices.
    #[serde(with = "nil")]
    pub devices: Vec<AllocatedDevice>,
}

/// CPU given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedCpu {
    /// MHz.
    pub cpu_shares: i64,
    /// Whole cores.
    #[serde(with = "nil")]
    pub reserved_cores: Vec<u16>,
}

/// Memory given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedMemory {
    /// MB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i64,
    /// MB.
    #[serde(rename = "MemoryMaxMB")]
    pub memory_max_mb: i64,
}

/// Devices given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedDevice {
    /// Vendor.
    pub vendor: String,
    /// Type.
    #[serde(rename = "Type")]
    pub kind: String,
    /// Name.
    pub name: String,
    /// Instances.
    #[serde(rename = "DeviceIDs", with = "nil")]
    pub device_ids: Vec<String>,
}

/// What the group was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedSharedResources {
    /// Networks with the ports given.
    #[serde(with = "nil")]
    pub networks: Vec<Network>,
    /// MB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i64,
    /// Ports by label.
    #[serde(with = "nil")]
    pub ports: Vec<AllocatedPort>,
}

/// A port given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocatedPort {
    /// Label.
    #[serde(skip_serializing_if = "is_default")]
    pub label: String,
    /// On the host.
    #[serde(skip_serializing_if = "is_default")]
    pub value: i64,
    /// Inside.
    #[serde(skip_serializing_if = "is_default")]
    pub to: i64,
    /// Address of the host.
    #[serde(rename = "HostIP", skip_serializing_if = "is_default")]
    pub host_ip: String,
    /// Shared.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_collision: bool,
}

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
    pub const SIBLING_FAILED: &str = "Sibling Task Failed";
    pub const LEADER_DEAD: &str = "Leader Task Dead";
    pub const MAIN_TASKS_DEAD: &str = "Main Tasks Dead";
    pub const HOOK_FAILED: &str = "Task hook failed";
    pub const HOOK_MESSAGE: &str = "Task hook message";
    pub const FAILED_RESTORING: &str = "Failed Restoring Task";
    pub const PLUGIN_HEALTHY: &str = "Plugin became healthy";
    pub const PLUGIN_UNHEALTHY: &str = "Plugin became unhealthy";
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

/// The allocation in lists. Every key is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(missing_docs, reason = "the fields are those of Allocation")]
pub struct AllocListStub {
    #[serde(rename = "ID")]
    pub id: AllocId,
    #[serde(rename = "EvalID")]
    pub eval_id: EvalId,
    pub name: String,
    pub namespace: Namespace,
    #[serde(rename = "NodeID")]
    pub node_id: NodeId,
    pub node_name: String,
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    pub job_type: String,
    pub job_version: u64,
    pub task_group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<AllocatedResources>,
    pub desired_status: DesiredStatus,
    pub desired_description: String,
    pub client_status: ClientStatus,
    pub client_description: String,
    pub desired_transition: DesiredTransition,
    #[serde(with = "nil")]
    pub task_states: BTreeMap<String, TaskState>,
    pub deployment_status: Option<AllocDeploymentStatus>,
    #[serde(rename = "FollowupEvalID")]
    pub followup_eval_id: EvalId,
    pub next_allocation: AllocId,
    pub reschedule_tracker: Option<RescheduleTracker>,
    #[serde(with = "nil")]
    pub preempted_allocations: Vec<AllocId>,
    pub preempted_by_allocation: AllocId,
    pub create_index: u64,
    pub modify_index: u64,
    pub create_time: UnixNanos,
    pub modify_time: UnixNanos,
}

impl Allocation {
    /// Copies of the task states with their display messages filled.
    pub fn displayed_states(&self) -> BTreeMap<String, TaskState> {
        let mut states = self.task_states.clone();
        for event in states.values_mut().flat_map(|s| &mut s.events) {
            event.display_message = event.display();
        }
        states
    }

    /// The element of a list.
    pub fn stub(&self) -> AllocListStub {
        AllocListStub {
            id: self.id.clone(),
            eval_id: self.eval_id.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            node_id: self.node_id.clone(),
            node_name: self.node_name.clone(),
            job_id: self.job_id.clone(),
            job_type: self.job.as_ref().map(|j| j.kind.as_str().to_owned()).unwrap_or_default(),
            job_version: self.job.as_ref().map_or(0, |j| j.version),
            task_group: self.task_group.clone(),
            allocated_resources: None,
            desired_status: self.desired_status,
            desired_description: self.desired_description.clone(),
            client_status: self.client_status,
            client_description: self.client_description.clone(),
            desired_transition: self.desired_transition.clone(),
            task_states: self.displayed_states(),
            deployment_status: self.deployment_status.clone(),
            followup_eval_id: self.followup_eval_id.clone(),
            next_allocation: self.next_allocation.clone(),
            reschedule_tracker: self.reschedule_tracker.clone(),
            preempted_allocations: self.preempted_allocations.clone(),
            preempted_by_allocation: self.preempted_by_allocation.clone(),
            create_index: self.create_index,
            modify_index: self.modify_index,
            create_time: self.create_time,
            modify_time: self.modify_time,
        }
    }
}

/// What a client says about one of its allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocUpdate {
    /// Which.
    pub alloc_id: AllocId,
    /// Status derived from the tasks.
    pub client_status: ClientStatus,
    /// Words for it.
    pub client_description: String,
    /// By task.
    pub task_states: BTreeMap<String, TaskState>,
    /// Health within the deployment, once known.
    pub deployment_status: Option<AllocDeploymentStatus>,
    /// Network, once made.
    pub network_status: Option<NetworkStatus>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_ten_events_stay() {
        let mut state = TaskState::default();
        for n in 0..13 {
            state.push_event(TaskEvent::new(event::STARTED, UnixNanos(n)));
        }
        assert_eq!(state.events.len(), 10);
        assert_eq!(state.events[0].time, UnixNanos(3));
    }

    #[test]
    fn display_messages_follow_the_details() {
        let at = UnixNanos(1);
        let restarting = TaskEvent::new(event::RESTARTING, at)
            .detail("restart_reason", "Restart within policy")
            .detail("start_delay", "1090000000");
        assert_eq!(restarting.display(), "Task restarting in 1.09s");
        let ended = TaskEvent::new(event::TERMINATED, at).detail("exit_code", "137").detail("signal", "9");
        assert_eq!(ended.display(), "Exit Code: 137, Signal: 9");
        assert_eq!(ended.exit_code, 137);
    }

    #[test]
    fn empty_fields_stay_out_of_an_allocations_json() {
        let alloc = Allocation { id: "a".into(), create_index: 1, ..Default::default() };
        let json = serde_json::to_value(&alloc).unwrap();
        assert!(json.get("NextAllocation").is_none());
        assert!(json.get("DesiredTransition").is_none());
        assert_eq!(json["ClientStatus"], "pending");
        let packed = rmp_serde::to_vec_named(&alloc).unwrap();
        assert_eq!(rmp_serde::from_slice::<Allocation>(&packed).unwrap(), alloc);
    }

    #[test]
    fn the_index_is_read_from_the_name() {
        let alloc = Allocation { name: "a.b[7]".into(), ..Default::default() };
        assert_eq!(alloc.index(), Some(7));
    }
}
