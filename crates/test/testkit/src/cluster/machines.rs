//! The machines of the servers of a cluster.

use super::kill_all;
use crate::agent::{Agent, AgentOptions};
use crate::net::{Host, Switch};
use crate::wait::eventually;
use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The port for gossip between servers of a cluster.
const GOSSIP_PORT: u16 = 4648;

/// A server and its machine.
#[derive(Debug)]
pub struct ServerMachine {
    agent: Agent,
    host: Host,
    is_cut: bool,
    is_suspended: bool,
}

impl ServerMachine {
    /// Starts servers that found one cluster, and waits until all of them name the leader.
    pub(super) fn found(switch: &Switch, count: usize, extra: &str) -> Result<Vec<Self>> {
        let hosts = (0..count.max(1)).map(|_| Host::on(switch)).collect::<Result<Vec<_>>>()?;
        let join = match hosts.len() {
            1 => Vec::new(),
            _ => hosts.iter().map(|host| format!("{}:{GOSSIP_PORT}", host.address())).collect(),
        };
        let mut servers = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let agent = Agent::launch(AgentOptions {
                client: false,
                expect: hosts.len(),
                join: join.clone(),
                extra: match hosts.len() {
                    1 => extra.to_owned(),
                    _ => format!("name = \"server-{}\"\n{extra}", number + 1),
                },
                host: Some(host.clone()),
                ..AgentOptions::default()
            })?;
            servers.push(Self { agent, host: host.clone(), is_cut: false, is_suspended: false });
        }
        for server in &mut servers {
            server.wait_ready()?;
        }
        Ok(servers)
    }

    /// Returns the agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns whether the agent runs, is not suspended, and has its network.
    pub fn is_well(&self) -> bool {
        self.agent.is_started() && !self.is_cut && !self.is_suspended
    }

    /// Kills the agent, or stops it in order. A suspended agent is resumed before.
    ///
    /// # Errors
    /// Fails if the agent does not end.
    pub fn end(&mut self, outright: bool) -> Result<()> {
        self.resume()?;
        match (self.agent.is_started(), outright) {
            (false, _) => Ok(()),
            (true, true) => self.agent.kill_9(),
            (true, false) => self.agent.stop_by(Signal::SIGTERM),
        }
    }

    /// Starts the agent if it does not run, without waiting.
    ///
    /// # Errors
    /// Fails if the agent cannot be started.
    pub fn start(&mut self) -> Result<()> {
        if self.agent.is_started() { Ok(()) } else { self.agent.spawn() }
    }

    /// Waits until the agent answers and knows a leader.
    ///
    /// # Errors
    /// Fails after the timeout.
    pub fn wait_ready(&mut self) -> Result<()> {
        self.agent.wait_ready()?;
        eventually("the server to know a leader", || match self.agent.get("/v1/status/leader?stale")? {
            Value::String(address) if !address.is_empty() => Ok(()),
            other => bail!("{other}"),
        })
    }

    /// Suspends the agent (SIGSTOP).
    ///
    /// # Errors
    /// Fails if the agent does not run.
    pub fn suspend(&mut self) -> Result<()> {
        if self.agent.is_started() {
            self.is_suspended = true;
            self.agent.signal(Signal::SIGSTOP)?;
        }
        Ok(())
    }

    /// Resumes a suspended agent.
    ///
    /// # Errors
    /// Fails if the agent does not run.
    pub fn resume(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_suspended) { self.agent.signal(Signal::SIGCONT) } else { Ok(()) }
    }

    /// Disconnects the machine's network.
    ///
    /// # Errors
    /// Fails if ip(8) refuses.
    pub fn cut(&mut self) -> Result<()> {
        self.is_cut = true;
        self.host.cut()
    }

    /// Reconnects the machine's network.
    ///
    /// # Errors
    /// Fails if ip(8) refuses.
    pub fn mend(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_cut) { self.host.mend() } else { Ok(()) }
    }

    /// Ends every process of the machine.
    pub(super) fn end_all(&mut self) -> Result<()> {
        self.agent.kill_9()?;
        kill_all(&self.host)
    }
}
