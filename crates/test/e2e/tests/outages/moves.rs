//! Servers with other addresses, replaced servers, and a server that dies together with a client.

use super::World;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::cluster::{Cluster, ClusterOptions};
use caravan_testkit::{eventually, eventually_within};
use std::time::{Duration, Instant};

#[test]
fn a_server_comes_back_with_another_address() -> Result<()> {
    let mut world = World::start(3, 67)?;
    let leader = world.leader()?;
    for number in [world.others(leader)[0], leader] {
        let server = world.cluster.server_machine(number);
        server.end(true)?;
        server.change_address()?;
        server.start()?;
        server.wait_ready()?;
        let address = server.agent().rpc_address();
        eventually("the new address in the membership", || {
            let voters = world.voters(number)?;
            let known = voters.iter().any(|(_, known)| *known == address);
            if known && voters.len() == 3 { Ok(()) } else { bail!("{address}: {voters:?}") }
        })?;
        world.goes_on()?;
        world.has_all(number)?;
    }
    Ok(())
}

#[test]
fn all_servers_are_replaced_one_by_one() -> Result<()> {
    const LEAVES: &str = "leave_on_terminate = true\n";
    let mut world = World::start(3, 68)?;
    for old in 0..3 {
        let new = world.cluster.add_server(LEAVES)?;
        world.cluster.server_machine(new).wait_ready()?;
        voters(&world, new, 4)?;
        // The founders were started without the setting: an operator removes them.
        world.cluster.server_machine(old).end(true)?;
        let name = format!("server-{}", old + 1);
        let leave = |world: &World| -> Result<()> {
            let configuration = world.agent(new).get("/v1/operator/raft/configuration")?;
            let servers = configuration["Servers"].as_array().cloned().unwrap_or_default();
            let named = |node: &str| node == name || node.starts_with(&format!("{name}."));
            let Some(row) = servers.iter().find(|row| row["Node"].as_str().is_some_and(named)) else {
                return Ok(());
            };
            let id = row["ID"].as_str().context("a server without an id")?;
            world.agent(new).caravan(&["operator", "raft", "remove-peer", "-peer-id", id])?.ok()?;
            bail!("{name} is still a member")
        };
        eventually("the old server to be removed", || leave(&world))?;
        voters(&world, new, 3)?;
        world.goes_on()?;
    }
    Ok(())
}

fn voters(world: &World, server: usize, count: usize) -> Result<()> {
    eventually(&format!("{count} voters"), || {
        let voters = world.voters(server)?;
        if voters.len() == count { Ok(()) } else { bail!("{voters:?}") }
    })
}

/// Uses the usual settings of heartbeats and leases, not the short ones of the other stories.
#[test]
fn a_server_dies_together_with_a_client() -> Result<()> {
    let options =
        ClusterOptions { servers: 3, subnet: 69, server: String::new(), ..ClusterOptions::default() };
    let mut cluster = Cluster::start(&options)?;
    cluster.run_job("web", WEB)?;
    let running = |cluster: &Cluster, other_than: &str| -> Result<(String, usize)> {
        let allocs = cluster.server().allocs("web")?;
        let is_running =
            |a: &&serde_json::Value| a["ClientStatus"] == "running" && a["NodeName"] != other_than;
        let alloc = allocs.iter().find(is_running).with_context(|| format!("{allocs:?}"))?;
        let node = alloc["NodeName"].as_str().unwrap_or_default().to_owned();
        let number = cluster.nodes().iter().position(|n| n.name == node).context("a node of no cluster")?;
        Ok((node, number))
    };
    let (name, node) = eventually("the job to run", || running(&cluster, ""))?;
    let address = cluster.server().get("/v1/status/leader")?;
    let leader = cluster.servers().iter().position(|s| address == s.agent().rpc_address().as_str());
    let leader = leader.context("the leader is no server of the cluster")?;
    let began = Instant::now();
    cluster.server_machine(leader).end(true)?;
    cluster.node(node).power_off()?;
    // The promise is 45 s; the deadline only ends a hang.
    eventually_within(Duration::from_secs(120), "the replacement to run", || running(&cluster, &name))?;
    println!("a server and its client died: the replacement ran after {} ms", began.elapsed().as_millis());
    let down = cluster.server().get("/v1/nodes")?;
    let down = down.as_array().into_iter().flatten().filter(|node| node["Status"] == "down").count();
    ensure!(down == 1, "{down} nodes are down");
    Ok(())
}

const WEB: &str = r#"
job "web" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["123456"]
      }
      resources {
        cpu    = 10
        memory = 16
      }
    }
  }
}
"#;
