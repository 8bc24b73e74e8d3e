//! The network of an allocation: its addresses, and the ports of the node that lead to it.

use caravan_sys::netlink::link::Mac;
use caravan_types::AllocId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// The addresses of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Addresses {
    /// The IPv4 address of the allocation.
    pub ipv4: Ipv4Addr,
    /// The IPv6 address of the allocation, if the bridge has an IPv6 network.
    pub ipv6: Option<Ipv6Addr>,
}

impl Addresses {
    /// Returns all addresses.
    pub fn all(&self) -> BTreeSet<IpAddr> {
        self.ipv6.map(IpAddr::V6).into_iter().chain([IpAddr::V4(self.ipv4)]).collect()
    }
}

/// A port of the node that leads to a port of an allocation, for TCP and UDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// The address of the node; absent means all addresses of the node.
    pub address: Option<IpAddr>,
    /// The port of the node.
    pub port: u16,
    /// The port of the allocation.
    pub to: u16,
}

/// The network of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The id of the allocation.
    pub alloc: AllocId,
    /// The path at which the network namespace of the allocation is held.
    pub namespace: PathBuf,
    /// The addresses of the allocation.
    pub addresses: Addresses,
    /// The ports of the node that lead to the allocation.
    pub forwards: Vec<Forward>,
}

impl Attachment {
    /// The name of the interface within the namespace.
    pub const INTERFACE: &'static str = "eth0";

    /// Returns the name of the interface on the host.
    pub(crate) fn interface(&self) -> String {
        interface_of(&self.alloc)
    }

    /// Returns the hardware address within the namespace. The hardware address follows from the IPv4 address, so that
    /// caches of other allocations stay right when the IPv4 address is used again.
    pub(crate) fn mac(&self) -> Mac {
        let [a, b, c, d] = self.addresses.ipv4.octets();
        [0x02, 0xca, a, b, c, d]
    }
}

/// Returns the name of an allocation's interface on the host. The name has at most 15 bytes, so that it is a digest.
pub(crate) fn interface_of(alloc: &AllocId) -> String {
    format!("cv{:013x}", crate::digest(alloc.as_str()) >> 12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_sys::netlink::link::is_name;

    #[test]
    fn each_allocation_has_its_interface() {
        let name = interface_of(&"6f8f9d9a-3f0c-4d34-9a37-0a1b2c3d4e5f".into());
        assert!(is_name(&name), "{name}");
        assert_ne!(name, interface_of(&"6f8f9d9a-3f0c-4d34-9a37-0a1b2c3d4e50".into()));
    }
}
