//! A cluster on one machine: servers and clients as separate agents. Each agent has a separate host (network
//! namespace), each client separate mounts, and all of them share a storage system.
//!
//! Tests can inject the failures of real machines: kill, suspend and restart agents, disconnect networks,
//! kill plugins, and reboot machines.

mod disk;
mod jobs;
mod machines;
mod san;

pub use disk::Disk;
pub use jobs::{FaultPlugin, Stamper, fault_plugin_job, fault_volume_spec, stamper_job};
pub use machines::ServerMachine;
pub use san::{San, SanVolume, Stamp};

use crate::agent::{Agent, AgentOptions};
use crate::net::{Host, Switch};
use crate::space::Space;
use crate::wait::{eventually, eventually_within};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The number of clients.
    pub nodes: usize,
    /// The number of servers, which found one cluster.
    pub servers: usize,
    /// The third number of the hosts' addresses; any value works.
    pub subnet: u8,
    /// Additional configuration of each server in HCL.
    pub server: String,
    /// The name of a node's data directory below the directory of the node.
    pub data: String,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { nodes: 2, servers: 1, subnet: 1, server: SHORT.to_owned(), data: "data".to_owned() }
    }
}

/// Settings by which the server detects lost nodes within seconds, and uses their volumes again soon after.
const SHORT: &str = "server {\n heartbeat_grace = \"1s\"\n min_heartbeat_ttl = \"1s\"\n lease_ttl = \"2s\"\n \
                     lease_kill_grace = \"500ms\"\n lease_margin = \"500ms\"\n}\n";

/// A client and its machine.
#[derive(Debug)]
pub struct Node {
    /// The name of the node.
    pub name: String,
    agent: Agent,
    host: Host,
    space: Space,
    boots: u32,
    suspended: bool,
}

/// A running cluster. Dropping it kills all processes of its machines; the mounts and networks end with the
/// namespaces.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    servers: Vec<ServerMachine>,
    plugins: Vec<FaultPlugin>,
    dir: tempfile::TempDir,
    /// The name of a node's data directory below the directory of the node.
    data: String,
}

