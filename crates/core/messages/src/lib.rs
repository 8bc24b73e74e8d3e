//! Messages between agents. Which method carries which is declared in `caravan-rpc`.

pub mod cluster;
pub mod region;

use caravan_types::acl::Secret;
use caravan_types::alloc::{AllocUpdate, Allocation};
use caravan_types::host_volume::HostVolume;
use caravan_types::id::{AllocId, Namespace, NodeId, PluginId, VolumeId, VolumeKey};
use caravan_types::job::MountOptions;
use caravan_types::node::{Node, NodeEvent, NodeSecret, NodeStatus};
use caravan_types::ser::Secrets;
use caravan_types::service::ServiceRegistration;
use caravan_types::time::Nanos;
use caravan_types::volume::{
    Capability, Claim, ClaimId, CsiSnapshot, MountProof, Topology, TopologyRequest, Usage,
    VolumeExternalStub, VolumeUsage,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The request of a client to register, or to report its node again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRegister {
    /// The node; its secret proves who it is and is fixed by the first registration.
    pub node: Node,
}

/// What a client must know to stay in contact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeContact {
    /// A heartbeat must arrive within this time.
    pub heartbeat_ttl: Nanos,
    /// Index of the node's row.
    pub index: u64,
    /// Status as the servers see it.
    pub status: NodeStatus,
    /// RPC addresses of the servers, `host:port`.
    pub servers: Vec<String>,
    /// The servers do not know the node (any more): register again.
    pub unknown: bool,
    /// Index of the leader's state.
    #[serde(default)]
    pub state_index: u64,
    /// For how long after this call was *sent* the node may use volumes that only one node may write
    /// (design section 4.4); 0 from servers that do not say.
    #[serde(default)]
    pub lease_ttl: Nanos,
    /// A new identity of the node, in place of an absent or an old one.
    #[serde(default)]
    pub identity: Option<SignedNode>,
}

/// A sign of life.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeHeartbeat {
    /// Who.
    pub node_id: NodeId,
    /// Proof: the node's secret or its identity.
    pub secret: NodeSecret,
    /// Whether the node has no identity and asks for one.
    #[serde(default)]
    pub wants_identity: bool,
}

/// Things that happened on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeEvents {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// What.
    pub events: Vec<NodeEvent>,
}

/// A client asks for the stream of its allocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchAllocs {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// The newest index that the client has seen. The first message describes a state that is at least as new: an older
    /// one would end allocations that are younger.
    #[serde(default)]
    pub after: u64,
}

/// Changes of a node's allocations. The first message of a stream is full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocDelta {
    /// Index of the state that this describes.
    pub index: u64,
    /// `allocs` is everything the node should have; others are to be forgotten.
    pub full: bool,
    /// New and changed allocations, with their job.
    pub allocs: Vec<Arc<Allocation>>,
    /// Allocations that the servers have removed.
    pub removed: Vec<AllocId>,
}

/// A client tells how its allocations do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AllocStatus {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// What.
    pub updates: Vec<AllocUpdate>,
}

/// An index, where nothing else is to be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Index of the change.
    pub index: u64,
}

/// An allocation asks for a volume and waits: the answer is a stream of [`ClaimProgress`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimVolume {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// Volume and allocation.
    pub claim: ClaimId,
}

/// How far a claim got. `Attached` and `Denied` end the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ClaimProgress {
    /// Not yet, for this reason.
    Waiting {
        /// One sentence.
        reason: String,
    },
    /// Go ahead and mount.
    Attached(Box<ClaimGrant>),
    /// Never.
    Denied {
        /// One sentence.
        reason: String,
    },
}

/// Everything that mounting and unmounting need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimGrant {
    /// The claim as attached.
    pub claim: Claim,
    /// The plugin's id of the volume.
    pub external_volume_id: String,
    /// Volume context.
    pub volume_context: BTreeMap<String, String>,
    /// The volume's mount options with the group's on top.
    pub mount_options: Option<MountOptions>,
    /// For the plugin's calls only.
    pub secrets: Secrets,
    /// Only one node may write the volume: what uses it must end when the node's lease does.
    #[serde(default)]
    pub fenced: bool,
    /// Allocations on this node whose claims on the volume hold as well: what they have staged may be shared. What
    /// any other one has left there belongs to an attachment that is over. None from servers that do not say.
    #[serde(default)]
    pub beside: Option<Vec<AllocId>>,
}

