//! The replicated commands: everything that changes the shared state.
//!
//! A command carries `now` and every generated id, so that applying it is deterministic. Encoded as
//! MessagePack with named fields.

mod node;

pub use node::NodeChange;

use crate::admin::AdminChange;
use crate::alloc::{AllocUpdate, Allocation, DesiredTransition};
use crate::blob::Blob;
use crate::deployment::{Deployment, Verdict};
use crate::eval::Evaluation;
use crate::host_volume::{HostVolume, HostVolumeClaim};
use crate::id::{
    AllocId, DeploymentId, EvalId, HostVolumeId, JobKey, Namespace, NodeId, ServiceId, VolumeKey,
};
use crate::job::Job;
use crate::node::{DrainStrategy, Eligibility, Node, NodeEvent, NodeStatus};
use crate::plan::StopAlloc;
use crate::scaling::{Scale, VersionTag};
use crate::service::ServiceRegistration;
use crate::time::UnixNanos;
use crate::variable::{LockUse, Variable, VariableKey};
use crate::volume::{Claim, ClaimId, ConfirmedOff, MountProof, Volume};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change of the shared state, with the time at which it was proposed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The clock of the proposer when it created the command.
    pub now: UnixNanos,
    /// The change to apply.
    pub change: Change,
}

/// The kinds of changes of the shared state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Registers a node, or updates its row. Only `status` is replaced by the reported one; eligibility, drain and
    /// events of an existing row stay. `evals` are written in the same step.
    NodeRegister {
        /// The node, as its client reported it.
        node: Box<Node>,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// Changes the status of a node after heartbeats were missed or received again.
    NodeStatus {
        /// The UUID of the node.
        node: NodeId,
        /// The status that the node has from now on.
        status: NodeStatus,
        /// The reason, shown as a node event.
        event: Option<NodeEvent>,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// Adds events to nodes.
    NodeEvents {
        /// The events, by node.
        events: BTreeMap<NodeId, Vec<NodeEvent>>,
    },
    /// Sets a node's scheduling eligibility.
    NodeEligibility {
        /// The UUID of the node.
        node: NodeId,
        /// The eligibility that the node has from now on.
        eligibility: Eligibility,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// Starts, updates or ends the drain of a node.
    NodeDrain {
        /// The UUID of the node.
        node: NodeId,
        /// The drain strategy, or `None` to end the drain.
        drain: Option<DrainStrategy>,
        /// Whether the node becomes eligible when no drain is in force.
        mark_eligible: bool,
        /// Metadata that is stored with the drain.
        #[serde(default)]
        meta: BTreeMap<String, String>,
        /// The identity of the caller, or empty for the end of a drain by itself and in logs of earlier versions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        accessor: String,
        /// How the drain ended by itself; `None` when a user sets or ends it.
        #[serde(default)]
        end: Option<DrainEnd>,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// Records that an operator confirmed that the machine of a node is off. The node's volumes pass on without a
    /// wait for its lease. Refused while the node is in contact.
    NodeFence {
        /// The UUID of the node.
        node: NodeId,
        /// The operator and the time of the confirmation.
        off: ConfirmedOff,
    },
    /// Removes a node.
    NodeDelete {
        /// The UUID of the node.
        node: NodeId,
        /// The evaluations that follow from the change.
        evals: Vec<Evaluation>,
    },
    /// Changes a node if `evals` of the change cover every job that the node concerns when the command is applied.
    /// Without this condition, an allocation placed after the evaluations were created would stay on a vanished node.
    NodeWhole {
        /// The UUID of the node.
        node: NodeId,
        /// The change and its evaluations.
        change: Box<NodeChange>,
    },
    /// Registers a job. A job whose specification is unchanged keeps its version.
    JobRegister {
        /// The job; version and indexes are set when the command is applied.
        job: Box<Job>,
        /// The `JobModifyIndex` that the job must have, or the command is refused; 0 means that the job must not
        /// exist.
        expect_modify_index: Option<u64>,
        /// The evaluation; `None` for periodic and parameterized jobs.
        eval: Option<Evaluation>,
        /// The text of the job file, for the version that the registration creates.
        source: Option<JobSource>,
    },
    /// Creates a child of a periodic or parameterized job. Refused if the parent is removed, stopped or disabled, if
    /// the child exists already, or if another child has the token of its dispatch.
    JobChild {
        /// The child, which names its parent; version and indexes are set when the command is applied.
        job: Box<Job>,
        /// The evaluation; `None` for a child that is periodic itself.
        eval: Option<Evaluation>,
        /// The due time of a periodic job's child.
        launched: Option<UnixNanos>,
    },
    /// Stops a job, or removes it with its versions, deployments, scaling events and holds.
    JobDeregister {
        /// The key of the job.
        key: JobKey,
        /// Whether the job is removed.
        purge: bool,
        /// The evaluation that stops its allocations.
        eval: Option<Evaluation>,
    },
    /// Changes the count of a group, or stores a scaling event.
    JobScale {
        /// The group, with its new count or event.
        scale: Box<Scale>,
        /// The evaluation that follows from a new count.
        eval: Option<Evaluation>,
    },
    /// Sets or removes the tag of a job version.
    JobTag {
        /// The key of the job.
        key: JobKey,
        /// The version that gets the tag; `None` means the newest. Not used to remove a tag.
        version: Option<u64>,
        /// The name of the tag.
        name: String,
        /// The tag, or `None` to remove the tag of this name.
        tag: Option<VersionTag>,
    },
    /// Creates or changes evaluations.
    Evals {
        /// The rows to write.
        evals: Vec<Evaluation>,
    },
    /// Removes the listed evaluations and allocations that are terminal.
    Collect {
        /// The ids of the evaluations.
        evals: Vec<EvalId>,
        /// The ids of the allocations.
        allocs: Vec<AllocId>,
    },
    /// Removes evaluations for an operator, also pending ones. An evaluation on which other objects depend stays.
    EvalsDelete {
        /// The ids of the evaluations.
        evals: Vec<EvalId>,
    },
    /// Applies the accepted part of a plan.
    Plan(Box<PlanCommit>),
    /// Stores the reports of clients about their allocations.
    AllocUpdates {
        /// The reports.
        updates: Vec<AllocUpdate>,
        /// The evaluations that follow from the reports.
        evals: Vec<Evaluation>,
    },
    /// Sets the transitions of allocations that users request.
    AllocTransitions {
        /// The transitions, by allocation.
        transitions: BTreeMap<AllocId, DesiredTransition>,
        /// The evaluations that follow from the transitions.
        evals: Vec<Evaluation>,
    },
    /// Creates or changes deployments.
    Deployments {
        /// The rows to write.
        deployments: Vec<Deployment>,
    },
    /// Changes a deployment. Refused if the deployment is terminal.
    Deployment(Box<DeploymentChange>),
    /// Marks a version of a job as stable, or removes the mark.
    JobStable {
        /// The key of the job.
        key: JobKey,
        /// The version to mark.
        version: u64,
        /// Whether the version is stable.
        stable: bool,
    },
    /// Removes terminal deployments.
    DeploymentsCollect {
        /// The ids of the deployments.
        deployments: Vec<DeploymentId>,
    },
    /// Writes a volume: registered, intended, created or changed. Refused if the row changed since
    /// `expect_modify_index` (0: if the row exists).
    VolumeWrite {
        /// The row; indexes are set when the command is applied.
        volume: Box<Volume>,
        /// The modify index of the row that the writer read.
        expect_modify_index: u64,
        /// Whether the command is refused if another volume has, or may get, the same storage. Commands of earlier
        /// versions do not check this.
        #[serde(default)]
        exclusive: bool,
    },
    /// Removes a volume. Refused while claims hold it, unless forced.
    VolumeDelete {
        /// The key of the volume.
        key: VolumeKey,
        /// Whether claims of terminal allocations do not prevent the removal.
        force: bool,
    },
    /// Executes a step of a claim. Refused if the claim changed since `expect_modify_index`.
    ClaimStep {
        /// The id of the claim.
        id: ClaimId,
        /// The modify index of the claim that the writer read.
        expect_modify_index: u64,
        /// The transition of the claim's phase.
        step: ClaimStep,
    },
    /// Writes a host volume. Refused if the row changed since `expect_modify_index` (0: if the row exists).
    HostVolumeWrite {
        /// The row; indexes are set when the command is applied.
        volume: Box<HostVolume>,
        /// The modify index of the row that the writer read.
        expect_modify_index: u64,
    },
    /// Removes a host volume. Refused while allocations use the volume, unless forced.
    HostVolumeDelete {
        /// The namespace of the host volume.
        namespace: Namespace,
        /// The id of the host volume.
        id: HostVolumeId,
        /// Whether allocations that use the volume do not prevent the removal.
        force: bool,
    },
    /// Removes a group's hold on a host volume, for a user.
    HostClaimDelete {
        /// The id of the hold.
        id: String,
    },
    /// Writes a variable.
    VariableWrite {
        /// The row with sealed items; indexes and times are set when the command is applied.
        variable: Box<Variable>,
        /// The index that the row must have, or the command is refused; 0 means that the row must not exist.
        check_index: Option<u64>,
        /// The writer's use of the variable's lock.
        #[serde(default)]
        lock: LockUse,
    },
    /// Removes a variable. The command succeeds if the variable does not exist.
    VariableDelete {
        /// The key of the variable.
        key: VariableKey,
        /// The index that the row must have, or the command is refused.
        check_index: Option<u64>,
    },
    /// Registers services of a client's allocations. Services of allocations whose client status is terminal are
    /// skipped.
    ServicesRegister {
        /// The rows to write; indexes are set when the command is applied.
        services: Vec<ServiceRegistration>,
    },
    /// Deregisters services.
    ServicesDeregister {
        /// The ids of the services.
        services: Vec<ServiceId>,
        /// Whether the command is refused if a service does not exist.
        strict: bool,
    },
    /// Changes an object of operators.
    Admin(AdminChange),
    /// Replaces the whole state. Only logs of earlier versions have this command, which can be too large to be
    /// replicated.
    Restore {
        /// A state snapshot.
        snapshot: Vec<u8>,
    },
    /// Stores a part of a state snapshot. The snapshot replaces the whole state once all parts are stored.
    RestorePart {
        /// The id of the restore. The first part of another restore removes the parts of this one.
        id: String,
        /// The position of the part, from 0.
        number: u32,
        /// The bytes of the part.
        bytes: Blob,
    },
    /// Replaces the whole state by the snapshot whose parts were stored.
    RestoreCommit {
        /// The id of the restore.
        id: String,
        /// The number of parts.
        parts: u32,
        /// The SHA-256 digest of the whole snapshot, in hexadecimal digits.
        sha256: String,
    },
    /// Permits commands of a feature level, because every server supports it.
    RaiseLevel {
        /// The level; a lower level than the current one has no effect.
        level: u32,
    },
    /// Changes nothing; serves as a barrier.
    Noop,
}

/// The feature level of the first version.
pub const FIRST_LEVEL: u32 = 1;

impl Change {
    /// Returns the feature level from which on servers read the change. A change that only newer versions read has
    /// the level of its version, and is written once all servers of the cluster have that level.
    pub fn level(&self) -> u32 {
        match self {
            Self::RaiseLevel { level } => *level,
            _ => FIRST_LEVEL,
        }
    }

    /// Returns the name of the kind, for logs and event types.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NodeRegister { .. } => "NodeRegister",
            Self::NodeStatus { .. } => "NodeStatus",
            Self::NodeEvents { .. } => "NodeEvents",
            Self::NodeEligibility { .. } => "NodeEligibility",
            Self::NodeDrain { .. } => "NodeDrain",
            Self::NodeFence { .. } => "NodeFence",
            Self::NodeDelete { .. } => "NodeDelete",
            Self::NodeWhole { change, .. } => change.kind(),
            Self::JobRegister { .. } => "JobRegister",
            Self::JobChild { .. } => "JobChild",
            Self::JobDeregister { .. } => "JobDeregister",
            Self::JobScale { .. } => "JobScale",
            Self::JobTag { .. } => "JobTag",
            Self::Evals { .. } => "Evals",
            Self::Collect { .. } => "Collect",
            Self::EvalsDelete { .. } => "EvalsDelete",
            Self::Plan(_) => "Plan",
            Self::AllocUpdates { .. } => "AllocUpdates",
            Self::AllocTransitions { .. } => "AllocTransitions",
            Self::Deployments { .. } => "Deployments",
            Self::Deployment(_) => "Deployment",
            Self::JobStable { .. } => "JobStable",
            Self::DeploymentsCollect { .. } => "DeploymentsCollect",
            Self::VolumeWrite { .. } => "VolumeWrite",
            Self::VolumeDelete { .. } => "VolumeDelete",
            Self::ClaimStep { .. } => "ClaimStep",
            Self::HostVolumeWrite { .. } => "HostVolumeWrite",
            Self::HostVolumeDelete { .. } => "HostVolumeDelete",
            Self::HostClaimDelete { .. } => "HostClaimDelete",
            Self::VariableWrite { .. } => "VariableWrite",
            Self::VariableDelete { .. } => "VariableDelete",
            Self::ServicesRegister { .. } => "ServicesRegister",
            Self::ServicesDeregister { .. } => "ServicesDeregister",
            Self::Admin(change) => change.kind(),
            Self::Restore { .. } => "Restore",
            Self::RestorePart { .. } => "RestorePart",
            Self::RestoreCommit { .. } => "Restore",
            Self::RaiseLevel { .. } => "RaiseLevel",
            Self::Noop => "Noop",
        }
    }
}

/// The changes of one deployment, applied in the order of the fields. Empty fields change nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeploymentChange {
    /// The id of the deployment.
    pub id: DeploymentId,
    /// The health of allocations, as users set it.
    pub health: BTreeMap<AllocId, bool>,
    /// The groups whose canaries are promoted; an empty list means all groups. Refused while too few canaries are
    /// healthy.
    pub promote: Option<Vec<String>>,
    /// Unhealthy allocations that may be rescheduled while the deployment continues.
    pub reschedule: Vec<AllocId>,
    /// The status that the deployment has from now on; `None` keeps the status.
    pub verdict: Option<Verdict>,
    /// An earlier version of the job, registered again to revert to it.
    pub revert: Option<Box<Job>>,
    /// The evaluations that follow from the changes.
    pub evals: Vec<Evaluation>,
}

