//! The methods between agents: names and messages. Servers serve the first group, clients the second.

use crate::{DuplexMethod, Method, StreamMethod};
use caravan_messages::{self as messages, cluster, region};

macro_rules! method {
    ($(#[$doc:meta])* $name:ident = $wire:literal, $request:ty => $response:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl Method for $name {
            const NAME: &'static str = $wire;
            type Request = $request;
            type Response = $response;
        }
    };
    ($(#[$doc:meta])* $name:ident = $wire:literal, $request:ty => stream $item:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl StreamMethod for $name {
            const NAME: &'static str = $wire;
            type Request = $request;
            type Item = $item;
        }
    };
}

/// Runs a program in a task and exchanges input and output with it. Served by servers and by clients.
#[derive(Clone, Copy, Debug)]
pub struct Exec;
impl DuplexMethod for Exec {
    const NAME: &'static str = "Agent.Exec";
    type Request = messages::ExecOpen;
    type Input = messages::ExecIn;
    type Output = messages::ExecOut;
}

method!(
    /// Registers a client, or updates its registration.
    NodeRegister = "Node.Register", messages::NodeRegister => messages::NodeContact
);
method!(
    /// Sends a node's heartbeat.
    NodeHeartbeat = "Node.Heartbeat", messages::NodeHeartbeat => messages::NodeContact
);
method!(
    /// Reports events of a node.
    NodeEvents = "Node.Events", messages::NodeEvents => messages::Done
);
method!(
    /// Streams the allocations of a node.
    WatchAllocs = "Node.WatchAllocs", messages::WatchAllocs => stream messages::AllocDelta
);
method!(
    /// Reports the states of allocations.
    AllocStatus = "Node.AllocStatus", messages::AllocStatus => messages::Done
);
method!(
    /// Claims a volume for an allocation and streams the claim's progress until it is ready.
    ClaimVolume = "Volume.Claim", messages::ClaimVolume => stream messages::ClaimProgress
);
method!(
    /// Reports a completed step of a claim with its proof. The response follows once the step is durable.
    ClaimReport = "Volume.Report", messages::ClaimReport => messages::Done
);
method!(
    /// Forwards an HTTP request to another agent. Served by servers and by clients.
    Http = "Agent.Http", messages::HttpRequest => stream messages::HttpPart
);

method!(
    /// Synchronizes the services of an allocation.
    ServiceSync = "Service.Sync", messages::ServiceSync => messages::Done
);

method!(
    /// Signs workload identities of tasks.
    SignIdentities = "Alloc.SignIdentities", messages::SignIdentities => messages::SignedIdentities
);

method!(
    /// Streams the values that the templates of a task read.
    WatchLookups = "Template.Watch", caravan_types::lookup::WatchLookups => stream caravan_types::lookup::LookupsFound
);

method!(
    /// Signs the identity of a node.
    SignNode = "Node.Sign", messages::SignNode => messages::SignedNode
);

method!(
    /// Reports the usage of a node's volumes.
    VolumeStats = "Volume.Stats", messages::VolumeStats => messages::Done
);

method!(
    /// Served by clients: calls a CSI controller that runs on the client.
    ///
    /// [`crate::Code::Retryable`] means that the plugin is not registered on the client or was not reached,
    /// so another controller may be tried. [`crate::Code::Deadline`] and [`crate::Code::Unavailable`] mean
    /// that the outcome is unknown. Other codes are the plugin's refusal.
    ControllerCall = "Csi.Controller", messages::ControllerCall => messages::ControllerAnswer
);
method!(
    /// Served by clients: expands a mounted volume (NodeExpandVolume). Codes as for [`ControllerCall`].
    NodeExpand = "Csi.NodeExpand", messages::NodeExpand => messages::NodeExpanded
);
method!(
    /// Served by clients: creates a host volume.
    HostVolumeCreate = "HostVolume.Create", messages::HostVolumeCreate => messages::HostVolumeCreated
);
method!(
    /// Served by clients: registers a directory as a host volume.
    HostVolumeRegister = "HostVolume.Register", messages::HostVolumeRegister => messages::Done
);
method!(
    /// Served by clients: deletes a host volume.
    HostVolumeDelete = "HostVolume.Delete", messages::HostVolumeDelete => messages::Done
);
method!(
    /// Served by clients: unpublishes and unstages a volume without a request of an allocation.
    NodeDetach = "Csi.NodeDetach", messages::NodeDetach => messages::Done
);
method!(
    /// Streams the data that an allocation's predecessor left on another node.
    FetchDisk = "Alloc.FetchDisk", messages::FetchDisk => stream messages::DiskChunk
);
method!(
    /// Served by clients: streams the data of a finished allocation.
    GiveDisk = "Alloc.GiveDisk", messages::GiveDisk => stream messages::DiskChunk
);

/// Sends a snapshot of the replicated log: the request is its head, the inputs are its parts.
#[derive(Clone, Copy, Debug)]
pub struct LogSnapshot;
impl DuplexMethod for LogSnapshot {
    const NAME: &'static str = "Log.Snapshot";
    type Request = cluster::LogMessage;
    type Input = cluster::LogMessage;
    type Output = cluster::LogMessage;
}

method!(
    /// Carries a message of the replicated log. Served to members of the cluster.
    LogCall = "Log.Call", cluster::LogMessage => cluster::LogMessage
);
method!(
    /// Returns the status of a server. Served to servers.
    ServerStatus = "Server.Status", cluster::AskStatus => cluster::ServerStatus
);
method!(
    /// Requests from a server without a log its promise to join the founding of a cluster. Served to servers.
    ServerPromise = "Server.Promise", cluster::AskPromise => cluster::PromiseAnswer
);
method!(
    /// Returns whether the proposal of the called server to found a cluster is still valid. Served to servers.
    ServerFounding = "Server.Founding", cluster::AskFounding => cluster::FoundingStands
);
method!(
    /// Admits a server without a log to a cluster. Served to servers.
    ServerAdmit = "Server.Admit", cluster::Admit => cluster::Admitted
);
method!(
    /// Streams the nodes that are connected to a server. Served to members of the cluster.
    ServerNodes = "Server.Nodes", cluster::FollowNodes => stream cluster::NodesChanged
);
method!(
    /// Streams the wait reasons of claims from the leader. Served to members of the cluster.
    ServerReasons = "Server.Reasons", cluster::FollowReasons => stream cluster::ReasonsChanged
);
method!(
    /// Streams the rows that other regions replicate: first all rows of a kind, then changes.
    FollowRows = "Region.FollowRows", region::FollowRows => stream region::RowsPart
);
method!(
    /// Requests from the leader the removal of a server that leaves. Served to members of the cluster.
    ServerRemoval = "Server.Removal", cluster::AskRemoval => messages::Done
);
