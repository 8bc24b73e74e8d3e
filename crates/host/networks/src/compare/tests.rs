use super::*;
use crate::attachment::{Addresses, Forward};
use crate::desired::passage;
use caravan_sys::netlink::nft::{Chain, Family};

fn config() -> BridgeConfig {
    BridgeConfig { owner: "n1".into(), ..BridgeConfig::default() }
}

fn attachments(ids: &[&str]) -> BTreeMap<AllocId, Attachment> {
    let one = |(at, id): (usize, &&str)| {
        let last = u8::try_from(at + 2).unwrap();
        let attachment = Attachment {
            alloc: (*id).into(),
            namespace: "/n".into(),
            addresses: Addresses { ipv4: std::net::Ipv4Addr::new(172, 26, 64, last), ipv6: None },
            forwards: vec![Forward { address: None, port: 8000 + u16::from(last), to: 80 }],
        };
        (attachment.alloc.clone(), attachment)
    };
    ids.iter().enumerate().map(one).collect()
}

/// Returns the state without any difference.
fn whole(config: &BridgeConfig, attachments: &BTreeMap<AllocId, Attachment>) -> Actual {
    let bridge = Link {
        index: 5,
        name: config.name.clone(),
        kind: "bridge".into(),
        alias: config.mark(),
        is_up: true,
        ..Link::default()
    };
    let port = |(at, own): (usize, &Attachment)| Link {
        index: 10 + u32::try_from(at).unwrap(),
        name: own.interface(),
        kind: "veth".into(),
        alias: mark_of(config, &own.alloc),
        is_up: true,
        master: Some(5),
        ..Link::default()
    };
    let rule = |rule: crate::desired::BaseRule| Rule { chain: rule.chain.into(), handle: 1, note: rule.note };
    let chains = [Chain { table: "filter".into(), name: "FORWARD".into(), drops_forwarded: true }];
    let needed = passage(config, Family::Ip, &chains).unwrap();
    let own: Vec<Rule> = needed
        .rules
        .iter()
        .map(|(_, note)| Rule { chain: needed.chain.into(), handle: 1, note: note.clone() })
        .collect();
    Actual {
        links: [bridge].into_iter().chain(attachments.values().enumerate().map(port)).collect(),
        addresses: config
            .gateways()
            .into_iter()
            .map(|(ip, prefix)| Address { index: 5, ip, prefix, is_link_local: false })
            .collect(),
        rules: base_rules(config).into_iter().map(rule).collect(),
        elements: MAPS.map(|map| attachments.values().flat_map(|own| elements(own, map)).collect()),
        firewalls: vec![(needed, own)],
        settings: Vec::new(),
        foreign: Vec::new(),
    }
}

fn found(change: impl FnOnce(&mut Actual)) -> Vec<Finding> {
    let (config, attachments) = (config(), attachments(&["a", "b"]));
    let mut actual = whole(&config, &attachments);
    change(&mut actual);
    differences(&config, &actual, &attachments, true)
}

#[test]
fn a_whole_state_has_no_difference_and_each_fault_is_found() {
    assert_eq!(found(|_| {}), []);
    assert_eq!(
        found(|actual| actual.settings.push("ipv4/ip_forward".into())),
        [Finding::Setting("ipv4/ip_forward".into())]
    );
    assert_eq!(found(|actual| actual.links[0].is_up = false), [Finding::Down]);
    assert_eq!(found(|actual| actual.links[0].alias.clear()), [Finding::Unmarked]);
    let gateway = Finding::Gateway("172.26.64.1".parse().unwrap(), 20);
    assert_eq!(found(|actual| actual.addresses.clear()), std::slice::from_ref(&gateway));
    let other: IpAddr = "10.0.0.1".parse().unwrap();
    assert_eq!(found(|actual| actual.addresses[0].ip = other), [Finding::OldAddress(other, 20), gateway]);
    assert_eq!(found(|actual| drop(actual.links.remove(1))), [Finding::Interface("a".into())]);
    assert_eq!(found(|actual| actual.links[2].master = None), [Finding::Detached("b".into())]);
    assert_eq!(found(|actual| actual.links[2].is_up = false), [Finding::Detached("b".into())]);
    assert_eq!(found(|actual| drop(actual.rules.remove(3))), [Finding::Table]);
    assert_eq!(found(|actual| actual.rules[0].note.clear()), [Finding::Table]);
    assert_eq!(found(|actual| actual.rules.swap(8, 9)), [Finding::Table], "the order counts");
    let lost = found(|actual| drop(actual.elements[1].pop()));
    assert!(matches!(&lost[..], [Finding::Ports(1, missing)] if missing.len() == 1), "{lost:?}");
    let moved = found(|actual| actual.elements[1][0].to.set_port(81));
    assert!(matches!(&moved[..], [Finding::LeftPorts(1, _), Finding::Ports(1, _)]), "{moved:?}");
    assert_eq!(found(|actual| drop(actual.firewalls[0].1.pop())), [Finding::Passage(0)]);
    assert_eq!(found(|actual| actual.firewalls[0].1[0].chain = "OLD".into()), [Finding::Passage(0)]);
}