/// The end of a drain that completed without a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainEnd {
    /// Whether allocations were stopped because the deadline of the drain passed.
    pub deadline_reached: bool,
}

/// The submitted text of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobSource {
    /// The text in the format `format`.
    pub source: String,
    /// The format: `hcl2` or `json`.
    pub format: String,
    /// The variables that the user set by flags.
    pub variable_flags: BTreeMap<String, String>,
    /// The variables that the user set as text, in the syntax of a variables file.
    pub variables: String,
}

/// The accepted part of a plan, which one command writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanCommit {
    /// The evaluation that requested the plan.
    pub eval_id: EvalId,
    /// The job that new allocations run. To save space, their own `job` field is empty on the wire.
    pub job: Option<Arc<Job>>,
    /// The new and updated allocations.
    pub placements: Vec<Allocation>,
    /// The allocations to stop.
    pub stops: Vec<StopAlloc>,
    /// The granted claims, in phase reserved.
    pub claims: Vec<Claim>,
    /// The holds of groups on host volumes (sticky). The proposer sets the ids, so that all servers have the same
    /// ones.
    #[serde(default)]
    pub host_claims: Vec<HostVolumeClaim>,
    /// The evaluations that the plan changes or creates.
    pub evals: Vec<Evaluation>,
    /// A new deployment, or a running one to which the plan adds groups.
    #[serde(default)]
    pub deployment: Option<Deployment>,
    /// The deployments that the plan ends.
    #[serde(default)]
    pub deployment_updates: Vec<Verdict>,
}

