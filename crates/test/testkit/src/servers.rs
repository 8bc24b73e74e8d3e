//! Several servers on this machine, as separate processes.

use crate::agent::{Agent, AgentOptions, free_port};
use crate::wait::eventually;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

/// Servers that found one cluster together.
#[derive(Debug)]
pub struct Servers {
    agents: Vec<Agent>,
    join: Vec<String>,
}

impl Servers {
    /// Starts servers without clients, and waits until they have a leader.
    ///
    /// # Errors
    /// Fails if there is no leader after the timeout.
    pub fn start(count: usize) -> Result<Self> {
        Self::with(count, "")
    }

    /// Starts servers as [`Servers::start`] does, with a second configuration, which is merged over the first.
    ///
    /// # Errors
    /// As [`Servers::start`].
    pub fn with(count: usize, extra: &str) -> Result<Self> {
        let ports = (0..count).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
        let join: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut agents = Vec::new();
        for (number, port) in ports.iter().enumerate() {
            agents.push(Agent::launch(AgentOptions {
                client: false,
                expect: count,
                join: join.clone(),
                serf_port: *port,
                extra: format!("name = \"server-{}\"\n{extra}", number + 1),
                ..AgentOptions::default()
            })?);
        }
        let servers = Self { agents, join };
        servers.wait_leader()?;
        Ok(servers)
    }

    /// Starts one more server, which waits to be admitted. Returns its position.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
    pub fn add(&mut self, extra: &str) -> Result<usize> {
        let number = self.agents.len();
        self.agents.push(Agent::launch(AgentOptions {
            client: false,
            expect: 0,
            join: self.join.clone(),
            extra: format!("name = \"server-{}\"\n{extra}", number + 1),
            ..AgentOptions::default()
        })?);
        Ok(number)
    }

    /// Returns a server by its position.
    pub fn get(&self, number: usize) -> &Agent {
        &self.agents[number]
    }

    /// Returns a mutable reference to a server by its position.
    pub fn get_mut(&mut self, number: usize) -> &mut Agent {
        &mut self.agents[number]
    }

    /// Returns the positions of the servers that run.
    pub fn running(&self) -> Vec<usize> {
        (0..self.agents.len()).filter(|number| self.agents[*number].is_started()).collect()
    }

    /// Waits until all running servers name the same leader, which is one of them. Returns its position.
    ///
    /// # Errors
    /// Fails after the timeout.
    pub fn wait_leader(&self) -> Result<usize> {
        eventually("one leader", || {
            let mut leader = None;
            for number in self.running() {
                let answer = self.agents[number].get("/v1/status/leader?stale")?;
                let address = answer.as_str().unwrap_or_default().to_owned();
                match &leader {
                    None => leader = Some(address),
                    Some(first) if *first == address => {}
                    Some(first) => bail!("two leaders: {first} and {address}"),
                }
            }
            let address = leader.context("no server runs")?;
            let found = self.running().into_iter().find(|n| self.agents[*n].rpc_address() == address);
            found.ok_or_else(|| anyhow!("the leader {address:?} does not run"))
        })
    }

    /// Returns the position of a running server that does not lead.
    ///
    /// # Errors
    /// Fails if there is no leader, or no other server.
    pub fn follower(&self) -> Result<usize> {
        let leader = self.wait_leader()?;
        self.running().into_iter().find(|number| *number != leader).context("no other server runs")
    }

    /// Waits until the log has `count` voters, and returns the configuration.
    ///
    /// # Errors
    /// Fails after the timeout.
    pub fn wait_voters(&self, count: usize) -> Result<Value> {
        eventually(&format!("{count} voters"), || {
            let number = *self.running().first().context("no server runs")?;
            let configuration = self.agents[number].get("/v1/operator/raft/configuration")?;
            let servers = configuration["Servers"].as_array().cloned().unwrap_or_default();
            let voters = servers.iter().filter(|server| server["Voter"] == true).count();
            if voters == count && servers.len() == count {
                Ok(configuration)
            } else {
                bail!("{configuration}")
            }
        })
    }

    /// Waits until the running servers have applied the same index.
    ///
    /// # Errors
    /// Fails after the timeout.
    pub fn wait_level(&self) -> Result<()> {
        eventually("all servers at one index", || {
            let mut all = Vec::new();
            for number in self.running() {
                let own = self.agents[number].get("/v1/agent/self")?;
                all.push(own["stats"]["raft"]["applied_index"].clone());
            }
            all.dedup();
            if all.len() == 1 { Ok(()) } else { bail!("{all:?}") }
        })
    }

    /// Returns the gossip addresses of the founders.
    pub fn join(&self) -> &[String] {
        &self.join
    }
}
