//! An agent in a machine, as a service without an init system: started by a shell, with its log in `/var/log`.

use super::machine::Machine;
use crate::{Output, eventually_within};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::time::Duration;

/// The agent's configuration.
pub const AGENT_CONFIG: &str = "/etc/caravan.hcl";
/// The agent's data directory.
pub const DATA_DIR: &str = "/var/lib/caravan";
/// The port of the HTTP API.
const PORT: u16 = 4646;
/// The timeout of an agent under emulation.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The configuration of an agent that is server and client. The lease lasts longer than a slow start of the
/// agent: otherwise the tasks of a killed agent would end. On a busy host, the clock of an emulated
/// processor differs from the measurement of its kernel.
const CONFIG: &str = r#"
bind_addr = "127.0.0.1"
log_level = "DEBUG"
data_dir  = "/var/lib/caravan"
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
}
server {
  enabled          = true
  bootstrap_expect = 1
  lease_ttl        = "10m"
}
client {
  enabled           = true
  cpu_total_compute = 4000
}
plugin "raw_exec" {
  config {
    enabled = true
  }
}
plugin "exec" {
  config {
    allow_privileged_plugins = true
  }
}
"#;

/// A script that starts the agent in a separate session; `$1...` is the command before the program.
const START: &str = r#"
setsid sh -c 'echo $$ > /run/agent.pid; exec "$@"' start "$@" caravan agent -config /etc/caravan.hcl </dev/null >>/var/log/agent.log 2>&1 &
"#;

impl Machine {
    /// Writes the agent's configuration; `more` is appended to it.
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub fn configure_agent(&self, more: &str) -> Result<()> {
        self.put(AGENT_CONFIG, 0o644, format!("{CONFIG}{more}").as_bytes())
    }

    /// Starts the agent and waits until its node is ready.
    ///
    /// # Errors
    /// Fails after the timeout, with the end of the agent's log.
    pub fn start_agent(&self) -> Result<()> {
        self.start_agent_by(&[])
    }

    /// Starts the agent by another program, such as `nice`, and waits until its node is ready.
    ///
    /// # Errors
    /// As [`Self::start_agent`].
    pub fn start_agent_by(&self, before: &[&str]) -> Result<()> {
        self.launch_agent(before)?;
        self.wait_agent()
    }

    /// Starts the agent without waiting, by another program if one is named.
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub fn launch_agent(&self, before: &[&str]) -> Result<()> {
        let mut command = vec!["sh", "-c", START, "start"];
        command.extend(before);
        self.run(&command)?.ok().map(drop)
    }

    /// Waits until the agent responds and its node is ready.
    ///
    /// # Errors
    /// Fails after the timeout, or if the agent ends, with the end of its log.
    pub fn wait_agent(&self) -> Result<()> {
        let mut has_ended = false;
        let ready = eventually_within(TIMEOUT, "the agent to be ready", || {
            if has_ended {
                return Ok(false);
            }
            let alive = "test ! -s /run/agent.pid || kill -0 $(cat /run/agent.pid)";
            has_ended = self.run(&["sh", "-c", alive])?.code != 0;
            let own = self.api("/v1/agent/self")?;
            let own = own["stats"]["client"]["node_id"].as_str().context("the agent has no node")?;
            let node = self.api(&format!("/v1/node/{own}"))?;
            ensure!(node["Status"] == "ready", "the node is {}", node["Status"]);
            Ok(true)
        });
        let ready = ready.and_then(|ready| if ready { Ok(()) } else { bail!("the agent has ended") });
        ready.with_context(|| format!("--- log of the agent\n{}", self.agent_log_tail()))
    }

    /// Returns the end of the agent's log.
    pub fn agent_log_tail(&self) -> String {
        let log = self.run(&[
            "sh",
            "-c",
            "grep -Ev 'DEBUG request complete|did not reach the plugin' /var/log/agent.log | tail -n 60",
        ]);
        log.map(|output| output.stdout).unwrap_or_else(|error| format!("{error:#}"))
    }

