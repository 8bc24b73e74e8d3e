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
    /// A client registers or reports again. Status, eligibility, drain and events are kept from the
    /// existing row, except that the given `status` is taken. `evals` are written in the same step.
    NodeRegister {
        /// The node as reported.
        node: Box<Node>,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// The status of a node changes, because heartbeats were missed or arrive again.
    NodeStatus {
        /// Node.
        node: NodeId,
        /// New status.
        status: NodeStatus,
        /// Why, shown as a node event.
        event: Option<NodeEvent>,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// Adds events to nodes.
    NodeEvents {
        /// Events by node.
        events: BTreeMap<NodeId, Vec<NodeEvent>>,
    },
    /// Sets a node's scheduling eligibility.
    NodeEligibility {
        /// Node.
        node: NodeId,
        /// New value.
        eligibility: Eligibility,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// Starts, updates or ends the drain of a node.
    NodeDrain {
        /// Node.
        node: NodeId,
        /// The drain strategy, or `None` to end the drain.
        drain: Option<DrainStrategy>,
        /// Eligible once no drain is in force.
        mark_eligible: bool,
        /// Metadata that is stored with the drain.
        #[serde(default)]
        meta: BTreeMap<String, String>,
        /// How the drain ended by itself; `None` when a user sets or ends it.
        #[serde(default)]
        end: Option<DrainEnd>,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// An operator confirms that the machine of a node is off: what it held is handed on without a wait for its lease.
    /// Refused while the node is in contact.
    NodeFence {
        /// Node.
        node: NodeId,
        /// The operator and the time of the confirmation.
        off: ConfirmedOff,
    },
    /// A node is removed.
    NodeDelete {
        /// Node.
        node: NodeId,
        /// Evaluations that follow from it.
        evals: Vec<Evaluation>,
    },
    /// A change of a node, only if the evaluations that come with it reach every job that the node concerns when it is
    /// applied. Otherwise an allocation placed after the evaluations were created would stay on a vanished node.
    NodeWhole {
        /// Node.
        node: NodeId,
        /// The change, with the evaluations.
        change: Box<NodeChange>,
    },
    /// A job is registered; unchanged specifications keep their version.
    JobRegister {
        /// The job; version and indexes are set by apply.
        job: Box<Job>,
        /// Refuse unless the job's `JobModifyIndex` is this (0: unless it is new).
        expect_modify_index: Option<u64>,
        /// The evaluation, none for periodic and parameterized jobs.
        eval: Option<Evaluation>,
        /// The text that was submitted.
        source: Option<JobSource>,
    },
    /// A periodic or parameterized job creates a child. Refused if the parent is removed, stopped or disabled, if the
    /// child exists already, or if another child has the token of its dispatch.
    JobChild {
        /// The child, which names its parent; version and indexes are set by apply.
        job: Box<Job>,
        /// The evaluation, none for a child that is periodic itself.
        eval: Option<Evaluation>,
        /// When it was due, for the child of a periodic job.
        launched: Option<UnixNanos>,
    },
    /// A job is stopped, or removed with all that belongs to it once its allocations are over.
    JobDeregister {
        /// Job.
        key: JobKey,
        /// Remove it.
        purge: bool,
        /// The evaluation that stops its allocations.
        eval: Option<Evaluation>,
    },
    /// Changes the count of a group, or stores a scaling event.
    JobScale {
        /// The group and its new count or event.
        scale: Box<Scale>,
        /// The evaluation that follows from a new count.
        eval: Option<Evaluation>,
    },
    /// Sets or removes the tag of a job version.
    JobTag {
        /// Job.
        key: JobKey,
        /// The version that gets the name; without a tag: the one that has it.
        version: Option<u64>,
        /// Its name.
        name: String,
        /// The tag; none takes it away.
        tag: Option<VersionTag>,
    },
    /// Creates or changes evaluations.
    Evals {
        /// Rows to write.
        evals: Vec<Evaluation>,
    },
    /// Evaluations are removed, with their terminal allocations where named.
    Collect {
        /// Evaluations.
        evals: Vec<EvalId>,
        /// Allocations.
        allocs: Vec<AllocId>,
    },
    /// An operator removes evaluations, pending ones too. Evaluations that other objects depend on stay.
    EvalsDelete {
        /// Evaluations.
        evals: Vec<EvalId>,
    },
    /// The accepted part of a plan.
    Plan(Box<PlanCommit>),
    /// Clients report the state of their allocations.
    AllocUpdates {
        /// Updates.
        updates: Vec<AllocUpdate>,
        /// Evaluations that follow from them.
        evals: Vec<Evaluation>,
    },
    /// Sets the transitions of allocations that users request.
    AllocTransitions {
        /// By allocation.
        transitions: BTreeMap<AllocId, DesiredTransition>,
        /// Evaluations that follow from them.
        evals: Vec<Evaluation>,
    },
    /// Creates or changes deployments.
    Deployments {
        /// Rows to write.
        deployments: Vec<Deployment>,
    },
    /// Something happens to a deployment. Refused if it is over.
    Deployment(Box<DeploymentChange>),
    /// Marks a version of a job as stable, or removes the mark.
    JobStable {
        /// Job.
        key: JobKey,
        /// Which version.
        version: u64,
        /// New value.
        stable: bool,
    },
    /// Deployments that are over are removed.
    DeploymentsCollect {
        /// Which.
        deployments: Vec<DeploymentId>,
    },
    /// Volumes are written: registered, intended, created, changed. Refused if the row changed since
    /// `expect_modify_index` (0: unless it is new).
    VolumeWrite {
        /// The row; indexes are set by apply.
        volume: Box<Volume>,
        /// Index that the writer saw.
        expect_modify_index: u64,
        /// Refuse it where its storage is another volume's, or may be. Commands of earlier versions do not.
        #[serde(default)]
        exclusive: bool,
    },
    /// A volume is removed. Refused while claims hold, unless forced.
    VolumeDelete {
        /// Which.
        key: VolumeKey,
        /// Remove it although claims hold whose allocations are over.
        force: bool,
    },
    /// A claim moves on. Refused if it changed since `expect_modify_index`.
    ClaimStep {
        /// Which.
        id: ClaimId,
        /// Index that the writer saw.
        expect_modify_index: u64,
        /// What happened.
        step: ClaimStep,
    },
    /// Host volumes are written. Refused if the row changed since `expect_modify_index` (0: unless it is new).
    HostVolumeWrite {
        /// The row; indexes are set by apply.
        volume: Box<HostVolume>,
        /// Index that the writer saw.
        expect_modify_index: u64,
    },
    /// A host volume is removed. Refused while allocations use it, unless forced.
    HostVolumeDelete {
        /// Namespace.
        namespace: Namespace,
        /// Which.
        id: HostVolumeId,
        /// Although allocations use it.
        force: bool,
    },
    /// A group's hold on a host volume is removed by hand.
    HostClaimDelete {
        /// Which.
        id: String,
    },
    /// A variable is written.
    VariableWrite {
        /// The row, items sealed; indexes and times are set by apply.
        variable: Box<Variable>,
        /// Refuse unless the row's index is this (0: unless it is new).
        check_index: Option<u64>,
        /// What the writer has to do with the variable's lock.
        #[serde(default)]
        lock: LockUse,
    },
    /// A variable is removed. One that is not there is no refusal.
    VariableDelete {
        /// Which.
        key: VariableKey,
        /// Refuse unless the row's index is this.
        check_index: Option<u64>,
    },
    /// A client registers services of its allocations. Those of allocations that are over are passed over.
    ServicesRegister {
        /// Rows to write; indexes are set by apply.
        services: Vec<ServiceRegistration>,
    },
    /// Deregisters services.
    ServicesDeregister {
        /// Which.
        services: Vec<ServiceId>,
        /// Refuse when one is not there.
        strict: bool,
    },
    /// What operators change.
    Admin(AdminChange),
    /// The whole state is replaced. Only in logs of earlier versions: the command can be too large to be replicated.
    Restore {
        /// A state snapshot.
        snapshot: Vec<u8>,
    },
    /// A part of a state snapshot is stored, to replace the whole state once all parts are there.
    RestorePart {
        /// The id of the restore. The first part of another restore removes the parts of this one.
        id: String,
        /// The position of the part, from 0.
        number: u32,
        /// The bytes of the part.
        bytes: Blob,
    },
    /// The whole state is replaced by the snapshot whose parts were stored.
    RestoreCommit {
        /// The id of the restore.
        id: String,
        /// The number of parts.
        parts: u32,
        /// The SHA-256 digest of the whole snapshot, in hexadecimal digits.
        sha256: String,
    },
    /// Commands of a feature level may be proposed from now on, because every server supports it.
    RaiseLevel {
        /// The level; a lower one than the current one has no effect.
        level: u32,
    },
    /// Nothing: a barrier.
    Noop,
}

/// The feature level of the first version.
pub const FIRST_LEVEL: u32 = 1;

impl Change {
    /// Returns the feature level from which on servers read the change. A change that only newer versions read has the
    /// level of its version, and is written once all servers of the cluster have that level.
    pub fn level(&self) -> u32 {
        match self {
            Self::RaiseLevel { level } => *level,
            _ => FIRST_LEVEL,
        }
    }

    /// Name of the kind, for logs and event types.
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

/// What happens to a deployment, in this order; parts that are empty change nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeploymentChange {
    /// Which.
    pub id: DeploymentId,
    /// Health of allocations as users say it.
    pub health: BTreeMap<AllocId, bool>,
    /// Groups whose canaries are promoted; an empty list means all. Refused while too few are healthy.
    pub promote: Option<Vec<String>>,
    /// Unhealthy allocations that may be rescheduled while the deployment continues.
    pub reschedule: Vec<AllocId>,
    /// Its new status.
    pub verdict: Option<Verdict>,
    /// The job as it is registered again, to go back to an earlier version.
    pub revert: Option<Box<Job>>,
    /// Evaluations that follow from it.
    pub evals: Vec<Evaluation>,
}

/// How a drain came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainEnd {
    /// Work was stopped because its time was up.
    pub deadline_reached: bool,
}

/// The text of a submitted job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobSource {
    /// Text.
    pub source: String,
    /// `hcl2` or `json`.
    pub format: String,
    /// Variables given as flags.
    pub variable_flags: BTreeMap<String, String>,
    /// Variables given as text.
    pub variables: String,
}

/// The accepted part of a plan, written in one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanCommit {
    /// The evaluation that asked for it.
    pub eval_id: EvalId,
    /// The job that new allocations run; their own `job` field is empty on the wire to save space.
    pub job: Option<Arc<Job>>,
    /// New and updated allocations.
    pub placements: Vec<Allocation>,
    /// Allocations to stop.
    pub stops: Vec<StopAlloc>,
    /// Claims granted, phase reserved.
    pub claims: Vec<Claim>,
    /// Holds of groups on host volumes (sticky); the ids are the proposer's, so that all servers agree.
    #[serde(default)]
    pub host_claims: Vec<HostVolumeClaim>,
    /// Evaluations changed and made by it.
    pub evals: Vec<Evaluation>,
    /// The deployment that begins, or to which groups are added.
    #[serde(default)]
    pub deployment: Option<Deployment>,
    /// Deployments that end.
    #[serde(default)]
    pub deployment_updates: Vec<Verdict>,
}

