//! The differences between the desired and the actual state of a bridge. Pure.

use crate::attachment::{Attachment, interface_of};
use crate::config::BridgeConfig;
use crate::desired::{MAPS, Passage, base_rules, elements, passage_note};
use crate::fault::Fault;
use crate::foreign::Foreign;
use caravan_sys::netlink::link::{Address, Link};
use caravan_sys::netlink::nft::{Element, Rule};
use caravan_types::AllocId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A difference from the desired state, with the data that its removal needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A setting of the kernel differs: its path below `/proc/sys/net`.
    Setting(String),
    /// The bridge does not exist.
    Bridge,
    /// The bridge has no mark of this node.
    Unmarked,
    /// The bridge is down.
    Down,
    /// The bridge lacks an address.
    Gateway(IpAddr, u8),
    /// The bridge has an address of an earlier configuration.
    OldAddress(IpAddr, u8),
    /// The interface of an allocation does not exist.
    Interface(AllocId),
    /// The interface of an allocation is down or no port of the bridge.
    Detached(AllocId),
    /// An interface belongs to no allocation of this node.
    LeftInterface(String),
    /// The table of packet rules does not exist, or differs.
    Table,
    /// Port maps do not exist; their map is an index of [`MAPS`].
    Ports(usize, Vec<Element>),
    /// Port maps belong to no allocation of this node.
    LeftPorts(usize, Vec<Element>),
    /// The rules in a firewall of the host differ: its position in [`Actual::firewalls`].
    Passage(usize),
}

/// The actual state of the kernel, limited to the parts that a bridge uses.
#[derive(Clone, Debug, Default)]
pub struct Actual {
    /// All interfaces.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// The rules of the bridge's table.
    pub rules: Vec<Rule>,
    /// The elements of each of [`MAPS`].
    pub elements: [Vec<Element>; MAPS.len()],
    /// The firewalls of the host: the rules that each needs, and the rules of its table.
    pub firewalls: Vec<(Passage, Vec<Rule>)>,
    /// The firewalls of the host that may drop packets of the bridge, and that the client does not change.
    pub foreign: Vec<Foreign>,
    /// Settings of the kernel that differ from the desired ones, below `/proc/sys/net`.
    pub settings: Vec<String>,
}

impl Actual {
    /// Returns the interface with a name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }
}

/// Returns the prefix of the mark of an allocation's interface.
fn interface_mark(config: &BridgeConfig) -> String {
    format!("{}:", config.mark())
}

/// Returns the mark of an allocation's interface.
pub(crate) fn mark_of(config: &BridgeConfig, alloc: &AllocId) -> String {
    format!("{}{alloc}", interface_mark(config))
}

