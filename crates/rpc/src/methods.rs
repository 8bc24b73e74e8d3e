//! The methods between agents: names and messages. Servers serve the first group, clients the second.

use crate::{DuplexMethod, Method, StreamMethod};
use caravan_types::wire;

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
    type Request = wire::ExecOpen;
    type Input = wire::ExecIn;
    type Output = wire::ExecOut;
}

method!(
    /// Registers a client, or updates its registration.
    NodeRegister = "Node.Register", wire::NodeRegister => wire::NodeContact
);
method!(
    /// Sends a node's heartbeat.
    NodeHeartbeat = "Node.Heartbeat", wire::NodeHeartbeat => wire::NodeContact
);
method!(
    /// Reports events of a node.
    NodeEvents = "Node.Events", wire::NodeEvents => wire::Done
);
method!(
    /// Streams the allocations of a node.
    WatchAllocs = "Node.WatchAllocs", wire::WatchAllocs => stream wire::AllocDelta
);
method!(
    /// Reports the states of allocations.
    AllocStatus = "Node.AllocStatus", wire::AllocStatus => wire::Done
);
method!(
    /// Claims a volume for an allocation and streams the claim's progress until it is ready.
    ClaimVolume = "Volume.Claim", wire::ClaimVolume => stream wire::ClaimProgress
);
method!(
    /// Reports a completed step of a claim with its proof. Answered once the step is durable.
    ClaimReport = "Volume.Report", wire::ClaimReport => wire::Done
);
method!(
    /// Forwards an HTTP request to another agent. Served by servers and by clients.
    Http = "Agent.Http", wire::HttpRequest => stream wire::HttpPart
);

method!(
    /// Synchronizes the services of an allocation.
    ServiceSync = "Service.Sync", wire::ServiceSync => wire::Done
);

method!(
    /// Signs workload identities of tasks.
    SignIdentities = "Alloc.SignIdentities", wire::SignIdentities => wire::SignedIdentities
);

method!(
    /// Streams the values that the templates of a task read.
    WatchLookups = "Template.Watch", caravan_types::lookup::WatchLookups => stream caravan_types::lookup::LookupsFound
);

method!(
    /// Signs the identity of a node.
    SignNode = "Node.Sign", wire::SignNode => wire::SignedNode
);

method!(
    /// Reports the usage of a node's volumes.
    VolumeStats = "Volume.Stats", wire::VolumeStats => wire::Done
);

method!(
    /// Served by clients: calls a CSI controller that runs there.
    ///
    /// [`crate::Code::Retryable`] means that the plugin is not registered there or was not reached, so another
    /// controller may be tried. [`crate::Code::Deadline`] and [`crate::Code::Unavailable`] mean that the outcome is
    /// unknown. Other codes carry the plugin's own refusal.
    ControllerCall = "Csi.Controller", wire::ControllerCall => wire::ControllerAnswer
);
method!(
    /// Served by clients: expands a mounted volume (NodeExpandVolume). Codes as for [`ControllerCall`].
    NodeExpand = "Csi.NodeExpand", wire::NodeExpand => wire::NodeExpanded
);
method!(
    /// Served by clients: creates a host volume.
    HostVolumeCreate = "HostVolume.Create", wire::HostVolumeCreate => wire::HostVolumeCreated
);
method!(
    /// Served by clients: registers a directory as a host volume.
    HostVolumeRegister = "HostVolume.Register", wire::HostVolumeRegister => wire::Done
);
method!(
    /// Served by clients: deletes a host volume.
    HostVolumeDelete = "HostVolume.Delete", wire::HostVolumeDelete => wire::Done
);
method!(
    /// Served by clients: unpublishes and unstages a volume without a request of an allocation.
    NodeDetach = "Csi.NodeDetach", wire::NodeDetach => wire::Done
);
method!(
    /// Streams the data that an allocation's predecessor left on another node.
    FetchDisk = "Alloc.FetchDisk", wire::FetchDisk => stream wire::DiskChunk
);
method!(
    /// Served by clients: streams the data of a finished allocation.
    GiveDisk = "Alloc.GiveDisk", wire::GiveDisk => stream wire::DiskChunk
);
