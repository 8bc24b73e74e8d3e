//! A rolling upgrade with two builds side by side.

use super::{put, server_id, value};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Servers, eventually, next_program};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Returns the health of the cluster, also if it is not healthy.
fn health(servers: &Servers) -> Result<Value> {
    let number = servers.wait_leader()?;
    servers.get(number).request("GET", "/v1/operator/autopilot/health", None)?.json()
}

/// Waits until the cluster is healthy, with this number of servers of the next version, at a level.
fn wait_health(servers: &Servers, next: usize, level: u64) -> Result<()> {
    eventually("a healthy cluster", || {
        let health = health(servers)?;
        let all = health["Servers"].as_array().cloned().unwrap_or_default();
        let is_next = |server: &&Value| server["Version"].as_str().is_some_and(|v| v.ends_with("-next"));
        let found = all.iter().filter(is_next).count();
        let is_due = health["Healthy"] == true
            && all.len() == 3
            && found == next
            && health["CaravanFeatureLevel"] == level;
        if is_due { Ok(()) } else { bail!("{health}") }
    })
}

/// Replaces the program of one server.
fn exchange(servers: &mut Servers, number: usize, is_next: bool) -> Result<()> {
    servers.get_mut(number).stop_by(Signal::SIGTERM)?;
    servers.get_mut(number).set_program(is_next.then(next_program));
    servers.get_mut(number).spawn()?;
    servers.wait_leader()?;
    Ok(())
}

fn transfer(servers: &Servers, to: usize) -> Result<()> {
    let id = server_id(servers.get(to))?;
    let from = servers.get(servers.wait_leader()?);
    let done = from.caravan(&["operator", "raft", "transfer-leadership", "-peer-id", &id])?.ok()?;
    ensure!(done.stdout.contains(&id), "{}", done.all());
    ensure!(servers.wait_leader()? == to);
    Ok(())
}

#[test]
fn servers_are_upgraded_one_by_one_and_back_until_the_level_is_raised() -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    wait_health(&servers, 0, 1)?;
    put(servers.get(0), "first", "1")?;
    // Two new servers, one of which leads, next to an old one.
    let old = servers.follower()?;
    for number in (0..3).filter(|number| *number != old) {
        exchange(&mut servers, number, true)?;
        servers.wait_voters(3)?;
    }
    let new = (0..3).find(|number| *number != old).unwrap_or_default();
    if servers.wait_leader()? != new {
        transfer(&servers, new)?;
    }
    wait_health(&servers, 2, 1)?;
    put(servers.get(old), "second", "2")?;
    servers.wait_level()?;
    let seen = servers.get(old).caravan(&["server", "members"])?.ok()?.stdout;
    ensure!(seen.matches("-next").count() == 2, "{seen}");
    // Back to the older leader, and to the older program everywhere: the log has nothing that the older program
    // cannot read.
    transfer(&servers, old)?;
    put(servers.get(new), "third", "3")?;
    for number in (0..3).filter(|number| *number != old) {
        exchange(&mut servers, number, false)?;
        servers.wait_voters(3)?;
    }
    wait_health(&servers, 0, 1)?;
    // The level is raised once the last server is new.
    for number in 0..3 {
        exchange(&mut servers, number, true)?;
        servers.wait_voters(3)?;
    }
    wait_health(&servers, 3, 2)?;
    put(servers.get(0), "fourth", "4")?;
    servers.wait_level()?;
    // From then on, an older program does not start, and reports the reason.
    let follower = servers.follower()?;
    servers.get_mut(follower).stop_by(Signal::SIGTERM)?;
    servers.get_mut(follower).set_program(None);
    servers.get_mut(follower).spawn()?;
    let code = servers.get_mut(follower).wait_end()?;
    let log = servers.get(follower).log_tail();
    ensure!(code != 0 && log.contains("needs a newer version"), "{code}: {log}");
    servers.get_mut(follower).set_program(Some(next_program()));
    servers.get_mut(follower).spawn()?;
    wait_health(&servers, 3, 2)?;
    for (path, expected) in [("first", "1"), ("second", "2"), ("third", "3"), ("fourth", "4")] {
        ensure!(value(servers.get(follower), path)? == expected, "{path}");
    }
    Ok(())
}
