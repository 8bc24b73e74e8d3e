//! Messages between agents. `caravan-rpc` declares the method that carries each message.

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
    /// The node. Its secret proves the node's identity; the first registration sets the secret.
    pub node: Node,
}

/// The facts that a client needs to stay in contact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeContact {
    /// The time within which the next heartbeat must arrive.
    pub heartbeat_ttl: Nanos,
    /// The Raft index of the node's row.
    pub index: u64,
    /// The status that the servers store.
    pub status: NodeStatus,
    /// The RPC addresses of the servers, `host:port`.
    pub servers: Vec<String>,
    /// Whether the servers have no row of the node, so that the client must register it again.
    pub unknown: bool,
    /// The Raft index of the leader's state.
    #[serde(default)]
    pub state_index: u64,
    /// The time for which the node may use volumes that only one node may write (design section 4.4). It begins when
    /// the call was *sent*. 0 from servers of versions without leases.
    #[serde(default)]
    pub lease_ttl: Nanos,
    /// A new identity of the node, which replaces an absent or an old one.
    #[serde(default)]
    pub identity: Option<SignedNode>,
}

/// A heartbeat of a node, which renews its lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeHeartbeat {
    /// The node that sends the heartbeat.
    pub node_id: NodeId,
    /// The node's secret or its identity, as proof.
    pub secret: NodeSecret,
    /// Whether the node has no identity and requests one.
    #[serde(default)]
    pub wants_identity: bool,
}

/// New events of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeEvents {
    /// The node that sends the request.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The events since the last report, oldest first.
    pub events: Vec<NodeEvent>,
}

/// The request of a client for the stream of its allocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchAllocs {
    /// The node that sends the request.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The newest index that the client has seen. The first message describes a state that is at least as new,
    /// because an older state would end newer allocations.
    #[serde(default)]
    pub after: u64,
}

/// Changes of a node's allocations. The first message of a stream is full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocDelta {
    /// The index of the state that the message describes.
    pub index: u64,
    /// Whether `allocs` has all allocations of the node, so that the client ends all others.
    pub full: bool,
    /// The new and the changed allocations, with their jobs.
    pub allocs: Vec<Arc<Allocation>>,
    /// The allocations that the servers have removed.
    pub removed: Vec<AllocId>,
}

/// The report of a client about its allocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AllocStatus {
    /// The node that sends the report.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The states of the changed allocations.
    pub updates: Vec<AllocUpdate>,
}

/// A response that contains only an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The Raft index of the change.
    pub index: u64,
}

/// The request of an allocation for a volume. The response is a stream of [`ClaimProgress`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimVolume {
    /// The node that sends the request.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The volume and the allocation.
    pub claim: ClaimId,
}

/// The progress of a claim. `Attached` and `Denied` end the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ClaimProgress {
    /// The node cannot continue the claim yet.
    Waiting {
        /// The reason of the wait, one sentence.
        reason: String,
    },
    /// The volume is attached; the client can mount it.
    Attached(Box<ClaimGrant>),
    /// The claim can never succeed.
    Denied {
        /// The reason, one sentence.
        reason: String,
    },
}

/// The data that the client needs to mount and unmount a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimGrant {
    /// The claim after the volume was attached.
    pub claim: Claim,
    /// The plugin's id of the volume.
    pub external_volume_id: String,
    /// The `volume_context` of the volume.
    pub volume_context: BTreeMap<String, String>,
    /// The volume's mount options, overridden by the options of the group.
    pub mount_options: Option<MountOptions>,
    /// The secrets for the calls of the plugin.
    pub secrets: Secrets,
    /// Whether only one node may write the volume, so that its tasks must end when the node's lease expires.
    #[serde(default)]
    pub fenced: bool,
    /// Other allocations on this node whose claims on the volume hold, so that their stages may be shared. Stages of
    /// all other allocations belong to ended attachments. `None` from servers that do not send the field.
    #[serde(default)]
    pub beside: Option<Vec<AllocId>>,
}