/// A client proves a step of a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimReport {
    /// Who.
    pub node_id: NodeId,
    /// Proof of identity.
    pub secret: NodeSecret,
    /// The claim that the report is about.
    pub claim: ClaimId,
    /// The generation of the claim; reports for an earlier generation are ignored.
    pub generation: u32,
    /// The step that the client completed or failed.
    pub step: ClaimReportStep,
}

/// Steps that only the client can prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimReportStep {
    /// The volume is published for the allocation.
    Mounted {
        /// Proof.
        proof: MountProof,
    },
    /// Nothing is published for the allocation.
    Unpublished,
    /// Nothing is staged, or the stage has other users.
    Unstaged,
    /// The step failed; the client retries it.
    Failed {
        /// The error that the plugin returned.
        error: String,
        /// How often it failed in a row.
        tries: u32,
    },
}

/// The servers ask a node to let go of a volume although no allocation asked for it
/// (`volume detach`, claims of forgotten allocations).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeDetach {
    /// Claim to end.
    pub claim: ClaimId,
    /// Its generation.
    pub generation: u32,
    /// Plugin.
    pub plugin_id: PluginId,
    /// The plugin's id of the volume.
    pub external_volume_id: String,
    /// How it was used.
    pub usage: Usage,
}

/// A controller call that the servers ask a node to make.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControllerCall {
    /// Plugin.
    pub plugin_id: PluginId,
    /// What.
    pub operation: ControllerOperation,
}

/// What a controller is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are those of the CSI messages of the same name")]
pub enum ControllerOperation {
    /// CreateVolume.
    Create {
        name: String,
        capacity_min: i64,
        capacity_max: i64,
        capabilities: Vec<Capability>,
        mount_options: Option<MountOptions>,
        parameters: BTreeMap<String, String>,
        secrets: Secrets,
        clone_id: String,
        snapshot_id: String,
        topology: Option<TopologyRequest>,
    },
    /// DeleteVolume.
    Delete { external_id: String, secrets: Secrets },
    /// ControllerPublishVolume.
    Publish {
        external_id: String,
        external_node_id: String,
        usage: Usage,
        mount_options: Option<MountOptions>,
        secrets: Secrets,
        context: BTreeMap<String, String>,
    },
    /// ControllerUnpublishVolume.
    Unpublish { external_id: String, external_node_id: String, secrets: Secrets },
    /// ValidateVolumeCapabilities.
    Validate {
        external_id: String,
        capabilities: Vec<Capability>,
        mount_options: Option<MountOptions>,
        parameters: BTreeMap<String, String>,
        context: BTreeMap<String, String>,
        secrets: Secrets,
    },
    /// ListVolumes.
    List { max_entries: i32, starting_token: String },
    /// ControllerExpandVolume.
    Expand {
        external_id: String,
        capacity_min: i64,
        capacity_max: i64,
        capability: Option<Capability>,
        mount_options: Option<MountOptions>,
        secrets: Secrets,
    },
    /// CreateSnapshot.
    CreateSnapshot {
        external_id: String,
        name: String,
        parameters: BTreeMap<String, String>,
        secrets: Secrets,
    },
    /// DeleteSnapshot.
    DeleteSnapshot { snapshot_id: String, secrets: Secrets },
    /// ListSnapshots; `snapshot_id`: only this one, if the plugin can tell it apart.
    ListSnapshots {
        max_entries: i32,
        starting_token: String,
        secrets: Secrets,
        #[serde(default)]
        snapshot_id: String,
    },
}

