//! Drains: allocations leave, and a volume plugin outlives the mounts that need it.

use crate::{create_volume, id_of, run_job, run_plugin};
use anyhow::{Result, ensure};
use caravan_testkit::{
    Agent, ForeignPlugin, Writer, eventually, foreign_plugin_job, test_plugin, writer_job,
};
use serde_json::Value;

fn writer(id: &str) -> String {
    writer_job(&Writer {
        id: id.into(),
        driver: "raw_exec".into(),
        volume: "data".into(),
        access_mode: "single-node-writer".into(),
        word: id.into(),
    })
}

/// Returns the end time of the last task of a job's only allocation, as the API reports it.
fn ended(agent: &Agent, job: &str) -> Result<String> {
    let alloc = agent.allocs(job)?.remove(0);
    let alloc = agent.get(&format!("/v1/allocation/{}", id_of(&alloc)?))?;
    let states = alloc["TaskStates"].as_object().cloned().unwrap_or_default();
    let times = states.values().filter_map(|s| s["FinishedAt"].as_str().map(str::to_owned));
    Ok(times.max().unwrap_or_default())
}

#[test]
fn a_drain_ends_the_consumer_first_and_the_plugin_after_its_last_mount() -> Result<()> {
    let agent = Agent::start()?;
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "data", "single-node-writer")?;
    run_job(&agent, "w", &writer("w"))?;
    agent.wait_alloc("w", "running")?;
    let node = agent.node_id()?;
    let out = agent.caravan(&["node", "drain", "-enable", "-yes", "-m", "repairs", &node])?.ok()?;
    ensure!(out.stdout.contains("Drain complete"), "{}", out.stdout);
    agent.wait_no_claims("data")?;
    ensure!(ended(&agent, "w")? <= ended(&agent, "hostpath")?, "the plugin ended before its consumer");
    let row = agent.get(&format!("/v1/node/{node}"))?;
    ensure!(row["LastDrain"]["Status"] == "complete", "{}", row["LastDrain"]);
    ensure!(row["LastDrain"]["AccessorID"] == "token:acls-disabled", "{}", row["LastDrain"]);
    ensure!(row["LastDrain"]["Meta"]["message"] == "repairs", "{}", row["LastDrain"]);
    ensure!(row["SchedulingEligibility"] == "ineligible", "{}", row["SchedulingEligibility"]);
    // The waiting allocation is placed when the node is back.
    agent.caravan(&["node", "eligibility", "-enable", &node])?.ok()?;
    agent.wait_alloc("w", "running").map(drop)
}

#[test]
fn a_hanging_unmount_is_named_and_keeps_the_plugin_even_when_forced() -> Result<()> {
    let agent = Agent::start()?;
    let state = agent.dir().join("san");
    let plugin = ForeignPlugin {
        job: "foreign".into(),
        id: "hostpath".into(),
        kind: "monolith".into(),
        driver: "raw_exec".into(),
        command: test_plugin().display().to_string(),
        args: vec![format!("--statedir={}", state.display()), "--fail=NodeUnpublishVolume=3".into()],
    };
    run_job(&agent, "foreign", &foreign_plugin_job(&plugin))?;
    agent.wait_plugin("hostpath")?;
    create_volume(&agent, "data", "single-node-writer")?;
    run_job(&agent, "w", &writer("w"))?;
    agent.wait_alloc("w", "running")?;
    let node = agent.node_id()?;
    agent.caravan(&["node", "drain", "-enable", "-force", "-yes", "-detach", &node])?.ok()?;
    let mut named = false;
    eventually("the drain to end after naming the volume", || {
        let row = agent.get(&format!("/v1/node/{node}"))?;
        let events = row["Events"].as_array().cloned().unwrap_or_default();
        let waits = |e: &&Value| e["Message"] == "Waiting for volumes to be unmounted";
        named |= events.iter().filter(waits).any(|e| e["Details"]["default/data"].is_string());
        if row["DrainStrategy"].is_object() {
            let plugin = agent.allocs("foreign")?.remove(0);
            let claims = agent.volume("data")?["WriteAllocs"].as_object().map_or(0, serde_json::Map::len);
            let over = plugin["ClientStatus"] == "complete";
            ensure!(!(over && claims > 0), "the plugin ended before its mount");
        }
        ensure!(row["DrainStrategy"].is_null(), "still draining");
        Ok(())
    })?;
    ensure!(named, "the hanging unmount was not named");
    agent.wait_no_claims("data")
}

#[test]
fn eligibility_and_the_drain_exclude_each_other() -> Result<()> {
    let agent = Agent::start()?;
    let node = agent.node_id()?;
    let path = format!("/v1/node/{node}/eligibility");
    let body = |word: &str| serde_json::json!({"NodeID": node, "Eligibility": word});
    let reply = agent.request("PUT", &path, Some(&body("maybe")))?;
    ensure!((reply.status, reply.text().as_str()) == (500, "invalid scheduling eligibility \"maybe\""));
    // A long batch job keeps the drain in force.
    let job = "job \"long\" {\n  type = \"batch\"\n  group \"g\" {\n    task \"t\" {\n      driver = \"raw_exec\"\n      config {\n        command = \"/bin/sleep\"\n        args = [\"600\"]\n      }\n      resources {\n        cpu = 20\n        memory = 16\n      }\n    }\n  }\n}\n";
    run_job(&agent, "long", job)?;
    agent.wait_alloc("long", "running")?;
    agent.caravan(&["node", "drain", "-enable", "-no-deadline", "-yes", "-detach", &node])?.ok()?;
    let reply = agent.request("PUT", &path, Some(&body("eligible")))?;
    ensure!(reply.status == 500 && reply.text().contains("while it is draining"), "{}", reply.text());
    agent.caravan(&["node", "drain", "-disable", "-yes", &node])?.ok()?;
    let row = agent.get(&format!("/v1/node/{node}"))?;
    ensure!(row["LastDrain"]["Status"] == "canceled" && row["SchedulingEligibility"] == "eligible", "{row}");
    ensure!(agent.allocs("long")?.len() == 1, "the batch job was moved");
    Ok(())
}
