//! Allocations are reachable from their start, also through a restarted agent.

use crate::{id_of, run_job, script_job};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Agent, eventually};
use serde_json::json;

fn stays() -> String {
    script_job("stays", "echo here; echo kept > ${NOMAD_TASK_DIR}/word; exec sleep 3600")
}

#[test]
fn at_once_after_the_agent_has_come_back() -> Result<()> {
    let mut agent = Agent::start()?;
    run_job(&agent, "stays", &stays())?;
    let id = id_of(&agent.wait_alloc("stays", "running")?)?;
    for _ in 0..3 {
        agent.kill_9()?;
        agent.spawn()?;
        // The first answer must already be correct.
        eventually("an answer", || agent.get("/v1/agent/health").map(drop))?;
        let listed = agent.request("GET", &format!("/v1/client/fs/ls/{id}?path=t/local"), None)?;
        ensure!(listed.status == 200, "{}: {}", listed.status, listed.text());
        ensure!(listed.json()?[0]["Name"] == "word", "{}", listed.text());
    }
    agent.wait_ready()
}

#[test]
fn processes_archive_and_identity() -> Result<()> {
    let agent = Agent::start()?;
    run_job(&agent, "stays", &stays())?;
    let id = id_of(&agent.wait_alloc("stays", "running")?)?;
    eventually("the processes of the task", || {
        let stats = agent.get(&format!("/v1/client/allocation/{id}/stats"))?;
        let Some(pids) = stats["Tasks"]["t"]["Pids"].as_object() else { bail!("{stats}") };
        ensure!(pids.values().any(|one| one["MemoryStats"]["RSS"].as_u64() > Some(0)), "{stats}");
        Ok(())
    })?;
    let archive = eventually("the file in the archive", || {
        let archive = agent.request("GET", &format!("/v1/client/allocation/{id}/snapshot"), None)?;
        ensure!(archive.status == 200, "{}: {}", archive.status, archive.text());
        ensure!(archive.text().contains("t/local/word"), "not there yet");
        Ok(archive)
    })?;
    ensure!(archive.text().contains("kept\n") && !archive.text().contains("secrets"), "{}", archive.text());
    let first = agent.get("/v1/client/identity")?["Claims"].clone();
    ensure!(first["nomad_node_id"] == json!(agent.node_id()?), "{first}");
    ensure!(agent.get("/v1/client/identity")?["Claims"]["jti"] == first["jti"], "it was signed twice");
    let renewed = agent.request("PUT", "/v1/client/identity/renew", Some(&json!({})))?;
    ensure!((renewed.status, renewed.text().as_str()) == (200, "{}"), "{}", renewed.text());
    ensure!(agent.get("/v1/client/identity")?["Claims"]["jti"] != first["jti"], "it was not signed anew");
    Ok(())
}
