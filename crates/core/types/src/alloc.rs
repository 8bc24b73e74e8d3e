//! Allocations: a group placed on a node.

mod amount;
mod resources;
mod task;

pub use amount::{Amount, Phases, Used};
pub use resources::{
    AllocatedCpu, AllocatedDevice, AllocatedMemory, AllocatedPort, AllocatedResources,
    AllocatedSharedResources, AllocatedTaskResources,
};
pub use task::{TaskEvent, TaskState, event};

use crate::eval::AllocMetric;
use crate::id::{AllocId, DeploymentId, EvalId, JobId, JobKey, Namespace, NodeId};
use crate::job::{Dns, Job, Resources, TaskGroup};
use crate::ser::{is_default, nil};
use crate::small::{Map, Text};
use crate::time::{Nanos, Time, UnixNanos};
use serde::{Deserialize, Serialize};
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
    pub node_name: Text,
    /// Job.
    #[serde(rename = "JobID", skip_serializing_if = "is_default")]
    pub job_id: JobId,
    /// The version of the job it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Arc<Job>>,
    /// Group.
    #[serde(skip_serializing_if = "is_default")]
    pub task_group: Text,
    /// Legacy view, filled when answering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<Resources>>,
    /// Legacy view, filled when answering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_resources: Option<Box<Resources>>,
    /// Legacy view, filled when answering.
    #[serde(skip_serializing_if = "is_default")]
    pub task_resources: Map<String, Resources>,
    /// What it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<Arc<AllocatedResources>>,
    /// How the scheduler came to place it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Arc<AllocMetric>>,
    /// Wanted.
    pub desired_status: DesiredStatus,
    /// Why.
    #[serde(skip_serializing_if = "is_default")]
    pub desired_description: Text,
    /// Asked-for changes that the next evaluation acts on.
    #[serde(skip_serializing_if = "is_default")]
    pub desired_transition: DesiredTransition,
    /// Observed.
    pub client_status: ClientStatus,
    /// Why.
    #[serde(skip_serializing_if = "is_default")]
    pub client_description: Text,
    /// By task.
    #[serde(skip_serializing_if = "is_default")]
    pub task_states: Map<String, TaskState>,
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
    pub reschedule_tracker: Option<Arc<RescheduleTracker>>,
    /// Network as the client made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_status: Option<Arc<NetworkStatus>>,
    /// The evaluation that will reschedule the allocation.
    #[serde(rename = "FollowupEvalID", skip_serializing_if = "is_default")]
    pub followup_eval_id: EvalId,
    /// The allocations that were preempted for this one.
    #[serde(skip_serializing_if = "is_default")]
    pub preempted_allocations: Vec<AllocId>,
    /// The allocation for which this one was preempted.
    #[serde(skip_serializing_if = "is_default")]
    pub preempted_by_allocation: AllocId,
    /// Key that signs its identities.
    #[serde(rename = "SigningKeyID", skip_serializing_if = "is_default")]
    pub signing_key_id: Text,
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

/// What a client says of an allocation that it ended because the node's lease ran out: it failed for no fault of its
/// own and is replaced at once.
pub const LEASE_EXPIRED: &str = "Lease of the node expired";

/// What a client says of an allocation that has run as long as its group may (docs/reference/http-api.md, section 6.1).
pub const TIMED_OUT: &str = "allocation exceeded max_run_duration";

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
    /// Whether it was placed to try a new version out, and nobody promoted it yet.
    pub fn is_canary(&self) -> bool {
        self.deployment_status.as_ref().is_some_and(|status| status.canary)
    }
    /// How it does within its deployment; none while that is not known.
    pub fn health(&self) -> Option<bool> {
        self.deployment_status.as_ref().and_then(|status| status.healthy)
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
    /// The resolver that a CNI plugin reported.
    #[serde(rename = "DNS", skip_serializing_if = "Option::is_none")]
    pub dns: Option<Box<Dns>>,
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
    pub node_name: Text,
    #[serde(rename = "JobID")]
    pub job_id: JobId,
    pub job_type: String,
    pub job_version: u64,
    pub task_group: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<Arc<AllocatedResources>>,
    pub desired_status: DesiredStatus,
    pub desired_description: Text,
    pub client_status: ClientStatus,
    pub client_description: Text,
    pub desired_transition: DesiredTransition,
    #[serde(with = "nil")]
    pub task_states: Map<String, TaskState>,
    pub deployment_status: Option<AllocDeploymentStatus>,
    #[serde(rename = "FollowupEvalID")]
    pub followup_eval_id: EvalId,
    pub next_allocation: AllocId,
    pub reschedule_tracker: Option<Arc<RescheduleTracker>>,
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
    pub fn displayed_states(&self) -> Map<String, TaskState> {
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
    pub client_description: Text,
    /// By task.
    pub task_states: Map<String, TaskState>,
    /// Health within the deployment, once known.
    pub deployment_status: Option<AllocDeploymentStatus>,
    /// Network, once made.
    pub network_status: Option<Arc<NetworkStatus>>,
    /// The deployment in which the health was seen.
    #[serde(default)]
    pub deployment_id: DeploymentId,
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
        assert_eq!(ended.exit_code(), 137);
        let json = serde_json::to_value(&ended).unwrap();
        assert_eq!(
            (&json["ExitCode"], &json["Signal"], &json["Message"]),
            (&137.into(), &9.into(), &"".into())
        );
        assert_eq!(serde_json::from_value::<TaskEvent>(json).unwrap(), ended);
        let packed = rmp_serde::to_vec_named(&ended).unwrap();
        assert_eq!(rmp_serde::from_slice::<TaskEvent>(&packed).unwrap(), ended);
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
