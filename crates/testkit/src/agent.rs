//! An agent as a process of its own, on ports and directories of its own.

use crate::cli::{Output, program};
use crate::http::{Call, Reply, request_over, send};
use crate::net::Host;
use crate::space::Space;
use crate::wait::eventually;
use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// `-dev`: nothing survives.
    pub dev: bool,
    /// A server part.
    pub server: bool,
    /// A client part.
    pub client: bool,
    /// RPC addresses of servers, for an agent without one.
    pub servers: Vec<String>,
    /// A second configuration, merged over the first: HCL, or JSON if it begins with a brace.
    pub extra: String,
    /// Further arguments.
    pub args: Vec<String>,
    /// Variables of its environment, besides those of this process.
    pub env: Vec<(String, String)>,
    /// Where it runs: this machine, on ports that are free, or a host of its own, on the usual ports.
    pub host: Option<Host>,
    /// Mounts of its own; without, those of this process.
    pub space: Option<Space>,
    /// The data directory below the test's own.
    pub data: String,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            dev: false,
            server: true,
            client: true,
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

/// A running agent. Dropped: ended, with all that it ran, and its mounts removed.
#[derive(Debug)]
pub struct Agent {
    options: AgentOptions,
    child: Option<Child>,
    /// Bytes of the log when the process was started.
    log_before: u64,
    dir: tempfile::TempDir,
    http_port: u16,
    rpc_port: u16,
}

impl Agent {
    /// Starts an agent with a data directory, server and client in one, and waits until its node is
    /// ready.
    ///
    /// # Errors
    /// If it does not get there.
    pub fn start() -> Result<Self> {
        Self::with(AgentOptions::default())
    }

    /// Starts an agent and waits until it answers, and until its node is ready if it has one.
    ///
    /// # Errors
    /// If it does not get there; the end of its log is in the text.
    pub fn with(options: AgentOptions) -> Result<Self> {
        let mut agent = Self::launch(options)?;
        agent.wait_ready()?;
        Ok(agent)
    }

