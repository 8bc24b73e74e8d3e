//! Requests to an agent, over its API and with commands of the program.

use super::Agent;
use crate::cli::{Output, program};
use crate::http::{Call, Reply, request_over, send};
use crate::wait::eventually;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

impl Agent {
    /// Returns the id of the agent's node.
    ///
    /// # Errors
    /// Fails if the agent has no node.
    pub fn node_id(&self) -> Result<String> {
        let own = self.get("/v1/agent/self")?;
        own["stats"]["client"]["node_id"]
            .as_str()
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| anyhow!("the agent has no node yet"))
    }

    /// Connects to the HTTP API from the host of the agent.
    fn connect(&self) -> Result<TcpStream> {
        let address: SocketAddr = self.address().parse()?;
        match &self.options.host {
            Some(host) => host.connect(address),
            None => TcpStream::connect(address).with_context(|| format!("connect to {address}")),
        }
    }

    /// Runs a command of the program against this agent.
    ///
    /// # Errors
    /// Fails if the program cannot be run.
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

    /// Sends a `GET` request and returns the JSON of the response.
    ///
    /// # Errors
    /// Fails if the response is not 200 with JSON.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, None)?.json().with_context(|| format!("GET {path}"))
    }

    /// Sends a request with a JSON body.
    ///
    /// # Errors
    /// Fails if the agent does not respond.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        request_over(self.connect()?, &self.address(), method, path, body)
    }

    /// Sends a request with the given headers and body.
    ///
    /// # Errors
    /// Fails if the agent does not respond.
    pub fn send(&self, call: &Call) -> Result<Reply> {
        send(self.connect()?, &self.address(), call)
    }

    /// Passes leadership on to a voter that does not lead.
    ///
    /// # Errors
    /// Fails if there is no such voter, or leadership is not transferred.
    pub fn transfer_leadership(&self) -> Result<()> {
        let configuration = self.get("/v1/operator/raft/configuration")?;
        let mut servers = configuration["Servers"].as_array().into_iter().flatten();
        let next = servers.find(|server| server["Voter"] == true && server["Leader"] == false);
        let id = next.and_then(|server| server["ID"].as_str()).context("no other voter")?;
        let path = format!("/v1/operator/raft/transfer-leadership?id={id}");
        let reply = self.request("PUT", &path, None)?;
        if reply.status != 200 {
            bail!("transfer to {id}: {} {}", reply.status, reply.text());
        }
        Ok(())
    }

    /// Returns the allocations of a job, newest first.
    ///
    /// # Errors
    /// Fails if the API does not respond.
    pub fn allocs(&self, job: &str) -> Result<Vec<Value>> {
        let mut list =
            self.get(&format!("/v1/job/{job}/allocations"))?.as_array().cloned().unwrap_or_default();
        list.sort_by_key(|a| std::cmp::Reverse(a["CreateIndex"].as_u64()));
        Ok(list)
    }

    /// Waits until the newest allocation of a job has a client status. Returns the allocation.
    ///
    /// # Errors
    /// Fails after the timeout.
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

    /// Returns a volume with its claims.
    ///
    /// # Errors
    /// Fails if the volume does not exist.
    pub fn volume(&self, id: &str) -> Result<Value> {
        self.get(&format!("/v1/volume/csi/{id}"))
    }

    /// Waits until a volume has no claims.
    ///
    /// # Errors
    /// Fails if claims remain after the timeout.
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
    /// Fails if they are unhealthy after the timeout.
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

    /// Returns the current output of a task.
    ///
    /// # Errors
    /// Fails if the API does not respond.
    pub fn logs(&self, alloc: &str, task: &str, stream: &str) -> Result<String> {
        let path = format!("/v1/client/fs/logs/{alloc}?task={task}&type={stream}&plain=true");
        let reply = self.request("GET", &path, None)?;
        if reply.status != 200 {
            bail!("status {}: {}", reply.status, reply.text());
        }
        Ok(reply.text())
    }

    /// Stops and purges all jobs, so that none of their processes outlives the agent.
    pub(super) fn stop_jobs(&self) -> Result<()> {
        let jobs = self.get("/v1/jobs")?;
        let mut ids: Vec<(bool, String)> = jobs
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|j| Some((j["Type"] == "system", j["ID"].as_str()?.to_owned())))
            .collect();
        // Plugins are stopped last, because unmounting needs them.
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
