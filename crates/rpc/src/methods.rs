//! The calls between agents: names and messages. Servers serve the first group, clients the second.

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

/// A program in a task, talked to while it runs. Served by servers and by clients.
#[derive(Clone, Copy, Debug)]
pub struct Exec;
impl DuplexMethod for Exec {
    const NAME: &'static str = "Agent.Exec";
    type Request = wire::ExecOpen;
    type Input = wire::ExecIn;
    type Output = wire::ExecOut;
}

method!(
    /// A client registers or reports anew.
    NodeRegister = "Node.Register", wire::NodeRegister => wire::NodeContact
);
method!(
    /// A sign of life.
    NodeHeartbeat = "Node.Heartbeat", wire::NodeHeartbeat => wire::NodeContact
);
method!(
    /// Things that happened on a node.
    NodeEvents = "Node.Events", wire::NodeEvents => wire::Done
);
method!(
    /// The stream of a node's allocations.
    WatchAllocs = "Node.WatchAllocs", wire::WatchAllocs => stream wire::AllocDelta
);
method!(
    /// How allocations do.
    AllocStatus = "Node.AllocStatus", wire::AllocStatus => wire::Done
);
method!(
    /// An allocation asks for a volume and waits.
    ClaimVolume = "Volume.Claim", wire::ClaimVolume => stream wire::ClaimProgress
);
method!(
    /// A client proves a step of a claim. Answered once the step is durable.
    ClaimReport = "Volume.Report", wire::ClaimReport => wire::Done
);
method!(
    /// An HTTP request answered by another agent. Served by servers and by clients.
    Http = "Agent.Http", wire::HttpRequest => stream wire::HttpPart
);

method!(
    /// Which services an allocation has.
    ServiceSync = "Service.Sync", wire::ServiceSync => wire::Done
);

method!(
    /// Identities of tasks, signed.
    SignIdentities = "Alloc.SignIdentities", wire::SignIdentities => wire::SignedIdentities
);

method!(
    /// What the templates of a task read.
    WatchLookups = "Template.Watch", caravan_types::lookup::WatchLookups => stream caravan_types::lookup::LookupsFound
);

method!(
    /// The identity of a node, signed.
    SignNode = "Node.Sign", wire::SignNode => wire::SignedNode
);

method!(
    /// How full a node's volumes are.
    VolumeStats = "Volume.Stats", wire::VolumeStats => wire::Done
);

method!(
    /// Served by clients: a call to a CSI controller that runs there.
    ///
    /// [`crate::Code::Retryable`] means that the plugin is not registered there or was not reached
    /// and another controller may be tried; [`crate::Code::Deadline`] and
    /// [`crate::Code::Unavailable`] that the outcome is unknown; the other codes carry the plugin's
    /// own refusal.
    ControllerCall = "Csi.Controller", wire::ControllerCall => wire::ControllerAnswer
);
method!(
    /// Served by clients: grow what is mounted (NodeExpandVolume). Codes as for [`ControllerCall`].
    NodeExpand = "Csi.NodeExpand", wire::NodeExpand => wire::NodeExpanded
);
method!(
    /// Served by clients: make a host volume.
    HostVolumeCreate = "HostVolume.Create", wire::HostVolumeCreate => wire::HostVolumeCreated
);
method!(
    /// Served by clients: offer a directory as a host volume.
    HostVolumeRegister = "HostVolume.Register", wire::HostVolumeRegister => wire::Done
);
method!(
    /// Served by clients: delete a host volume.
    HostVolumeDelete = "HostVolume.Delete", wire::HostVolumeDelete => wire::Done
);
method!(
    /// Served by clients: let go of a volume although no allocation asked for it.
    NodeDetach = "Csi.NodeDetach", wire::NodeDetach => wire::Done
);
method!(
    /// The data that an allocation's predecessor left on another node.
    FetchDisk = "Alloc.FetchDisk", wire::FetchDisk => stream wire::DiskChunk
);
method!(
    /// Served by clients: the data of an allocation that is over.
    GiveDisk = "Alloc.GiveDisk", wire::GiveDisk => stream wire::DiskChunk
);
