//! Measures volumes: many mounts with a slow plugin, one failing volume next to healthy ones, and a large idle state
//! of volumes.

use super::agent::{build, millis, put, wait_count};
use super::{figure, median};
use anyhow::{Context, Result, bail};
use caravan_messages::{AllocStatus, ClaimReport, ClaimReportStep, NodeHeartbeat, NodeRegister, WatchAllocs};
use caravan_rpc::{Channel, ConnectOptions, PeerIdentity, Secret, methods};
use caravan_testkit::{Agent, AgentOptions, eventually_within};
use caravan_types::alloc::{AllocUpdate, ClientStatus};
use caravan_types::node::{DriverInfo, Node, NodeSecret};
use caravan_types::plugin::{CsiInfo, CsiNodeInfo};
use caravan_types::volume::{ClaimId, MountProof};
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of volumes that are mounted together, and next to a failing one.
const MOUNTS: usize = 200;
const BESIDE: usize = 40;
/// The agent's default of `volume_calls_per_plugin`.
const LIMIT: usize = 8;
/// The large state: families of volumes, volumes in each, users of each volume, nodes.
const FAMILIES: usize = 5;
const MEMBERS: usize = 1000;
const USERS: usize = 4;
const NODES: usize = 20;
const PAGES: usize = 101;

fn print(case: &str, value: f64, unit: &str) {
    figure("volumes", case, value, unit);
}

pub fn run(release: bool) -> Result<()> {
    build(release)?;
    mounts()?;
    large_state()
}

/// Measures mounts with a slow plugin, alone and next to a volume that always fails.
fn mounts() -> Result<()> {
    let agent = Agent::with(AgentOptions::default())?;
    let san = agent.dir().join("san");
    fs::create_dir_all(&san)?;
    put(&agent, "/v1/jobs", &plugin(&san))?;
    agent.wait_plugin("fault")?;
    create(&agent, "many", MOUNTS)?;
    let slow = |ms: u64| {
        let calls = ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"];
        calls.map(|call| json!({ "call": call, "action": "delay", "ms": ms })).to_vec()
    };
    faults(&san, &slow(1000))?;
    let took = run_all(&agent, "many", MOUNTS)?;
    // Attaching is limited by the plugin's lane; staging and publishing follow for each volume separately.
    let ideal = seconds(MOUNTS.div_ceil(LIMIT)) + 2.0;
    print(&format!("{MOUNTS} volumes, 1 s a call, {LIMIT} at a time: submit to running"), took, "s");
    print("the same, ratio to the ideal", took / ideal, "");
    faults(&san, &[])?;
    stop(&agent, "many", MOUNTS)?;

    create(&agent, "good", BESIDE)?;
    create(&agent, "bad", 1)?;
    faults(&san, &slow(200))?;
    let alone = run_all(&agent, "good", BESIDE)?;
    stop(&agent, "good", BESIDE)?;
    let mut rules = slow(200);
    rules.insert(
        0,
        json!({ "call": "ControllerPublishVolume", "volume": "bad[0]", "action": "fail", "code": "Unavailable" }),
    );
    faults(&san, &rules)?;
    put(&agent, "/v1/jobs", &users("bad", 1))?;
    eventually_within(Duration::from_secs(60), "the bad volume failing", || {
        let reported = agent.get("/v1/volume/csi/bad%5B0%5D/explain")?;
        match reported["Claims"][0]["Tries"].as_u64() {
            Some(tries) if tries >= 2 => Ok(()),
            _ => bail!("{reported}"),
        }
    })?;
    let beside = run_all(&agent, "good", BESIDE)?;
    print(&format!("{BESIDE} volumes alone: submit to running"), alone, "s");
    print("the same beside one that always fails, ratio", beside / alone, "");
    faults(&san, &[])?;
    stop(&agent, "good", BESIDE)?;
    stop(&agent, "bad", 1)
}

