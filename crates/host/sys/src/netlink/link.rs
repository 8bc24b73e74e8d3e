//! Interfaces, their addresses and routes (rtnetlink(7)).

use super::message::{Attributes, Message, Received, flag};
use super::{Connection, failed};
use crate::Result;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_MODE: u16 = 4;
const VETH_INFO_PEER: u16 = 1;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;
/// The flag of an address that is used immediately, without a search for another user of it (RFC 4862, section 5.4).
const IFA_F_NODAD: u32 = 2;
/// The scope of addresses that are valid on one link only.
const SCOPE_LINK: u8 = 253;

const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;

const AF_INET: u8 = 2;
const AF_BRIDGE: u8 = 7;
const AF_INET6: u8 = 10;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;

/// The sizes of `struct ifinfomsg`, `struct ifaddrmsg` and `struct rtmsg`.
const INFO: usize = 16;
const ADDRESS_INFO: usize = 8;
const ROUTE_INFO: usize = 12;

/// Longest name of an interface in bytes (`IFNAMSIZ` without the zero byte).
pub const MAX_NAME: usize = 15;

/// The hardware address of an Ethernet interface.
pub type Mac = [u8; 6];

/// Returns whether the kernel accepts a text as the name of an interface.
pub fn is_name(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    (1..=MAX_NAME).contains(&text.len()) && text != "." && text != ".." && text.bytes().all(valid)
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The number of the interface in its namespace.
    pub index: u32,
    /// The name of the interface.
    pub name: String,
    /// The kind of the interface (`bridge`, `veth`); empty for hardware and the loopback interface.
    pub kind: String,
    /// The text that the creator of the interface attached (`ip link set alias`).
    pub alias: String,
    /// The hardware address.
    pub mac: Mac,
    /// The largest packet in bytes.
    pub mtu: u32,
    /// Whether the interface is up.
    pub is_up: bool,
    /// Whether the interface is a loopback interface.
    pub is_loopback: bool,
    /// The index of the bridge of which the interface is a port.
    pub master: Option<u32>,
    /// Whether the bridge sends packets back through this port.
    pub hairpin: bool,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The index of the interface.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// The length of the network's prefix in bits.
    pub prefix: u8,
    /// Whether the address is valid on this link only.
    pub is_link_local: bool,
}

/// A default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// The index of the interface.
    pub index: u32,
    /// The metric; the kernel uses the route with the lowest one.
    pub metric: u32,
    /// Whether the route is for IPv6.
    pub is_ipv6: bool,
}

/// A request for a pair of connected interfaces.
#[derive(Debug)]
pub struct Pair<'a, N> {
    /// The name of the end in this namespace.
    pub name: &'a str,
    /// The index of the bridge of which this end becomes a port.
    pub bridge: u32,
    /// The largest packet in bytes, of both ends.
    pub mtu: u32,
    /// The name of the other end.
    pub peer: &'a str,
    /// The hardware address of the other end.
    pub peer_mac: Mac,
    /// The namespace of the other end.
    pub namespace: N,
}

/// A connection about the interfaces of the namespace in which it was opened, also from other namespaces.
#[derive(Debug)]
pub struct Links(Connection);

impl Links {
    /// Opens a connection in the namespace of the calling thread.
    ///
    /// # Errors
    /// If the socket cannot be opened.
    pub fn open() -> Result<Self> {
        // Without a protocol, the socket is for NETLINK_ROUTE.
        Connection::open(None).map(Self)
    }