    /// Returns the end of the agent's log, and the status of a job and of the node, to show why no
    /// allocation is placed.
    fn describe_job(&self, job: &str) -> String {
        let status = |arguments: &[&str]| {
            self.caravan(arguments).map_or_else(|error| format!("{error:#}"), |output| output.all())
        };
        format!(
            "--- log of the agent\n{}\n--- status of job {job}\n{}\n--- status of the node\n{}",
            self.agent_log_tail(),
            status(&["job", "status", job]),
            status(&["node", "status", "-self"]),
        )
    }

    /// Sends a signal to the agent and waits until its process has ended.
    ///
    /// # Errors
    /// Fails if the agent still runs after the timeout.
    pub fn end_agent(&self, signal: &str) -> Result<()> {
        self.sh(&format!("kill -{signal} $(cat /run/agent.pid)"))?;
        eventually_within(TIMEOUT, "the agent to end", || {
            let running = self.run(&["sh", "-c", "kill -0 $(cat /run/agent.pid)"])?;
            ensure!(running.code != 0, "it runs");
            Ok(())
        })?;
        self.sh("rm /run/agent.pid").map(drop)
    }

    /// Runs a command of the program with the agent.
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub fn caravan(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = vec!["caravan"];
        command.extend(arguments);
        self.run(&command)
    }

    /// Returns the response of a route of the API.
    ///
    /// # Errors
    /// Fails if the status is not 200.
    pub fn api(&self, path: &str) -> Result<Value> {
        self.http(PORT, "GET", path, None)?.json().with_context(|| format!("GET {path}"))
    }

    /// Sends a change to the API; an empty response is `Null`.
    ///
    /// # Errors
    /// Fails if the status is not 200.
    pub fn api_send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let reply = self.http(PORT, method, path, body)?;
        if reply.status == 200 && reply.body.is_empty() {
            return Ok(Value::Null);
        }
        reply.json().with_context(|| format!("{method} {path}"))
    }

    /// Runs a job without waiting for it.
    ///
    /// # Errors
    /// Fails if the job is refused.
    pub fn run_job(&self, name: &str, text: &str) -> Result<()> {
        let path = format!("/tmp/{name}.hcl");
        self.put(&path, 0o644, text.as_bytes())?;
        self.caravan(&["job", "run", "-detach", &path])?.ok().map(drop)
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// Fails if the plugin refuses.
    pub fn create_volume(&self, id: &str, access_mode: &str) -> Result<()> {
        let path = format!("/tmp/{id}.volume.hcl");
        self.put(&path, 0o644, crate::volume_spec(id, access_mode).as_bytes())?;
        self.caravan(&["volume", "create", &path])?.ok().map(drop)
    }

    /// Waits until a plugin is healthy on one node.
    ///
    /// # Errors
    /// Fails after the timeout.
    pub fn wait_plugin(&self, id: &str) -> Result<()> {
        eventually_within(TIMEOUT, "the plugin to be healthy", || {
            let plugin = self.api(&format!("/v1/plugin/csi/{id}"))?;
            ensure!(plugin["NodesHealthy"] == 1, "nodes healthy: {}", plugin["NodesHealthy"]);
            Ok(())
        })
        .with_context(|| self.describe_job(id))
    }

    /// Waits until a job has one allocation that runs; returns the allocation.
    ///
    /// # Errors
    /// Fails after the timeout.
    pub fn wait_running(&self, job: &str) -> Result<Value> {
        eventually_within(TIMEOUT, &format!("job {job} to run"), || {
            let all = self.api(&format!("/v1/job/{job}/allocations"))?;
            let all = all.as_array().context("no list")?;
            let running: Vec<&Value> = all.iter().filter(|a| a["ClientStatus"] == "running").collect();
            match running.as_slice() {
                [one] => Ok((*one).clone()),
                _ => bail!("allocations: {}", states(all)),
            }
        })
        .with_context(|| self.describe_job(job))
    }
}

fn states(allocs: &[Value]) -> String {
    let state =
        |alloc: &Value| format!("{} {} ({})", alloc["ID"], alloc["ClientStatus"], alloc["ClientDescription"]);
    allocs.iter().map(state).collect::<Vec<_>>().join(", ")
}
