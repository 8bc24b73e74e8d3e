//! The machines of the servers of a cluster.

use super::kill_all;
use crate::agent::{Agent, AgentOptions};
use crate::net::{Host, Switch};
use crate::wait::eventually;
use anyhow::{Context, Result, bail, ensure};
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

    /// Starts a server that joins others.
    pub(super) fn beside(others: &[Self], extra: &str) -> Result<Self> {
        let first = others.first().context("no server to join")?;
        let host = first.host.beside()?;
        let agent = Agent::launch(AgentOptions {
            client: false,
            expect: 0,
            join: others.iter().map(|other| other.agent.serf_address()).collect(),
            extra: format!("name = \"server-{}\"\n{extra}", others.len() + 1),
            host: Some(host.clone()),
            ..AgentOptions::default()
        })?;
        Ok(Self { agent, host, is_cut: false, is_suspended: false })
    }

    /// Moves the machine to another address, for the agent's next start.
    ///
    /// # Errors
    /// Fails if the kernel or ip(8) refuses.
    pub fn change_address(&mut self) -> Result<()> {
        self.host = self.host.beside()?;
        self.agent.set_host(self.host.clone());
        Ok(())
    }

    /// Returns the network of the machine.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Drops the packets that arrive from these servers. The server still counts as reachable for the test.
    ///
    /// # Errors
    /// Fails if nft(8) refuses.
    pub fn ignore(&self, others: &[std::net::Ipv4Addr]) -> Result<()> {
        others.iter().try_for_each(|other| self.host.ignore(*other))
    }

    /// Returns whether the process has ended without a request.
    ///
    /// # Errors
    /// Fails if the state of the process cannot be read.
    pub fn has_ended(&mut self) -> Result<bool> {
        self.agent.has_ended()
    }

    /// Deletes the data directory of a server that does not run.
    ///
    /// # Errors
    /// Fails if the agent runs, or a file cannot be removed.
    pub fn wipe(&self) -> Result<()> {
        ensure!(!self.agent.is_started(), "the agent runs");
        caravan_sys::tree::remove(&self.agent.data_dir(), caravan_sys::tree::Seals::Lift)?;
        Ok(())
    }

    /// Returns the agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns whether the agent runs, is not suspended, and has its network.
    pub fn is_well(&self) -> bool {
        self.agent.is_started() && !self.is_cut && !self.is_suspended
    }

    /// Kills the agent, or stops it gracefully. A suspended agent is resumed first.
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

    /// Waits until the agent responds and has a leader.
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
