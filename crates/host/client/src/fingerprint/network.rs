//! Fingerprint of the networks of the host: the interface of the default route, or the configured one, and the host
//! networks of the configuration (docs/reference/network.md, sections 1.1 and 1.4).

use super::text;
use crate::config::{AddressFamily, ClientConfig};
use caravan_templates::sockaddr::Address;
use caravan_types::job::Network;
use caravan_types::node::{HostNetwork, NodeAddress, NodeNetwork};
use ipnet::IpNet;
use nix::net::if_::InterfaceFlags;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The alias of the addresses of the main interface.
const DEFAULT: &str = "default";

/// An interface and its addresses, in the order in which jobs receive them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Interface {
    device: String,
    mac: String,
    speed: i64,
    addresses: Vec<IpAddr>,
}

/// The aliases of an address, each with its reserved ports.
type Aliases = Vec<(String, String)>;

/// The networks of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The main interface.
    main: Interface,
    /// The interfaces with a network of the host. Each address has the aliases and the reserved ports of its networks.
    offered: Vec<(Interface, Vec<Aliases>)>,
}

pub(super) fn read(config: &ClientConfig) -> Found {
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
    let mut devices: Vec<&String> = all.iter().map(|(device, _)| device).collect();
    devices.dedup();
    let main = interface(&device, &all, config.address_family);
    if main.addresses.is_empty() {
        tracing::warn!(interface = device, "the network interface has no address");
    }
    let mut offered = Vec::new();
    for name in devices.into_iter().filter(|name| **name == device).chain(others(&all, &device)) {
        if offered.iter().any(|(known, _): &(Interface, _)| known.device == *name) {
            continue;
        }
        let own = interface(name, &all, config.address_family);
        let of_address = |ip: &IpAddr| aliases(*ip, name, *name == device, &config.host_networks);
        let names: Vec<Aliases> = own.addresses.iter().map(of_address).collect();
        if names.iter().any(|names| !names.is_empty()) {
            offered.push((own, names));
        }
    }
    Found { main, offered }
}

fn others<'a>(all: &'a [(String, IpAddr)], main: &'a str) -> impl Iterator<Item = &'a String> {
    all.iter().map(|(device, _)| device).filter(move |device| *device != main)
}

fn interface(device: &str, all: &[(String, IpAddr)], preferred: AddressFamily) -> Interface {
    let mut own: Vec<IpAddr> = all.iter().filter(|(d, _)| d == device).map(|(_, ip)| *ip).collect();
    own.sort_by_key(|ip| (is_link_local(ip), ip.is_ipv6() != (preferred == AddressFamily::Ipv6)));
    let sys = |file: &str| text(format!("/sys/class/net/{device}/{file}")).trim().to_owned();
    let speed = sys("speed").parse::<i64>().ok().filter(|s| *s > 0).unwrap_or(1000);
    // The loopback interface has no address.
    let mac = Some(sys("address")).filter(|mac| mac != "00:00:00:00:00:00").unwrap_or_default();
    Interface { mac, speed, addresses: own, device: device.to_owned() }
}

/// Returns the networks of the host that an address belongs to, with the ports that each reserves.
fn aliases(
    ip: IpAddr,
    device: &str,
    is_main: bool,
    networks: &BTreeMap<String, HostNetwork>,
) -> Vec<(String, String)> {
    let within = |network: &HostNetwork| {
        let mut parts = network.cidr.split(',').filter_map(|part| part.trim().parse::<IpNet>().ok());
        network.cidr.is_empty() || parts.any(|net| net.contains(&ip))
    };
    let on = |network: &HostNetwork| network.interface.is_empty() || network.interface == device;
    let mut names: Vec<(String, String)> = networks
        .iter()
        .filter(|(_, network)| within(network) && on(network))
        .map(|(name, network)| (name.clone(), network.reserved_ports.clone()))
        .collect();
    if is_main && !names.iter().any(|(name, _)| name == DEFAULT) {
        names.push((DEFAULT.to_owned(), String::new()));
    }
    names
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

/// Returns the addresses of the machine's interfaces, for templates of the configuration.
pub fn interface_addresses() -> Vec<Address> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let default = default_route(&text("/proc/net/route"));
    let found = all.filter_map(|entry| {
        let (address, mask) = (entry.address?, entry.netmask?);
        let (ip, ones) = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => (IpAddr::V4(v4.ip()), mask.as_sockaddr_in()?.ip().to_bits().count_ones()),
            (None, Some(v6)) => (IpAddr::V6(v6.ip()), mask.as_sockaddr_in6()?.ip().to_bits().count_ones()),
            (None, None) => return None,
        };
        let names = [
            (InterfaceFlags::IFF_UP, "up"),
            (InterfaceFlags::IFF_LOOPBACK, "loopback"),
            (InterfaceFlags::IFF_BROADCAST, "broadcast"),
            (InterfaceFlags::IFF_MULTICAST, "multicast"),
            (InterfaceFlags::IFF_POINTOPOINT, "point-to-point"),
        ];
        let flags = names.into_iter().filter(|(flag, _)| entry.flags.contains(*flag));
        Some(Address {
            is_default: default.as_deref() == Some(entry.interface_name.as_str()),
            flags: flags.map(|(_, name)| name.to_owned()).collect(),
            device: entry.interface_name,
            ip,
            prefix: u8::try_from(ones).ok()?,
        })
    });
    found.collect()
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