impl ControllerOperation {
    /// Name of the CSI call.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CreateVolume",
            Self::Delete { .. } => "DeleteVolume",
            Self::Publish { .. } => "ControllerPublishVolume",
            Self::Unpublish { .. } => "ControllerUnpublishVolume",
            Self::Validate { .. } => "ValidateVolumeCapabilities",
            Self::List { .. } => "ListVolumes",
            Self::Expand { .. } => "ControllerExpandVolume",
            Self::CreateSnapshot { .. } => "CreateSnapshot",
            Self::DeleteSnapshot { .. } => "DeleteSnapshot",
            Self::ListSnapshots { .. } => "ListSnapshots",
        }
    }

    /// What the call changes, in the plugin's words, if it changes something: calls about the same take turns.
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::Create { name, .. } => Some(name),
            Self::Delete { external_id, .. }
            | Self::Publish { external_id, .. }
            | Self::Unpublish { external_id, .. }
            | Self::Expand { external_id, .. }
            | Self::CreateSnapshot { external_id, .. } => Some(external_id),
            Self::DeleteSnapshot { snapshot_id, .. } => Some(snapshot_id),
            Self::Validate { .. } | Self::List { .. } | Self::ListSnapshots { .. } => None,
        }
    }
}

/// What a controller answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields are those of the CSI messages of the same name")]
pub enum ControllerAnswer {
    /// CreateVolume.
    Created {
        external_id: String,
        capacity_bytes: i64,
        context: BTreeMap<String, String>,
        topologies: Vec<Topology>,
    },
    /// ControllerPublishVolume.
    Published { publish_context: BTreeMap<String, String> },
    /// ValidateVolumeCapabilities: confirmed, or why not.
    Validated { refused: Option<String> },
    /// ListVolumes.
    Listed { volumes: Vec<VolumeExternalStub>, next_token: String },
    /// ControllerExpandVolume.
    Expanded { capacity_bytes: i64, node_expansion_required: bool },
    /// CreateSnapshot. Only the fields that the plugin tells are filled.
    Snapshot(Box<CsiSnapshot>),
    /// ListSnapshots.
    Snapshots { snapshots: Vec<CsiSnapshot>, next_token: String },
    /// The others.
    Done,
}

/// The servers ask a node to grow what it mounted (NodeExpandVolume). Answered when the plugin has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeExpand {
    /// Claim whose mount is meant.
    pub claim: ClaimId,
    /// Its generation.
    pub generation: u32,
    /// Bytes that it must have at least.
    pub capacity_min: i64,
    /// Bytes that it may have at most; 0 = no limit.
    pub capacity_max: i64,
    /// The volume's mount options with the group's on top.
    pub mount_options: Option<MountOptions>,
    /// For the plugin's call only.
    pub secrets: Secrets,
}

/// What a node has grown a mount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExpanded {
    /// The capacity in bytes; the requested capacity if the plugin did not report one.
    pub capacity_bytes: i64,
}

/// A client tells how full volumes are. Nothing durable: the next message replaces it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeStats {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// By volume, for all that are mounted on the node and whose plugin tells.
    pub usage: Vec<(VolumeKey, VolumeUsage)>,
}

/// The servers ask a node to make a host volume, or to bring an existing one up to date. Idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostVolumeCreate {
    /// The row as intended.
    pub volume: HostVolume,
}

/// What the node made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostVolumeCreated {
    /// Where it lies on the node.
    pub host_path: String,
    /// Bytes, 0 where the plugin does not tell.
    pub capacity_bytes: i64,
}

/// The servers ask a node to offer a directory that is there already.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostVolumeRegister {
    /// The row.
    pub volume: HostVolume,
}

/// The servers ask a node to delete a host volume. Idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostVolumeDelete {
    /// The row.
    pub volume: HostVolume,
}

/// The current services of an allocation, as its client reports them. All others are deregistered. Idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceSync {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// Of which allocation.
    pub alloc_id: AllocId,
    /// All of them.
    pub services: Vec<ServiceRegistration>,
}

/// A client asks for the signed identities of tasks of one of its allocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignIdentities {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// Which allocation.
    pub alloc_id: AllocId,
    /// Task and name of the identity.
    pub identities: Vec<(String, String)>,
}

