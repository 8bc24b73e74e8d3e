//! The packet rules that a bridge and its allocations need. Pure.

use crate::attachment::Attachment;
use crate::config::BridgeConfig;
use caravan_sys::netlink::nft::{
    Chain, Clause, Direction, Element, Family, Hook, PortMap, Table, Transaction, Transport, Verdict, Version,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const PREROUTING: &str = "prerouting";
const OUTPUT: &str = "output";
const POSTROUTING: &str = "postrouting";

const IPV4: PortMap = PortMap { name: "ports4", version: Version::V4, by_address: true };
const ANY_IPV4: PortMap = PortMap { name: "any4", version: Version::V4, by_address: false };
const IPV6: PortMap = PortMap { name: "ports6", version: Version::V6, by_address: true };
const ANY_IPV6: PortMap = PortMap { name: "any6", version: Version::V6, by_address: false };
/// The maps from ports of the node to allocations.
pub const MAPS: [PortMap; 4] = [IPV4, ANY_IPV4, IPV6, ANY_IPV6];

/// A rule of the bridge's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseRule {
    /// The chain of the rule.
    pub chain: &'static str,
    /// The match conditions and the verdict of the rule.
    pub clauses: Vec<Clause>,
    /// The note, by which the rule is recognized: it identifies the rule's content.
    pub note: String,
}

/// Returns the rules of the bridge's table, in their order.
pub fn base_rules(config: &BridgeConfig) -> Vec<BaseRule> {
    let mut rules = Vec::new();
    let mut add = |chain: &'static str, clauses: Vec<Clause>| {
        let note = format!("caravan {:016x}", crate::digest(&format!("{chain} {clauses:?}")));
        rules.push(BaseRule { chain, clauses, note });
    };
    for chain in [PREROUTING, OUTPUT] {
        for map in MAPS {
            add(chain, vec![Clause::LocalDestination, Clause::Redirect(map)]);
        }
    }
    let to_bridge = || Clause::Interface(Direction::To, config.name.clone());
    let multicast = [
        (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4),
        (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8),
    ];
    for (ip, prefix) in multicast {
        add(POSTROUTING, vec![Clause::Within(Direction::To, ip, prefix), Clause::Then(Verdict::Return)]);
    }
    // A program of the host that uses 127.0.0.1 needs an address to which the allocation can send its answer.
    let loopback = Clause::Within(Direction::From, IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
    add(POSTROUTING, vec![loopback, to_bridge(), Clause::Masquerade]);
    let ipv4 = (IpAddr::V4(config.ipv4.network()), config.ipv4.prefix_len());
    let ipv6 = config.ipv6.map(|net| (IpAddr::V6(net.network()), net.prefix_len()));
    for (ip, prefix) in [Some(ipv4), ipv6].into_iter().flatten() {
        let own = || Clause::Within(Direction::From, ip, prefix);
        add(POSTROUTING, vec![own(), Clause::Outside(Direction::To, ip, prefix), Clause::Masquerade]);
        // For an allocation that uses a port of the node: without this rule, answers of the other allocation would
        // not pass the node. Such answers would have a wrong source address.
        add(POSTROUTING, vec![Clause::Translated, own(), to_bridge(), Clause::Masquerade]);
    }
    rules
}

/// Adds the whole table to a transaction: first without, then with its content, so that earlier content is removed.
pub fn build_table<'a>(
    config: &BridgeConfig,
    attachments: impl Iterator<Item = &'a Attachment> + Clone,
    transaction: &mut Transaction,
) {
    let table = config.table();
    // A deletion alone fails without a table.
    transaction.add_table(&table);
    transaction.delete_table(&table);
    transaction.add_table(&table);
    for map in MAPS {
        transaction.add_map(&table, map);
    }
    transaction.add_chain(&table, PREROUTING, Hook::Prerouting);
    transaction.add_chain(&table, OUTPUT, Hook::Output);
    transaction.add_chain(&table, POSTROUTING, Hook::Postrouting);
    for rule in base_rules(config) {
        transaction.append_rule(&table, rule.chain, &rule.clauses, &rule.note);
    }
    for map in MAPS {
        let elements: Vec<Element> =
            attachments.clone().flat_map(|attachment| elements(attachment, map)).collect();
        transaction.add_elements(&table, map, &elements);
    }
}

/// Returns the elements of an allocation in a map.
pub fn elements(attachment: &Attachment, map: PortMap) -> Vec<Element> {
    let to = match map.version {
        Version::V4 => Some(IpAddr::V4(attachment.addresses.ipv4)),
        Version::V6 => attachment.addresses.ipv6.map(IpAddr::V6),
    };
    let Some(to) = to else { return Vec::new() };
    let mut elements = Vec::new();
    for forward in &attachment.forwards {
        let fits = match forward.address {
            None => !map.by_address,
            Some(address) => map.by_address && Version::from_address(address) == map.version,
        };
        for transport in [Transport::Tcp, Transport::Udp].into_iter().filter(|_| fits) {
            elements.push(Element {
                address: forward.address,
                transport,
                port: forward.port,
                to: SocketAddr::new(to, forward.to),
                note: attachment.alloc.to_string(),
            });
        }
    }
    elements
}

