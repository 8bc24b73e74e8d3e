//! An agent as a separate process, with its own ports and directories.

mod api;
mod process;

use crate::cli::program;
use crate::net::Host;
use crate::space::Space;
use crate::wait::eventually;
use anyhow::{Context, Result, bail};
use caravan_sys::time::CLOCK_STEP_VARIABLE;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The program; absent means the program under test.
    pub program: Option<PathBuf>,
    /// Whether to run with `-dev`, where nothing survives a restart.
    pub dev: bool,
    /// Whether the agent has a server.
    pub server: bool,
    /// Whether the agent has a client.
    pub client: bool,
    /// The number of servers that found the cluster (`bootstrap_expect`).
    pub expect: usize,
    /// The gossip addresses of the servers to join.
    pub join: Vec<String>,
    /// The gossip port; 0 means a free one.
    pub serf_port: u16,
    /// RPC addresses of servers, for an agent without a server.
    pub servers: Vec<String>,
    /// A second configuration that is merged over the first: HCL, or JSON if it begins with a brace.
    pub extra: String,
    /// Additional arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// The network of the agent: absent means this machine with free ports; an agent on a separate host has
    /// the default ports.
    pub host: Option<Host>,
    /// The mount namespace of the agent; absent means the namespace of this process.
    pub space: Option<Space>,
    /// The name of the data directory below the directory of the test.
    pub data: String,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            program: None,
            dev: false,
            server: true,
            client: true,
            expect: 1,
            join: Vec::new(),
            serf_port: 0,
            servers: Vec::new(),
            extra: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            host: None,
            space: None,
            data: "data".to_owned(),
        }
    }
}

impl AgentOptions {
    /// Returns options for an agent that is only a client of a running server.
    pub fn client_of(server: &Agent) -> Self {
        Self { server: false, servers: vec![server.rpc_address()], ..Self::default() }
    }
}

/// A running agent. Dropping it ends the agent and all its tasks, and removes its mounts.
#[derive(Debug)]
pub struct Agent {
    options: AgentOptions,
    child: Option<Child>,
    /// The length of the log in bytes when the process was started.
    log_before: u64,
    dir: tempfile::TempDir,
    http_port: u16,
    rpc_port: u16,
    serf_port: u16,
}

impl Agent {
    /// Starts an agent with a data directory, server and client in one, and waits until its node is
    /// ready.
    ///
    /// # Errors
    /// Fails if the node is not ready after the timeout.
    pub fn start() -> Result<Self> {
        Self::with(AgentOptions::default())
    }

    /// Starts an agent and waits until its API responds, and until its node is ready if it has a node.
    ///
    /// # Errors
    /// Fails after the timeout; the error has the end of the log.
    pub fn with(options: AgentOptions) -> Result<Self> {
        let mut agent = Self::launch(options)?;
        agent.wait_ready()?;
        Ok(agent)
    }

