//! Outages of servers as processes on separate hosts: cuts of the network, frozen servers, disks that are wiped, full
//! or hang, other addresses, replaced servers. A job with a volume for one writer runs all the time.
//!
//! After each outage: no two writers wrote at the same time, the writer continues, and every acknowledged write
//! exists.

mod cuts;
mod disks;
mod moves;

use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::chaos::one_writer_at_a_time;
use caravan_testkit::cluster::{Cluster, ClusterOptions, FaultPlugin, Stamper, stamper_job};
use caravan_testkit::{Agent, eventually};
use serde_json::{Value, json};

/// A cluster with a writer on a volume, and the writes that servers acknowledged.
struct World {
    cluster: Cluster,
    acknowledged: Vec<String>,
    next: usize,
}

impl World {
    fn start(servers: usize, subnet: u8) -> Result<Self> {
        Self::with(ClusterOptions { servers, subnet, ..ClusterOptions::default() })
    }

    fn with(options: ClusterOptions) -> Result<Self> {
        let mut cluster = Cluster::start(&options)?;
        cluster.run_plugin(&FaultPlugin::new("p", true, true, &[]))?;
        cluster.create_volume("data", "p", "single-node-writer")?;
        cluster.run_job("writer", &writer())?;
        let mut world = Self { cluster, acknowledged: Vec::new(), next: 0 };
        world.goes_on()?;
        Ok(world)
    }

    fn agent(&self, server: usize) -> &Agent {
        self.cluster.servers()[server].agent()
    }

    /// Waits until a majority of these servers name one of them as the leader. Returns its number.
    fn leader_among(&self, servers: &[usize]) -> Result<usize> {
        eventually(&format!("a leader among {servers:?}"), || {
            let mut votes = vec![0; self.cluster.servers().len()];
            for number in servers {
                let named = self.agent(*number).get("/v1/status/leader?stale")?;
                let leader = servers.iter().find(|n| named == self.agent(**n).rpc_address().as_str());
                if let Some(leader) = leader {
                    votes[*leader] += 1;
                }
            }
            let found = votes.iter().position(|votes| *votes * 2 > servers.len());
            found.with_context(|| format!("{votes:?}"))
        })
    }

    fn all(&self) -> Vec<usize> {
        (0..self.cluster.servers().len()).filter(|n| self.cluster.servers()[*n].is_well()).collect()
    }

    fn leader(&self) -> Result<usize> {
        self.leader_among(&self.all())
    }

    /// Returns the other servers.
    fn others(&self, than: usize) -> Vec<usize> {
        self.all().into_iter().filter(|number| *number != than).collect()
    }

    /// Writes through a server until one write is acknowledged.
    fn write_at(&mut self, server: usize) -> Result<()> {
        eventually(&format!("a write through server {server}"), || {
            self.next += 1;
            let (name, agent) = (format!("w{}", self.next), self.cluster.servers()[server].agent());
            let body = json!({ "Items": { "v": name } });
            let reply = agent.request("PUT", &format!("/v1/var/{name}"), Some(&body))?;
            ensure!(reply.status == 200, "{} {}", reply.status, reply.text());
            self.acknowledged.push(name);
            Ok(())
        })
        .with_context(|| format!("--- log of the server\n{}", self.agent(server).log_tail()))
    }

    /// Checks that the writer writes, that it is the only one, and that nothing acknowledged is lost.
    fn goes_on(&mut self) -> Result<()> {
        let server = self.leader()?;
        self.write_at(server)?;
        let before = self.cluster.san("p").stamps("data")?.len();
        eventually("the writer to go on", || {
            let allocs = self.agent(server).allocs("writer")?;
            let running: Vec<&Value> = allocs.iter().filter(|a| a["ClientStatus"] == "running").collect();
            let [one] = running.as_slice() else { bail!("{} run: {allocs:?}", running.len()) };
            let stamps = self.cluster.san("p").stamps("data")?;
            let last = stamps.last().context("no stamps")?;
            ensure!(one["ID"] == last.alloc.as_str() && stamps.len() > before + 3, "{} stamps", stamps.len());
            Ok(())
        })
        .with_context(|| self.describe(server))?;
        let stamps = self.cluster.san("p").stamps("data")?;
        one_writer_at_a_time(&stamps).map_err(|words| anyhow::anyhow!("two writers at once: {words}"))?;
        for name in &self.acknowledged {
            let found = self.agent(server).get(&format!("/v1/var/{name}"))?;
            ensure!(found["Items"]["v"] == name.as_str(), "the acknowledged write {name} is lost: {found}");
        }
        Ok(())
    }

    /// Returns the volume and the logs, for the report of a failure.
    fn describe(&self, leader: usize) -> String {
        let mut text = format!("--- the volume\n{:?}\n", self.cluster.volume("data"));
        text += &format!("--- log of the leader\n{}\n", self.agent(leader).log_tail());
        for node in self.cluster.nodes() {
            text += &format!("--- log of a client\n{}\n", node.agent().log_tail());
        }
        text
    }

    /// Checks that a server has all acknowledged writes itself.
    fn has_all(&self, server: usize) -> Result<()> {
        let last = self.acknowledged.last().context("no write")?;
        eventually(&format!("server {server} to have write {last}"), || {
            let found = self.agent(server).get(&format!("/v1/var/{last}?stale"))?;
            if found["Items"]["v"] == last.as_str() { Ok(()) } else { bail!("{found}") }
        })
    }

    /// Returns the ids of the allocations that the writer ever had.
    fn allocations(&self) -> Result<Vec<String>> {
        let allocs = self.agent(self.leader()?).allocs("writer")?;
        let mut ids: Vec<String> =
            allocs.iter().map(|a| a["ID"].as_str().unwrap_or_default().to_owned()).collect();
        ids.sort();
        Ok(ids)
    }

    /// Returns the voters by the name of their server.
    fn voters(&self, server: usize) -> Result<Vec<(String, String)>> {
        let configuration = self.agent(server).get("/v1/operator/raft/configuration")?;
        let servers = configuration["Servers"].as_array().cloned().unwrap_or_default();
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let voters = servers.iter().filter(|row| row["Voter"] == true);
        Ok(voters.map(|row| (text(row, "Node"), text(row, "Address"))).collect())
    }
}

fn writer() -> String {
    stamper_job(&Stamper {
        id: "writer".into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        count: 1,
        version: 0,
        broken_mount: "hold".into(),
    })
}
