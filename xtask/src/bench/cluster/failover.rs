//! Leaders that are killed, and leaders that pass leadership on.

use super::super::agent::millis;
use super::connection::{Connection, alone};
use super::{percentile, print};
use anyhow::{Context, Result, bail};
use caravan_testkit::{Servers, eventually};
use std::time::{Duration, Instant};

/// The timeout for a write to be acknowledged after the leader is lost.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts to write: far below the measured time.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(5);

pub(super) fn run(kills: usize, transfers: usize) -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    if transfers > 0 {
        let mut times = transfer(&servers, transfers)?;
        print("ordered transfer until the next acknowledged write, median", percentile(&mut times, 50), "ms");
        print("the same, slowest", percentile(&mut times, 100), "ms");
    }
    if kills > 0 {
        let mut times = kill(&mut servers, kills)?;
        print(
            &format!("leader killed until the next acknowledged write, {kills} kills, p50"),
            percentile(&mut times, 50),
            "ms",
        );
        print("the same, p99", percentile(&mut times, 99), "ms");
        print("the same, slowest", percentile(&mut times, 100), "ms");
    }
    Ok(())
}

/// Writes to a server until a write is acknowledged.
fn first_write(address: &str, path: &str, value: &str) -> Result<()> {
    let deadline = Instant::now() + FAILOVER_TIMEOUT;
    loop {
        match alone(async { Connection::to(address).await?.write(path, value).await }) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(ATTEMPT_INTERVAL),
        }
    }
}

fn kill(servers: &mut Servers, kills: usize) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for round in 0..kills {
        let (leader, follower) = (servers.wait_leader()?, servers.follower()?);
        let address = servers.get(follower).address();
        let (path, value) = (format!("kept/{round}"), format!("value-{round}"));
        // The write is acknowledged before the kill, so it must be there afterwards.
        first_write(&address, &path, &value)?;
        let begun = Instant::now();
        servers.get_mut(leader).kill_9()?;
        first_write(&address, "after", &value)?;
        times.push(millis(begun));
        let kept = servers.get(follower).get(&format!("/v1/var/{path}"))?;
        if kept["Items"]["v"] != value.as_str() {
            bail!("round {round}: the acknowledged write of {path} is lost");
        }
        servers.get_mut(leader).spawn()?;
        servers.wait_voters(3)?;
        servers.wait_level()?;
    }
    Ok(times)
}

fn transfer(servers: &Servers, transfers: usize) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for round in 0..transfers {
        let (leader, follower) = (servers.wait_leader()?, servers.follower()?);
        let target = servers.get(follower);
        let own = target.get("/v1/agent/self")?;
        let id = own["member"]["Tags"]["id"].as_str().context("the member has no id")?.to_owned();
        let begun = Instant::now();
        let path = format!("/v1/operator/raft/transfer-leadership?id={id}");
        let reply = servers.get(leader).request("PUT", &path, None)?;
        if reply.status != 200 {
            bail!("the transfer was answered {}: {}", reply.status, reply.text());
        }
        first_write(&target.address(), "after", &format!("value-{round}"))?;
        times.push(millis(begun));
        eventually("the new leader", || match servers.wait_leader()? {
            found if found == follower => Ok(()),
            other => bail!("server {other} leads"),
        })?;
    }
    Ok(times)
}