/// The proof of a claim's step by a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimReport {
    /// The node that sends the report.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
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
        /// The client's proof of the mount.
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
        /// The number of consecutive failures.
        tries: u32,
    },
}

/// The request of the servers that a node unmounts a volume without a request of its allocation. Examples are `volume
/// detach` and claims of removed allocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeDetach {
    /// The claim to end.
    pub claim: ClaimId,
    /// The generation of the claim.
    pub generation: u32,
    /// The plugin of the volume.
    pub plugin_id: PluginId,
    /// The plugin's id of the volume.
    pub external_volume_id: String,
    /// The usage with which the volume was staged and published.
    pub usage: Usage,
}

/// The request of the servers that a node calls the controller of a plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControllerCall {
    /// The plugin to call.
    pub plugin_id: PluginId,
    /// The call and its arguments.
    pub operation: ControllerOperation,
}

/// A call of a controller.
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
    /// ListSnapshots. With `snapshot_id`, only this snapshot is listed, if the plugin can filter by id.
    ListSnapshots {
        max_entries: i32,
        starting_token: String,
        secrets: Secrets,
        #[serde(default)]
        snapshot_id: String,
    },
}

impl ControllerOperation {
    /// Returns the name of the CSI call.
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

    /// Returns the object that the call changes, by the plugin's id or name; `None` for a call that only reads. Calls
    /// about the same object run one after the other.
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

/// The response of a controller.
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
    /// ValidateVolumeCapabilities: `None` if confirmed, else the reason of the refusal.
    Validated { refused: Option<String> },
    /// ListVolumes.
    Listed { volumes: Vec<VolumeExternalStub>, next_token: String },
    /// ControllerExpandVolume.
    Expanded { capacity_bytes: i64, node_expansion_required: bool },
    /// CreateSnapshot. Fields that the plugin does not report are empty.
    Snapshot(Box<CsiSnapshot>),
    /// ListSnapshots.
    Snapshots { snapshots: Vec<CsiSnapshot>, next_token: String },
    /// All other calls.
    Done,
}

/// The request of the servers that a node expands a mounted volume (NodeExpandVolume). The response follows the call
/// of the plugin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeExpand {
    /// The claim of the mount.
    pub claim: ClaimId,
    /// The generation of the claim.
    pub generation: u32,
    /// The smallest capacity after the call, in bytes.
    pub capacity_min: i64,
    /// The largest capacity after the call, in bytes; 0 = no limit.
    pub capacity_max: i64,
    /// The volume's mount options, overridden by the options of the group.
    pub mount_options: Option<MountOptions>,
    /// The secrets for the call of the plugin.
    pub secrets: Secrets,
}

/// The result of the expansion of a mounted volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExpanded {
    /// The capacity in bytes; the requested capacity if the plugin did not report one.
    pub capacity_bytes: i64,
}

/// The report of a client about the used space of volumes. It is not stored durably, and the next message replaces
/// it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeStats {
    /// The node that sends the report.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The usage of all mounted volumes whose plugins report it, by volume.
    pub usage: Vec<(VolumeKey, VolumeUsage)>,
}

/// The request of the servers that a node creates or updates a host volume. Idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostVolumeCreate {
    /// The row that the servers wrote before the call.
    pub volume: HostVolume,
}

/// The result of the creation of a host volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostVolumeCreated {
    /// The path on the node.
    pub host_path: String,
    /// The capacity in bytes; 0 if the plugin does not report it.
    pub capacity_bytes: i64,
}

/// The request of the servers that a node registers an existing directory as a host volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostVolumeRegister {
    /// The row of the host volume.
    pub volume: HostVolume,
}

/// The request of the servers that a node deletes a host volume. Idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostVolumeDelete {
    /// The row of the host volume.
    pub volume: HostVolume,
}