fn seconds(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

fn faults(san: &Path, rules: &[Value]) -> Result<()> {
    // The file is replaced as a whole, so that no call reads a part of it.
    let next = san.join("faults.next");
    fs::write(&next, serde_json::to_vec(rules)?)?;
    fs::rename(next, san.join("faults.json"))?;
    Ok(())
}

fn plugin(san: &Path) -> Value {
    json!({ "Job": {
        "ID": "fault", "Name": "fault", "Type": "system", "Datacenters": ["*"],
        "TaskGroups": [{
            "Name": "plugin",
            "Tasks": [{
                "Name": "plugin", "Driver": "raw_exec",
                "Config": {
                    "command": caravan_testkit::fault_plugin(),
                    "args": ["serve", "--endpoint=${CSI_ENDPOINT}", "--nodeid=${node.unique.name}", format!("--san={}", san.display())],
                },
                "Resources": { "CPU": 20, "MemoryMB": 64 },
                "CSIPluginConfig": { "ID": "fault", "Type": "monolith" },
            }],
        }],
    }})
}

/// Creates `name[0]`, `name[1]` and so on, of the fault plugin.
fn create(agent: &Agent, name: &str, count: usize) -> Result<()> {
    let volumes: Vec<Value> = (0..count)
        .map(|n| {
            json!({
                "ID": format!("{name}[{n}]"), "Name": format!("{name}[{n}]"),
                "PluginID": "fault", "Namespace": "default",
                "RequestedCapabilities": [{ "AccessMode": "single-node-writer", "AttachmentMode": "file-system" }],
            })
        })
        .collect();
    put(agent, &format!("/v1/volume/csi/{name}/create"), &json!({ "Volumes": volumes })).map(drop)
}

/// Returns a job with `count` allocations, each with its own volume.
fn users(name: &str, count: usize) -> Value {
    let mut job = super::agent::sleeper(name, "raw_exec", count);
    let group = &mut job["Job"]["TaskGroups"][0];
    group["Volumes"] = json!({ "data": {
        "Name": "data", "Type": "csi", "Source": name, "PerAlloc": true,
        "AccessMode": "single-node-writer", "AttachmentMode": "file-system",
    }});
    group["Tasks"][0]["VolumeMounts"] = json!([{ "Volume": "data", "Destination": "data" }]);
    job
}

fn run_all(agent: &Agent, name: &str, count: usize) -> Result<f64> {
    let begun = Instant::now();
    put(agent, "/v1/jobs", &users(name, count))?;
    wait_count(agent, name, "Running", count)?;
    Ok(millis(begun) / 1000.0)
}

fn stop(agent: &Agent, name: &str, count: usize) -> Result<()> {
    agent.request("DELETE", &format!("/v1/job/{name}?purge=true"), None)?;
    for n in 0..count {
        agent.wait_no_claims(&format!("{name}[{n}]"))?;
    }
    Ok(())
}

/// Measures a server with many volumes and allocations, whose clients are simulated.
fn large_state() -> Result<()> {
    let agent = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(fill(&agent))?;
    let (volumes, allocs) = (FAMILIES * MEMBERS, FAMILIES * MEMBERS * USERS);
    let mut times = Vec::new();
    for _ in 0..PAGES {
        let begun = Instant::now();
        let page = agent.get("/v1/volumes?type=csi&per_page=50")?;
        times.push(millis(begun));
        if page.as_array().map(Vec::len) != Some(50) {
            bail!("the page is not full");
        }
    }
    print(&format!("page of 50 of {volumes} volumes with {allocs} allocations, median"), median(times), "ms");
    let span = Duration::from_secs(30);
    let before = processor_time(agent.pid())?;
    std::thread::sleep(span);
    let used = processor_time(agent.pid())? - before;
    print("idle server with those, processor time", used / span.as_secs_f64() * 100.0, "%");
    Ok(())
}

/// Returns the seconds of CPU time that a process has used (proc(5), `stat`).
pub(super) fn processor_time(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit_once(')').context("no name")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: f64 = fields.get(11).context("no utime")?.parse::<f64>()?
        + fields.get(12).context("no stime")?.parse::<f64>()?;
    // USER_HZ is 100 on every architecture of Linux.
    Ok(ticks / 100.0)
}

/// A simulated node, which runs nothing.
pub(super) struct Ghost {
    row: Node,
    channel: Channel,
}

impl Ghost {
    pub(super) fn new(agent: &Agent, n: usize) -> Self {
        let mut row = Node {
            id: format!("00000000-0000-4000-8000-{n:012}").into(),
            secret_id: NodeSecret::new(format!("secret-{n}")),
            name: format!("ghost-{n}").into(),
            datacenter: "dc1".into(),
            node_pool: "default".into(),
            ..Default::default()
        };
        let driver = DriverInfo { detected: true, healthy: true, ..Default::default() };
        row.drivers.insert("raw_exec".into(), driver);
        row.node_resources.cpu.cpu_shares = 10_000_000;
        row.node_resources.memory.memory_mb = 100_000_000;
        row.node_resources.disk.disk_mb = 1_000_000_000;
        let node_info = CsiNodeInfo { id: row.name.to_string(), max_volumes: i64::MAX, ..Default::default() };
        let info = CsiInfo {
            plugin_id: "ghost".into(),
            healthy: true,
            node_info: Some(node_info),
            ..Default::default()
        };
        row.csi_node_plugins.insert("ghost".into(), info);
        let identity =
            PeerIdentity::Client { node_id: row.id.to_string(), secret: Secret::new(row.secret_id.expose()) };
        let channel = Channel::connect(ConnectOptions::new(vec![agent.rpc_address()], identity, "global"));
        Self { row, channel }
    }

    pub(super) async fn register(&self) -> Result<()> {
        self.channel.call::<methods::NodeRegister>(NodeRegister { node: self.row.clone() }, None).await?;
        Ok(())
    }

    /// Sends heartbeats as long as the runtime lives.
    pub(super) fn stay_alive(&self) {
        let (channel, node_id, secret) =
            (self.channel.clone(), self.row.id.clone(), self.row.secret_id.clone());
        tokio::spawn(async move {
            loop {
                let beat =
                    NodeHeartbeat { node_id: node_id.clone(), secret: secret.clone(), wants_identity: false };
                // The next heartbeat replaces a failed one.
                let pause = match channel.call::<methods::NodeHeartbeat>(beat, None).await {
                    Ok(contact) => contact.heartbeat_ttl.to_std() / 2,
                    Err(_) => Duration::from_secs(1),
                };
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Reports all desired allocations as running with mounted volumes. Returns their number.
    async fn pretend(&self, known: &mut BTreeSet<ClaimId>) -> Result<usize> {
        let (node_id, secret) = (self.row.id.clone(), self.row.secret_id.clone());
        let request = WatchAllocs { node_id: node_id.clone(), secret: secret.clone(), after: 0 };
        let mut watch = self.channel.stream::<methods::WatchAllocs>(request);
        let delta = watch.next().await.context("the stream of allocations ended")??;
        let mut updates = Vec::new();
        let mut claims = Vec::new();
        for alloc in &delta.allocs {
            updates.push(AllocUpdate {
                alloc_id: alloc.id.clone(),
                client_status: ClientStatus::Running,
                ..Default::default()
            });
            let group = alloc.group().context("an allocation without its group")?;
            for (_, request) in group.csi_volumes() {
                let source = request.source_for(&alloc.name);
                let volume = caravan_types::VolumeKey::new(alloc.namespace.clone(), source);
                claims.push(ClaimId { volume, alloc: alloc.id.clone() });
            }
        }
        self.channel
            .call::<methods::AllocStatus>(
                AllocStatus { node_id: node_id.clone(), secret: secret.clone(), updates },
                None,
            )
            .await?;
        claims.retain(|claim| !known.contains(claim));
        let proof = MountProof { path: "/ghost".into(), device: "0:1".into(), mount_id: 1 };
        let reports = claims.iter().map(|claim| {
            let report = ClaimReport {
                node_id: node_id.clone(),
                secret: secret.clone(),
                claim: claim.clone(),
                generation: 0,
                step: ClaimReportStep::Mounted { proof: proof.clone() },
            };
            self.channel.call::<methods::ClaimReport>(report, None)
        });
        let mut answers = futures::stream::iter(reports).buffer_unordered(64);
        while let Some(answer) = answers.next().await {
            answer?;
        }
        drop(answers);
        let found = claims.len();
        known.extend(claims);
        Ok(found)
    }
}

async fn fill(agent: &Agent) -> Result<()> {
    let ghosts: Vec<Ghost> = (0..NODES).map(|n| Ghost::new(agent, n)).collect();
    for ghost in &ghosts {
        ghost.register().await?;
        ghost.stay_alive();
    }
    for family in 0..FAMILIES {
        let volumes: Vec<Value> = (0..MEMBERS)
            .map(|n| {
                json!({
                    "ID": format!("v{family}[{n}]"), "Name": format!("v{family}[{n}]"), "ExternalID": format!("e{family}-{n}"),
                    "PluginID": "ghost", "Namespace": "default",
                    "RequestedCapabilities": [{ "AccessMode": "multi-node-reader-only", "AttachmentMode": "file-system" }],
                })
            })
            .collect();
        put(agent, "/v1/volumes", &json!({ "Volumes": volumes }))?;
    }
    let mut known = BTreeSet::new();
    for family in 0..FAMILIES {
        for user in 0..USERS {
            let mut job = users(&format!("v{family}"), MEMBERS);
            job["Job"]["ID"] = json!(format!("v{family}-{user}"));
            let request = &mut job["Job"]["TaskGroups"][0]["Volumes"]["data"];
            request["AccessMode"] = json!("multi-node-reader-only");
            request["ReadOnly"] = json!(true);
            put(agent, "/v1/jobs", &job)?;
        }
    }
    let all = FAMILIES * MEMBERS * USERS;
    let deadline = Instant::now() + Duration::from_secs(600);
    while known.len() < all {
        if Instant::now() > deadline {
            bail!("only {} of {all} claims came to be", known.len());
        }
        for ghost in &ghosts {
            // A connection may time out while the server is busy with plans: the next round retries.
            if let Err(error) = ghost.pretend(&mut known).await {
                eprintln!("{}: {error}", ghost.row.name);
            }
        }
    }
    Ok(())
}
