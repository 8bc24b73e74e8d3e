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

/// The status that the servers desire for an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredStatus {
    /// The servers desire that the tasks run.
    #[default]
    Run,
    /// The servers desire that the tasks end.
    Stop,
    /// The tasks stop to make room for an allocation of higher priority.
    Evict,
}

impl DesiredStatus {
    /// Returns the name of the status in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stop => "stop",
            Self::Evict => "evict",
        }
    }
}

/// The status of an allocation as its client observed it, or as the servers derived it for an absent client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientStatus {
    /// The client has not started any task.
    #[default]
    Pending,
    /// At least one task runs.
    Running,
    /// All main tasks ended without a failure.
    Complete,
    /// A task failed and is not restarted.
    Failed,
    /// The node is down, and its tasks count as ended.
    Lost,
    /// The node is not in contact, but may reconnect.
    Unknown,
}

impl ClientStatus {
    /// Returns the name of the status in the HTTP API.
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
    /// Returns whether no task of the allocation can run any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Complete | Self::Failed | Self::Lost)
    }
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskRunState {
    /// The task has not started.
    #[default]
    Pending,
    /// The task has started, and its end is not reported.
    Running,
    /// The task has ended and is not restarted.
    Dead,
}

impl TaskRunState {
    /// Returns the name of the state in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Dead => "dead",
        }
    }
}

/// One instance of a group on one node. Its JSON omits empty fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Allocation {
    /// The UUID of the allocation.
    #[serde(rename = "ID", skip_serializing_if = "is_default")]
    pub id: AllocId,
    /// The namespace of the job.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: Namespace,
    /// The evaluation that placed the allocation, or last changed it.
    #[serde(rename = "EvalID", skip_serializing_if = "is_default")]
    pub eval_id: EvalId,
    /// The name, `job.group[index]`.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// The node on which the allocation runs.
    #[serde(rename = "NodeID", skip_serializing_if = "is_default")]
    pub node_id: NodeId,
    /// The name of that node.
    #[serde(skip_serializing_if = "is_default")]
    pub node_name: Text,
    /// The id of the job.
    #[serde(rename = "JobID", skip_serializing_if = "is_default")]
    pub job_id: JobId,
    /// The version of the job that the allocation runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Arc<Job>>,
    /// The name of the group.
    #[serde(skip_serializing_if = "is_default")]
    pub task_group: Text,
    /// A legacy view of all resources, present only in responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<Resources>>,
    /// A legacy view of the group's resources, present only in responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_resources: Option<Box<Resources>>,
    /// A legacy view of the resources by task, present only in responses.
    #[serde(skip_serializing_if = "is_default")]
    pub task_resources: Map<String, Resources>,
    /// The resources that the plan reserved on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_resources: Option<Arc<AllocatedResources>>,
    /// The scheduler's metrics of the placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Arc<AllocMetric>>,
    /// The status that the servers desire.
    pub desired_status: DesiredStatus,
    /// The reason for the desired status, shown to users.
    #[serde(skip_serializing_if = "is_default")]
    pub desired_description: Text,
    /// The requested changes that the next evaluation makes.
    #[serde(skip_serializing_if = "is_default")]
    pub desired_transition: DesiredTransition,
    /// The status that the client reported, or that the servers derived for an absent client.
    pub client_status: ClientStatus,
    /// The reason for the client status, shown to users.
    #[serde(skip_serializing_if = "is_default")]
    pub client_description: Text,
    /// The states of the tasks, by name.
    #[serde(skip_serializing_if = "is_default")]
    pub task_states: Map<String, TaskState>,
    /// The changes of the client status by the servers, oldest first.
    #[serde(skip_serializing_if = "is_default")]
    pub alloc_states: Vec<AllocStateChange>,
    /// The allocation that this one replaces, or empty.
    #[serde(skip_serializing_if = "is_default")]
    pub previous_allocation: AllocId,
    /// The allocation that replaces this one, or empty.
    #[serde(skip_serializing_if = "is_default")]
    pub next_allocation: AllocId,
    /// The deployment that placed the allocation, or empty.
    #[serde(rename = "DeploymentID", skip_serializing_if = "is_default")]
    pub deployment_id: DeploymentId,
    /// The health within the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_status: Option<AllocDeploymentStatus>,
    /// The earlier attempts of a rescheduled allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reschedule_tracker: Option<Arc<RescheduleTracker>>,
    /// The network as the client created it.
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
    /// The id of the root key that signs the workload identities of the tasks.
    #[serde(rename = "SigningKeyID", skip_serializing_if = "is_default")]
    pub signing_key_id: Text,
    /// The Raft index of the placement.
    pub create_index: u64,
    /// The Raft index of the last change.
    pub modify_index: u64,
    /// The Raft index of the last change by the servers, which wakes the client's watch.
    pub alloc_modify_index: u64,
    /// The time of the placement.
    pub create_time: UnixNanos,
    /// The time of the last change.
    pub modify_time: UnixNanos,
}

