//! The failures of networks of allocations.

use caravan_types::AllocId;
use std::net::IpAddr;

/// The reason that the network of an allocation, or the bridge, cannot be created or removed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The kernel refused.
    #[error("the network cannot be changed")]
    Kernel(#[from] caravan_sys::Error),
    /// The name of the bridge belongs to an interface of another kind.
    #[error("interface {name} is not a bridge: set another bridge_network_name, or delete the interface")]
    NoBridge {
        /// The name of the interface.
        name: String,
    },
    /// The bridge belongs to another program, or to another node's agent on this machine.
    #[error(
        "bridge {name} has interfaces of another program: set another bridge_network_name, or end that program and \
         delete the bridge"
    )]
    ForeignBridge {
        /// The name of the bridge.
        name: String,
    },
    /// The host has an address in the bridge's network.
    #[error(
        "the bridge's network overlaps with {address}/{prefix} of interface {interface}: set another bridge_network_subnet"
    )]
    Overlap {
        /// The address of the host.
        address: IpAddr,
        /// The prefix length of the address.
        prefix: u8,
        /// The interface with the address.
        interface: String,
    },
    /// A port of the node leads to another allocation.
    #[error("port {port} of the node is already mapped for allocation {alloc}")]
    PortTaken {
        /// The port of the node.
        port: u16,
        /// The allocation to which the port leads.
        alloc: AllocId,
    },
    /// The interface within the namespace vanished while it was being set up.
    #[error("interface {0} of the allocation vanished while it was being set up")]
    Vanished(&'static str),
}
