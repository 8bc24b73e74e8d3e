//! Ports of a group on a node (docs/reference/jobspec.md, section 4.5).

use crate::feasible::NodeTargets;
use crate::rng::Rng;
use caravan_lang::resolve;
use caravan_types::alloc::{AllocatedPort, Allocation};
use caravan_types::job::{Network, Port, TaskGroup};
use caravan_types::node::Node;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The ports in use on a node, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenPorts(BTreeMap<String, BTreeSet<u16>>);

impl TakenPorts {
    /// Returns whether a port is in use on an address.
    pub fn contains(&self, address: &str, port: u16) -> bool {
        self.0.get(address).is_some_and(|ports| ports.contains(&port))
    }

    /// Marks a port as in use. Returns `false` if it was in use already.
    pub fn insert(&mut self, address: &str, port: u16) -> bool {
        match self.0.get_mut(address) {
            Some(ports) => ports.insert(port),
            None => {
                self.0.insert(address.to_owned(), BTreeSet::from([port]));
                true
            }
        }
    }

    fn extend(&mut self, address: &str, ports: impl IntoIterator<Item = u16>) {
        self.0.entry(address.to_owned()).or_default().extend(ports);
    }
}

/// The range from which dynamic ports are picked if a node sets none.
const DEFAULT_RANGE: (u16, u16) = (20_000, 32_000);

/// The reason that a node cannot provide the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortError {
    /// The node never has the port's host network, so the node is filtered.
    Missing(String),
    /// The port is in use; the text is the exhausted dimension.
    Exhausted(String),
}

/// The networks and ports that a node provides to a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Offer {
    /// The group's networks with port numbers and address filled in.
    pub networks: Vec<Network>,
    /// All assigned ports with their labels.
    pub ports: Vec<AllocatedPort>,
}

/// Returns whether a node supports the networks of a group. The modes `host` and `none` need nothing. The node must
/// report other modes (`bridge`, `cni/<name>`).
pub(crate) fn supported(node: &Node, group: &TaskGroup) -> bool {
    group.networks.iter().map(|n| n.mode.as_str()).all(|mode| {
        matches!(mode, "" | "host" | "none")
            || node.node_resources.node_networks.iter().any(|network| network.mode == mode)
    })
}

/// Returns the error for the first port of a group whose host network the node does not have.
pub(crate) fn missing_host_network(node: &Node, group: &TaskGroup) -> Option<String> {
    let ports = group.networks.iter().flat_map(|n| n.reserved_ports.iter().chain(&n.dynamic_ports));
    ports.filter(|port| !port.host_network.is_empty()).find_map(|port| match port_address(node, port) {
        Err(PortError::Missing(reason)) => Some(reason),
        _ => None,
    })
}

/// Returns the address of a host network on a node.
fn address(node: &Node, host_network: &str) -> Option<String> {
    let alias = if host_network.is_empty() { "default" } else { host_network };
    let named = node.node_resources.node_networks.iter().find_map(|network| {
        let found = network.addresses.iter().find(|a| a.alias == alias && !a.address.is_empty())?;
        Some(found.address.clone())
    });
    if named.is_some() || alias != "default" {
        return named;
    }
    let legacy = node.node_resources.networks.iter().find(|n| !n.ip.is_empty());
    if let Some(network) = legacy {
        return Some(network.ip.clone());
    }
    // A machine without any network still has ports.
    let attribute = node.attributes.get("unique.network.ip-address").filter(|ip| !ip.is_empty());
    Some(attribute.cloned().unwrap_or_else(|| "127.0.0.1".to_owned()))
}

/// Returns the port numbers of a list such as `22,80,8500-8600`. Parts that cannot be parsed are omitted.
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

/// Returns the ports that a node reserves for itself.
pub(crate) fn kept(node: &Node) -> TakenPorts {
    let everywhere = parse_ranges(&node.reserved_resources.networks.reserved_host_ports);
    let mut used = TakenPorts::default();
    let addresses = node.node_resources.node_networks.iter().flat_map(|n| &n.addresses);
    for address in addresses {
        used.extend(&address.address, parse_ranges(&address.reserved_ports));
        used.extend(&address.address, everywhere.iter().copied());
    }
    for host in node.host_networks.values() {
        if let Some(ip) = address(node, &host.name) {
            used.extend(&ip, parse_ranges(&host.reserved_ports));
        }
    }
    if let Some(ip) = address(node, "") {
        used.extend(&ip, everywhere);
    }
    used
}

/// Returns the addresses and ports that an allocation uses on its node.
pub(crate) fn of_alloc(alloc: &Allocation) -> impl Iterator<Item = (&str, u16)> {
    alloc
        .allocated_resources
        .iter()
        .flat_map(|r| &r.shared.ports)
        .filter(|p| !p.ignore_collision)
        .filter_map(|p| Some((p.host_ip.as_str(), u16::try_from(p.value).ok()?)))
}

/// The dimension of a node whose bridge has its maximum number of allocations.
pub(crate) const FULL_BRIDGE: &str = "network: bridge is full";

/// Returns whether an allocation is connected with the bridge of its node.
pub(crate) fn uses_bridge(alloc: &Allocation) -> bool {
    let networks = alloc.allocated_resources.iter().flat_map(|resources| &resources.shared.networks);
    networks.into_iter().any(|network| network.mode == BRIDGE)
}

