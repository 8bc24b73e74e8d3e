//! Many simulated nodes on three servers, whose leader is killed.

use super::super::volumes::Ghost;
use super::print;
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Servers, eventually_within};
use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The number of nodes that register at the same time.
const JOINING: usize = 64;
/// The time within which a node must join, and the pause before its next attempt.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The time after a leader change in which nodes must not be declared down: longer than a heartbeat and its grace.
const AFTER: Duration = Duration::from_secs(60);

pub(super) fn run(count: usize) -> Result<()> {
    let extra = "limits {\n  rpc_max_conns_per_client = 0\n  http_max_conns_per_client = 0\n}\n";
    let mut servers = Servers::with(3, extra)?;
    servers.wait_voters(3)?;
    let leader = servers.wait_leader()?;
    let others: Vec<usize> = servers.running().into_iter().filter(|number| *number != leader).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let begun = Instant::now();
    let ghosts: Vec<Ghost> = runtime.block_on(async {
        let servers = &servers;
        let others = &others;
        // A server limits the connections of unknown nodes. A refused node retries.
        let join = |n: usize| async move {
            let ghost = Ghost::new(servers.get(others[n % others.len()]), n);
            let begun = Instant::now();
            while let Err(error) = ghost.register().await {
                if begun.elapsed() > JOIN_TIMEOUT {
                    return Err(error);
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            ghost.stay_alive();
            anyhow::Ok(ghost)
        };
        futures::stream::iter((0..count).map(join)).buffer_unordered(JOINING).try_collect().await
    })?;
    print(&format!("{count} nodes register"), begun.elapsed().as_secs_f64(), "s");
    let connections = |servers: &Servers| -> Result<Vec<BTreeSet<String>>> {
        others.iter().map(|number| connected(&servers.get(*number).rpc_address())).collect()
    };
    let before = connections(&servers)?;
    // All nodes are connected to the other servers.
    ensure!(servers.wait_leader()? == leader, "the leader changed while nodes registered");
    servers.get_mut(leader).kill_9()?;
    let begun = Instant::now();
    servers.wait_leader()?;
    print(
        "the same, leader killed until all servers name the next one",
        begun.elapsed().as_secs_f64() * 1000.0,
        "ms",
    );
    std::thread::sleep(AFTER);
    let down = eventually_within(Duration::from_secs(60), "the list of nodes", || {
        let nodes = servers.get(others[0]).get("/v1/nodes")?;
        let all: Vec<Value> = nodes.as_array().cloned().unwrap_or_default();
        if all.len() < count {
            bail!("{} nodes are listed", all.len());
        }
        Ok(all.iter().filter(|node| node["Status"] != "ready").count())
    })?;
    let after = connections(&servers)?;
    print(
        "the same, connections of nodes",
        f64::from(u32::try_from(before.iter().map(BTreeSet::len).sum::<usize>())?),
        "",
    );
    let new: usize = before.iter().zip(&after).map(|(before, after)| after.difference(before).count()).sum();
    print("the same, nodes that are not ready a minute later", f64::from(u32::try_from(down)?), "");
    print("the same, connections that nodes opened again", f64::from(u32::try_from(new)?), "");
    drop((ghosts, runtime));
    Ok(())
}

/// Returns the local addresses of this program's TCP connections to a server's port. Servers have connections to each
/// other too, which they open again for a new leader.
fn connected(address: &str) -> Result<BTreeSet<String>> {
    let port: u16 = address.rsplit(':').next().unwrap_or_default().parse()?;
    let suffix = format!(":{port:04X}");
    let own = own_sockets()?;
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    // Columns of proc(5): number, local address, remote address, …, and the inode as the tenth.
    let local = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, remote, inode) = (fields.get(1)?, fields.get(2)?, fields.get(9)?);
        (remote.ends_with(&suffix) && own.contains(*inode)).then(|| (*local).to_owned())
    };
    Ok(table.lines().skip(1).filter_map(local).collect())
}

/// Returns the inodes of this program's sockets.
fn own_sockets() -> Result<BTreeSet<String>> {
    let mut inodes = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // A descriptor may be closed meanwhile.
        let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
        inodes.extend(inode.map(str::to_owned));
    }
    Ok(inodes)
}
