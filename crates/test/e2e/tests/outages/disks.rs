//! Disks of servers that are lost, full, or hang.

use super::World;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::cluster::Disk;
use caravan_testkit::eventually;

/// The size of a server's disk: enough for the log of a short test.
const SIZE: u64 = 48 << 20;

/// Stops a server and starts it again on a separate small disk.
fn on_a_disk(world: &mut World, number: usize) -> Result<Disk> {
    let server = world.cluster.server_machine(number);
    server.end(false)?;
    let disk = Disk::beneath(&server.agent().data_dir(), SIZE)?;
    server.start()?;
    server.wait_ready()?;
    Ok(disk)
}

/// Checks that a server without its log joins again under a new number: the server must not vote under its old one.
#[test]
fn a_server_with_a_wiped_disk_joins_under_a_new_number() -> Result<()> {
    let mut world = World::start(3, 64)?;
    let leader = world.leader()?;
    let wiped = world.others(leader)[0];
    world.cluster.server_machine(wiped).end(true)?;
    let before = world.agent(wiped).log().len();
    world.cluster.servers()[wiped].wipe()?;
    world.write_at(leader)?;
    world.cluster.server_machine(wiped).start()?;
    eventually("the server to be admitted under another number", || {
        let log = world.agent(wiped).log();
        let admitted = log[before..].contains("this server is admitted to a cluster");
        if admitted { Ok(()) } else { bail!("{}", world.agent(wiped).log_tail()) }
    })?;
    world.cluster.server_machine(wiped).wait_ready()?;
    world.has_all(wiped)?;
    // Another server may be lost only after this server votes again and its old number is removed.
    eventually("three members, all of them voters", || {
        let members = world.agent(wiped).get("/v1/operator/raft/configuration")?;
        let rows = members["Servers"].as_array().cloned().unwrap_or_default();
        let voters = rows.iter().filter(|row| row["Voter"] == true).count();
        if (rows.len(), voters) == (3, 3) { Ok(()) } else { bail!("{members}") }
    })
    .with_context(|| world.agent(leader).log_tail())?;
    world.goes_on()
}

/// Checks that a leader whose disk is full stops or passes leadership on, and that it is a member again once the disk
/// has room.
#[test]
fn the_disk_of_the_leader_is_full() -> Result<()> {
    let mut world = World::start(3, 65)?;
    let first = world.leader()?;
    let disk = on_a_disk(&mut world, first)?;
    world.goes_on()?;
    make_leader(&world, first)?;
    disk.fill()?;
    let others = world.others(first);
    // The leader notices the full disk at the write.
    let body = serde_json::json!({ "Items": { "v": "x".repeat(60_000) } });
    for number in 0..8 {
        let _ = world.agent(first).request("PUT", &format!("/v1/var/fill/{number}"), Some(&body));
    }
    let next = others[0];
    world.write_at(next)?;
    disk.empty()?;
    comes_back(&mut world, first)?;
    world.goes_on()
}

/// Checks that a leader whose disk hangs gives up leadership; etcd issue 13527 is the counterexample.
#[test]
fn the_disk_of_the_leader_hangs() -> Result<()> {
    let mut world = World::start(3, 66)?;
    let first = world.leader()?;
    let mut disk = on_a_disk(&mut world, first)?;
    world.goes_on()?;
    make_leader(&world, first)?;
    disk.freeze()?;
    let others = world.others(first);
    world.write_at(others[0])?;
    let next = world.leader_among(&others)?;
    ensure!(next != first, "the server whose disk hangs leads");
    disk.thaw()?;
    comes_back(&mut world, first)?;
    world.goes_on()
}

fn make_leader(world: &World, number: usize) -> Result<()> {
    eventually(&format!("server {number} to lead"), || {
        let leader = world.leader()?;
        if leader == number {
            return Ok(());
        }
        world.agent(leader).transfer_leadership()?;
        bail!("server {leader} leads")
    })
}

/// Waits until a server has the last acknowledged write. A server ends when its disk fails, perhaps only after the
/// disk works again. Like a service manager, this function then starts the server again.
fn comes_back(world: &mut World, number: usize) -> Result<()> {
    let last = world.acknowledged.last().context("no write")?.clone();
    eventually(&format!("server {number} to have write {last}"), || {
        let server = world.cluster.server_machine(number);
        if server.has_ended()? {
            server.end(true)?;
            server.start()?;
        }
        let found = server.agent().get(&format!("/v1/var/{last}?stale"))?;
        if found["Items"]["v"] == last.as_str() { Ok(()) } else { bail!("{found}") }
    })
}
