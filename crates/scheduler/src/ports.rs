//! Ports of a group on a node (`jobspec` section 4.5).

use crate::rng::Rng;
use caravan_types::alloc::{AllocatedPort, Allocation};
use caravan_types::job::{Network, Port, TaskGroup};
use caravan_types::node::Node;
use std::collections::BTreeSet;

/// Ports in use on a node: address and number.
pub type Used = BTreeSet<(String, u16)>;

/// The range from which numbers are picked when a node names none.
const DEFAULT_RANGE: (u16, u16) = (20_000, 32_000);

/// Why ports cannot be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortError {
    /// The node never has it: a reason to filter the node.
    Missing(String),
    /// Taken now: a dimension that is exhausted.
    Exhausted(String),
}

/// The networks and ports of a group on a node, as given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// The group's networks with numbers and address filled in.
    pub networks: Vec<Network>,
    /// The ports by label.
    pub ports: Vec<AllocatedPort>,
}

/// Whether the group's network modes are ones that we can make.
pub fn supported(group: &TaskGroup) -> bool {
    group.networks.iter().all(|n| matches!(n.mode.as_str(), "" | "host"))
}

/// The address of a host network on a node, and the interface that has it.
fn address(node: &Node, host_network: &str) -> Option<(String, String)> {
    let alias = if host_network.is_empty() { "default" } else { host_network };
    let named = node.node_resources.node_networks.iter().find_map(|network| {
        let found = network.addresses.iter().find(|a| a.alias == alias && !a.address.is_empty())?;
        Some((found.address.clone(), network.device.clone()))
    });
    if named.is_some() || alias != "default" {
        return named;
    }
    let legacy = node.node_resources.networks.iter().find(|n| !n.ip.is_empty());
    if let Some(network) = legacy {
        return Some((network.ip.clone(), network.device.clone()));
    }
    // A machine without any network still has ports.
    let attribute = node.attributes.get("unique.network.ip-address").filter(|ip| !ip.is_empty());
    Some((attribute.cloned().unwrap_or_else(|| "127.0.0.1".to_owned()), String::new()))
}

/// The port numbers of a list like `22,80,8500-8600`; what cannot be read is left out.
pub fn parse_ranges(text: &str) -> BTreeSet<u16> {
    text.split(',')
        .filter_map(|part| {
            let part = part.trim();
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some((first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?))
        })
        .flat_map(|(first, last)| first..=last)
        .collect()
}

/// The ports of a node that the node itself keeps.
pub fn kept(node: &Node) -> Used {
    let everywhere = parse_ranges(&node.reserved_resources.networks.reserved_host_ports);
    let mut used = Used::new();
    let addresses = node.node_resources.node_networks.iter().flat_map(|n| &n.addresses);
    for address in addresses {
        let own = parse_ranges(&address.reserved_ports);
        used.extend(own.iter().chain(&everywhere).map(|port| (address.address.clone(), *port)));
    }
    for host in node.host_networks.values() {
        let alias = address(node, &host.name);
        if let Some((ip, _)) = alias {
            used.extend(parse_ranges(&host.reserved_ports).into_iter().map(|port| (ip.clone(), port)));
        }
    }
    if let Some((ip, _)) = address(node, "") {
        used.extend(everywhere.into_iter().map(|port| (ip.clone(), port)));
    }
    used
}

/// The ports that an allocation has on its node.
pub fn of_alloc(alloc: &Allocation) -> impl Iterator<Item = (String, u16)> + '_ {
    alloc
        .allocated_resources
        .iter()
        .flat_map(|r| &r.shared.ports)
        .filter(|p| !p.ignore_collision)
        .filter_map(|p| Some((p.host_ip.clone(), u16::try_from(p.value).ok()?)))
}

/// Gives a group its ports on a node, or says why not. Nothing is recorded.
pub fn offer(node: &Node, used: &Used, group: &TaskGroup, rng: &mut Rng) -> Result<Offer, PortError> {
    let mut given = Offer::default();
    let mut taken = Used::new();
    for wanted in &group.networks {
        let mut network = wanted.clone();
        if let Some((ip, device)) = address(node, "") {
            network.ip = ip;
            network.device = device;
        }
        for port in &mut network.reserved_ports {
            let ip = port_address(node, port)?;
            let number = u16::try_from(port.value).map_err(|_| collision(port))?;
            let key = (ip.clone(), number);
            if !port.ignore_collision && (used.contains(&key) || !taken.insert(key)) {
                return Err(collision(port));
            }
            given.ports.push(allocated(port, ip));
        }
        for port in &mut network.dynamic_ports {
            let ip = port_address(node, port)?;
            let number = pick(node, &ip, used, &taken, rng)?;
            taken.insert((ip.clone(), number));
            port.value = i64::from(number);
            given.ports.push(allocated(port, ip));
        }
        given.networks.push(network);
    }
    Ok(given)
}