/// Checks that the bridge of a node has room for another allocation. The error is the exhausted dimension.
pub(crate) fn bridge_has_room(node: &Node, used: u32) -> Result<(), String> {
    let bridge = node.node_resources.node_networks.iter().find(|network| network.mode == BRIDGE);
    let is_full = bridge.is_some_and(|bridge| bridge.capacity > 0 && used >= bridge.capacity);
    if is_full { Err(FULL_BRIDGE.to_owned()) } else { Ok(()) }
}

const BRIDGE: &str = "bridge";

/// Checks that the static ports of a group are free on a node. The error is the exhausted dimension.
pub(crate) fn fixed_are_free(node: &Node, used: &TakenPorts, group: &TaskGroup) -> Result<(), String> {
    let fixed = group.networks.iter().flat_map(|n| &n.reserved_ports).filter(|p| !p.ignore_collision);
    for port in fixed {
        let Ok(ip) = port_address(node, port) else { continue };
        let free = u16::try_from(port.value).is_ok_and(|number| !used.contains(&ip, number));
        if !free {
            return Err(collision(port));
        }
    }
    Ok(())
}

/// Returns the ports that a node would assign to a group, or the reason that it cannot provide them. Nothing is
/// recorded.
pub(crate) fn offer(
    node: &Node,
    used: &TakenPorts,
    group: &TaskGroup,
    rng: &mut Rng,
) -> Result<Offer, PortError> {
    let mut supplied = Offer::default();
    let mut taken = TakenPorts::default();
    for desired in &group.networks {
        let mut network = desired.clone();
        if let Some(ip) = address(node, "") {
            network.ip = ip;
        }
        for port in &mut network.reserved_ports {
            let ip = port_address(node, port)?;
            let number = u16::try_from(port.value).map_err(|_| PortError::Exhausted(collision(port)))?;
            if !port.ignore_collision && (used.contains(&ip, number) || !taken.insert(&ip, number)) {
                return Err(PortError::Exhausted(collision(port)));
            }
            supplied.ports.push(allocated(port, ip));
        }
        for port in &mut network.dynamic_ports {
            let ip = port_address(node, port)?;
            let number = pick(node, &ip, used, &taken, rng)?;
            taken.insert(&ip, number);
            port.value = i64::from(number);
            supplied.ports.push(allocated(port, ip));
        }
        supplied.networks.push(network);
    }
    Ok(supplied)
}

fn port_address(node: &Node, port: &Port) -> Result<String, PortError> {
    // The name may refer to the node, such as `${attr.platform}` (docs/reference/jobspec.md, section 4.5).
    let targets = NodeTargets(node);
    let name = resolve(&port.host_network, &targets);
    let found = name.as_ref().and_then(|name: &Cow<'_, str>| address(node, name));
    found.ok_or_else(|| {
        let reason = format!("missing host network {:?} for port {:?}", port.host_network, port.label);
        PortError::Missing(reason)
    })
}

fn collision(port: &Port) -> String {
    format!("network: reserved port collision {}={}", port.label, port.value)
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

/// Picks the first free port from a random start in the range.
fn pick(
    node: &Node,
    ip: &str,
    used: &TakenPorts,
    taken: &TakenPorts,
    rng: &mut Rng,
) -> Result<u16, PortError> {
    let bound = |value: i64, otherwise: u16| match u16::try_from(value) {
        Ok(0) | Err(_) => otherwise,
        Ok(value) => value,
    };
    let first = bound(node.node_resources.min_dynamic_port, DEFAULT_RANGE.0);
    let last = bound(node.node_resources.max_dynamic_port, DEFAULT_RANGE.1);
    let free = |number: &u16| !used.contains(ip, *number) && !taken.contains(ip, *number);
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
    use caravan_types::node::NodeNetwork;

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
        used.insert("10.0.0.1", 100);
        let mut rng = Rng::new(1, "");
        let supplied = offer(&node, &used, &group(&[], 2), &mut rng).unwrap();
        let numbers: BTreeSet<i64> = supplied.ports.iter().map(|p| p.value).collect();
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
    fn a_full_bridge_is_an_exhausted_dimension() {
        let mut node = node();
        assert_eq!(bridge_has_room(&node, 5), Ok(()), "a node without a bridge has no limit");
        let network = |capacity| NodeNetwork { mode: "bridge".into(), capacity, ..NodeNetwork::default() };
        node.node_resources.node_networks = vec![network(2)];
        assert_eq!(bridge_has_room(&node, 1), Ok(()));
        assert_eq!(bridge_has_room(&node, 2), Err("network: bridge is full".to_owned()));
        node.node_resources.node_networks = vec![network(0)];
        assert_eq!(bridge_has_room(&node, 2), Ok(()));
    }

    #[test]
    fn host_networks_must_exist() {
        let mut group = group(&[80], 0);
        group.networks[0].reserved_ports[0].host_network = "storage".into();
        let error = offer(&node(), &TakenPorts::default(), &group, &mut Rng::new(1, "")).unwrap_err();
        assert_eq!(error, PortError::Missing("missing host network \"storage\" for port \"p0\"".into()));
    }
}