/// A step of a claim. `caravan-volumes` decides which steps are legal in which phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimStep {
    /// The server is about to call ControllerPublishVolume.
    IntendAttach {
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// The volume is attached, or the plugin does not attach volumes.
    Attached {
        /// The publish context that the plugin returned.
        publish_context: BTreeMap<String, String>,
        /// Whether the plugin requires a call of its controller to attach.
        needs_attach: bool,
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// The client proved its mount.
    Mounted {
        /// The client's proof.
        proof: MountProof,
    },
    /// The node has expanded the volume that it mounted.
    Expanded {
        /// The capacity in bytes, at least the requested one.
        capacity: i64,
    },
    /// The allocation is terminal: the client must unmount the volume.
    Release,
    /// The client proved that nothing is published for the allocation.
    Unpublished,
    /// The client proved that nothing is staged, or that the stage has other users.
    Unstaged,
    /// The server is about to call ControllerUnpublishVolume.
    IntendDetach,
    /// Another claim on the same node still uses the attachment, and will detach the volume.
    LeftAttached,
    /// The claim has ended; the node neither mounts nor holds the volume.
    Freed,
    /// The node vanished, so the wait for its lease begins.
    Fence {
        /// The expected time at which the volume is free for other nodes, for display.
        until: UnixNanos,
        /// The Raft index at which the silence of the node began; 0 means that the node does not exist, so that the
        /// wait begins with this command. Commands of earlier versions have none.
        #[serde(default)]
        silence: Option<u64>,
    },
    /// The fence has ended. The proposer has waited for the node's lease on its own clock, or an operator confirmed
    /// that the node is off.
    Waited {
        /// The claim's [`Claim::fence_index`], so that a wait for an earlier silence does not count.
        fence: u64,
        /// The next step of the claim.
        then: LetGo,
    },
    /// ControllerPublishVolume was refused, or not called. It certainly attached nothing.
    AttachRefused {
        /// The plugin's error message, or the reason of the wait.
        error: String,
        /// The expected time of the next attempt, for display.
        next_try: UnixNanos,
    },
    /// The step failed or must wait.
    Failed {
        /// The plugin's error message, or the reason of the wait.
        error: String,
        /// The expected time of the next attempt, for display; 0 means immediately.
        next_try: UnixNanos,
    },
}

/// The next step of a claim whose node has released the volume or is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetGo {
    /// The server is about to call ControllerUnpublishVolume.
    IntendDetach,
    /// Another claim on the same node still uses the attachment, and will detach the volume.
    LeftAttached,
    /// The claim has ended.
    Freed,
}