/// The client description of an allocation that the client ended because the lease of its node expired. The
/// allocation failed without a fault of its tasks, and is replaced immediately.
pub const LEASE_EXPIRED: &str = "Lease of the node expired";

/// The client description of an allocation that reached the run time limit of its group (docs/reference/http-api.md,
/// section 6.1).
pub const TIMED_OUT: &str = "allocation exceeded max_run_duration";

impl Allocation {
    /// Returns the key of the allocation's job.
    pub fn job_key(&self) -> JobKey {
        JobKey { namespace: self.namespace.clone(), id: self.job_id.clone() }
    }
    /// Returns whether the servers desire that the allocation stops.
    pub fn server_terminal(&self) -> bool {
        self.desired_status != DesiredStatus::Run
    }
    /// Returns whether the client has ended all tasks.
    pub fn client_terminal(&self) -> bool {
        self.client_status.is_terminal()
    }
    /// Returns whether the allocation is terminal for the servers or for the client.
    pub fn terminal(&self) -> bool {
        self.server_terminal() || self.client_terminal()
    }
    /// Returns the group in the version of the job that the allocation runs.
    pub fn group(&self) -> Option<&TaskGroup> {
        self.job.as_ref().and_then(|job| job.group(&self.task_group))
    }
    /// Returns the number in the allocation's name.
    pub fn index(&self) -> Option<u32> {
        let (_, rest) = self.name.rsplit_once('[')?;
        rest.strip_suffix(']')?.parse().ok()
    }
    /// Returns whether the allocation is a canary that has not been promoted.
    pub fn is_canary(&self) -> bool {
        self.deployment_status.as_ref().is_some_and(|status| status.canary)
    }
    /// Returns the health within the deployment, or `None` while unknown.
    pub fn health(&self) -> Option<bool> {
        self.deployment_status.as_ref().and_then(|status| status.healthy)
    }
    /// Returns whether any task failed.
    pub fn any_task_failed(&self) -> bool {
        self.task_states.values().any(|t| t.failed)
    }
}

/// The changes of an allocation that users and drains request.
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

/// A change of the client status by the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocStateChange {
    /// The changed field: 0 is the client status.
    pub field: u8,
    /// The client status after the change, as in the HTTP API.
    pub value: String,
    /// The time of the change.
    pub time: Time,
}

/// The health of an allocation within its deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AllocDeploymentStatus {
    /// Whether the allocation is healthy; `None` while unknown.
    pub healthy: Option<bool>,
    /// The time at which the health was observed.
    pub timestamp: Time,
    /// Whether the allocation is a canary.
    pub canary: bool,
    /// The Raft index of the last change.
    pub modify_index: u64,
}

/// The earlier attempts of a rescheduled allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RescheduleTracker {
    /// The attempts, oldest first.
    #[serde(with = "nil")]
    pub events: Vec<RescheduleEvent>,
    /// The outcome of the last attempt: `""`, `ok` or `no placement`.
    pub last_reschedule: String,
}

/// One attempt to reschedule an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RescheduleEvent {
    /// The time of the attempt.
    pub reschedule_time: UnixNanos,
    /// The allocation that failed.
    #[serde(rename = "PrevAllocID")]
    pub prev_alloc_id: AllocId,
    /// The node of the failed allocation.
    #[serde(rename = "PrevNodeID")]
    pub prev_node_id: NodeId,
    /// The delay before the attempt.
    pub delay: Nanos,
}

/// The network of an allocation, as the client created it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkStatus {
    /// The name of the interface inside the allocation's network namespace.
    pub interface_name: String,
    /// The IPv4 address inside the network namespace.
    pub address: String,
    /// The IPv6 address inside the network namespace.
    #[serde(rename = "AddressIPv6")]
    pub address_ipv6: String,
    /// The resolver that a CNI plugin reported.
    #[serde(rename = "DNS", skip_serializing_if = "Option::is_none")]
    pub dns: Option<Box<Dns>>,
}

/// An allocation in a list. Its JSON has every key but an absent `AllocatedResources`.
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
    /// Returns copies of the task states with the display messages of their events.
    pub fn displayed_states(&self) -> Map<String, TaskState> {
        let mut states = self.task_states.clone();
        for event in states.values_mut().flat_map(|s| &mut s.events) {
            event.display_message = event.display();
        }
        states
    }

    /// Returns the allocation as an element of a list.
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

/// A client's report about one of its allocations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocUpdate {
    /// The allocation of the report.
    pub alloc_id: AllocId,
    /// The status that the client derived from the tasks.
    pub client_status: ClientStatus,
    /// The reason for the client status, shown to users.
    pub client_description: Text,
    /// The states of the tasks, by name.
    pub task_states: Map<String, TaskState>,
    /// The health within the deployment; `None` while unknown.
    pub deployment_status: Option<AllocDeploymentStatus>,
    /// The network; `None` until the client has created it.
    pub network_status: Option<Arc<NetworkStatus>>,
    /// The deployment in which the health was observed.
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
