//! Many starts and stops of many allocations leave nothing.

use crate::{World, forward};
use caravan_networks::{Attachment, desired};
use caravan_sys::netlink::link::Links;
use caravan_sys::netlink::nft::Rules;
use caravan_sys::netns;
use std::collections::BTreeSet;

const ROUNDS: u16 = 20;
const ALLOCATIONS: u16 = 50;

/// Returns the remains that a set-up may leave: interfaces, elements of the port maps, held namespaces.
fn left(world: &World) -> (Vec<String>, usize, usize) {
    let links = Links::open().unwrap().list().unwrap();
    let mut rules = Rules::open().unwrap();
    let table = world.config.table();
    let elements = desired::MAPS.into_iter().map(|map| rules.elements(&table, map).unwrap().len()).sum();
    let held = std::fs::read_dir(world.dir.path()).unwrap().count();
    (links.into_iter().map(|link| link.name).filter(|name| name.starts_with("cv")).collect(), elements, held)
}

#[test]
fn rounds_of_starts_and_stops_leave_nothing() {
    World::run(false, |world| {
        let mut bridge = world.open(&[]);
        let (_, _, held_before) = left(world);
        for round in 0..ROUNDS {
            let all: Vec<Attachment> = (0..ALLOCATIONS)
                .map(|number| {
                    world.attachment(&format!("{round}-{number}"), vec![forward(None, 20_000 + number, 80)])
                })
                .collect();
            let addresses: BTreeSet<_> = all.iter().map(|own| own.addresses).collect();
            assert_eq!(addresses.len(), all.len(), "no two allocations share an address");
            for own in &all {
                assert!(bridge.attach(own).unwrap().found.is_empty(), "nothing was broken");
            }
            let (interfaces, elements, _) = left(world);
            assert_eq!(interfaces.len(), usize::from(ALLOCATIONS));
            // Both protocols, IPv4 and IPv6.
            assert_eq!(elements, usize::from(ALLOCATIONS) * 4);
            for own in &all {
                bridge.detach(own).unwrap();
                netns::let_go(&own.namespace).unwrap();
                world.pool.release(&own.alloc);
            }
            assert_eq!(left(world), (Vec::new(), 0, held_before), "round {round}");
        }
        bridge.remove().unwrap();
        let links = Links::open().unwrap().list().unwrap();
        assert!(!links.iter().any(|link| link.name == world.config.name), "the bridge");
        assert!(Rules::open().unwrap().rules(&world.config.table()).unwrap().is_empty(), "the rules");
    });
}
