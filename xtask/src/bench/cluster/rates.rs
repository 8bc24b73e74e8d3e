//! Writes, reads, and the costs of a server at rest.

use super::super::agent::{millis, resident};
use super::super::volumes::processor_time;
use super::connection::{Connection, alone, concurrently};
use super::{percentile, print};
use anyhow::Result;
use caravan_testkit::{Agent, Servers};
use std::thread;
use std::time::{Duration, Instant};

/// The duration of a measurement.
const SPAN: Duration = Duration::from_secs(10);
/// The number of concurrent writers and readers.
const WRITERS: usize = 64;
const READERS: usize = 16;
/// The number of readers under load.
const MANY_READERS: usize = 64;
/// The number of writes of a single writer.
const SINGLE: usize = 500;
/// The size of a value in bytes.
const VALUE: usize = 1024;

pub(super) fn run() -> Result<()> {
    // Log as an operator's servers do: servers of tests log every detail.
    let servers = Servers::with(3, "log_level = \"INFO\"\n")?;
    servers.wait_voters(3)?;
    let (leader, follower) = (servers.wait_leader()?, servers.follower()?);
    let (leader, follower) = (servers.get(leader), servers.get(follower));
    at_rest(follower)?;
    let value = "x".repeat(VALUE);
    single(leader, &value)?;
    let (count, mut times) = many(leader, WRITERS, async |connection, writer, round| {
        connection.write(&format!("load/{writer}/{}", round % 16), &value).await
    })?;
    print(&format!("writes of {VALUE} bytes by {WRITERS} writers"), count, "1/s");
    print("the same, p99", percentile(&mut times, 99), "ms");
    let path = "/v1/var/load/0/0";
    let mut rates = Vec::new();
    for (what, agent, suffix) in [
        ("default reads at the leader", leader, ""),
        ("default reads through a follower", follower, ""),
        ("stale reads at the leader", leader, "?stale"),
        ("stale reads at a follower", follower, "?stale"),
    ] {
        let path = format!("{path}{suffix}");
        let (rate, _) =
            many(agent, READERS, async |connection, _, _| connection.expect("GET", &path, "").await)?;
        print(what, rate, "1/s");
        rates.push(rate);
    }
    print("default reads through a follower, ratio to the leader", rates[1] / rates[0], "");
    print("stale reads at a follower, ratio to the leader", rates[3] / rates[2], "");
    let read =
        |agent| many(agent, MANY_READERS, async |connection, _, _| connection.expect("GET", path, "").await);
    let (direct, through) = (read(leader)?.0, read(follower)?.0);
    print(&format!("default reads through a follower by {MANY_READERS} readers"), through, "1/s");
    print("the same, ratio to the leader", through / direct, "");
    Ok(())
}

fn at_rest(follower: &Agent) -> Result<()> {
    // After this time the start has ended; nothing is asserted.
    thread::sleep(Duration::from_secs(5));
    let before = processor_time(follower.pid())?;
    thread::sleep(3 * SPAN);
    let used = processor_time(follower.pid())? - before;
    print("idle follower, processor time", used / (3 * SPAN).as_secs_f64() * 100.0, "%");
    print("idle follower, resident memory", resident(follower.pid())?, "MiB");
    Ok(())
}

fn single(leader: &Agent, value: &str) -> Result<()> {
    let mut times = alone(async {
        let mut connection = Connection::open(leader).await?;
        let mut times = Vec::new();
        for round in 0..SINGLE {
            let begun = Instant::now();
            connection.write(&format!("single/{}", round % 16), value).await?;
            times.push(millis(begun));
        }
        Ok(times)
    })?;
    print("write of a single writer, median", percentile(&mut times, 50), "ms");
    print("the same, p99", percentile(&mut times, 99), "ms");
    Ok(())
}

/// Repeats an action on several connections. Returns the number a second, and the duration of each in milliseconds.
fn many(
    agent: &Agent,
    connections: usize,
    act: impl AsyncFn(&mut Connection, usize, usize) -> Result<()>,
) -> Result<(f64, Vec<f64>)> {
    let begun = Instant::now();
    let act = &act;
    let times = concurrently(connections, |number| async move {
        let mut connection = Connection::open(agent).await?;
        let mut times = Vec::new();
        while begun.elapsed() < SPAN {
            let sent = Instant::now();
            act(&mut connection, number, times.len()).await?;
            times.push(millis(sent));
        }
        Ok(times)
    })?
    .concat();
    let count = f64::from(u32::try_from(times.len())?);
    Ok((count / begun.elapsed().as_secs_f64(), times))
}