/// What happened to a claim. Which steps are legal in which phase is decided by `caravan-volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimStep {
    /// Controller publish is about to be called.
    IntendAttach {
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// The volume is attached (or the plugin does not attach).
    Attached {
        /// What the plugin answered.
        publish_context: BTreeMap<String, String>,
        /// Whether a controller call was needed.
        needs_attach: bool,
        /// The plugin's id of the node.
        external_node_id: String,
    },
    /// The client proved its mount.
    Mounted {
        /// Proof.
        proof: MountProof,
    },
    /// The node has grown what it mounted.
    Expanded {
        /// The capacity in bytes, at least the requested one.
        capacity: i64,
    },
    /// The allocation is over: the client must let go.
    Release,
    /// The client proved that nothing is published.
    Unpublished,
    /// The client proved that nothing is staged, or that the stage has other users.
    Unstaged,
    /// Controller unpublish is about to be called.
    IntendDetach,
    /// Another claim on the same node still uses the attachment and owes its detach.
    LeftAttached,
    /// Nothing is left.
    Freed,
    /// The node vanished.
    Fence {
        /// When the volume is expected to be handed on, for display.
        until: UnixNanos,
        /// Index with which the silence of the node began; 0 = there is no such node, and the wait begins with this
        /// command. Commands of earlier versions have none.
        #[serde(default)]
        silence: Option<u64>,
    },
    /// The fence is over: the proposer has waited for the node's lease on its own clock, or an operator confirmed that
    /// the node is off.
    Waited {
        /// The claim's [`Claim::fence_index`], so that a wait for an earlier silence does not count.
        fence: u64,
        /// What follows.
        then: LetGo,
    },
    /// ControllerPublish was refused for certain, or not made: it attached nothing.
    AttachRefused {
        /// The plugin's words, or the reason of the wait.
        error: String,
        /// When it is tried again.
        next_try: UnixNanos,
    },
    /// The step failed or must wait.
    Failed {
        /// The plugin's words, or the reason of the wait.
        error: String,
        /// When it is expected to be tried again, for display; 0 = at once.
        next_try: UnixNanos,
    },
}