    /// Returns all interfaces.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn list(&mut self) -> Result<Vec<Link>> {
        let message = Message::new(RTM_GETLINK, 0, &[0; INFO]);
        self.0.dump(&message, read_link).map_err(failed("list", "the interfaces"))
    }

    /// Creates a bridge and sets it up.
    ///
    /// # Errors
    /// If the kernel refuses; an interface with the name exists (`EEXIST`).
    pub fn add_bridge(&mut self, name: &str, mac: Mac, mtu: u32) -> Result<()> {
        let mut message =
            Message::new(RTM_NEWLINK, flag::CREATE | flag::EXCL, &link_info(0, 0, IFF_UP, IFF_UP));
        message.text(IFLA_IFNAME, name).put(IFLA_ADDRESS, &mac).number(IFLA_MTU, mtu);
        message.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "bridge");
        });
        self.0.request(message).map_err(failed("create", format!("bridge {name}")))
    }

    /// Creates a pair of interfaces. This end is a port of a bridge, and up; the other end is in its namespace, and
    /// down.
    ///
    /// # Errors
    /// If the kernel refuses: a name exists (`EEXIST`), the bridge has no free port (`EXFULL`).
    pub fn add_pair(&mut self, pair: &Pair<'_, impl AsFd>) -> Result<()> {
        let descriptor = u32::try_from(pair.namespace.as_fd().as_raw_fd()).unwrap_or_default();
        let mut message =
            Message::new(RTM_NEWLINK, flag::CREATE | flag::EXCL, &link_info(0, 0, IFF_UP, IFF_UP));
        message.text(IFLA_IFNAME, pair.name).number(IFLA_MTU, pair.mtu).number(IFLA_MASTER, pair.bridge);
        message.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |data| {
                data.nest_after(VETH_INFO_PEER, &link_info(0, 0, 0, 0), |peer| {
                    peer.text(IFLA_IFNAME, pair.peer)
                        .put(IFLA_ADDRESS, &pair.peer_mac)
                        .number(IFLA_MTU, pair.mtu)
                        .number(IFLA_NET_NS_FD, descriptor);
                });
            });
        });
        self.0.request(message).map_err(failed("create", format!("interface {}", pair.name)))
    }

    /// Creates a pair of interfaces in this namespace that is connected with nothing else, for tests and probes.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_loose_pair(&mut self, name: &str, peer: &str) -> Result<()> {
        let mut message =
            Message::new(RTM_NEWLINK, flag::CREATE | flag::EXCL, &link_info(0, 0, IFF_UP, IFF_UP));
        message.text(IFLA_IFNAME, name).nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |data| {
                data.nest_after(VETH_INFO_PEER, &link_info(0, 0, 0, 0), |other| {
                    other.text(IFLA_IFNAME, peer);
                });
            });
        });
        self.0.request(message).map_err(failed("create", format!("interface {name}")))
    }

    /// Deletes an interface.
    ///
    /// # Errors
    /// If the kernel refuses; without the interface `ENODEV`.
    pub fn delete(&mut self, name: &str) -> Result<()> {
        let mut message = Message::new(RTM_DELLINK, 0, &[0; INFO]);
        message.text(IFLA_IFNAME, name);
        self.0.request(message).map_err(failed("delete", format!("interface {name}")))
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_up(&mut self, link: &Link) -> Result<()> {
        let message = Message::new(RTM_NEWLINK, 0, &link_info(0, link.index, IFF_UP, IFF_UP));
        self.0.request(message).map_err(failed("set up", format!("interface {}", link.name)))
    }

    /// Attaches a text to an interface.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_alias(&mut self, name: &str, alias: &str) -> Result<()> {
        let mut message = Message::new(RTM_SETLINK, 0, &[0; INFO]);
        message.text(IFLA_IFNAME, name).put(IFLA_IFALIAS, alias.as_bytes());
        self.0.request(message).map_err(failed("name", format!("interface {name}")))
    }

    /// Makes an interface a port of a bridge.
    ///
    /// # Errors
    /// If the kernel refuses; the bridge has no free port (`EXFULL`).
    pub fn set_bridge(&mut self, link: &Link, bridge: u32) -> Result<()> {
        let mut message = Message::new(RTM_SETLINK, 0, &link_info(0, link.index, 0, 0));
        message.number(IFLA_MASTER, bridge);
        self.0.request(message).map_err(failed("connect to its bridge", format!("interface {}", link.name)))
    }

    /// Sets whether a bridge sends packets back through the port on which they came.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_hairpin(&mut self, link: &Link, hairpin: bool) -> Result<()> {
        let mut message = Message::new(RTM_SETLINK, 0, &link_info(AF_BRIDGE, link.index, 0, 0));
        message.nest(IFLA_PROTINFO, |port| {
            port.put(IFLA_BRPORT_MODE, &[u8::from(hairpin)]);
        });
        self.0.request(message).map_err(failed("set the hairpin mode of", format!("interface {}", link.name)))
    }

    /// Returns all addresses.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn addresses(&mut self) -> Result<Vec<Address>> {
        let message = Message::new(RTM_GETADDR, 0, &[0; ADDRESS_INFO]);
        self.0.dump(&message, read_address).map_err(failed("list", "the addresses"))
    }

    /// Adds an address. The kernel refuses an address that exists (`EEXIST`).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_address(&mut self, link: &Link, ip: IpAddr, prefix: u8) -> Result<()> {
        let message = address_message(RTM_NEWADDR, flag::CREATE | flag::EXCL, link.index, ip, prefix);
        self.0.request(message).map_err(failed("add", format!("address {ip}/{prefix} to {}", link.name)))
    }

    /// Removes an address.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_address(&mut self, link: &Link, ip: IpAddr, prefix: u8) -> Result<()> {
        let message = address_message(RTM_DELADDR, 0, link.index, ip, prefix);
        self.0.request(message).map_err(failed("remove", format!("address {ip}/{prefix} of {}", link.name)))
    }

    /// Adds the default route over a gateway, or replaces it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_default_route(&mut self, link: &Link, gateway: IpAddr) -> Result<()> {
        let fixed = [family(gateway), 0, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_UNICAST, 0, 0, 0, 0];
        let mut message = Message::new(RTM_NEWROUTE, flag::CREATE | flag::REPLACE, &fixed);
        message.put(RTA_GATEWAY, &octets(gateway)).number(RTA_OIF, link.index);
        self.0.request(message).map_err(failed("add", format!("the default route over {gateway}")))
    }

    /// Returns the default routes of the main table.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn default_routes(&mut self) -> Result<Vec<DefaultRoute>> {
        let message = Message::new(RTM_GETROUTE, 0, &[0; ROUTE_INFO]);
        self.0.dump(&message, read_default_route).map_err(failed("list", "the routes"))
    }
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(Into::into)
}