/// The identities that were asked for, in the same order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SignedIdentities {
    /// Tokens.
    pub tokens: Vec<caravan_types::acl::Secret>,
}

/// A node asks for its own identity.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SignNode {
    /// Node.
    pub node_id: NodeId,
    /// Proof of identity.
    pub secret: NodeSecret,
}

/// The identity of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignedNode {
    /// The token.
    pub token: caravan_types::acl::Secret,
    /// What it says.
    pub claims: caravan_types::identity::Claims,
}

/// An HTTP request that one agent answers for another: clients relay to servers, servers to the node
/// that holds an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    /// Method.
    pub method: String,
    /// Path and query.
    pub uri: String,
    /// Headers that matter.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

/// The answer, as a stream: one head, then chunks of the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpPart {
    /// First.
    Head {
        /// Status code.
        status: u16,
        /// Headers.
        headers: Vec<(String, String)>,
    },
    /// Then any number of these.
    Body(Vec<u8>),
}

/// A program to run in a task, wherever the allocation is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOpen {
    /// Allocation.
    pub alloc: AllocId,
    /// Task.
    pub task: String,
    /// Program and arguments; empty for an action of the job file.
    pub command: Vec<String>,
    /// Name of the action, where it is one.
    #[serde(default)]
    pub action: String,
    /// Job that the action belongs to.
    #[serde(default)]
    pub job: String,
    /// Give it a terminal.
    pub tty: bool,
    /// How many agents passed it on.
    pub hops: u8,
    /// Who asks: for servers only, nodes are not told.
    #[serde(default)]
    pub secret: Secret,
    /// The region of the allocation; empty: that of the agent that receives the message.
    #[serde(default)]
    pub region: String,
}

/// What is sent to the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecIn {
    /// Bytes of its standard input.
    Data(Vec<u8>),
    /// Its standard input ends.
    Close,
    /// A new size of its terminal.
    Resize {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
}

/// What the program does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecOut {
    /// It writes to its standard output.
    Stdout(Vec<u8>),
    /// It writes to its standard error.
    Stderr(Vec<u8>),
    /// It writes nothing more to its standard output.
    StdoutClosed,
    /// It writes nothing more to its standard error.
    StderrClosed,
    /// It ended with this code. Nothing follows.
    Exited(i32),
}

/// Which volume a node's request is about, where only that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRef {
    /// Namespace.
    pub namespace: Namespace,
    /// Id.
    pub id: VolumeId,
}

/// A new allocation asks for the data that its predecessor left on another node. The answer is a stream of
/// [`DiskChunk`]; it begins when the predecessor is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FetchDisk {
    /// Who.
    pub node_id: NodeId,
    /// Proof.
    pub secret: NodeSecret,
    /// The new allocation.
    pub alloc: AllocId,
}

/// The servers ask a node for the data of an allocation that is over there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GiveDisk {
    /// The allocation.
    pub alloc: AllocId,
}

/// A part of a tar archive of `alloc/data` and each task's `local`, with paths below the allocation's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskChunk {
    /// Bytes.
    pub data: Vec<u8>,
}

caravan_types::packed!(
    AllocDelta,
    AllocStatus,
    ClaimProgress,
    ClaimReport,
    ClaimVolume,
    ControllerAnswer,
    ControllerCall,
    DiskChunk,
    Done,
    ExecIn,
    ExecOpen,
    ExecOut,
    FetchDisk,
    GiveDisk,
    HostVolumeCreate,
    HostVolumeCreated,
    HostVolumeDelete,
    HostVolumeRegister,
    HttpPart,
    HttpRequest,
    NodeContact,
    NodeDetach,
    NodeEvents,
    NodeExpand,
    NodeExpanded,
    NodeHeartbeat,
    NodeRegister,
    ServiceSync,
    SignIdentities,
    SignNode,
    SignedIdentities,
    SignedNode,
    VolumeStats,
    WatchAllocs,
);