/// The current services of an allocation, as its client reports them. All others are deregistered. Idempotent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceSync {
    /// The node that sends the report.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The allocation of the services.
    pub alloc_id: AllocId,
    /// All services of the allocation.
    pub services: Vec<ServiceRegistration>,
}

/// The request of a client for signed identities of its allocation's tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignIdentities {
    /// The node that sends the request.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The allocation of the tasks.
    pub alloc_id: AllocId,
    /// The requested identities: the name of the task, and the name of the identity.
    pub identities: Vec<(String, String)>,
}

/// The requested identities, in the order of the request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SignedIdentities {
    /// The tokens in the form of JWTs, one for each requested identity.
    pub tokens: Vec<caravan_types::acl::Secret>,
}

/// The request of a node for its own identity.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SignNode {
    /// The node that sends the request.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
}

/// The identity of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignedNode {
    /// The token in the form of a JWT.
    pub token: caravan_types::acl::Secret,
    /// The claims that the token contains.
    pub claims: caravan_types::identity::Claims,
}

/// An HTTP request that one agent relays to another. Clients relay to servers, servers to the node of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The path and the query.
    pub uri: String,
    /// The headers that the receiver uses.
    pub headers: Vec<(String, String)>,
    /// The body of the request.
    pub body: Vec<u8>,
}

/// A part of the stream with the response: first the head, then chunks of the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpPart {
    /// The status and the headers, before any part of the body.
    Head {
        /// The HTTP status, from 100 to 599.
        status: u16,
        /// The headers of the response.
        headers: Vec<(String, String)>,
    },
    /// A chunk of the body.
    Body(Vec<u8>),
}

/// The request to run a program in a task, on any node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOpen {
    /// The UUID of the allocation.
    pub alloc: AllocId,
    /// The name of the task.
    pub task: String,
    /// The program and its arguments; empty for an action of the job file.
    pub command: Vec<String>,
    /// The name of the action; empty for a program.
    #[serde(default)]
    pub action: String,
    /// The job of the action.
    #[serde(default)]
    pub job: String,
    /// Whether the program gets a terminal.
    pub tty: bool,
    /// The number of agents that relayed the request.
    pub hops: u8,
    /// The secret of the caller's token. Only servers receive it, not nodes.
    #[serde(default)]
    pub secret: Secret,
    /// The region of the allocation; empty means the region of the agent that receives the message.
    #[serde(default)]
    pub region: String,
}

/// The input of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecIn {
    /// Bytes of the standard input.
    Data(Vec<u8>),
    /// The end of the standard input.
    Close,
    /// A new size of the terminal.
    Resize {
        /// The number of lines.
        rows: u16,
        /// The number of characters in a line.
        columns: u16,
    },
}

/// The output and the end of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecOut {
    /// Bytes of the standard output.
    Stdout(Vec<u8>),
    /// Bytes of the standard error.
    Stderr(Vec<u8>),
    /// The end of the standard output.
    StdoutClosed,
    /// The end of the standard error.
    StderrClosed,
    /// The exit code of the program, as the last message.
    Exited(i32),
}

/// The key of a volume, in a request that contains nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRef {
    /// The namespace of the volume.
    pub namespace: Namespace,
    /// The id of the volume.
    pub id: VolumeId,
}

/// The request of a new allocation for the data that its predecessor left on another node. The response is a stream
/// of [`DiskChunk`], which begins when the predecessor is terminal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FetchDisk {
    /// The node that sends the request.
    pub node_id: NodeId,
    /// The secret that authenticates the node.
    pub secret: NodeSecret,
    /// The UUID of the new allocation.
    pub alloc: AllocId,
}

/// The request of the servers for the data of a terminal allocation on a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GiveDisk {
    /// The UUID of the allocation.
    pub alloc: AllocId,
}

/// A part of a tar archive of `alloc/data` and each task's `local`, with paths below the allocation's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskChunk {
    /// The bytes of the part.
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