/// Returns whether an interface has the name of an allocation's interface.
fn is_ours_by_name(link: &Link) -> bool {
    let digits = link.name.strip_prefix("cv").unwrap_or_default();
    link.kind == "veth" && digits.len() == 13 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Checks that the bridge, if it exists, belongs to this node, or has no user.
///
/// # Errors
/// If another program uses the name, or an address in the network.
pub fn check_owner(
    config: &BridgeConfig,
    actual: &Actual,
    attachments: &BTreeMap<AllocId, Attachment>,
) -> Result<(), Fault> {
    let bridge = actual.link(&config.name);
    if let Some(link) = bridge {
        if link.kind != "bridge" {
            return Err(Fault::NoBridge { name: config.name.clone() });
        }
        let own: BTreeSet<String> = attachments.keys().map(interface_of).collect();
        let is_foreign = |port: &&Link| {
            port.master == Some(link.index)
                && !own.contains(&port.name)
                && !port.alias.starts_with(&interface_mark(config))
        };
        // A port of a marked bridge without a mark is from an interrupted set-up of this node.
        if link.alias != config.mark() && actual.links.iter().any(|port| is_foreign(&port)) {
            return Err(Fault::ForeignBridge { name: config.name.clone() });
        }
    }
    let overlaps = |address: &&Address| {
        let within = match address.ip {
            IpAddr::V4(ip) => config.ipv4.contains(&ip),
            IpAddr::V6(ip) => config.ipv6.is_some_and(|net| net.contains(&ip)),
        };
        within && bridge.is_none_or(|link| link.index != address.index)
    };
    match actual.addresses.iter().find(overlaps) {
        None => Ok(()),
        Some(address) => Err(Fault::Overlap {
            address: address.ip,
            prefix: address.prefix,
            interface: actual
                .links
                .iter()
                .find(|link| link.index == address.index)
                .map_or_else(String::new, |link| link.name.clone()),
        }),
    }
}

/// Returns the differences, in the order in which they are removed. Without an allocation, only remains count: the
/// first allocation creates the bridge.
pub fn differences(
    config: &BridgeConfig,
    actual: &Actual,
    attachments: &BTreeMap<AllocId, Attachment>,
    needs_bridge: bool,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let bridge = actual.link(&config.name);
    if needs_bridge {
        found.extend(actual.settings.iter().cloned().map(Finding::Setting));
        match bridge {
            None => found.push(Finding::Bridge),
            Some(link) => found.extend(of_bridge(config, actual, link)),
        }
    }
    found.extend(of_interfaces(config, actual, attachments));
    found.extend(of_rules(config, actual, attachments, needs_bridge));
    if needs_bridge {
        for (at, (passage, rules)) in actual.firewalls.iter().enumerate() {
            let own = rules.iter().filter(|rule| rule.note.starts_with(&passage_note(config)));
            let own: Vec<(&str, &str)> = own.map(|rule| (rule.chain.as_str(), rule.note.as_str())).collect();
            let desired: Vec<(&str, &str)> =
                passage.rules.iter().map(|(_, note)| (passage.chain, note.as_str())).collect();
            if own != desired {
                found.push(Finding::Passage(at));
            }
        }
    }
    found
}

fn of_bridge(config: &BridgeConfig, actual: &Actual, bridge: &Link) -> Vec<Finding> {
    let mut found = Vec::new();
    if bridge.alias != config.mark() {
        found.push(Finding::Unmarked);
    }
    if !bridge.is_up {
        found.push(Finding::Down);
    }
    let gateways = config.gateways();
    let own: Vec<&Address> =
        actual.addresses.iter().filter(|a| a.index == bridge.index && !a.is_link_local).collect();
    let old = own.iter().filter(|a| !gateways.contains(&(a.ip, a.prefix)));
    found.extend(old.map(|a| Finding::OldAddress(a.ip, a.prefix)));
    let missing =
        gateways.iter().filter(|(ip, prefix)| !own.iter().any(|a| a.ip == *ip && a.prefix == *prefix));
    found.extend(missing.map(|(ip, prefix)| Finding::Gateway(*ip, *prefix)));
    found
}

fn of_interfaces(
    config: &BridgeConfig,
    actual: &Actual,
    attachments: &BTreeMap<AllocId, Attachment>,
) -> Vec<Finding> {
    let bridge = actual.link(&config.name).map(|link| link.index);
    let links: BTreeMap<&str, &Link> = actual.links.iter().map(|link| (link.name.as_str(), link)).collect();
    let mut found = Vec::new();
    let mut own = BTreeSet::new();
    for attachment in attachments.values() {
        let name = attachment.interface();
        match links.get(name.as_str()) {
            None => found.push(Finding::Interface(attachment.alloc.clone())),
            Some(link) if !link.is_up || link.master.is_none() || link.master != bridge => {
                found.push(Finding::Detached(attachment.alloc.clone()));
            }
            Some(_) => {}
        }
        own.insert(name);
    }
    let left = actual.links.iter().filter(|link| {
        let marked = link.alias.starts_with(&interface_mark(config));
        let unmarked =
            link.alias.is_empty() && is_ours_by_name(link) && link.master.is_some() && link.master == bridge;
        (marked || unmarked) && !own.contains(&link.name)
    });
    found.extend(left.map(|link| Finding::LeftInterface(link.name.clone())));
    found
}

fn of_rules(
    config: &BridgeConfig,
    actual: &Actual,
    attachments: &BTreeMap<AllocId, Attachment>,
    needs_bridge: bool,
) -> Vec<Finding> {
    let desired = base_rules(config);
    let chains: BTreeSet<&str> = desired.iter().map(|rule| rule.chain).collect();
    let is_whole = chains.iter().all(|chain| {
        let actual = actual.rules.iter().filter(|rule| rule.chain == *chain).map(|rule| rule.note.as_str());
        actual.eq(desired.iter().filter(|rule| rule.chain == *chain).map(|rule| rule.note.as_str()))
    });
    if needs_bridge && !is_whole {
        return vec![Finding::Table];
    }
    let mut found = Vec::new();
    for (at, map) in MAPS.into_iter().enumerate() {
        let desired: BTreeSet<Element> =
            attachments.values().flat_map(|attachment| elements(attachment, map)).collect();
        let actual: BTreeSet<Element> = actual.elements[at].iter().cloned().collect();
        let left: Vec<Element> = actual.difference(&desired).cloned().collect();
        if !left.is_empty() {
            found.push(Finding::LeftPorts(at, left));
        }
        let missing: Vec<Element> = desired.difference(&actual).cloned().collect();
        if !missing.is_empty() {
            found.push(Finding::Ports(at, missing));
        }
    }
    found
}

#[cfg(test)]
mod tests;