fn port_address(node: &Node, port: &Port) -> Result<String, PortError> {
    address(node, &port.host_network).map(|(ip, _)| ip).ok_or_else(|| {
        let reason = format!("missing host network {:?} for port {:?}", port.host_network, port.label);
        PortError::Missing(reason)
    })
}

fn collision(port: &Port) -> PortError {
    PortError::Exhausted(format!("network: reserved port collision {}={}", port.label, port.value))
}

fn allocated(port: &Port, host_ip: String) -> AllocatedPort {
    AllocatedPort {
        label: port.label.clone(),
        value: port.value,
        to: if port.to == -1 { port.value } else { port.to },
        host_ip,
        ignore_collision: port.ignore_collision,
    }
}

/// The first free number from a random place of the range on.
fn pick(node: &Node, ip: &str, used: &Used, taken: &Used, rng: &mut Rng) -> Result<u16, PortError> {
    let bound = |value: i64, otherwise: u16| match u16::try_from(value) {
        Ok(0) | Err(_) => otherwise,
        Ok(value) => value,
    };
    let first = bound(node.node_resources.min_dynamic_port, DEFAULT_RANGE.0);
    let last = bound(node.node_resources.max_dynamic_port, DEFAULT_RANGE.1);
    let free = |number: &u16| {
        let key = (ip.to_owned(), *number);
        !used.contains(&key) && !taken.contains(&key)
    };
    let span = usize::from(last.saturating_sub(first)) + 1;
    let start = first.saturating_add(u16::try_from(rng.below(span)).unwrap_or(0));
    (start..=last)
        .chain(first..start)
        .find(free)
        .ok_or_else(|| PortError::Exhausted("network: dynamic port selection failed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(fixed: &[i64], dynamic: usize) -> TaskGroup {
        let port = |n: usize, value| Port { label: format!("p{n}"), value, ..Port::default() };
        let network = Network {
            reserved_ports: fixed.iter().enumerate().map(|(n, v)| port(n, *v)).collect(),
            dynamic_ports: (0..dynamic).map(|n| port(100 + n, 0)).collect(),
            ..Network::default()
        };
        TaskGroup { networks: vec![network], ..TaskGroup::default() }
    }

    fn node() -> Node {
        let mut node = Node::default();
        node.node_resources.min_dynamic_port = 100;
        node.node_resources.max_dynamic_port = 103;
        node.attributes.insert("unique.network.ip-address".into(), "10.0.0.1".into());
        node
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_ranges("22, 80,90-92,x").into_iter().collect::<Vec<_>>(), [22, 80, 90, 91, 92]);
    }

    #[test]
    fn fixed_ports_collide_and_dynamic_ones_avoid_what_is_used() {
        let mut node = node();
        node.reserved_resources.networks.reserved_host_ports = "101".into();
        let mut used = kept(&node);
        used.insert(("10.0.0.1".into(), 100));
        let mut rng = Rng::new(1, "");
        let given = offer(&node, &used, &group(&[], 2), &mut rng).unwrap();
        let numbers: BTreeSet<i64> = given.ports.iter().map(|p| p.value).collect();
        assert_eq!(numbers, BTreeSet::from([102, 103]));
        assert_eq!(
            offer(&node, &used, &group(&[], 3), &mut rng),
            Err(PortError::Exhausted("network: dynamic port selection failed".into()))
        );
        assert_eq!(
            offer(&node, &used, &group(&[101], 0), &mut rng),
            Err(PortError::Exhausted("network: reserved port collision p0=101".into()))
        );
        assert_eq!(offer(&node, &used, &group(&[8080], 0), &mut rng).unwrap().ports[0].host_ip, "10.0.0.1");
    }

    #[test]
    fn host_networks_must_exist() {
        let mut group = group(&[80], 0);
        group.networks[0].reserved_ports[0].host_network = "storage".into();
        let error = offer(&node(), &Used::new(), &group, &mut Rng::new(1, "")).unwrap_err();
        assert_eq!(error, PortError::Missing("missing host network \"storage\" for port \"p0\"".into()));
    }
}