/// How a claim ends of which nothing is left on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetGo {
    /// Controller unpublish is about to be called.
    IntendDetach,
    /// Another claim on the same node still uses the attachment and owes its detach.
    LeftAttached,
    /// Nothing is left.
    Freed,
}

/// What applying a command answers to its proposer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Index of the command.
    pub index: u64,
    /// Why nothing was changed, if so.
    pub refused: Option<Refusal>,
    /// The `JobModifyIndex` that the registered or scaled job has right after this command. Earlier versions do not
    /// return it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_modify_index: Option<u64>,
}

/// Why a command changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The job changed, with the index it has now.
    #[error("Enforcing job modify index {expected}: {}", if *actual == 0 { "job does not exist".to_owned() } else if *expected == 0 { "job already exists".to_owned() } else { format!("job exists with conflicting job modify index: {actual}") })]
    JobModifyIndex {
        /// Asked for.
        expected: u64,
        /// Found; 0 = no such job.
        actual: u64,
    },
    /// The row changed since the writer looked.
    #[error("{what} changed meanwhile")]
    Changed {
        /// Kind and id of the row.
        what: String,
    },
    /// There is no such row.
    #[error("{what} not found")]
    NotFound {
        /// Kind and id of the row.
        what: String,
    },
    /// The volume has claims.
    #[error("volume in use: {volume}")]
    VolumeInUse {
        /// Which.
        volume: String,
    },
    /// The storage is another volume's. The sentence does not name the volume: not everybody may hear of it.
    #[error("storage \"{storage}\" of plugin \"{plugin}\" is another volume's already")]
    StorageTaken {
        /// The plugin.
        plugin: String,
        /// The plugin's id of it.
        storage: String,
        /// The volume.
        other: VolumeKey,
    },
    /// Another volume of this name is being created, so that both would get the same storage.
    #[error("plugin \"{plugin}\" is creating another volume with the name \"{name}\"")]
    NameTaken {
        /// The plugin.
        plugin: String,
        /// The name.
        name: String,
        /// The volume.
        other: VolumeKey,
    },
    /// The step is not legal in the claim's phase.
    #[error("claim of allocation {alloc} on volume {volume} cannot take step {step} in phase {phase}")]
    IllegalStep {
        /// Volume.
        volume: String,
        /// Allocation.
        alloc: String,
        /// Step.
        step: String,
        /// Phase.
        phase: String,
    },
    /// A claim in a plan does not fit the volume any more.
    #[error("{0}")]
    ClaimRefused(String),
    /// The variable changed since the writer looked.
    #[error("variable {key} has index {actual}, not {expected}")]
    VariableConflict {
        /// Which.
        key: String,
        /// Asked for.
        expected: u64,
        /// Found; 0 = no such variable.
        actual: u64,
    },
    /// Somebody else holds the variable.
    #[error("variable {key} is locked")]
    VariableLocked {
        /// Which.
        key: String,
    },
    /// What is to be stored was sealed with a root key that is gone: nobody could ever open it.
    #[error("the root key {key}, with which this was sealed, was deleted meanwhile")]
    UnknownKey {
        /// Which.
        key: String,
    },
    /// Another node has the id, with a secret of its own.
    #[error("node secret ID does not match. Not registering node {node}")]
    NodeSecret {
        /// Which.
        node: String,
    },
    /// The change makes no sense, in one sentence.
    #[error("{0}")]
    Invalid(String),
}
