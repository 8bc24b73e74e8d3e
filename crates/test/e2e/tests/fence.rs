//! The fence of a single-writer volume, of a plugin that does not attach, whatever happens to the agent
//! of the writer's node. The agents run on separate hosts and share a storage system; writers
//! continuously stamp the volume with the boot clock.

use crate::id_of;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::cluster::{Cluster, ClusterOptions, FaultPlugin, Stamper, stamper_job};
use caravan_testkit::eventually;
use serde_json::Value;

/// Short leases: volumes of lost nodes become available within seconds.
const SHORT: &str = "server {\n heartbeat_grace = \"1s\"\n min_heartbeat_ttl = \"1s\"\n failover_heartbeat_ttl = \"5s\"\n \
     lease_ttl = \"5s\"\n lease_kill_grace = \"1s\"\n lease_margin = \"1s\"\n}\n";

/// Leases that outlast the restart of an agent on a busy machine.
const LONG: &str =
    "server {\n heartbeat_grace = \"20s\"\n min_heartbeat_ttl = \"1s\"\n lease_ttl = \"60s\"\n}\n";

struct World {
    cluster: Cluster,
    /// The number of the writer's node.
    number: usize,
    alloc: String,
}

fn stamper() -> String {
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

impl World {
    /// Starts two nodes, and a writer on one of them.
    fn start(server: &str, subnet: u8, job: &str) -> Result<Self> {
        let options = ClusterOptions { nodes: 2, subnet, server: server.to_owned(), ..Default::default() };
        let mut cluster = Cluster::start(&options)?;
        cluster.run_plugin(&FaultPlugin::new("fault", false, true, &[]))?;
        cluster.create_volume("data", "fault", "single-node-writer")?;
        cluster.run_job("writer", job)?;
        let mut world = Self { cluster, number: 0, alloc: String::new() };
        (world.number, world.alloc) = world.running(None)?;
        world.stamped(&world.alloc)?;
        Ok(world)
    }

    /// Returns the node and id of the writer's only running allocation, other than `other_than`.
    fn running(&self, other_than: Option<&str>) -> Result<(usize, String)> {
        eventually("one writer to run", || {
            let allocs = self.cluster.server().allocs("writer")?;
            let running = |a: &&Value| a["ClientStatus"] == "running" && a["DesiredStatus"] == "run";
            let found: Vec<&Value> = allocs.iter().filter(running).collect();
            let [one] = found.as_slice() else { bail!("{} run: {allocs:?}", found.len()) };
            let id = id_of(one)?;
            ensure!(Some(id.as_str()) != other_than, "the first one still counts as running");
            let node = self.cluster.nodes().iter().position(|n| one["NodeName"] == n.name.as_str());
            Ok((node.context("it runs on no node of ours")?, id))
        })
        .with_context(|| format!("--- log of the server\n{}", self.cluster.server().log_tail()))
    }

    fn stamps_of(&self, alloc: &str) -> Result<Vec<u64>> {
        let stamps = self.cluster.san("fault").stamps("data")?;
        Ok(stamps.iter().filter(|stamp| stamp.alloc == alloc).map(|stamp| stamp.at).collect())
    }

    /// Waits until an allocation has written more stamps.
    fn stamped(&self, alloc: &str) -> Result<()> {
        let before = self.stamps_of(alloc)?.len();
        eventually("the writer to go on", || {
            let now = self.stamps_of(alloc)?.len();
            if now > before + 3 { Ok(()) } else { bail!("{now} stamps") }
        })
        .with_context(|| {
            format!("--- log of the node\n{}", self.cluster.nodes()[self.number].agent().log_tail())
        })
    }

    /// Returns the processes of an allocation's writer on a node.
    fn writers(&self, node: usize, alloc: &str) -> Result<Vec<u32>> {
        self.cluster.nodes()[node].processes_with(&["write --dir=", alloc])
    }

    fn alloc_is(&self, alloc: &str, status: &str) -> Result<Value> {
        eventually(&format!("allocation {alloc} to be {status}"), || {
            let found = self.cluster.server().get(&format!("/v1/allocation/{alloc}"))?;
            if found["ClientStatus"] == status { Ok(found) } else { bail!("{}", found["ClientStatus"]) }
        })
        .with_context(|| format!("--- log of the server\n{}", self.cluster.server().log_tail()))
    }

    fn node_is(&self, number: usize, status: &str) -> Result<()> {
        let name = self.cluster.nodes()[number].name.clone();
        eventually(&format!("node {name} to be {status}"), || {
            let nodes = self.cluster.server().get("/v1/nodes")?;
            let node = nodes.as_array().into_iter().flatten().find(|n| n["Name"] == name.as_str());
            let found = node.map(|n| n["Status"].clone()).unwrap_or_default();
            if found == status { Ok(()) } else { bail!("{found}") }
        })
    }

    /// Checks that exactly one writer remains, on the node where it runs.
    fn only(&self, number: usize, alloc: &str) -> Result<()> {
        eventually("nothing of the first writer to be left", || {
            let other = 1 - number;
            let mounts = self.cluster.nodes()[other].volume_mounts()?;
            ensure!(mounts.is_empty(), "mounts {mounts:?}");
            ensure!(self.cluster.nodes()[other].processes_with(&["write --dir="])?.is_empty(), "it runs");
            let volume = self.cluster.san("fault").volume("data")?.context("the volume is there")?;
            let here = self.cluster.nodes()[number].name.as_str();
            ensure!(volume.published.len() == 1 && volume.published[0].0 == here, "{volume:?}");
            let claims = self.cluster.volume("data")?["CaravanClaims"].clone();
            let held = claims.as_array().into_iter().flatten().filter(|c| c["Phase"] != "gone");
            let holders: Vec<&Value> = held.map(|c| &c["AllocID"]).collect();
            ensure!(holders == [alloc], "claims {claims}");
            for node in self.cluster.nodes() {
                let stray = node.stamps_on_local_disk()?;
                ensure!(stray.is_empty(), "{stray:?}");
            }
            Ok(())
        })
        .with_context(|| {
            format!("--- log of the node\n{}", self.cluster.nodes()[1 - number].agent().log_tail())
        })
    }

    /// Waits until the replacement waits with the fence as its reason.
    fn waits_for_the_fence(&self) -> Result<()> {
        eventually("the fence to be named", || {
            let claims = self.cluster.volume("data")?["CaravanClaims"].to_string();
            let evals = self.cluster.server().get("/v1/job/writer/evaluations")?.to_string();
            ensure!(claims.contains("is not in contact"), "{claims}");
            ensure!(evals.contains("blocked") && evals.contains("is not in contact"), "{evals}");
            Ok(())
        })
    }

    /// Waits until another writer runs on the other node, and checks that the first one was dead before. Returns its
    /// node and id.
    fn taken_over(&self) -> Result<(usize, String)> {
        let (number, second) = self.running(Some(&self.alloc))?;
        ensure!(number != self.number, "the second writer runs on the silent node");
        self.stamped(&second)?;
        ensure!(self.writers(self.number, &self.alloc)?.is_empty(), "the first writer runs");
        let last = self.stamps_of(&self.alloc)?.into_iter().max().context("the first wrote")?;
        let first = self.stamps_of(&second)?.into_iter().min().context("the second wrote")?;
        ensure!(last < first, "two writers at the same time: {last} and {first}");
        Ok((number, second))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Loss {
    Killed,
    Suspended,
    CutOff,
}

fn a_volume_changes_hands(loss: Loss, subnet: u8) -> Result<()> {
    let mut w = World::start(SHORT, subnet, &stamper())?;
    let number = w.number;
    let node = w.cluster.node(number);
    match loss {
        Loss::Killed => node.kill_agent()?,
        Loss::Suspended => node.suspend()?,
        Loss::CutOff => node.cut()?,
    }
    w.waits_for_the_fence()?;
    let (there, second) = w.taken_over()?;
    let node = w.cluster.node(number);
    match loss {
        Loss::Killed => node.start_agent()?,
        Loss::Suspended => node.resume()?,
        Loss::CutOff => node.mend()?,
    }
    w.node_is(number, "ready")?;
    w.only(there, &second)?;
    let first = w.alloc_is(&w.alloc, "failed")?;
    ensure!(first["TaskStates"].to_string().contains("Lease expired"), "{}", first["TaskStates"]);
    w.stamped(&second)?;
    w.cluster.stop_job("writer", false)?;
    w.cluster.server().wait_no_claims("data")
}

#[test]
fn the_agent_of_a_writer_is_killed() -> Result<()> {
    a_volume_changes_hands(Loss::Killed, 31)
}

#[test]
fn the_agent_of_a_writer_is_suspended() -> Result<()> {
    a_volume_changes_hands(Loss::Suspended, 32)
}

#[test]
fn the_host_of_a_writer_is_cut_off() -> Result<()> {
    a_volume_changes_hands(Loss::CutOff, 33)
}

/// Restores a snapshot that is older than the writer, while the host of the writer is cut off. The servers no longer
/// have its allocation, but its claim still holds the volume.
#[test]
fn a_restored_snapshot_lets_no_second_writer_in() -> Result<()> {
    let mut w = World::start(SHORT, 97, &stamper())?;
    let file = w.cluster.server().dir().join("before.snap").to_string_lossy().into_owned();
    w.cluster.stop_job("writer", true)?;
    w.cluster.server().wait_no_claims("data")?;
    w.cluster.server().caravan(&["operator", "snapshot", "save", &file])?.ok()?;
    w.cluster.run_job("writer", &stamper())?;
    (w.number, w.alloc) = w.running(None)?;
    w.stamped(&w.alloc)?;
    let number = w.number;
    w.cluster.node(number).cut()?;
    w.cluster.server().caravan(&["operator", "snapshot", "restore", &file])?.ok()?;
    ensure!(w.cluster.server().allocs("writer")?.iter().all(|a| a["ID"] != w.alloc.as_str()));
    w.cluster.run_job("writer", &stamper())?;
    let (there, second) = w.taken_over()?;
    w.cluster.node(number).mend()?;
    w.node_is(number, "ready")?;
    w.only(there, &second)?;
    w.stamped(&second)?;
    w.cluster.stop_job("writer", false)?;
    w.cluster.server().wait_no_claims("data")
}

/// Nodes count as lost within seconds, long before their leases expire.
const WIDE: &str = "server {\n heartbeat_grace = \"1s\"\n min_heartbeat_ttl = \"1s\"\n failover_heartbeat_ttl = \"5s\"\n \
     lease_ttl = \"15s\"\n lease_kill_grace = \"1s\"\n lease_margin = \"1s\"\n}\n";

/// Steps the wall clock of the server during a fence. The volume is not reused before the lease expired, and the wait
/// does not take longer.
fn the_clock_steps(seconds: i64, subnet: u8) -> Result<()> {
    let mut w = World::start(WIDE, subnet, &stamper())?;
    let number = w.number;
    w.cluster.node(number).suspend()?;
    w.waits_for_the_fence()?;
    w.cluster.server().step_clock(seconds)?;
    // The task runs as long as the lease.
    w.stamped(&w.alloc)?;
    let (there, second) = w.taken_over()?;
    let times = |id: &str| -> Result<i64> {
        let alloc = w.cluster.server().get(&format!("/v1/allocation/{id}"))?;
        alloc["CreateTime"].as_i64().context("an allocation without a time")
    };
    let apart = (times(&second)? - times(&w.alloc)?) / 1_000_000_000;
    ensure!((apart - seconds).abs() < 90, "the clock did not step: this needs a build with debug assertions");
    w.cluster.node(number).resume()?;
    w.node_is(number, "ready")?;
    w.only(there, &second)?;
    w.cluster.stop_job("writer", false)?;
    w.cluster.server().wait_no_claims("data")
}

#[test]
fn the_clock_of_the_server_steps_forward_during_a_fence() -> Result<()> {
    the_clock_steps(120, 36)
}

#[test]
fn the_clock_of_the_server_steps_back_during_a_fence() -> Result<()> {
    the_clock_steps(-3600, 37)
}

/// Steps the wall clock of the writer's node while it is disconnected: the lease keeps its length.
#[test]
fn the_clock_of_the_node_steps_while_it_is_cut_off() -> Result<()> {
    let mut w = World::start(SHORT, 38, &stamper())?;
    let number = w.number;
    w.cluster.node(number).cut()?;
    w.cluster.nodes()[number].agent().step_clock(-3600)?;
    let (there, second) = w.taken_over()?;
    w.cluster.node(number).mend()?;
    w.node_is(number, "ready")?;
    w.only(there, &second)?;
    w.cluster.stop_job("writer", false)?;
    w.cluster.server().wait_no_claims("data")
}

/// Leases longer than any test.
const ENDLESS: &str = "server {\n heartbeat_grace = \"1s\"\n min_heartbeat_ttl = \"1s\"\n failover_heartbeat_ttl = \"5s\"\n \
     lease_ttl = \"24h\"\n}\n";

#[test]
fn an_operator_says_that_a_machine_is_off() -> Result<()> {
    let mut w = World::start(ENDLESS, 39, &stamper())?;
    let (number, node) = (w.number, w.cluster.id_of(w.number)?);
    let fence = ["node", "fence", "-confirm-off", "-yes", node.as_str()];
    let refused = w.cluster.server().caravan(&fence)?.failed()?;
    ensure!(refused.stderr.contains("is ready and answers"), "{}", refused.stderr);
    let usage = w.cluster.server().caravan(&["node", "fence", &node])?.failed()?;
    ensure!(usage.stderr.contains("-confirm-off"), "{}", usage.stderr);
    w.cluster.node(number).power_off()?;
    w.node_is(number, "down")?;
    w.waits_for_the_fence()?;
    let detach = w.cluster.server().caravan(&["volume", "detach", "data", &node])?.ok()?;
    ensure!(
        detach.stderr.contains("handed on in ") && detach.stderr.contains("node fence"),
        "{}",
        detach.stderr
    );
    let reported = w.cluster.server().get("/v1/volume/csi/data/explain")?;
    let left = reported["Claims"][0]["FenceLeft"].as_i64().unwrap_or_default();
    ensure!(
        left > 23 * 3_600_000_000_000 && reported["Summary"].to_string().contains("(still "),
        "{reported}"
    );

    w.cluster.server().caravan(&fence)?.ok()?;
    let (there, second) = w.running(Some(&w.alloc))?;
    ensure!(there != number);
    w.stamped(&second)?;
    let reported = w.cluster.server().caravan(&["volume", "explain", "-verbose", "data"])?.ok()?.stdout;
    ensure!(reported.contains("confirmed that the node is off"), "{reported}");
    let events = w.cluster.server().get(&format!("/v1/node/{node}"))?["Events"].to_string();
    ensure!(events.contains("confirmed to be off"), "{events}");

    // The node was off and starts again.
    w.cluster.node(number).start_agent()?;
    w.node_is(number, "ready")?;
    w.only(there, &second)?;
    w.cluster.stop_job("writer", false)?;
    w.cluster.server().wait_no_claims("data")
}

#[test]
fn agents_and_servers_that_come_back_in_time_end_nothing() -> Result<()> {
    let mut w = World::start(LONG, 34, &stamper())?;
    let (number, alloc) = (w.number, w.alloc.clone());
    let writer = w.writers(number, &alloc)?;
    ensure!(writer.len() == 1, "{writer:?}");
    for round in ["killed", "stopped", "server killed", "server stopped"] {
        match round {
            "killed" => w.cluster.node(number).kill_agent()?,
            "stopped" => w.cluster.node(number).stop_agent()?,
            server => w.cluster.end_server(server == "server killed")?,
        }
        w.stamped(&alloc)?;
        w.cluster.start_server()?;
        w.cluster.node(number).start_agent()?;
        w.cluster.node(number).wait_ready()?;
        w.stamped(&alloc)?;
        ensure!(w.writers(number, &alloc)? == writer, "another process after: {round}");
    }
    ensure!(w.running(None)? == (number, alloc), "the allocation was replaced");
    ensure!(w.cluster.server().allocs("writer")?.len() == 1);
    w.cluster.stop_job("writer", false)?;
    w.cluster.server().wait_no_claims("data")
}

/// A job without a volume whose allocations may reconnect.
const PATIENT: &str = r#"
job "patient" {
  group "g" {
    disconnect {
      lost_after = "10m"
      replace    = false
    }
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

#[test]
fn what_may_come_back_is_unknown_until_it_does() -> Result<()> {
    let job = stamper()
        .replace("    count = 1\n", "    count = 1\n    disconnect {\n      lost_after = \"10m\"\n    }\n");
    let mut w = World::start(SHORT, 35, &job)?;
    let number = w.number;
    // On the writer's node, so that both lose contact.
    let name = w.cluster.nodes()[number].name.clone();
    let pinned = PATIENT.replace(
        "  group \"g\" {",
        &format!("  constraint {{\n    attribute = \"${{node.unique.name}}\"\n    value = \"{name}\"\n  }}\n  group \"g\" {{"),
    );
    w.cluster.run_job("patient", &pinned)?;
    let patient = id_of(&w.cluster.server().wait_alloc("patient", "running")?)?;
    let before = w.cluster.nodes()[number].processes_with(&["/bin/sleep 123456"])?;

    w.cluster.node(number).cut()?;
    w.node_is(number, "disconnected")?;
    w.alloc_is(&patient, "unknown")?;
    w.alloc_is(&w.alloc, "unknown")?;
    w.waits_for_the_fence()?;
    // The volume is reused although the first writer's status is unknown: its lease has expired, so it is certainly
    // dead.
    let (there, second) = w.taken_over()?;
    let after = w.cluster.nodes()[number].processes_with(&["/bin/sleep 123456"])?;
    ensure!(before.len() == 1 && before == after, "{before:?} {after:?}");

    w.cluster.node(number).mend()?;
    w.node_is(number, "ready")?;
    w.alloc_is(&patient, "running")?;
    ensure!(w.cluster.nodes()[number].processes_with(&["/bin/sleep 123456"])? == before, "started anew");
    ensure!(w.cluster.server().allocs("patient")?.len() == 1);
    let first = w.alloc_is(&w.alloc, "failed")?;
    ensure!(first["ClientDescription"] == "Lease of the node expired", "{}", first["ClientDescription"]);
    w.only(there, &second)?;
    w.cluster.stop_job("writer", false)?;
    w.cluster.server().wait_no_claims("data")
}