impl Found {
    /// Returns the first address of the main interface.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.main.addresses.first().copied()
    }

    pub(super) fn node_networks(&self) -> Vec<NodeNetwork> {
        let one = |(own, names): &(Interface, Vec<Vec<(String, String)>>)| NodeNetwork {
            mode: "host".to_owned(),
            device: own.device.clone(),
            mac_address: own.mac.clone(),
            speed: own.speed,
            addresses: own
                .addresses
                .iter()
                .zip(names)
                .flat_map(|(ip, names)| {
                    names.iter().map(move |(alias, reserved)| node_address(ip, alias, reserved))
                })
                .collect(),
            ..NodeNetwork::default()
        };
        self.offered.iter().map(one).collect()
    }

    pub(super) fn networks(&self) -> Vec<Network> {
        let one = |ip: &IpAddr| Network {
            mode: "host".to_owned(),
            device: self.main.device.clone(),
            cidr: format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }),
            ip: ip.to_string(),
            mbits: self.main.speed,
            ..Default::default()
        };
        self.main.addresses.iter().map(one).collect()
    }
}

fn node_address(ip: &IpAddr, alias: &str, reserved: &str) -> NodeAddress {
    NodeAddress {
        family: if ip.is_ipv4() { "ipv4" } else { "ipv6" }.to_owned(),
        alias: alias.to_owned(),
        address: ip.to_string(),
        reserved_ports: reserved.to_owned(),
        ..Default::default()
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
        assert!(found.main.addresses.iter().any(IpAddr::is_loopback));
        assert_eq!(found.address(), Some("127.0.0.1".parse().unwrap()));
        assert_eq!(found.networks()[0].cidr, "127.0.0.1/32");
    }

    #[test]
    fn an_address_has_the_names_of_all_its_networks() {
        let network = |cidr: &str, interface: &str| HostNetwork {
            cidr: cidr.into(),
            interface: interface.into(),
            reserved_ports: "22".into(),
            ..HostNetwork::default()
        };
        let networks = BTreeMap::from([
            ("all".to_owned(), network("", "")),
            ("lan".to_owned(), network("10.0.0.0/8, fd00::/8", "")),
            ("wire".to_owned(), network("10.0.0.0/8", "eth1")),
        ]);
        let names = |ip: &str, device: &str, is_main| {
            let found = aliases(ip.parse().unwrap(), device, is_main, &networks);
            found.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names("10.1.1.1", "eth0", true), "all lan default");
        assert_eq!(names("10.1.1.1", "eth1", false), "all lan wire");
        assert_eq!(names("192.0.2.1", "eth1", false), "all");
        assert_eq!(names("fd00::1", "eth1", false), "all lan");
        let own = BTreeMap::from([(DEFAULT.to_owned(), network("10.0.0.0/8", ""))]);
        let found = aliases("10.1.1.1".parse().unwrap(), "eth0", true, &own);
        assert_eq!(found, [(DEFAULT.to_owned(), "22".to_owned())], "once, with its ports");
    }

    #[test]
    fn the_preferred_family_comes_first() {
        let all: Vec<(String, IpAddr)> =
            ["fe80::1", "fd00::1", "10.0.0.1"].map(|ip| ("none9".to_owned(), ip.parse().unwrap())).to_vec();
        let order = |family| {
            let own = interface("none9", &all, family).addresses;
            own.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(AddressFamily::Ipv4), "10.0.0.1 fd00::1 fe80::1");
        assert_eq!(order(AddressFamily::Ipv6), "fd00::1 10.0.0.1 fe80::1");
    }

    proptest! {
        #[test]
        fn any_table_parses(table in ".*") {
            let _ = default_route(&table);
        }
    }
}