/// The result of a command, which its proposer receives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The Raft index of the command.
    pub index: u64,
    /// The reason that the command changed nothing, or `None`.
    pub refused: Option<Refusal>,
    /// The `JobModifyIndex` of the registered or scaled job immediately after this command. Earlier versions do not
    /// return it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_modify_index: Option<u64>,
}

/// The reason that a command changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The job has another `JobModifyIndex` than the command requires.
    #[error("Enforcing job modify index {expected}: {}", if *actual == 0 { "job does not exist".to_owned() } else if *expected == 0 { "job already exists".to_owned() } else { format!("job exists with conflicting job modify index: {actual}") })]
    JobModifyIndex {
        /// The required index; 0 = the job must not exist.
        expected: u64,
        /// The index of the job; 0 = no such job.
        actual: u64,
    },
    /// The row changed after the writer read it.
    #[error("{what} changed meanwhile")]
    Changed {
        /// The kind and the id of the row.
        what: String,
    },
    /// The row does not exist.
    #[error("{what} not found")]
    NotFound {
        /// The kind and the id of the row.
        what: String,
    },
    /// Claims hold the volume.
    #[error("volume in use: {volume}")]
    VolumeInUse {
        /// The id of the volume.
        volume: String,
    },
    /// Another volume has the storage. The message does not name that volume, because the caller may have no right to
    /// read it.
    #[error("storage \"{storage}\" of plugin \"{plugin}\" is another volume's already")]
    StorageTaken {
        /// The id of the plugin.
        plugin: String,
        /// The plugin's id of the storage.
        storage: String,
        /// The key of the volume that has the storage.
        other: VolumeKey,
    },
    /// Another volume of the same name is being created, so that both would get the same storage.
    #[error("plugin \"{plugin}\" is creating another volume with the name \"{name}\"")]
    NameTaken {
        /// The id of the plugin.
        plugin: String,
        /// The name of both volumes.
        name: String,
        /// The key of the other volume.
        other: VolumeKey,
    },
    /// The step is not legal in the phase of the claim.
    #[error("claim of allocation {alloc} on volume {volume} cannot take step {step} in phase {phase}")]
    IllegalStep {
        /// The id of the volume.
        volume: String,
        /// The UUID of the allocation.
        alloc: String,
        /// The name of the step.
        step: String,
        /// The phase of the claim.
        phase: String,
    },
    /// A claim in a plan no longer fits the volume.
    #[error("{0}")]
    ClaimRefused(String),
    /// The variable changed after the writer read it.
    #[error("variable {key} has index {actual}, not {expected}")]
    VariableConflict {
        /// The key of the variable: namespace and path.
        key: String,
        /// The index at which the writer read the variable; 0 = no such variable.
        expected: u64,
        /// The index of the variable; 0 = no such variable.
        actual: u64,
    },
    /// Another holder has the lock of the variable.
    #[error("variable {key} is locked")]
    VariableLocked {
        /// The key of the variable: namespace and path.
        key: String,
    },
    /// The value was sealed with a root key that was deleted, so no server could open it.
    #[error("the root key {key}, with which this was sealed, was deleted meanwhile")]
    UnknownKey {
        /// The id of the root key.
        key: String,
    },
    /// Another node with a different secret has the id.
    #[error("node secret ID does not match. Not registering node {node}")]
    NodeSecret {
        /// The UUID of the node.
        node: String,
    },
    /// The change is invalid for the reason in the text, one sentence.
    #[error("{0}")]
    Invalid(String),
}
