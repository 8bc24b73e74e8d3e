//! Tracked connections that outlive the rules by which they began.

use crate::attachment::Attachment;
use crate::config::BridgeConfig;
use crate::fault::Fault;
use caravan_sys::Error;
use caravan_sys::netlink::conntrack::{self, Tracked, UDP};
use caravan_sys::netlink::link::Links;
use caravan_sys::netlink::nft::{Element, Transport, Version};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The UDP ports whose destination changed recently. A UDP client that keeps its own port may have an earlier
/// tracked connection. The kernel continues to deliver its packets to the earlier destination. Connections of TCP end
/// by themselves.
#[derive(Debug, Default)]
pub struct Moved(Vec<Element>);

impl Moved {
    pub(crate) fn note(&mut self, elements: &[Element]) {
        self.0.extend(elements.iter().filter(|element| element.transport == Transport::Udp).cloned());
    }

    /// Adds the ports of another value.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Returns whether no port changed its destination.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the tracked connections that lead to earlier destinations. Blocks for milliseconds, and needs no lock
    /// on the bridge: each removed connection is tracked again by its next packet, under the current rules.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_connections(&self) -> Result<(), Fault> {
        if self.is_empty() {
            return Ok(());
        }
        let host = Links::open()?.addresses()?.into_iter().map(|own| own.ip).collect::<BTreeSet<_>>();
        let is_host = |ip: &IpAddr| ip.is_loopback() || host.contains(ip);
        let mut versions: Vec<Version> =
            self.0.iter().map(|element| Version::from_address(element.to.ip())).collect();
        versions.dedup();
        conntrack::remove(&versions, |tracked| self.is_stale(tracked, is_host))?;
        Ok(())
    }

    fn is_stale(&self, tracked: &Tracked, is_host: impl Fn(&IpAddr) -> bool) -> bool {
        let Tracked { original, reply } = tracked;
        if original.protocol != UDP {
            return false;
        }
        let leads = |element: &&Element| {
            element.port == original.destination_port
                && element.to.is_ipv4() == original.destination.is_ipv4()
                && element
                    .address
                    .map_or_else(|| is_host(&original.destination), |ip| ip == original.destination)
        };
        let mut current = self.0.iter().filter(leads).peekable();
        current.peek().is_some() && current.all(|element| element.to.ip() != reply.source)
    }
}

/// Removes the tracked connections of some addresses.
pub(crate) fn remove_of(addresses: &BTreeSet<IpAddr>) -> Result<(), Error> {
    let mut versions: Vec<Version> = addresses.iter().map(|ip| Version::from_address(*ip)).collect();
    versions.dedup();
    conntrack::remove(&versions, |tracked| tracked.involves(|end| addresses.contains(end))).map(drop)
}

/// Removes the tracked connections of all addresses for allocations that no network has.
pub(crate) fn remove_of_free<'a>(
    config: &BridgeConfig,
    attachments: impl Iterator<Item = &'a Attachment>,
) -> Result<(), Error> {
    let mut used: BTreeSet<IpAddr> = attachments.flat_map(|own| own.addresses.all()).collect();
    used.extend(config.gateways().into_iter().map(|(ip, _)| ip));
    let versions = [Some(Version::V4), config.ipv6.map(|_| Version::V6)];
    let versions: Vec<Version> = versions.into_iter().flatten().collect();
    let is_free = |ip: &IpAddr| config.contains(*ip) && !used.contains(ip);
    conntrack::remove(&versions, |tracked| tracked.involves(is_free)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_sys::netlink::conntrack::Way;

    fn tracked(protocol: u8, destination: &str, port: u16, answers: &str) -> Tracked {
        let (client, destination) = ("192.0.2.9".parse().unwrap(), destination.parse().unwrap());
        let way =
            |source, destination, destination_port| Way { source, destination, protocol, destination_port };
        Tracked {
            original: way(client, destination, port),
            reply: way(answers.parse().unwrap(), client, 5000),
        }
    }

    #[test]
    fn only_connections_to_the_place_before_are_stale() {
        let element = |address: Option<&str>, transport| Element {
            address: address.map(|ip| ip.parse().unwrap()),
            transport,
            port: 8001,
            to: "172.26.64.5:53".parse().unwrap(),
            note: "one".into(),
        };
        let is_host = |ip: &IpAddr| *ip == "192.0.2.1".parse::<IpAddr>().unwrap();
        for address in [None, Some("192.0.2.1")] {
            let mut moved = Moved::default();
            moved.note(&[element(address, Transport::Tcp)]);
            assert!(moved.is_empty());
            moved.note(&[element(address, Transport::Udp)]);
            let is_stale = |tracked| moved.is_stale(&tracked, is_host);
            assert!(is_stale(tracked(UDP, "192.0.2.1", 8001, "192.0.2.1")), "the host itself");
            assert!(is_stale(tracked(UDP, "192.0.2.1", 8001, "172.26.64.4")), "an allocation before");
            assert!(!is_stale(tracked(UDP, "192.0.2.1", 8001, "172.26.64.5")), "the current allocation");
            assert!(!is_stale(tracked(UDP, "192.0.2.1", 8002, "192.0.2.1")), "another port");
            assert!(
                !is_stale(tracked(UDP, "198.51.100.1", 8001, "198.51.100.1")),
                "the port of another host"
            );
            assert!(!is_stale(tracked(6, "192.0.2.1", 8001, "192.0.2.1")), "TCP");
        }
    }
}