#[test]
fn a_lost_bridge_takes_its_ports_and_address_with_it() {
    let found = found(|actual| {
        actual.links.remove(0);
        actual.addresses.clear();
        actual.links.iter_mut().for_each(|link| link.master = None);
    });
    assert_eq!(found, [Finding::Bridge, Finding::Detached("a".into()), Finding::Detached("b".into())]);
}

#[test]
fn what_belongs_to_no_allocation_is_left_over() {
    let (config, before) = (config(), attachments(&["a", "b"]));
    let actual = whole(&config, &before);
    let now = attachments(&["a"]);
    let gone = interface_of(&"b".into());
    let found = differences(&config, &actual, &now, true);
    assert!(
        matches!(&found[..], [Finding::LeftInterface(name), Finding::LeftPorts(1, left)] if *name == gone && left.len() == 2),
        "{found:?}"
    );
    let none = differences(&config, &actual, &BTreeMap::new(), false);
    assert_eq!(none.len(), 3, "two interfaces and the ports of both: {none:?}");
    assert_eq!(differences(&config, &Actual::default(), &BTreeMap::new(), false), []);
}

#[test]
fn interfaces_of_others_stay() {
    let foreign = found(|actual| {
        let own =
            Link { index: 90, name: "tap0".into(), kind: "tun".into(), master: Some(5), ..Link::default() };
        actual.links.push(own);
        let other =
            Link { index: 91, name: "cv0123456789abc".into(), kind: "veth".into(), ..Link::default() };
        actual.links.push(Link { alias: "caravan:n2:x".into(), ..other });
    });
    assert_eq!(foreign, []);
    let interrupted = found(|actual| {
        let name = "cv0123456789abc".to_owned();
        actual.links.push(Link { index: 91, name, kind: "veth".into(), master: Some(5), ..Link::default() });
    });
    assert_eq!(interrupted, [Finding::LeftInterface("cv0123456789abc".into())]);
}

#[test]
fn a_bridge_of_another_program_is_refused() {
    let (config, own) = (config(), attachments(&["a"]));
    let check = |change: &dyn Fn(&mut Actual)| {
        let mut actual = whole(&config, &own);
        change(&mut actual);
        check_owner(&config, &actual, &own).map_err(|fault| fault.to_string())
    };
    let port = Link { index: 90, name: "tap0".into(), master: Some(5), ..Link::default() };
    assert_eq!(check(&|_| {}), Ok(()));
    assert_eq!(check(&|actual| actual.links.push(port.clone())), Ok(()), "an operator may add interfaces");
    let kind = check(&|actual| actual.links[0].kind = "dummy".into()).unwrap_err();
    assert!(kind.starts_with("interface nomad is not a bridge"), "{kind}");
    assert_eq!(check(&|actual| actual.links[0].alias.clear()), Ok(()), "nobody else uses it");
    let foreign = check(&|actual| {
        actual.links[0].alias = "caravan:n2".into();
        actual.links.push(port.clone());
    });
    assert!(foreign.unwrap_err().starts_with("bridge nomad has interfaces of another program"));
    let overlap = check(&|actual| {
        actual.links.push(Link { index: 7, name: "eth1".into(), ..Link::default() });
        let ip = "172.26.70.9".parse().unwrap();
        actual.addresses.push(Address { index: 7, ip, prefix: 24, is_link_local: false });
    });
    assert_eq!(
        overlap.unwrap_err(),
        "the bridge's network overlaps with 172.26.70.9/24 of interface eth1: set another bridge_network_subnet"
    );
}
