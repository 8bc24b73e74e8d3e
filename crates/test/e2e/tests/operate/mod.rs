//! Operations on a cluster of servers: recovery, snapshots, verbs, upgrades.

mod guide;
mod minority;
mod named;
mod recover;
mod snapshots;
mod upgrade;
mod verbs;

use anyhow::{Context, Result, ensure};
use caravan_testkit::{Agent, eventually};
use serde_json::{Value, json};

/// Writes a variable, as soon as there is a leader.
fn put(agent: &Agent, path: &str, value: &str) -> Result<()> {
    eventually("a variable to be written", || {
        let items = json!({"Items": {"v": value}});
        let reply = agent.request("PUT", &format!("/v1/var/{path}"), Some(&items))?;
        ensure!(reply.status == 200, "{} {}", reply.status, reply.text());
        Ok(())
    })
}

/// Returns the value of a variable, which a server with the root keys can read.
fn value(agent: &Agent, path: &str) -> Result<Value> {
    Ok(agent.get(&format!("/v1/var/{path}"))?["Items"]["v"].clone())
}

/// Returns the UUID of a server.
fn server_id(agent: &Agent) -> Result<String> {
    let id = std::fs::read_to_string(agent.data_dir().join("server/server-id"))?;
    ensure!(!id.trim().is_empty(), "a server has an id");
    Ok(id.trim().to_owned())
}

/// Returns a path as text.
fn text(path: &std::path::Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("a path that is no text")
}