fn link_info(family: u8, index: u32, flags: u32, change: u32) -> [u8; INFO] {
    let mut fixed = [0; INFO];
    fixed[0] = family;
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..].copy_from_slice(&change.to_ne_bytes());
    fixed
}

fn address_message(kind: u16, flags: u16, index: u32, ip: IpAddr, prefix: u8) -> Message {
    let mut fixed = [family(ip), prefix, 0, 0, 0, 0, 0, 0];
    fixed[4..].copy_from_slice(&index.to_ne_bytes());
    let mut message = Message::new(kind, flags, &fixed);
    message.put(IFA_LOCAL, &octets(ip)).put(IFA_ADDRESS, &octets(ip));
    match ip {
        IpAddr::V4(four) if prefix < 31 => {
            let broadcast = four.to_bits() | u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            message.put(IFA_BROADCAST, &broadcast.to_be_bytes());
        }
        IpAddr::V4(_) => {}
        IpAddr::V6(_) => {
            message.number(IFA_FLAGS, IFA_F_NODAD);
        }
    }
    message
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_link(message: &Received<'_>) -> Option<Link> {
    let flags = word(message.body, 8)?;
    let attributes = message.attributes(INFO);
    let info = attributes.within(IFLA_LINKINFO);
    let hairpin = info.within(IFLA_INFO_SLAVE_DATA).find(IFLA_BRPORT_MODE);
    Some(Link {
        index: word(message.body, 4)?,
        name: attributes.text(IFLA_IFNAME)?,
        kind: info.text(IFLA_INFO_KIND).unwrap_or_default(),
        alias: attributes.text(IFLA_IFALIAS).unwrap_or_default(),
        mac: attributes.find(IFLA_ADDRESS).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default(),
        mtu: attributes.number(IFLA_MTU).unwrap_or_default(),
        is_up: flags & IFF_UP != 0,
        is_loopback: flags & IFF_LOOPBACK != 0,
        master: attributes.number(IFLA_MASTER),
        hairpin: hairpin.is_some_and(|mode| mode.first().is_some_and(|byte| *byte != 0)),
    })
}

fn read_address(message: &Received<'_>) -> Option<Address> {
    let attributes = message.attributes(ADDRESS_INFO);
    // The local address of a connection between two points; elsewhere both are the same.
    let bytes = attributes.find(IFA_LOCAL).or_else(|| attributes.find(IFA_ADDRESS))?;
    Some(Address {
        index: word(message.body, 4)?,
        ip: ip_of(bytes)?,
        prefix: *message.body.get(1)?,
        is_link_local: *message.body.get(3)? == SCOPE_LINK,
    })
}

fn read_default_route(message: &Received<'_>) -> Option<DefaultRoute> {
    let [family, length, _, _, table, _, _, kind, ..] = *message.body else { return None };
    let attributes: Attributes<'_> = message.attributes(ROUTE_INFO);
    let is_default = length == 0 && table == RT_TABLE_MAIN && kind == RTN_UNICAST;
    Some(DefaultRoute {
        index: attributes.number(RTA_OIF).filter(|_| is_default)?,
        metric: attributes.number(RTA_PRIORITY).unwrap_or(0),
        is_ipv6: family == AF_INET6,
    })
}

#[cfg(test)]
mod tests;