/// The chain of operators that Nomad creates (docs/reference/network.md, section 5.2).
const ADMIN: &str = "NOMAD-ADMIN";
/// The chains of a firewall in which a bridge needs its rules, the first that exists.
const FIREWALL_CHAINS: [&str; 2] = ["DOCKER-USER", "FORWARD"];

/// The rules by which packets of the bridge pass a firewall of the host, whose policy may drop them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The firewall's table.
    pub table: Table,
    /// The chain in which the rules are.
    pub chain: &'static str,
    /// The clauses and notes of the rules, in their order.
    pub rules: Vec<(Vec<Clause>, String)>,
}

/// Returns the table of a version's firewall, by the name that iptables with nf_tables uses.
pub fn firewall(family: Family) -> Table {
    Table { family, name: "filter".to_owned() }
}

/// Returns the prefix of the notes of the bridge's rules in firewalls.
pub fn passage_note(config: &BridgeConfig) -> String {
    format!("caravan {} ", config.name)
}

/// Returns the rules that a firewall needs; `None` if the host has no such firewall.
pub fn passage(config: &BridgeConfig, family: Family, chains: &[Chain]) -> Option<Passage> {
    let table = firewall(family);
    let has = |name: &str| chains.iter().any(|chain| chain.table == table.name && chain.name == name);
    let chain = FIREWALL_CHAINS.into_iter().find(|name| has(name))?;
    let note = |what: &str| format!("{}{what}", passage_note(config));
    let passes = |direction| {
        vec![Clause::Interface(direction, config.name.clone()), Clause::Count, Clause::Then(Verdict::Accept)]
    };
    let mut rules = Vec::new();
    if has(ADMIN) {
        rules.push((vec![Clause::Count, Clause::Then(Verdict::Jump(ADMIN.to_owned()))], note("admin")));
    }
    rules.push((passes(Direction::From), note("from")));
    rules.push((passes(Direction::To), note("to")));
    Some(Passage { table, chain, rules })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::{Addresses, Forward};

    fn attachment(address: Option<&str>) -> Attachment {
        let address = address.map(|ip| ip.parse().unwrap());
        Attachment {
            alloc: "a".into(),
            namespace: "/n".into(),
            addresses: Addresses {
                ipv4: "10.0.0.2".parse().unwrap(),
                ipv6: Some("fd00::2".parse().unwrap()),
            },
            forwards: vec![Forward { address, port: 8080, to: 80 }],
        }
    }

    #[test]
    fn a_port_is_in_the_maps_of_its_address() {
        let counts = |address| MAPS.map(|map| elements(&attachment(address), map).len());
        assert_eq!(counts(Some("192.0.2.1")), [2, 0, 0, 0]);
        assert_eq!(counts(Some("2001:db8::1")), [0, 0, 2, 0]);
        assert_eq!(counts(None), [0, 2, 0, 2]);
        let mut without = attachment(None);
        without.addresses.ipv6 = None;
        assert_eq!(elements(&without, ANY_IPV6), []);
    }

    #[test]
    fn rules_are_recognized_by_their_content() {
        let notes = |config: &BridgeConfig| {
            base_rules(config).into_iter().map(|rule| rule.note).collect::<std::collections::BTreeSet<_>>()
        };
        let config = BridgeConfig::default();
        let own = notes(&config);
        assert_eq!(own.len(), base_rules(&config).len(), "no two are equal");
        let other = BridgeConfig { name: "other".into(), ..config };
        assert_ne!(own, notes(&other));
    }

    #[test]
    fn firewalls_let_the_bridge_pass() {
        let config = BridgeConfig::default();
        let chains = |names: &[&str]| -> Vec<Chain> {
            names
                .iter()
                .map(|name| Chain { table: "filter".into(), name: (*name).into(), drops_forwarded: false })
                .collect()
        };
        assert_eq!(passage(&config, Family::Ip, &[]), None);
        let plain = passage(&config, Family::Ip, &chains(&["INPUT", "FORWARD"])).unwrap();
        assert_eq!((plain.chain, plain.rules.len()), ("FORWARD", 2));
        let docker =
            passage(&config, Family::Ip, &chains(&["FORWARD", "DOCKER-USER", "NOMAD-ADMIN"])).unwrap();
        assert_eq!((docker.chain, docker.rules.len()), ("DOCKER-USER", 3));
        assert_eq!(docker.rules[0].1, "caravan nomad admin");
    }
}