    /// Starts an agent and does not wait: for those that are not to get ready.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn launch(options: AgentOptions) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("caravan-test-").tempdir()?;
        let (http_port, rpc_port) = match options.host {
            Some(_) => (4646, 4647),
            None => (free_port()?, free_port()?),
        };
        let mut agent = Self { options, child: None, log_before: 0, dir, http_port, rpc_port };
        agent.spawn()?;
        Ok(agent)
    }

    /// Starts the process (again) on the same directories and ports.
    ///
    /// # Errors
    /// If it does not get ready.
    pub fn run(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Starts the process (again) and does not wait.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        let config = self.dir.path().join("agent.hcl");
        fs::write(&config, self.config())?;
        let more = self.dir.path().join("agent.d");
        fs::create_dir_all(&more)?;
        let kind = if self.options.extra.starts_with('{') { "json" } else { "hcl" };
        fs::write(more.join(format!("extra.{kind}")), &self.options.extra)?;
        let log = File::options().create(true).append(true).open(self.log_path())?;
        self.log_before = log.metadata()?.len();
        let mut command = Command::new(program());
        command.arg("agent");
        if self.options.dev {
            command.arg("-dev");
        }
        command.arg("-config").arg(&config).arg("-config").arg(&more).args(&self.options.args);
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = self.inside(|| command.spawn())?;
        self.child = Some(child.context("start the agent")?);
        Ok(())
    }

    /// Does something on the agent's host.
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

    /// Gives it other mounts, from its next start on.
    pub fn set_space(&mut self, space: Space) {
        self.options.space = Some(space);
    }

    /// Whether its process was started and not ended by this value.
    pub fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// Sends a signal and does not wait for anything.
    ///
    /// # Errors
    /// If it does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the agent was not started")?;
        Ok(kill(Pid::from_raw(i32::try_from(child.id())?), signal)?)
    }

    /// The address that it listens on.
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
        let server = if o.server { "server {\n  enabled = true\n  bootstrap_expect = 1\n}\n" } else { "" };
        let roles = if o.dev { String::new() } else { format!("{server}{client}") };
        format!(
            "bind_addr = \"{ip}\"\nlog_level = \"DEBUG\"\n{data_dir}ports {{\n  http = {}\n  rpc = {}\n}}\nadvertise {{\n  http = \"{ip}\"\n  rpc = \"{ip}\"\n}}\n{roles}plugin \"raw_exec\" {{\n  config {{\n    enabled = true\n  }}\n}}\n",
            self.http_port, self.rpc_port
        )
    }

    /// Waits until the agent answers, and until its node is ready if it has one.
    ///
    /// # Errors
    /// If it does not get there; the end of its log is in the text.
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

    /// Waits until the agent's log holds a text.
    ///
    /// # Errors
    /// If it does not.
    pub fn wait_log(&self, text: &str) -> Result<()> {
        eventually(&format!("{text:?} in the agent's log"), || {
            if self.log().contains(text) { Ok(()) } else { bail!("--- log\n{}", self.log_tail()) }
        })
    }

    /// Waits until the agent ended by itself; answers its exit code.
    ///
    /// # Errors
    /// If it does not, or by a signal.
    pub fn wait_end(&mut self) -> Result<i32> {
        let mut child = self.child.take().context("the agent was not started")?;
        let ended = eventually("the agent to end", || {
            child.try_wait()?.ok_or_else(|| anyhow!("still running"))?.code().context("ended by a signal")
        });
        if ended.is_err() {
            // It may have ended meanwhile.
            let _ = child.kill();
            child.wait()?;
        }
        ended.with_context(|| format!("--- log of the agent\n{}", self.log_tail()))
    }

    /// Id of the agent's own node.
    ///
    /// # Errors
    /// If it has none.
    pub fn node_id(&self) -> Result<String> {
        let own = self.get("/v1/agent/self")?;
        own["stats"]["client"]["node_id"]
            .as_str()
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| anyhow!("the agent has no node yet"))
    }

    /// `address:port` of the HTTP API.
    pub fn address(&self) -> String {
        format!("{}:{}", self.ip(), self.http_port)
    }

    /// `address:port` of the agents' own transport.
    pub fn rpc_address(&self) -> String {
        format!("{}:{}", self.ip(), self.rpc_port)
    }

    /// A connection to the HTTP API, from the agent's own host.
    fn connect(&self) -> Result<TcpStream> {
        let address: SocketAddr = self.address().parse()?;
        match &self.options.host {
            Some(host) => host.connect(address),
            None => TcpStream::connect(address).with_context(|| format!("connect to {address}")),
        }
    }

    /// Data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join(&self.options.data)
    }

    /// Directory of this test, above the data directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id.
    ///
    /// # Panics
    /// If the agent is not running.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    /// Where its log is.
    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("agent.log")
    }

    /// The agent's whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The end of the agent's log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Kills the agent outright.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn kill_9(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks the agent to end and waits for it.
    ///
    /// # Errors
    /// If it does not.
    pub fn stop(&mut self) -> Result<()> {
        self.stop_by(Signal::SIGINT)
    }

    /// Whether the process has written to its log. From then on it listens to signals.
    ///
    /// # Errors
    /// If there is no log.
    pub fn has_spoken(&self) -> Result<bool> {
        Ok(fs::metadata(self.log_path())?.len() > self.log_before)
    }

    /// Sends a signal and waits for the end. Before the process has said anything, it may end by the signal itself.
    ///
    /// # Errors
    /// If it does not end, or not in order.
    pub fn stop_by(&mut self, signal: Signal) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        kill(Pid::from_raw(i32::try_from(child.id())?), signal)?;
        let ended =
            eventually("the agent to end", || child.try_wait()?.ok_or_else(|| anyhow!("still running")));
        if ended.is_err() {
            child.kill()?;
            child.wait()?;
        }
        let status = ended?;
        let too_early = status.signal() == Some(signal as i32) && !self.has_spoken()?;
        if status.success() || too_early {
            return Ok(());
        }
        bail!("the agent ended with {status}\n{}", self.log_tail())
    }

    /// Runs a verb against this agent.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn caravan(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(program());
        command
            .args(args)
            .env("CARAVAN_ADDR", format!("http://{}", self.address()))
            .env_remove("NOMAD_ADDR")
            .current_dir(crate::workspace(""))
            .stdin(Stdio::null());
        let output = self.inside(|| command.output())?.with_context(|| format!("run caravan {args:?}"))?;
        Ok(Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// `GET` as JSON.
    ///
    /// # Errors
    /// If the answer is not 200 with JSON.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, None)?.json().with_context(|| format!("GET {path}"))
    }

    /// Any request.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        request_over(self.connect()?, &self.address(), method, path, body)
    }

    /// Any request with headers and a body of its own.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn send(&self, call: &Call) -> Result<Reply> {
        send(self.connect()?, &self.address(), call)
    }

    /// Allocations of a job, newest first.
    ///
    /// # Errors
    /// If the API does not answer.
    pub fn allocs(&self, job: &str) -> Result<Vec<Value>> {
        let mut list =
            self.get(&format!("/v1/job/{job}/allocations"))?.as_array().cloned().unwrap_or_default();
        list.sort_by_key(|a| std::cmp::Reverse(a["CreateIndex"].as_u64()));
        Ok(list)
    }

    /// Waits until the newest allocation of a job has a client status; answers the allocation.
    ///
    /// # Errors
    /// If it does not get there.
    pub fn wait_alloc(&self, job: &str, status: &str) -> Result<Value> {
        eventually(&format!("job {job} to be {status}"), || {
            let allocs = self.allocs(job)?;
            let Some(newest) = allocs.first() else {
                let evals = self.get(&format!("/v1/job/{job}/evaluations"))?;
                bail!("no allocation; evaluations: {evals}")
            };
            if newest["ClientStatus"] != status {
                bail!("allocation is {}: {}", newest["ClientStatus"], newest["TaskStates"]);
            }
            Ok(newest.clone())
        })
        .with_context(|| format!("--- log of the agent\n{}", self.log_tail()))
    }

    /// A volume with its claims.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn volume(&self, id: &str) -> Result<Value> {
        self.get(&format!("/v1/volume/csi/{id}"))
    }

    /// Waits until no claim of a volume is left.
    ///
    /// # Errors
    /// If some stay.
    pub fn wait_no_claims(&self, id: &str) -> Result<()> {
        eventually(&format!("no claim on volume {id}"), || {
            let volume = self.volume(id)?;
            let holding = volume["CaravanClaims"]
                .as_array()
                .map(|c| c.iter().filter(|c| c["Phase"] != "gone").count())
                .unwrap_or(0);
            if holding > 0 {
                bail!("claims: {}", volume["CaravanClaims"]);
            }
            Ok(())
        })
        .with_context(|| format!("--- log of the agent\n{}", self.log_tail()))
    }

    /// Waits until a plugin's node and controller services are healthy.
    ///
    /// # Errors
    /// If they do not get there.
    pub fn wait_plugin(&self, id: &str) -> Result<Value> {
        eventually(&format!("plugin {id} to be healthy"), || {
            let plugin = self.get(&format!("/v1/plugin/csi/{id}"))?;
            if plugin["NodesHealthy"].as_u64() < Some(1) || plugin["ControllersHealthy"].as_u64() < Some(1) {
                bail!("nodes {}, controllers {}", plugin["NodesHealthy"], plugin["ControllersHealthy"]);
            }
            Ok(plugin)
        })
        .with_context(|| format!("--- log of the agent\n{}", self.log_tail()))
    }

    /// What a task of an allocation printed so far.
    ///
    /// # Errors
    /// If the API does not answer.
    pub fn logs(&self, alloc: &str, task: &str, stream: &str) -> Result<String> {
        let path = format!("/v1/client/fs/logs/{alloc}?task={task}&type={stream}&plain=true");
        let reply = self.request("GET", &path, None)?;
        if reply.status != 200 {
            bail!("status {}: {}", reply.status, reply.text());
        }
        Ok(reply.text())
    }

    /// Stops and removes all jobs, so that nothing of them outlives the agent.
    fn stop_jobs(&self) -> Result<()> {
        let jobs = self.get("/v1/jobs")?;
        let mut ids: Vec<(bool, String)> = jobs
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|j| Some((j["Type"] == "system", j["ID"].as_str()?.to_owned())))
            .collect();
        // Plugins go last: they are needed to unmount.
        ids.sort();
        for (_, id) in ids {
            self.request("DELETE", &format!("/v1/job/{id}"), None)?;
            eventually("the job's allocations to end", || {
                let live = self
                    .allocs(&id)?
                    .iter()
                    .filter(|a| matches!(a["ClientStatus"].as_str(), Some("running" | "pending")))
                    .count();
                if live > 0 { bail!("{live} left") } else { Ok(()) }
            })?;
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.child.is_some() {
            // Best effort: the test has said what it had to say.
            let _ = self.stop_jobs();
            let _ = self.stop();
        }
        if let Ok(mut mounts) = crate::mounts_below(&self.dir.path().to_string_lossy()) {
            mounts.reverse();
            for mount in mounts {
                let _ = nix::mount::umount2(mount.as_str(), nix::mount::MntFlags::MNT_DETACH);
            }
        }
        // What a killed agent has sealed beneath its mounts could not be removed.
        caravan_sys::seal::unseal_tree(self.dir.path());
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
