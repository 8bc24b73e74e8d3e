//! Servers whose messages do not arrive: cut off, one way only, between two servers, frozen, black-holed.

use super::World;
use anyhow::{Result, ensure};
use caravan_testkit::cluster::ClusterOptions;
use serde_json::Value;
use std::net::Ipv4Addr;

/// Cuts the network between two sets of servers, in both directions.
fn cut(world: &World, these: &[usize], those: &[usize]) -> Result<()> {
    let addresses = |all: &[usize]| -> Vec<Ipv4Addr> {
        all.iter().map(|number| world.cluster.servers()[*number].host().address()).collect()
    };
    for (from, to) in [(these, those), (those, these)] {
        for number in to {
            world.cluster.servers()[*number].ignore(&addresses(from))?;
        }
    }
    Ok(())
}

fn heal(world: &World) -> Result<()> {
    world.cluster.servers().iter().try_for_each(|server| server.host().hear_all())
}

/// Checks that a server without a quorum refuses a write with a sentence.
fn refuses_writes(world: &World, server: usize) -> Result<()> {
    let body = serde_json::json!({ "Items": { "v": "lost" } });
    let reply = world.agent(server).request("PUT", "/v1/var/lost", Some(&body))?;
    let text = reply.text();
    ensure!(reply.status == 500, "{} {text}", reply.status);
    ensure!(
        text.contains("No cluster leader") || text.contains("may or may not have taken effect"),
        "{text}"
    );
    Ok(())
}

#[test]
fn half_of_the_network_is_cut_and_links_fail_one_way_or_in_part() -> Result<()> {
    let mut world = World::start(3, 61)?;

    // The leader is cut off from both others. Its clients reach it, but it must acknowledge nothing.
    let first = world.leader()?;
    let others = world.others(first);
    cut(&world, &[first], &others)?;
    let second = world.leader_among(&others)?;
    ensure!(second != first);
    world.write_at(second)?;
    refuses_writes(&world, first)?;
    heal(&world)?;
    world.goes_on()?;
    world.has_all(first)?;

    // The leader receives no messages, but the others receive its messages.
    let first = world.leader()?;
    let others = world.others(first);
    let addresses: Vec<Ipv4Addr> =
        others.iter().map(|n| world.cluster.servers()[*n].host().address()).collect();
    world.cluster.servers()[first].ignore(&addresses)?;
    let second = world.leader_among(&others)?;
    world.write_at(second)?;
    heal(&world)?;
    world.goes_on()?;

    // One link between two servers fails; the third reaches both, so there is a quorum all the time.
    let leader = world.leader()?;
    let others = world.others(leader);
    cut(&world, &[leader], &others[..1])?;
    world.write_at(others[1])?;
    heal(&world)?;
    world.goes_on()
}

/// Checks five voters, one of them dead. The leader reaches only one server, the bridge, which reaches all. The
/// bridge and two others are a majority, and elect although the bridge still receives messages of the old leader
/// (openraft issue 2080).
#[test]
fn a_bridge_to_a_leader_without_a_quorum_stops_no_election() -> Result<()> {
    let mut world = World::start(5, 62)?;
    let leader = world.leader()?;
    let others = world.others(leader);
    let (bridge, far, dead) = (others[0], [others[1], others[2]], others[3]);
    world.cluster.server_machine(dead).end(true)?;
    cut(&world, &[leader], &far)?;
    let majority = [bridge, far[0], far[1]];
    let next = world.leader_among(&majority)?;
    ensure!(next != leader);
    world.write_at(next)?;
    heal(&world)?;
    world.cluster.server_machine(dead).start()?;
    world.goes_on()?;
    world.has_all(leader)
}

/// Checks that nodes leave a frozen or black-holed server before their heartbeats are overdue. With the times that a
/// cluster has without settings, no node goes down, and the writer keeps its allocation.
#[test]
fn servers_freeze_and_fall_into_a_black_hole() -> Result<()> {
    let options =
        ClusterOptions { servers: 3, subnet: 63, server: String::new(), ..ClusterOptions::default() };
    let mut world = World::with(options)?;
    let before = world.allocations()?;
    for is_leader in [true, false] {
        let leader = world.leader()?;
        let number = if is_leader { leader } else { world.others(leader)[0] };
        world.cluster.server_machine(number).suspend()?;
        let others = world.others(number);
        let next = world.leader_among(&others)?;
        world.write_at(next)?;
        world.cluster.server_machine(number).resume()?;
        world.goes_on()?;
    }
    let leader = world.leader()?;
    let others = world.others(leader);
    world.cluster.servers()[leader].host().black_hole()?;
    let next = world.leader_among(&others)?;
    world.write_at(next)?;
    heal(&world)?;
    world.goes_on()?;
    world.has_all(leader)?;
    let after = world.allocations()?;
    ensure!(after == before, "{after:?}, {before:?} before");
    for number in 0..world.cluster.nodes().len() {
        let id = world.cluster.id_of(number)?;
        let found = world.agent(world.leader()?).get(&format!("/v1/node/{id}"))?;
        let events = found["Events"].as_array().cloned().unwrap_or_default();
        let missed =
            |event: &Value| event["Message"].as_str().is_some_and(|text| text.contains("heartbeat missed"));
        ensure!(found["Status"] == "ready" && !events.iter().any(missed), "{events:?}");
    }
    Ok(())
}
