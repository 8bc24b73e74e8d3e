//! A large state that an empty server receives, and a log that stays bounded.

use super::connection::{Connection, concurrently};
use super::{print, size_of};
use anyhow::{Result, bail};
use caravan_testkit::{Agent, Servers, eventually_within};
use std::time::{Duration, Instant};

/// The size of a value of the large state: the largest value of a variable is 64 KiB, with its encryption.
const LARGE_VALUE: usize = 48 * 1024;
/// The number of writers.
const WRITERS: usize = 64;
/// The number of variables that each writer of the bounded log replaces.
const REPLACED: usize = 16;

pub(super) fn run(state: usize, writes: usize) -> Result<()> {
    let mut servers = Servers::start(3)?;
    servers.wait_voters(3)?;
    if writes > 0 {
        let leader = servers.get(servers.wait_leader()?);
        let begun = Instant::now();
        let value = "x".repeat(1024);
        write_all(leader, writes, &value, |writer, round| format!("bounded/{writer}/{}", round % REPLACED))?;
        print(&format!("{writes} writes of 1 KiB"), begun.elapsed().as_secs_f64(), "s");
        for number in 0..3 {
            let size = size_of(&servers.get(number).data_dir().join("server"))?;
            print(&format!("files of server {} after {writes} writes", number + 1), size, "MB");
        }
    }
    if state > 0 {
        join(&mut servers, state)?;
    }
    Ok(())
}

/// Writes a large state, and measures the time until an empty server has received that state.
fn join(servers: &mut Servers, state: usize) -> Result<()> {
    let count = state * 1_000_000 / LARGE_VALUE;
    let value = "x".repeat(LARGE_VALUE);
    let leader = servers.get(servers.wait_leader()?);
    write_all(leader, count, &value, |writer, round| format!("large/{writer}/{round}"))?;
    let begun = Instant::now();
    let new = servers.add("server { bootstrap_expect = 0 }\n")?;
    let last = format!("/v1/var/large/0/{}?stale", (count / WRITERS).saturating_sub(1));
    eventually_within(Duration::from_secs(300), "the state at the new server", || {
        match servers.get(new).request("GET", &last, None)?.status {
            200 => Ok(()),
            status => bail!("the last value is answered {status}"),
        }
    })?;
    print(&format!("an empty server receives {state} MB of state"), begun.elapsed().as_secs_f64(), "s");
    Ok(())
}

fn write_all(agent: &Agent, count: usize, value: &str, path: impl Fn(usize, usize) -> String) -> Result<()> {
    let path = &path;
    concurrently(WRITERS, |writer| async move {
        let mut connection = Connection::open(agent).await?;
        for round in 0..count / WRITERS {
            connection.write(&path(writer, round), value).await?;
        }
        Ok(())
    })?;
    Ok(())
}