impl Cluster {
    /// Starts a cluster and waits until all nodes are ready.
    ///
    /// # Errors
    /// Fails if a node is not ready after the timeout.
    pub fn start(options: &ClusterOptions) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caravan-cluster-").tempdir()?;
        let switch = Switch::new(options.subnet)?;
        let servers = ServerMachine::found(&switch, options.servers, &options.server)?;
        let mut cluster =
            Self { nodes: Vec::new(), servers, plugins: Vec::new(), dir, data: options.data.clone() };
        for number in 1..=options.nodes {
            let node = cluster.node_on(&switch, &format!("n{number}"))?;
            cluster.nodes.push(node);
        }
        for node in &mut cluster.nodes {
            node.agent.wait_ready()?;
        }
        Ok(cluster)
    }

    fn node_on(&self, switch: &Switch, name: &str) -> Result<Node> {
        let (host, scratch) = (Host::on(switch)?, self.dir.path().join(name));
        fs::create_dir_all(&scratch)?;
        let space = Space::new(&scratch, &boot_id(name, 1))?;
        let agent = Agent::launch(AgentOptions {
            server: false,
            servers: self.servers.iter().map(|server| server.agent().rpc_address()).collect(),
            extra: format!("name = \"{name}\"\n"),
            host: Some(host.clone()),
            space: Some(space.clone()),
            data: self.data.clone(),
            ..AgentOptions::default()
        })?;
        Ok(Node { name: name.to_owned(), agent, host, space, boots: 1, suspended: false })
    }

    /// Returns the agent of a server that runs and is reachable, or of the first server if none is.
    pub fn server(&self) -> &Agent {
        let first = || self.servers.first().expect("a cluster has a server");
        self.servers.iter().find(|server| server.is_well()).unwrap_or_else(first).agent()
    }

    /// Returns all servers.
    pub fn servers(&self) -> &[ServerMachine] {
        &self.servers
    }

    /// Starts one more server, which waits to be admitted. Returns its number.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
    pub fn add_server(&mut self, extra: &str) -> Result<usize> {
        let number = self.servers.len();
        let added = ServerMachine::beside(&self.servers, extra)?;
        self.servers.push(added);
        Ok(number)
    }

    /// Returns a mutable reference to a server.
    ///
    /// # Panics
    /// Panics if no server has this number.
    pub fn server_machine(&mut self, number: usize) -> &mut ServerMachine {
        &mut self.servers[number]
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns a mutable reference to a node.
    ///
    /// # Panics
    /// Panics if no node has this number.
    pub fn node(&mut self, number: usize) -> &mut Node {
        &mut self.nodes[number]
    }

    /// Returns the directory of all files that do not belong to an agent.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the storage system behind a fault plugin.
    pub fn san(&self, plugin: &str) -> San {
        San::new(self.dir.path().join("san").join(plugin))
    }

    /// Runs a fault plugin on all nodes and waits until it is healthy on each.
    ///
    /// # Errors
    /// Fails if the plugin is unhealthy after the timeout.
    pub fn run_plugin(&mut self, plugin: &FaultPlugin) -> Result<()> {
        self.plugins.push(plugin.clone());
        let san = self.san(&plugin.id);
        fs::create_dir_all(san.dir())?;
        self.run_job(&format!("plugin-{}", plugin.id), &fault_plugin_job(plugin, san.dir()))?;
        let desired = Some(self.nodes.len() as u64);
        eventually(&format!("plugin {} to be healthy on all nodes", plugin.id), || {
            let row = self.server().get(&format!("/v1/plugin/csi/{}", plugin.id))?;
            let healthy = [&row["NodesHealthy"], &row["ControllersHealthy"]];
            if healthy.iter().all(|h| h.as_u64() == desired) { Ok(()) } else { bail!("{healthy:?}") }
        })
        .with_context(|| format!("--- log of the server\n{}", self.server().log_tail()))
    }

    /// Returns a plugin that was run.
    pub fn plugin(&self, id: &str) -> Option<&FaultPlugin> {
        self.plugins.iter().find(|plugin| plugin.id == id)
    }

    /// Returns whether the agents can drain nodes.
    ///
    /// # Errors
    /// Fails if the server does not respond.
    pub fn can_drain(&self) -> Result<bool> {
        let id = self.nodes.first().context("a cluster without nodes")?.agent.node_id()?;
        // The request does not change the node.
        let body = serde_json::json!({ "Eligibility": "eligible" });
        let reply = self.server().request("PUT", &format!("/v1/node/{id}/eligibility"), Some(&body))?;
        Ok(reply.status == 200)
    }

    /// Drains a node without waiting; allocations that remain after `deadline` seconds are stopped.
    ///
    /// # Errors
    /// Fails if the server refuses.
    pub fn drain(&self, node: usize, deadline: u64) -> Result<()> {
        let id = self.id_of(node)?;
        let deadline = format!("{deadline}s");
        self.server()
            .caravan(&["node", "drain", "-enable", "-deadline", &deadline, "-detach", "-yes", &id])?
            .ok()?;
        Ok(())
    }

    /// Ends a drain; the node becomes eligible again.
    ///
    /// # Errors
    /// Fails if the server refuses.
    pub fn undrain(&self, node: usize) -> Result<()> {
        let id = self.id_of(node)?;
        self.server().caravan(&["node", "drain", "-disable", "-detach", "-yes", &id])?.ok()?;
        Ok(())
    }

    /// Returns a node's id in the server.
    ///
    /// # Errors
    /// Fails if the server has no such node.
    pub fn id_of(&self, node: usize) -> Result<String> {
        let (nodes, name) = (self.server().get("/v1/nodes")?, &self.nodes[node].name);
        let row = nodes.as_array().into_iter().flatten().find(|n| n["Name"] == name.as_str());
        let id = row.and_then(|n| n["ID"].as_str()).map(str::to_owned);
        id.with_context(|| format!("the server does not know node {name}"))
    }

    /// Submits a job without waiting for its allocations.
    ///
    /// # Errors
    /// Fails if the server refuses.
    pub fn run_job(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.path().join(format!("{name}.nomad.hcl"));
        fs::write(&path, text)?;
        self.server().caravan(&["job", "run", "-detach", &path.to_string_lossy()])?.ok()?;
        Ok(())
    }

    /// Stops a job without waiting for its end.
    ///
    /// # Errors
    /// Fails if the server refuses.
    pub fn stop_job(&self, name: &str, purge: bool) -> Result<()> {
        let reply = self.server().request("DELETE", &format!("/v1/job/{name}?purge={purge}"), None)?;
        match reply.status {
            200 | 404 => Ok(()),
            status => bail!("stop job {name}: {status} {}", reply.text()),
        }
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// Fails if the volume cannot be created.
    pub fn create_volume(&self, id: &str, plugin: &str, access_mode: &str) -> Result<()> {
        let path = self.dir.path().join(format!("{id}.volume.hcl"));
        fs::write(&path, fault_volume_spec(id, plugin, access_mode))?;
        self.server().caravan(&["volume", "create", &path.to_string_lossy()])?.ok()?;
        Ok(())
    }

    /// Returns a volume with its claims.
    ///
    /// # Errors
    /// Fails if the volume does not exist, or the server does not respond.
    pub fn volume(&self, id: &str) -> Result<Value> {
        self.server().volume(id)
    }

    /// Kills the first server's agent, or stops it in order.
    ///
    /// # Errors
    /// Fails if the agent does not end.
    pub fn end_server(&mut self, outright: bool) -> Result<()> {
        self.server_machine(0).end(outright)
    }

    /// Starts the agents of all servers that do not run, and waits until all are ready.
    ///
    /// # Errors
    /// Fails if an agent is not ready after the timeout.
    pub fn start_server(&mut self) -> Result<()> {
        for server in &mut self.servers {
            server.start()?;
        }
        self.servers.iter_mut().try_for_each(ServerMachine::wait_ready)
    }

    /// Copies the material for an analysis into a directory: logs, traces, the state of the storage systems, and
    /// the server's volumes, allocations and evaluations.
    ///
    /// # Errors
    /// Fails if the directory cannot be written; missing sources are skipped.
    pub fn save(&self, to: &Path) -> Result<()> {
        fs::create_dir_all(to)?;
        let copy = |from: PathBuf, name: String| {
            // Some failures leave no file of this name.
            let _ = fs::copy(from, to.join(name));
        };
        for (number, server) in self.servers.iter().enumerate() {
            copy(server.agent().log_path(), format!("server-{}.log", number + 1));
        }
        for node in &self.nodes {
            copy(node.agent.log_path(), format!("{}.log", node.name));
            let below = node.agent.dir().to_string_lossy().into_owned();
            let mounts = node.space.mounts_below(&below).unwrap_or_default().join("\n");
            fs::write(to.join(format!("{}.mounts", node.name)), mounts)?;
        }
        for san in fs::read_dir(self.dir.path().join("san")).into_iter().flatten().flatten() {
            let name = san.file_name().to_string_lossy().into_owned();
            for file in ["trace.jsonl", "state.json", "faults.json"] {
                copy(san.path().join(file), format!("{name}.{file}"));
            }
            for data in fs::read_dir(san.path().join("data")).into_iter().flatten().flatten() {
                let volume = data.file_name().to_string_lossy().into_owned();
                copy(data.path().join("stamps"), format!("{volume}.stamps"));
            }
        }
        if self.server().is_started() {
            for list in ["volumes", "allocations", "evaluations", "nodes", "jobs"] {
                let query = if list == "volumes" { "?type=csi" } else { "?task_states=true" };
                let Ok(found) = self.server().get(&format!("/v1/{list}{query}")) else { continue };
                fs::write(to.join(format!("{list}.json")), serde_json::to_vec_pretty(&found)?)?;
                for volume in found.as_array().into_iter().flatten().filter(|_| list == "volumes") {
                    let id = volume["ID"].as_str().unwrap_or_default();
                    let Ok(whole) = self.volume(id) else { continue };
                    fs::write(to.join(format!("volume-{id}.json")), serde_json::to_vec_pretty(&whole)?)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Best effort: the test already has its result.
        for node in &mut self.nodes {
            let _ = node.end_all();
        }
        for server in &mut self.servers {
            let _ = server.end_all();
        }
    }
}

impl Node {
    /// Returns the node's agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the network of the node's machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the mount points of volumes in the node's data directory, in the view of the machine: staging
    /// paths, publish targets, and their bind mounts in tasks.
    ///
    /// # Errors
    /// Fails if the mount table cannot be read.
    pub fn volume_mounts(&self) -> Result<Vec<String>> {
        let mut mounts = self.space.mounts_below(&self.agent.data_dir().to_string_lossy())?;
        mounts
            .retain(|m| m.contains("/staging/") || m.contains("/per-alloc/") || m.contains("/local/volume"));
        Ok(mounts)
    }

    /// Returns the files named `stamps` below the data directory on the local disk, beneath any mounts.
    /// No such file must ever exist.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn stamps_on_local_disk(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        // The machine's mounts are not visible in this process.
        find(&self.agent.data_dir(), "stamps", &mut found)?;
        Ok(found)
    }

    /// Kills the agent with SIGKILL.
    ///
    /// # Errors
    /// Fails if the end of the process cannot be read.
    pub fn kill_agent(&mut self) -> Result<()> {
        self.suspended = false;
        self.agent.kill_9()
    }

    /// Stops the agent gracefully, like a service manager.
    ///
    /// # Errors
    /// Fails if the agent does not end.
    pub fn stop_agent(&mut self) -> Result<()> {
        self.resume()?;
        self.agent.stop_by(Signal::SIGTERM)
    }

    /// Starts the agent if it does not run, without waiting.
    ///
    /// # Errors
    /// Fails if the agent cannot be started.
    pub fn start_agent(&mut self) -> Result<()> {
        if self.agent.is_started() { Ok(()) } else { self.agent.spawn() }
    }

    /// Waits until the agent is ready.
    ///
    /// # Errors
    /// Fails if the agent is not ready after the timeout.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.agent.wait_ready()
    }

    /// Suspends the agent (SIGSTOP): it executes nothing and keeps all its resources.
    ///
    /// # Errors
    /// Fails if the agent does not run.
    pub fn suspend(&mut self) -> Result<()> {
        self.suspended = true;
        self.agent.signal(Signal::SIGSTOP)
    }

    /// Resumes a suspended agent.
    ///
    /// # Errors
    /// Fails if the agent does not run.
    pub fn resume(&mut self) -> Result<()> {
        if std::mem::take(&mut self.suspended) { self.agent.signal(Signal::SIGCONT) } else { Ok(()) }
    }

    /// Disconnects the machine's network.
    ///
    /// # Errors
    /// Fails if ip(8) refuses.
    pub fn cut(&self) -> Result<()> {
        self.host.cut()
    }

    /// Reconnects the machine's network.
    ///
    /// # Errors
    /// Fails if ip(8) refuses.
    pub fn mend(&self) -> Result<()> {
        self.host.mend()
    }

    /// Returns the machine's processes whose command line contains all of these texts.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn processes_with(&self, texts: &[&str]) -> Result<Vec<u32>> {
        let mut pids = self.host.processes()?;
        pids.retain(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            texts.iter().all(|text| line.contains(text))
        });
        Ok(pids)
    }

    /// Kills the machine's processes whose command line contains all of these texts. Returns their number.
    ///
    /// # Errors
    /// Fails if `/proc` cannot be read.
    pub fn kill_with(&self, texts: &[&str]) -> Result<usize> {
        let pids = self.processes_with(texts)?;
        for pid in &pids {
            // The process may have ended meanwhile.
            let _ = kill(Pid::from_raw(i32::try_from(*pid)?), Signal::SIGKILL);
        }
        Ok(pids.len())
    }

    /// Powers the machine off: every process ends and every mount disappears; the disk is kept.
    ///
    /// # Errors
    /// Fails if a process does not end.
    pub fn power_off(&mut self) -> Result<()> {
        self.end_all()?;
        self.boots += 1;
        let scratch = tempfile::tempdir()?;
        self.space = Space::new(scratch.path(), &boot_id(&self.name, self.boots))?;
        self.agent.set_space(self.space.clone());
        Ok(())
    }

    fn end_all(&mut self) -> Result<()> {
        self.kill_agent()?;
        kill_all(&self.host)
    }
}

/// Kills all processes of a host, including children that they start meanwhile.
fn kill_all(host: &Host) -> Result<()> {
    eventually_within(Duration::from_secs(30), "the processes of a host to end", || {
        let left = host.processes()?;
        for pid in &left {
            // The process may have ended meanwhile.
            let _ = kill(Pid::from_raw(i32::try_from(*pid)?), Signal::SIGKILL);
        }
        if left.is_empty() { Ok(()) } else { bail!("{left:?}") }
    })
}

/// Returns the boot id, in the kernel's form, of a node's nth boot.
fn boot_id(name: &str, boots: u32) -> String {
    let number: u32 = name.bytes().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("{number:08x}-0000-4000-8000-{boots:012x}")
}

fn find(below: &Path, name: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(below).into_iter().flatten() {
        let entry = entry?;
        // The entry may have been removed meanwhile, like a directory of an allocation.
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            find(&entry.path(), name, found)?;
        } else if entry.file_name() == name {
            found.push(entry.path());
        }
    }
    Ok(())
}