    /// Starts an agent without waiting, for agents that are not expected to become ready.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
    pub fn launch(options: AgentOptions) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caravan-test-").tempdir()?;
        let (http_port, rpc_port) = match options.host {
            Some(_) => (4646, 4647),
            None => (free_port()?, free_port()?),
        };
        let serf_port = match (&options.host, options.serf_port) {
            (Some(_), 0) => 4648,
            (None, 0) => free_port()?,
            (_, port) => port,
        };
        let mut agent = Self { options, child: None, log_before: 0, dir, http_port, rpc_port, serf_port };
        agent.spawn()?;
        Ok(agent)
    }

    /// Starts the process (again) with the same directories and ports, and waits until it is ready.
    ///
    /// # Errors
    /// Fails if the agent is not ready after the timeout.
    pub fn run(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Starts the process (again) without waiting.
    ///
    /// # Errors
    /// Fails if the process cannot be started, or already runs.
    pub fn spawn(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child
            && child.try_wait()?.is_none()
        {
            bail!("the agent runs already: nobody would end the first one");
        }
        let config = self.dir.path().join("agent.hcl");
        fs::write(&config, self.config())?;
        let more = self.dir.path().join("agent.d");
        fs::create_dir_all(&more)?;
        let kind = if self.options.extra.starts_with('{') { "json" } else { "hcl" };
        fs::write(more.join(format!("extra.{kind}")), &self.options.extra)?;
        let log = File::options().create(true).append(true).open(self.log_path())?;
        self.log_before = log.metadata()?.len();
        let mut command = Command::new(self.options.program.clone().unwrap_or_else(program));
        command.arg("agent");
        if self.options.dev {
            command.arg("-dev");
        }
        command.arg("-config").arg(&config).arg("-config").arg(&more).args(&self.options.args);
        command.env(CLOCK_STEP_VARIABLE, self.clock_step());
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = self.inside(|| command.spawn())?;
        self.child = Some(child.context("start the agent")?);
        Ok(())
    }

    /// Returns the path of the file with the offset of the agent's wall clock.
    fn clock_step(&self) -> PathBuf {
        self.dir.path().join("clock-step")
    }

    /// Steps the wall clock of the agent and of its child processes by some seconds: forward, or back if negative.
    /// Their other clocks are not affected.
    ///
    /// # Errors
    /// Fails if the step cannot be written.
    pub fn step_clock(&self, seconds: i64) -> Result<()> {
        let file = self.clock_step();
        let before: i64 = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().context("a step that is no number")?,
            Err(_) => 0,
        };
        // The file is replaced by a rename, so that a reader never reads a partial file.
        let next = file.with_extension("next");
        fs::write(&next, (before + seconds).to_string())?;
        Ok(fs::rename(next, file)?)
    }

    /// Runs a function on the agent's host.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let in_space = || match &self.options.space {
            Some(space) => space.inside(work),
            None => Ok(work()),
        };
        match &self.options.host {
            Some(host) => host.inside(in_space)?,
            None => in_space(),
        }
    }

    /// Sets the program for the agent's next start; `None` means the program under test.
    pub fn set_program(&mut self, program: Option<PathBuf>) {
        self.options.program = program;
    }

    /// Sets the second configuration for the agent's next start.
    pub fn set_extra(&mut self, extra: String) {
        self.options.extra = extra;
    }

    /// Sets the host for the agent's next start.
    pub fn set_host(&mut self, host: Host) {
        self.options.host = Some(host);
    }

    /// Sets the mount namespace for the agent's next start.
    pub fn set_space(&mut self, space: Space) {
        self.options.space = Some(space);
    }

    /// Returns the IP address on which the agent listens.
    fn ip(&self) -> String {
        self.options.host.as_ref().map_or_else(|| "127.0.0.1".to_owned(), |h| h.address().to_string())
    }

    fn config(&self) -> String {
        let (o, ip) = (&self.options, self.ip());
        let data_dir =
            if o.dev { String::new() } else { format!("data_dir = \"{}\"\n", self.data_dir().display()) };
        let client = if o.client {
            let servers: Vec<String> = o.servers.iter().map(|s| format!("\"{s}\"")).collect();
            format!("client {{\n  enabled = true\n  servers = [{}]\n}}\n", servers.join(", "))
        } else {
            String::new()
        };
        let join: Vec<String> = o.join.iter().map(|address| format!("\"{address}\"")).collect();
        let join = match join.is_empty() {
            true => String::new(),
            false => format!(
                "  server_join {{\n    retry_join = [{}]\n    retry_interval = \"500ms\"\n  }}\n",
                join.join(", ")
            ),
        };
        let server = match o.server {
            true => format!("server {{\n  enabled = true\n  bootstrap_expect = {}\n{join}}}\n", o.expect),
            false => String::new(),
        };
        let roles = if o.dev { String::new() } else { format!("{server}{client}") };
        format!(
            "bind_addr = \"{ip}\"\nlog_level = \"DEBUG\"\n{data_dir}ports {{\n  http = {}\n  rpc = {}\n  serf = {}\n}}\nadvertise {{\n  http = \"{ip}\"\n  rpc = \"{ip}\"\n  serf = \"{ip}\"\n}}\n{roles}plugin \"raw_exec\" {{\n  config {{\n    enabled = true\n  }}\n}}\nplugin \"exec\" {{\n  config {{\n    allow_privileged_plugins = true\n  }}\n}}\n",
            self.http_port, self.rpc_port, self.serf_port
        )
    }

    /// Waits until the API responds, and until the node is ready if the agent has one.
    ///
    /// # Errors
    /// Fails after the timeout; the error has the end of the log.
    pub fn wait_ready(&mut self) -> Result<()> {
        let wants_node = self.options.client || self.options.dev;
        let ready = eventually("the agent to be ready", || {
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("the agent ended with {status}");
            }
            self.get("/v1/agent/self")?;
            if wants_node {
                let own = self.node_id()?;
                let node = self.get(&format!("/v1/node/{own}"))?;
                if node["Status"] != "ready" {
                    bail!("node is {}", node["Status"]);
                }
            }
            Ok(())
        });
        ready.with_context(|| format!("--- log of the agent\n{}", self.log_tail()))
    }

    /// Returns `address:port` of the gossip port.
    pub fn serf_address(&self) -> String {
        format!("{}:{}", self.ip(), self.serf_port)
    }

    /// Returns `address:port` of the HTTP API.
    pub fn address(&self) -> String {
        format!("{}:{}", self.ip(), self.http_port)
    }

    /// Returns `address:port` of the RPC transport.
    pub fn rpc_address(&self) -> String {
        format!("{}:{}", self.ip(), self.rpc_port)
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join(&self.options.data)
    }

    /// Returns the directory of this test, above the data directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.child.is_some() {
            // Best effort: the test already has its result.
            let _ = self.stop_jobs();
            let _ = self.stop();
        }
        // The tasks of a story that ends without its agent still run.
        let _ = self.kill_tasks();
        let _ = self.kill_plugins();
        if let Ok(mut mounts) = crate::mounts_below(&self.dir.path().to_string_lossy()) {
            mounts.reverse();
            for mount in mounts {
                let _ = nix::mount::umount2(mount.as_str(), nix::mount::MntFlags::MNT_DETACH);
            }
        }
        // Otherwise, directories that a killed agent sealed beneath its mounts could not be removed.
        caravan_sys::seal::unseal_tree(self.dir.path());
    }
}

/// The ports of agents, below the range of tasks and the range of the kernel's automatic choice (ip(7)). From the
/// latter, a connection could take the port of an agent that restarts.
const PORTS: std::ops::Range<u32> = 10_240..20_000;

/// Returns unused ports.
///
/// # Errors
/// Fails if there are not enough unused ports.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    (0..count).map(|_| free_port()).collect()
}

/// Returns an unused port. No other call in this process returns the same port soon.
pub fn free_port() -> Result<u16> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let span = PORTS.end - PORTS.start;
    for _ in 0..span {
        // Test processes that run at the same time begin at different ports.
        let call = CALLS.fetch_add(1, Ordering::Relaxed).wrapping_add(std::process::id().wrapping_mul(101));
        let port = u16::try_from(PORTS.start + call % span)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free")
}
