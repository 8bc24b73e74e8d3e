//! Fingerprint of the network: the interface of the default route, or the configured one.

use super::text;
use crate::config::ClientConfig;
use caravan_types::job::Network;
use caravan_types::node::{NodeAddress, NodeNetwork};
use std::net::IpAddr;

/// An interface and its addresses, IPv4 first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    device: String,
    mac: String,
    speed: i64,
    pub(super) addresses: Vec<IpAddr>,
}

pub(super) fn read(config: &ClientConfig) -> Interface {
    let all = addresses();
    let has = |device: &str| all.iter().any(|(d, _)| d == device);
    let by_route = || default_route(&text("/proc/net/route")).filter(|d| has(d));
    let any = || all.iter().find(|(_, ip)| !ip.is_loopback()).map(|(d, _)| d.clone());
    let device = match &config.network_interface {
        Some(name) => name.clone(),
        // Services of a development agent stay on this machine.
        None if config.dev => "lo".to_owned(),
        None => by_route().or_else(any).unwrap_or_else(|| "lo".to_owned()),
    };
    let mut own: Vec<IpAddr> = all.into_iter().filter(|(d, _)| *d == device).map(|(_, ip)| ip).collect();
    own.sort_by_key(|ip| (ip.is_ipv6(), is_link_local(ip)));
    if own.is_empty() {
        tracing::warn!(interface = device, "the network interface has no address");
    }
    let sys = |file: &str| text(format!("/sys/class/net/{device}/{file}")).trim().to_owned();
    let speed = sys("speed").parse::<i64>().ok().filter(|s| *s > 0).unwrap_or(1000);
    Interface { mac: sys("address"), speed, addresses: own, device }
}

fn addresses() -> Vec<(String, IpAddr)> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    all.filter_map(|entry| {
        let address = entry.address?;
        let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (None, Some(v6)) => IpAddr::V6(v6.ip()),
            (None, None) => return None,
        };
        Some((entry.interface_name, ip))
    })
    .collect()
}

/// Returns the machine's addresses, each with the prefix length of its network in bits.
pub fn host_addresses() -> Vec<(IpAddr, u8)> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    all.filter_map(|entry| {
        let (address, mask) = (entry.address?, entry.netmask?);
        Some(match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => {
                let ones = mask.as_sockaddr_in()?.ip().to_bits().count_ones();
                (IpAddr::V4(v4.ip()), u8::try_from(ones).ok()?)
            }
            (None, Some(v6)) => {
                let ones = mask.as_sockaddr_in6()?.ip().to_bits().count_ones();
                (IpAddr::V6(v6.ip()), u8::try_from(ones).ok()?)
            }
            (None, None) => return None,
        })
    })
    .collect()
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Returns the interface of the default route with the lowest metric, from `/proc/net/route`.
fn default_route(table: &str) -> Option<String> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [device, destination, _, _, _, _, metric, mask, ..] = fields.as_slice() else { return None };
        let all_zero = |hex: &str| !hex.is_empty() && hex.bytes().all(|b| b == b'0');
        (all_zero(destination) && all_zero(mask))
            .then(|| (metric.parse::<u32>().unwrap_or(u32::MAX), (*device).to_owned()))
    });
    routes.min().map(|(_, device)| device)
}

impl Interface {
    pub(super) fn node_networks(&self) -> Vec<NodeNetwork> {
        let address = |ip: &IpAddr| NodeAddress {
            family: if ip.is_ipv4() { "ipv4" } else { "ipv6" }.to_owned(),
            alias: "default".to_owned(),
            address: ip.to_string(),
            ..Default::default()
        };
        vec![NodeNetwork {
            mode: "host".to_owned(),
            device: self.device.clone(),
            mac_address: self.mac.clone(),
            speed: self.speed,
            addresses: self.addresses.iter().map(address).collect(),
        }]
    }

    pub(super) fn networks(&self) -> Vec<Network> {
        let one = |ip: &IpAddr| Network {
            mode: "host".to_owned(),
            device: self.device.clone(),
            cidr: format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }),
            ip: ip.to_string(),
            mbits: self.speed,
            ..Default::default()
        };
        self.addresses.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_cheapest_default_route_wins() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth1\t00000000\t0102A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n\
            eth0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            eth0\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(default_route(table).as_deref(), Some("eth0"));
        assert_eq!(default_route("Iface\n"), None);
    }

    #[test]
    fn loopback_has_an_address() {
        let mut config = ClientConfig::new("/nonexistent", "n");
        config.dev = true;
        let found = read(&config);
        assert!(found.addresses.iter().any(IpAddr::is_loopback));
        assert_eq!(found.networks()[0].cidr, "127.0.0.1/32");
    }

    proptest! {
        #[test]
        fn any_table_parses(table in ".*") {
            let _ = default_route(&table);
        }
    }
}
